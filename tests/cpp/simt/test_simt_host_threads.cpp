// SPDX-License-Identifier: Apache-2.0
// The CPU executor's host threads: blocks run on several and give what one gives, and threads that wait for nobody
// are a loop.
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "flowk/detail/shared.cuh"
#include "simt_case.h"

namespace {

using flowk::core::shared;

constexpr int num_blocks = 40, num_threads = 64, shared_bytes = num_threads * 4;

// Long enough for the other host threads to wake and to take blocks.
void sleep_in_block() {
  if (threadIdx.x == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct BlockRecord {
  float results[num_threads];
  std::thread::id host_thread;
};

__global__ void divide_and_rotate(BlockRecord* records) {
  sleep_in_block();
  float* values = reinterpret_cast<float*>(&shared<unsigned char>());
  values[threadIdx.x] = static_cast<float>(blockIdx.x + 1) / static_cast<float>(threadIdx.x + 3);
  __syncthreads();
  BlockRecord& record = records[blockIdx.x];
  record.results[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x] + __shfl_xor_sync(~0u, values[threadIdx.x], 5);
  if (threadIdx.x == 0) record.host_thread = std::this_thread::get_id();
}

std::vector<BlockRecord> run_divide_and_rotate(const char* host_threads) {
  set_host_threads(host_threads);
  std::vector<BlockRecord> records(num_blocks);
  CHECK(launch_fault(divide_and_rotate, {num_blocks, num_threads, shared_bytes}, records.data()).empty());
  return records;
}

std::size_t count_host_threads(const std::vector<BlockRecord>& records) {
  std::set<std::thread::id> ids;
  for (const BlockRecord& record : records) ids.insert(record.host_thread);
  return ids.size();
}

bool have_same_bits(const std::vector<BlockRecord>& x, const std::vector<BlockRecord>& y) {
  for (int block = 0; block < num_blocks; ++block)
    if (std::memcmp(x[block].results, y[block].results, sizeof(x[block].results)) != 0) return false;
  return true;
}

TEST(blocks_run_on_several_host_threads_with_the_bits_of_one) {
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    const std::vector<BlockRecord> alone = run_divide_and_rotate("1"), together = run_divide_and_rotate("4");
    CHECK(count_host_threads(alone) == 1);
    CHECK(count_host_threads(together) > 1 && count_host_threads(together) <= 4);
    CHECK(have_same_bits(alone, together));
  }
  set_order("forward");
}

TEST(the_callers_rounding_and_flushing_change_no_result_and_are_kept) {
  const std::vector<BlockRecord> expected = run_divide_and_rotate("1");
  for (const char* host_threads : {"1", "4"}) {
    std::fesetround(FE_UPWARD);
    const std::vector<BlockRecord> records = run_divide_and_rotate(host_threads);
    CHECK(std::fegetround() == FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    CHECK(have_same_bits(expected, records));
  }
}

TEST(helpers_sleep_between_launches) {
  CHECK(count_host_threads(run_divide_and_rotate("4")) > 1);
  const std::clock_t start = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(std::clock() - start < CLOCKS_PER_SEC / 20);
}

TEST(a_forked_process_has_helpers_of_its_own) {
  const std::vector<BlockRecord> here = run_divide_and_rotate("4");
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<BlockRecord> there = run_divide_and_rotate("4");
    _exit(have_same_bits(here, there) && count_host_threads(there) > 1 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(launches_of_several_host_threads_at_once_are_complete) {
  const std::vector<BlockRecord> alone = run_divide_and_rotate("1");
  set_host_threads("4");
  std::vector<BlockRecord> records[3];
  std::vector<std::thread> hosts;
  for (std::vector<BlockRecord>& own : records) {
    own.resize(num_blocks);
    hosts.emplace_back([&own] {
      const auto run = [&own] { divide_and_rotate(own.data()); };
      if (simt::run_grid({num_blocks, num_threads, shared_bytes}, run) != nullptr) own.clear();
    });
  }
  for (std::thread& host : hosts) host.join();
  for (const std::vector<BlockRecord>& own : records) CHECK(own.size() == num_blocks && have_same_bits(alone, own));
}

// ---- between blocks

__global__ void sum_in_the_last_block(std::uint64_t* partials, unsigned* arrivals, std::uint64_t* sum) {
  sleep_in_block();
  partials[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 1000ull + threadIdx.x;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(arrivals, 1u) != gridDim.x - 1) return;
  __threadfence();
  for (unsigned index = 0; index < gridDim.x * blockDim.x; ++index) *sum += partials[index];
}

TEST(the_last_block_to_arrive_reads_what_all_others_wrote) {
  set_host_threads("4");
  std::vector<std::uint64_t> partials(num_blocks * num_threads);
  std::uint64_t sum = 0, expected = 0;
  unsigned arrivals = 0;
  CHECK(launch_fault(sum_in_the_last_block, {num_blocks, num_threads, 0}, partials.data(), &arrivals, &sum).empty());
  for (unsigned index = 0; index < partials.size(); ++index)
    expected += index / num_threads * 1000ull + index % num_threads;
  CHECK(arrivals == num_blocks && sum == expected);
}

__global__ void diverge_in_half_of_the_blocks(bool in_the_first) {
  sleep_in_block();
  if ((blockIdx.x < num_blocks / 2) == in_the_first && threadIdx.x == 7) return;
  __syncthreads();
}

TEST(the_fault_is_that_of_the_first_block_in_order) {
  set_host_threads("4");
  for (int repeat = 0; repeat < 5; ++repeat)
    for (const bool reverse : {false, true}) {
      set_order(reverse ? "reverse" : "forward");
      const std::string text = launch_fault(diverge_in_half_of_the_blocks, {num_blocks, num_threads, 0}, reverse);
      CHECK(contains(text, reverse ? "block 19, thread" : "block 20, thread"));
      CHECK(contains(text, "thread 7 has exited"));
    }
  set_order("forward");
}

TEST(a_number_of_host_threads_out_of_range_is_an_error) {
  for (const char* number : {"0", "257", "-1", "two", "2x", ""}) {
    set_host_threads(number);
    CHECK(contains(launch_fault(diverge_in_half_of_the_blocks, {1, 1, 0}, false),
                   (std::string("FLOWK_SIMT_THREADS = \"") + number + "\", must be 1 ... 256").c_str()));
  }
  set_host_threads("1");
}

// ---- within a block

struct ThreadRecord {
  int turn;
  std::uintptr_t stack;
};

// Threads from `first_waiting` on wait for their warp.
__global__ void record_stacks(ThreadRecord* records, int* turns, unsigned first_waiting) {
  records[threadIdx.x] = {(*turns)++, reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))};
  if (threadIdx.x >= first_waiting) __syncwarp();
}

TEST(threads_that_wait_for_nobody_leave_no_stack_behind) {
  set_host_threads("1");
  for (const unsigned first_waiting : {0u, 32u, 96u})
    for (const bool reverse : {false, true}) {
      set_order(reverse ? "reverse" : "forward");
      std::vector<ThreadRecord> records(96);
      int turns = 0;
      CHECK(launch_fault(record_stacks, {1, 96, 0}, records.data(), &turns, first_waiting).empty());
      std::set<std::uintptr_t> stacks;
      for (const ThreadRecord& record : records) stacks.insert(record.stack);
      CHECK(stacks.size() == (first_waiting == 96 ? 1 : 32));
      for (int index = 0; index < 96; ++index) CHECK(records[index].turn == (reverse ? 95 - index : index));
    }
  set_order("forward");
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
