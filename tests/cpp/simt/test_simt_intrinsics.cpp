// SPDX-License-Identifier: Apache-2.0
// The CPU executor's warp operations, atomics and intrinsics: they give what CUDA gives, and fault where CUDA would be
// undefined.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "simt_case.h"

namespace {

// ---- warp operations

template <class T>
__global__ void shuffle_both_ways(T* dst, unsigned mask, int operand) {
  const T value = static_cast<T>(1000 + threadIdx.x);
  dst[2 * threadIdx.x] = __shfl_sync(mask, value, operand);
  dst[2 * threadIdx.x + 1] = __shfl_xor_sync(mask, value, operand);
}

template <class T>
void check_shuffles() {
  for (const char* order : {"forward", "reverse"})
    for (int operand = 0; operand < 32; ++operand) {
      set_order(order);
      T dst[64 * 2];
      CHECK(launch_fault(shuffle_both_ways<T>, {1, 64, 0}, dst, 0xffffffffu, operand).empty());
      for (int thread = 0; thread < 64; ++thread) {
        const int warp = thread / 32 * 32, lane = thread % 32;
        CHECK(dst[2 * thread] == static_cast<T>(1000 + warp + operand));
        CHECK(dst[2 * thread + 1] == static_cast<T>(1000 + warp + (lane ^ operand)));
      }
    }
  set_order("forward");
}

TEST(shuffles_agree_with_a_scalar_model) {
  check_shuffles<int>();
  check_shuffles<float>();
  check_shuffles<double>();
  check_shuffles<unsigned long long>();
}

__global__ void find_largest(int* largest, const int* values) {
  const unsigned rest = blockDim.x - threadIdx.x / 32 * 32;
  const unsigned mask = rest >= 32 ? 0xffffffffu : (1u << rest) - 1;
  __syncwarp(mask);
  largest[threadIdx.x] = __reduce_max_sync(mask, values[threadIdx.x]);
}

TEST(the_largest_value_agrees_with_a_scalar_model_in_whole_and_partial_warps) {
  for (const int num_threads : {1, 20, 32, 45})
    for (const unsigned sign_bit : {0u, 0x80000000u}) {
      int values[64], largest[64];
      for (unsigned thread = 0; thread < 64; ++thread)
        values[thread] = static_cast<int>((thread * 2654435761u & 0x7fffffffu) | sign_bit);
      CHECK(launch_fault(find_largest, {1, num_threads, 0}, largest, values).empty());
      for (int thread = 0; thread < num_threads; ++thread) {
        const int first = thread / 32 * 32;
        CHECK(largest[thread] == *std::max_element(values + first, values + std::min(first + 32, num_threads)));
      }
    }
}

__global__ void sum_in_halves(int* dst) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round <= static_cast<int>(threadIdx.x / 16); ++round)
    for (int offset = 8; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
  dst[threadIdx.x] = value + __reduce_max_sync(0xffffffffu, static_cast<int>(threadIdx.x));
}

TEST(half_warps_with_their_own_masks_go_their_own_ways) {
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    int dst[32];
    CHECK(launch_fault(sum_in_halves, {1, 32, 0}, dst).empty());
    for (int lane = 0; lane < 32; ++lane) CHECK(dst[lane] == (lane < 16 ? 120 : 376 * 16) + 31);
  }
  set_order("forward");
}

enum class Mistake {
  caller_not_in_mask,
  reads_outside_mask,
  lane_exits,
  lane_not_there,
  other_mask,
  other_operation,
  at_barrier
};

__global__ void misuse_warp(Mistake mistake) {
  const unsigned lane = threadIdx.x;
  switch (mistake) {
    case Mistake::caller_not_in_mask: __shfl_sync(0x0000ffffu, 1, 0); break;
    case Mistake::reads_outside_mask:
      if (lane < 16) __shfl_xor_sync(0x0000ffffu, 1, 16);
      break;
    case Mistake::lane_exits:
      if (lane != 5) __syncwarp();
      break;
    case Mistake::lane_not_there: __syncwarp(); break;
    case Mistake::other_mask: __syncwarp(lane == 5 ? 0xfffffffeu : 0xffffffffu); break;
    case Mistake::other_operation: lane == 5 ? __shfl_sync(~0u, 1, 0) : __reduce_max_sync(~0u, 1); break;
    case Mistake::at_barrier:
      if (lane == 5)
        __syncthreads();
      else
        __syncwarp();
      break;
  }
}

TEST(warp_operations_fault_when_a_mask_lies) {
  const auto fault = [](Mistake mistake, int num_threads) {
    return launch_fault(misuse_warp, {1, num_threads, 0}, mistake);
  };
  CHECK(contains(fault(Mistake::caller_not_in_mask, 32),
                 "thread 16: a 4-byte __shfl_*_sync with mask 0x0000ffff, which lacks"));
  CHECK(contains(fault(Mistake::reads_outside_mask, 32), "reads lane 16, which is not in it"));
  CHECK(contains(fault(Mistake::lane_exits, 32), "waits at __syncwarp with mask 0xffffffff, but thread 5 has exited"));
  CHECK(contains(fault(Mistake::lane_not_there, 20),
                 "__syncwarp with mask 0xffffffff, but the warp's lanes are 0x000fffff"));
  CHECK(contains(fault(Mistake::other_mask, 32), "but thread 5 waits at __syncwarp with mask 0xfffffffe"));
  CHECK(contains(fault(Mistake::other_operation, 32), "but thread 5 waits at a 4-byte __shfl"));
  CHECK(contains(fault(Mistake::at_barrier, 32),
                 "divergent barrier: thread 5 waits at __syncthreads, but thread 0 waits at __syncwarp"));
  shuffles_agree_with_a_scalar_model();
}

// ---- atomics and intrinsics

__global__ void count_threads(unsigned* count, unsigned* old_counts) {
  old_counts[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(count, 1u);
}

TEST(an_atomic_addition_returns_the_old_value) {
  unsigned count = ~0u, old_counts[96];
  CHECK(launch_fault(count_threads, {3, 32, 0}, &count, old_counts).empty());
  for (unsigned index = 0; index < 96; ++index) CHECK(old_counts[index] == index - 1);
  CHECK(count == 95);
}

TEST(bit_functions_do_what_the_ptx_manual_says) {
  CHECK(__byte_perm(0x33221100, 0x77665544, 0x7531) == 0x77553311);
  CHECK(__byte_perm(0x33221100, 0x77665544, 0x00006420) == 0x66442200);
  CHECK(__byte_perm(0x80FF7F00, 0x00000081, 0xCBA8) == __byte_perm(0x80FF7F00, 0x00000081, 0x4320));
  CHECK(__byte_perm(0x80FF7F00, 0x00000081, 0x0009) == 0x0000007F);
  CHECK(__funnelshift_l(0x89abcdef, 0x01234567, 8) == 0x23456789 && __funnelshift_l(1, 2, 32) == 2);
  CHECK(__funnelshift_r(0x89abcdef, 0x01234567, 8) == 0x6789abcd && __funnelshift_r(1, 2, 32) == 1);
  CHECK(__funnelshift_lc(1, 2, 32) == 1 && __funnelshift_lc(1, 2, 99) == 1);
  CHECK(__umulhi(~0u, ~0u) == 0xfffffffe && __umul64hi(~0ull, 2) == 1);
  CHECK(__float_as_uint(-0.0f) == 0x80000000u && __uint_as_float(0x3f800000u) == 1.0f && rsqrtf(4.0f) == 0.5f);
  static_assert(sizeof(uint4) == 16 && alignof(uint4) == 16 && alignof(float2) == 8);
  static_assert(alignof(uchar4) == 4 && alignof(ushort4) == 8 && sizeof(uint3) == 12 && sizeof(dim3) == 12);
}

}  // namespace

int main(int argc, char** argv) {
  set_host_threads("1");  // the tests look at the order of the blocks
  return run_tests(argc, argv);
}
