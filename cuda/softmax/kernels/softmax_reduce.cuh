// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads that share a row: lanes of a warp by shuffles, warps of a block through shared
// memory, blocks of a cluster through each other's shared memory.
#pragma once

#include "flowk/detail/shared.cuh"
#include "softmax/kernels/softmax_row.cuh"

namespace flowk::softmax {

// What sums over threads are kept in: a float32 row is summed in float64 from its first shuffle on, so that its sum is
// right to a unit of the last place whatever the number of threads.
template <class T>
using RowValue = std::conditional_t<is_float16<T>, float, double>;

// What a warp, a block or a slice knows of a row: its largest score, and the sum of exponentials of the scores less
// that; backward: 0 and the sum.
template <class T>
struct alignas(2 * sizeof(RowValue<T>)) RowPart {
  ComputeType<T> max;
  RowValue<T> sum;
};

// A block's shared memory, softmax_exchange_bytes() of it: the barrier's 16 bytes, then a part for each warp of a row,
// of all blocks of a cluster.
template <class T>
struct ExchangeBuffer {
  unsigned char* memory;
  __device__ __forceinline__ uint64_t* barrier() const { return reinterpret_cast<uint64_t*>(memory); }
  __device__ __forceinline__ RowPart<T>* parts() const { return reinterpret_cast<RowPart<T>*>(memory + 16); }
};

template <class T>
__device__ __forceinline__ ExchangeBuffer<T> exchange_buffer() {
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

// The largest of a whole warp's values by one instruction on integers, which order as floats do once the bits of the
// negative ones are flipped. A NaN may be lost or taken for the largest.
#if defined(FLOWK_SIMT) || __CUDA_ARCH__ >= 800
__device__ __forceinline__ float max_over_warp(float value) {
  const int bits = __float_as_int(value);
  const int largest = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
  return __int_as_float(largest ^ (largest >> 31 & 0x7fffffff));
}
#endif

// Over `lanes` neighbouring lanes of a warp, a power of 2 and at most kMost.
template <int kMost = 32, class A>
__device__ __forceinline__ A max_over_lanes(A value, int lanes) {
#if defined(FLOWK_SIMT) || __CUDA_ARCH__ >= 800
  if constexpr (sizeof(A) == 4 && kMost == 32)
    if (lanes == 32) return max_over_warp(value);
#endif
#pragma unroll
  for (int offset = kMost / 2; offset > 0; offset /= 2)
    if (offset < lanes) value = larger_of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

template <int kMost = 32, class A>
__device__ __forceinline__ A sum_over_lanes(A value, int lanes) {
#pragma unroll
  for (int offset = kMost / 2; offset > 0; offset /= 2)
    if (offset < lanes) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
// Adds the bytes of all the team's parts to those that the barrier's phase waits for.
template <class T>
__device__ __forceinline__ void expect_parts(uint32_t barrier, const RowTeam& team) {
  const int bytes = team.warps * team.blocks * static_cast<int>(sizeof(RowPart<T>));
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
#endif

// The buffers of a kernel lie one after the other.
template <class T>
__device__ __forceinline__ ExchangeBuffer<T> exchange_buffer_at(const ExchangeBuffer<T>& first, const RowTeam& team,
                                                                int i) {
  const int bytes = 16 + (team.warps * team.blocks * static_cast<int>(sizeof(RowPart<T>)) + 15) / 16 * 16;
  return {first.memory + i * bytes};
}

// Before the first load of a kernel that may run in clusters: the block's barriers are made ready for what the others
// send. A release and an acquire by all threads of a cluster, at a cluster barrier or by arrivals at an mbarrier, cost
// 12 to 29% of the kernel (H200), so the blocks arrive here, wait before they send, and then wait for the bytes alone
// and for `num_arrivals` threads of their own.
template <class T>
__device__ __forceinline__ void begin_exchange(const ExchangeBuffer<T>& buffer, const RowTeam& team,
                                               int num_buffers = 1, int num_arrivals = 1) {
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
  if (team.blocks == 1) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < num_buffers; ++i) {
      const uint32_t barrier = shared_address(exchange_buffer_at(buffer, team, i).barrier());
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      expect_parts<T>(barrier, team);
    }
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  (void)buffer;
  (void)team;
  (void)num_buffers;
  (void)num_arrivals;
#endif
}

#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
// The first 8 bytes of a part of 16.
__device__ __forceinline__ unsigned long long max_bits(float max) { return __float_as_uint(max); }
__device__ __forceinline__ unsigned long long max_bits(double max) {
  return static_cast<unsigned long long>(__double_as_longlong(max));
}

// Sends `part` to slot `slot` of block `block` of the cluster.
template <class T>
__device__ __forceinline__ void send_part(const ExchangeBuffer<T>& buffer, int slot, int block,
                                          const RowPart<T>& part) {
  uint32_t address, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(buffer.parts() + slot)), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(buffer.barrier())), "r"(block));
  if constexpr (sizeof(part) == 8)
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "f"(part.max), "f"(part.sum), "r"(barrier)
                 : "memory");
  else
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%0], {%1, %2}, [%3];" ::"r"(address),
                 "l"(max_bits(part.max)), "d"(part.sum), "r"(barrier)
                 : "memory");
}

// One of the num_arrivals that end a phase of the barrier, together with the bytes that it expects.
__device__ __forceinline__ void arrive_at_parts(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Until the barrier's phase of that parity has ended.
__device__ __forceinline__ void wait_for_parts(uint64_t* barrier, int parity) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}
#endif

// Gives every thread of a row the parts of all its warps, one each lane and 32 apart: returns how many there are in
// `buffer`. To be called by all threads of a block, by none where a row has lanes of one warp only.
template <class T>
__device__ __forceinline__ int exchange_parts(const ExchangeBuffer<T>& buffer, const RowTeam& team,
                                              const RowPart<T>& part) {
  const int slot = team.rank * team.warps + team.warp;
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 900
  if (team.blocks > 1) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    // Arriving here, and not where the bytes are expected: there, synccheck of CUDA 13.0 reports a missing wait.
    if (team.lane < team.blocks) send_part(buffer, slot, team.lane, part);
    if (threadIdx.x == 0) arrive_at_parts(buffer.barrier());
    wait_for_parts(buffer.barrier(), 0);
    return team.warps * team.blocks;
  }
#endif
  if (team.lane == 0) buffer.parts()[slot] = part;
  __syncthreads();
  return team.warps;
}

// Lanes of a warp among which `num_parts` values lie: a power of 2.
__device__ __forceinline__ int lanes_of_parts(int num_parts) {
  return num_parts > 16 ? 32 : num_parts > 8 ? 16 : num_parts > 4 ? 8 : num_parts > 2 ? 4 : 2;
}

// What several parts are together, in scores multiplied by `scale` before the exponential; the order of the sum is
// theirs. To be called by whole warps.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ RowPart<T> combine_parts(const RowPart<T>* parts, int num_parts, int warp_lane,
                                                    ComputeType<T> scale) {
  using E = RowValue<T>;
  using A = ComputeType<T>;
  // Every 2, 4, ... lanes hold the same parts, so that few shuffles do.
  const int lanes = lanes_of_parts(num_parts), lane = warp_lane & (lanes - 1);
  // A sum of NaN has to stay, whatever its maximum; a sum of 0 has a maximum of -infinity, and adds 0.
  const auto scaled_sum = [scale](const RowPart<T>& other, A row_max) {
    if (other.sum == E{0}) return E{0};
    return other.sum * exponential<T>(ScoreScale<T, kMask>(other.max, scale).to_reference(row_max));
  };
  RowPart<T> row = {negative_infinity<A>(), E{0}};
  if (lane < num_parts) row = parts[lane];
  const RowPart<T> first = row;
#pragma unroll 1
  for (int i = lane + 32; i < num_parts; i += 32) row.max = larger_of(row.max, parts[i].max);
  row.max = max_over_lanes(row.max, lanes);
  row.sum = scaled_sum(first, row.max);
#pragma unroll 1
  for (int i = lane + 32; i < num_parts; i += 32) row.sum += scaled_sum(parts[i], row.max);
  row.sum = sum_over_lanes(row.sum, lanes);
  return row;
}

// The same of the sums alone, in the type that gradients are computed in.
template <class T>
__device__ __forceinline__ ComputeType<T> sum_parts(const RowPart<T>* parts, int num_parts, int warp_lane) {
  using A = ComputeType<T>;
  const int lanes = lanes_of_parts(num_parts), lane = warp_lane & (lanes - 1);
  A row = 0;
#pragma unroll 1
  for (int i = lane; i < num_parts; i += 32) row += static_cast<A>(parts[i].sum);
  return sum_over_lanes(row, lanes);
}

// The whole row's part from its warps'.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ RowPart<T> combine_row(const ExchangeBuffer<T>& buffer, const RowTeam& team,
                                                  const RowPart<T>& part, ComputeType<T> scale) {
  if (team.warps * team.blocks == 1) return part;
  const int num_parts = exchange_parts(buffer, team, part);
  return combine_parts<T, kMask>(buffer.parts(), num_parts, team.lane, scale);
}

// The sum over the row's warps, of gradients.
template <class T>
__device__ __forceinline__ ComputeType<T> sum_row(const ExchangeBuffer<T>& buffer, const RowTeam& team,
                                                  ComputeType<T> sum) {
  if (team.warps * team.blocks == 1) return sum;
  const int num_parts = exchange_parts(buffer, team, RowPart<T>{ComputeType<T>{0}, sum});
  return sum_parts(buffer.parts(), num_parts, team.lane);
}

}  // namespace flowk::softmax
