// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias that rows share, in one pass with dx: any rows, which are read twice, and sums in shared
// memory or in the workspace.
#pragma once

#include "softmax/kernels/bias_gradient_chunk.cuh"
#include "softmax/kernels/row_frame.cuh"

namespace flowk::softmax {

// dz(row, j) = y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), dx(row, j) = scale * dz(row, j), and
// dbias(group, j) = sum over the members of a group of dz(member, j). A block has rows_per_block rows at a time; the
// threads of each take the members of one chunk, one after the other, and add them up in block_sums. The block then
// adds up its chunks of a group. If several blocks have chunks of it, their sums are partials(chunk block, group, j).
//
// A thread has vectors lane, lane + lanes, ... of a row. The first one starts with the row's first column, or is the
// vector that has it.
template <class Input>
__global__ void __launch_bounds__(max_bias_gradient_threads)
    bias_gradient(const __grid_constant__ GridConstant<BiasGradient> gradient,
                  const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = Input;
  using A = ComputeType<T>;
  using Terms = GradientTerms<T>;
  constexpr int width = vector_width<T>, bytes = static_cast<int>(sizeof(T)), kInputs = Terms::num_inputs;
  constexpr int kAtOnce = bias_gradient_vectors_at_once;
  const ChunkThread own(gradient, params);
  const RowOutput<T, sizeof(T) < 8> output{params};
  Terms terms(params), softmax_terms(params, false);
  const A scale = terms.scale;
  terms.scale = softmax_terms.scale = 1;

  A* const block_sums = gradient.sums == nullptr
                            ? reinterpret_cast<A*>(&shared<unsigned char>() + gradient.sums_offset_bytes)
                            : reinterpret_cast<A*>(gradient.sums) + blockIdx.x * gradient.block_sums;
  wait_on_dependent_grids();
  constexpr int pack = vector_width<A>;
  for (int i = static_cast<int>(threadIdx.x); i < gradient.block_sums / pack; i += static_cast<int>(blockDim.x))
    reinterpret_cast<uint4*>(block_sums)[i] = {0, 0, 0, 0};
  __syncthreads();
  const bool has_masks = gradient.has_edges || params.interval.exists;
  const ColumnSums<T> row_sums = {block_sums + own.row_in_block * gradient.row_sums, gradient.has_edges};

  SoftmaxRow row;
  int turn = 0;
#pragma unroll 1
  for (int64_t first = 0; first < gradient.members; first += own.chunks, turn ^= 1) {
    const int64_t linear = own.find_member(gradient, params, first, &row);
    const bool is_first = own.lane == 0 && row.columns > 0;
    const int phase =
        gradient.has_frames ? static_cast<int>(reinterpret_cast<uintptr_t>(row.x) % vector_bytes / sizeof(T)) : 0;
    typename Terms::Partial partial = Terms::begin(params, static_cast<uint32_t>(linear), is_first);
    const auto column_of = [&](int i) { return own.template column_of<T>(i, phase); };
    const auto is_inside = [&](int column) { return column >= 0 && column + width <= row.columns; };
    const auto load = [&](int i, uint4(&inputs)[kInputs]) {
      const int column = column_of(i);
      const unsigned char* const sources[kInputs] = {row.x + column * bytes, row.bias_or_y + column * bytes};
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        inputs[k] = Terms::masked_vector(params, k);
        if (column + width <= row.begin || column >= row.end) continue;
        inputs[k] = gradient.by_vectors && is_inside(column)
                        ? load_vector(sources[k])
                        : load_elements<T>(sources[k], row.begin - column, row.end - column);
      }
      Terms::cut(params, row, column, &inputs[0], &inputs[1]);
    };
    // Calls use(terms, column, inputs) for vectors i, i + 1, ... of the thread. All are loaded before the first use.
    const auto take = [&](int i, auto use) {
      if (gradient.vectors_at_once == 1) {
        uint4 inputs[kInputs];
        load(i, inputs);
        return use(terms, column_of(i), inputs);
      }
      uint4 inputs[kAtOnce][kInputs] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int column = column_of(i + u);
        if (column >= row.columns) continue;
        inputs[u][0] = load_vector(row.x + column * bytes);
        inputs[u][1] = load_vector(row.bias_or_y + column * bytes);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) use(softmax_terms, column_of(i + u), inputs[u]);
    };
#pragma unroll 1
    for (int i = 0; i < gradient.vectors_per_thread; i += gradient.vectors_at_once)
      take(i, [&](const Terms& of, int, const uint4(&inputs)[kInputs]) {
        partial.sum += of.vector_term(inputs[0], inputs[1]);
      });
    // Two buffers in turn: all threads have read one before any writes it again. Different threads may add to a column
    // in one member and the next.
    const RowPartial<T> total =
        Terms::merge(exchange_buffer_at(exchange_buffer<T>(), own.threads, turn), own.threads, partial);
    __syncwarp();
    const A sum = static_cast<A>(total.sum);
#pragma unroll 1
    for (int i = 0; i < gradient.vectors_per_thread; i += gradient.vectors_at_once)
      take(i, [&](const Terms& of, int column, const uint4(&inputs)[kInputs]) {
        if (column >= row.columns) return;
        A dx[width], sums[width];
        of.vector_results(inputs[0], inputs[1], sum, dx);
        if (has_masks) Terms::clear_masked(row, column, sum, dx);
        row_sums.load(column, phase, sums);
#pragma unroll
        for (int j = 0; j < width; ++j) sums[j] += dx[j];
        row_sums.store(column, phase, sums);
        if (params.out == nullptr) return;
#pragma unroll
        for (A& value : dx) value *= scale;
        unsigned char* const address = row.out + static_cast<int64_t>(column) * output.column_bytes();
        if (gradient.by_vectors && is_inside(column))
          output.store_vector(address, dx);
        else
          output.store_columns(address, dx, -column, row.columns - column);
      });
    Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
  }

  __syncthreads();
  store_sums_of_chunks<T>(gradient, params, own, block_sums);
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
