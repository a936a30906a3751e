// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of long rows by persistent clusters: a row's vectors are loaded into shared memory while the
// results of the row before are stored.
#pragma once

#include "softmax/kernels/persistent_stages.cuh"
#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// What the threads of a cluster hold of the coming row and of the leaving one: softmax, y(row, j) = exp(z(row, j) -
// max) / sum over i of exp(z(row, i) - max), z = scale * x.
template <class Terms, int kBatch>
struct PersistentResults {
  using T = typename Terms::T;
  using A = ComputeType<T>;
  using Scale = ScoreScale<T, Terms::mask>;
  static constexpr int width = Terms::width;
  static constexpr bool keeps_exponentials = !is_float16<T>;

  const SoftmaxParams& params;
  bool log_softmax;
  int lane;
  A maximum = 0;  // the warp's running maximum when the lane's batch was taken
  typename Terms::Partial partial;
  ThreadSum<T, 2> sum;  // of pairs of exponentials
  // The exponents' reference is raised when a score exceeds `limit` = reference + slack. 16-bit exponentials may grow
  // to 2^8; a float32 one above 1 would lose its last bits.
  A slack, limit;
  RowPartial<T> row;  // the leaving row
  ResultFactors<T> result;
  A factor_max;  // the reference of result.factor

  __device__ __forceinline__ PersistentResults(const SoftmaxParams& of, int warp_lane)
      : params(of),
        log_softmax(of.log_softmax),
        lane(warp_lane),
        partial(Terms::begin(of, 0, false)),
        slack(keeps_exponentials || of.log_softmax ? A{0} : A{8} / partial.scale) {}

  __device__ __forceinline__ Scale to_row_exponent() const { return Terms::exponents(params, row.max); }
  __device__ __forceinline__ void begin(int64_t, bool) {
    partial.max = limit = negative_infinity<A>();
    partial.sum = 0;
    sum = {};
  }
  // The lane that holds the maximum of batch n of row `index`.
  static __device__ __forceinline__ int lane_of(int index, int n) { return (index & 1) * max_persistent_batches + n; }
  // `largest` is the warp's.
  __device__ __forceinline__ void raise(A largest) {
    if (!(largest > limit)) return;
    partial.sum += sum.total();
    sum = {};
    partial.raise(largest);
    limit = largest + slack;
  }
  // Takes batch n of the coming row. Its exponentials, if they are kept, overwrite x at vector_at(i).
  template <class VectorAt>
  __device__ __forceinline__ void take(unsigned vectors, int index, int n, uint4 (&x)[kBatch][1], VectorAt vector_at) {
    if (vectors != (1u << kBatch) - 1) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if ((vectors >> i & 1) == 0) x[i][0] = Terms::masked_vector(params, 0);
    }
    VectorMax<T> largest;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) largest.take(x[i][0]);
    raise(max_over_lanes(largest.largest(), 32));
    const Scale to_exponent = partial.to_exponent();
    if (keeps_exponentials && lane == lane_of(index, n)) maximum = partial.max;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      A p[width];
      widen_vector<T>(x[i][0], p);
#pragma unroll
      for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
      if constexpr (keeps_exponentials) x[i][0] = narrow_vector<T>(p);
      take_pairs(p);
    }
    if (keeps_exponentials && !log_softmax) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) *vector_at(i) = x[i][0];
    }
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
  // The warp's partial result of the coming row, with each lane's outer column.
  __device__ __forceinline__ RowPartial<T> end(const A (&outer)[1]) {
    raise(max_over_lanes(outer[0], 32));
    sum.take_one(exponential<T>(partial.to_exponent()(outer[0])));
    return {partial.max, sum_over_lanes(partial.sum + sum.total(), 32)};
  }
  __device__ __forceinline__ void begin_leaving(const RowPartial<T>& leaving) {
    row = leaving;
    result = {log_softmax, row.sum, to_row_exponent().log_factor()};
    factor_max = row.max;
  }
  // Sets the factor for exponentials relative to `max`.
  __device__ __forceinline__ void find_factor(A max) {
    if (max == factor_max) return;
    factor_max = max;
    result.factor = factor_of_exponentials<T, Terms::mask>(max, to_row_exponent(), row.sum);
  }
  // Stores the results of batch n of the leaving row, from exponentials if they were kept.
  __device__ __forceinline__ void leave(unsigned vectors, int index, int n, const uint4 (&x)[kBatch][1], bool is_held,
                                        unsigned char* out) {
    const Scale to_exponent = to_row_exponent();
    if (keeps_exponentials && !log_softmax)
      find_factor(is_held ? __shfl_sync(0xffffffffu, maximum, lane_of(index, n)) : row.max);
    const auto store = [&](auto kind) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        A y[width];
        vector_results<decltype(kind)::value>(x[i][0], to_exponent, result, y);
        if (vectors >> i & 1) store_values<T>(out + i * thread_step_bytes, y);
      }
    };
    if (log_softmax)
      store(std::integral_constant<HeldAs, HeldAs::scores_for_logarithms>());
    else if (keeps_exponentials && is_held)
      store(std::integral_constant<HeldAs, HeldAs::exponentials>());
    else
      store(std::integral_constant<HeldAs, HeldAs::scores>());
  }
};

// The gradient, dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); log_softmax: see
// flowk.h.
template <class Input, int kBatch>
struct PersistentResults<GradientTerms<Input>, kBatch> {
  using T = Input;
  using A = ComputeType<T>;
  using Terms = GradientTerms<T>;
  static constexpr int num_inputs = Terms::num_inputs;

  const SoftmaxParams& params;
  typename Terms::Partial partial;
  RowPartial<T> row;  // the leaving row

  __device__ __forceinline__ PersistentResults(const SoftmaxParams& of, int) : params(of) {}
  // Calls use(terms) with a constant kind of softmax.
  template <class Use>
  __device__ __forceinline__ void with_terms(Use use) const {
    if (params.log_softmax)
      use(Terms(params, true));
    else
      use(Terms(params, false));
  }
  __device__ __forceinline__ void begin(int64_t linear, bool is_first) {
    partial = Terms::begin(params, linear, is_first);
  }
  template <class VectorAt>
  __device__ __forceinline__ void take(unsigned vectors, int, int, const uint4 (&x)[kBatch][num_inputs], VectorAt) {
    with_terms([&](const Terms& terms) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const A term = terms.vector_term(x[i][0], x[i][1]);
        if (vectors >> i & 1) partial.sum += term;
      }
    });
  }
  __device__ __forceinline__ RowPartial<T> end(const A (&outer)[num_inputs]) {
    Terms(params).take(outer, &partial);
    return {A{0}, sum_over_lanes(partial.sum, 32)};
  }
  __device__ __forceinline__ void begin_leaving(const RowPartial<T>& leaving) { row = leaving; }
  __device__ __forceinline__ void leave(unsigned vectors, int, int, const uint4 (&x)[kBatch][num_inputs], bool,
                                        unsigned char* out) const {
    with_terms([&](const Terms& terms) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        A dx[Terms::width];
        terms.vector_results(x[i][0], x[i][1], static_cast<A>(row.sum), dx);
        if (vectors >> i & 1) store_values<T>(out + i * thread_step_bytes, dx);
      }
    });
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
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    persistent_rows(const __grid_constant__ GridConstant<PersistentRows> mechanism,
                    const __grid_constant__ GridConstant<SoftmaxParams> params) {
  if constexpr (is_below_sm_90) return;
  launch_dependent_grids();
  constexpr int batch = softmax_kernels[kRow].max_vectors, num_inputs = Terms::num_inputs;
  using A = typename Terms::A;
  using Row = PersistentRow<Terms, batch>;
  using Position = RingPosition<num_inputs, batch>;
  constexpr int batch_bytes = batch * thread_step_bytes;  // of a row's memory
  const RowThreads group = row_threads(params);
  const PersistentExchange<Terms> exchange(params, group);
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
  PersistentResults<Terms, batch> results(params, group.lane);
  A outer[num_inputs], taken_outer[num_inputs];
  const bool is_first = group.rank == 0 && lane == 0;
  Row taking = loading, taken = loading;
  int take_index = 0, take_at = 0;
  const auto begin = [&] {
    const int64_t row = linear + take_index * linear_step;
    results.begin(row, is_first && row < params.rows.num_rows);
    taking.load_outer(params, outer);
  };
  Position take_position = {ring}, leave_position = {ring};
  const auto load_next = [&] {
    load(leave_position);
    leave_position.advance(ring_end, ring_bytes);
  };
  const auto take = [&](int pending) {
    if (take_index >= num_indices) return;
    if (reads_twice && take_at == 0 && take_index > 0) {  // a batch of this row is loaded, and none of the next row
      taking = loading;
      begin();
    }
    wait_for_groups(pending);
    const int n = batch_of(take_at);
    uint4 x[batch][num_inputs];
    take_position.read(x);
    results.take(taking.vectors_of(n), take_index, n, x, [&](int i) { return take_position.vector(0, i); });
    take_position.advance(ring_end, ring_bytes);
    if (++take_at < batches) return;
    exchange.send(results.end(outer), take_index);
    ++take_index;
    take_at = 0;
    taken = taking;
#pragma unroll
    for (int k = 0; k < num_inputs; ++k) taken_outer[k] = outer[k];
#pragma unroll 1
    for (int i = 0; i < twice_read; ++i) take_position.advance(ring_end, ring_bytes);
    if (reads_twice) return;
    taking = loading;
    begin();
  };
  begin();
  // The ring is loaded; then batches are taken, and those that are read twice are overwritten.
  const int first_takes = reads_twice ? batches : batches + ahead;
#pragma unroll 1
  for (int i = -mechanism.ring_batches; i < first_takes; ++i) {
    if (i < 0 || (i > 0 && i <= twice_read)) load_next();
    if (i >= 0) take(mechanism.ring_batches - 1 - max(i - twice_read, 0));
  }
#pragma unroll 1
  for (int i = 0; i < num_indices; ++i) {
    const Row leaving = taken;
    const RowPartial<typename Terms::T> row = Terms::with_sinks(params, linear + i * linear_step, exchange.receive(i));
    results.begin_leaving(row);
    if (leaving.has_outer) leaving.store_outer(Terms(params).finish(params, row).of(taken_outer));
    unsigned char* out = leaving.out;
#pragma unroll 1
    for (int n = 0; n < batches + twice_read; ++n, out += batch_bytes) {
      if (n < batches) {
        if (n >= held) wait_for_groups(mechanism.ring_batches - 1);
        uint4 x[batch][num_inputs];
        leave_position.read(x);
        results.leave(leaving.vectors_of(n), i, n, x, n < held, out);
      }
      load_next();
      const int take_step = n - twice_read + ahead;  // of the next row, if some batches are read twice
      if (!reads_twice || (take_step >= 0 && take_step < batches)) take(lag - ahead);
    }
    Terms::leave(params, linear + i * linear_step, is_first, row);
  }
}

}  // namespace flowk::softmax
