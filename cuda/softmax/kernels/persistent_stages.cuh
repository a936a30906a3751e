// SPDX-License-Identifier: Apache-2.0
// The stages of persistent_rows: a thread's part of a row, the ring of batches in shared memory, and the exchange of
// maxima and sums between blocks.
#pragma once

#include <utility>

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

constexpr int persistent_warps = persistent_threads / 32;
constexpr int thread_step_bytes = persistent_threads * vector_bytes;  // between a thread's vectors

// A thread's part of a row: vectors `begin`, 0 or 1, to `end`, and at most one outer column.
template <class Terms, int kBatch>
struct PersistentRow {
  using T = typename Terms::T;
  using A = ComputeType<T>;
  const unsigned char* x;       // of vector 0; backward: dy
  const unsigned char* second;  // backward: y; else x
  unsigned char* out;
  int begin;
  int end;
  int outer_bytes;  // from vector 0 to that column
  bool has_outer;
  bool is_full;  // every vector of every batch is there

  __device__ __forceinline__ PersistentRow(const SoftmaxParams& params, int row_batches, int64_t linear, int rank,
                                           int lane) {
    const SoftmaxRow row = locate_row<Terms::mask, Terms::is_backward>(params, linear, false);
    const RowVectors vectors = row_vectors<T>(params, row);
    const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
    const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, rank, lane);
    const int first_bytes = head_bytes + own.first * vector_bytes;
    x = row.x + first_bytes;
    second = Terms::is_backward ? row.bias_or_y + first_bytes : x;
    out = row.out + first_bytes;
    begin = own.first >= 0 ? 0 : 1;
    end = (own.end - own.first + persistent_threads - 1) / persistent_threads;
    is_full = begin == 0 && end >= row_batches * kBatch;
    const int outer_column = outer_column_of<T>(params, row, vectors, rank, lane);
    has_outer = outer_column >= 0;
    outer_bytes = outer_column * static_cast<int>(sizeof(T)) - first_bytes;
  }
  // One bit per vector of batch n: does it exist?
  __device__ __forceinline__ unsigned vectors_of(int n) const {
    if (is_full) return (1u << kBatch) - 1;
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) bits |= (n * kBatch + i >= begin && n * kBatch + i < end ? 1u : 0u) << i;
    return bits;
  }
  __device__ __forceinline__ void load_outer(const SoftmaxParams& params, A (&inputs)[Terms::num_inputs]) const {
#pragma unroll
    for (int k = 0; k < Terms::num_inputs; ++k) {
      inputs[k] = Terms::masked_element(params, k);
      if (has_outer) inputs[k] = widen(*reinterpret_cast<const T*>((k == 0 ? x : second) + outer_bytes));
    }
  }
  __device__ __forceinline__ void store_outer(A value) const {
    *reinterpret_cast<T*>(out + outer_bytes) = convert<T>(value);
  }
};

// Waits for all asynchronous copies except the copies of the latest `pending` groups.
__device__ __forceinline__ void wait_for_groups(int pending) {
  if (pending >= 3)
    async_copy_wait_groups<3>();
  else if (pending == 2)
    async_copy_wait_groups<2>();
  else if (pending == 1)
    async_copy_wait_groups<1>();
  else
    async_copy_wait_groups<0>();
}

// Combines the partial results of a cluster's threads, one row after the other. Each warp writes its partial result of
// row i to the block's shared memory; the first warp combines them and sends the sum to all blocks; later each warp
// reads the row's. Two alternating buffers suffice: a warp overwrites its partial result of row i by that of row i + 2
// only after it has received row i, by a barrier at which every lane of the first warp arrives after it has read the
// partial results of row i. And a block sends row i + 2 only after it has received row i + 1 from all blocks, each of
// which sent it when all its warps had received row i.
template <class Terms>
struct PersistentExchange {
  using T = typename Terms::T;
  const SoftmaxParams& params;
  ExchangeBuffer<T> first;
  RowThreads block, cluster;  // of warps, and of blocks with a part each

  __device__ __forceinline__ PersistentExchange(const SoftmaxParams& of, const RowThreads& group)
      : params(of),
        first(exchange_buffer<T>()),
        block{group.lane, 32, group.warp, persistent_warps, 0, 1},
        cluster{group.lane, 32, group.warp, 1, group.rank, group.blocks} {
    begin_exchange(of_cluster(0), cluster, persistent_exchanges, 32);
  }
  __device__ __forceinline__ RowPartial<T>* partials_of_block(int index) const {
    return exchange_buffer_at(first, block, index & 1).values();
  }
  __device__ __forceinline__ ExchangeBuffer<T> of_cluster(int index) const {
    return exchange_buffer_at(exchange_buffer_at(first, block, persistent_exchanges), cluster, index & 1);
  }
  __device__ __forceinline__ RowPartial<T> merge(const RowPartial<T>* partials, int num_partials) const {
    return Terms::merge(params, partials, num_partials, cluster.lane);
  }
  __device__ __forceinline__ void send(const RowPartial<T>& part, int index) const {
    if (cluster.lane == 0) partials_of_block(index)[block.warp] = part;
    if (!has_sm_90() || cluster.blocks == 1) return;
    if (index == 0) wait_for_cluster();
    __syncwarp();
    if (block.warp != 0) {
      FLOWK_SM90(simt::arrive_at_named_barrier(persistent_threads),
                 "barrier.cta.arrive 1, %0;" ::"n"(persistent_threads) : "memory");
      return;
    }
    FLOWK_SM90(simt::wait_at_named_barrier(persistent_threads),
               "barrier.cta.sync 1, %0;" ::"n"(persistent_threads) : "memory");
    const RowPartial<T> together = merge(partials_of_block(index), persistent_warps);
    const ExchangeBuffer<T> buffer = of_cluster(index);
    if (cluster.lane < cluster.blocks) buffer.send(cluster.lane, cluster.rank, together);
    buffer.barrier().arrive();
  }
  __device__ __forceinline__ RowPartial<T> receive(int index) const {
    if (has_sm_90() && cluster.blocks > 1) {
      const ExchangeBuffer<T> buffer = of_cluster(index);
      buffer.barrier().wait(index >> 1 & 1);
      if (threadIdx.x == 0) buffer.barrier().expect(partial_bytes<T>(cluster));
      return merge(buffer.values(), cluster.blocks);
    }
    __syncthreads();
    return merge(partials_of_block(index), persistent_warps);
  }
};

// A thread's cursor in the ring of batches.
template <int kInputs, int kBatch>
struct RingPosition {
  static constexpr int bytes = kInputs * kBatch * thread_step_bytes;
  unsigned char* slot;
  __device__ __forceinline__ void advance(const unsigned char* end, int ring_bytes) {
    slot += bytes;
    if (slot == end) slot -= ring_bytes;
  }
  __device__ __forceinline__ uint4* vector(int input, int i) const {
    return reinterpret_cast<uint4*>(slot + (input * kBatch + i) * thread_step_bytes);
  }
  __device__ __forceinline__ void read(uint4 (&vectors)[kBatch][kInputs]) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
#pragma unroll
      for (int k = 0; k < kInputs; ++k) vectors[i][k] = *vector(k, i);
  }
  // Starts to load the vectors of a batch that have a bit in `vectors`.
  __device__ __forceinline__ void load(const unsigned char* x, const unsigned char* second, unsigned vectors) const {
    load(x, second, vectors, std::make_integer_sequence<int, kBatch>());
  }

 private:
  template <int... kIndices>
  __device__ __forceinline__ void load(const unsigned char* x, const unsigned char* second, unsigned vectors,
                                       std::integer_sequence<int, kIndices...>) const {
    const SharedAddress address = shared_address(slot);
    const auto load_one = [&](auto index) {
      constexpr int i = decltype(index)::value;
      if ((vectors >> i & 1) == 0) return;
      load_at<i * thread_step_bytes, i * thread_step_bytes>(address, x);
      if constexpr (kInputs == 2) load_at<(kBatch + i) * thread_step_bytes, i * thread_step_bytes>(address, second);
    };
    (load_one(std::integral_constant<int, kIndices>()), ...);
  }
  // The offsets are immediate operands; the compiler would add them in registers.
  template <int kTo, int kFrom>
  static __device__ __forceinline__ void load_at(SharedAddress address, const unsigned char* src) {
#ifdef FLOWK_SIMT
    async_copy_vector(address + kTo, src + kFrom);
#else
    asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" ::"r"(address), "l"(src), "n"(kTo), "n"(kFrom)
                 : "memory");
#endif
  }
};

}  // namespace flowk::softmax
