// SPDX-License-Identifier: Apache-2.0
// Frames of a block's rows: the aligned vectors that contain a row. One thread per row finds its frame and its interval
// for all threads of the row.
#pragma once

#include "softmax/kernels/row_frame.cuh"
#include "softmax/kernels/staged_segment.cuh"

namespace flowk::softmax {

// What the threads of a row share. Columns and vectors are numbered from the block's first vector.
struct alignas(16) SegmentRow {
  int begin;  // the unmasked columns are [begin, end)
  int end;
  int first_vector;  // the vectors with unmasked columns are [first_vector, end_vector)
  int end_vector;
  int start;         // the row's first column
  int frame_end;     // past the vectors with columns of the row; 0: there is no such row
  bool ends_tensor;  // the frame may reach past the tensor's memory
};
static_assert(sizeof(SegmentRow) == segment_row_bytes);

// Finds a row of the block. Numbers of rows, and the offsets of lengths, have 32 bits.
template <class T>
__device__ __forceinline__ SegmentRow find_segment_row(const FramedRows& framed, const SoftmaxParams& params,
                                                       const RowSegment& segment, int row_in_block) {
  constexpr int width = vector_width<T>;
  uint32_t length_offset = 0, number = 0;
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
  const bool exists = row_in_block < segment.num_rows, is_empty = !exists || interval.begin >= interval.end;
  SegmentRow row;
  row.start = segment.shift / static_cast<int>(sizeof(T)) + row_in_block * params.columns;
  row.begin = row.start + (is_empty ? 0 : interval.begin);
  row.end = row.start + (is_empty ? 0 : interval.end);
  row.first_vector = row.begin / width;
  row.end_vector = is_empty ? row.first_vector : (row.end + width - 1) / width;
  row.frame_end = exists ? (row.start + params.columns + width - 1) / width : 0;
  row.ends_tensor =
      (blockIdx.x == 0 && row_in_block == 0) || (segment.ends_tensor && row_in_block == segment.num_rows - 1);
  return row;
}

// The vectors with unmasked columns that a thread takes. It holds one of them: half of a row's threads hold one of the
// first vectors, the others one of the last ones. So the vectors that have masked columns, or columns of other rows,
// are held. The inner vectors between them are dealt to all threads in turn.
template <class T>
struct SegmentFrame {
  static constexpr int width = vector_width<T>;
  int held;
  bool has_held;
  int first_inner;
  int end_inner;

  __device__ __forceinline__ SegmentFrame(const SegmentRow& row, int lane, int lanes) {
    const int half = lanes / 2;
    held = row.first_vector + lane;
    has_held = held < row.end_vector;
    first_inner = held + half;
    end_inner = row.end_vector - half;
    if (lane >= half && row.end_vector - row.first_vector > lanes) held = row.end_vector - lanes + lane;
  }
  // Loads the held vector from the address `from`. At the ends of the tensor it loads the row's elements one by one.
  __device__ __forceinline__ uint4 load(const SegmentRow& row, int columns, const unsigned char* from) const {
    const int first = row.start - held * width, end = first + columns;
    if (row.ends_tensor && (first > 0 || end < width)) return load_elements<T>(from, first, end);
    return load_vector(from);
  }
  // Replaces masked columns, and columns of other rows, of the held vector by -infinity.
  __device__ __forceinline__ void cut(const SegmentRow& row, uint4* vector) const {
    const int begin = row.begin - held * width, end = row.end - held * width;
    if (begin > 0) VectorCut<T>(begin).replace_before(vector, negative_infinity_vector<T>());
    if (end < width) VectorCut<T>(end).replace_from(vector, negative_infinity_vector<T>());
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
