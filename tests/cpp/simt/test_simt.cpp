// SPDX-License-Identifier: Apache-2.0
// The CPU executor: grids, barriers and shared memory as CUDA has them, and a fault where CUDA would be undefined.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "flowk/detail/shared.cuh"
#include "simt_case.h"

namespace {

using flowk::core::shared;

// ---- the grid and its order

__global__ void count_visits(unsigned* visits) {
  atomicAdd(&visits[blockIdx.x * blockDim.x + threadIdx.x], 1u);
  if (threadIdx.y + threadIdx.z + blockIdx.y + blockIdx.z != 0 || blockDim.y * blockDim.z * gridDim.y * gridDim.z != 1)
    visits[0] = 1000;
}

TEST(every_thread_runs_once) {
  for (const int num_threads : {1, 31, 32, 33, 255, 1024})
    for (const int num_blocks : {1, 2, 7}) {
      std::vector<unsigned> visits(static_cast<std::size_t>(num_threads * num_blocks));
      CHECK(launch_fault(count_visits, {num_blocks, num_threads, 0}, visits.data()).empty());
      for (const unsigned count : visits) CHECK(count == 1);
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

TEST(order_is_forward_or_reverse_and_starts_anew_after_a_barrier) {
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

TEST(missing_barrier_shows_in_reverse_order) {
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

TEST(many_barriers_keep_threads_in_step) {
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

__global__ void diverge(int how) {
  const bool odd_one = threadIdx.x == 40;
  if (how == 0 && odd_one) return;
  if (how == 1 && threadIdx.x / 32 == 1) __shfl_sync(odd_one ? 1u << 8 : 0xffffffffu, 1, 8);
  __syncthreads();
}

TEST(divergent_barrier_is_a_fault_and_the_next_launch_works) {
  for (const char* order : {"forward", "reverse"})
    for (int how = 0; how < 2; ++how) {
      set_order(order);
      const std::string text = launch_fault(diverge, {3, 64, 0}, how);
      CHECK(contains(text, order[0] == 'f' ? "block 0" : "block 2"));
      CHECK(contains(text, "divergent barrier"));
      CHECK(contains(text, "waits at __syncthreads"));
      if (how == 0) CHECK(contains(text, "thread 40 has exited"));
      if (how == 1) CHECK(contains(text, "__shfl_*_sync with mask 0xffffffff"));
      CHECK(launch_fault(diverge, {3, 64, 0}, 99).empty());
      many_barriers_keep_threads_in_step();
    }
  set_order("forward");
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

TEST(shared_memory_starts_as_garbage_in_every_block_and_needing_more_is_a_fault) {
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

TEST(async_copy_happens_at_the_wait_and_not_before) {
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

// ---- the host's side

TEST(several_host_threads_launch_at_once) {
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

TEST(kernel_cannot_launch_a_kernel) {
  std::string text;
  CHECK(launch_fault(launch_inside, {1, 1, 0}, &text).empty());
  CHECK(contains(text, "a kernel launched a kernel"));
}

}  // namespace

int main(int argc, char** argv) {
  set_host_threads("1");  // the tests look at the order of the blocks
  return run_tests(argc, argv);
}
