// SPDX-License-Identifier: Apache-2.0
// Gradients of rows that lie one after the other, start and end anywhere, and are masked by lengths, causal or window:
// the threads of a warp or a block hold the aligned vectors that contain a row.
#pragma once

#include "softmax/kernels/row_frame.cuh"
#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// As sum_over_lanes(). Rows of 16 bits have few lanes: a loop is shorter than a test for each of five steps.
template <class T, class Sum>
__device__ __forceinline__ Sum sum_over_few_lanes(Sum value, int lanes) {
  if constexpr (is_float16<T>) {
#pragma unroll 1
    for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  } else {
    return sum_over_lanes(value, lanes);
  }
}

// Finds row `linear` and its interval, and waits for the stream's previous grid.
__device__ __forceinline__ SoftmaxRow locate_framed_row(const FramedRows& framed, const SoftmaxParams& params,
                                                        uint32_t linear, int element_bytes) {
  const bool exists = linear < static_cast<uint32_t>(params.rows.num_rows);
  if (!exists) linear = 0;
  const uint64_t offset = static_cast<uint64_t>(linear) * static_cast<uint32_t>(params.columns * element_bytes);
  // Numbers of rows and the offsets of lengths have 32 bits.
  uint32_t length_offset = 0, number = 0;
  split_index<2>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
    length_offset += index * static_cast<uint32_t>(params.rows.dims[d].strides[softmax_lengths]);
    number += index * static_cast<uint32_t>(params.rows.dims[d].strides[softmax_row]);
  });
  SoftmaxRow row;
  row.x = params.x + offset;
  row.out = params.out + offset;
  row.bias_or_y = params.bias_or_y + offset;
  row.columns = row.end = exists ? params.columns : 0;
  wait_on_dependent_grids();
  if (params.interval.exists && exists) {
    if (params.interval.lengths_bytes != 0) find_length(params, static_cast<int32_t>(length_offset), &row);
    if (params.interval.has_diagonal) {
      const int begin = static_cast<int>(number) + framed.diagonal_begin;
      const int end = static_cast<int>(number) + framed.diagonal_end;
      if (end < row.end) row.end = end;
      if (begin > row.begin) row.begin = begin;
    }
    if (row.begin >= row.end) row.begin = row.end = 0;
  }
  return row;
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), 0 if j is masked; dy, y and dx
// are contiguous (rows, columns). A row has lanes_per_row threads.
//
// Columns of neighbouring rows in a frame's first and last vector are read and count as masked. With dx == dy another
// thread may be writing them: whatever value is read is replaced before its first use.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    framed_rows(const __grid_constant__ GridConstant<FramedRows> framed,
                const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int kMax = softmax_kernels[kRow].max_vectors, kMin = softmax_kernels[kRow].min_vectors;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int bytes = static_cast<int>(sizeof(T)), num_inputs = Terms::num_inputs;
  const int lanes = params.lanes_per_row, thread = static_cast<int>(threadIdx.x);
  const bool shares_warp = lanes <= 32;
  const uint32_t linear =
      shares_warp ? blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + (threadIdx.x >> params.rows_shift)
                  : blockIdx.x;
  const SoftmaxRow row = locate_framed_row(framed, params, linear, bytes);
  const RowFrame<T, kMax, kMin> frame(row, shares_warp ? thread & (lanes - 1) : thread, lanes,
                                      framed.vectors_per_thread);

  // All loads come before the first use. The ends of the first and the last row of the tensor are loaded by elements:
  // their frames may reach past its memory.
  uint4 masked[num_inputs], raw[kMax][num_inputs];
#pragma unroll
  for (int k = 0; k < num_inputs; ++k) {
    masked[k] = Terms::masked_vector(params, k);
#pragma unroll
    for (int i = 0; i < kMax; ++i) raw[i][k] = masked[k];
  }
  const auto load = [&](int k, const unsigned char* of_row, auto is_end) {
    const unsigned char* const own = of_row + (frame.position - frame.phase) * bytes;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!frame.any_has(i)) break;
      const unsigned char* const at = own + i * frame.step * bytes;
      if (!frame.is_read(i)) continue;
      if (!decltype(is_end)::value || frame.is_inside(i))
        raw[i][k] = load_vector(at);
      else
        raw[i][k] = load_elements<T>(at, frame.phase - frame.at(i), frame.row_end - frame.at(i));
    }
  };
  if (linear == 0 || linear == static_cast<uint32_t>(params.rows.num_rows) - 1) {
    load(0, row.x, std::true_type{});
    load(1, row.bias_or_y, std::true_type{});
  } else {
    load(0, row.x, std::false_type{});
    load(1, row.bias_or_y, std::false_type{});
  }
  frame.cut(framed.starts_late, raw, masked);

  FrameStores<T, kMax, kMin> stores{frame, row.out - frame.phase * bytes};
  const auto finish = [&](auto kind) {
    const Terms terms(params, decltype(kind)::value);
    A sum = 0;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!frame.any_has(i)) break;
      if (frame.is_read(i)) sum += terms.vector_term(raw[i][0], raw[i][1]);
    }
    sum = sum_over_few_lanes<T>(sum, shares_warp ? lanes : 32);
    if (!shares_warp) sum = sum_row(exchange_buffer<T>(), row_threads(params), sum);
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!frame.any_has(i)) break;
      uint4 results = {0, 0, 0, 0};
      if (frame.is_read(i)) {
        A dx[vector_width<T>];
        terms.vector_results(raw[i][0], raw[i][1], sum, dx);
        Terms::clear_masked(row, frame.at(i) - frame.phase, sum, dx);
        results = narrow_vector<T>(dx);
      }
      stores.take(i, results);
    }
  };
  if (params.log_softmax)
    finish(std::true_type{});
  else
    finish(std::false_type{});
  stores.finish(lanes, framed.shares_ends);
}

}  // namespace flowk::softmax
