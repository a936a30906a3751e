// SPDX-License-Identifier: Apache-2.0
// The CPU executor's clusters, transaction barriers and bulk copies: they give what sm_90 gives, and fault where its
// behavior is undefined.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/bulk_copy.cuh"
#include "core/cluster_exchange.cuh"
#include "core/device.h"
#include "flowk/detail/shared.cuh"
#include "simt_case.h"

namespace {

using namespace flowk::core;

constexpr int max_blocks = 16;

template <class Value>
ClusterExchange<Value> exchange() {
  return {&shared<unsigned char>()};
}
constexpr int exchange_bytes = 16 + 16 * max_blocks;

// ---- clusters

enum class Mistake { none, no_cluster_wait, no_transaction_wait, one_arrival_too_few, exits, arrives_twice, too_late };

// Each block sends its number to every block; each thread adds up what its block has received, `rounds` times.
template <class Value>
__global__ void sum_over_cluster(uint64_t* sums, int blocks, int rounds, Mistake mistake) {
  const ClusterExchange<Value> buffer = exchange<Value>();
  const bool is_odd_one = threadIdx.x == 5 && cluster_rank() == 1;
  if (threadIdx.x == 0) {
    buffer.barrier().init(mistake == Mistake::one_arrival_too_few ? 2 : 1);
    buffer.barrier().expect(blocks * static_cast<int>(sizeof(Value)));
  }
  if (mistake == Mistake::exits && is_odd_one) return;
  arrive_at_cluster();
  if (mistake == Mistake::arrives_twice && is_odd_one) arrive_at_cluster();
  if (mistake != Mistake::no_cluster_wait) wait_for_cluster();
  uint64_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (static_cast<int>(threadIdx.x) < blocks) {
      Value value = {};
      const uint32_t number = blockIdx.x + 100u * static_cast<uint32_t>(round);
      std::memcpy(&value, &number, 4);
      buffer.send(threadIdx.x, cluster_rank(), value);
    }
    if (threadIdx.x == 0) buffer.barrier().arrive();
    if (mistake != Mistake::no_transaction_wait) buffer.barrier().wait(round & 1);
    for (int block = 0; block < blocks; ++block) {
      uint32_t number = 0;
      std::memcpy(&number, buffer.values() + block, 4);
      sum += number;
    }
    // The next round's values overwrite these.
    if (threadIdx.x == 0) buffer.barrier().expect(blocks * static_cast<int>(sizeof(Value)));
    arrive_at_cluster();
    wait_for_cluster();
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (mistake == Mistake::too_late && cluster_rank() == 0) buffer.send(1, 0, Value{});
}

template <class Value>
std::string run_sum(std::vector<uint64_t>* sums, int blocks, int threads, int clusters, Mistake mistake) {
  sums->assign(static_cast<size_t>(clusters * blocks * threads), 0);
  const LaunchConfig config = {.num_blocks = clusters * blocks,
                               .num_threads = threads,
                               .shared_bytes = exchange_bytes,
                               .cluster_blocks = blocks};
  return launch_fault(sum_over_cluster<Value>, config, sums->data(), blocks,
                      mistake == Mistake::no_transaction_wait ? 1 : 3, mistake);
}

template <class Value>
void check_sums(int blocks, int threads) {
  std::vector<uint64_t> sums;
  CHECK(run_sum<Value>(&sums, blocks, threads, 5, Mistake::none).empty());
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint64_t first = i / static_cast<size_t>(blocks * threads) * static_cast<size_t>(blocks);
    uint64_t expected = 0;
    for (uint64_t block = first; block < first + static_cast<uint64_t>(blocks); ++block) expected += 3 * block + 300;
    CHECK(sums[i] == expected);
  }
}

TEST(blocks_of_a_cluster_exchange_values_in_both_orders) {
  for (const char* order : {"forward", "reverse"})
    for (const int blocks : {2, 4, 8, 16}) {
      set_order(order);
      check_sums<uint32_t>(blocks, 16);
      check_sums<uint64_t>(blocks, 33);
      check_sums<ulonglong2>(blocks, blocks == 16 ? 1024 : 96);
    }
  set_order("forward");
  set_host_threads("1");
}

__global__ void meet() { __syncthreads(); }

TEST(a_cluster_of_few_warps_runs_after_a_block_of_many) {
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    CHECK(launch_fault(meet, {.num_blocks = 1, .num_threads = 1024}).empty());
    check_sums<uint32_t>(2, 32);
  }
  set_order("forward");
}

TEST(a_cluster_that_errs_is_a_fault_and_the_next_launch_works) {
  std::vector<uint64_t> sums;
  const auto fault = [&](Mistake mistake) {
    const std::string text = run_sum<uint32_t>(&sums, 2, 64, 3, mistake);
    check_sums<uint32_t>(2, 64);
    return text;
  };
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    CHECK(contains(fault(Mistake::no_cluster_wait), "of block rank"));
    CHECK(contains(fault(Mistake::exits), "waits at the cluster's barrier, but thread 5"));
    CHECK(contains(fault(Mistake::exits), "has exited"));
    CHECK(contains(fault(Mistake::arrives_twice), "arrives at the cluster's barrier twice"));
    CHECK(contains(fault(Mistake::one_arrival_too_few), "waits at an mbarrier, and nothing ends that"));
    fault(Mistake::no_transaction_wait);
    CHECK(*std::max_element(sums.begin(), sums.end()) > 0xCDCDCDCD);
  }
  set_order("forward");
  CHECK(contains(fault(Mistake::too_late), "block rank 1, which has ended"));
}

TEST(clusters_need_the_capability_and_whole_clusters) {
  const auto fault = [](int num_blocks, int cluster_blocks) {
    const LaunchConfig config = {
        .num_blocks = num_blocks, .num_threads = 32, .shared_bytes = exchange_bytes, .cluster_blocks = cluster_blocks};
    return launch_fault(sum_over_cluster<uint32_t>, config, nullptr, cluster_blocks, 0, Mistake::none);
  };
  CHECK(contains(fault(34, 17), "cluster_blocks must be 1 ... 16"));
  CHECK(contains(fault(3, 2), "and divide num_blocks"));
  CHECK(contains(fault(3, 1), "in a launch without clusters"));
  set_capability("0");
  CHECK(contains(fault(4, 2), "clusters need FLOWK_SIMT_CAPABILITY=90"));
  Device device;
  CHECK(current_device(&device).ok() && device.capability == 0);
  set_capability("80");
  CHECK(current_device(&device).code() == FLOWK_STATUS_INVALID_ARGUMENT);
  CHECK(contains(last_error_text(), "FLOWK_SIMT_CAPABILITY = \"80\", must be 0 or 90"));
  CHECK(contains(fault(4, 2), "FLOWK_SIMT_CAPABILITY = \"80\", must be 0 or 90"));
  set_capability("90");
  CHECK(current_device(&device).ok() && device.capability == 90);
}

// ---- named barriers

__global__ void add_up_by_the_first_warp(int* sum, int* partials) {
  partials[threadIdx.x / 32] = 0;
  __syncthreads();
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] += round + 1;
    __syncwarp();
    if (threadIdx.x >= 32) {
      simt::arrive_at_named_barrier(static_cast<int>(blockDim.x));
    } else {
      simt::wait_at_named_barrier(static_cast<int>(blockDim.x));
      if (threadIdx.x == 0)
        for (int warp = 0; warp < static_cast<int>(blockDim.x / 32); ++warp) sum[round] += partials[warp];
    }
    __syncthreads();
  }
}

TEST(a_named_barrier_holds_the_threads_that_wait) {
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    int sum[3] = {}, partials[4];
    CHECK(launch_fault(add_up_by_the_first_warp, {1, 128, 0}, sum, partials).empty());
    CHECK(sum[0] == 4 && sum[1] == 12 && sum[2] == 24);
  }
  set_order("forward");
}

// ---- bulk copies

__global__ void copy_by_bulk(const unsigned char* src, unsigned char* dst, int num_bytes, bool waits) {
  unsigned char* const memory = &shared<unsigned char>();
  const BulkCopies copies = {{reinterpret_cast<uint64_t*>(memory + num_bytes)}};
  if (threadIdx.x == 0) {
    copies.begin();
    for (int i = 0; i < num_bytes; i += num_bytes / 2)
      copies.copy(copy_group(0), memory + i, src + static_cast<int>(blockIdx.x) * num_bytes + i, num_bytes / 2);
    copies.end();
  }
  __syncthreads();
  if (waits) copies.wait();
  BulkCopies::publish();
  __syncthreads();
  BulkCopies::store(dst + static_cast<int>(blockIdx.x) * num_bytes, memory, num_bytes);
}

TEST(a_bulk_load_is_done_at_the_wait_and_not_before) {
  std::vector<uint4> src(2 * 64), dst(2 * 64);
  for (unsigned i = 0; i < 128; ++i) src[i] = {i, i + 1, i + 2, i + 3};
  const auto copy = [&](int offset, bool waits) {
    const unsigned char* from = reinterpret_cast<const unsigned char*>(src.data()) + offset;
    return launch_fault(copy_by_bulk, {2, 40, 1024 + 8}, from, reinterpret_cast<unsigned char*>(dst.data()), 1024,
                        waits);
  };
  for (const char* order : {"forward", "reverse"}) {
    set_order(order);
    CHECK(copy(0, true).empty());
    CHECK(std::memcmp(src.data(), dst.data(), 2048) == 0);
    CHECK(contains(copy(0, false), "nothing has waited for one of its bulk copies"));
    CHECK(dst[order[0] == 'f' ? 0 : 127].x == 0xCDCDCDCDu);
    CHECK(contains(copy(8, true), "not whole vectors of 16 bytes"));
  }
  set_order("forward");
}

}  // namespace

int main(int argc, char** argv) {
  set_host_threads("1");
  set_capability("90");
  return run_tests(argc, argv);
}
