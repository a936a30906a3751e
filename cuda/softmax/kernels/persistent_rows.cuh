// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of long rows by persistent clusters: a row's vectors are loaded into shared memory while the
// results of the row before are stored.
#pragma once

#include "softmax/kernels/persistent_stages.cuh"
#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over i of exp(z(row, i) - max), z = scale * x.
template <class Input, int kBatch>
struct PersistentSoftmax {
  using T = Input;
  using A = ComputeType<T>;
  using Scale = ScoreScale<T, SoftmaxMask::none>;
  using Row = PersistentRow<T, false, kBatch>;
  static constexpr bool is_backward = false;
  static constexpr int batch = kBatch, width = vector_width<T>, num_inputs = 1;
  static constexpr bool keeps_exponentials = !is_float16<T>;

  bool log_softmax;
  int lane;
  A maximum;  // the warp's running maximum when the lane's batch was taken
  RunningSum<T, SoftmaxMask::none> running;
  ThreadSum<T, 2> sum;  // of pairs of exponentials
  // The exponents' reference is raised when a score exceeds `limit` = reference + slack. 16-bit exponentials may grow
  // to 2^8; a float32 one above 1 would lose its last bits.
  A slack, limit;
  A outer, sent_outer;
  RowPartial<T> row;  // the leaving row
  ResultFactors<T> result;
  A factor_max;  // the reference of result.factor

  __device__ __forceinline__ PersistentSoftmax(const SoftmaxParams& params, int warp_lane)
      : log_softmax(params.log_softmax),
        lane(warp_lane),
        maximum(0),
        running{exponent_scale<T, SoftmaxMask::none>(params)},
        slack(keeps_exponentials || params.log_softmax ? A{0} : A{8} / running.scale) {}

  __device__ __forceinline__ Scale to_row_exponent() const {
    return {row.max == negative_infinity<A>() ? A{0} : row.max, running.scale};
  }
  __device__ __forceinline__ void begin(const Row& coming) {
    running.max = limit = negative_infinity<A>();
    running.sum = 0;
    sum = {};
    outer = coming.has_outer ? coming.outer_of(coming.x) : negative_infinity<A>();
  }
  // The lane that holds the maximum of batch n of row `index`.
  static __device__ __forceinline__ int lane_of(int index, int n) { return (index & 1) * max_persistent_batches + n; }
  // `largest` is the warp's.
  __device__ __forceinline__ void raise(A largest) {
    if (!(largest > limit)) return;
    running.sum += sum.total();
    sum = {};
    running.raise(largest);
    limit = largest + slack;
  }
  // Takes batch n of the coming row. Its exponentials, if they are kept, overwrite x at vector_at(i).
  template <class VectorAt>
  __device__ __forceinline__ void take(unsigned vectors, int index, int n, uint4 (&x)[num_inputs][batch],
                                       VectorAt vector_at) {
    if (vectors != (1u << batch) - 1) {
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if ((vectors >> i & 1) == 0) x[0][i] = negative_infinity_vector<T>();
    }
    VectorMax<T> largest;
#pragma unroll
    for (int i = 0; i < batch; ++i) largest.take(x[0][i]);
    raise(max_over_lanes(largest.largest(), 32));
    const Scale to_exponent = running.to_exponent();
    if (keeps_exponentials && lane == lane_of(index, n)) maximum = running.max;
    const auto add = [&](auto kind) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        A p[width];
        widen_vector<T>(x[0][i], p);
#pragma unroll
        for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
        if constexpr (keeps_exponentials)
          if constexpr (decltype(kind)::value) *vector_at(i) = narrow_vector<T>(p);
        take_pairs(p);
      }
    };
    if (keeps_exponentials && !log_softmax)
      add(std::bool_constant<keeps_exponentials>());
    else
      add(std::false_type{});
  }
  // float32: a plain addition of each pair costs at most a quarter of a unit in the last place.
  __device__ __forceinline__ void take_pairs(A (&values)[width]) {
    if constexpr (keeps_exponentials) {
#pragma unroll
      for (int j = 0; j < width; j += 2) sum.take_one(values[j] + values[j + 1]);
    } else {
      sum.take(values);
    }
  }
  __device__ __forceinline__ void send(const PersistentExchange<T>& exchange, int index) {
    raise(max_over_lanes(outer, 32));
    sum.take_one(exponential<T>(running.to_exponent()(outer)));
    sent_outer = outer;
    exchange.send({running.max, sum_over_lanes(running.sum + sum.total(), 32)}, index, combine(exchange));
  }
  __device__ __forceinline__ auto combine(const PersistentExchange<T>& exchange) const {
    return [lane = exchange.cluster.lane, scale = running.scale](const RowPartial<T>* parts, int num_partials) {
      return combine_partials<T, SoftmaxMask::none>(parts, num_partials, lane, scale);
    };
  }
  __device__ __forceinline__ void receive(const PersistentExchange<T>& exchange, int index) {
    row = exchange.receive(index, combine(exchange));
    result = {log_softmax, row.sum, to_row_exponent().log_factor()};
    factor_max = row.max;
  }
  // Sets the factor for exponentials relative to `max`.
  __device__ __forceinline__ void find_factor(A max) {
    if (max == factor_max) return;
    factor_max = max;
    result.factor = factor_of_exponentials<T, SoftmaxMask::none>(max, to_row_exponent(), row.sum);
  }
  // Stores the results of batch n of the leaving row, from exponentials if they were kept.
  __device__ __forceinline__ void leave(unsigned vectors, int index, int n, const uint4 (&x)[num_inputs][batch],
                                        bool is_unmasked, unsigned char* out) {
    const Scale to_exponent = to_row_exponent();
    if (keeps_exponentials && !log_softmax)
      find_factor(is_unmasked ? __shfl_sync(0xffffffffu, maximum, lane_of(index, n)) : row.max);
    const auto store = [&](auto kind) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        A y[width];
        vector_results<decltype(kind)::value>(x[0][i], to_exponent, result, y);
        if (vectors >> i & 1) store_values<T>(out + i * thread_step_bytes, y);
      }
    };
    constexpr HeldAs held_as = keeps_exponentials ? HeldAs::exponentials : HeldAs::scores;
    if (log_softmax)
      store(std::integral_constant<HeldAs, HeldAs::scores_for_logarithms>());
    else if (held_as == HeldAs::exponentials && is_unmasked)
      store(std::integral_constant<HeldAs, held_as>());
    else
      store(std::integral_constant<HeldAs, HeldAs::scores>());
  }
  __device__ __forceinline__ void leave_outer(const Row& leaving) const {
    if (!leaving.has_outer) return;
    const Scale to_exponent = to_row_exponent();
    const A difference = to_exponent.difference(sent_outer);
    leaving.store_outer(log_softmax ? difference * result.factor + result.term
                                    : exponential<T>(to_exponent.exponent(difference)) *
                                          ResultFactors<T>(false, row.sum, A{0}).factor);
  }
};

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); log_softmax: see flowk.h.
template <class Input, int kBatch>
struct PersistentGradient {
  using T = Input;
  using A = ComputeType<T>;
  using Row = PersistentRow<T, true, kBatch>;
  static constexpr bool is_backward = true, keeps_exponentials = false;
  static constexpr int batch = kBatch, width = vector_width<T>, num_inputs = 2;

  using Terms = GradientTerms<T>;
  const SoftmaxParams& params;
  A sum, row_sum;
  A outer[num_inputs], sent_outer[num_inputs];

  __device__ __forceinline__ PersistentGradient(const SoftmaxParams& of, int) : params(of) {}
  // Calls use(terms) with a constant kind of softmax.
  template <class Use>
  __device__ __forceinline__ void with_terms(Use use) const {
    if (params.log_softmax)
      use(Terms(params, true));
    else
      use(Terms(params, false));
  }
  __device__ __forceinline__ void begin(const Row& coming) {
    sum = outer[0] = 0;
    outer[1] = Terms::masked_element(params, 1);
    if (!coming.has_outer) return;
    outer[0] = coming.outer_of(coming.x);
    outer[1] = coming.outer_of(coming.second);
  }
  template <class VectorAt>
  __device__ __forceinline__ void take(unsigned vectors, int, int, const uint4 (&x)[num_inputs][batch], VectorAt) {
    with_terms([&](const Terms& terms) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const A term = terms.vector_term(x[0][i], x[1][i]);
        if (vectors >> i & 1) sum += term;
      }
    });
  }
  __device__ __forceinline__ void send(const PersistentExchange<T>& exchange, int index) {
    sum += Terms(params).term(outer);
    sent_outer[0] = outer[0];
    sent_outer[1] = outer[1];
    exchange.send({A{0}, sum_over_lanes(sum, 32)}, index, combine(exchange));
  }
  static __device__ __forceinline__ auto combine(const PersistentExchange<T>& exchange) {
    return [lane = exchange.cluster.lane](const RowPartial<T>* parts, int num_partials) {
      return RowPartial<T>{A{0}, sum_partials(parts, num_partials, lane)};
    };
  }
  __device__ __forceinline__ void receive(const PersistentExchange<T>& exchange, int index) {
    row_sum = static_cast<A>(exchange.receive(index, combine(exchange)).sum);
  }
  __device__ __forceinline__ void leave(unsigned vectors, int, int, const uint4 (&x)[num_inputs][batch], bool,
                                        unsigned char* out) const {
    with_terms([&](const Terms& terms) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        A dx[width];
        terms.vector_results(x[0][i], x[1][i], row_sum, dx);
        if (vectors >> i & 1) store_values<T>(out + i * thread_step_bytes, dx);
      }
    });
  }
  __device__ __forceinline__ void leave_outer(const Row& leaving) const {
    if (leaving.has_outer) leaving.store_outer(Terms(params).result(sent_outer[0], sent_outer[1], row_sum));
  }
};

// Cluster c takes rows c, c + clusters, ... of (rows, columns). A row has row_batches batches of vectors per thread.
// Shared memory is a ring of ring_batches < 2 * row_batches batches: when a batch of the leaving row is stored, its
// slot is loaded with the ring's next batch, and one batch of the coming row is taken, that is, added to its maximum
// and sum. Taking is `ahead` batches early, so that the blocks agree on a row's sum while other batches are stored and
// loaded. Each vector is loaded, taken and stored by one thread: there is no barrier between these stages.
//
// If a row does not fit the ring, held_batches of it are held. The other twice_read = row_batches - held_batches are
// loaded and taken first, and loaded again, from L2, after those that are held. A row then takes row_batches +
// twice_read batches of the ring: all except the last twice_read are taken, all except the first twice_read are stored.
template <class Rows, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    persistent_rows(const __grid_constant__ GridConstant<PersistentRows> mechanism,
                    const __grid_constant__ GridConstant<SoftmaxParams> params) {
  if constexpr (is_below_sm_90) return;
  launch_dependent_grids();
  using T = typename Rows::T;
  using Row = typename Rows::Row;
  using Position = RingPosition<Rows::num_inputs, Rows::batch>;
  constexpr int batch = Rows::batch, num_inputs = Rows::num_inputs;
  constexpr int batch_bytes = batch * thread_step_bytes;  // of a row's memory
  const RowThreads group = row_threads(params);
  const PersistentExchange<T> exchange(group);
  const int lane = static_cast<int>(threadIdx.x);
  const int batches = mechanism.row_batches, held = mechanism.held_batches;
  const int twice_read = batches - held, lag = mechanism.ring_batches - held;
  const bool reads_twice = twice_read > 0;
  const int ahead = lag > 1 ? 1 : 0;
  const int ring_bytes = mechanism.ring_batches * Position::bytes;
  unsigned char* const ring = exchange.first.memory + mechanism.ring_offset_bytes + lane * vector_bytes;
  unsigned char* const ring_end = ring + ring_bytes;
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift;
  const int64_t linear_step = static_cast<int64_t>(gridDim.x) >> params.row_blocks_shift;
  const int num_indices = static_cast<int>((params.rows.num_rows - linear + linear_step - 1) / linear_step);
  wait_on_dependent_grids();

  // The row's batch that is its i-th in the ring.
  const auto batch_of = [&](int i) { return i < twice_read ? held + i : i - twice_read; };
  int64_t load_linear = linear;
  int load_at = 0;
  Row loading(params, batches, load_linear, group.rank, lane);
  const auto load = [&](const Position& position) {
    const int n = batch_of(load_at);
    const int64_t offset = static_cast<int64_t>(n) * batch_bytes;
    if (loading.is_full) {
      position.load(loading.x + offset, loading.second + offset, (1u << batch) - 1);
    } else {
      position.load(loading.x + offset, loading.second + offset, loading.vectors_of(n));
    }
    async_copy_commit();
    if (++load_at < batches + twice_read) return;
    load_at = 0;
    load_linear += linear_step;
    loading = Row(params, batches, load_linear, group.rank, lane);
  };
  Rows rows(params, group.lane);
  Row taking = loading, taken = loading;
  Position take_position = {ring}, leave_position = {ring};
  const auto load_next = [&] {
    load(leave_position);
    leave_position.advance(ring_end, ring_bytes);
  };
#pragma unroll 1
  for (int i = 0; i < mechanism.ring_batches; ++i) load_next();
  int take_index = 0, take_at = 0;
  const auto take = [&](int pending) {
    if (take_index >= num_indices) return;
    wait_for_groups(pending);
    const int n = batch_of(take_at);
    uint4 x[num_inputs][batch];
#pragma unroll
    for (int k = 0; k < num_inputs; ++k)
#pragma unroll
      for (int i = 0; i < batch; ++i) x[k][i] = *take_position.vector(k, i);
    rows.take(taking.vectors_of(n), take_index, n, x, [&](int i) { return take_position.vector(0, i); });
    take_position.advance(ring_end, ring_bytes);
    if (++take_at < batches) return;
    rows.send(exchange, take_index);
    ++take_index;
    take_at = 0;
    taken = taking;
    if (reads_twice) {
#pragma unroll 1
      for (int i = 0; i < twice_read; ++i) take_position.advance(ring_end, ring_bytes);
      taking = Row(params, batches, linear + take_index * linear_step, group.rank, lane);
    } else {
      taking = loading;
    }
    rows.begin(taking);
  };
  rows.begin(taking);
#pragma unroll 1
  for (int i = 0; i < twice_read; ++i) {
    take(mechanism.ring_batches - 1);
    load_next();
  }
  const int first_takes = reads_twice ? held : batches + ahead;
#pragma unroll 1
  for (int i = 0; i < first_takes; ++i) take(mechanism.ring_batches - 1 - i);
#pragma unroll 1
  for (int i = 0; i < num_indices; ++i) {
    const Row leaving = taken;
    rows.receive(exchange, i);
    rows.leave_outer(leaving);
    unsigned char* out = leaving.out;
#pragma unroll 1
    for (int n = 0; n < batches + twice_read; ++n, out += batch_bytes) {
      if (n < batches) {
        if (n >= held) wait_for_groups(mechanism.ring_batches - 1);
        uint4 x[num_inputs][batch];
#pragma unroll
        for (int k = 0; k < num_inputs; ++k)
#pragma unroll
          for (int j = 0; j < batch; ++j) x[k][j] = *leave_position.vector(k, j);
        rows.leave(leaving.vectors_of(n), i, n, x, n < held, out);
      }
      load_next();
      const int take_step = n - twice_read + ahead;  // of the next row, if some batches are read twice
      if (!reads_twice || (take_step >= 0 && take_step < batches)) take(lag - ahead);
    }
  }
}

}  // namespace flowk::softmax
