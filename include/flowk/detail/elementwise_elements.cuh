// SPDX-License-Identifier: Apache-2.0
// The element types of an elementwise kernel's operands, and the call of the functor on a pack of values.
#pragma once

#ifndef __CUDACC_RTC__  // NVRTC declares memcpy itself
#include <cstring>
#endif

#include "flowk/detail/elementwise_params.h"
#include "flowk/detail/packs.cuh"

namespace flowk::detail {

// The elements of an operand: one type, known at compile time. A class with the same members may stand for several
// types and look at ElementwiseOperand::dtype.
template <class T>
struct Element {
  using Value = T;  // the functor's argument or result
  static constexpr int largest_bytes = sizeof(T);

  // Calls visit(Constant<bytes per element>()).
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

// Two neighbours, for functors that take them together.
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

// Calls the functor on a pack, by the first of these members that it has:
//   pack(out, x, ...)   a whole pack: arrays of kN values
//   pair(x, ...)        two neighbours: __half2, or __nv_bfloat162
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

// Calls visit(Constant<k>(), TypeOf<In>()) for every input k = 1, 2, ...
template <int k, class First, class... Rest, class Visit>
__device__ __forceinline__ void for_each_input_from(const Visit& visit) {
  visit(Constant<k>(), TypeOf<First>());
  if constexpr (sizeof...(Rest) > 0) for_each_input_from<k + 1, Rest...>(visit);
}
template <class... In, class Visit>
__device__ __forceinline__ void for_each_input(const Visit& visit) {
  for_each_input_from<1, In...>(visit);
}

// Calls visit(Constant<k>(), Constant<bytes per element>()) for the inputs k for which takes(k) is true.
template <class... In, class Operands, class Takes, class Visit>
__device__ __forceinline__ void for_each_input_if(const Operands& operands, const Takes& takes, const Visit& visit) {
  for_each_input<In...>([&]<int k, class First>(Constant<k>, TypeOf<First>) {
    if (takes(k)) First::with_size(operands[k], [&](auto size) { visit(Constant<k>(), size); });
  });
}
template <class... In, class Operands, class Visit>
__device__ __forceinline__ void for_each_input(const Operands& operands, const Visit& visit) {
  for_each_input_if<In...>(operands, [](int) { return true; }, visit);
}

}  // namespace flowk::detail
