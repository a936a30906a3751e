// SPDX-License-Identifier: Apache-2.0
// Softmax of rows that lie one after the other, start and end anywhere, and are masked by lengths, causal or window:
// the threads of a warp or a block hold the aligned vectors that contain a row, and the results leave through shared
// memory.
#pragma once

#include "softmax/kernels/scores_to_results.cuh"
#include "softmax/kernels/segment_frame.cuh"

namespace flowk::softmax {

// The threads of a row: lanes of a warp, or the warps of a block.
struct FramedThreads {
  int lane;
  int lanes;
  int row_in_block;
  __device__ __forceinline__ explicit FramedThreads(const SoftmaxParams& params) : lanes(params.lanes_per_row) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool shares_block = params.rows_per_block > 1;
    lane = shares_block ? thread & (lanes - 1) : thread;
    row_in_block = shares_block ? thread >> params.rows_shift : 0;
  }
  template <class T, class Sum>
  __device__ __forceinline__ Sum sum(Sum value) const {
    if (lanes <= 32) return sum_over_lanes(value, lanes);
    return sum_row(exchange_buffer<T>(), warps(), sum_over_lanes(value, 32));
  }
  // The largest value of the row's threads, exchanged through a buffer of its own.
  template <class T>
  __device__ __forceinline__ ComputeType<T> max(ComputeType<T> value) const {
    if (lanes <= 32) return max_over_lanes(value, lanes);
    return max_row(exchange_buffer_at(exchange_buffer<T>(), warps(), 1), warps(), max_over_lanes(value, 32));
  }

 private:
  __device__ __forceinline__ RowThreads warps() const { return {lane & 31, 32, lane / 32, lanes / 32, 0, 1}; }
};

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x, 0 if j is masked; x
// and y are contiguous (rows, columns). A block has rows_per_block neighbouring rows of lanes_per_row threads each; a
// thread has up to max_vectors vectors of a row's frame. Fully masked vectors are not read.
//
// Columns of neighbouring rows in a frame's first and last vector are read and count as masked. In place another
// thread may be writing them: whatever value is read is replaced before its first use. In shared memory a vector that
// two rows share is stored whole by the first one, then in part by the second one.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    framed_rows_softmax(const __grid_constant__ GridConstant<FramedRows> framed,
                        const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int kMax = softmax_kernels[kRow].max_vectors, width = vector_width<T>;
  constexpr int bytes = static_cast<int>(sizeof(T));
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const results = memory + framed.results_offset_bytes;
  auto* const segment_rows = reinterpret_cast<SegmentRow*>(memory + framed.rows_offset_bytes);
  const RowSegment segment = row_segment<T>(params);
  const FramedThreads threads(params);
  const int thread = static_cast<int>(threadIdx.x);
  wait_on_dependent_grids();
  if (thread < params.rows_per_block) segment_rows[thread] = find_segment_row<T>(framed, params, segment, thread);
  __syncthreads();
  const SegmentRow row = segment_rows[threads.row_in_block];
  const SegmentFrame<T> frame(row, params.columns, threads.lane, threads.lanes);
  const int own_bytes = row.frame_bytes + frame.position * bytes;
  uint4 raw[kMax];
  frame.load(row, held(params.x + (segment.first_byte - segment.shift) + own_bytes), raw);
  if (params.negates_x) {
#pragma unroll
    for (int i = 0; i < kMax; ++i)
      if (frame.is_read(i)) negate_vector<T>(&raw[i]);
  }

  const SegmentCut<T> cut(frame);
  if (framed.starts_late) cut.cut_late(frame, raw);
  float values[kMax * width];
  VectorMax<T> largest;
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    if (!frame.has(i)) break;
    cut.cut(frame, i, &raw[i]);
    largest.take(raw[i]);
    widen_vector<T>(raw[i], values + i * width);
  }
  const auto sum =
      scores_to_results<T, width>(
          params, ScoreFactor{params, false}, threads.max<T>(largest.largest()),
          [&](auto value, float) { return threads.sum<T>(value); }, [&](int j) { return frame.has(j / width); }, values)
          .sum;

  // A row with an unmasked NaN stores its columns one by one, after the whole vectors of other rows.
  const bool has_nan = sum != sum;
  const uint4 masked = params.log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};
  unsigned char* const own = results + own_bytes;
  uint4 head = masked;
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    const uint4 vector = frame.has(i) ? narrow_vector<T>(values + i * width) : masked;
    if (i == 0) head = vector;
    if (frame.at(i) < frame.row_end && (i > 0 || frame.position >= frame.phase) && !has_nan)
      *reinterpret_cast<uint4*>(own + frame.bytes_to(i)) = vector;
  }
  if (framed.has_edges) __syncthreads();
  if (has_nan) {
    const SegmentRow nan_row = segment_rows[threads.row_in_block];
    SoftmaxRow columns;
    columns.out = results + nan_row.frame_bytes + nan_row.phase * bytes;
    columns.begin = nan_row.begin - nan_row.phase;
    columns.end = nan_row.end - nan_row.phase;
    store_nan_columns<T, SoftmaxMask::none>(params, columns, threads.lane, params.columns, threads.lanes);
  } else if (framed.has_edges && frame.position < frame.phase) {
    store_from<T>(own, head, frame.phase);
  }
  store_segment<T>(params, segment, results);
}

}  // namespace flowk::softmax
