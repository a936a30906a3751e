// SPDX-License-Identifier: Apache-2.0
// The kernels of a linear out: out[i] = functor(x[i], ...) over packs of kN neighbours, functor = factory(). An input
// is linear too, or one element, or (elementwise_periodic) its element i is (i / repeat) % period.
//
// A thread owns up to most_packs() packs, the threads of a block side by side; blocks go through memory in order.
// Packs are whole: the few elements before the first and after the last one have a thread each, past the packs'.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/elementwise_periods.cuh"
#include "flowk/detail/pdl.cuh"

namespace flowk::detail {

// Where the words of pack p begin among a thread's: packs of less than a word share one.
template <int kPackBytes>
__device__ __forceinline__ void load_into(uint32_t* words, int p, const unsigned char* address) {
  if constexpr (kPackBytes >= 4) {
    pack::load<kPackBytes>(words + p * kPackBytes / 4, address);
  } else {
    uint32_t loaded;
    pack::load<kPackBytes>(&loaded, address);
    const int bit = p * kPackBytes * 8;
    words[bit / 32] = bit % 32 == 0 ? loaded : words[bit / 32] | loaded << (bit % 32);
  }
}
template <int kPackBytes>
__device__ __forceinline__ void store_from(const uint32_t* words, int p, unsigned char* address) {
  if constexpr (kPackBytes >= 4) {
    pack::store<kPackBytes>(address, words + p * kPackBytes / 4);
  } else {
    const uint32_t word = words[p * kPackBytes / 4] >> (p * kPackBytes % 4 * 8);
    pack::store<kPackBytes>(address, &word);
  }
}

template <int kN, int kPacks, class Params, class Factory, class Out, class... In>
__device__ __forceinline__ void run_linear(const Params& params, const Factory& factory) {
  constexpr int num_inputs = static_cast<int>(sizeof...(In));
  using Work = PackWork<kN, kPacks, Out, In...>;
  using Words = PackWords<kN, In...>;
  constexpr int num_words = kPacks * Words::whole > Words::shifted ? kPacks * Words::whole : Words::shifted;
  const int packs = kPacks == 1 ? 1 : params.packs;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (elementwise_threads * packs) + threadIdx.x;
  const auto has = [&](int p) { return p < packs && item + p * elementwise_threads < params.num_packs; };
  uint32_t words[num_inputs][num_words];
  int times[num_inputs][kPacks] = {};  // that repeated elements are to be spread, or bytes that cycled ones are moved
  if (has(0)) {
    for_each_input<In...>([&](auto index, auto type) {
      constexpr int k = decltype(index)::value;
      const ElementwiseOperand& operand = params.operands[k];
      uint32_t* const own = words[k - 1];
      decltype(type)::type::with_size(operand, [&](auto size) {
        constexpr int bytes = decltype(size)::value;
        constexpr int pack_bytes = kN * bytes;
        const unsigned char* const here = operand.data + item * pack_bytes;
        if (operand.access == ElementwiseAccess::aligned) {
#pragma unroll
          for (int p = 0; p < kPacks; ++p)
            if (has(p)) load_into<pack_bytes>(own, p, here + p * (elementwise_threads * pack_bytes));
        } else if (operand.access == ElementwiseAccess::shifted) {  // such plans have threads of one pack
          pack::load_shifted<pack_bytes, bytes>(own, here);
        } else if (is_periodic<Params> && operand.access >= ElementwiseAccess::cycled_packs) {
          if constexpr (is_periodic<Params>)
            if (operand.access != ElementwiseAccess::cycled_table)
              load_periodic<kN, kPacks, bytes>(operand, params.periods[k], static_cast<uint32_t>(item), has, own,
                                               times[k - 1]);
        } else {  // repeated below, when all loads are under way
          own[0] = operand.number[0];
          if constexpr (bytes == 8) own[1] = operand.number[1];
          if (operand.access == ElementwiseAccess::splat) pack::load<bytes>(own, operand.data);
        }
      });
    });
  }
  if constexpr (is_periodic<Params>) {
    if (params.has_tables) {
      stage_tables<In...>(params);
      __syncthreads();
    }
  }
  if (has(0)) {
    for_each_input<In...>([&](auto index, auto type) {
      constexpr int k = decltype(index)::value;
      const ElementwiseOperand& operand = params.operands[k];
      uint32_t* const own = words[k - 1];
      if (operand.access == ElementwiseAccess::aligned) return;
      decltype(type)::type::with_size(operand, [&](auto size) {
        constexpr int bytes = decltype(size)::value;
        constexpr int pack_bytes = kN * bytes;
        if (operand.access == ElementwiseAccess::shifted) {
          if constexpr (pack_bytes >= 4)
            pack::shift_down<pack_bytes>(
                own, static_cast<int>(reinterpret_cast<uintptr_t>(operand.data) % pack::access_bytes<pack_bytes>));
        } else if (operand.access == ElementwiseAccess::splat || operand.access == ElementwiseAccess::number) {
          pack::repeat<kN * kPacks, bytes>(own);
        } else if constexpr (is_periodic<Params>) {
          if (operand.access == ElementwiseAccess::cycled_table)
            load_table<kN, kPacks, bytes>(params.periods[k], static_cast<uint32_t>(item), own);
          if constexpr (pack_bytes >= 4) {
#pragma unroll
            for (int p = 0; p < kPacks; ++p)
              if (times[k - 1][p] != 0) {
                if (kPacks == 1 && operand.access == ElementwiseAccess::cycled)
                  pack::shift_down<pack_bytes>(own, times[k - 1][p]);
                else
                  spread_repeated_pack<kN, bytes>(params.periods[k], times[k - 1][p], own + p * pack_bytes / 4);
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
    // Its index, from the first element of the first pack on.
    const int64_t i = edge < params.head ? edge - params.head : edge - params.head + params.num_packs * kN;
    compute_element<Factory, Out, In...>(params.operands, factory, [&](int k) {
      const ElementwiseOperand& operand = params.operands[k];
      if constexpr (is_periodic<Params>) {
        if (operand.access >= ElementwiseAccess::cycled_packs) return locate_in_period(operand, params.periods[k], i);
      }
      return static_cast<const unsigned char*>(operand.data + i * operand.step);
    });
  }
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, resident_blocks<Factory>)
    elementwise_flat(const __grid_constant__ ElementwiseParams<1 + sizeof...(In)> params, const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  run_linear<kN, most_packs(kN, sizeof...(In)), ElementwiseParams<1 + sizeof...(In)>, Factory, Out, In...>(params,
                                                                                                           factory);
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, resident_blocks<Factory>)
    elementwise_periodic(const __grid_constant__ PeriodicElementwiseParams<1 + sizeof...(In)> params,
                         const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  run_linear<kN, most_packs(kN, sizeof...(In)), PeriodicElementwiseParams<1 + sizeof...(In)>, Factory, Out, In...>(
      params, factory);
}

}  // namespace flowk::detail
