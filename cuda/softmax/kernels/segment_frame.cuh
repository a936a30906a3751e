// SPDX-License-Identifier: Apache-2.0
// The frames of a block's rows, which one thread per row finds for all threads of the row.
#pragma once

#include "softmax/kernels/row_frame.cuh"
#include "softmax/kernels/staged_segment.cuh"

namespace flowk::softmax {

// What the threads of a row share. Positions are columns from the frame's start.
struct alignas(16) SegmentRow {
  int frame_bytes;  // to the frame, from the block's first
  int phase;        // the position of the row's first column
  int begin;        // the positions of unmasked columns are [begin, end)
  int end;
  // The vectors with unmasked columns that lie in the tensor's memory are at [first_read, first_read + read_columns).
  int first_read;
  int read_columns;
  bool ends_tensor;  // the row may have other vectors
};
static_assert(sizeof(SegmentRow) == segment_row_bytes);

// Finds a row of the block; one past the tensor is masked. Numbers of rows, and the offsets of lengths, have 32 bits.
template <class T>
__device__ __forceinline__ SegmentRow find_segment_row(const FramedRows& framed, const SoftmaxParams& params,
                                                       const RowSegment& segment, int row_in_block) {
  constexpr int width = vector_width<T>;
  uint32_t length_offset = 0, number = 0;
  if (params.interval.exists)
    split_index<2>(existing_row(params, segment, row_in_block), params.rows.dims, params.rows.rank,
                   [&](int d, uint32_t index) {
                     const SoftmaxRowDim& dim = params.rows.dims[d];
                     length_offset += index * static_cast<uint32_t>(dim.strides[softmax_lengths]);
                     number += index * static_cast<uint32_t>(dim.strides[softmax_row]);
                   });
  SoftmaxRow interval;
  interval.end = params.columns;
  if (params.interval.lengths_bytes != 0) find_length(params, static_cast<int32_t>(length_offset), &interval);
  if (params.interval.has_diagonal) {
    interval.begin = max(interval.begin, static_cast<int>(number) + framed.diagonal_begin);
    interval.end = min(interval.end, static_cast<int>(number) + framed.diagonal_end);
  }
  const int row_bytes = params.columns * static_cast<int>(sizeof(T));
  const unsigned start = static_cast<unsigned>(segment.shift + row_in_block * row_bytes);
  SegmentRow row;
  row.frame_bytes = static_cast<int>(start) & -vector_bytes;
  row.phase = static_cast<int>(start % vector_bytes / sizeof(T));
  row.begin = row.end = 0;
  if (row_in_block < segment.num_rows && interval.begin < interval.end) {
    row.begin = interval.begin + row.phase;
    row.end = interval.end + row.phase;
  }
  const bool is_first = blockIdx.x == 0 && row_in_block == 0;
  const bool is_last = segment.ends_tensor && row_in_block == segment.num_rows - 1;
  row.ends_tensor = is_first || is_last;
  row.first_read = max(row.begin - width + 1, is_first ? row.phase : 0);
  const int end_read = is_last ? min(row.end, row.phase + params.columns - width + 1) : row.end;
  row.read_columns = max(end_read - row.first_read, 0);
  return row;
}

// The vectors of one thread: lane, lane + lanes, ... of the frame.
template <class T>
struct SegmentFrame {
  static constexpr int width = vector_width<T>;
  int position;  // of the thread's first vector
  int step;
  int phase;
  int row_end;  // past the row's last column
  int begin;
  int end;

  __device__ __forceinline__ SegmentFrame(const SegmentRow& row, int columns, int lane, int lanes)
      : position(lane * width),
        step(lanes * width),
        phase(row.phase),
        row_end(row.phase + columns),
        begin(row.begin),
        end(row.end) {}
  __device__ __forceinline__ int at(int i) const { return position + i * step; }
  __device__ __forceinline__ int bytes_to(int i) const { return i * step * static_cast<int>(sizeof(T)); }
  // Is vector i before the end of the unmasked columns?
  __device__ __forceinline__ bool has(int i) const { return at(i) < end; }
  // Has vector i unmasked columns?
  __device__ __forceinline__ bool is_read(int i) const { return has(i) && at(i) > begin - width; }

  // Loads the vectors with unmasked columns of a row whose first vector of this thread is at `own`. Those that reach
  // past the tensor's memory are loaded by elements.
  template <int kMax>
  __device__ __forceinline__ void load(const SegmentRow& row, const unsigned char* own, uint4 (&raw)[kMax]) const {
    const auto is_inside = [&](int i) {
      return static_cast<unsigned>(at(i) - row.first_read) < static_cast<unsigned>(row.read_columns);
    };
#pragma unroll
    for (int i = 0; i < kMax; ++i)
      if (is_inside(i)) raw[i] = load_vector(own + bytes_to(i));
    if (!row.ends_tensor) return;
#pragma unroll
    for (int i = 0; i < kMax; ++i)
      if (is_read(i) && !is_inside(i)) raw[i] = load_elements<T>(own + bytes_to(i), phase - at(i), row_end - at(i));
  }
};

// Replaces masked columns, and columns of other rows, by -infinity. An end of the interval is at the same element in
// every thread.
template <class T>
struct SegmentCut {
  VectorCut<T> head;
  VectorCut<T> tail;
  __device__ __forceinline__ explicit SegmentCut(const SegmentFrame<T>& frame)
      : head(frame.begin & (frame.width - 1)), tail(frame.end & (frame.width - 1)) {}
  // Cuts vector i, if frame.has(i). Only cut_late() cuts the vectors before the one in which the interval begins.
  __device__ __forceinline__ void cut(const SegmentFrame<T>& frame, int i, uint4* vector) const {
    if (frame.at(i) > frame.end - frame.width) tail.replace_from(vector, negative_infinity_vector<T>());
    if (i == 0 && frame.at(i) < frame.begin) head.replace_before(vector, negative_infinity_vector<T>());
  }
  // For intervals that start after their rows' first columns.
  template <int kMax>
  __device__ __forceinline__ void cut_late(const SegmentFrame<T>& frame, uint4 (&vectors)[kMax]) const {
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (frame.at(i) <= frame.begin - frame.width)
        vectors[i] = negative_infinity_vector<T>();
      else if (frame.at(i) < frame.begin)
        head.replace_before(&vectors[i], negative_infinity_vector<T>());
    }
  }
};

// Keeps the compiler from computing an address in global memory again for each of its uses.
__device__ __forceinline__ const unsigned char* held(const unsigned char* address) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

}  // namespace flowk::softmax
