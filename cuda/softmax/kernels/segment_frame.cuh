// SPDX-License-Identifier: Apache-2.0
// Frames of a block's rows: the aligned vectors that contain a row. One thread per row finds its frame and its interval
// for all threads of the row.
#pragma once

#include "softmax/kernels/row_frame.cuh"
#include "softmax/kernels/staged_segment.cuh"

namespace flowk::softmax {

// What the threads of a row share. Columns are numbered from the start of the sector with the block's first column.
struct alignas(16) SegmentRow {
  int begin;  // the unmasked columns are [begin, end); 0 and 0 if there is none
  int end;
  int start;  // the row's first column
};
static_assert(sizeof(SegmentRow) == segment_row_bytes);

// Finds a row of the block. Numbers of rows, and the offsets of lengths, have 32 bits.
template <class T>
__device__ __forceinline__ SegmentRow find_segment_row(const FramedRows& framed, const SoftmaxParams& params,
                                                       const RowSegment& segment, int row_in_block) {
  uint32_t length_offset = 0, number = 0;
  split_index<2>(existing_row(params, segment, row_in_block), params.rows.dims, params.rows.rank,
                 [&](int d, uint32_t index) {
                   const SoftmaxRowDim& dim = params.rows.dims[d];
                   length_offset += index * static_cast<uint32_t>(dim.strides[softmax_lengths]);
                   number += index * static_cast<uint32_t>(dim.strides[softmax_row]);
                 });
  SoftmaxRow interval;
  interval.end = params.columns;
  if (params.interval.lengths_bytes != 0) {
    wait_on_dependent_grids();
    find_length(params, static_cast<int32_t>(length_offset), &interval);
  }
  if (params.interval.has_diagonal) {
    interval.begin = max(interval.begin, static_cast<int>(number) + framed.diagonal_begin);
    interval.end = min(interval.end, static_cast<int>(number) + framed.diagonal_end);
  }
  const bool is_empty = row_in_block >= segment.num_rows || interval.begin >= interval.end;
  const int start = segment.shift / static_cast<int>(sizeof(T)) + row_in_block * params.columns;
  return {is_empty ? 0 : start + interval.begin, is_empty ? 0 : start + interval.end, start};
}

// A thread of a row, and the vectors with unmasked columns that it takes. It holds one of them: half of a row's threads
// hold one of the first vectors, the others one of the last ones. So the vectors that have masked columns, or columns
// of other rows, are held. The inner vectors between them are dealt to all threads in turn: registers hold the first
// kNear of a thread, the others go through shared memory.
template <class T, int kNear>
struct FramedThread {
  static constexpr int width = vector_width<T>;
  unsigned char* memory;  // the sector with the block's first column
  RowSegment segment;
  int lane;
  int lanes;
  const SegmentRow& row;  // in shared memory
  int first_vector;       // the vectors with unmasked columns are [first_vector, end_vector)
  int end_vector;
  int held_vector;
  bool has_held;

  // Called by all threads of a block. Fills the rows in shared memory with the results of masked columns, and waits for
  // the stream's previous grid.
  __device__ __forceinline__ FramedThread(const FramedRows& framed, const SoftmaxParams& params, const uint4& masked)
      : memory(&shared<unsigned char>()),
        segment(row_segment<T>(params, sector_bytes)),
        lane(static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1)),
        lanes(params.lanes_per_row),
        row(reinterpret_cast<const SegmentRow*>(memory + framed.rows_offset_bytes)[threadIdx.x >> params.rows_shift]) {
    auto* const rows = reinterpret_cast<SegmentRow*>(memory + framed.rows_offset_bytes);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int at = thread * vector_bytes; at < segment.end; at += static_cast<int>(blockDim.x) * vector_bytes)
      *reinterpret_cast<uint4*>(memory + at) = masked;
    if (thread < params.rows_per_block) rows[thread] = find_segment_row<T>(framed, params, segment, thread);
    __syncthreads();
    wait_on_dependent_grids();
    first_vector = static_cast<int>(static_cast<unsigned>(row.begin) / width);
    end_vector = static_cast<int>(static_cast<unsigned>(row.end + width - 1) / width);
    held_vector = first_vector + lane;
    has_held = held_vector < end_vector;
    if (lane >= lanes / 2 && end_vector - first_vector > lanes) held_vector = end_vector - lanes + lane;
  }
  // The address in a tensor that belongs to `memory`.
  __device__ __forceinline__ const unsigned char* source(const unsigned char* tensor) const {
    return held(tensor + (segment.first_byte - segment.shift));
  }
  // Loads the held vectors of kInputs tensors. In the tensor's first and last block, the row's elements are loaded one
  // by one if the vector has columns of other rows.
  template <int kInputs>
  __device__ __forceinline__ void load_held(const unsigned char* const (&sources)[kInputs], int columns,
                                            uint4 (&vectors)[kInputs]) const {
    if (!has_held) return;
    const int first = row.start - held_vector * width, end = first + columns;
    const bool is_apart = (blockIdx.x == 0 || segment.ends_tensor) && (first > 0 || end < width);
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      if (!is_apart) vectors[k] = load_vector(sources[k] + held_vector * vector_bytes);
    if (!is_apart) return;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      vectors[k] = load_elements<T>(sources[k] + held_vector * vector_bytes, first, end);
  }
  // Replaces masked columns, and columns of other rows, in the held vectors of kInputs tensors.
  template <int kInputs>
  __device__ __forceinline__ void cut(uint4 (&vectors)[kInputs], const uint4 (&masked)[kInputs]) const {
    const int begin = row.begin - held_vector * width, end = row.end - held_vector * width;
    const bool has_end = end < width;
    if (!has_end && begin <= 0) return;
    VectorCut<T> one(has_end ? end : begin);
#pragma unroll
    for (uint32_t& word : one.past) word ^= has_end ? 0u : ~0u;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) one.replace_from(&vectors[k], masked[k]);
    if (!has_end || begin <= 0) return;
    const VectorCut<T> head(begin);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) head.replace_before(&vectors[k], masked[k]);
  }
  // Calls take(i, offset from `memory`) for each of the thread's inner vectors that registers hold, the first ones.
  template <class Take>
  __device__ __forceinline__ void for_each_near(Take take) const {
#pragma unroll
    for (int i = 0; i < kNear; ++i)
      if (inner(i) < end_inner()) take(i, inner(i));
  }
  // Calls take(offset from `memory`) for each of the others.
  template <class Take>
  __device__ __forceinline__ void for_each_far(Take take) const {
    const int end = end_inner();
#pragma unroll 1
    for (int at = inner(kNear); at < end; at += lanes * vector_bytes) take(at);
  }
  // Stores the block's rows, from `memory` and from the held results. A vector that two rows share is stored whole by
  // the first row, then in part by the second row.
  __device__ __forceinline__ void leave(const SoftmaxParams& params, const uint4& results) const {
    auto* const to = reinterpret_cast<uint4*>(memory + held_vector * vector_bytes);
    const int before = row.start - held_vector * width;  // columns of the row before
    if (has_held && before <= 0) *to = results;
    __syncthreads();
    if (has_held && before > 0) {
      uint4 both = *to;
      VectorCut<T>(before).replace_from(&both, results);
      *to = both;
    }
    store_segment<T>(params, segment, memory);
  }

 private:
  // The inner vectors are at inner(0), inner(1), ... while less than end_inner().
  __device__ __forceinline__ int inner(int i) const {
    return (first_vector + lanes / 2 + lane + i * lanes) * vector_bytes;
  }
  __device__ __forceinline__ int end_inner() const { return (end_vector - lanes / 2) * vector_bytes; }
};

}  // namespace flowk::softmax
