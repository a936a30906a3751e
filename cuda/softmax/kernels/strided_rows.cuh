// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient over rows whose columns lie apart in memory: any dimension but the innermost, such as the
// channels of NCHW. No masks.
#pragma once

#include "softmax/kernels/strided_planes.cuh"

namespace flowk::softmax {

// The rows of a thread.
struct StridedThreadRows {
  const unsigned char* inputs[2];
  unsigned char* out;
  bool exist;
  bool has_second;  // of two neighbours
};

// Finds the rows of thread `linear`, as locate_row() does.
template <bool kBackward>
__device__ __forceinline__ StridedThreadRows locate_strided_rows(const StridedRows& mechanism,
                                                                 const SoftmaxParams& params, int64_t linear) {
  // Threads without rows read the first ones.
  StridedThreadRows rows = {{params.x, params.bias_or_y}, params.out, linear < params.rows.num_rows, false};
  rows.has_second = mechanism.row_width > 1;
  if (!rows.exist) linear = 0;
  const auto step = [&](int d, int64_t index) {
    const SoftmaxRowDim& dim = params.rows.dims[d];
    rows.inputs[0] += index * dim.strides[softmax_x];
    if constexpr (kBackward) rows.inputs[1] += index * dim.strides[softmax_bias_or_y];
    rows.out += index * dim.strides[softmax_out];
    if (d == 0 && mechanism.has_single_rows) rows.has_second = index < dim.extent - 1;
  };
  if (params.rows.is_wide)
    split_index<0>(static_cast<uint64_t>(linear), params.rows.dims, params.rows.rank, step);
  else
    split_index<2>(static_cast<uint32_t>(linear), params.rows.dims, params.rows.rank, step);
  wait_on_dependent_grids();
  return rows;
}

// How a thread's results of a column are stored.
enum class StridedStore { words, elements, either, converted };
template <StridedStore kStore>
using Kind = std::integral_constant<StridedStore, kStore>;

template <StridedStore kStore, class T, int kWords>
__device__ __forceinline__ void store_column(const SoftmaxParams& params, bool are_words, bool has_second,
                                             unsigned char* address,
                                             const ComputeType<T> (&values)[rows_of_words<T, kWords>]) {
  uint32_t words[kWords];
  narrow_words<T>(values, words);
  if (kStore == StridedStore::words || (kStore == StridedStore::either && are_words)) {
    pack::store<4 * kWords>(address, words);
  } else if constexpr (kStore != StridedStore::converted) {
    const uint32_t second = words[0] >> 16;
    pack::store<2>(address, words);
    if (has_second) pack::store<2>(address + 2, &second);
  } else {
    const RowOutput<T, sizeof(T) < 8> output{params};
    output.store_column(address, 0, values[0]);
    if constexpr (sizeof(T) == 2)
      if (has_second) output.store_column(address, 1, values[1]);
  }
}

// A thread has kWords words of a column. `slices` threads share the rows, lanes_per_row in each block of a cluster:
// thread s takes columns s - missing, then every slices-th one. Each has mechanism.columns of them, a multiple of a
// step; those below 0 do not exist. It holds them in registers. With kGeneral a row may be longer, and the results may
// be of another type than T. The thread then reads kColumns at a time, from the last ones down to the first ones, which
// it still holds when the row's sum is known. It reads the others again for their results.
template <class Strided, class T, int kWords, int kColumns, bool kGeneral>
__device__ __forceinline__ void compute_strided_rows(const StridedRows& mechanism, const SoftmaxParams& params,
                                                     const StridedThreadRows& thread_rows) {
  using A = ComputeType<T>;
  using Partial = typename Strided::Partial;
  constexpr int num_rows = Strided::num_rows, num_inputs = Strided::num_inputs;
  using Step = std::conditional_t<kGeneral || kWords == 4, int64_t, int32_t>;  // bytes between the columns of a thread
  constexpr bool has_elements = sizeof(T) == 2 && kWords == 1;                 // rows may be read by elements
  const int blocks_shift = cluster_shift<kWords>(params),
            rank = static_cast<int>(blockIdx.x) & ((1 << blocks_shift) - 1);
  const int lanes = 1 << mechanism.lanes_shift, slices = params.lanes_per_row << blocks_shift;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            block_slice = thread >> mechanism.lanes_shift, slice = rank * params.lanes_per_row + block_slice;
  begin_merge<Strided>(mechanism.merge, blocks_shift);
  const Strided strided(mechanism, params);
  typename Strided::Column columns[kColumns];
  // Loads `count` of the thread's columns, from number `first` on.
  const auto load = [&](int first, int count) {
    const int column = slice - mechanism.missing + first * slices;
    const auto is_missing = [&](int k) { return k < step_of<kWords> && column + k * slices < 0; };
    const unsigned char* at[num_inputs];
    Step steps[num_inputs];
#pragma unroll
    for (int i = 0; i < num_inputs; ++i) {
      at[i] = thread_rows.inputs[i] + column * mechanism.column_strides[i];
      steps[i] = static_cast<Step>(slices * mechanism.column_strides[i]);
    }
    // Calls load_one(k, i, address) for each input of a column.
    const auto load_one = [&](int k, auto load_input) {
#pragma unroll
      for (int i = 0; i < num_inputs; ++i) {
        if (is_missing(k)) {
          A masked[num_rows];
#pragma unroll
          for (A& value : masked) value = strided.masked_input();
          narrow_words<T>(masked, columns[k][i]);
        } else {
          load_input(k, i, at[i] + int64_t{steps[i]} * k);
        }
      }
    };
    if (!has_elements || (!kGeneral && mechanism.are_words)) {
      for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
        load_one(k,
                 [&](int n, int i, const unsigned char* address) { pack::load<4 * kWords>(columns[n][i], address); });
      });
    } else if constexpr (has_elements) {
      // Loads of several columns, then the words of their elements: a word waits for its loads.
      const auto load_part = [&](auto begin, auto end) {
        constexpr int from = decltype(begin)::value, to = decltype(end)::value;
        if (from >= count) return;
        uint32_t seconds[to - from][num_inputs] = {};
        for_columns<step_of<kWords>, to, from>(count, [&](int k) {
          load_one(k, [&](int n, int i, const unsigned char* address) {
            pack::load<2>(columns[n][i], address);
            if (thread_rows.has_second) pack::load<2>(&seconds[n - from][i], address + 2);
          });
        });
#pragma unroll
        for (int k = from; k < to; ++k)
#pragma unroll
          for (int i = 0; i < num_inputs; ++i) columns[k][i][0] |= seconds[k - from][i] << 16;
      };
      load_part(Constant<0>(), Constant<kColumns / 2>());
      if constexpr (kGeneral) {
        load_part(Constant<kColumns / 2>(), Constant<kColumns>());
      } else {
        load_part(Constant<kColumns / 2>(), Constant<kColumns / 4 * 3>());
        load_part(Constant<kColumns / 4 * 3>(), Constant<kColumns>());
      }
    }
    strided.prepare(columns, count);
  };

  // Stores their results.
  const auto store = [&](int first, int count, const auto& results) {
    const int column = slice - mechanism.missing + first * slices;
    const auto store_all = [&](auto kind, auto is_log) {
      unsigned char* const at = thread_rows.out + column * mechanism.out_column_stride;
      const Step step = static_cast<Step>(slices * mechanism.out_column_stride);
      for_columns<step_of<kWords>, kColumns>(count, [&](int k) {
        if (k >= step_of<kWords> || column + k * slices >= 0) {
          A values[num_rows];
          strided.template results_of<decltype(is_log)::value>(columns[k], results, values);
          store_column<decltype(kind)::value, T, kWords>(params, mechanism.are_words, thread_rows.has_second,
                                                         at + int64_t{step} * k, values);
        }
      });
    };
    if constexpr (!has_logarithms<kWords>) return store_all(Kind<StridedStore::words>(), std::false_type());
    with_constant(strided.log_softmax, [&](auto is_log) {
      if constexpr (kGeneral && sizeof(T) < 8) {
        store_all(Kind<StridedStore::converted>(), is_log);
      } else {
        if constexpr (has_elements && decltype(is_log)::value) return store_all(Kind<StridedStore::either>(), is_log);
        if constexpr (has_elements)
          if (!mechanism.are_words) return store_all(Kind<StridedStore::elements>(), is_log);
        store_all(Kind<StridedStore::words>(), is_log);
      }
    });
  };

  Partial own[num_rows], totals[num_rows];
  forget(strided, own);
  // Merges the partial results of the threads of a row.
  const auto share_totals = [&] {
#pragma unroll
    for (int r = 0; r < num_rows; ++r)
      partial_results<Strided>(
          mechanism.merge)[block_slice * strided_pitch(mechanism.merge.rows) + lane * num_rows + r] = own[r];
    const Partial* const merged = merge_slices(strided, mechanism.merge, blocks_shift);
#pragma unroll
    for (int r = 0; r < num_rows; ++r) totals[r] = merged[lane * num_rows + r];
  };
  bool has_totals = false;
  int first = !kGeneral ? 0 : (mechanism.columns - 1) / kColumns * kColumns;
  for (;;) {
    const int count = min(mechanism.columns - first, kColumns);
    load(first, count);
    if (!has_totals || Strided::keeps_exponentials) take(strided, columns, count, own);
    if (!has_totals) {
      if (kGeneral && first > 0) {
        first -= kColumns;
        continue;
      }
#pragma unroll
      for (int r = 0; r < num_rows; ++r) totals[r] = own[r];
      if (kWords * 4 < vector_bytes && slices > 1) share_totals();
      if (!thread_rows.exist) return;
      has_totals = true;
    }
    typename Strided::Results results[num_rows];
#pragma unroll
    for (int r = 0; r < num_rows; ++r) results[r] = strided.finish(totals[r], own[r]);
    store(first, count, results);
    first += kColumns;
    if (!kGeneral || first >= mechanism.columns) return;
    forget(strided, own);
  }
}

template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    strided_rows(const __grid_constant__ GridConstant<StridedRows> mechanism,
                 const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  constexpr int words = softmax_kernels[kRow].unit_columns;
  if constexpr (words == 1) {
    if (mechanism.images > 0)
      return compute_strided_planes<
          std::conditional_t<Terms::is_backward, StridedGradient<T, 1>, StridedSoftmax<T, T, 1>>, T>(mechanism, params);
  }
  const int lane = static_cast<int>(threadIdx.x) & (params.rows_per_block - 1);
  const int64_t linear =
      static_cast<int64_t>(blockIdx.x >> cluster_shift<words>(params)) * params.rows_per_block + lane;
  const StridedThreadRows rows = locate_strided_rows<Terms::is_backward>(mechanism, params, linear);
  const auto compute = [&](auto strided, auto max_columns, auto is_general) {
    compute_strided_rows<typename decltype(strided)::type, T, words, decltype(max_columns)::value,
                         decltype(is_general)::value>(mechanism, params, rows);
  };
  constexpr bool has_general = words * 4 < vector_bytes, is_general = sizeof(T) == 8;
  using General = std::conditional_t<is_float16<T>, float, T>;
  if constexpr (has_general && !is_general) {
    if (mechanism.is_general)
      return compute(
          std::type_identity<
              std::conditional_t<Terms::is_backward, StridedGradient<T, words>, StridedSoftmax<T, General, words>>>(),
          Constant<strided_general_columns>(), std::true_type());
  }
  compute(std::type_identity<
              std::conditional_t<Terms::is_backward, StridedGradient<T, words>, StridedSoftmax<T, T, words>>>(),
          Constant<softmax_kernels[kRow].max_vectors>(), std::bool_constant<is_general>());
}

}  // namespace flowk::softmax
