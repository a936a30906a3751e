// SPDX-License-Identifier: Apache-2.0
// flowk's own functors: the operation is a run-time switch, made from flowk/elementwise_ops.h and taken once a pack.
#pragma once

#include "elementwise/elementwise_formulas.cuh"
#include "elementwise/elementwise_weights.h"
#include "flowk/flowk.h"

namespace flowk::elementwise {

// What an operation takes, as elementwise_ops.h writes it.
namespace takes {
constexpr int B = 1, I = 2, F = 4;
constexpr int BI = B | I, IF = I | F, BIF = B | I | F;
}  // namespace takes

// The operations of a kernel: all of a weight, or one.
template <OpWeight kWeight>
struct OpsOf {
  static constexpr bool are_heavy = kWeight != OpWeight::light;
  static constexpr bool have_switch = true;
  static constexpr bool are_heaviest = kWeight == OpWeight::heaviest;
  __device__ __forceinline__ static constexpr int32_t chosen(int32_t op) { return op; }
  template <class Op>
  __host__ __device__ static constexpr bool has(Op op) {
    return weight_of(op) == kWeight;
  }
};
template <auto kOp>
struct OneOp {
  static constexpr bool are_heavy = true;
  static constexpr bool have_switch = false;
  static constexpr bool are_heaviest = weight_of(kOp) == OpWeight::heaviest;
  __device__ __forceinline__ static constexpr int32_t chosen(int32_t) { return kOp; }
  template <class Op>
  __host__ __device__ static constexpr bool has(Op op) {
    return op == kOp;
  }
};

// Blocks that an SM is to hold: 8 leave a thread 32 registers, 6 40, 5 48, 4 64.
template <class Ops, class Compute>
constexpr int resident_blocks_of = Ops::are_heaviest      ? 4
                                   : sizeof(Compute) == 8 ? (Ops::are_heavy ? 4 : 5)
                                   : Ops::are_heavy       ? 5
                                                          : 6;

template <class Compute>
constexpr int taken_as = std::is_floating_point_v<Compute> ? takes::F : takes::BI;

template <class Compute, bool kNarrow, class Ops>
struct UnaryFunctor {
  static constexpr int resident_blocks = resident_blocks_of<Ops, Compute>;
  static constexpr bool takes_packs_together = Ops::have_switch;
  static constexpr bool is_heavy = Ops::are_heavy;
  int32_t op;
  Compute a, b;
  static UnaryFunctor make(int32_t op, Compute a, Compute b) { return {op, a, b}; }
  __device__ __forceinline__ const UnaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN]) const {
    using F = Formulas<Compute, kNarrow>;
    switch (Ops::chosen(op)) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                \
  case FLOWK_UNARY_##NAME:                                                                   \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0 && Ops::has(FLOWK_UNARY_##NAME)) { \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = F::name(x[i], a, b);           \
      return;                                                                                \
    }                                                                                        \
    break;
      FLOWK_UNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

template <class Compute, bool kNarrow, class Ops>
struct BinaryFunctor {
  static constexpr int resident_blocks = resident_blocks_of<Ops, Compute>;
  static constexpr bool takes_packs_together = Ops::have_switch;
  static constexpr bool is_heavy = Ops::are_heavy;
  int32_t op;
  static BinaryFunctor make(int32_t op, Compute, Compute) { return {op}; }
  __device__ __forceinline__ const BinaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN]) const {
    using F = Formulas<Compute, kNarrow>;
    switch (Ops::chosen(op)) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                 \
  case FLOWK_BINARY_##NAME:                                                                   \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0 && Ops::has(FLOWK_BINARY_##NAME)) { \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = F::name(x[i], y[i]);            \
      return;                                                                                 \
    }                                                                                         \
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
  static constexpr bool takes_packs_together = true;
  static constexpr bool is_heavy = false;
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
  static constexpr bool takes_packs_together = true;
  static constexpr bool is_heavy = false;
  __device__ __forceinline__ const CopyFunctor& operator()() const { return *this; }
  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN]) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

}  // namespace flowk::elementwise
