// SPDX-License-Identifier: Apache-2.0
// The CPU executor's warp operations, atomics and intrinsics: they give what CUDA gives, and fault where CUDA would be
// undefined.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "simt_case.h"

namespace {

// ---- warp operations

template <class T>
__global__ void shuffle_all_ways(T* dst, unsigned mask, int operand, int width) {
  const T value = static_cast<T>(1000 + threadIdx.x);
  T* own = dst + 4 * threadIdx.x;
  own[0] = __shfl_sync(mask, value, operand, width);
  own[1] = __shfl_up_sync(mask, value, static_cast<unsigned>(operand), width);
  own[2] = __shfl_down_sync(mask, value, static_cast<unsigned>(operand), width);
  own[3] = __shfl_xor_sync(mask, value, operand, width);
}

template <class T>
void check_shuffles() {
  for (const char* order : {"forward", "reverse"})
    for (int width = 1; width <= 32; width *= 2)
      for (int operand = 0; operand < 32; ++operand) {
        set_order(order);
        T dst[64 * 4];
        CHECK(launch_fault(shuffle_all_ways<T>, {1, 64, 0}, dst, 0xffffffffu, operand, width).empty());
        for (int thread = 0; thread < 64; ++thread) {
          const int warp = thread / 32 * 32, lane = thread % 32, start = lane / width * width, end = start + width;
          const int sources[4] = {start + operand % width, lane - operand >= start ? lane - operand : lane,
                                  lane + operand < end ? lane + operand : lane,
                                  (lane ^ operand) < end ? lane ^ operand : lane};
          for (int way = 0; way < 4; ++way) CHECK(dst[4 * thread + way] == static_cast<T>(1000 + warp + sources[way]));
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

struct WarpResults {
  unsigned ballot, add, min, max, bits_and, bits_or, bits_xor;
  int any, all, signed_add, signed_min, signed_max;
};

__device__ unsigned lane_value(unsigned thread) { return (thread * 2654435761u) ^ 0x80000000u; }

__global__ void vote_and_reduce(WarpResults* results, unsigned votes) {
  const unsigned lane = threadIdx.x % 32, rest = blockDim.x - threadIdx.x / 32 * 32;
  const unsigned mask = rest >= 32 ? 0xffffffffu : (1u << rest) - 1, value = lane_value(threadIdx.x);
  const int vote = (votes >> lane) & 1, signed_value = static_cast<int>(value);
  WarpResults& own = results[threadIdx.x];
  __syncwarp(mask);
  own.ballot = __ballot_sync(mask, vote);
  own.any = __any_sync(mask, vote);
  own.all = __all_sync(mask, vote);
  own.add = __reduce_add_sync(mask, value);
  own.min = __reduce_min_sync(mask, value);
  own.max = __reduce_max_sync(mask, value);
  own.bits_and = __reduce_and_sync(mask, value);
  own.bits_or = __reduce_or_sync(mask, value);
  own.bits_xor = __reduce_xor_sync(mask, value);
  own.signed_add = __reduce_add_sync(mask, signed_value);
  own.signed_min = __reduce_min_sync(mask, signed_value);
  own.signed_max = __reduce_max_sync(mask, signed_value);
}

TEST(votes_and_reductions_agree_with_a_scalar_model_in_whole_and_partial_warps) {
  for (const unsigned num_threads : {1u, 20u, 32u, 45u})
    for (const unsigned votes : {0u, 1u, 0x00010000u, 0xffffffffu, 0x5a5a5a5au}) {
      std::vector<WarpResults> results(num_threads);
      CHECK(launch_fault(vote_and_reduce, {1, static_cast<int>(num_threads), 0}, results.data(), votes).empty());
      for (unsigned thread = 0; thread < num_threads; ++thread) {
        const unsigned first = thread / 32 * 32, last = std::min(first + 32, num_threads) - 1;
        WarpResults model = {0, 0, ~0u, 0, ~0u, 0, 0, 0, 1, 0, 0x7fffffff, -0x7fffffff - 1};
        for (unsigned other = first; other <= last; ++other) {
          const unsigned value = lane_value(other), vote = votes >> (other - first) & 1;
          model.ballot |= vote << (other - first);
          model.any |= static_cast<int>(vote);
          model.all &= static_cast<int>(vote);
          model.add += value;
          model.min = std::min(model.min, value);
          model.max = std::max(model.max, value);
          model.bits_and &= value;
          model.bits_or |= value;
          model.bits_xor ^= value;
          model.signed_min = std::min(model.signed_min, static_cast<int>(value));
          model.signed_max = std::max(model.signed_max, static_cast<int>(value));
        }
        model.signed_add = static_cast<int>(model.add);
        CHECK(std::memcmp(&model, &results[thread], sizeof(model)) == 0);
      }
    }
}

__global__ void sum_in_halves(int* dst) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round <= static_cast<int>(threadIdx.x / 16); ++round)
    for (int offset = 8; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
  dst[threadIdx.x] = value + __reduce_add_sync(0xffffffffu, 1);
}

TEST(half_warps_with_their_own_masks_go_their_own_ways) {
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    int dst[32];
    CHECK(launch_fault(sum_in_halves, {1, 32, 0}, dst).empty());
    for (int lane = 0; lane < 32; ++lane) CHECK(dst[lane] == (lane < 16 ? 120 : 376 * 16) + 32);
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
  at_barrier,
  width
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
    case Mistake::lane_not_there: __any_sync(0xffffffffu, 1); break;
    case Mistake::other_mask: __ballot_sync(lane == 5 ? 0xfffffffeu : 0xffffffffu, 1); break;
    case Mistake::other_operation: lane == 5 ? __any_sync(0xffffffffu, 1) : __all_sync(0xffffffffu, 1); break;
    case Mistake::at_barrier:
      if (lane == 5)
        __syncthreads();
      else
        __syncwarp();
      break;
    case Mistake::width: __shfl_sync(0xffffffffu, 1, 0, 12); break;
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
                 "__any_sync with mask 0xffffffff, but the warp's lanes are 0x000fffff"));
  CHECK(contains(fault(Mistake::other_mask, 32), "but thread 5 waits at __ballot_sync with mask 0xfffffffe"));
  CHECK(contains(fault(Mistake::other_operation, 32), "but thread 5 waits at __any_sync"));
  CHECK(contains(fault(Mistake::at_barrier, 32),
                 "divergent barrier: thread 5 waits at __syncthreads, but thread 0 waits at __syncwarp"));
  CHECK(contains(fault(Mistake::width, 32), "shuffle width = 12"));
  shuffles_agree_with_a_scalar_model();
}

// ---- atomics and intrinsics

struct Totals {
  int add = 0, max = -5, min = 5, exchanged = 0;
  unsigned unsigned_add = 0, unsigned_max = 0, unsigned_min = ~0u, bits_or = 0, bits_and = ~0u, claimed = 0;
  unsigned long long long_add = 0, long_claimed = 0;
  float float_add = 0;
  double double_add = 0;
};

__global__ void add_up(Totals* totals, int* old_values) {
  const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
  old_values[number] = atomicAdd(&totals->add, 1);
  atomicAdd(&totals->unsigned_add, 0xffffffffu);
  atomicAdd(&totals->long_add, 1ull << 33);
  atomicAdd(&totals->float_add, 0.5f);
  atomicAdd(&totals->double_add, 0.25);
  atomicMax(&totals->max, static_cast<int>(number) - 10);
  atomicMin(&totals->min, static_cast<int>(number) - 10);
  atomicMax(&totals->unsigned_max, number);
  atomicMin(&totals->unsigned_min, number + 3);
  atomicOr(&totals->bits_or, 1u << number % 32);
  atomicAnd(&totals->bits_and, ~(1u << number % 32));
  atomicCAS(&totals->claimed, 0u, number + 1);
  atomicCAS(&totals->long_claimed, 0ull, number + 1ull);
  atomicExch(&totals->exchanged, static_cast<int>(number));
}

TEST(atomics_change_and_return_the_old_value) {
  Totals totals;
  int old_values[96];
  CHECK(launch_fault(add_up, {3, 32, 0}, &totals, old_values).empty());
  for (int index = 0; index < 96; ++index) CHECK(old_values[index] == index);
  CHECK(totals.add == 96 && totals.max == 85 && totals.min == -10 && totals.exchanged == 95);
  CHECK(totals.unsigned_add == 0u - 96u && totals.unsigned_max == 95 && totals.unsigned_min == 3);
  CHECK(totals.bits_or == ~0u && totals.bits_and == 0 && totals.claimed == 1 && totals.long_claimed == 1);
  CHECK(totals.long_add == 96ull << 33 && totals.float_add == 48.0f && totals.double_add == 24.0);
}

TEST(bit_functions_do_what_the_ptx_manual_says) {
  CHECK(__byte_perm(0x33221100, 0x77665544, 0x7531) == 0x77553311);
  CHECK(__byte_perm(0x33221100, 0x77665544, 0x00006420) == 0x66442200);
  CHECK(__byte_perm(0x80FF7F00, 0x00000081, 0xCBA8) == __byte_perm(0x80FF7F00, 0x00000081, 0x4320));
  CHECK(__byte_perm(0x80FF7F00, 0x00000081, 0x0009) == 0x0000007F);
  CHECK(__funnelshift_l(0x89abcdef, 0x01234567, 8) == 0x23456789 && __funnelshift_l(1, 2, 32) == 2);
  CHECK(__funnelshift_r(0x89abcdef, 0x01234567, 8) == 0x6789abcd && __funnelshift_r(1, 2, 32) == 1);
  CHECK(__funnelshift_lc(1, 2, 32) == 1 && __funnelshift_lc(1, 2, 99) == 1 && __funnelshift_rc(1, 2, 32) == 2);
  CHECK(__popc(0xf0f0) == 8 && __popcll(~0ull) == 64 && __clz(0) == 32 && __clz(1) == 31 && __clzll(1) == 63);
  CHECK(__ffs(0) == 0 && __ffs(8) == 4 && __ffs(-0x7fffffff - 1) == 32);
  CHECK(__brev(0x80000001u) == 0x80000001u && __brev(2) == 1u << 30);
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
