// SPDX-License-Identifier: Apache-2.0
// PReLU with choices made by the caller, for tune_prelu.py: linked with the library's objects, never installed.
#include "core/device.h"
#include "prelu/prelu.h"

extern "C" {

// Forward with blocks of `num_threads`. Returns 0, or 3 for a failure.
FLOWK_API int flowk_bench_prelu_candidate(const void* x, const void* alpha, void* y, int64_t outer, int64_t channels,
                                          int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, int num_threads,
                                          flowk_stream stream) {
  using namespace flowk::prelu;
  Device device;
  if (!current_device(&device).ok()) return 3;
  PreluPlan plan;
  plan_prelu({x, alpha, y, outer, channels, inner, dtype, alpha_dtype}, device, &plan);
  const int64_t all_threads = plan.launch.num_blocks * plan.launch.num_threads;
  plan.launch.num_threads = num_threads;
  plan.launch.num_blocks = (all_threads + num_threads - 1) / num_threads;
  return run_prelu(plan, stream).ok() ? 0 : 3;
}

// Backward by the fields of PreluBackwardChoice in their order. Returns 0, 1 if the choice does not fit, 2 if the
// workspace is too small, 3 for a failure. If `text` is given, it receives the plan in words, and nothing runs.
FLOWK_API int flowk_bench_prelu_backward_candidate(const void* dy, const void* x, const void* alpha, void* dx,
                                                   void* dalpha, int64_t outer, int64_t channels, int64_t inner,
                                                   flowk_dtype dtype, flowk_dtype alpha_dtype, void* workspace,
                                                   size_t workspace_bytes, const int32_t* choice, char* text,
                                                   size_t text_bytes, flowk_stream stream) {
  using namespace flowk::prelu;
  Device device;
  if (!current_device(&device).ok()) return 3;
  const PreluBackwardRequest request = {dy,    x,        alpha, dx,    dalpha,     workspace,
                                        outer, channels, inner, dtype, alpha_dtype};
  PreluBackwardPlan plan;
  const PreluBackwardChoice wanted = {choice[0], choice[1], choice[2], choice[3], choice[4], choice[5], choice[6]};
  if (!plan_prelu_backward(request, device, wanted, &plan)) return 1;
  if (static_cast<size_t>(plan.workspace_bytes) > workspace_bytes) return 2;
  if (text != nullptr) {
    explain_prelu_backward(plan, text, text_bytes);
    return 0;
  }
  return run_prelu_backward(plan, stream).ok() ? 0 : 3;
}

}  // extern "C"
