// SPDX-License-Identifier: Apache-2.0
// Elementwise operations: what a call asks for (ElementwiseRequest), how it is done (ElementwisePlan), and the
// functions that plan, run and explain. Host code: no CUDA call, no allocation.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <variant>

#include "core/device.h"
#include "core/iteration_space.h"
#include "core/mechanism.h"
#include "core/status.h"
#include "elementwise/elementwise_op_cost.h"
#include "flowk/detail/elementwise_params.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::elementwise {

// The C++ type that an operation computes in: one kernel serves all element types of it.
enum class ComputeClass : int32_t {
  float32,  // float8, float16, bfloat16, float32
  float64,
  int32,  // bool and all integers of 8, 16 and 32 bits
  int64,  // int64 and uint64
};

// functor: a kernel that is compiled for the call, so that every kernel and pack exists. A copy is unary.
enum class ElementwiseArity : int32_t { functor, unary, binary, ternary };

// A checked call: every extent is >= 1, and no two elements of the output share memory. Operand 0 is the output.
struct ElementwiseRequest {
  ElementwiseArity arity = ElementwiseArity::functor;
  int32_t op = 0;  // a flowk_unary_op, flowk_binary_op or flowk_ternary_op
  double a = 0;
  double b = 0;
  const void* pointers[max_operands] = {};
  bool is_number[max_operands] = {};  // not in memory: `numbers` holds the bytes, and all strides are 0
  uint32_t numbers[max_operands][2] = {};
  flowk_dtype dtypes[max_operands] = {};
  int32_t element_shifts[max_operands] = {};  // log2 of an element's bytes
  IterationSpace shape;
};

// The mechanisms. Each has a kernel of its name.

struct Rows {
  StridedElementwiseParams<max_operands> params;
};
struct Tiles : Rows {
  int32_t tile_rows;
  int32_t tile_columns;
};

// Every operand is contiguous, or one element.
struct Contiguous {
  ContiguousElementwiseParams<max_operands> params;
};
// `out` is contiguous. Each input is too, or repeats a run or the run's elements.
struct Broadcast {
  BroadcastElementwiseParams<max_operands> params;
};
struct BroadcastRows : Rows {};  // all rows share an input and are whole packs: one thread per column of packs
struct Strided : Rows {};        // rows of any strides: one pack per thread
struct AlignedTiles : Tiles {};  // inputs whose neighbours lie along another dimension, by shared memory; all aligned
struct ShiftedTiles : Tiles {};  // the same at any alignment

using ElementwiseMechanism = std::variant<Contiguous, Strided, Broadcast, AlignedTiles, ShiftedTiles, BroadcastRows>;

// The alternatives of ElementwiseMechanism, in the order of the kernels.
static_assert(names_mechanism<ElementwiseKernel::contiguous, Contiguous, ElementwiseMechanism>);
static_assert(names_mechanism<ElementwiseKernel::broadcast, Broadcast, ElementwiseMechanism>);
static_assert(names_mechanism<ElementwiseKernel::broadcast_rows, BroadcastRows, ElementwiseMechanism>);
static_assert(names_mechanism<ElementwiseKernel::strided, Strided, ElementwiseMechanism>);
static_assert(names_mechanism<ElementwiseKernel::aligned_tiles, AlignedTiles, ElementwiseMechanism>);
static_assert(names_mechanism<ElementwiseKernel::shifted_tiles, ShiftedTiles, ElementwiseMechanism>);
static_assert(std::variant_size_v<ElementwiseMechanism> == num_elementwise_kernels);
template <class Mechanism>
constexpr ElementwiseKernel kernel_of =
    static_cast<ElementwiseKernel>(ElementwiseMechanism(std::in_place_type<Mechanism>).index());
const char* elementwise_kernel_name(ElementwiseKernel kernel);

// Is this kernel compiled? The plan chooses among the compiled kernels, and the files of instantiate/ hold no others.
// Rare kernels are left out: a plan then takes shorter packs, or the next kernel.
constexpr bool has_kernel(ElementwiseKernel kernel, ElementwiseArity arity, ComputeClass compute, int32_t pack_elements,
                          OpCost cost) {
  const bool is_float32 = compute == ComputeClass::float32, is_int32 = compute == ComputeClass::int32;
  const bool is_ternary = arity == ElementwiseArity::ternary;
  if (is_float32 || is_int32 ? pack_elements != 4 && pack_elements != 8 && pack_elements != 16 : pack_elements != 2)
    return false;
  switch (kernel) {
    case ElementwiseKernel::contiguous:
      return pack_elements < 16 || is_int32 || (is_float32 && !is_ternary && cost == OpCost::light);
    case ElementwiseKernel::broadcast:
      if (arity == ElementwiseArity::unary) return false;
      if (is_float32) return pack_elements < 16;
      if (compute == ComputeClass::float64) return cost == OpCost::light;
      return !is_ternary && pack_elements != 8;
    case ElementwiseKernel::broadcast_rows:
      if (arity == ElementwiseArity::unary || cost != OpCost::light) return false;
      if (is_float32) return pack_elements < 16;
      return !is_ternary && (is_int32 ? pack_elements == 16 : compute == ComputeClass::float64);
    case ElementwiseKernel::strided: return pack_elements < (is_int32 ? 8 : 16);
    case ElementwiseKernel::aligned_tiles:
    case ElementwiseKernel::shifted_tiles:
      if (is_ternary) return false;
      if (is_float32) return pack_elements < 16;
      if (compute == ComputeClass::float64) return cost == OpCost::light;
      return pack_elements == 16 || (arity == ElementwiseArity::unary && pack_elements != 8);
  }
  return false;
}

// The files of instantiate/ that hold the kernels.
enum class ElementwiseFile : int32_t { unary, binary_contiguous, binary_strided, ternary };
constexpr ElementwiseFile file_of(ElementwiseArity arity, ElementwiseKernel kernel) {
  using enum ElementwiseKernel;
  if (arity == ElementwiseArity::unary) return ElementwiseFile::unary;
  if (arity == ElementwiseArity::ternary) return ElementwiseFile::ternary;
  return kernel == contiguous || kernel == broadcast || kernel == broadcast_rows ? ElementwiseFile::binary_contiguous
                                                                                 : ElementwiseFile::binary_strided;
}

constexpr ElementwiseArity arity_of(ElementwiseFile file) {
  return file == ElementwiseFile::unary     ? ElementwiseArity::unary
         : file == ElementwiseFile::ternary ? ElementwiseArity::ternary
                                            : ElementwiseArity::binary;
}

// The parameters of a kernel of kOperands operands: the first bytes of a plan's parameters, which are of max_operands.
template <int kOperands, template <int> class Params>
Params<kOperands> params_for(const Params<max_operands>& plan) {
  Params<kOperands> params;
  std::memcpy(static_cast<void*>(&params), &plan, sizeof params);
  return params;
}

struct ElementwisePlan {
  ElementwiseArity arity = ElementwiseArity::functor;
  ComputeClass compute = ComputeClass::float32;
  bool is_unsigned = false;    // integers of the compute class's width have no sign
  int32_t signed_operand = 0;  // of a comparison of int64 with uint64: 1 is x, 2 is y; else 0
  int32_t op = 0;
  double a = 0;
  double b = 0;
  int32_t pack_elements = 0;
  LaunchConfig launch;
  ElementwiseMechanism mechanism;

  ElementwiseKernel kernel() const { return static_cast<ElementwiseKernel>(mechanism.index()); }
  const ElementwiseOperand& operand(int k) const {
    return std::visit([k](const auto& chosen) -> const ElementwiseOperand& { return chosen.params.operands[k]; },
                      mechanism);
  }
  ElementwiseOperand& operand(int k) { return const_cast<ElementwiseOperand&>(std::as_const(*this).operand(k)); }
};

// Set in ElementwiseOperand::dtype of an output of floats that is converted from unsigned integers of the compute
// class's width.
constexpr int32_t from_unsigned = 1 << 16;

// Indices have 31 bits, except in contiguous kernels. plan_elementwise() takes at most this many elements, and
// split_request() halves a request of more.
constexpr int64_t max_strided_elements = int64_t{1} << 30;
bool needs_split(const ElementwiseRequest& request);
void split_request(const ElementwiseRequest& request, ElementwiseRequest* first, ElementwiseRequest* second);

// Chooses kernel, pack and launch. `request.shape` is simplified. `packs` is the number of packs per thread, if the
// kernel can have it; 0 lets the plan choose.
void plan_elementwise(const ElementwiseRequest& request, const Device& device, int32_t packs, ElementwisePlan* plan);

// Enqueues the plan.
Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream);

// Writes the plan as text, as flowk_unary_explain() does.
void explain_elementwise(const ElementwisePlan& plan, const ElementwiseRequest& request, char* text, size_t text_bytes);

}  // namespace flowk::elementwise
