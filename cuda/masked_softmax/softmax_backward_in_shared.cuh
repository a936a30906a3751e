// SPDX-License-Identifier: Apache-2.0
// The gradient of softmax for long rows, held by a block or a cluster: the first chunks of a thread in registers, the
// others in shared memory.
#pragma once

#include "masked_softmax/softmax_backward_in_registers.cuh"

namespace flowk {

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); dy, y and dx are
// (rows, columns). With log_softmax as flowk.h says.
//
// Threads and chunks as of softmax_row_in_shared; both inputs are read once.
template <class T, int kHeld>
__global__ void __launch_bounds__(max_register_lanes, kHeld <= 4 ? 2 : 0)
    softmax_backward_in_shared(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  using A = ComputeType<T>;
  constexpr int width = chunk_width<T>;
  const RowTeam team = row_team(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, team);
  const int threads = params.lanes_per_row, lane = static_cast<int>(threadIdx.x);
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.cluster_shift;
  const SoftmaxRow row = locate_row<SoftmaxMask::interval, true>(params, linear);
  const RowChunks chunks = row_chunks<T>(params, row);
  const int head_bytes = chunks.head * static_cast<int>(sizeof(T));
  const OwnChunks own = own_chunks(params, row.x + head_bytes, chunks, team.rank, lane);
  const int num = own.count();
  const auto is_held = [&](int n) { return n < num && (n > 0 || own.first >= chunks.read_begin); };
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * chunk_bytes;
  const int step_bytes = threads * chunk_bytes;
  const unsigned char* const dy_chunks = row.x + first_bytes;
  const unsigned char* const y_chunks = row.side + first_bytes;
  unsigned char* const out = row.out + first_bytes;
  // Slots 2 * n and 2 * n + 1 are chunk n's of dy and of y, from kHeld on.
  uint4* const slots = reinterpret_cast<uint4*>(buffer.memory + params.block_offset_bytes) + lane - 2 * kHeld * threads;
  const int group_end[3] = {kHeld, kHeld + (num > kHeld ? (num - kHeld + 1) / 2 : 0), num};
  const bool log_softmax = params.log_softmax;
  // What stands for a masked column: it adds nothing, and its gradient is 0 as long as the sum is finite.
  const uint4 masked_y = log_softmax ? negative_infinity_chunk<T>() : uint4{0, 0, 0, 0};

  uint4 held_dy[kHeld], held_y[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    held_dy[n] = {0, 0, 0, 0};
    held_y[n] = masked_y;
    if (!is_held(n)) continue;
    held_dy[n] = load_chunk(dy_chunks + n * step_bytes);
    held_y[n] = load_chunk(y_chunks + n * step_bytes);
  }
#pragma unroll
  for (int group = 1; group < 3; ++group) {
    int64_t offset = static_cast<int64_t>(group_end[group - 1]) * step_bytes;
#pragma unroll 2
    for (int n = group_end[group - 1]; n < group_end[group]; ++n, offset += step_bytes) {
      async_copy_chunk(slots + 2 * n * threads, dy_chunks + offset);
      async_copy_chunk(slots + (2 * n + 1) * threads, y_chunks + offset);
    }
    async_copy_commit();
  }
  if (params.has_interval) fill_unread<T, width>(params, row.out + head_bytes, chunks, own, team.rank, lane, A{0});
  A extra_dy = 0, extra_y = log_softmax ? negative_infinity<A>() : A{0};
  const int extra_column = leftover_column<T>(params, row, chunks, team.rank, lane);
  if (extra_column >= 0 && is_kept<SoftmaxMask::interval>(row, extra_column)) {
    extra_dy = load_element<T>(row.x, extra_column);
    extra_y = load_element<T>(row.side, extra_column);
  }

  // An interval cuts only a thread's first chunk and its last.
  const auto cut = [&](int n, uint4* dy, uint4* y) {
    const int column = chunks.head + own.at(n) * width;
    if (column >= row.begin && column + width <= row.end) return;
    select_interval<T>(dy, column, row.begin, row.end, uint4{0, 0, 0, 0});
    select_interval<T>(y, column, row.begin, row.end, masked_y);
  };
  A sum = backward_term(log_softmax, extra_dy, extra_y);
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    if (params.has_interval && (n == 0 || n == num - 1) && is_held(n)) cut(n, &held_dy[n], &held_y[n]);
    sum += backward_chunk_sum<T>(log_softmax, held_dy[n], held_y[n]);
  }
#pragma unroll
  for (int group = 1; group < 3; ++group) {
    const int begin = group_end[group - 1], end = group_end[group];
    if (group == 1)
      async_copy_wait_groups<1>();
    else
      async_copy_wait();
    if (params.has_interval && begin < end && end == num)
      cut(num - 1, slots + 2 * (num - 1) * threads, slots + (2 * num - 1) * threads);
#pragma unroll 2
    for (int n = begin; n < end; ++n)
      sum += backward_chunk_sum<T>(log_softmax, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  }
  sum = sum_row(buffer, team, sum_over_lanes(sum, 32));

  const A scale = signed_scale<A>(params);
  const bool is_finite = sum - sum == A{0};
  const auto store_chunk = [&](int n, const uint4& dy_chunk, const uint4& y_chunk) {
    A dx[width], y[width];
    widen_chunk<T>(dy_chunk, dx);
    widen_chunk<T>(y_chunk, y);
#pragma unroll
    for (int j = 0; j < width; ++j) dx[j] = backward_gradient(log_softmax, dx[j], y[j], sum, scale);
    if (!is_finite) clear_masked(row, chunks.head + own.at(n) * width, dx);
    store_values<T>(out + static_cast<int64_t>(n) * step_bytes, dx);
  };
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (is_held(n)) store_chunk(n, held_dy[n], held_y[n]);
#pragma unroll 2
  for (int n = kHeld; n < num; ++n) store_chunk(n, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  if (extra_column >= 0)
    store_element<T>(row.out, extra_column,
                     is_kept<SoftmaxMask::interval>(row, extra_column)
                         ? backward_gradient(log_softmax, extra_dy, extra_y, sum, scale)
                         : A{0});
}

}  // namespace flowk
