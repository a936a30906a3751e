// SPDX-License-Identifier: Apache-2.0
// A row's frame: the aligned vectors that contain the row, wherever it starts and ends. The first and the last one may
// also have columns of the neighbouring rows.
#pragma once

#include "softmax/kernels/softmax_row.cuh"

namespace flowk::softmax {

// Loads elements [first, end) of the vector at `address`; the others are 0. For the ends of a tensor.
template <class T>
__device__ __forceinline__ uint4 load_elements(const unsigned char* address, int first, int end) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  constexpr unsigned bits = 8 * sizeof(T);
  uint4 vector = {0, 0, 0, 0};
  // Each element is shifted in above the previous ones.
#pragma unroll 1
  for (int j = 0; j < vector_width<T>; ++j) {
    const Bits element = j >= first && j < end ? reinterpret_cast<const Bits*>(address)[j] : Bits{0};
    if constexpr (bits == 64) {
      vector = {vector.z, vector.w, static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32)};
    } else if constexpr (bits == 32) {
      vector = {vector.y, vector.z, vector.w, element};
    } else {
      vector.x = __funnelshift_r(vector.x, vector.y, bits);
      vector.y = __funnelshift_r(vector.y, vector.z, bits);
      vector.z = __funnelshift_r(vector.z, vector.w, bits);
      vector.w = vector.w >> bits | uint32_t{element} << (32 - bits);
    }
  }
  return vector;
}

// Word n of a vector, for an n that is known at run time.
__device__ __forceinline__ uint32_t word_at(const uint4& vector, int n) {
  return (n & 2) != 0 ? ((n & 1) != 0 ? vector.w : vector.z) : ((n & 1) != 0 ? vector.y : vector.x);
}

// Stores the elements of a vector before element `end` < vector_width, by at most one store of each size.
template <class T>
__device__ __forceinline__ void store_before(unsigned char* address, const uint4& vector, int end) {
  constexpr int bytes = static_cast<int>(sizeof(T)), per_word = 4 / bytes;
  const int words = end / per_word;
  if ((words & 2) != 0) *reinterpret_cast<uint2*>(address) = {vector.x, vector.y};
  const int last_word = words & 2;
  if ((words & 1) != 0) *reinterpret_cast<uint32_t*>(address + 4 * last_word) = word_at(vector, last_word);
  if (per_word == 2 && (end & 1) != 0)
    *reinterpret_cast<uint16_t*>(address + 4 * words) = static_cast<uint16_t>(word_at(vector, words));
}

// Stores the elements of a vector from element `first` > 0 on, likewise.
template <class T>
__device__ __forceinline__ void store_from(unsigned char* address, const uint4& vector, int first) {
  constexpr int bytes = static_cast<int>(sizeof(T)), per_word = 4 / bytes;
  if (per_word == 2 && (first & 1) != 0)
    *reinterpret_cast<uint16_t*>(address + bytes * first) =
        static_cast<uint16_t>(word_at(vector, first / per_word) >> 16);
  const int word = (first + per_word - 1) / per_word;
  if ((word & 1) != 0) *reinterpret_cast<uint32_t*>(address + 4 * word) = word_at(vector, word);
  if (word <= 2) *reinterpret_cast<uint2*>(address + 8) = {vector.z, vector.w};
}

// The vectors of one thread: lane, lane + lanes, ... of the frame. A thread has vectors_per_thread of them, at most
// kMax; those past the frame are outside the row. Positions are columns from the frame's start.
template <class T, int kMax>
struct RowFrame {
  static constexpr int width = vector_width<T>;
  int position;  // of the thread's first vector
  int step;
  int max_vectors;
  int phase;    // the position of the row's first column
  int row_end;  // past its last column; 0: there is no such row
  int begin;    // the positions of unmasked columns are [begin, end)
  int end;
  int before_begin;  // a vector before begin
  int last_inside;   // a vector before row_end

  __device__ __forceinline__ RowFrame(const SoftmaxRow& row, int lane, int lanes, int vectors_per_thread)
      : position(lane * width),
        step(lanes * width),
        max_vectors(vectors_per_thread),
        phase(static_cast<int>(reinterpret_cast<uintptr_t>(row.x) % vector_bytes / sizeof(T))),
        row_end(row.columns + phase),
        begin(row.begin + phase),
        end(row.end + phase) {
    if (row.columns == 0) row_end = begin = end = 0;
    before_begin = begin - width;
    last_inside = row_end - width;
  }
  // Does some thread of the grid have an i-th vector?
  __device__ __forceinline__ bool any_has(int i) const { return i == 0 || i < max_vectors; }
  __device__ __forceinline__ int at(int i) const { return position + i * step; }
  __device__ __forceinline__ int column(int i) const { return at(i) - phase; }
  // Has vector i unmasked columns of the row? Do all of its columns belong to the row? Does the row end in it?
  __device__ __forceinline__ bool is_read(int i) const { return at(i) < end && at(i) > before_begin; }
  __device__ __forceinline__ bool is_inside(int i) const {
    return (i > 0 || position >= phase) && at(i) <= last_inside;
  }
  __device__ __forceinline__ bool is_tail(int i) const { return at(i) < row_end && at(i) > last_inside; }

  // Replaces the elements of masked columns, and of other rows, in the vectors that contain an end of the interval. The
  // end is at the same element in every thread. If `starts_late`, some interval starts after its row's first column.
  template <int kInputs>
  __device__ __forceinline__ void cut(bool starts_late, uint4 (&raw)[kMax][kInputs],
                                      const uint4 (&masked)[kInputs]) const {
    const VectorCut<T> head(begin & (width - 1)), tail(end & (width - 1));
    const int head_at = begin & -width, tail_at = end & -width;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      if (at(i) == tail_at) {
#pragma unroll
        for (int k = 0; k < kInputs; ++k) tail.replace_from(&raw[i][k], masked[k]);
      }
      if (i == 0 && at(i) == head_at) {
#pragma unroll
        for (int k = 0; k < kInputs; ++k) head.replace_before(&raw[i][k], masked[k]);
      }
    }
    if (!starts_late) return;
#pragma unroll
    for (int i = 1; i < kMax; ++i) {
      if (!any_has(i)) break;
      if (at(i) == head_at) {
#pragma unroll
        for (int k = 0; k < kInputs; ++k) head.replace_before(&raw[i][k], masked[k]);
      }
    }
  }
};

// Stores the results of a row in whole vectors. Each of two rows that share a vector stores its part.
template <class T, int kMax>
struct FrameStores {
  const RowFrame<T, kMax>& frame;
  unsigned char* out;  // the frame's
  uint4 head = {0, 0, 0, 0};
  uint4 tail = {0, 0, 0, 0};
  int tail_at = -1;

  __device__ __forceinline__ unsigned char* address(int at) const { return out + at * static_cast<int>(sizeof(T)); }
  __device__ __forceinline__ void take(int i, const uint4& vector) {
    if (i == 0) head = vector;
    if (frame.is_inside(i)) *reinterpret_cast<uint4*>(address(frame.at(i))) = vector;
    if (!frame.is_tail(i)) return;
    tail = vector;
    tail_at = frame.at(i);
  }
  // Called after all take(): stores the vectors that other rows share.
  __device__ __forceinline__ void finish() const {
    if (frame.position < frame.phase && frame.row_end > 0) store_from<T>(address(0), head, frame.phase);
    if (tail_at >= 0) store_before<T>(address(tail_at), tail, frame.row_end & (frame.width - 1));
  }
};

}  // namespace flowk::softmax
