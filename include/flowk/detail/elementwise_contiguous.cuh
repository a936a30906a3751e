// SPDX-License-Identifier: Apache-2.0
// elementwise_contiguous: out[i] = functor(x[i], ...) where out is linear, and every input is linear or one element.
// elementwise_broadcast: out[i] = functor(x[(i / repeat) % period], ...) where out is linear; an input has its repeat
// and period (RepeatedOperand), or is linear or one element.
//
// functor = factory(). A thread computes up to max_packs() packs of kN elements, one per pass of the block. The
// elements before the first and after the last whole pack have one thread each, past the threads of the packs.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/elementwise_repeated.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"

namespace flowk::detail {

template <int kN, int kPacks, class Params, class Factory, class Out, class... In>
__device__ __forceinline__ void run_contiguous(const Params& params, const Factory& factory) {
  constexpr int num_inputs = static_cast<int>(sizeof...(In));
  using Work = PackWork<kN, kPacks, Out, In...>;
  using Words = PackWords<kN, In...>;
  constexpr int num_words = kPacks * Words::whole > Words::shifted ? kPacks * Words::whole : Words::shifted;
  const int packs = kPacks == 1 ? 1 : params.packs;
  uint32_t block = blockIdx.x;
  if constexpr (is_broadcast<Params> && kN <= max_turns_pack_elements) {
    if (params.run_blocks != 0) {
      const uint32_t in_group = block % broadcast_group_blocks;
      block /= broadcast_group_blocks;
      const uint32_t run = take_index(&block, params.num_runs);
      block = run * params.run_blocks + block * broadcast_group_blocks + in_group;
    }
  }
  const int64_t item = static_cast<int64_t>(block) * (elementwise_threads * packs) + threadIdx.x;
  const auto has = [&](int p) { return p < packs && item + p * elementwise_threads < params.num_packs; };
  uint32_t words[num_inputs][num_words];
  int pending[num_inputs][kPacks] = {};  // what load_repeated() leaves to be done after all loads have started
  if (has(0)) {
    for_each_input<In...>([&](auto index, auto type) {
      constexpr int k = decltype(index)::value;
      const auto& operand = params.operands[k];
      uint32_t* const own = words[k - 1];
      decltype(type)::type::with_size(operand, [&](auto size) {
        constexpr int bytes = decltype(size)::value;
        constexpr int pack_bytes = kN * bytes;
        const unsigned char* const here = operand.data + item * pack_bytes;
        if (operand.access == ElementwiseAccess::aligned) {
#pragma unroll
          for (int p = 0; p < kPacks; ++p)
            if (has(p)) load_into<pack_bytes>(own, p, here + p * (elementwise_threads * pack_bytes));
        } else if (operand.access == ElementwiseAccess::shifted) {  // such plans have one pack per thread
          pack::load_shifted<pack_bytes, bytes>(own, here);
        } else if (is_broadcast<Params> && operand.access >= ElementwiseAccess::repeated_packs) {
          if constexpr (is_broadcast<Params>)
            if (operand.access != ElementwiseAccess::repeated_table)
              load_repeated<kN, kPacks, bytes>(operand, static_cast<uint32_t>(item), has, own, pending[k - 1]);
        } else {  // repeated below, after all loads have started
          own[0] = operand.number[0];
          if constexpr (bytes == 8) own[1] = operand.number[1];
          if (operand.access == ElementwiseAccess::one_element) pack::load<bytes>(own, operand.data);
        }
      });
    });
  }
  if constexpr (is_broadcast<Params>) {
    if (params.has_tables) {
      stage_tables<In...>(params);
      __syncthreads();
    }
  }
  if (has(0)) {
    for_each_input<In...>([&](auto index, auto type) {
      constexpr int k = decltype(index)::value;
      const auto& operand = params.operands[k];
      uint32_t* const own = words[k - 1];
      if (operand.access == ElementwiseAccess::aligned) return;
      decltype(type)::type::with_size(operand, [&](auto size) {
        constexpr int bytes = decltype(size)::value;
        constexpr int pack_bytes = kN * bytes;
        if (operand.access == ElementwiseAccess::shifted) {
          if constexpr (pack_bytes >= 4)
            pack::shift_down<pack_bytes>(
                own, static_cast<int>(reinterpret_cast<uintptr_t>(operand.data) % pack::access_bytes<pack_bytes>));
        } else if (operand.access == ElementwiseAccess::one_element || operand.access == ElementwiseAccess::number) {
          pack::repeat<kN * kPacks, bytes>(own);
        } else if constexpr (is_broadcast<Params>) {
          if (operand.access == ElementwiseAccess::repeated_table)
            load_table<kN, kPacks, bytes>(operand, static_cast<uint32_t>(item), own);
          if constexpr (pack_bytes >= 4) {
#pragma unroll
            for (int p = 0; p < kPacks; ++p)
              if (pending[k - 1][p] != 0) {
                if (kPacks == 1 && operand.access == ElementwiseAccess::repeated_run)
                  pack::shift_down<pack_bytes>(own, pending[k - 1][p]);
                else
                  spread_repeated_elements<kN, bytes>(operand, pending[k - 1][p], own + p * pack_bytes / 4);
              }
          }
        }
      });
    });
    uint32_t out[Work::out_words];
    Work::compute(params.operands, factory(), packs, words, out);
    Out::with_size(params.operands[0], [&](auto size) {
      constexpr int pack_bytes = kN * decltype(size)::value;
      unsigned char* const here = params.operands[0].data + item * pack_bytes;
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        if (has(p)) store_from<pack_bytes>(out, p, here + p * (elementwise_threads * pack_bytes));
    });
    if (item + (packs - 1) * elementwise_threads < params.num_packs) return;
  }
#pragma unroll 1
  for (int p = 0; p < packs; ++p) {
    const int64_t edge = item + p * elementwise_threads - params.num_packs;
    if (edge < 0 || edge >= params.num_edges) continue;
    // The index of the element, from the first element of the first pack on.
    const int64_t i = edge < params.head ? edge - params.head : edge - params.head + params.num_packs * kN;
    compute_element<Factory, Out, In...>(params.operands, factory, [&](int k) {
      const auto& operand = params.operands[k];
      if constexpr (is_broadcast<Params>) {
        if (operand.access >= ElementwiseAccess::repeated_packs) return locate_in_period(operand, i);
      }
      return static_cast<const unsigned char*>(operand.data + i * operand.step);
    });
  }
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, fitting_blocks(elementwise_threads, resident_blocks<Factory>))
    elementwise_contiguous(const __grid_constant__ GridConstant<ContiguousElementwiseParams<1 + sizeof...(In)>> params,
                           const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  run_contiguous<kN, max_packs(kN, sizeof...(In)), ContiguousElementwiseParams<1 + sizeof...(In)>, Factory, Out, In...>(
      params, factory);
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, fitting_blocks(elementwise_threads, resident_blocks<Factory>))
    elementwise_broadcast(const __grid_constant__ GridConstant<BroadcastElementwiseParams<1 + sizeof...(In)>> params,
                          const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  run_contiguous<kN, max_packs(kN, sizeof...(In)), BroadcastElementwiseParams<1 + sizeof...(In)>, Factory, Out, In...>(
      params, factory);
}

}  // namespace flowk::detail
