// SPDX-License-Identifier: Apache-2.0
// A segment of short rows in shared memory, copied in and out by 16-byte vectors wherever its rows start and end, and
// the rows of a dense mask or a bias that belong to it.
#pragma once

#include "core/bulk_copy.cuh"
#include "flowk/detail/shared.cuh"
#include "softmax/kernels/softmax_row.cuh"

namespace flowk::softmax {

// The rows of one block: contiguous in memory, and in shared memory at the same offset modulo 16, or modulo 32.
struct RowSegment {
  int64_t first_byte;  // of the first row in its tensor
  int num_rows;
  int shift;  // bytes from an aligned address to the first row
  int end;    // bytes from that address to the end of the last row
  bool ends_tensor;
  // The vectors that are copied whole are [first_vector(), end_vector()). Vectors shared with neighbouring segments are
  // copied whole, except past the ends of the tensor.
  __device__ __forceinline__ int first_vector() const { return blockIdx.x == 0 && shift > 0 ? 1 : 0; }
  __device__ __forceinline__ int end_vector() const {
    const int vector = (ends_tensor ? end : end + vector_bytes - 1) / vector_bytes;
    return vector < first_vector() ? first_vector() : vector;
  }
};

template <class T>
__device__ __forceinline__ RowSegment row_segment(const SoftmaxParams& params, int alignment = vector_bytes) {
  RowSegment segment;
  const uint32_t row_bytes = static_cast<uint32_t>(params.columns) * static_cast<uint32_t>(sizeof(T));
  const uint32_t segment_bytes = row_bytes * static_cast<uint32_t>(params.rows_per_block);
  segment.first_byte = static_cast<int64_t>(static_cast<uint64_t>(blockIdx.x) * segment_bytes);
  segment.ends_tensor = blockIdx.x == gridDim.x - 1;
  segment.num_rows = params.rows_per_block;
  if (segment.ends_tensor)
    segment.num_rows = static_cast<int>(static_cast<uint32_t>(params.rows.num_rows) -
                                        blockIdx.x * static_cast<uint32_t>(params.rows_per_block));
  segment.shift = static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(params.x)) +
                                   static_cast<uint32_t>(segment.first_byte)) &
                  (alignment - 1);
  segment.end = segment.shift + segment.num_rows * static_cast<int>(row_bytes);
  return segment;
}

// The grid's number of the block's row; of its first row if there is no such row.
__device__ __forceinline__ uint32_t existing_row(const SoftmaxParams& params, const RowSegment& segment,
                                                 int row_in_block) {
  const int row = row_in_block < segment.num_rows ? row_in_block : 0;
  return blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + static_cast<uint32_t>(row);
}

__device__ __forceinline__ void find_staged_interval(const SoftmaxParams& params, const RowSegment& segment,
                                                     int row_in_block, SoftmaxRow* row) {
  const IntervalPosition position = interval_position(params, existing_row(params, segment, row_in_block));
  find_interval(params, position.length_offset, position.number, row);
}

// A block's copies into its shared memory: start(), then start_second() by a second warp if there is one, then wait(),
// which is also a barrier.
struct SegmentCopies {
  BulkCopies first;
  BulkCopies second;
  bool is_second_shared;  // copy_shared_masks() does the second copies
  __device__ __forceinline__ SegmentCopies(const StagedRows& staged, unsigned char* memory)
      : first{{reinterpret_cast<uint64_t*>(memory + staged.barrier_offset_bytes)}},
        second{{first.barrier.memory + staged_barrier_bytes / 2 / sizeof(uint64_t)}},
        is_second_shared(has_sm_90() && staged.mask.is_shared()) {}
  template <class Load>
  __device__ __forceinline__ void start(Load load) const {
    start_by(0, first, load);
  }
  template <class Load>
  __device__ __forceinline__ void start_second(Load load) const {
    start_by(second_thread(), second, load);
  }
  // The first thread of the warp that starts the second copies.
  static __device__ __forceinline__ int second_thread() { return blockDim.x > 32 ? 32 : 0; }
  // If `copies_rows`, load_unmasked() has started the first copies, and start() was not called.
  __device__ __forceinline__ void wait(bool copies_rows, bool has_second) const {
    wait_on_dependent_grids();
    const bool by_warp = has_second && is_second_shared;
    if (copies_rows || by_warp || !has_sm_90()) async_copy_wait();
    __syncthreads();
    if (!has_sm_90()) return;
    if (!copies_rows) first.wait();
    if (has_second && !by_warp) second.wait();
  }

 private:
  template <class Load>
  static __device__ __forceinline__ void start_by(int thread, const BulkCopies& copies, Load load) {
    const CopyGroup group = copy_group(thread);
    if (group.lane < 0 || group.lane >= group.lanes) return;
    copies.begin();
    load(group, copies);
    copies.end();
  }
};

// Copies the segment's elements of one vector.
template <class T>
__device__ __forceinline__ void copy_part(const CopyGroup& group, unsigned char* dst, const unsigned char* src,
                                          int vector, const RowSegment& segment) {
  constexpr int bytes = static_cast<int>(sizeof(T));
#pragma unroll 1
  for (int i = vector * vector_bytes + group.lane * bytes; i < (vector + 1) * vector_bytes; i += group.lanes * bytes)
    if (i >= segment.shift && i < segment.end) *reinterpret_cast<T*>(dst + i) = *reinterpret_cast<const T*>(src + i);
}

// Copies the elements at the tensor's ends, outside whole vectors.
template <class T>
__device__ __forceinline__ void copy_ends(const RowSegment& segment, const CopyGroup& group, const unsigned char* first,
                                          unsigned char* memory) {
  if (segment.first_vector() == 1) copy_part<T>(group, memory, first, 0, segment);
  const int end_vector = segment.end_vector();
  if (end_vector * vector_bytes < segment.end) copy_part<T>(group, memory, first, end_vector, segment);
}

// Waits for the stream's previous grid, and starts to copy the block's rows of a contiguous `tensor`. The elements at
// the tensor's ends are copied at once.
template <class T>
__device__ __forceinline__ void load_segment(const RowSegment& segment, const CopyGroup& group,
                                             const BulkCopies& copies, const unsigned char* tensor,
                                             unsigned char* memory) {
  const unsigned char* const first = tensor + segment.first_byte - segment.shift;
  const int begin = segment.first_vector() * vector_bytes;
  wait_on_dependent_grids(first + begin);
  copies.copy(group, memory + begin, first + begin, segment.end_vector() * vector_bytes - begin);
  copy_ends<T>(segment, group, first, memory);
}

// Waits as load_segment(), and finds the interval of one of the block's rows.
__device__ __forceinline__ SoftmaxRow staged_row(const SoftmaxParams& params, const RowSegment& segment,
                                                 int row_in_block) {
  SoftmaxRow row;
  row.columns = row.end = params.columns;
  if (!params.interval.exists) return row;
  wait_on_dependent_grids();
  find_staged_interval(params, segment, row_in_block, &row);
  return row;
}

// Starts to copy the unmasked columns of a row of a contiguous `tensor`, in whole vectors, by the row's threads. A
// vector that two rows share is copied by the second one, whatever its own interval is.
template <class T>
__device__ __forceinline__ void load_unmasked(const SoftmaxParams& params, const RowSegment& segment,
                                              const SoftmaxRow& row, int row_in_block, int lane,
                                              const unsigned char* tensor, unsigned char* memory) {
  constexpr int bytes = static_cast<int>(sizeof(T));
  const unsigned char* const first = tensor + segment.first_byte - segment.shift;
  if (row_in_block < segment.num_rows) {
    const int start = segment.shift + row_in_block * params.columns * bytes;
    const int row_begin = start / vector_bytes, row_end = (start + params.columns * bytes) / vector_bytes;
    const int begin = (start + row.begin * bytes) / vector_bytes;
    const int end = (start + row.end * bytes + vector_bytes - 1) / vector_bytes;
    const int own_end = row_in_block + 1 < segment.num_rows ? row_end : segment.end_vector();
    const int past = end < own_end ? end : own_end;
    const auto copy = [&](int i) {
      if (i >= segment.first_vector()) async_copy_vector(memory + i * vector_bytes, first + i * vector_bytes);
    };
#pragma unroll 1
    for (int i = begin + lane; i < past; i += params.lanes_per_row) copy(i);
    if (lane == 0 && (begin > row_begin || past <= row_begin)) copy(row_begin);
  }
  copy_ends<T>(segment, {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)}, first, memory);
}

// Stores the block's rows after a barrier. Bulk copies are faster than stores by threads.
template <class T>
__device__ __forceinline__ void store_segment(const SoftmaxParams& params, const RowSegment& segment,
                                              const unsigned char* memory) {
  BulkCopies::publish();
  __syncthreads();
  if (has_sm_90() && threadIdx.x >= 32) return;
  unsigned char* const first = params.out + segment.first_byte - segment.shift;
  const int shift = segment.shift, head = (shift + vector_bytes - 1) & -vector_bytes;
  const int end = segment.end & -vector_bytes;
  if (threadIdx.x < 32) {
    const CopyGroup group = {static_cast<int>(threadIdx.x), 32};
    if (head > shift) copy_part<T>(group, first, memory, shift / vector_bytes, segment);
    if (end >= head && segment.end > end) copy_part<T>(group, first, memory, end / vector_bytes, segment);
  }
  BulkCopies::store(first + head, memory + head, end - head);
}

// As async_copy_vector(), through L1: for bytes that other blocks of the multiprocessor copy too.
__device__ __forceinline__ void async_copy_cached_vector(void* shared_dst, const void* src) {
#ifdef FLOWK_SIMT
  simt::async_copy(shared_dst, src, vector_bytes);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(address_in_shared(shared_dst)), "l"(src) : "memory");
#endif
}

// Waits for the stream's previous grid, and starts to copy `num_bytes` of the mask from `first` on, both multiples of
// 16. Vectors that reach past the mask are copied at once, by bytes.
__device__ __forceinline__ void copy_mask_bytes(const StagedMask& mask, const BulkCopies& copies,
                                                const CopyGroup& group, const unsigned char* first, int num_bytes,
                                                unsigned char* memory) {
  const int begin = first < mask.first ? vector_bytes : 0;
  const int end = num_bytes - (first + num_bytes > mask.end ? vector_bytes : 0);
  wait_on_dependent_grids(first);
  copies.copy(group, memory + begin, first + begin, end - begin);
  const auto copy_vector = [&](int vector) {
#pragma unroll 1
    for (int i = vector + group.lane; i < vector + vector_bytes; i += group.lanes)
      if (first + i >= mask.first && first + i < mask.end) memory[i] = first[i];
  };
  if (begin > 0) copy_vector(0);
  if (end < num_bytes) copy_vector(end);
}

// Runs of neighbouring rows whose masks are at a constant stride: the mask of row r >= first_row is at base + r *
// row_stride. An entry past the segment's rows ends the table.
struct MaskRun {
  int first_row;
  int base;
  const unsigned char* source;  // of the first vector
};
static_assert(sizeof(MaskRun) == mask_run_bytes);

// Waits as load_segment(), and starts to copy the segment's rows of the mask to shared memory, after the table of their
// runs. The 16 bytes before and after each row may be read. `by_warp`: copy_shared_masks() does the copies.
__device__ __forceinline__ void load_mask_runs(const SoftmaxParams& params, const StagedMask& mask,
                                               const RowSegment& segment, const CopyGroup& group,
                                               const BulkCopies& copies, bool by_warp, unsigned char* memory) {
  MaskRun* const runs = reinterpret_cast<MaskRun*>(memory);
  int position = mask_table_bytes, run = 0;
#pragma unroll 1
  for (int done = 0; done < segment.num_rows; ++run) {
    const uint32_t linear = blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + static_cast<uint32_t>(done);
    const unsigned char* first = mask.base;
    uint32_t index_in_run = 0;
    split_index<3>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
      if (d == 0) index_in_run = index;
      first += index * params.rows.dims[d].strides[mask.operand];
    });
    const int rows_left = segment.num_rows - done;
    const int64_t run_left = params.rows.dims[0].extent - index_in_run;
    const int num_rows = run_left < rows_left ? static_cast<int>(run_left) : rows_left;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(first)) & (vector_bytes - 1);
    const int end = shift + (num_rows - 1) * mask.row_stride + mask.row_bytes;
    const int bytes = (end + vector_bytes - 1) & ~(vector_bytes - 1);
    if (!by_warp) copy_mask_bytes(mask, copies, group, first - shift, bytes, memory + position);
    if (group.lane == 0) runs[run] = {done, position + shift - done * mask.row_stride, first - shift};
    position += bytes;
    done += num_rows;
  }
  if (group.lane == 0) runs[run] = {params.rows_per_block, 0, nullptr};
}

// A warp waits as load_segment(), and starts to copy the masks in the table of runs, if neighbouring rows share them.
// Through L1: by bulk copies, all blocks would read the same lines of L2.
__device__ __forceinline__ void copy_shared_masks(const SoftmaxParams& params, const StagedMask& mask, int lane,
                                                  unsigned char* memory) {
  __syncwarp();
  wait_on_dependent_grids();
#pragma unroll 1
  for (const MaskRun* run = reinterpret_cast<const MaskRun*>(memory); run->first_row < params.rows_per_block; ++run) {
    const int shift = run->base & (vector_bytes - 1);
    unsigned char* const to = memory + (run->base - shift);
#pragma unroll 1
    for (int i = lane * vector_bytes; i < shift + mask.row_bytes; i += 32 * vector_bytes) {
      const unsigned char* const from = run->source + i;
      if (from >= mask.first && from + vector_bytes <= mask.end) {
        async_copy_cached_vector(to + i, from);
      } else {
#pragma unroll 1
        for (int j = 0; j < vector_bytes; ++j)
          if (from + j >= mask.first && from + j < mask.end) to[i + j] = from[j];
      }
    }
  }
}

// The mask of a row of the segment, after the copies.
__device__ __forceinline__ const unsigned char* mask_of_row(const StagedMask& mask, const unsigned char* memory,
                                                            int row) {
  const MaskRun* run = reinterpret_cast<const MaskRun*>(memory);
#pragma unroll 1
  while (run[1].first_row <= row) ++run;
  return memory + run->base + row * mask.row_stride;
}

}  // namespace flowk::softmax
