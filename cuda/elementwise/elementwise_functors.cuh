// SPDX-License-Identifier: Apache-2.0
// flowk's own functors: the operation is a run-time switch, made from flowk/elementwise_ops.h and taken once a pack.
#pragma once

#include "elementwise/elementwise_formulas.cuh"
#include "flowk/flowk.h"

namespace flowk {

// What an operation takes, as elementwise_ops.h writes it.
namespace takes {
constexpr int B = 1, I = 2, F = 4;
constexpr int BI = B | I, IF = I | F, BIF = B | I | F;
}  // namespace takes

// Operations share a kernel with those of their weight, so that none pays another's registers.
enum class OpWeight { light, heavy, heaviest };

__host__ __device__ constexpr OpWeight weight_of(flowk_unary_op op) {
  switch (op) {
    case FLOWK_UNARY_SIN:
    case FLOWK_UNARY_COS: return OpWeight::heaviest;
    case FLOWK_UNARY_SQRT:
    case FLOWK_UNARY_RSQRT:
    case FLOWK_UNARY_RECIPROCAL:
    case FLOWK_UNARY_EXP:
    case FLOWK_UNARY_LOG:
    case FLOWK_UNARY_TANH:
    case FLOWK_UNARY_SIGMOID:
    case FLOWK_UNARY_ELU:
    case FLOWK_UNARY_GELU:
    case FLOWK_UNARY_GELU_TANH:
    case FLOWK_UNARY_SILU:
    case FLOWK_UNARY_SOFTPLUS: return OpWeight::heavy;
    default: return OpWeight::light;
  }
}

__host__ __device__ constexpr OpWeight weight_of(flowk_binary_op op) {
  switch (op) {
    case FLOWK_BINARY_POW: return OpWeight::heaviest;
    case FLOWK_BINARY_DIV:
    case FLOWK_BINARY_GELU_GRAD:
    case FLOWK_BINARY_GELU_TANH_GRAD:
    case FLOWK_BINARY_SILU_GRAD:
    case FLOWK_BINARY_SILU_MUL: return OpWeight::heavy;
    default: return OpWeight::light;
  }
}

// Blocks that an SM is to hold: 8 leave a thread 32 registers, 6 40, 5 48, 4 64.
constexpr int resident_blocks_of(OpWeight weight, int element_bytes) {
  if (weight == OpWeight::light) return element_bytes == 8 ? 5 : 6;
  return weight == OpWeight::heavy && element_bytes == 4 ? 5 : 4;
}

template <class Compute>
constexpr int taken_as = std::is_floating_point_v<Compute> ? takes::F : takes::BI;

template <class Compute, bool kNarrow, OpWeight kWeight>
struct UnaryFunctor {
  // Of float32 formulas 5 blocks of one 16-byte load a thread reach 0.85 of a copy of 256 MB and 4 blocks of two loads
  // 0.89; of float64, and of sin and cos, one load reaches more (H200).
  static constexpr bool loads_two = kWeight == OpWeight::heavy && sizeof(Compute) == 4;
  static constexpr int resident_blocks = loads_two ? 4 : resident_blocks_of(kWeight, sizeof(Compute));
  static constexpr int packs_per_thread = loads_two ? 2 : 1;
  int32_t op;
  Compute a, b;
  __device__ __forceinline__ const UnaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN]) const {
    using F = Formulas<Compute, kNarrow>;
    switch (op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                            \
  case FLOWK_UNARY_##NAME:                                                                               \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0 && weight_of(FLOWK_UNARY_##NAME) == kWeight) { \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = F::name(x[i], a, b);                       \
      return;                                                                                            \
    }                                                                                                    \
    break;
      FLOWK_UNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

template <class Compute, bool kNarrow, OpWeight kWeight>
struct BinaryFunctor {
  static constexpr int resident_blocks = resident_blocks_of(kWeight, sizeof(Compute));
  int32_t op;
  __device__ __forceinline__ const BinaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN]) const {
    using F = Formulas<Compute, kNarrow>;
    switch (op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                             \
  case FLOWK_BINARY_##NAME:                                                                               \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0 && weight_of(FLOWK_BINARY_##NAME) == kWeight) { \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = F::name(x[i], y[i]);                        \
      return;                                                                                             \
    }                                                                                                     \
    break;
      FLOWK_BINARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

// Packs of 16 values, three inputs at once, want 80 registers.
template <class Compute, int kPack>
struct TernaryFunctor {
  static constexpr int resident_blocks = kPack == 16 ? 3 : 5;
  int32_t op;
  Compute a;
  __device__ __forceinline__ const TernaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN],
                                       const Compute (&z)[kN]) const {
    using F = Formulas<Compute, false>;
    switch (op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)               \
  case FLOWK_TERNARY_##NAME:                                                                \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0) {                                \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = F::name(x[i], y[i], z[i], a); \
      return;                                                                               \
    }                                                                                       \
    break;
      FLOWK_TERNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

// A copy: what changes is the type.
template <class Compute>
struct CopyFunctor {
  static constexpr int resident_blocks = sizeof(Compute) == 8 ? 5 : 6;
  __device__ __forceinline__ const CopyFunctor& operator()() const { return *this; }
  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN]) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

}  // namespace flowk
