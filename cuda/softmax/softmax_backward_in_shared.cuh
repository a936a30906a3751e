// SPDX-License-Identifier: Apache-2.0
// The gradient of softmax for long rows, held by a block or a cluster: the first vectors of a thread in registers, the
// others in shared memory.
#pragma once

#include "softmax/softmax_backward_in_registers.cuh"

namespace flowk::softmax {

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); dy, y and dx are
// (rows, columns). With log_softmax as flowk.h says.
//
// Threads and vectors as of softmax_row_in_shared; both inputs are read once.
template <class T>
__global__ void __launch_bounds__(max_register_lanes, 2)
    softmax_backward_in_shared(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>, kHeld = 4;
  const RowTeam team = row_team(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, team);
  const int threads = params.lanes_per_row, lane = static_cast<int>(threadIdx.x);
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.cluster_shift;
  const SoftmaxRow row = locate_row<SoftmaxMask::none, true>(params, linear);
  const RowVectors vectors = row_vectors<T>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, team.rank, lane);
  const int num = own.count();
  const auto is_held = [&](int n) { return n < num && (n > 0 || own.first >= vectors.read_begin); };
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const int step_bytes = threads * vector_bytes;
  const unsigned char* const dy_vectors = row.x + first_bytes;
  const unsigned char* const y_vectors = row.side + first_bytes;
  unsigned char* const out = row.out + first_bytes;
  // Slots 2 * n and 2 * n + 1 are vector n's of dy and of y, from kHeld on.
  uint4* const slots = reinterpret_cast<uint4*>(buffer.memory + params.block_offset_bytes) + lane - 2 * kHeld * threads;
  const int group_end[3] = {kHeld, kHeld + (num > kHeld ? (num - kHeld + 1) / 2 : 0), num};
  const bool log_softmax = params.log_softmax;
  // What stands for a masked column: it adds nothing, and its gradient is 0 as long as the sum is finite.
  const uint4 masked_y = log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};

  uint4 held_dy[kHeld], held_y[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    held_dy[n] = {0, 0, 0, 0};
    held_y[n] = masked_y;
    if (!is_held(n)) continue;
    held_dy[n] = load_vector(dy_vectors + n * step_bytes);
    held_y[n] = load_vector(y_vectors + n * step_bytes);
  }
#pragma unroll
  for (int group = 1; group < 3; ++group) {
    int64_t offset = static_cast<int64_t>(group_end[group - 1]) * step_bytes;
#pragma unroll 2
    for (int n = group_end[group - 1]; n < group_end[group]; ++n, offset += step_bytes) {
      async_copy_vector(slots + 2 * n * threads, dy_vectors + offset);
      async_copy_vector(slots + (2 * n + 1) * threads, y_vectors + offset);
    }
    async_copy_commit();
  }
  if (params.has_interval) fill_unread(RowOutput<T>{params}, row.out + head_bytes, vectors, own, team.rank, lane, A{0});
  A extra_dy = 0, extra_y = log_softmax ? negative_infinity<A>() : A{0};
  const int extra_column = leftover_column<T>(params, row, vectors, team.rank, lane);
  if (extra_column >= 0 && is_kept<SoftmaxMask::none>(row, extra_column)) {
    extra_dy = load_element<T>(row.x, extra_column);
    extra_y = load_element<T>(row.side, extra_column);
  }

  // An interval cuts only a thread's first vector and its last.
  const auto cut = [&](int n, uint4* dy, uint4* y) {
    const int column = vectors.head + own.at(n) * width;
    if (column >= row.begin && column + width <= row.end) return;
    select_interval<T>(dy, column, row.begin, row.end, uint4{0, 0, 0, 0});
    select_interval<T>(y, column, row.begin, row.end, masked_y);
  };
  A sum = backward_term(log_softmax, extra_dy, extra_y);
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    if (params.has_interval && (n == 0 || n == num - 1) && is_held(n)) cut(n, &held_dy[n], &held_y[n]);
    sum += backward_vector_sum<T>(log_softmax, held_dy[n], held_y[n]);
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
      sum += backward_vector_sum<T>(log_softmax, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  }
  sum = sum_row(buffer, team, sum_over_lanes(sum, 32));

  const A scale = signed_scale<A>(params);
  const bool is_finite = sum - sum == A{0};
  const auto store_vector = [&](int n, const uint4& dy_vector, const uint4& y_vector) {
    A dx[width], y[width];
    widen_vector<T>(dy_vector, dx);
    widen_vector<T>(y_vector, y);
#pragma unroll
    for (int j = 0; j < width; ++j) dx[j] = backward_gradient(log_softmax, dx[j], y[j], sum, scale);
    if (!is_finite) clear_masked(row, vectors.head + own.at(n) * width, dx);
    store_values<T>(out + static_cast<int64_t>(n) * step_bytes, dx);
  };
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (is_held(n)) store_vector(n, held_dy[n], held_y[n]);
#pragma unroll 2
  for (int n = kHeld; n < num; ++n) store_vector(n, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  if (extra_column >= 0)
    store_element<T>(row.out, extra_column,
                     is_kept<SoftmaxMask::none>(row, extra_column)
                         ? backward_gradient(log_softmax, extra_dy, extra_y, sum, scale)
                         : A{0});
}

}  // namespace flowk::softmax
