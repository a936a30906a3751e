// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads that share a row: lanes of a warp by shuffles, warps of a block through shared
// memory, blocks of a cluster through each other's shared memory.
#pragma once

#include "core/shared.cuh"
#include "masked_softmax/softmax_row.cuh"

namespace flowk {

// What sums over threads are kept in: a float32 row is summed in float64 from its first shuffle on, so that its sum is
// right to a unit of the last place whatever the number of threads.
template <class T>
using RowValue = std::conditional_t<is_float16<T>, float, double>;

// What one warp knows of a row: its largest score, and the sum of exponentials of the scores less that; backward: 0 and
// the sum.
template <class A>
struct alignas(2 * sizeof(A)) RowPart {
  A max;
  A sum;
};

// A block's shared memory, softmax_exchange_bytes() of it: the barrier's 16 bytes, then a part for each warp of a row,
// of all blocks of a cluster.
template <class A>
struct ExchangeBuffer {
  unsigned char* memory;
  __device__ __forceinline__ uint64_t* barrier() const { return reinterpret_cast<uint64_t*>(memory); }
  __device__ __forceinline__ RowPart<A>* parts() const { return reinterpret_cast<RowPart<A>*>(memory + 16); }
};

template <class A>
__device__ __forceinline__ ExchangeBuffer<A> exchange_buffer() {
  return {&shared<unsigned char>()};
}

// Threads that share a row.
struct RowTeam {
  int lane;    // in the warp's group
  int lanes;   // of a warp in the group: 1 to 32
  int warp;    // of the row's warps in this block
  int warps;   // 1: the row has lanes of one warp
  int rank;    // of the block in its cluster
  int blocks;  // of the cluster
};

__device__ __forceinline__ RowTeam row_team(const SoftmaxParams& params) {
  RowTeam team;
  team.lanes = params.lanes_per_row < 32 ? params.lanes_per_row : 32;
  team.lane = static_cast<int>(threadIdx.x) & (team.lanes - 1);
  team.warps = params.lanes_per_row < 32 ? 1 : params.lanes_per_row / 32;
  team.warp = params.rows_per_block > 1 ? 0 : static_cast<int>(threadIdx.x) / 32;
  team.blocks = 1 << params.cluster_shift;
  team.rank = static_cast<int>(blockIdx.x) & (team.blocks - 1);
  return team;
}

template <class A>
__device__ __forceinline__ A max_over_lanes(A value, int lanes) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    if (offset < lanes) value = larger_of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

template <class A>
__device__ __forceinline__ A sum_over_lanes(A value, int lanes) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    if (offset < lanes) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

#ifndef FLOWK_SIMT
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

// Before the first load of a kernel that may run in clusters: the block's barrier is made ready for what the others
// send. A full cluster barrier around the exchange costs 2 to 13% of the kernel (H200), so the blocks arrive here, wait
// before they send, and then wait for the bytes alone.
template <class A>
__device__ __forceinline__ void begin_exchange(const ExchangeBuffer<A>& buffer, const RowTeam& team) {
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
  if (team.blocks == 1) return;
  if (threadIdx.x == 0) {
    const uint32_t barrier = shared_address(buffer.barrier());
    const uint32_t bytes = static_cast<uint32_t>(team.warps * team.blocks * static_cast<int>(sizeof(RowPart<A>)));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  (void)buffer;
  (void)team;
#endif
}

#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
// Sends `part` to slot `slot` of block `block` of the cluster.
template <class A>
__device__ __forceinline__ void send_part(const ExchangeBuffer<A>& buffer, int slot, int block,
                                          const RowPart<A>& part) {
  uint32_t address, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(buffer.parts() + slot)), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(buffer.barrier())), "r"(block));
  if constexpr (sizeof(A) == 4)
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(part.max), "f"(part.sum), "r"(barrier)
                 : "memory");
  else
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f64 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "d"(part.max), "d"(part.sum), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void wait_for_parts(uint64_t* barrier) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier))
                 : "memory");
}
#endif

// Gives every thread of a row the parts of all its warps, one each lane and 32 apart: returns how many there are in
// `buffer`. To be called by all threads of a block, by none where a row has lanes of one warp only.
template <class A>
__device__ __forceinline__ int exchange_parts(const ExchangeBuffer<A>& buffer, const RowTeam& team,
                                              const RowPart<A>& part) {
  const int slot = team.rank * team.warps + team.warp;
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
  if (team.blocks > 1) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (team.lane < team.blocks) send_part(buffer, slot, team.lane, part);
    wait_for_parts(buffer.barrier());
    return team.warps * team.blocks;
  }
#endif
  if (team.lane == 0) buffer.parts()[slot] = part;
  __syncthreads();
  return team.warps;
}

// The whole row's part from its warps', in scores multiplied by `scale` before the exponential. The order of the sum is
// that of the warps.
template <class T>
__device__ __forceinline__ RowPart<RowValue<T>> combine_row(const ExchangeBuffer<RowValue<T>>& buffer,
                                                            const RowTeam& team, const RowPart<RowValue<T>>& part,
                                                            ComputeType<T> scale) {
  using E = RowValue<T>;
  using A = ComputeType<T>;
  if (team.warps * team.blocks == 1) return part;
  const int num_parts = exchange_parts(buffer, team, part);
  RowPart<E> row = {negative_infinity<E>(), E{0}};
#pragma unroll 1
  for (int i = team.lane; i < num_parts; i += 32) row.max = larger_of(row.max, buffer.parts()[i].max);
  row.max = max_over_lanes(static_cast<A>(row.max), 32);
#pragma unroll 1
  for (int i = team.lane; i < num_parts; i += 32) {
    const RowPart<E> other = buffer.parts()[i];
    // A sum of NaN has to stay, whatever its maximum; a sum of 0 has a maximum of -infinity, and adds 0.
    if (other.sum != E{0}) row.sum += other.sum * exponential<T>(static_cast<A>(other.max - row.max) * scale);
  }
  row.sum = sum_over_lanes(row.sum, 32);
  return row;
}

// 1 / sum and the logarithm of sum, for a finite sum >= 1; of a double as rounded once to float.
template <class A>
__device__ __forceinline__ A inverse_of(double sum) {
  if constexpr (sizeof(A) == 8) return 1.0 / sum;
  const float inverse = __fdividef(1.0f, static_cast<float>(sum));
  return inverse + inverse * static_cast<float>(fma(-sum, static_cast<double>(inverse), 1.0));
}
template <class A>
__device__ __forceinline__ A inverse_of(float sum) {
  return __fdividef(1.0f, sum);
}
template <class A>
__device__ __forceinline__ A log_of(double sum) {
  if constexpr (sizeof(A) == 8) return log(sum);
  const float rounded = static_cast<float>(sum);
  return logf(rounded) + __fdividef(static_cast<float>(sum - static_cast<double>(rounded)), rounded);
}
template <class A>
__device__ __forceinline__ A log_of(float sum) {
  return logf(sum);
}

// The sum over the row's warps.
template <class A>
__device__ __forceinline__ A sum_row(const ExchangeBuffer<A>& buffer, const RowTeam& team, A sum) {
  if (team.warps * team.blocks == 1) return sum;
  const int num_parts = exchange_parts(buffer, team, RowPart<A>{A{0}, sum});
  A row = 0;
#pragma unroll 1
  for (int i = team.lane; i < num_parts; i += 32) row += buffer.parts()[i].sum;
  return sum_over_lanes(row, 32);
}

}  // namespace flowk
