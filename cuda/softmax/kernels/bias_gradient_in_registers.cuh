// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias that rows share, in one pass with dx: rows in the registers of their threads, and sums too.
#pragma once

#include "softmax/kernels/bias_gradient_chunk.cuh"
#include "softmax/kernels/row_frame.cuh"

namespace flowk::softmax {

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

// Loads the row's elements alone, of vectors that are not in the tensors' memory as a whole.
template <class T, int kMax, int kInputs>
__device__ __forceinline__ void load_elements_of_frame(const RowFrame<T, kMax>& frame,
                                                       const unsigned char* const (&sources)[kInputs],
                                                       uint4 (&held)[kMax][kInputs]) {
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    if (!frame.any_has(i)) break;
    if (!frame.is_read(i)) continue;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      held[i][k] = load_elements<T>(sources[k] + frame.at(i) * static_cast<int>(sizeof(T)), frame.begin - frame.at(i),
                                    frame.end - frame.at(i));
  }
}

// The argument of the kernel's __launch_bounds__. The bound of float32 is above the largest block. With it the compiler
// gives a thread at most 96 registers, and 5 blocks of 128 threads fit on a multiprocessor.
template <class T>
constexpr int bias_gradient_bound = sizeof(T) == 4 ? 640 : max_bias_gradient_threads;

// dz(row, j) = y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), dx(row, j) = scale * dz(row, j), and
// dbias(group, j) = sum over the members of a group of dz(member, j), as bias_gradient(), with the same chunks.
//
// A thread has vectors lane, lane + lanes, ... of a row's frame, and the sums of their columns. If the members of a
// chunk start at different elements of a vector, a thread has other columns of each: before each member, the sums go
// through shared memory to the threads that have their columns now. Columns of other rows in the frame's first and last
// vector are read and count as masked. With dx == dy another thread may be writing them: whatever value is read is
// replaced before its first use.
template <class Input>
__global__ void __launch_bounds__(bias_gradient_bound<Input>)
    bias_gradient_in_registers(const __grid_constant__ GridConstant<BiasGradient> gradient,
                               const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = Input;
  using A = ComputeType<T>;
  using Terms = GradientTerms<T>;
  constexpr int width = vector_width<T>, bytes = static_cast<int>(sizeof(T)), kInputs = Terms::num_inputs;
  constexpr int kHeld = max_bias_gradient_vectors;
  const ChunkThread own(gradient, params);
  Terms terms(params, false);
  const A scale = terms.scale;
  terms.scale = 1;
  const bool has_masks = gradient.has_edges || params.interval.exists;
  const uint4 masked[kInputs] = {};
  wait_on_dependent_grids();

  A sums[kHeld][width] = {};
  A* const block_sums = reinterpret_cast<A*>(&shared<unsigned char>() + gradient.sums_offset_bytes);
  const ColumnSums<T> row_sums = {block_sums + own.row_in_block * gradient.row_sums, gradient.has_edges};
  // Calls use(column, sums) for each of the thread's vectors in a row that starts at element `phase`.
  const auto for_each_sums = [&](int phase, auto use) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i > 0 && i >= gradient.vectors_per_thread) break;
      const int column = own.template column_of<T>(i, phase);
      if (column < params.columns) use(column, sums[i]);
    }
  };
  const auto put_sums = [&](int phase) {
    for_each_sums(phase, [&](int column, A(&values)[width]) { row_sums.store(column, phase, values); });
  };
  SoftmaxRow row;
  int phase = 0, turn = 0;
#pragma unroll 1
  for (int64_t first = 0; first < gradient.members; first += own.chunks, turn ^= 1) {
    const int64_t linear = own.find_member(gradient, params, first, &row);
    const bool exists = row.columns > 0, is_first = own.lane == 0 && exists;
    const RowFrame<T, kHeld> frame(row, own.lane, own.lanes, gradient.vectors_per_thread);
    if (!gradient.has_one_phase && first > 0) {
      put_sums(phase);
      own.threads.warps > 1 ? __syncthreads() : __syncwarp();
      for_each_sums(frame.phase, [&](int column, A(&values)[width]) { row_sums.load(column, frame.phase, values); });
    }
    if (exists || !gradient.has_one_phase) phase = frame.phase;
    const bool is_in_memory = !gradient.has_edges || is_frame_in_memory<T>(gradient, row, params.columns, frame.phase);

    typename Terms::Partial partial = Terms::begin(params, static_cast<uint32_t>(linear), is_first);
    const unsigned char* const sources[kInputs] = {row.x - frame.phase * bytes, row.bias_or_y - frame.phase * bytes};
    uint4 held[kHeld][kInputs];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i)) break;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        held[i][k] = masked[k];
        if (is_in_memory && frame.is_read(i)) held[i][k] = load_vector(sources[k] + frame.at(i) * bytes);
      }
    }
    if (!is_in_memory) load_elements_of_frame(frame, sources, held);
    if (has_masks) frame.cut(params.interval.exists, held, masked);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i)) break;
      partial.sum += terms.vector_term(held[i][0], held[i][1]);
    }
    // Two buffers in turn: all threads have read one before any writes it again. The barriers in merge(), or the one of
    // the warp, also part the loads of sums from the stores before the next member.
    const RowPartial<T> total =
        Terms::merge(exchange_buffer_at(exchange_buffer<T>(), own.threads, turn), own.threads, partial);
    __syncwarp();
    const A sum = static_cast<A>(total.sum);
    const bool clears = has_masks && sum - sum != A{0};
    FrameStores<T, kHeld> stores{frame, params.out == nullptr ? nullptr : row.out - frame.phase * bytes};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!frame.any_has(i)) break;
      A dx[width];
      terms.vector_results(held[i][0], held[i][1], sum, dx);
      if (clears) Terms::clear_masked(row, frame.column(i), sum, dx);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        sums[i][j] += dx[j];
        dx[j] *= scale;
      }
      if (params.out != nullptr) stores.take(i, narrow_vector<T>(dx));
    }
    if (params.out != nullptr) stores.finish();
    Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
  }

  if (gradient.block_chunks > 1) {
    put_sums(phase);
    __syncthreads();
    return store_sums_of_chunks<T>(gradient, params, own, block_sums);
  }
  if (own.group >= gradient.groups) return;
  store_sums<A>(gradient, params, own, [&](unsigned char* to, auto type) {
    using Out = typename decltype(type)::type;
    constexpr int out_bytes = static_cast<int>(sizeof(Out));
    const bool is_aligned = (reinterpret_cast<uintptr_t>(to - phase * out_bytes) & (vector_bytes - 1)) == 0;
    for_each_sums(phase, [&](int column, const A(&values)[width]) {
      if (is_aligned && column >= 0 && column + width <= params.columns)
        store_values<Out>(to + column * out_bytes, values);
      else
#pragma unroll
        for (int j = 0; j < width; ++j)
          if (column + j >= 0 && column + j < params.columns) store_element<Out>(to, column + j, values[j]);
    });
  });
}

}  // namespace flowk::softmax
