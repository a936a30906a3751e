// SPDX-License-Identifier: Apache-2.0
// What strided_rows computes with the columns that a thread holds: softmax, or its gradient.
#pragma once

#include "core/cluster_exchange.cuh"
#include "softmax/kernels/two_pass_row.cuh"

namespace flowk::softmax {

// A thread has kWords 32-bit words of each of its columns: an element of each of its rows, as it lies in memory.
template <class T, int kWords>
constexpr int rows_of_words = kWords * 4 / static_cast<int>(sizeof(T));
template <int kWords>
constexpr int step_of = strided_step(kWords);

// Calls use(k) for columns kBegin to kEnd of a thread, less those from `count` on, a multiple of kStep.
template <int kStep, int kEnd, int kBegin = 0, class Use>
__device__ __forceinline__ void for_columns(int count, Use use) {
#pragma unroll
  for (int step = kBegin; step < kEnd; step += kStep) {
    if (step >= count) break;
#pragma unroll
    for (int k = step; k < (step + kStep < kEnd ? step + kStep : kEnd); ++k) use(k);
  }
}

// Vectors are whole rows of a thread, and have no logarithms.
template <int kWords>
constexpr bool has_logarithms = kWords * 4 < vector_bytes;
// log2 of the blocks of a cluster, which share rows. Only threads with single words have clusters.
template <int kWords>
__device__ __forceinline__ int cluster_shift(const SoftmaxParams& params) {
  return has_sm_90() && kWords == 1 ? params.row_blocks_shift : 0;
}

template <class Use>
__device__ __forceinline__ void with_constant(bool value, Use use) {
  if (value)
    use(std::true_type());
  else
    use(std::false_type());
}

// y(row, j) = exp(z(row, j) - max) / sum over i of exp(z(row, i) - max). Scores are as in two_pass_row: an exponent is
// (score - reference) * factor, in the base of exponential<E>(). A partial result is the largest score of some columns,
// and the sum of exponentials relative to it. E is the type that results are right for: T, or float.
template <class T, class E, int kWords>
struct StridedSoftmax {
  using A = ComputeType<T>;
  using Partial = RowPartial<E>;
  static constexpr int num_inputs = 1, num_rows = rows_of_words<T, kWords>;
  // Do the columns become exponentials? Elements of 16 bits cannot hold them, and theirs are cheap to compute twice.
  static constexpr bool keeps_exponentials = !is_float16<T>;
  // One fma computes an exponent, as in ScoreScale. The plan keeps other scales away.
  static constexpr bool is_fused = std::is_same_v<E, Float16>;
  using Column = uint32_t[num_inputs][kWords];
  // A result is exponential * factor, or for logarithms difference * log_factor + factor.
  struct Results {
    A scaled, factor;  // a difference is score * size - scaled
  };
  A size, factor, log_factor;
  bool log_softmax, negates;

  __device__ __forceinline__ StridedSoftmax(const StridedRows& mechanism, const SoftmaxParams& params)
      : log_softmax(has_logarithms<kWords> && params.log_softmax), negates(params.negates_x) {
    if constexpr (is_fused) {
      size = params.scale32_base_2;
      factor = 1;
    } else {
      const auto& steps = steps_of(mechanism);
      size = steps.step;
      factor = steps.factor * static_cast<A>(base_per_natural<E>);
    }
    log_factor = factor * static_cast<A>(natural_per_base<E>);
  }
  static __device__ __forceinline__ const auto& steps_of(const StridedRows& mechanism) {
    if constexpr (sizeof(A) == 8)
      return mechanism.steps64;
    else
      return mechanism.steps32;
  }
  __device__ __forceinline__ Partial empty() const { return {negative_infinity<A>(), 0}; }
  // The input that prepare() turns into a score of -infinity.
  __device__ __forceinline__ A masked_input() const {
    return negates ? -negative_infinity<A>() : negative_infinity<A>();
  }
  template <int kColumns>
  __device__ __forceinline__ void prepare(Column (&columns)[kColumns], int count) const {
    if (!negates) return;
    for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
#pragma unroll
      for (int i = sizeof(T) == 8 ? 1 : 0; i < kWords; i += sizeof(T) == 8 ? 2 : 1) columns[k][0][i] ^= sign_bits<T>;
    });
  }

  __device__ __forceinline__ A scaled_of(A max) const {
    const A reference = max == negative_infinity<A>() ? A{0} : max;
    if constexpr (is_fused) return __fmul_rn(reference, size);
    return reference * size;
  }
  // A difference of scores could overflow before it is scaled.
  __device__ __forceinline__ A difference(A score, A scaled) const { return fma(score, size, -scaled); }
  __device__ __forceinline__ A exponential_of(A difference) const {
    return exponential<E>(is_fused ? difference : difference * factor);
  }
  // What makes a sum relative to the score `max` one relative to `scaled`. It is a difference of rounded products,
  // because it is these that were subtracted in the exponents.
  __device__ __forceinline__ A change_of_reference(A max, A scaled) const {
    return exponential_of(scaled_of(max) - scaled);
  }

  // The largest scores of a thread's columns, and `most`.
  template <int kColumns>
  __device__ __forceinline__ void find_max(const Column (&columns)[kColumns], int count, A (&most)[num_rows]) const {
    uint32_t largest[kWords];
    narrow_words<T>(most, largest);
    for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
      if constexpr (is_float16<T>) {
#pragma unroll
        for (int i = 0; i < kWords; ++i)
          largest[i] = word_of<T>(__hmax2(pair_of<T>(largest[i]), pair_of<T>(columns[k][0][i])));
      } else {
        A values[num_rows];
        widen_words<T>(columns[k][0], values);
#pragma unroll
        for (int r = 0; r < num_rows; ++r) most[r] = larger_of(most[r], values[r]);
      }
    });
    if constexpr (is_float16<T>) widen_words<T>(largest, most);
  }
  __device__ __forceinline__ void raise(const A (&most)[num_rows], Partial (&own)[num_rows]) const {
#pragma unroll
    for (int r = 0; r < num_rows; ++r) {
      if (!(most[r] > own[r].max)) continue;
      if (own[r].sum != RowValue<E>{0}) own[r].sum *= change_of_reference(own[r].max, scaled_of(most[r]));
      own[r].max = most[r];
    }
  }
  // Adds the exponentials of columns up to the maximum of `own`. Columns that are kept become exponentials.
  template <int kColumns>
  __device__ __forceinline__ void add(Column (&columns)[kColumns], int count, Partial (&own)[num_rows]) const {
    A scaled[num_rows];
    ThreadSum<E> sums[num_rows];
#pragma unroll
    for (int r = 0; r < num_rows; ++r) scaled[r] = scaled_of(own[r].max);
    with_constant(keeps_exponentials && !log_softmax, [&](auto keeps) {
      for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
        A values[num_rows];
        widen_words<T>(columns[k][0], values);
#pragma unroll
        for (int r = 0; r < num_rows; ++r) {
          values[r] = exponential_of(difference(values[r], scaled[r]));
          sums[r].take_one(values[r]);
        }
        if constexpr (decltype(keeps)::value) narrow_words<T>(values, columns[k][0]);
      });
    });
#pragma unroll
    for (int r = 0; r < num_rows; ++r) own[r].sum += sums[r].total();
  }

  // Merges the partial results from `parts` to `end`, which are `pitch` apart, then the results of `lanes` lanes.
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int pitch, int lanes) const {
    Partial merged = empty();
    for (const Partial* part = parts; part < end; part += pitch) merged.max = larger_of(merged.max, part->max);
    merged.max = max_over_lanes(merged.max, lanes);
    const A scaled = scaled_of(merged.max);
    for (const Partial* part = parts; part < end; part += pitch)
      if (part->sum != RowValue<E>{0}) merged.sum += part->sum * change_of_reference(part->max, scaled);
    merged.sum = sum_over_lanes(merged.sum, lanes);
    return merged;
  }
  // Exponentials that are kept are relative to the largest score of `own`.
  __device__ __forceinline__ Results finish(const Partial& row, const Partial& own) const {
    const ResultFactors<E> factors(log_softmax, row.sum, log_factor);
    const A scaled = scaled_of(row.max);
    if (log_softmax) return {scaled, factors.term};
    if (!keeps_exponentials || own.max == row.max) return {scaled, factors.factor};
    // If the maximum is -infinity, all exponentials are 0, or one is NaN.
    if (own.max == negative_infinity<A>()) return {scaled, factors.factor * A{0}};
    return {scaled, factors.factor * change_of_reference(own.max, scaled)};
  }
  template <bool kLog>
  __device__ __forceinline__ void results_of(const Column& column, const Results (&rows)[num_rows],
                                             A (&values)[num_rows]) const {
    widen_words<T>(column[0], values);
#pragma unroll
    for (int r = 0; r < num_rows; ++r) {
      if constexpr (kLog)
        values[r] = fma(difference(values[r], rows[r].scaled), log_factor, rows[r].factor);
      else if constexpr (keeps_exponentials)
        values[r] *= rows[r].factor;
      else
        values[r] = exponential_of(difference(values[r], rows[r].scaled)) * rows[r].factor;
    }
  }
};

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), as GradientTerms has it.
template <class T, int kWords>
struct StridedGradient {
  using A = ComputeType<T>;
  using Partial = A;
  using Results = A;
  static constexpr int num_inputs = 2, num_rows = rows_of_words<T, kWords>;
  static constexpr bool keeps_exponentials = false;
  using Column = uint32_t[num_inputs][kWords];
  bool log_softmax;
  A scale;

  __device__ __forceinline__ StridedGradient(const StridedRows&, const SoftmaxParams& params)
      : log_softmax(has_logarithms<kWords> && params.log_softmax), scale(signed_scale<A>(params)) {}
  __device__ __forceinline__ Partial empty() const { return 0; }
  __device__ __forceinline__ A masked_input() const { return 0; }
  template <int kColumns>
  __device__ __forceinline__ void prepare(Column (&)[kColumns], int) const {}
  template <int kColumns>
  __device__ __forceinline__ void find_max(const Column (&)[kColumns], int, A (&)[num_rows]) const {}
  __device__ __forceinline__ void raise(const A (&)[num_rows], Partial (&)[num_rows]) const {}
  template <int kColumns>
  __device__ __forceinline__ void add(Column (&columns)[kColumns], int count, Partial (&own)[num_rows]) const {
    with_constant(log_softmax, [&](auto is_log) {
      for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
        A dy[num_rows], y[num_rows];
        widen_words<T>(columns[k][0], dy);
        widen_words<T>(columns[k][1], y);
#pragma unroll
        for (int r = 0; r < num_rows; ++r) {
          if constexpr (decltype(is_log)::value)
            own[r] += y[r] == negative_infinity<A>() ? A{0} : dy[r];
          else
            own[r] += y[r] * dy[r];
        }
      });
    });
  }
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int pitch, int lanes) const {
    Partial merged = 0;
    for (const Partial* part = parts; part < end; part += pitch) merged += *part;
    return sum_over_lanes(merged, lanes);
  }
  __device__ __forceinline__ Results finish(const Partial& row, const Partial&) const { return row; }
  template <bool kLog>
  __device__ __forceinline__ void results_of(const Column& column, const Results (&rows)[num_rows],
                                             A (&values)[num_rows]) const {
    A y[num_rows];
    widen_words<T>(column[0], values);
    widen_words<T>(column[1], y);
#pragma unroll
    for (int r = 0; r < num_rows; ++r) {
      if constexpr (kLog) {
        const A gradient = scale * (values[r] - exponential_of(y[r]) * rows[r]);
        values[r] = y[r] == negative_infinity<A>() ? A{0} : gradient;
      } else {
        values[r] = scale * y[r] * (values[r] - rows[r]);
      }
    }
  }
  static __device__ __forceinline__ A exponential_of(A y) {
    if constexpr (sizeof(A) == 8)
      return called_exp(y);
    else
      return expf(y);
  }
};

template <class Strided>
__device__ __forceinline__ void forget(const Strided& strided, typename Strided::Partial (&own)[Strided::num_rows]) {
#pragma unroll
  for (auto& partial : own) partial = strided.empty();
}

// Takes columns of a thread's rows.
template <class Strided, int kColumns>
__device__ __forceinline__ void take(const Strided& strided, typename Strided::Column (&columns)[kColumns], int count,
                                     typename Strided::Partial (&own)[Strided::num_rows]) {
  typename Strided::A most[Strided::num_rows];
#pragma unroll
  for (auto& value : most) value = negative_infinity<typename Strided::A>();
  strided.find_max(columns, count, most);
  strided.raise(most, own);
  strided.add(columns, count, own);
}

// A block's partial results: that of slice `slice` and row `row` is at index slice * strided_pitch(merge.rows) + row.
template <class Strided>
__device__ __forceinline__ typename Strided::Partial* partial_results(const StridedMerge& merge) {
  return reinterpret_cast<typename Strided::Partial*>(&shared<unsigned char>() + merge.parts_offset_bytes);
}
// What the blocks of a cluster, which have different columns of the same rows, send each other.
template <class Strided>
__device__ __forceinline__ ClusterExchange<typename Strided::Partial> block_results(const StridedMerge& merge) {
  return {&shared<unsigned char>() + merge.exchange_offset_bytes};
}

// Called by all threads before the kernel's first load.
template <class Strided>
__device__ __forceinline__ void begin_merge(const StridedMerge& merge, int blocks_shift) {
  if (blocks_shift == 0) return;
  if (threadIdx.x == 0) {
    const TransactionBarrier barrier = block_results<Strided>(merge).barrier();
    barrier.init(1);
    barrier.expect((merge.rows << blocks_shift) * static_cast<int>(sizeof(typename Strided::Partial)));
  }
  arrive_at_cluster();
}

// Merges the partial results of the slices of each row, then those of the blocks of a cluster, and returns the rows'
// results in shared memory. 2^lanes_shift threads merge a row.
template <class Strided>
__device__ __forceinline__ const typename Strided::Partial* merge_slices(const Strided& strided,
                                                                         const StridedMerge& merge, int blocks_shift) {
  using Partial = typename Strided::Partial;
  const int pitch = strided_pitch(merge.rows), lanes = 1 << merge.lanes_shift, blocks = 1 << blocks_shift;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1);
  const Partial* parts = partial_results<Strided>(merge);
  Partial* const results = reinterpret_cast<Partial*>(&shared<unsigned char>() + merge.results_offset_bytes);
  int count = merge.slices;
  __syncthreads();
  if (blocks_shift > 0) wait_for_cluster();
#pragma unroll 1
  for (bool is_last = blocks_shift == 0;; is_last = true) {
#pragma unroll 1
    for (int first = 0; first < merge.rows; first += static_cast<int>(blockDim.x) >> merge.lanes_shift) {
      const int r = first + (thread >> merge.lanes_shift),
                row = min(r, merge.rows - 1);  // a warp's lanes merge together
      const Partial total = strided.merge(parts + lane * pitch + row, parts + count * pitch, lanes * pitch, lanes);
      if (r >= merge.rows) continue;
      if (is_last) {
        if (lane == 0) results[row] = total;
      } else {
        const int rank = static_cast<int>(blockIdx.x) & (blocks - 1);
#pragma unroll 1
        for (int block = lane; block < blocks; block += lanes)
          block_results<Strided>(merge).send(block, rank * pitch + row, total);
      }
    }
    if (is_last) break;
    if (threadIdx.x == 0) block_results<Strided>(merge).barrier().arrive();
    block_results<Strided>(merge).barrier().wait();
    parts = block_results<Strided>(merge).values();
    count = blocks;
  }
  __syncthreads();
  return results;
}

}  // namespace flowk::softmax
