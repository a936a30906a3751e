// SPDX-License-Identifier: Apache-2.0
// flowk_masked_softmax() and its backward: what to do (SoftmaxRequest), how (SoftmaxPlan), doing it (run_softmax).
// Planning is host code without CUDA calls or allocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "core/device.h"
#include "core/mechanism.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "softmax/softmax_params.h"

namespace flowk::softmax {

// A checked call. Dimensions are those before the last one, outermost first. Strides are in bytes; those of softmax_row
// in rows. Every extent and `columns` is >= 1.
struct SoftmaxRequest {
  bool backward = false;
  bool log_softmax = false;
  bool batch_invariant = false;           // no sum depends on the rows' number or addresses
  flowk_dtype in_dtype = FLOWK_FLOAT32;   // forward: of x; backward: of dy and y
  flowk_dtype out_dtype = FLOWK_FLOAT32;  // forward: of y; backward: of dx
  flowk_dtype bias_dtype = FLOWK_FLOAT32;
  const void* pointers[num_softmax_operands] = {};  // nullptr: not given
  int32_t rank = 0;
  int64_t extents[max_rank];
  int64_t strides[num_softmax_operands][max_rank];
  int64_t columns = 0;
  // Bytes from column to column of x, out, and y of a gradient, if they are not all neighbours; then there is no mask.
  bool has_strided_columns = false;
  int64_t column_strides[softmax_bias_or_y + 1] = {};
  double scale = 1;
  double softcap = 0;                                      // 0: none
  const void* numbers[num_row_numbers] = {};               // nullptr: not given
  int32_t number_strides[num_row_numbers][max_rank] = {};  // in elements
  void* dsinks = nullptr;                                  // as softmax_lse
  const void* saved_lse = nullptr;
  int32_t lengths_bytes = 0;  // of one length, 4 or 8
  bool lengths_from_right = false;
  // causal and window keep columns [row + diagonal_begin, row + diagonal_end); both are within +-2^61.
  bool has_diagonal = false;
  int64_t diagonal_begin = 0;
  int64_t diagonal_end = 0;
};

using SoftmaxMechanism = std::variant<RowInRegisters, RowInShared, StagedRows, TwoPassRow, RowsByVectors, RowsInLanes,
                                      SplitRow, PersistentRows, FramedRows, StridedRows>;

// SoftmaxKernel numbers the alternatives.
static_assert(names_mechanism<SoftmaxKernel::row_in_registers, RowInRegisters, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::row_in_shared, RowInShared, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::staged_rows, StagedRows, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::two_pass_row, TwoPassRow, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::rows_by_vectors, RowsByVectors, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::rows_in_lanes, RowsInLanes, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::split_row, SplitRow, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::persistent_rows, PersistentRows, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::framed_rows, FramedRows, SoftmaxMechanism>);
static_assert(names_mechanism<SoftmaxKernel::strided_rows, StridedRows, SoftmaxMechanism>);
const char* softmax_kernel_name(SoftmaxKernel kernel);

// How a row is spread over threads.
struct SoftmaxConfig {
  SoftmaxMechanism mechanism;
  int32_t lanes_per_row = 0;  // threads per block that work on one row
  int32_t block_threads = 0;
  int32_t cluster_blocks = 1;
  int32_t resident_blocks = 0;  // the most blocks per multiprocessor at a time; 0: no limit

  SoftmaxKernel kernel() const { return static_cast<SoftmaxKernel>(mechanism.index()); }
  // Of a config with this mechanism.
  template <class Mechanism>
  const Mechanism& as() const {
    return *std::get_if<Mechanism>(&mechanism);
  }
  friend bool operator==(const SoftmaxConfig&, const SoftmaxConfig&) = default;
};

struct SoftmaxPlan {
  SoftmaxConfig config;
  int32_t kernel_row = -1;  // of softmax_kernels
  SoftmaxMask mask = SoftmaxMask::none;
  bool backward = false;
  flowk_dtype in_dtype = FLOWK_FLOAT32;
  flowk_dtype out_dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  SoftmaxParams params;
  friend bool operator==(const SoftmaxPlan&, const SoftmaxPlan&) = default;
};

// Every checked request has a plan.
void plan_softmax(const SoftmaxRequest& request, const Device& device, SoftmaxPlan* plan);

// The plan with a given config, for tests and tuning; false if the config cannot do the request.
[[nodiscard]] bool plan_softmax_as(const SoftmaxRequest& request, const Device& device, const SoftmaxConfig& config,
                                   SoftmaxPlan* plan);

// Enqueues the plan.
Status run_softmax(const SoftmaxPlan& plan, flowk_stream stream);

// Writes the plan in words, as flowk_masked_softmax_explain().
void explain_softmax(const SoftmaxPlan& plan, const SoftmaxRequest& request, char* text, size_t text_bytes);

}  // namespace flowk::softmax
