// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels of your own: you write the formula of one element, and flowk loads, stores and launches.
//
//   struct Axpy {
//     float a;
//     __device__ float operator()(float x, float y) const { return a * x + y; }
//   };
//   cudaError_t error = flowk::binary(Axpy{2.0f}, count, out, x, y, stream);   // out[i] = 2 x[i] + y[i]
//
// Operands are device pointers to `count` contiguous elements of any trivially copyable types of 1, 2, 4, 8 or 16
// bytes. Each is aligned to its type; more is not needed. `out` may be an input whose elements have the same size, and
// must not overlap an input otherwise. Nothing is allocated or synchronised. A count of 0 does nothing.
//
// A functor may have, besides operator() or instead of it:
//   pair(x, ...)        two neighbours: __half2, or __nv_bfloat162
//   pack(out, x, ...)   any number: `template <int n> void pack(Out (&out)[n], const X (&x)[n], ...) const`
// It is a parameter of the kernel. If it depends on values in device memory, pass a factory instead: a functor without
// arguments that the kernel calls to make the functor.
//
//   struct MakeAxpy {
//     const float* a;  // a device pointer
//     __device__ Axpy operator()() const { return {*a}; }
//   };
//   flowk::transform_by(MakeAxpy{a}, count, stream, out, x, y);
//
// For operands of any strides, and operands that are broadcast, include flowk/elementwise_views.cuh. This header needs
// only nvcc with C++20 and include/flowk. NVRTC compiles flowk/detail/elementwise_kernel.cuh.
#pragma once

#if __cplusplus < 202002L
#error "flowk/elementwise.cuh needs C++20: nvcc -std=c++20"
#endif

#include <bit>
#include <type_traits>

#include "flowk/detail/elementwise_kernel.cuh"

#ifdef FLOWK_SIMT
#include "simt/executor.h"
#else
#include "flowk/detail/kernel_launch.cuh"
#endif

namespace flowk {

#ifdef FLOWK_SIMT
using ElementwiseError = int;     // 0: success
using ElementwiseStream = void*;  // ignored: the work is done when the call returns
#else
using ElementwiseError = cudaError_t;
using ElementwiseStream = cudaStream_t;
#endif

namespace detail {

// A factory that returns the functor that it holds.
template <class Functor>
struct Given {
  Functor functor;
  __device__ __forceinline__ const Functor& operator()() const { return functor; }
};

template <class T>
constexpr int element_shift = std::countr_zero(sizeof(T));

template <class... T>
constexpr bool are_elements =
    ((std::is_trivially_copyable_v<T> && std::has_single_bit(sizeof(T)) && sizeof(T) <= 16) && ...);

// 16 bytes of the widest operand. One such pack per thread is as fast as a memcpy, two are slower.
template <class... T>
constexpr int pack_elements = [] {
  int widest = 0;
  ((widest = element_shift<T> > widest ? element_shift<T> : widest), ...);
  return 16 >> widest;
}();

template <class Kernel, class Params, class Factory>
ElementwiseError launch_elementwise(Kernel* kernel, int64_t num_blocks, int32_t shared_bytes, ElementwiseStream stream,
                                    const Params& params, const Factory& factory) {
#ifdef FLOWK_SIMT
  (void)stream;
  const LaunchConfig config = {
      .num_blocks = num_blocks, .num_threads = elementwise_threads, .shared_bytes = shared_bytes};
  return simt::run_grid(config, [&] { kernel(params, factory); }) == nullptr ? 0 : 1;
#else
  LaunchConfig config = {.num_blocks = num_blocks, .num_threads = elementwise_threads, .shared_bytes = shared_bytes};
  const cudaError_t error = current_device_runs_pdl(&config.uses_pdl);
  return error == cudaSuccess ? launch_kernel(kernel, config, stream, params, factory) : error;
#endif
}

}  // namespace detail

// out[i] = functor(x[i], ...) with functor = factory(), which the kernel calls.
template <class Factory, class Out, class... In>
ElementwiseError transform_by(const Factory& factory, int64_t count, ElementwiseStream stream, Out* out,
                              const In*... in) {
  static_assert(detail::are_elements<Out, In...>, "elements are trivially copyable, of 1, 2, 4, 8 or 16 bytes");
  static_assert(sizeof...(In) >= 1, "an operation has an input");
  if (count <= 0) return ElementwiseError{};
  constexpr int n = detail::pack_elements<Out, In...>;
  detail::ContiguousElementwiseParams<1 + sizeof...(In)> params = {};
  int k = 0;
  params.operands[k++] = detail::linear_operand(out, count, false, 0, detail::element_shift<Out>);
  ((params.operands[k++] = detail::linear_operand(in, count, false, 0, detail::element_shift<In>)), ...);
  // Two packs per thread if a type is narrower than the widest; else one is faster.
  constexpr bool is_one_size = ((sizeof(In) == sizeof(Out)) && ...);
  const int64_t num_blocks =
      detail::cut_into_packs(count, n, is_one_size ? 1 : detail::max_packs(n, sizeof...(In)), &params);
  return detail::launch_elementwise(
      detail::elementwise_contiguous<n, Factory, detail::Element<Out>, detail::Element<In>...>, num_blocks, 0, stream,
      params, factory);
}

// out[i] = functor(x[i], ...) for any number of inputs.
template <class Functor, class Out, class... In>
ElementwiseError transform(const Functor& functor, int64_t count, ElementwiseStream stream, Out* out, const In*... in) {
  return transform_by(detail::Given<Functor>{functor}, count, stream, out, in...);
}

template <class Functor, class Out, class X>
ElementwiseError unary(const Functor& functor, int64_t count, Out* out, const X* x, ElementwiseStream stream) {
  return transform(functor, count, stream, out, x);
}

template <class Functor, class Out, class X, class Y>
ElementwiseError binary(const Functor& functor, int64_t count, Out* out, const X* x, const Y* y,
                        ElementwiseStream stream) {
  return transform(functor, count, stream, out, x, y);
}

template <class Functor, class Out, class X, class Y, class Z>
ElementwiseError ternary(const Functor& functor, int64_t count, Out* out, const X* x, const Y* y, const Z* z,
                         ElementwiseStream stream) {
  return transform(functor, count, stream, out, x, y, z);
}

}  // namespace flowk
