// SPDX-License-Identifier: Apache-2.0
// What an elementwise kernel computes with: the operands' types, and the functor on a pack of their values.
#pragma once

#ifndef __CUDACC_RTC__  // which knows memcpy without it
#include <cstring>
#endif

#include "flowk/detail/elementwise_params.h"
#include "flowk/detail/packs.cuh"

namespace flowk::detail {

// The elements of an operand, of a type that the compiler knows. A class of the same members may stand for several
// types that ElementwiseOperand::dtype tells apart.
template <class T>
struct Element {
  using Value = T;  // what the functor takes or gives
  static constexpr int largest_bytes = sizeof(T);

  // Calls visit(Constant<bytes of an element>()).
  template <class Visit>
  __device__ __forceinline__ static void with_size(const ElementwiseOperand&, Visit visit) {
    visit(Constant<static_cast<int>(sizeof(T))>());
  }
  template <int kN>
  __device__ __forceinline__ static void unpack(const ElementwiseOperand&, const uint32_t* words, Value (&values)[kN]) {
    memcpy(static_cast<void*>(values), words, sizeof(values));
  }
  template <int kN>
  __device__ __forceinline__ static void pack(const ElementwiseOperand&, const Value (&values)[kN], uint32_t* words) {
    memcpy(words, values, sizeof(values));
  }
};

// Two neighbours of a 16-bit type, for functors that take them together.
template <class T>
struct PairOf {
  struct type {
    T x, y;
  };
};
#ifdef __CUDA_FP16_H__
template <>
struct PairOf<__half> {
  using type = __half2;
};
#endif
#ifdef __CUDA_BF16_H__
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};
#endif

template <class Functor, int kN, class Out, class... In>
concept TakesPacks =
    requires(const Functor& functor, Out (&out)[kN], const In (&... in)[kN]) { functor.pack(out, in...); };
template <class Functor, class Out, class... In>
concept TakesElements = TakesPacks<Functor, 1, typename Out::Value, typename In::Value...> ||
                        requires(const Functor& functor, typename In::Value... in) { functor(in...); };
template <class Functor, class... In>
concept TakesPairs = requires(const Functor& functor, typename PairOf<In>::type... in) { functor.pair(in...); };

// Calls a functor on a pack, by the widest of these that it has:
//   pack(out, x, ...)   whole packs, as arrays of kN values
//   pair(x, ...)        two neighbours: __half2 of __half2, __nv_bfloat162 of __nv_bfloat162
//   operator()(x, ...)  one element
template <int kN, class Functor, class Out, class... In>
__device__ __forceinline__ void apply(const Functor& functor, Out (&out)[kN], const In (&... in)[kN]) {
  if constexpr (TakesPacks<Functor, kN, Out, In...>) {
    functor.pack(out, in...);
  } else if constexpr (kN % 2 == 0 && TakesPairs<Functor, In...>) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const typename PairOf<Out>::type result = functor.pair(typename PairOf<In>::type{in[i], in[i + 1]}...);
      out[i] = result.x;
      out[i + 1] = result.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) out[i] = static_cast<Out>(functor(in[i]...));
  }
}

template <class T>
struct TypeOf {
  using type = T;
};

// Calls visit(Constant<k>(), TypeOf<In>()) for every input k, from 1 on.
template <int k, class First, class... Rest, class Visit>
__device__ __forceinline__ void for_each_input_from(const Visit& visit) {
  visit(Constant<k>(), TypeOf<First>());
  if constexpr (sizeof...(Rest) > 0) for_each_input_from<k + 1, Rest...>(visit);
}
template <class... In, class Visit>
__device__ __forceinline__ void for_each_input(const Visit& visit) {
  for_each_input_from<1, In...>(visit);
}

}  // namespace flowk::detail
