// SPDX-License-Identifier: Apache-2.0
// A span of short rows in shared memory: copied in and out by whole 16-byte chunks, wherever rows start and end; and
// the rows of a dense mask that belong to it.
#pragma once

#include "core/shared.cuh"
#include "masked_softmax/softmax_row.cuh"

namespace flowk {

// Where the rows of one block lie: in memory one after the other, in shared memory at the same place modulo 16.
struct RowSpan {
  int64_t first_row;
  int64_t first_byte;  // of the first row in its tensor
  int num_rows;
  int shift;       // from an aligned address to the first row
  int span_bytes;  // of the rows
  int num_chunks;  // that the rows touch
};

template <class T>
__device__ __forceinline__ RowSpan row_span(const SoftmaxParams& params) {
  RowSpan span;
  const int row_bytes = params.columns * static_cast<int>(sizeof(T));
  span.first_row = static_cast<int64_t>(blockIdx.x) * params.rows_per_block;
  span.first_byte = static_cast<int64_t>(blockIdx.x) * (params.rows_per_block * row_bytes);
  const int64_t rows_left = params.num_rows - span.first_row;
  span.num_rows = rows_left < params.rows_per_block ? static_cast<int>(rows_left) : params.rows_per_block;
  span.shift = static_cast<int>(reinterpret_cast<uintptr_t>(params.x + span.first_byte)) & (chunk_bytes - 1);
  span.span_bytes = span.num_rows * row_bytes;
  span.num_chunks = (span.shift + span.span_bytes + chunk_bytes - 1) / chunk_bytes;
  return span;
}

// The rows' elements of one chunk of a span.
template <class T>
__device__ __forceinline__ void copy_part(unsigned char* dst, const unsigned char* src, int begin,
                                          const RowSpan& span) {
#pragma unroll 1
  for (int i = begin; i < begin + chunk_bytes; i += static_cast<int>(sizeof(T)))
    if (i >= span.shift && i < span.shift + span.span_bytes)
      *reinterpret_cast<T*>(dst + i) = *reinterpret_cast<const T*>(src + i);
}

// Starts copying a block's rows of `tensor`, whose rows lie one after the other. Chunks that the rows share with others
// may reach past the tensor: they come by elements there, and by the first and the last thread.
template <class T>
__device__ __forceinline__ void load_span(const SoftmaxParams& params, const RowSpan& span, const unsigned char* tensor,
                                          unsigned char* memory) {
  const unsigned char* const first = tensor + span.first_byte - span.shift;
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const bool has_head = span.first_row == 0 && span.shift > 0;
  const bool has_tail = span.first_row + span.num_rows == params.num_rows &&
                        (span.shift + span.span_bytes) % chunk_bytes != 0 && !(has_head && span.num_chunks == 1);
  const int last = span.num_chunks - (has_tail ? 1 : 0);
#pragma unroll 4
  for (int chunk = thread + (has_head ? 1 : 0); chunk < last; chunk += num_threads)
    async_copy_chunk(memory + chunk * chunk_bytes, first + chunk * chunk_bytes);
  if (!has_head && !has_tail) return;
  const int edge = has_head && thread == 0 ? 0 : has_tail && thread == num_threads - 1 ? span.num_chunks - 1 : -1;
  if (edge >= 0) copy_part<T>(memory, first, edge * chunk_bytes, span);
}

template <class T>
__device__ __forceinline__ void store_span(const SoftmaxParams& params, const RowSpan& span,
                                           const unsigned char* memory) {
  unsigned char* const first = params.out + span.first_byte - span.shift;
  const int end = span.shift + span.span_bytes;
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int head = span.shift > 0 ? 1 : 0, last = end / chunk_bytes;
#pragma unroll 4
  for (int chunk = thread + head; chunk < last; chunk += num_threads)
    *reinterpret_cast<uint4*>(first + chunk * chunk_bytes) =
        *reinterpret_cast<const uint4*>(memory + chunk * chunk_bytes);
  if (head == 1 && thread == 0) copy_part<T>(first, memory, 0, span);
  if (last >= head && end % chunk_bytes != 0 && thread == num_threads - 1)
    copy_part<T>(first, memory, last * chunk_bytes, span);
}

// Starts copying the span's rows of the dense mask to shared memory: one run of neighbouring rows after the other, as
// many as the mask has a row each for, or shares one among. Returns where the mask of row `row_in_block` starts: there
// are 4 bytes before and after that may be read.
__device__ __forceinline__ int load_mask_runs(const SoftmaxParams& params, const RowSpan& span, unsigned char* memory,
                                              int row_in_block) {
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int row_stride = static_cast<int>(params.dims[0].strides[softmax_dense]);
  int place = chunk_bytes, found = chunk_bytes;
#pragma unroll 1
  for (int done = 0; done < span.num_rows;) {
    uint32_t rest = static_cast<uint32_t>(span.first_row) + static_cast<uint32_t>(done), index = 0;
    const unsigned char* first = params.dense;
#pragma unroll 1
    for (int d = 0; d < params.rank; ++d) {
      const uint32_t i = d + 1 < params.rank ? take_index(&rest, params.dims[d].divider) : rest;
      first += i * params.dims[d].strides[softmax_dense];
      if (d == 0) index = i;
    }
    const int rows_left = span.num_rows - done;
    const int64_t run_left = params.dims[0].extent - index;
    const int num_rows = run_left < rows_left ? static_cast<int>(run_left) : rows_left;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(first)) & (chunk_bytes - 1);
    const int num_chunks =
        (shift + (num_rows - 1) * row_stride + params.columns + chunk_bytes - 1) / static_cast<int>(chunk_bytes);
    first -= shift;
#pragma unroll 1
    for (int chunk = thread; chunk < num_chunks; chunk += num_threads) {
      const unsigned char* const source = first + chunk * chunk_bytes;
      unsigned char* const target = memory + place + chunk * chunk_bytes;
      if (source >= params.dense_first && source + chunk_bytes <= params.dense_end) {
        async_copy_chunk(target, source);
      } else {
#pragma unroll 1
        for (int i = 0; i < chunk_bytes; ++i)
          if (source + i >= params.dense_first && source + i < params.dense_end) target[i] = source[i];
      }
    }
    if (row_in_block >= done && row_in_block < done + num_rows)
      found = place + shift + (row_in_block - done) * row_stride;
    place += num_chunks * chunk_bytes;
    done += num_rows;
  }
  return found;
}

}  // namespace flowk
