// SPDX-License-Identifier: Apache-2.0
// elementwise_strided: out[i, j] = functor(x[i, j], ...) for any strides, over rows i of the innermost dimension j, one
// pack per thread. Packs that the end of out or of a row cuts, and elements with gaps between them, are moved one by
// one.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"

namespace flowk::detail {

// The address of one operand's pack: element i is at here + i * step, or, from element `wrap` on, which is the first of
// the next row, at wrapped + i * step.
struct PackAddress {
  unsigned char* here = nullptr;
  unsigned char* wrapped = nullptr;
  int wrap = 0;
};

template <int kOperands>
struct PackAddresses {
  PackAddress operands[kOperands];
  int64_t linear;    // index in C order of the pack's element 0; < 0 if that does not exist
  int first, last;   // elements [first, last) exist
  bool wraps_often;  // rows are shorter than a pack
};

// The offsets of a row's first element in all operands.
template <int kOperands>
__device__ __forceinline__ void locate_row(const ElementwiseRows<kOperands>& rows, uint32_t row,
                                           int64_t (&offsets)[kOperands]) {
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets[k] = 0;
#pragma unroll 1
  for (int d = 0; d < rows.num_dims; ++d) {
    const uint32_t index = d + 1 < rows.num_dims ? take_index(&row, rows.dims[d]) : row;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] += static_cast<int64_t>(index) * rows.strides[d][k];
  }
}

// The address of one element, by its index in C order.
template <int kOperands>
__device__ __forceinline__ const unsigned char* locate_element(const StridedElementwiseParams<kOperands>& params, int k,
                                                               int64_t linear) {
  uint32_t row = static_cast<uint32_t>(linear);
  int64_t offset = static_cast<int64_t>(take_index(&row, params.rows.row_elements)) * params.operands[k].step;
#pragma unroll 1
  for (int d = 0; d < params.rows.num_dims; ++d) {
    const uint32_t index = d + 1 < params.rows.num_dims ? take_index(&row, params.rows.dims[d]) : row;
    offset += static_cast<int64_t>(index) * params.rows.strides[d][k];
  }
  return params.operands[k].data + offset;
}

// Loads input k's pack, which is then to be moved down by the returned number of bytes.
template <int kN, int k, int kSize, int kOperands>
__device__ __forceinline__ int load_cut_pack(const StridedElementwiseParams<kOperands>& params,
                                             const PackAddresses<kOperands>& addresses, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const ElementwiseOperand& operand = params.operands[k];
  const PackAddress& at = addresses.operands[k];
  const bool is_whole = addresses.last - addresses.first == kN && at.wrap >= kN;
  if (operand.access == ElementwiseAccess::number || (is_whole && (operand.access == ElementwiseAccess::aligned ||
                                                                   operand.access == ElementwiseAccess::one_element))) {
    load_whole_pack<kN, kSize>(operand, at.here, words);
    return 0;
  }
  if constexpr (bytes >= 4) {
    if (is_whole && operand.access == ElementwiseAccess::shifted) {
      constexpr int width = pack::access_bytes<bytes>;
      const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(at.here) % width);
      if (at.here - shift >= operand.begin && at.here - shift + bytes + (shift == 0 ? 0 : width) <= operand.end) {
        pack::load_around<bytes>(words, at.here, shift);
        return shift;
      }
    }
  }
#pragma unroll
  for (int w = 0; w < (bytes + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    if (i < addresses.first || i >= addresses.last) continue;
    const unsigned char* address = at.here + i * operand.step;
    if (i >= at.wrap) address = at.wrapped + i * operand.step;
    if (addresses.wraps_often && !operand.is_linear) address = locate_element(params, k, addresses.linear + i);
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, address);
    pack::put<kSize>(words, i, element);
  }
  return 0;
}

// The loaded inputs of a pack.
template <int kN, class... In>
struct CutPack {
  uint32_t words[sizeof...(In)][PackWords<kN, In...>::shifted];
  int shifts[sizeof...(In)];
};

template <int kN, class... In, int kOperands>
__device__ __forceinline__ void load_cut_packs(const StridedElementwiseParams<kOperands>& params,
                                               const PackAddresses<kOperands>& addresses, CutPack<kN, In...>* pack) {
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    decltype(type)::type::with_size(params.operands[k], [&](auto size) {
      pack->shifts[k - 1] = load_cut_pack<kN, k, decltype(size)::value>(params, addresses, pack->words[k - 1]);
    });
  });
}

// Computes a loaded pack and stores it.
template <int kN, class Out, class... In, int kOperands, class Functor>
__device__ __forceinline__ void finish_cut_pack(const StridedElementwiseParams<kOperands>& params,
                                                const PackAddresses<kOperands>& addresses, const Functor& functor,
                                                CutPack<kN, In...>* pack) {
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (pack->shifts[k - 1] == 0) return;
    decltype(type)::type::with_size(params.operands[k], [&](auto size) {
      constexpr int bytes = kN * decltype(size)::value;
      if constexpr (bytes >= 4) pack::shift_down<bytes>(pack->words[k - 1], pack->shifts[k - 1]);
    });
  });
  using Work = PackWork<kN, 1, Out, In...>;
  uint32_t words[Work::out_words];
  Work::compute(params.operands, functor, 1, pack->words, words);
  const ElementwiseOperand& out = params.operands[0];
  unsigned char* const here = addresses.operands[0].here;
  Out::with_size(out, [&](auto size) {
    constexpr int bytes = decltype(size)::value;
    if (addresses.last - addresses.first == kN && out.access == ElementwiseAccess::aligned)
      return pack::store<kN * bytes>(here, words);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i < addresses.first || i >= addresses.last) continue;
      uint32_t element[(bytes + 3) / 4];
      pack::take<bytes>(words, i, element);
      pack::store<bytes>(here + i * out.step, element);
    }
  });
}

// Pack `index` of a linear out, which may go over the end of a row. False: the pack has no element.
template <int kN, int kOperands>
__device__ __forceinline__ bool locate_linear(const StridedElementwiseParams<kOperands>& params, int64_t index,
                                              PackAddresses<kOperands>* addresses) {
  const int64_t linear = index * kN - params.misalignment;
  const int64_t remaining = params.count - linear;
  addresses->linear = linear;
  addresses->first = linear < 0 ? static_cast<int>(-linear) : 0;
  addresses->last = remaining < kN ? static_cast<int>(remaining) : kN;
  if (addresses->first >= addresses->last) return false;
  uint32_t row = linear < 0 ? 0 : static_cast<uint32_t>(linear);
  const uint32_t row_elements = params.rows.row_elements.divisor;
  const uint32_t in_row = take_index(&row, params.rows.row_elements);
  const int64_t column = linear < 0 ? linear : static_cast<int64_t>(in_row);
  const int64_t wrap = row_elements - column;
  addresses->wraps_often = row_elements < kN;
  int64_t offsets[kOperands], wrapped[kOperands] = {};
  locate_row(params.rows, row, offsets);
  if (wrap < kN) locate_row(params.rows, row + 1, wrapped);
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    const ElementwiseOperand& operand = params.operands[k];
    PackAddress& at = addresses->operands[k];
    at.here = operand.data + (operand.is_linear ? linear * operand.step : offsets[k] + column * operand.step);
    at.wrapped = operand.data + wrapped[k] - wrap * operand.step;
    at.wrap = operand.is_linear || wrap >= kN ? kN : static_cast<int>(wrap);
  }
  return true;
}

// Pack `index` of an out with gaps between its rows: packs stay within a row and are aligned in it.
template <int kN, int kOperands>
__device__ __forceinline__ bool locate_in_row(const StridedElementwiseParams<kOperands>& params, int64_t index,
                                              PackAddresses<kOperands>* addresses) {
  if (index >= params.rows.num_packs) return false;
  uint32_t row = static_cast<uint32_t>(index);
  const uint32_t in_row = take_index(&row, params.rows.packs_per_row);
  int64_t offsets[kOperands];
  locate_row(params.rows, row, offsets);
  const ElementwiseOperand& out = params.operands[0];
  int64_t column = static_cast<int64_t>(in_row) * kN;
  if (out.access == ElementwiseAccess::aligned)
    column -= (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out.data + offsets[0])) >> out.element_shift) % kN;
  const int64_t remaining = params.rows.row_elements.divisor - column;
  addresses->first = column < 0 ? static_cast<int>(-column) : 0;
  addresses->last = remaining < kN ? static_cast<int>(remaining) : kN;
  addresses->linear = 0;
  addresses->wraps_often = false;
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    addresses->operands[k].here = params.operands[k].data + offsets[k] + column * params.operands[k].step;
    addresses->operands[k].wrap = kN;
  }
  return addresses->first < addresses->last;
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads,
                                  fitting_blocks(elementwise_threads, fewer_resident_blocks<Factory, 4>))
    elementwise_strided(const __grid_constant__ GridConstant<StridedElementwiseParams<1 + sizeof...(In)>> params,
                        const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * elementwise_threads + threadIdx.x;
  PackAddresses<1 + sizeof...(In)> addresses;
  const bool has_elements = params.operands[0].is_linear ? locate_linear<kN>(params, index, &addresses)
                                                         : locate_in_row<kN>(params, index, &addresses);
  if (!has_elements) return;
  CutPack<kN, In...> pack;
  load_cut_packs<kN, In...>(params, addresses, &pack);
  finish_cut_pack<kN, Out, In...>(params, addresses, factory(), &pack);
}

}  // namespace flowk::detail
