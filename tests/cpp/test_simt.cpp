// SPDX-License-Identifier: Apache-2.0
// The CPU executor: it runs what CUDA would run, and it faults where CUDA would be undefined.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/launch.cuh"
#include "core/shared.cuh"

namespace {

using flowk::launch;
using flowk::LaunchConfig;
using flowk::shared;
namespace simt = flowk::simt;

void set_order(const char* order) { setenv("FLOWK_SIMT_THREAD_ORDER", order, 1); }

// The fault's text, "" for success.
template <class... Parameters, class... Arguments>
std::string launch_fault(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments... arguments) {
  const flowk::Status status = launch(kernel, config, nullptr, arguments...);
  if (status.ok()) return "";
  CHECK(status.code() == FLOWK_STATUS_INTERNAL_ERROR);
  return flowk::last_error_text();
}

bool contains(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::printf("\"%s\" is not in \"%s\"\n", part, text.c_str());
  return false;
}

// ---- the grid and its order

__global__ void count_visits(int* visits) {
  atomicAdd(&visits[blockIdx.x * blockDim.x + threadIdx.x], 1);
  if (threadIdx.y + threadIdx.z + blockIdx.y + blockIdx.z != 0 || blockDim.y * blockDim.z * gridDim.y * gridDim.z != 1)
    visits[0] = -1000;
}

void every_thread_runs_once() {
  for (const int num_threads : {1, 31, 32, 33, 255, 1024})
    for (const int num_blocks : {1, 2, 7}) {
      std::vector<int> visits(static_cast<std::size_t>(num_threads * num_blocks));
      CHECK(launch_fault(count_visits, {num_blocks, num_threads, 0}, visits.data()).empty());
      for (const int count : visits) CHECK(count == 1);
    }
  CHECK(launch_fault(count_visits, {0, 32, 0}, nullptr).empty());
  CHECK(contains(launch_fault(count_visits, {1, 0, 0}, nullptr), "num_threads"));
  CHECK(contains(launch_fault(count_visits, {1, 1025, 0}, nullptr), "num_threads"));
}

__global__ void record_order(int* num_recorded, int* recorded) {
  for (int phase = 0; phase < 2; ++phase) {
    recorded[(*num_recorded)++] = static_cast<int>(blockIdx.x * 100 + threadIdx.x);
    __syncthreads();
  }
}

void order_is_forward_or_reverse_and_starts_anew_after_a_barrier() {
  for (const bool reverse : {false, true}) {
    set_order(reverse ? "reverse" : "forward");
    std::vector<int> recorded(2 * 2 * 70);
    int num_recorded = 0;
    CHECK(launch_fault(record_order, {2, 70, 0}, &num_recorded, recorded.data()).empty());
    CHECK(num_recorded == 280);
    for (int index = 0; index < 280; ++index) {
      const int block = index / 140, thread = index % 70;
      CHECK(recorded[index] == (reverse ? (1 - block) * 100 + 69 - thread : block * 100 + thread));
    }
  }
  set_order("sideways");
  CHECK(contains(launch_fault(record_order, {1, 1, 0}, nullptr, nullptr), "FLOWK_SIMT_THREAD_ORDER"));
  set_order("forward");
}

struct Row {
  int values[32];
};

template <bool has_barrier>
__global__ void read_left_neighbor(int* dst) {
  Row& row = shared<Row>();
  row.values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if constexpr (has_barrier) __syncthreads();
  if (threadIdx.x > 0) dst[threadIdx.x] = row.values[threadIdx.x - 1];
}

void missing_barrier_shows_in_reverse_order() {
  const auto count_wrong = [](void (*kernel)(int*), const char* order) {
    set_order(order);
    int dst[32], num_wrong = 0;
    CHECK(launch_fault(kernel, {1, 32, sizeof(Row)}, dst).empty());
    for (int index = 1; index < 32; ++index) num_wrong += dst[index] != index - 1;
    set_order("forward");
    return num_wrong;
  };
  CHECK(count_wrong(read_left_neighbor<false>, "forward") == 0);
  CHECK(count_wrong(read_left_neighbor<false>, "reverse") == 31);
  CHECK(count_wrong(read_left_neighbor<true>, "forward") == 0);
  CHECK(count_wrong(read_left_neighbor<true>, "reverse") == 0);
}

// ---- barriers

__global__ void rotate_through_shared(int* dst, int num_rounds) {
  int* values = reinterpret_cast<int*>(&shared<unsigned char>());
  int value = static_cast<int>(threadIdx.x);
  for (int round = 0; round < num_rounds; ++round) {
    values[threadIdx.x] = value;
    __syncthreads();
    value = values[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  dst[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

void many_barriers_keep_threads_in_step() {
  for (const char* order : {"forward", "reverse"})
    for (const int num_threads : {1, 33, 256, 1024}) {
      set_order(order);
      std::vector<int> dst(static_cast<std::size_t>(2 * num_threads));
      CHECK(launch_fault(rotate_through_shared, {2, num_threads, num_threads * 4}, dst.data(), 50).empty());
      for (int index = 0; index < 2 * num_threads; ++index)
        CHECK(dst[index] == (index % num_threads + 50) % num_threads);
    }
  set_order("forward");
}

__global__ void vote_in_block(int* dst, int below) {
  const int vote = static_cast<int>(threadIdx.x) < below ? 7 : 0;
  dst[3 * threadIdx.x] = __syncthreads_count(vote);
  dst[3 * threadIdx.x + 1] = __syncthreads_or(vote);
  dst[3 * threadIdx.x + 2] = __syncthreads_and(vote);
}

void block_votes_count_every_thread() {
  for (const int below : {0, 1, 69, 70}) {
    int dst[3 * 70];
    CHECK(launch_fault(vote_in_block, {1, 70, 0}, dst, below).empty());
    for (int index = 0; index < 70; ++index) {
      CHECK(dst[3 * index] == below);
      CHECK((dst[3 * index + 1] != 0) == (below > 0));
      CHECK((dst[3 * index + 2] != 0) == (below == 70));
    }
  }
}

__global__ void diverge(int how) {
  const bool odd_one = threadIdx.x == 40;
  if (how == 0 && odd_one) return;
  if (how == 1 && odd_one) __syncthreads_or(1);
  if (how == 2 && threadIdx.x / 32 == 1) __shfl_sync(odd_one ? 1u << 8 : 0xffffffffu, 1, 8);
  __syncthreads();
}

void divergent_barrier_is_a_fault_and_the_next_launch_works() {
  for (const char* order : {"forward", "reverse"})
    for (int how = 0; how < 3; ++how) {
      set_order(order);
      const std::string text = launch_fault(diverge, {3, 64, 0}, how);
      CHECK(contains(text, order[0] == 'f' ? "block 0" : "block 2"));
      CHECK(contains(text, "divergent barrier"));
      CHECK(contains(text, "waits at __syncthreads"));
      if (how == 0) CHECK(contains(text, "thread 40 has exited"));
      if (how == 2) CHECK(contains(text, "__shfl_*_sync with mask 0xffffffff"));
      CHECK(launch_fault(diverge, {3, 64, 0}, 99).empty());
      many_barriers_keep_threads_in_step();
    }
  set_order("forward");
}

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

void shuffles_agree_with_a_scalar_model() {
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

void votes_and_reductions_agree_with_a_scalar_model_in_whole_and_partial_warps() {
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

void half_warps_with_their_own_masks_go_their_own_ways() {
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

void warp_operations_fault_when_a_mask_lies() {
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

// ---- shared memory and asynchronous copies

__global__ void look_at_shared(int* num_garbage, unsigned char write_at) {
  unsigned char* bytes = &shared<unsigned char>();
  if (reinterpret_cast<std::uintptr_t>(bytes) % 128 != 0) *num_garbage = -1000;
  if (threadIdx.x == 0)
    for (int index = 0; index < 100; ++index) *num_garbage += bytes[index] == 0xCD;
  __syncthreads();
  bytes[write_at] = 1;
}

__global__ void need_a_row() { shared<Row>().values[0] = 1; }

void shared_memory_starts_as_garbage_in_every_block_and_needing_more_is_a_fault() {
  int num_garbage = 0;
  CHECK(launch_fault(look_at_shared, {3, 2, 100}, &num_garbage, 99).empty());
  CHECK(num_garbage == 300);
  CHECK(launch_fault(need_a_row, {1, 1, sizeof(Row)}).empty());
  CHECK(contains(launch_fault(need_a_row, {1, 1, sizeof(Row) - 1}), "needs 128 bytes of shared memory"));
  CHECK(contains(launch_fault(need_a_row, {1, 1, 0}), "shared_bytes = 0"));
}

__global__ void copy_through_shared(const uint4* src, uint4* dst, int num_copies, bool waits) {
  uint4* staged = reinterpret_cast<uint4*>(&shared<unsigned char>()) + threadIdx.x * num_copies;
  for (int index = 0; index < num_copies; ++index)
    simt::async_copy(&staged[index], &src[threadIdx.x * num_copies + index], sizeof(uint4));
  if (waits) simt::async_copy_wait();
  __syncthreads();
  for (int index = 0; index < num_copies; ++index) dst[threadIdx.x * num_copies + index] = staged[index];
}

__global__ void copy_in_groups(const unsigned* src, unsigned* dst) {
  unsigned* staged = reinterpret_cast<unsigned*>(&shared<unsigned char>());
  for (int group = 0; group < 3; ++group) {
    simt::async_copy(&staged[group], &src[group], 4);
    simt::async_copy_commit();
  }
  for (int pending = 2; pending >= 0; --pending) {
    simt::async_copy_wait_groups(pending);
    for (int group = 0; group < 3; ++group) *dst++ = staged[group];
  }
}

__global__ void copy_badly(const unsigned char* src, unsigned char* dst, int offset, int bytes) {
  unsigned char* staged = dst != nullptr ? dst : &shared<unsigned char>();
  simt::async_copy(staged + offset, src + offset, static_cast<std::size_t>(bytes));
}

void async_copy_happens_at_the_wait_and_not_before() {
  std::vector<uint4> src(2 * 70), dst(2 * 70);
  for (unsigned index = 0; index < 140; ++index) src[index] = {index, index + 1, index + 2, index + 3};
  for (const int num_copies : {3, 70}) {
    CHECK(launch_fault(copy_through_shared, {1, 2, 2 * 70 * 16}, src.data(), dst.data(), num_copies, true).empty());
    CHECK(std::memcmp(src.data(), dst.data(), static_cast<std::size_t>(2 * num_copies) * sizeof(uint4)) == 0);
  }
  CHECK(launch_fault(copy_through_shared, {1, 2, 2 * 70 * 16}, src.data(), dst.data(), 3, false).empty());
  for (int index = 0; index < 6; ++index) CHECK(dst[index].x == 0xCDCDCDCDu && dst[index].w == 0xCDCDCDCDu);

  const unsigned numbers[3] = {1, 2, 3}, garbage = 0xCDCDCDCDu;
  unsigned seen[9];
  CHECK(launch_fault(copy_in_groups, {1, 1, 12}, numbers, seen).empty());
  const unsigned expected[9] = {1, garbage, garbage, 1, 2, garbage, 1, 2, 3};
  CHECK(std::memcmp(seen, expected, sizeof(seen)) == 0);

  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(src.data());
  CHECK(launch_fault(copy_badly, {1, 1, 64}, bytes, nullptr, 8, 8).empty());
  CHECK(contains(launch_fault(copy_badly, {1, 1, 64}, bytes, nullptr, 8, 16), "not aligned"));
  CHECK(contains(launch_fault(copy_badly, {1, 1, 64}, bytes, nullptr, 0, 2), "must be 4, 8 or 16"));
  CHECK(contains(launch_fault(copy_badly, {1, 1, 64}, bytes, nullptr, 64, 16), "outside"));
  unsigned char* global = reinterpret_cast<unsigned char*>(dst.data());
  CHECK(contains(launch_fault(copy_badly, {1, 1, 64}, bytes, global, 0, 16), "outside"));
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

void atomics_change_and_return_the_old_value() {
  Totals totals;
  int old_values[96];
  CHECK(launch_fault(add_up, {3, 32, 0}, &totals, old_values).empty());
  for (int index = 0; index < 96; ++index) CHECK(old_values[index] == index);
  CHECK(totals.add == 96 && totals.max == 85 && totals.min == -10 && totals.exchanged == 95);
  CHECK(totals.unsigned_add == 0u - 96u && totals.unsigned_max == 95 && totals.unsigned_min == 3);
  CHECK(totals.bits_or == ~0u && totals.bits_and == 0 && totals.claimed == 1 && totals.long_claimed == 1);
  CHECK(totals.long_add == 96ull << 33 && totals.float_add == 48.0f && totals.double_add == 24.0);
}

void bit_functions_do_what_the_ptx_manual_says() {
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

// ---- the host's side

void several_host_threads_launch_at_once() {
  std::vector<int> dst[3];
  std::string texts[3];
  std::vector<std::thread> hosts;
  for (int host = 0; host < 3; ++host) {
    dst[host].resize(4 * 96);
    hosts.emplace_back([&, host] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        if (host == 2) texts[host] = launch_fault(diverge, {1, 64, 0}, 0);
        const std::string text = launch_fault(rotate_through_shared, {4, 96, 96 * 4}, dst[host].data(), 10 + host);
        if (!text.empty()) dst[host][0] = -1;
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  for (int host = 0; host < 3; ++host)
    for (int index = 0; index < 4 * 96; ++index) CHECK(dst[host][index] == (index % 96 + 10 + host) % 96);
  CHECK(contains(texts[2], "divergent barrier"));
}

__global__ void launch_inside(std::string* text) { *text = launch_fault(need_a_row, {1, 1, 128}); }

void kernel_cannot_launch_a_kernel() {
  std::string text;
  CHECK(launch_fault(launch_inside, {1, 1, 0}, &text).empty());
  CHECK(contains(text, "a kernel launched a kernel"));
}

}  // namespace

int main() {
  every_thread_runs_once();
  order_is_forward_or_reverse_and_starts_anew_after_a_barrier();
  missing_barrier_shows_in_reverse_order();
  many_barriers_keep_threads_in_step();
  block_votes_count_every_thread();
  divergent_barrier_is_a_fault_and_the_next_launch_works();
  shuffles_agree_with_a_scalar_model();
  votes_and_reductions_agree_with_a_scalar_model_in_whole_and_partial_warps();
  half_warps_with_their_own_masks_go_their_own_ways();
  warp_operations_fault_when_a_mask_lies();
  shared_memory_starts_as_garbage_in_every_block_and_needing_more_is_a_fault();
  async_copy_happens_at_the_wait_and_not_before();
  atomics_change_and_return_the_old_value();
  bit_functions_do_what_the_ptx_manual_says();
  several_host_threads_launch_at_once();
  kernel_cannot_launch_a_kernel();
  return num_failed_checks == 0 ? 0 : 1;
}
