// SPDX-License-Identifier: Apache-2.0
// An elementwise call as a row of a test's table, its operands in memory, and the request that the C ABI would make.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_op_info.h"
#include "heap_memory.h"

struct CaseOperand {
  flowk_dtype dtype = FLOWK_FLOAT32;
  std::vector<int64_t> strides = {};  // in elements; none: C order
  int64_t lead_elements = 0;          // from a multiple of 128 bytes to its lowest element
};

struct ElementwiseCase {
  const char* why;
  flowk::elementwise::ElementwiseArity arity;
  int32_t op;
  std::vector<int64_t> shape;
  std::vector<CaseOperand> operands;  // out, then the inputs
};

// A row of tests/cases/elementwise_cases.json: for binary operations in every type, and for copies of its last operand.
struct ElementwiseLayout {
  const char* why;
  std::vector<int64_t> shape;
  std::vector<CaseOperand> operands;  // out, x, y
  bool big = false;                   // too big for the executor under sanitizers
  const char* mechanism = "";         // that the planner chooses for a binary operation
  flowk_dtype mechanism_dtype = FLOWK_FLOAT32;
};

// The parameters of a plan that is contiguous or broadcast, and of any other; null of the others.
template <class Params>
const Params* params_of(const flowk::elementwise::ElementwisePlan& plan) {
  return std::visit(
      [](const auto& chosen) -> const Params* {
        if constexpr (std::is_base_of_v<Params, std::remove_cvref_t<decltype(chosen.params)>>) return &chosen.params;
        return nullptr;
      },
      plan.mechanism);
}
inline const auto* linear(const flowk::elementwise::ElementwisePlan& plan) {
  return params_of<flowk::detail::LinearPacks>(plan);
}
inline const auto* strided(const flowk::elementwise::ElementwisePlan& plan) {
  return params_of<flowk::detail::StridedElementwiseParams<flowk::elementwise::max_operands>>(plan);
}

inline int64_t bytes_of(flowk_dtype dtype) { return flowk::elementwise::dtype_info(dtype).element_bytes; }

inline std::vector<int64_t> strides_of(const ElementwiseCase& row, const CaseOperand& operand) {
  if (!operand.strides.empty() || row.shape.empty()) return operand.strides;
  std::vector<int64_t> strides(row.shape.size());
  flowk::elementwise::contiguous_strides(static_cast<int>(row.shape.size()), row.shape.data(), strides.data());
  return strides;
}

// Calls visit(T *) with the element at `address` as what `dtype` says.
template <class Visit>
void visit_element(flowk_dtype dtype, void* address, Visit visit) {
  switch (dtype) {
    case FLOWK_INT8: return visit(static_cast<int8_t*>(address));
    case FLOWK_INT16: return visit(static_cast<int16_t*>(address));
    case FLOWK_INT32: return visit(static_cast<int32_t*>(address));
    case FLOWK_INT64: return visit(static_cast<int64_t*>(address));
    case FLOWK_UINT16: return visit(static_cast<uint16_t*>(address));
    case FLOWK_UINT32: return visit(static_cast<uint32_t*>(address));
    case FLOWK_UINT64: return visit(static_cast<uint64_t*>(address));
    case FLOWK_FLOAT16: return visit(static_cast<__half*>(address));
    case FLOWK_BFLOAT16: return visit(static_cast<__nv_bfloat16*>(address));
    case FLOWK_FLOAT32: return visit(static_cast<float*>(address));
    case FLOWK_FLOAT64: return visit(static_cast<double*>(address));
    case FLOWK_FLOAT8_E4M3: return visit(static_cast<__nv_fp8_e4m3*>(address));
    case FLOWK_FLOAT8_E5M2: return visit(static_cast<__nv_fp8_e5m2*>(address));
    default: return visit(static_cast<uint8_t*>(address));
  }
}

inline double element_of(flowk_dtype dtype, const void* address) {
  double value = 0;
  visit_element(dtype, const_cast<void*>(address), [&](auto* element) {
    if constexpr (std::is_arithmetic_v<std::remove_pointer_t<decltype(element)>>)
      value = static_cast<double>(*element);
    else
      value = static_cast<double>(static_cast<float>(*element));
  });
  return value;
}

inline void set_element(flowk_dtype dtype, void* address, double value) {
  visit_element(dtype, address, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    if constexpr (std::is_arithmetic_v<T>)
      *element = static_cast<T>(value);
    else
      *element = T(static_cast<float>(value));
  });
}

// One operand's memory, on the heap: from `lead_elements` past a multiple of 128 bytes to the last element and not a
// byte more. What lies before may not be read either.
class OperandMemory {
 public:
  OperandMemory(const ElementwiseCase& row, const CaseOperand& operand) {
    const int64_t element_bytes = bytes_of(operand.dtype);
    const std::vector<int64_t> strides = strides_of(row, operand);
    int64_t lowest = 0, highest = element_bytes;
    for (size_t d = 0; d < row.shape.size(); ++d) {
      const int64_t reach = strides[d] * (row.shape[d] - 1) * element_bytes;
      (reach < 0 ? lowest : highest) += reach;
    }
    const int64_t lead_bytes = operand.lead_elements * element_bytes;
    num_bytes_ = static_cast<size_t>(lead_bytes + highest - lowest);
    num_poisoned_ = static_cast<size_t>(lead_bytes / 8 * 8);
    void* bytes = nullptr;
    if (posix_memalign(&bytes, 128, num_bytes_) != 0) std::abort();
    bytes_ = static_cast<unsigned char*>(bytes);
    std::memset(bytes_, 0x2A, num_bytes_);
    first_ = bytes_ + lead_bytes - lowest;
    ASAN_POISON_MEMORY_REGION(bytes_, num_poisoned_);
  }
  OperandMemory(const OperandMemory&) = delete;
  OperandMemory& operator=(const OperandMemory&) = delete;
  ~OperandMemory() {
    ASAN_UNPOISON_MEMORY_REGION(bytes_, num_poisoned_);
    std::free(bytes_);
  }
  unsigned char* first() const { return first_; }  // the element with all indices 0
  bool same_bytes(const OperandMemory& other) const {
    return num_bytes_ == other.num_bytes_ && num_poisoned_ == other.num_poisoned_ &&
           std::memcmp(bytes_ + num_poisoned_, other.bytes_ + num_poisoned_, num_bytes_ - num_poisoned_) == 0;
  }

 private:
  size_t num_bytes_ = 0, num_poisoned_ = 0;
  unsigned char* bytes_ = nullptr;
  unsigned char* first_ = nullptr;
};

// The request over pointers to the elements with all indices 0.
inline flowk::elementwise::ElementwiseRequest make_request(const ElementwiseCase& row,
                                                           const std::vector<const void*>& pointers, double a = 0,
                                                           double b = 0) {
  flowk::elementwise::ElementwiseRequest request;
  request.arity = row.arity;
  request.op = row.op;
  request.a = a;
  request.b = b;
  request.shape.num_operands = static_cast<int>(row.operands.size());
  request.shape.rank = static_cast<int>(row.shape.size());
  for (size_t k = 0; k < row.operands.size(); ++k) {
    const std::vector<int64_t> strides = strides_of(row, row.operands[k]);
    request.pointers[k] = pointers[k];
    request.dtypes[k] = row.operands[k].dtype;
    request.element_shifts[k] = __builtin_ctzll(static_cast<uint64_t>(bytes_of(row.operands[k].dtype)));
    for (size_t d = 0; d < row.shape.size(); ++d) {
      request.shape.extents[d] = row.shape[d];
      request.shape.strides[k][d] = strides[d];
    }
  }
  simplify(&request.shape);
  return request;
}
