// SPDX-License-Identifier: Apache-2.0
// PReLU, forward and backward: requests, plans, run, explain. plan/ chooses (host code: no CUDA call, no allocation),
// kernels/ computes, prelu_params.h is what lies between.
#pragma once

#include <variant>

#include "core/device.h"
#include "core/mechanism.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "prelu/prelu_params.h"

namespace flowk::prelu {

// A checked call. Every extent is >= 1; `dtype` is float16, bfloat16, float32 or float64, `alpha_dtype` the same type,
// or float32 if `dtype` has 16 bits.
struct PreluRequest {
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* y = nullptr;
  int64_t outer = 0;
  int64_t channels = 0;
  int64_t inner = 0;
  flowk_dtype dtype = FLOWK_FLOAT32;
  flowk_dtype alpha_dtype = FLOWK_FLOAT32;
};

// The same; `dx` or `dalpha` may be null, `workspace` only if the plan needs none. outer and inner may be 0.
struct PreluBackwardRequest {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* dx = nullptr;
  void* dalpha = nullptr;
  void* workspace = nullptr;
  int64_t outer = 0;
  int64_t channels = 0;
  int64_t inner = 0;
  flowk_dtype dtype = FLOWK_FLOAT32;
  flowk_dtype alpha_dtype = FLOWK_FLOAT32;
};

// ---- forward --------------------------------------------------------------------------------------------------------

// The general form of a kernel takes any alignment, position and type of alpha. The special form needs tensors that are
// aligned and end with a whole vector, positions of 31 bits, and alphas of the type of x.
struct PreluPlan {
  bool is_general = false;
  flowk_dtype dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  ForwardParams params;
  friend bool operator==(const PreluPlan&, const PreluPlan&) = default;
};

void plan_prelu(const PreluRequest& request, const Device& device, PreluPlan* plan);
Status run_prelu(const PreluPlan& plan, flowk_stream stream);
void explain_prelu(const PreluPlan& plan, char* text, size_t text_bytes);

// ---- backward -------------------------------------------------------------------------------------------------------

// One struct per mechanism.

// A block, or a cluster of blocks, takes all elements of its channels and finishes their sums.
struct ByChannel {
  int32_t vectors_in_flight = 3;  // of x and of dy, that a thread loads before it uses any: 3 or 4
  ByChannelParams params;
  friend bool operator==(const ByChannel&, const ByChannel&) = default;
};

// A warp takes a span of vectors, which lies in one plane of `inner` elements or in two.
struct BySpan {
  int32_t vectors_per_lane = 2;  // at most max_span_vectors()
  bool is_in_one_plane = false;  // spans are equal shares of planes
  BySpanParams params;
  friend bool operator==(const BySpan&, const BySpan&) = default;
};

// A block takes a span of vectors; each plane in it gives one partial sum.
struct ByPlane {
  bool is_general = false;  // as PreluPlan::is_general
  ByPlaneParams params;
  friend bool operator==(const ByPlane&, const ByPlane&) = default;
};

// A thread keeps its vector of columns and steps over rows of channels * inner elements.
struct ByColumn {
  // The special form needs alphas of x's type, and tensors with the same alignment, in which only the first and the
  // last vector may be partial.
  bool is_general = false;
  ByColumnParams params;
  friend bool operator==(const ByColumn&, const ByColumn&) = default;
};

// A warp takes one vector of columns, a lane every 32nd row: inner = 1, at most 128 rows.
struct ByWarpColumn {
  ByWarpColumnParams params;
  friend bool operator==(const ByWarpColumn&, const ByWarpColumn&) = default;
};

// There are no elements: only dalpha is written.
struct NoElements {
  friend bool operator==(const NoElements&, const NoElements&) = default;
};

using Gradient = std::variant<ByChannel, BySpan, ByPlane, ByColumn, ByWarpColumn, NoElements>;
// The index into Gradient.
enum class PreluBackwardKernel : int32_t {
  by_channel,
  by_span,
  by_plane,
  by_column,
  by_warp_column,
  no_elements,
};
static_assert(names_mechanism<PreluBackwardKernel::by_channel, ByChannel, Gradient>);
static_assert(names_mechanism<PreluBackwardKernel::by_span, BySpan, Gradient>);
static_assert(names_mechanism<PreluBackwardKernel::by_plane, ByPlane, Gradient>);
static_assert(names_mechanism<PreluBackwardKernel::by_column, ByColumn, Gradient>);
static_assert(names_mechanism<PreluBackwardKernel::by_warp_column, ByWarpColumn, Gradient>);
static_assert(names_mechanism<PreluBackwardKernel::no_elements, NoElements, Gradient>);
constexpr int num_prelu_backward_kernels = static_cast<int>(std::variant_size_v<Gradient>);
const char* prelu_backward_kernel_name(PreluBackwardKernel kernel);

// One kernel that sums partials.
struct ReducePartials {
  PartialLayout layout = PartialLayout::rows_last;
  LaunchConfig launch;
  ReducePartialsParams params;
  friend bool operator==(const ReducePartials&, const ReducePartials&) = default;
};

// One kernel over x and dy, then up to two that sum its partials; the last kernel writes dalpha.
struct PreluBackwardPlan {
  Gradient gradient = NoElements();
  flowk_dtype dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  int32_t num_reductions = 0;
  ReducePartials reductions[2];
  int64_t workspace_bytes = 0;
  friend bool operator==(const PreluBackwardPlan&, const PreluBackwardPlan&) = default;
  PreluBackwardKernel kernel() const { return static_cast<PreluBackwardKernel>(gradient.index()); }
};

// What a bench may choose instead of the planner. 0: the planner chooses.
struct PreluBackwardChoice {
  int32_t kernel = 0;          // 1 + PreluBackwardKernel
  int32_t max_threads = 0;     // per block
  int32_t rows_per_block = 0;  // by_column
  int32_t cluster_blocks = 0;
  int32_t tile_vectors = 0;       // by_channel: at most
  int32_t overlap = 0;            // 1: no kernel starts early; 2: they do
  int32_t vectors_in_flight = 0;  // by_channel, by_span
};

// Chooses kernels and launches. The plan needs plan->workspace_bytes at request.workspace. Returns false, and no plan,
// if a forced choice does not fit; without one it never fails.
bool plan_prelu_backward(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                         PreluBackwardPlan* plan);

// The most workspace that a request of these sizes can need, wherever its pointers lie.
int64_t prelu_backward_workspace_bytes(const PreluBackwardRequest& request, const Device& device);

Status run_prelu_backward(const PreluBackwardPlan& plan, flowk_stream stream);
void explain_prelu_backward(const PreluBackwardPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::prelu
