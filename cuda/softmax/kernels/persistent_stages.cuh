// SPDX-License-Identifier: Apache-2.0
// What kernels whose clusters take one row after the other share: a thread's part of a row, the ring of batches in
// shared memory that rows come to and leave from, and how blocks agree on a row meanwhile.
#pragma once

#include <utility>

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

constexpr int turn_warps = turn_threads / 32;
constexpr int turn_step_bytes = turn_threads * vector_bytes;  // between a thread's vectors

// A thread's part of a row: vectors from `begin`, 0 or 1, to `end`, and at most one column outside whole vectors.
template <class T, bool kBackward, int kBatch>
struct TurnRow {
  const unsigned char* x;     // of vector 0; backward: dy
  const unsigned char* side;  // backward: y; else x
  unsigned char* out;
  int begin;
  int end;
  int extra_bytes;  // from vector 0 to that column
  bool has_extra;
  bool is_full;  // every vector of every batch is there

  __device__ __forceinline__ TurnRow(const SoftmaxParams& params, int64_t linear, int rank, int lane) {
    const SoftmaxRow row = locate_row<SoftmaxMask::none, kBackward>(params, linear, false);
    const RowVectors vectors = row_vectors<T>(params, row);
    const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
    const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, rank, lane);
    const int first_bytes = head_bytes + own.first * vector_bytes;
    x = row.x + first_bytes;
    side = kBackward ? row.side + first_bytes : x;
    out = row.out + first_bytes;
    begin = own.first >= 0 ? 0 : 1;
    end = (own.end - own.first + turn_threads - 1) / turn_threads;
    is_full = begin == 0 && end >= params.turn_batches * kBatch;
    const int extra_column = leftover_column<T>(params, row, vectors, rank, lane);
    has_extra = extra_column >= 0;
    extra_bytes = extra_column * static_cast<int>(sizeof(T)) - first_bytes;
  }
  // Which vectors of batch n there are: a bit each.
  __device__ __forceinline__ unsigned vectors_of(int n) const {
    if (is_full) return (1u << kBatch) - 1;
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) bits |= (n * kBatch + i >= begin && n * kBatch + i < end ? 1u : 0u) << i;
    return bits;
  }
  __device__ __forceinline__ ComputeType<T> extra_of(const unsigned char* vectors) const {
    return widen(*reinterpret_cast<const T*>(vectors + extra_bytes));
  }
  __device__ __forceinline__ void store_extra(ComputeType<T> value) const {
    *reinterpret_cast<T*>(out + extra_bytes) = convert<T>(value);
  }
};

// Waits for all asynchronous copies but those of the latest `pending` groups, or fewer.
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

// How the threads of a cluster agree on one row after the other. Each warp leaves its part of row i in the block's
// shared memory; the first warp sends what they are together to all blocks; and later on each warp asks for the row's.
// Two buffers in turn are enough. A warp leaves its part of row i + 2 in the place of that of row i once it has row i,
// by a barrier at which every lane of the first warp arrives after it has read the parts of row i. And a block sends
// its part of row i + 2 once it has row i + 1 from all blocks, each of which sent that when all its warps had row i.
template <class T>
struct TurnExchange {
  ExchangeBuffer<T> first;
  RowTeam block, cluster;  // of warps, and of blocks with a part each

  __device__ __forceinline__ explicit TurnExchange(const RowTeam& team)
      : first(exchange_buffer<T>()),
        block{team.lane, 32, team.warp, turn_warps, 0, 1},
        cluster{team.lane, 32, team.warp, 1, team.rank, team.blocks} {
    begin_exchange(of_cluster(0), cluster, 2, 32);
  }
  __device__ __forceinline__ RowPart<T>* parts_of_block(int turn) const {
    return exchange_buffer_at(first, block, turn & 1).parts();
  }
  __device__ __forceinline__ ExchangeBuffer<T> of_cluster(int turn) const {
    return exchange_buffer_at(exchange_buffer_at(first, block, 2), cluster, turn & 1);
  }
  // combine(parts, number of parts) is what they are together.
  template <class Combine>
  __device__ __forceinline__ void send(const RowPart<T>& part, int turn, [[maybe_unused]] Combine combine) const {
    if (cluster.lane == 0) parts_of_block(turn)[block.warp] = part;
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
    if (cluster.blocks == 1) return;
    if (turn == 0) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    __syncwarp();
    if (block.warp != 0) {
      asm volatile("barrier.cta.arrive 1, %0;" ::"n"(turn_threads) : "memory");
      return;
    }
    asm volatile("barrier.cta.sync 1, %0;" ::"n"(turn_threads) : "memory");
    const RowPart<T> together = combine(parts_of_block(turn), turn_warps);
    const ExchangeBuffer<T> buffer = of_cluster(turn);
    if (cluster.lane < cluster.blocks) send_part(buffer, cluster.rank, cluster.lane, together);
    arrive_at_parts(buffer.barrier());
#endif
  }
  template <class Combine>
  __device__ __forceinline__ RowPart<T> receive(int turn, [[maybe_unused]] Combine combine) const {
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
    if (cluster.blocks > 1) {
      const ExchangeBuffer<T> buffer = of_cluster(turn);
      wait_for_parts(buffer.barrier(), turn >> 1 & 1);
      if (threadIdx.x == 0) expect_parts<T>(shared_address(buffer.barrier()), cluster);
      return combine(buffer.parts(), cluster.blocks);
    }
#endif
    __syncthreads();
    return combine(parts_of_block(turn), turn_warps);
  }
};

// The slots of a ring of batches in shared memory, as one thread walks them.
template <int kInputs, int kBatch>
struct RingPlace {
  static constexpr int bytes = kInputs * kBatch * turn_step_bytes;
  unsigned char* slot;
  __device__ __forceinline__ void advance(const unsigned char* end, int ring_bytes) {
    slot += bytes;
    if (slot == end) slot -= ring_bytes;
  }
  __device__ __forceinline__ uint4* vector(int input, int i) const {
    return reinterpret_cast<uint4*>(slot + (input * kBatch + i) * turn_step_bytes);
  }
  // Starts loading those of a batch's vectors that have a bit.
  __device__ __forceinline__ void load(const unsigned char* x, const unsigned char* side, unsigned vectors) const {
    load(x, side, vectors, std::make_integer_sequence<int, kBatch>());
  }

 private:
  template <int... kIndices>
  __device__ __forceinline__ void load(const unsigned char* x, const unsigned char* side, unsigned vectors,
                                       std::integer_sequence<int, kIndices...>) const {
    const SharedAddress address = shared_address(slot);
    const auto load_one = [&](auto index) {
      constexpr int i = decltype(index)::value;
      if ((vectors >> i & 1) == 0) return;
      load_at<i * turn_step_bytes, i * turn_step_bytes>(address, x);
      if constexpr (kInputs == 2) load_at<(kBatch + i) * turn_step_bytes, i * turn_step_bytes>(address, side);
    };
    (load_one(std::integral_constant<int, kIndices>()), ...);
  }
  // Constant offsets are the instruction's, where the compiler would add them up in registers.
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
