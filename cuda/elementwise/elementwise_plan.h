// SPDX-License-Identifier: Apache-2.0
// What flowk_unary() and its kin are to do (ElementwiseRequest) and how they will (ElementwisePlan). Pure host logic:
// no CUDA call, no allocation.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/launch_config.h"
#include "core/operands.h"
#include "core/status.h"
#include "flowk/detail/elementwise_params.h"

namespace flowk::elementwise {

// The C++ type that an operation computes in: one kernel serves all element types of it.
enum class ComputeClass : int32_t {
  float32,  // float8, float16, bfloat16, float32
  float64,
  int32,  // bool and all integers of 8 and 16 bits, and int32
  uint32,
  int64,
  uint64,
};

enum class ElementwiseArity : int32_t { copy, unary, binary, ternary };

// A checked call: every extent is >= 1, no two elements of the output share memory. Operand 0 is the output.
struct ElementwiseRequest {
  ElementwiseArity arity = ElementwiseArity::copy;
  int32_t op = 0;  // a flowk_unary_op, flowk_binary_op or flowk_ternary_op
  ComputeClass compute = ComputeClass::float32;
  double a = 0;
  double b = 0;
  const void* pointers[max_operands] = {};
  bool is_number[max_operands] = {};  // no memory, but the bytes of `numbers`; strides of 0
  uint32_t numbers[max_operands][2] = {};
  flowk_dtype dtypes[max_operands] = {};
  int32_t element_shifts[max_operands] = {};  // log2 of an element's bytes
  OperandShape shape;
};

enum class ElementwiseKernel : int32_t {
  flat_packs,      // all operands are one run, or one element
  periodic_packs,  // out is one run, and inputs that are not are repeated and cycled through
  row_walk,        // rows of whole packs that share an input: a thread walks down a column of packs
  strided_packs,   // rows of any strides, a thread a pack
  aligned_tiles,   // inputs whose neighbours stand along another dimension in shared memory, everything aligned
  shifted_tiles,   // the same at any alignment
};
constexpr int num_elementwise_kernels = 6;
const char* elementwise_kernel_name(ElementwiseKernel kernel);

struct ElementwisePlan {
  ElementwiseKernel kernel = ElementwiseKernel::flat_packs;
  ElementwiseArity arity = ElementwiseArity::copy;
  ComputeClass compute = ComputeClass::float32;
  int32_t op = 0;
  double a = 0;
  double b = 0;
  int32_t pack_elements = 0;
  int32_t tile_rows = 0;  // of tiles
  int32_t tile_columns = 0;
  LaunchConfig launch;
  // A kernel takes its part: flat_packs linear, periodic_packs the periods too, all others `strided`.
  ElementwiseParams<max_operands> linear;
  ElementwisePeriod periods[max_operands];
  StridedElementwiseParams<max_operands> strided;
  bool is_linear() const {
    return kernel == ElementwiseKernel::flat_packs || kernel == ElementwiseKernel::periodic_packs;
  }
  const ElementwiseOperand& operand(int k) const { return is_linear() ? linear.operands[k] : strided.operands[k]; }
};

// More elements than one launch of a strided kernel takes, whose indices have 31 bits: plan_elementwise() wants fewer,
// and split_request() halves a request.
constexpr int64_t max_strided_elements = int64_t{1} << 30;
bool needs_split(const ElementwiseRequest& request);
void split_request(const ElementwiseRequest& request, ElementwiseRequest* first, ElementwiseRequest* second);

// Chooses kernel, pack and launch. `request.shape` is simplified. `packs` forces how many a thread of a linear output
// owns, where it can; 0 leaves it to the plan.
void plan_elementwise(const ElementwiseRequest& request, const Device& device, int32_t packs, ElementwisePlan* plan);

// Enqueues the plan.
Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream);

// Writes the plan in words; as flowk_unary_explain().
void explain_elementwise(const ElementwisePlan& plan, const ElementwiseRequest& request, char* text, size_t text_bytes);

}  // namespace flowk::elementwise
