// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels of your own on tensors of any strides, with NumPy's broadcasting: what pyflowk.ElementwiseKernel
// does, in C++.
//
//   struct Axpy {
//     float a;
//     __device__ float operator()(float x, float y) const { return a * x + y; }
//   };
//   flowk::transform(Axpy{2.0f}, stream, flowk::view{out, {64, 32}}, flowk::view{x, {64, 32}, {1, 64}}, flowk::view{y,
//   {32}});
//
// Functors and factories are those of flowk/elementwise.cuh. There are one to three inputs, of any trivially copyable
// types of 1, 2, 4 or 8 bytes. An input broadcasts to out's shape. `out` may be an input with the same pointer, strides
// and element size, and must not overlap an input otherwise. Faults are those of flowk_functor_plan(), thrown as
// flowk::error, or returned by the std::nothrow form.
//
// Needs nvcc with C++20 and libflowk, which plans: it chooses among six kernels, which nvcc compiles for each functor.
#pragma once

#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "flowk/detail/view_calls.hpp"
#include "flowk/elementwise.cuh"

namespace flowk {
namespace detail {

// A plan looks at the size of an operand's elements alone.
template <class T>
constexpr flowk_dtype storage_dtype = sizeof(T) == 1   ? FLOWK_UINT8
                                      : sizeof(T) == 2 ? FLOWK_UINT16
                                      : sizeof(T) == 4 ? FLOWK_UINT32
                                                       : FLOWK_UINT64;

inline status status_of_launch(ElementwiseError error) noexcept {
  if (error == ElementwiseError{}) return {};
#ifdef FLOWK_SIMT
  return fault_of(FLOWK_STATUS_INTERNAL_ERROR, "the executor found a fault in the kernel");
#else
  cudaGetLastError();  // the error is reported here; do not leave it for the caller's own next check
  return fault_of(FLOWK_STATUS_CUDA_ERROR, "kernel launch failed: %s", cudaGetErrorString(error));
#endif
}

template <class Params, class Factory>
status launch_planned(void (*kernel)(Params, Factory), const flowk_functor_launch& launch, flowk_stream stream,
                      const Factory& factory) noexcept {
  std::remove_cv_t<std::remove_reference_t<Params>> params;
  if (launch.params_bytes != sizeof params || launch.num_threads != elementwise_threads)
    return fault_of(FLOWK_STATUS_INTERNAL_ERROR, "these headers are not those of the loaded libflowk");
  std::memcpy(static_cast<void*>(&params), launch.params, sizeof params);
  return status_of_launch(launch_elementwise(kernel, launch.num_blocks, launch.shared_bytes, stream, params, factory));
}

// Launches one part of a plan.
template <class Factory, class Out, class... In>
status launch_part(const flowk_functor_launch& launch, flowk_stream stream, const Factory& factory) noexcept {
  status result;
  const auto try_kernel = [&](auto number) {
    constexpr auto kernel = static_cast<ElementwiseKernel>(decltype(number)::value);
    constexpr int whole = pack_elements<Out, In...>;
    constexpr int n =
        kernel == ElementwiseKernel::strided && whole > max_strided_pack_elements ? max_strided_pack_elements : whole;
    if (launch.kernel != decltype(number)::value || launch.pack_elements != n) return false;
    result =
        launch_planned(elementwise_kernel<kernel, n, Factory, Element<Out>, Element<In>...>(), launch, stream, factory);
    return true;
  };
  const bool is_found = [&]<int... kernel>(std::integer_sequence<int, kernel...>) {
    return (try_kernel(Constant<kernel>()) || ...);
  }(std::make_integer_sequence<int, num_elementwise_kernels>());
  if (is_found) return result;
  return fault_of(FLOWK_STATUS_INTERNAL_ERROR, "a plan with kernel %d and packs of %d elements", launch.kernel,
                  launch.pack_elements);
}

}  // namespace detail

// out[i] = functor(x[i], ...) with functor = factory(), which the kernel calls. `out` and the inputs are views.
template <class Factory, class Out, class... In>
status transform_by(std::nothrow_t, const Factory& factory, flowk_stream stream, const Out& out,
                    const In&... in) noexcept {
  static_assert(sizeof...(In) >= 1 && sizeof...(In) <= 3, "an operation has one to three inputs");
  static_assert(detail::are_elements<typename Out::value_type, typename In::value_type...> &&
                    sizeof(typename Out::value_type) <= 8 && ((sizeof(typename In::value_type) <= 8) && ...),
                "elements are trivially copyable, of 1, 2, 4 or 8 bytes");
  static_assert(!std::is_const_v<typename Out::element_type>, "out is written");
  constexpr int32_t num_operands = 1 + sizeof...(In);
  constexpr flowk_dtype dtypes[] = {detail::storage_dtype<typename Out::value_type>,
                                    detail::storage_dtype<typename In::value_type>...};
  const void* const pointers[] = {out.data(), in.data()...};
  detail::Strides<Out::static_rank> broadcast[sizeof...(In)];
  const int64_t* strides[num_operands] = {out.strides()};
  constexpr const char* names[] = {"x", "y", "z"};
  status bad;
  int32_t k = 0;
  ((bad = bad ? broadcast[k].broadcast(names[k], in, out.rank(), out.shape()) : bad, ++k), ...);
  if (!bad) return bad;
  for (k = 1; k < num_operands; ++k) strides[k] = broadcast[k - 1].get();
  flowk_functor_launch launch;
  launch.struct_bytes = sizeof launch;
  launch.params_version = detail::elementwise_params_version;
  launch.num_parts = 1;
  for (int32_t part = 0; part < launch.num_parts; ++part) {
    if (const flowk_status code =
            flowk_functor_plan(pointers, strides, dtypes, num_operands, out.rank(), out.shape(), part, &launch);
        code != FLOWK_STATUS_SUCCESS)
      return code;
    if (launch.num_parts == 0) break;
    bad = detail::launch_part<Factory, typename Out::value_type, typename In::value_type...>(launch, stream, factory);
    if (!bad) return bad;
  }
  return {};
}
template <class Factory, class Out, class... In>
void transform_by(const Factory& factory, flowk_stream stream, const Out& out, const In&... in) {
  detail::check(transform_by(std::nothrow, factory, stream, out, in...));
}

// out[i] = functor(x[i], ...) for views of one to three inputs.
template <class Functor, class Out, class... In>
status transform(std::nothrow_t, const Functor& functor, flowk_stream stream, const Out& out,
                 const In&... in) noexcept {
  return transform_by(std::nothrow, detail::Given<Functor>{functor}, stream, out, in...);
}
template <class Functor, class Out, class... In>
void transform(const Functor& functor, flowk_stream stream, const Out& out, const In&... in) {
  detail::check(transform(std::nothrow, functor, stream, out, in...));
}

}  // namespace flowk
