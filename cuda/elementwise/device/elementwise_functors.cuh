// SPDX-License-Identifier: Apache-2.0
// flowk's own functors: the operation is a run-time switch over flowk/elementwise_ops.h, taken once per pack.
#pragma once

#include "elementwise/device/elementwise_formulas_16_bit.cuh"
#include "elementwise/elementwise_op_cost.h"
#include "flowk/flowk.h"

namespace flowk::elementwise {

// The types that an operation takes, as elementwise_ops.h writes them.
namespace takes {
constexpr int B = 1, I = 2, F = 4;
constexpr int BI = B | I, IF = I | F, BIF = B | I | F;
}  // namespace takes

// The operations that a kernel can do. OneOp: one operation. AllOps: all operations with a cost of kCosts; the kernel
// has the registers of an operation of cost kRegisters. kIsDouble: the operations compute in float64.
template <auto kOp>
struct OneOp {
  static constexpr OpCost cost = cost_of(kOp);
  __device__ __forceinline__ static constexpr int32_t chosen(int32_t) { return kOp; }
  template <class Op>
  FLOWK_HOST_DEVICE static constexpr bool has(Op op) {
    return op == kOp;
  }
};
template <bool kIsDouble, OpCost kRegisters, OpCost... kCosts>
struct AllOps {
  static constexpr OpCost cost = kRegisters;
  __device__ __forceinline__ static constexpr int32_t chosen(int32_t op) { return op; }
  template <class Op>
  FLOWK_HOST_DEVICE static constexpr bool has(Op op) {
    return ((cost_of(op, kIsDouble) == kCosts) || ...);
  }
};

// How many blocks an SM shall hold: 8 leave 32 registers per thread, 6 leave 40, 5 leave 48, and 4 leave 64.
template <class Ops, class Compute, int kLightBlocks>
constexpr int resident_blocks_of = Ops::cost == OpCost::heaviest ? 4
                                   : Ops::cost == OpCost::heavy  ? 5
                                   : Ops::cost == OpCost::medium ? (std::is_same_v<Compute, double> ? 8 : 6)
                                                                 : kLightBlocks;

template <class Compute>
constexpr int taken_as = std::is_floating_point_v<Compute> ? takes::F : takes::BI;

// `sign_flip` is the sign bit where integers of Compute's width are unsigned, else 0.
template <class Compute, bool kNarrow>
__device__ __forceinline__ Formulas<Compute, kNarrow> formulas_of([[maybe_unused]] Compute sign_flip) {
  if constexpr (std::is_integral_v<Compute>)
    return {sign_flip};
  else
    return {};
}

FLOWK_HOST_DEVICE constexpr bool is_power(UnaryOp) { return false; }
FLOWK_HOST_DEVICE constexpr bool is_power(BinaryOp op) { return op == BinaryOp{FLOWK_BINARY_POW}; }

// Is the formula so long that it is computed for one element after the other? A loop that is not unrolled leaves
// registers to the other operations of the kernel.
template <class Compute>
FLOWK_HOST_DEVICE constexpr bool is_long(UnaryOp op) {
  return cost_of(op, std::is_same_v<Compute, double>) == OpCost::heaviest && op >= UnaryOp{FLOWK_UNARY_ISINF};
}
template <class Compute>
FLOWK_HOST_DEVICE constexpr bool is_long(BinaryOp op) {
  if (op >= BinaryOp{FLOWK_BINARY_SIGMOID_BACKWARD} && op <= BinaryOp{FLOWK_BINARY_SOFTPLUS_BACKWARD}) return false;
  return is_power(op) ? std::is_integral_v<Compute>
                      : cost_of(op) == OpCost::heaviest && std::is_floating_point_v<Compute>;
}

// out[i] = formula(x[i], y[i]). The arrays move up by one element per step, because registers have no index. The two
// integers of at most 16 bits that `formulas.power()` takes share a register.
template <bool kNarrow, bool kIsPower, class T, int kN, class Formulas, class Formula>
__device__ __forceinline__ void one_by_one(const Formulas& formulas, T (&out)[kN], const T (&x)[kN], const T (&y)[kN],
                                           const Formula& formula) {
  constexpr bool in_pairs = kNarrow && std::is_integral_v<T> && kIsPower;
  T second[kN];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    out[i] = x[i], second[i] = y[i];
    if constexpr (in_pairs) {  // a negative exponent becomes 1, with the result in the place of x
      const T base = y[i] < 0 ? formulas.inverse_power(x[i], y[i]) : x[i];
      out[i] = static_cast<T>(static_cast<uint32_t>(y[i] < 0 ? 1 : y[i]) << 16 | (base & 0xffff));
    }
  }
#pragma unroll 1
  for (int step = 0; step < kN; ++step) {
    T result;
    if constexpr (in_pairs)
      result = formulas.power(out[0] & 0xffff, static_cast<uint32_t>(out[0]) >> 16);
    else
      result = formula(out[0], second[0]);
#pragma unroll
    for (int i = 0; i + 1 < kN; ++i) out[i] = out[i + 1], second[i] = second[i + 1];
    out[kN - 1] = result;
  }
}

// The case of one operation: `result` for every element of the pack.
#define FLOWK_CASE_OF(op, kinds, result)                              \
  case op:                                                            \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0) {          \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = result; \
      return;                                                         \
    }                                                                 \
    break;
// The same for `op` of type Op. If its formula is long, `result_of_one` is the result of one element from u and v.
#define FLOWK_CASE_OF_ANY(Op, op, kinds, result, y, result_of_one)                                           \
  case op:                                                                                                   \
    if constexpr ((takes::kinds & taken_as<Compute>) != 0 && Ops::has(Op(op)) && is_long<Compute>(Op(op))) { \
      return one_by_one<kNarrow, is_power(Op(op))>(                                                          \
          formulas, out, x, y, [&](Compute u, [[maybe_unused]] Compute v) { return result_of_one; });        \
    } else if constexpr ((takes::kinds & taken_as<Compute>) != 0 && Ops::has(Op(op))) {                      \
      _Pragma("unroll") for (int i = 0; i < kN; ++i) out[i] = result;                                        \
      return;                                                                                                \
    }                                                                                                        \
    break;

template <class Compute, bool kNarrow, class Ops>
struct UnaryFunctor {
  static constexpr int resident_blocks = resident_blocks_of<Ops, Compute, 8>;
  static constexpr bool takes_any_values = true;
  static constexpr bool takes_packs_together = Ops::cost == OpCost::light;
  int32_t op;
  Compute sign_flip, a, b;
  __device__ __forceinline__ const UnaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN]) const {
    const auto formulas = formulas_of<Compute, kNarrow>(sign_flip);
    switch (Ops::chosen(op)) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula) \
  FLOWK_CASE_OF_ANY(UnaryOp, FLOWK_UNARY_##NAME, kinds, formulas.name(x[i], a, b), x, formulas.name(u, a, b))
      FLOWK_UNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

template <class Compute, bool kNarrow, class Ops>
struct BinaryFunctor {
  static constexpr int light_blocks = sizeof(Compute) == 4 ? 6
                                      : std::is_same_v<Compute, double> || Ops::has(BinaryOp(FLOWK_BINARY_TRUNC_DIVIDE))
                                          ? 5
                                          : 8;
  static constexpr int resident_blocks = resident_blocks_of<Ops, Compute, light_blocks>;
  static constexpr bool takes_any_values = true;
  static constexpr bool takes_packs_together = Ops::cost == OpCost::light;
  int32_t op;
  int32_t signed_operand;  // if one operand is int64 and one uint64: 1 is x, 2 is y; else 0
  Compute sign_flip;
  __device__ __forceinline__ const BinaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN]) const {
    if constexpr (std::is_same_v<Compute, int64_t> && Ops::has(BinaryOp(FLOWK_BINARY_LESS))) {
      // A negative value is less than any unsigned one, as 0 is less than 1. Others have the order of uint64.
      Compute left[kN], right[kN];
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        const bool is_negative = signed_operand != 0 && (signed_operand == 1 ? x[i] : y[i]) < 0;
        left[i] = is_negative ? signed_operand - 1 : x[i];
        right[i] = is_negative ? 2 - signed_operand : y[i];
      }
      compute(out, left, right);
    } else {
      compute(out, x, y);
    }
  }

 private:
  template <int kN>
  __device__ __forceinline__ void compute(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN]) const {
    const auto formulas = formulas_of<Compute, kNarrow>(sign_flip);
    if constexpr (std::is_same_v<Compute, float> && kNarrow && Ops::has(BinaryOp(FLOWK_BINARY_SILU_MUL)))
      if (Ops::chosen(op) == FLOWK_BINARY_SILU_MUL) return formulas.silu_mul(out, x, y);
    switch (Ops::chosen(op)) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula) \
  FLOWK_CASE_OF_ANY(BinaryOp, FLOWK_BINARY_##NAME, kinds, formulas.name(x[i], y[i]), y, formulas.name(u, v))
      FLOWK_BINARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

// Three inputs of 16 values each need 80 registers.
template <class Compute, int kPack>
struct TernaryFunctor {
  static constexpr int resident_blocks = kPack == 16 ? 3 : 5;
  static constexpr bool takes_any_values = true;
  static constexpr bool takes_packs_together = true;
  int32_t op;
  Compute sign_flip, a;
  __device__ __forceinline__ const TernaryFunctor& operator()() const { return *this; }

  template <int kN>
  __device__ __forceinline__ void pack(Compute (&out)[kN], const Compute (&x)[kN], const Compute (&y)[kN],
                                       const Compute (&z)[kN]) const {
    const auto formulas = formulas_of < Compute, std::is_integral_v<Compute> && (kPack > 4) > (sign_flip);
    if constexpr (std::is_floating_point_v<Compute>) {
      // The exponentials are computed one after the other, so that the other operations have enough registers.
      if (op == FLOWK_TERNARY_ELU_BACKWARD) {
        Compute roots[kN];
#pragma unroll
        for (int i = 0; i < kN; ++i) roots[i] = y[i];
#pragma unroll 1
        for (int step = 0; step < kN; ++step) {
          const Compute root = formulas.elu_root(roots[0]);
#pragma unroll
          for (int i = 0; i + 1 < kN; ++i) roots[i] = roots[i + 1];
          roots[kN - 1] = root;
        }
#pragma unroll
        for (int i = 0; i < kN; ++i) out[i] = formulas.elu_backward(x[i], roots[i], z[i]);
        return;
      }
    }
    switch (op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula) \
  FLOWK_CASE_OF(FLOWK_TERNARY_##NAME, kinds, formulas.name(x[i], y[i], z[i], a))
      FLOWK_TERNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = x[i];
  }
};

#undef FLOWK_CASE_OF
#undef FLOWK_CASE_OF_ANY

}  // namespace flowk::elementwise
