// SPDX-License-Identifier: Apache-2.0
// The host side of the library, called from threads: devices, plans, caches, errors, and the executor's host threads.
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "api/call.h"
#include "check.h"
#include "core/device.h"
#include "core/launch.cuh"
#include "cross_entropy/cross_entropy.h"
#include "cuda_runtime_stand_in.h"
#include "elementwise/elementwise.h"
#include "flowk/detail/shared.cuh"
#include "flowk/flowk.h"
#include "permute/permute.h"
#include "prelu/prelu.h"
#include "run_in_threads.h"
#include "softmax/softmax_bias_gradient.h"
#include "softmax/softmax_merge.h"
#include "softmax/softmax_run.h"

using flowk::core::Device;
using flowk::core::Status;

// The kernels are not in this program: a plan that would run is made and dropped.
static std::atomic<int> num_runs = 0;
static Status count_run() {
  ++num_runs;
  return {};
}
namespace flowk::cross_entropy {
Status run_cross_entropy(const CrossEntropyPlan&, flowk_stream) { return count_run(); }
Status run_cross_entropy_merge(const MergePartialsPlan&, flowk_dtype, flowk_stream) { return count_run(); }
Status run_cross_entropy_backward(const CrossEntropyBackwardPlan&, flowk_stream) { return count_run(); }
}  // namespace flowk::cross_entropy
namespace flowk::elementwise {
Status run_elementwise(const ElementwisePlan&, flowk_stream) { return count_run(); }
}  // namespace flowk::elementwise
namespace flowk::permute {
Status run_permute(const PermutePlan&, flowk_stream) { return count_run(); }
}  // namespace flowk::permute
namespace flowk::prelu {
Status run_prelu(const PreluPlan&, flowk_stream) { return count_run(); }
Status run_prelu_backward(const PreluBackwardPlan&, flowk_stream) { return count_run(); }
}  // namespace flowk::prelu
namespace flowk::softmax {
Status run_bias_gradient(const BiasGradientPlan&, flowk_stream) { return count_run(); }
Status run_softmax_merge(const MergeRowsPlan&, flowk_stream) { return count_run(); }
template <>
Status run_softmax_part<SoftmaxPart::row_in_registers>(const SoftmaxPlan&, flowk_stream) {
  return count_run();
}
template <>
Status run_softmax_part<SoftmaxPart::several_rows>(const SoftmaxPlan&, flowk_stream) {
  return count_run();
}
template <>
Status run_softmax_part<SoftmaxPart::long_row>(const SoftmaxPlan&, flowk_stream) {
  return count_run();
}
}  // namespace flowk::softmax

namespace {

// Addresses that are never read.
void* const x = reinterpret_cast<void*>(uintptr_t{1} << 40);
void* const y = reinterpret_cast<void*>(uintptr_t{2} << 40);
void* const out = reinterpret_cast<void*>(uintptr_t{3} << 40);

// The plans in words of calls of every function on tensors whose sizes depend on `n`. Each is also launched.
std::string plans(int n) {
  std::string all;
  char text[4096];
  const auto take = [&](flowk_status explained, flowk_status launched) {
    CHECK(explained == FLOWK_STATUS_SUCCESS && launched == FLOWK_STATUS_SUCCESS);
    all += text;
  };
  const int64_t shape[] = {17 + n, 24, 40 + n}, other_strides[] = {1, 40 + n, 24 * (40 + n)};
  const int32_t axes[] = {2, 0, 1};
  const void* const srcs[] = {x, y};
  void* const dsts[] = {out, static_cast<char*>(out) + (int64_t{1} << 32)};
  constexpr flowk_dtype type = FLOWK_FLOAT32;
  take(flowk_batch_transpose_explain(x, out, 3, 100 + n, 200, type, text, sizeof text),
       flowk_batch_transpose(x, out, 3, 100 + n, 200, type, nullptr));
  take(flowk_permute_explain(x, nullptr, out, nullptr, 3, shape, axes, type, text, sizeof text),
       flowk_permute(x, nullptr, out, nullptr, 3, shape, axes, type, nullptr));
  take(flowk_permute_convert_explain(x, nullptr, type, out, nullptr, FLOWK_FLOAT16, 3, shape, axes, 2, text,
                                     sizeof text),
       flowk_permute_convert(x, nullptr, type, out, nullptr, FLOWK_FLOAT16, 3, shape, axes, 2, nullptr));
  take(flowk_permute_many_explain(2, srcs, nullptr, type, dsts, nullptr, type, 3, shape, axes, 1, text, sizeof text),
       flowk_permute_many(2, srcs, nullptr, type, dsts, nullptr, type, 3, shape, axes, 1, nullptr));
  take(flowk_unary_explain(FLOWK_UNARY_RELU, x, other_strides, type, out, nullptr, type, 3, shape, 0, 0, text,
                           sizeof text),
       flowk_unary(FLOWK_UNARY_RELU, x, other_strides, type, out, nullptr, type, 3, shape, 0, 0, nullptr));
  take(flowk_binary_explain(FLOWK_BINARY_ADD, x, nullptr, type, y, other_strides, type, out, nullptr, type, 3, shape,
                            text, sizeof text),
       flowk_binary(FLOWK_BINARY_ADD, x, nullptr, type, y, other_strides, type, out, nullptr, type, 3, shape, nullptr));
  take(flowk_prelu_explain(x, y, out, 8, 64 + n, 100, type, type, text, sizeof text),
       flowk_prelu(x, y, out, 8, 64 + n, 100, type, type, nullptr));
  size_t bytes = 0;
  CHECK(flowk_prelu_backward_workspace_bytes(8, 64 + n, 1000, type, type, &bytes) == FLOWK_STATUS_SUCCESS);
  all += std::to_string(bytes);
  take(flowk_masked_softmax_explain(x, nullptr, type, out, nullptr, type, 3, shape, 1, nullptr, 0, text, sizeof text),
       flowk_masked_softmax(x, nullptr, type, out, nullptr, type, 3, shape, 1, nullptr, 0, nullptr));
  take(flowk_masked_softmax_backward_dbias_explain(x, nullptr, y, nullptr, type, nullptr, nullptr, type, out, nullptr,
                                                   type, 3, shape, 1, nullptr, 0, text, sizeof text),
       flowk_masked_softmax_backward_dbias(x, nullptr, y, nullptr, type, nullptr, nullptr, type, out, nullptr, type, 3,
                                           shape, 1, nullptr, 0, nullptr, 0, nullptr));
  return all;
}

__global__ void add_neighbours(const int* in, int* sums) {
  int* const values = reinterpret_cast<int*>(&flowk::core::shared<unsigned char>());
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[threadIdx.x] = in[i];
  __syncthreads();
  sums[i] = values[threadIdx.x] + values[(threadIdx.x + 1) % blockDim.x];
}

}  // namespace

TEST(the_first_callers_read_a_device) {
  Device devices[num_test_threads];
  run_in_threads([&](int thread) {
    stand_in::current = thread / 4;
    CHECK(flowk::core::current_device(&devices[thread]).ok());
  });
  for (const Device& device : devices)
    CHECK(device == (Device{.capability = 90,
                            .num_multiprocessors = 132,
                            .shared_bytes_per_multiprocessor = 233472,
                            .shared_bytes_per_block = 232448}));
}

TEST(threads_make_the_plans_that_one_thread_makes) {
  constexpr int num_sizes = 40;  // more than a thread's cache of plans holds
  std::vector<std::string> found[num_test_threads], expected;
  run_in_threads([&](int thread) {
    for (int turn = 0; turn < 2; ++turn)
      for (int n = 0; n < num_sizes; ++n) found[thread].push_back(plans(n));
  });
  for (int turn = 0; turn < 2; ++turn)
    for (int n = 0; n < num_sizes; ++n) expected.push_back(plans(n));
  for (const auto& texts : found) CHECK(texts == expected);
  CHECK(num_runs >= 9 * 80 * (num_test_threads + 1));
}

TEST(every_thread_has_its_own_last_error) {
  std::string texts[num_test_threads];
  run_in_threads([&](int thread) {
    for (int i = 0; i < 1000; ++i) flowk_batch_transpose(x, out, -1 - thread, 1, 1, FLOWK_FLOAT32, nullptr);
    texts[thread] = flowk_last_error();
  });
  for (int thread = 0; thread < num_test_threads; ++thread)
    CHECK(texts[thread].find("batch = " + std::to_string(-1 - thread)) != std::string::npos);
}

TEST(an_exception_is_a_status) {
  CHECK(flowk::api::without_exceptions([]() -> Status { throw 1; }) == FLOWK_STATUS_INTERNAL_ERROR);
  CHECK(std::string(flowk_last_error()).find("exception") != std::string::npos);
}

TEST(blocks_of_a_launch_run_on_several_host_threads) {
  setenv("FLOWK_SIMT_THREADS", "4", 1);
  constexpr int num_blocks = 200, num_threads = 64;
  std::vector<int> in(num_blocks * num_threads);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
  run_in_threads([&](int) {
    std::vector<int> sums(in.size());
    for (int turn = 0; turn < 5; ++turn) {
      CHECK(flowk::core::launch(add_neighbours, {num_blocks, num_threads, num_threads * 4}, nullptr, in.data(),
                                sums.data())
                .ok());
      int num_wrong = 0;
      for (size_t i = 0; i < in.size(); ++i)
        num_wrong += sums[i] != in[i] + in[i / num_threads * num_threads + (i + 1) % num_threads];
      CHECK(num_wrong == 0);
    }
  });
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
