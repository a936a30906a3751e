// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias that rows share, in one pass with dx.
#pragma once

#include "softmax/kernels/row_frame.cuh"
#include "softmax/kernels/softmax_terms.cuh"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::softmax {

// The sums of a row's columns. Rows of whole vectors: after each 32 sums a pack is unused, so that threads with
// neighbouring vectors add packs in different banks. Others: from column -width on, because the first and the last
// vector may have columns of other rows; after each `width` sums one is unused.
template <class T>
struct ColumnSums {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>, pack_width = vector_width<A>;
  struct alignas(vector_bytes) Pack {
    A values[pack_width];
  };
  A* first;
  bool has_edges;

  __device__ __forceinline__ A* at(int column) const {
    return first + (has_edges ? column + width + (column + width) / width : column + column / 32 * pack_width);
  }
  // Adds to the columns from `column` on; the row's first column is element `phase` of a vector.
  __device__ __forceinline__ void add(int column, int phase, const A (&values)[width]) const {
    if (has_edges) {
      A* const later = first + column + width + (column + width + phase) / width;
      A* const earlier = later - 1;
      A sums[width];
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] = (j < phase ? earlier : later)[j];
#pragma unroll
      for (int j = 0; j < width; ++j) (j < phase ? earlier : later)[j] = sums[j] + values[j];
      return;
    }
    Pack* const own = reinterpret_cast<Pack*>(at(column));
#pragma unroll
    for (int i = 0; i < width / pack_width; ++i) {
      Pack sum = own[i];
#pragma unroll
      for (int j = 0; j < pack_width; ++j) sum.values[j] += values[i * pack_width + j];
      own[i] = sum;
    }
  }
};

// store(address, type) with the row of dbias of a group, and its element type.
template <class A, class Store>
__device__ __forceinline__ void store_in_dbias(const BiasGradient& gradient, const SoftmaxParams& params, int64_t group,
                                               Store store) {
  unsigned char* address = gradient.dbias;
  const auto step = [&](int d, int64_t index) { address += index * params.rows.dims[d].strides[softmax_dense]; };
  const int64_t linear = group * gradient.members;
  if (params.rows.is_wide)
    split_index<0>(static_cast<uint64_t>(linear), params.rows.dims, params.rows.rank, step);
  else
    split_index<0>(static_cast<uint32_t>(linear), params.rows.dims, params.rows.rank, step);
  if constexpr (sizeof(A) == 8)
    store(address, std::type_identity<double>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT32)
    store(address, std::type_identity<float>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT16)
    store(address, std::type_identity<Float16>());
  else
    store(address, std::type_identity<BFloat16>());
}

// Do the vectors that contain a row, of dy and of y, lie in the memory of these tensors?
template <class T>
__device__ __forceinline__ bool is_frame_in_memory(const BiasGradient& gradient, const SoftmaxRow& row, int columns,
                                                   int phase) {
  constexpr int width = vector_width<T>, bytes = static_cast<int>(sizeof(T));
  const int begin = -phase * bytes;
  const int64_t end = begin + static_cast<int64_t>((columns + phase + width - 1) / width) * vector_bytes;
  return row.x + begin >= gradient.memory[0] && row.x + end <= gradient.memory_end[0] &&
         row.bias_or_y + begin >= gradient.memory[1] && row.bias_or_y + end <= gradient.memory_end[1];
}

// dz(row, j) = y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), dx(row, j) = scale * dz(row, j), and
// dbias(group, j) = sum over the members of a group of dz(member, j). A block has rows_per_block rows at a time; the
// threads of each take the members of one chunk, one after the other, and add them up in shared memory. The block then
// adds up its chunks of a group. If several blocks have chunks of it, their sums are partials(chunk block, group, j).
//
// A thread has vectors lane, lane + lanes, ... of a row's frame. Columns of other rows in the frame's first and last
// vector are read and count as masked. With dx == dy another thread may be writing them: whatever value is read is
// replaced before its first use.
template <class Input>
__global__ void __launch_bounds__(max_bias_gradient_threads)
    bias_gradient(const __grid_constant__ GridConstant<BiasGradient> gradient,
                  const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = Input;
  using A = ComputeType<T>;
  using Terms = GradientTerms<T>;
  constexpr int width = vector_width<T>, bytes = static_cast<int>(sizeof(T)), kInputs = Terms::num_inputs;
  constexpr int kHeld = max_bias_gradient_vectors;  // vectors beyond them are loaded twice
  constexpr bool has_frame_stores = sizeof(T) < 8;
  const RowThreads threads = row_threads(params);
  const int thread = static_cast<int>(threadIdx.x), lanes = params.lanes_per_row;
  const int row_in_block = params.rows_per_block == 1 ? 0 : thread >> params.rows_shift;
  const int lane = thread - row_in_block * lanes;
  const int group_in_block = row_in_block & ((1 << gradient.groups_shift) - 1);
  const int chunk_in_block = row_in_block >> gradient.groups_shift;
  const int chunk_block = gradient.chunk_blocks > 1 ? static_cast<int>(gradient.group_blocks.divide(blockIdx.x)) : 0;
  const int64_t group_block = blockIdx.x - chunk_block * gradient.num_group_blocks;
  const int64_t group = (group_block << gradient.groups_shift) + group_in_block;
  const int chunk = chunk_block * gradient.block_chunks + chunk_in_block;
  const int chunks = gradient.chunk_blocks * gradient.block_chunks;
  const RowOutput<T, sizeof(T) < 8> output{params};
  const A scale = Terms(params).scale;
  // Rows of a log_softmax are not held: the code for both would be too long for the instruction cache.
  Terms terms(params), held_terms(params, false);
  terms.scale = held_terms.scale = 1;

  A* const shared_sums = reinterpret_cast<A*>(&shared<unsigned char>() + gradient.sums_offset_bytes);
  A* const block_sums =
      gradient.sums == nullptr ? shared_sums : reinterpret_cast<A*>(gradient.sums) + blockIdx.x * gradient.block_sums;
  wait_on_dependent_grids();
  constexpr int pack = vector_width<A>;
  for (int i = thread; i < gradient.block_sums / pack; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint4*>(block_sums)[i] = {0, 0, 0, 0};
  __syncthreads();
  const int64_t own_sums = row_in_block * gradient.row_sums;
  const bool has_masks = gradient.has_edges || params.interval.exists;

  // Threads of a warp may have different groups, so all of them take as many members as the first chunk has.
  SoftmaxRow row;
  int turn = 0;
#pragma unroll 1
  for (int64_t first = 0; first < gradient.members; first += chunks, turn ^= 1) {
    const int64_t member = first + chunk;
    const bool exists = group < gradient.groups && member < gradient.members;
    const int64_t linear = exists ? group * gradient.members + member : params.rows.num_rows;
    if (first == 0 || !gradient.has_steps) {
      row = locate_row<SoftmaxMask::none, true>(params, linear, false);
    } else {
      row.x += gradient.steps[0];
      row.bias_or_y += gradient.steps[1];
      row.out += gradient.steps[2];
      if (!exists) row.columns = row.end = 0;
    }
    const bool is_first = lane == 0 && exists;
    const RowFrame<T, kHeld> frame(row, lane, lanes, gradient.held_vectors);
    const int phase = gradient.has_frames ? frame.phase : 0;
    const bool is_held = gradient.held_vectors > 0 &&
                         (!gradient.has_edges || is_frame_in_memory<T>(gradient, row, params.columns, phase));

    typename Terms::Partial partial = Terms::begin(params, static_cast<uint32_t>(linear), is_first);
    const uint4 masked[kInputs] = {Terms::masked_vector(params, 0), Terms::masked_vector(params, 1)};
    uint4 held[kHeld][kInputs];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i)) break;
      if (is_held && frame.is_read(i)) {
        held[i][0] = load_vector(row.x + frame.column(i) * bytes);
        held[i][1] = load_vector(row.bias_or_y + frame.column(i) * bytes);
      } else {
        held[i][0] = masked[0];
        held[i][1] = masked[1];
      }
    }
    if (has_masks) frame.cut(params.interval.exists, held, masked);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i) || !is_held) break;
      partial.sum += held_terms.vector_term(held[i][0], held[i][1]);
    }
    // Vectors that are not held are loaded here, and a second time below.
    const auto column_of = [&](int i) { return (lane + i * lanes) * width - phase; };
    const auto is_inside = [&](int column) { return column >= 0 && column + width <= row.columns; };
    const auto load = [&](int i, uint4(&inputs)[kInputs]) {
      const int column = column_of(i);
      const unsigned char* const sources[kInputs] = {row.x + column * bytes, row.bias_or_y + column * bytes};
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        inputs[k] = masked[k];
        if (column + width <= row.begin || column >= row.end) continue;
        inputs[k] = gradient.by_vectors && is_inside(column)
                        ? load_vector(sources[k])
                        : load_elements<T>(sources[k], row.begin - column, row.end - column);
      }
      Terms::cut(params, row, column, &inputs[0], &inputs[1]);
    };
    const int first_again = is_held ? gradient.held_vectors : 0;
#pragma unroll 1
    for (int i = first_again; i < gradient.vectors_per_thread; ++i) {
      uint4 inputs[kInputs];
      load(i, inputs);
      partial.sum += terms.vector_term(inputs[0], inputs[1]);
    }
    // Two buffers in turn: all threads have read one before any writes it again. Different threads may add to a column
    // in one member and the next.
    const RowPartial<T> total = Terms::merge(exchange_buffer_at(exchange_buffer<T>(), threads, turn), threads, partial);
    __syncwarp();
    const A sum = static_cast<A>(total.sum);
    const bool is_infinite = sum - sum != A{0};
    // dz of the vector at `column`, which is added to its sums, and dx.
    const auto finish = [&](const Terms& of, int column, const uint4(&inputs)[kInputs], A* row_sums, A(&dx)[width]) {
      of.vector_results(inputs[0], inputs[1], sum, dx);
      if (has_masks && is_infinite) Terms::clear_masked(row, column, sum, dx);
      ColumnSums<T>{row_sums, gradient.has_edges}.add(column, phase, dx);
#pragma unroll
      for (A& value : dx) value *= scale;
    };
    FrameStores<T, kHeld> stores{frame, params.out == nullptr ? nullptr : row.out - phase * bytes};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i) || !is_held) break;
      if (frame.column(i) >= row.columns) continue;
      A dx[width];
      finish(held_terms, frame.column(i), held[i], shared_sums + own_sums, dx);
      if (params.out == nullptr) continue;
      if constexpr (has_frame_stores) {
        if (gradient.has_edges) {
          stores.take(i, narrow_vector<T>(dx));
          continue;
        }
      }
      output.store_vector(row.out + frame.column(i) * output.column_bytes(), dx);
    }
    if constexpr (has_frame_stores)
      if (is_held && params.out != nullptr && gradient.has_edges) stores.finish();
#pragma unroll 1
    for (int i = first_again; i < gradient.vectors_per_thread; ++i) {
      const int column = column_of(i);
      if (column >= row.columns) break;
      uint4 inputs[kInputs];
      load(i, inputs);
      A dx[width];
      finish(terms, column, inputs, block_sums + own_sums, dx);
      if (params.out == nullptr) continue;
      unsigned char* const address = row.out + static_cast<int64_t>(column) * output.column_bytes();
      if (gradient.by_vectors && is_inside(column))
        output.store_vector(address, dx);
      else
        output.store_columns(address, dx, -column, row.columns - column);
    }
    Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
  }

  __syncthreads();
  if (group >= gradient.groups) return;
  const ColumnSums<T> of_group = {block_sums + group_in_block * gradient.row_sums, gradient.has_edges};
  const int64_t chunk_sums = gradient.row_sums << gradient.groups_shift;
  const auto store = [&](unsigned char* address, auto type) {
#pragma unroll 1
    for (int column = chunk_in_block * lanes + lane; column < params.columns; column += lanes * gradient.block_chunks) {
      const A* of_chunk = of_group.at(column);
      A sum = 0;
#pragma unroll 1
      for (int i = 0; i < gradient.block_chunks; ++i, of_chunk += chunk_sums) sum += *of_chunk;
      store_element<typename decltype(type)::type>(address, column, sum);
    }
  };
  if (gradient.chunk_blocks == 1) return store_in_dbias<A>(gradient, params, group, store);
  store(gradient.partials + (chunk_block * gradient.groups + group) * params.columns * static_cast<int>(sizeof(A)),
        std::type_identity<A>());
}

// dbias(group, j) = sum over chunk blocks of partials(chunk block, group, j). A warp has 32 neighbouring elements; the
// warps of a block take the partials in turn, and the first warp adds up their sums.
template <class A>
__global__ void __launch_bounds__(max_bias_gradient_threads)
    bias_gradient_of_chunks(const __grid_constant__ GridConstant<BiasGradient> gradient,
                            const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes, warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int num_warps = static_cast<int>(blockDim.x) / warp_lanes;
  const int64_t num_elements = gradient.groups * params.columns;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * warp_lanes + lane;
  const A* const partials = reinterpret_cast<const A*>(gradient.partials) + element;
  wait_on_dependent_grids();
  A sum = 0;
  if (element < num_elements)
#pragma unroll 8
    for (int chunk = warp; chunk < gradient.chunk_blocks; chunk += num_warps) sum += partials[chunk * num_elements];
  A* const sums = &shared<A>();
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || element >= num_elements) return;
  for (int i = 1; i < num_warps; ++i) sum += sums[i * warp_lanes + lane];
  const auto group = static_cast<int64_t>(gradient.columns.divide(static_cast<uint64_t>(element)));
  store_in_dbias<A>(gradient, params, group, [&](unsigned char* address, auto type) {
    store_element<typename decltype(type)::type>(address, element - group * params.columns, sum);
  });
}

}  // namespace flowk::softmax
