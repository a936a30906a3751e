// SPDX-License-Identifier: Apache-2.0
// Permute: what a call asks for (PermuteRequest), how it will be done (PermutePlan), planning, running and explaining.
// Planning is pure host logic: no CUDA call, no allocation.
#pragma once

#include <optional>
#include <variant>

#include "core/conversion.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/mechanism.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "permute/permute_params.h"

namespace flowk::permute {

// The operands of a request's shape.
constexpr int dst_operand = 0;
constexpr int src_operand = 1;

// A checked call. The dimensions of `shape` are those of dst, outermost first; operand 0 is dst and operand 1 src.
// Every extent is >= 1 and no two elements of dst share memory.
struct PermuteRequest {
  const void* src = nullptr;
  void* dst = nullptr;
  int32_t element_bytes = 0;             // 1, 2, 4, 8 or 16; of src if elements are converted
  std::optional<Conversion> conversion;  // none: elements are moved as they are
  IterationSpace shape{2};
};

// The mechanisms. The kernel of each has its name. A conversion runs the same kernels with another element functor.

struct Rows {
  CopyParams params;
  friend bool operator==(const Rows&, const Rows&) = default;
};
template <class Params>
struct Tiles {
  Params params;
  float predicted_cost = 0;  // relative to a copy of the same bytes; 0: not predicted
  friend bool operator==(const Tiles&, const Tiles&) = default;
};

struct CopyRows : Rows {};  // the last dimension stays last: rows of aligned units, or of converted elements
// The same rows at any alignment: each 16-byte store is made from two 16-byte loads. `is_reversed`: the last dimension
// runs downwards in dst, and params.dst is the lowest address.
struct CopyShiftedRows : Rows {
  bool is_reversed = false;
  friend bool operator==(const CopyShiftedRows&, const CopyShiftedRows&) = default;
};
struct AlignedTile : Tiles<AlignedTileParams> {};  // a tile through shared memory, src and dst aligned to 16 bytes
struct GeneralTile : Tiles<GeneralTileParams> {};  // a tile of any runs, extents and alignment
struct ByteTile : Tiles<ByteTileParams> {};        // 1-byte elements at any alignment, transposed by words in registers
struct StridedTile : Tiles<StridedTileParams> {};  // element by element: src or dst has no dimension of stride 1

// 2 to 4 planes become pixels of as many channels (`interleaves`), or pixels become planes. src and dst are aligned to
// 16 bytes.
struct Channels {
  ChannelParams params;
  bool interleaves = false;
  friend bool operator==(const Channels&, const Channels&) = default;
};

using PermuteMechanism =
    std::variant<CopyRows, CopyShiftedRows, AlignedTile, GeneralTile, ByteTile, StridedTile, Channels>;

// The alternatives of PermuteMechanism, in its order.
enum class PermuteKernel : int32_t {
  copy_rows,
  copy_shifted_rows,
  aligned_tile,
  general_tile,
  byte_tile,
  strided_tile,
  channels,
};
static_assert(names_mechanism<PermuteKernel::copy_rows, CopyRows, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::copy_shifted_rows, CopyShiftedRows, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::aligned_tile, AlignedTile, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::general_tile, GeneralTile, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::byte_tile, ByteTile, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::strided_tile, StridedTile, PermuteMechanism>);
static_assert(names_mechanism<PermuteKernel::channels, Channels, PermuteMechanism>);
constexpr int num_permute_kernels = static_cast<int>(std::variant_size_v<PermuteMechanism>);
const char* permute_kernel_name(PermuteKernel kernel);

// A tile that was measured, and the time of the plan that the model chooses.
struct MeasuredTile {
  int32_t src_choice = -1;  // as plan_tile_candidate() numbers them; -1: the model's own choice is the fastest
  int32_t dst_choice = -1;
  double modelled_us = 0;
  double measured_us = 0;
  friend bool operator==(const MeasuredTile&, const MeasuredTile&) = default;
};

struct PermutePlan {
  int32_t unit_bytes = 0;      // the unit that the kernel moves, or the element of src that it converts
  int32_t dst_unit_bytes = 0;  // the same unless elements are converted
  std::optional<Conversion> conversion;
  LaunchConfig launch;
  PermuteMechanism mechanism;
  MeasuredTile measured;  // all 0 but the choices if the plan is not measured
  friend bool operator==(const PermutePlan&, const PermutePlan&) = default;

  PermuteKernel kernel() const { return static_cast<PermuteKernel>(mechanism.index()); }
  // The kernel parameters of a copy, of a tile or of channels; null if the mechanism has other parameters.
  const CopyParams* copy() const { return find<CopyParams>(); }
  const TileParams* tile() const { return find<TileParams>(); }
  const ChannelParams* channels() const { return find<ChannelParams>(); }
  // 0 if nothing was predicted.
  float predicted_cost() const;

 private:
  template <class Params>
  const Params* find() const {
    return std::visit(
        [](const auto& chosen) -> const Params* {
          const auto& params = launch_params(chosen.params);
          if constexpr (std::is_same_v<decltype(params), const Params&>) return &params;
          return nullptr;
        },
        mechanism);
  }
};

inline float PermutePlan::predicted_cost() const {
  return std::visit(
      [](const auto& chosen) {
        if constexpr (requires { chosen.predicted_cost; }) return chosen.predicted_cost;
        return 0.0f;
      },
      mechanism);
}

// Chooses the mechanism and its parameters. Never fails: every checked request has a plan.
void plan_permute(const PermuteRequest& request, const Device& device, PermutePlan* plan);

// The same plan, or the measured one, from the thread's plan cache, which is much faster than planning a tile. `*plan`
// is valid until the thread's next call. Fails if FLOWK_PLANS names a file that cannot be loaded, or FLOWK_LOG_SHAPES
// one that cannot be written.
Status cached_plan(const PermuteRequest& request, const Device& device, const PermutePlan** plan);

// Changes the plan so that it moves several pairs of tensors. The offsets are in bytes from the pointers of its
// request. False, with the plan unchanged, if it has too many dimensions or blocks.
bool set_pairs(int num_pairs, const int64_t* src_offsets, const int64_t* dst_offsets, PermutePlan* plan);

// Enqueues the plan. The second is the part of the first that converts, in a file of its own so that the two compile at
// once.
Status run_permute(const PermutePlan& plan, flowk_stream stream);
Status run_permute_convert(const PermutePlan& plan, flowk_stream stream);

// Writes the plan in words; as flowk_permute_explain() and flowk_permute_convert_explain().
void explain_permute(const PermutePlan& plan, const PermuteRequest& request, char* text, size_t text_bytes);

// Bool, the integers to 32 bits and the real floats.
bool is_convertible(flowk_dtype dtype);

// Does the call only move bits, so that it is a permute of src_dtype? It does if the types are equal, or integers of
// one size, and the scale is 1.
bool is_plain_move(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale);

// The conversion of a call that does more than move bits, between two convertible types.
Conversion conversion_of(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale);

}  // namespace flowk::permute
