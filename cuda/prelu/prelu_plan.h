// SPDX-License-Identifier: Apache-2.0
// What flowk_prelu() and flowk_prelu_backward() are to do (the requests) and how they will (the plans). Pure host
// logic: no CUDA call, no allocation.
//
// The tensors are (outer, channels, inner), contiguous. They are walked in packs: 16 bytes that are aligned in the
// output. Pack k holds the elements [k * V - lead, k * V - lead + V), V = 16 bytes / element, where `lead` counts the
// elements from a multiple of 16 bytes to the output's first; elements before 0 and past the last do not exist. The
// *position* of an element is its index plus `phase` plus `lead`, where phase + lead is a multiple of
// channels * inner: pack k begins at position k * V + phase, which is never negative, and an element's channel is
// (position / inner) % channels.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/divide.h"
#include "core/launch_config.h"
#include "core/status.h"

namespace flowk::prelu {

constexpr int64_t pack_bytes = 16;

// Threads a block, at most; each owns one pack at a time. Blocks of 4 KB in memory order reach 1.00 of cudaMemcpyAsync
// (H200).
constexpr int max_prelu_threads = 256;
constexpr int max_backward_threads = 512;
constexpr int max_span_threads = 256;
constexpr int max_row_sum_threads = 1024;
constexpr int line_packs = 8;  // 128 bytes
constexpr int wide_tile_packs = 32;
constexpr int max_cluster_blocks = 8;  // that every GPU with clusters has

// A checked call. Every extent is >= 1; `dtype` is float16, bfloat16, float32 or float64, `alpha_dtype` the same type,
// or float32 beside the 16-bit ones.
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

// The same; `dx` or `dalpha` may be null, `workspace` only where the plan needs none. outer and inner may be 0.
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

// How a pack finds its alphas.
enum class AlphaAccess : int32_t {
  one_per_pack,     // no pack holds two channels
  two_per_pack,     // inner >= V: a pack holds one channel or two
  vector_per_pack,  // inner = 1: a pack's alphas are neighbours, and aligned as a pack
  one_per_element,
};

// Where packs stand in the tensor, for 32-bit positions and for 64-bit ones.
struct PackGrid {
  int64_t num_elements = 0;
  int64_t channels = 0;
  int64_t inner = 0;
  int64_t phase = 0;
  int32_t lead = 0;
  bool is_wide = false;  // positions need more than 31 bits
  Divider by_inner;
  Divider by_channels;
  int64_t num_planes = 0;      // outer * channels
  int64_t missing_planes = 0;  // in the positions before element 0
  WideDivider by_inner_wide;
  WideDivider by_channels_wide;
  friend bool operator==(const PackGrid&, const PackGrid&) = default;
};

// ---- forward --------------------------------------------------------------------------------------------------------

struct PreluParams {
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* y = nullptr;
  int32_t x_shift = 0;  // bytes from a multiple of 16 to where x has the first element of a pack
  AlphaAccess alpha_access = AlphaAccess::one_per_element;
  bool has_float_alpha = false;  // beside 16-bit elements
  PackGrid grid;
  friend bool operator==(const PreluParams&, const PreluParams&) = default;
};

struct PreluPlan {
  // The kernel for any alignment, position and type of alpha. Else no pack has elements that do not exist, all tensors
  // are aligned as the packs are, and alpha has the type of x.
  bool is_general = false;
  flowk_dtype dtype = FLOWK_FLOAT32;
  flowk_dtype alpha_dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  PreluParams params;
  friend bool operator==(const PreluPlan&, const PreluPlan&) = default;
};

void plan_prelu(const PreluRequest& request, const Device& device, PreluPlan* plan);
Status run_prelu(const PreluPlan& plan, flowk_stream stream);
void explain_prelu(const PreluPlan& plan, char* text, size_t text_bytes);

// ---- backward -------------------------------------------------------------------------------------------------------

enum class PreluBackwardKernel : int32_t {
  planes_of_channels,  // a block, or a cluster of them, takes all planes of its channels
  spans_of_planes,     // a warp takes a span of packs that lie in one plane of `inner` elements, or in two
  packs_of_planes,     // a block takes a span of packs; each plane of `inner` elements in it gives one partial sum
  packs_of_columns,    // a thread keeps its place in the row of channels * inner elements and steps over rows
  warp_columns,        // a warp takes a column of packs, a lane every 32nd row of it: inner = 1 and few rows
  nothing,             // no elements: dalpha alone
};
constexpr int num_prelu_backward_kernels = 6;
const char* prelu_backward_kernel_name(PreluBackwardKernel kernel);

// The tensors of a backward pass. Sums are float, or double for float64.
struct PreluBackwardTensors {
  PackGrid grid;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* dx = nullptr;        // null: not wanted
  void* dalpha = nullptr;    // set where the kernel finishes it: each channel has one sum
  void* partials = nullptr;  // otherwise; both null: not wanted
  int32_t dy_shift = 0;      // as PreluParams::x_shift
  int32_t x_shift = 0;
  bool has_float_alpha = false;  // as PreluParams::has_float_alpha, of dalpha too
  friend bool operator==(const PreluBackwardTensors&, const PreluBackwardTensors&) = default;
};

// A row is what one of `outer` has: channels * inner elements, whole packs. A block takes `tile_channels` neighbouring
// channels, in up to `tile_packs` packs of a row, and `rows_per_slab` neighbouring rows, `tile_rows` of them at a time.
// The slabs of a tile are a cluster.
struct ChannelPlaneParams {
  PreluBackwardTensors tensors;
  int32_t outer = 0;
  int32_t channels = 0;
  int32_t inner = 0;
  int32_t row_packs = 0;
  int32_t tile_channels = 0;
  int32_t tile_rows = 0;
  int32_t rows_per_slab = 0;
  int32_t log2_num_slabs = 0;
  int32_t log2_packs_at_once = 0;  // of a row, that the lanes of a warp sum up
  int32_t num_sums = 0;            // in shared memory
  int64_t step_packs = 0;          // between a thread's rows
  Divider tile_packs;
  Divider by_inner;
  friend bool operator==(const ChannelPlaneParams&, const ChannelPlaneParams&) = default;
};

// A warp takes `span_elements` neighbouring elements, whole packs and no more than a plane has. A plane lies in up to
// `partials_per_plane` spans; partials are (channels, outer, partials_per_plane).
struct SpanParams {
  PreluBackwardTensors tensors;
  int32_t span_elements = 0;
  int64_t partials_per_plane = 1;
  int64_t outer = 0;
  int64_t missing_outer = 0;  // in the positions before element 0
  Divider by_span;            // span_elements
  WideDivider by_span_wide;
  friend bool operator==(const SpanParams&, const SpanParams&) = default;
};

// A block takes `span_packs` neighbouring packs, a thread one. A plane lies in up to `partials_per_plane` spans;
// partials are (outer * partials_per_plane, channels).
struct PlaneParams {
  PreluBackwardTensors tensors;
  int32_t span_packs = 0;
  int64_t partials_per_plane = 1;
  int32_t log2_threads_per_plane = 5;  // of the threads that sum a plane's sums up, at most 32
  Divider by_span;                     // elements of a span
  WideDivider by_span_wide;
  friend bool operator==(const PlaneParams&, const PlaneParams&) = default;
};

// How the packs of packs_of_columns lie in the tensors.
enum class ColumnPacks : int32_t {
  whole_channels,  // all exist, aligned, and so are their alphas
  aligned,         // those that exist in part are the first and the last
  general,         // aligned in one tensor and not in another, or of any type of alpha, or float64
};

// A pack of which a part exists.
struct ColumnEdge {
  int64_t row = 0;
  int64_t column = 0;
  friend bool operator==(const ColumnEdge&, const ColumnEdge&) = default;
};

// The packs are rows of `row_packs`, a row is whole periods of channels * inner elements: its columns. A block takes
// `tile_packs` neighbouring packs of `rows_per_slab` neighbouring rows. Partials are (slabs, num_columns), which is
// (slabs * periods, channels, inner); a cluster's slabs count as one. Or a warp takes one pack of all rows, and only
// what comes before tile_packs counts.
struct ColumnParams {
  PreluBackwardTensors tensors;
  void* sums = nullptr;  // dalpha or partials; null: not wanted
  int32_t log2_cluster_blocks = 0;
  int64_t num_rows = 0;  // the last may be short
  int64_t row_packs = 0;
  bool has_wide_rows = false;  // their positions need more than 31 bits
  int64_t num_columns = 0;
  int32_t first_column = 0;  // the first element's, where one row holds all: columns are not elements before it then
  int64_t step_packs = 0;    // between a thread's rows
  int32_t tile_packs = 8;    // or 32
  int32_t rows_per_slab = 0;
  bool is_dalpha = false;
  bool is_folded = false;      // partials are (channels, blocks): a block sums up its columns of a channel
  int32_t first_pack = 0;      // the first that exists as a whole, where those that do not are left to the edges
  int64_t num_whole_rows = 0;  // of packs before the last edge
  int64_t last_row_packs = 0;
  int32_t num_edges = 0;
  ColumnEdge edges[2];
  Divider num_tiles;
  friend bool operator==(const ColumnParams&, const ColumnParams&) = default;
};

// How the partials of a channel lie, each kind summed up by a kernel of its own.
enum class SumKernel : int32_t {
  near_rows,  // (channels, rows)
  runs,       // (rows, channels, inner), where a run is not a sector
  far_rows,   // (rows, channels)
};

// Sums of partials, over vectors of `rows_per_vector` rows each. In the order in which a kernel needs them: they come
// by lines of 64 bytes, each a wait of its own.
struct PartialSumParams {
  const void* partials = nullptr;
  int64_t num_rows = 0;
  int64_t channels = 0;
  int64_t row_stride = 0;           // in partials
  int64_t column_stride = 0;        // between channels
  int32_t log2_block_channels = 0;  // channels of a block, at most 32
  Divider run;                      // neighbouring partials of a channel, of SumKernel::runs
  void* sums = nullptr;
  flowk_dtype sums_dtype = FLOWK_FLOAT32;
  int64_t rows_per_vector = 0;
  Divider num_vectors;
  friend bool operator==(const PartialSumParams&, const PartialSumParams&) = default;
};

// One kernel over x and dy, then up to two that sum its partials up.
struct PreluBackwardPlan {
  PreluBackwardKernel kernel = PreluBackwardKernel::packs_of_planes;
  bool is_general = false;  // of packs_of_planes: as PreluPlan::is_general
  flowk_dtype dtype = FLOWK_FLOAT32;
  flowk_dtype alpha_dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  int32_t packs_at_once = 1;  // of x and of dy, that a thread loads before it uses any: 1, 2, 3, 4 or 8
  ColumnPacks column_packs = ColumnPacks::whole_channels;
  bool span_is_in_one_plane = false;  // spans are equal shares of planes
  ChannelPlaneParams channel_planes;
  SpanParams spans;
  PlaneParams planes;
  ColumnParams columns;
  int32_t num_sums = 0;  // kernels after the first; the last writes dalpha
  SumKernel sum_kernels[2] = {};
  bool sums_vectors[2] = {};  // has more than one vector, or sums of float64
  LaunchConfig sum_launches[2];
  PartialSumParams sums[2];
  int64_t workspace_bytes = 0;
  friend bool operator==(const PreluBackwardPlan&, const PreluBackwardPlan&) = default;
};

// What a bench may choose in place of the planner; 0 leaves the choice to it.
struct PreluBackwardChoice {
  int32_t kernel = 0;         // 1 + PreluBackwardKernel
  int32_t max_threads = 0;    // a block
  int32_t rows_per_slab = 0;  // of packs_of_columns
  int32_t cluster_blocks = 0;
  int32_t tile_packs = 0;     // of planes_of_channels: at most; of packs_of_columns: 32 for wide ones
  int32_t overlap = 0;        // 1: no kernel starts early; 2: they do
  int32_t packs_at_once = 0;  // of all kernels but packs_of_planes
};

// Chooses kernels and launches. plan->workspace_bytes is what it needs at request.workspace. False, and no plan, where
// a forced choice does not fit; without one it never fails.
bool plan_prelu_backward(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                         PreluBackwardPlan* plan);

// The most workspace of a request of these sizes, wherever its pointers lie.
int64_t prelu_backward_workspace_bytes(const PreluBackwardRequest& request, const Device& device);

Status run_prelu_backward(const PreluBackwardPlan& plan, flowk_stream stream);
void explain_prelu_backward(const PreluBackwardPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::prelu
