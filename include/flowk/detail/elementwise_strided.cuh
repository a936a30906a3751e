// SPDX-License-Identifier: Apache-2.0
// elementwise_strided: out[i, j] = functor(x[i, j], ...) for any strides, over rows i of the innermost dimension j. A
// thread computes up to max_packs() packs, each of one row. Packs are aligned in out, so the ends of a row may cut
// them. An input at another alignment is read in the one or two aligned accesses that hold the pack, and shifted.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"

namespace flowk::detail {

// The offsets of a row's first element in all operands. Returns the index along the outermost dimension.
template <int kOperands>
__device__ __forceinline__ uint32_t locate_row(const StridedElementwiseParams<kOperands>& params, uint32_t row,
                                               int64_t (&offsets)[kOperands]) {
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets[k] = 0;
#pragma unroll 1
  for (int d = 1; d < params.rows.num_dims; ++d) {
    const uint32_t index = take_index(&row, params.rows.dims[d]);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] += static_cast<int64_t>(index) * params.operands[k].strides[d];
  }
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets[k] += static_cast<int64_t>(row) * params.operands[k].strides[0];
  return row;
}

// Brings the sector of an address into the L2 cache.
__device__ __forceinline__ void prefetch_sector([[maybe_unused]] const unsigned char* address) {
#ifndef FLOWK_SIMT
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// Elements [first, last) of a pack: those that are in the row.
struct PackPart {
  int first, last;
};

// Loads parts of kPacks input packs of a row into `words`, which the caller has set to 0. Element 0 of pack p is at
// address + p * distance, and in words[p] it lies behind shifts[p] bytes, by which the caller then moves them down.
template <int kN, int kPacks, int kSize, int kWords>
__device__ __forceinline__ void load_row_packs(const StridedOperand& operand, uintptr_t address, int64_t distance,
                                               const PackPart (&parts)[kPacks], uint32_t (&words)[kPacks][kWords],
                                               int (&shifts)[kPacks]) {
  constexpr int bytes = kN * kSize;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    shifts[p] = 0;
    const PackPart part = parts[p];
    if (part.first >= part.last) continue;
    const uintptr_t here = address + static_cast<uintptr_t>(p * distance);
    if (operand.access <= ElementwiseAccess::shifted) {
      const int shift = static_cast<int>(static_cast<uint32_t>(here) % bytes);
      const uintptr_t from = here - static_cast<uint32_t>(shift);
      if (from >= reinterpret_cast<uintptr_t>(operand.begin) && from <= reinterpret_cast<uintptr_t>(operand.end)) {
        if (shift + part.first * kSize < bytes) pack::load<bytes>(words[p], global_pointer(from));
        if constexpr (bytes >= 4)
          if (shift + part.last * kSize > bytes) pack::load<bytes>(words[p] + bytes / 4, global_pointer(from + bytes));
        shifts[p] = shift;
        continue;
      }
    } else if (operand.access != ElementwiseAccess::gather) {
      load_whole_pack<kN, kSize>(operand, global_pointer(here), words[p]);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i < part.first || i >= part.last) continue;
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, global_pointer(here + static_cast<uintptr_t>(i * operand.step)));
      pack::put<kSize>(words[p], i, element);
    }
  }
}

// Sets the elements beside a part of a pack to 0.
template <int kN, int kSize>
__device__ __forceinline__ void clear_others(uint32_t* words, PackPart part) {
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    if (i >= part.first && i < part.last) continue;
    if constexpr (kSize < 4) {
      words[i * kSize / 4] &= ~(0xffffffffu >> (32 - 8 * kSize) << (i * kSize % 4 * 8));
    } else {
#pragma unroll
      for (int w = 0; w < kSize / 4; ++w) words[i * kSize / 4 + w] = 0;
    }
  }
}

// Stores a part of pack p at `at`, the aligned address of the whole pack, in the longest pieces that are aligned to
// their size: fewer accesses than elements.
template <int kN, int kSize>
__device__ __forceinline__ void store_part(unsigned char* at, const uint32_t* words, int p, PackPart part) {
  const int first = part.first * kSize, last = part.last * kSize;
  const auto store_pieces = [&](auto size) {
    constexpr int bytes = decltype(size)::value;
    if constexpr (bytes >= kSize && bytes < kN * kSize) {
#pragma unroll
      for (int from = 0; from < kN * kSize; from += bytes) {
        const int parent = from & -(2 * bytes);
        const bool is_longer = 2 * bytes < kN * kSize && parent >= first && parent + 2 * bytes <= last;
        if (from < first || from + bytes > last || is_longer) continue;
        store_from<bytes>(words, (p * kN * kSize + from) / bytes, at + from);
      }
    }
  };
  store_pieces(Constant<8>());
  store_pieces(Constant<4>());
  store_pieces(Constant<2>());
  store_pieces(Constant<1>());
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads,
                                  fitting_blocks(elementwise_threads, fewer_resident_blocks<Factory, 4>))
    elementwise_strided(const __grid_constant__ GridConstant<StridedElementwiseParams<1 + sizeof...(In)>> params,
                        const Factory factory) {
  launch_dependent_grids();
  constexpr int num_inputs = static_cast<int>(sizeof...(In)), max = max_packs(kN, num_inputs);
  const StridedOperand& out = params.operands[0];
  const ElementwiseRows& rows = params.rows;
  uint32_t index = blockIdx.x * elementwise_threads + threadIdx.x;
  if (index >= rows.num_items) return;
  int column = static_cast<int>(take_index(&index, rows.items_per_row)) * kN;
  int64_t offsets[1 + num_inputs];
  const uint32_t outer = locate_row(params, index, offsets);
  if (out.access == ElementwiseAccess::aligned)
    column -= static_cast<int>(
        (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out.data + offsets[0])) >> out.element_shift) % kN);
  // The plan takes rows with steps of 32 bits.
  const auto locate = [&](int k) {
    return reinterpret_cast<uintptr_t>(params.operands[k].data + offsets[k] +
                                       int64_t{column} * static_cast<int32_t>(params.operands[k].step));
  };
  PackPart parts[max];
#pragma unroll
  for (int p = 0; p < max; ++p) {
    const int at = column + p * rows.pack_columns;
    const bool exists = p == 0 || outer + static_cast<uint32_t>(p * rows.pack_rows) < rows.dims[0].divisor;
    parts[p] = {::max(-at, 0), exists ? ::min(static_cast<int>(rows.row_elements.divisor) - at, kN) : 0};
  }
  if (parts[0].first >= parts[0].last) return;
  wait_on_dependent_grids();
  if (rows.prefetches_ends) {
#pragma unroll
    for (int p = 0; p < max; ++p)
      if (parts[p].first < parts[p].last && parts[p].last - parts[p].first < kN)
        prefetch_sector(global_pointer(locate(0) + static_cast<uintptr_t>(p * out.pack_stride)));
  }
  // Both packs go to the functor in one call if that leaves enough registers for a long formula.
  constexpr int together = kN * max <= 8 ? max : 1;
  using Work = PackWork<kN * together, max / together, Out, In...>;
  const auto functor = factory();
  uint32_t packs[num_inputs][max][PackWords<kN, In...>::shifted] = {};
  int shifts[num_inputs][max];
  for_each_input<In...>(params.operands, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
    load_row_packs<kN, max, bytes>(params.operands[k], locate(k), params.operands[k].pack_stride, parts, packs[k - 1],
                                   shifts[k - 1]);
  });
  uint32_t words[num_inputs][max * PackWords<kN, In...>::whole];
  for_each_input<In...>(params.operands, [&]<int k, int size>(Constant<k>, Constant<size>) {
    constexpr int bytes = kN * size;
#pragma unroll
    for (int p = 0; p < max; ++p) {
      uint32_t* const own = packs[k - 1][p];
      if constexpr (bytes >= 4)
        if (shifts[k - 1][p] != 0) pack::shift_down<bytes>(own, shifts[k - 1][p]);
      if constexpr (!TakesAnyValues<decltype(functor)>) clear_others<kN, size>(own, parts[p]);
      if constexpr (bytes < 4) {
        // An element in all places of the pack is also in the rest of the word.
        put_short_pack<bytes>(words[k - 1], p, own[0] & 0xffffffffu >> (32 - 8 * bytes));
      } else {
#pragma unroll
        for (int w = 0; w < bytes / 4; ++w) words[k - 1][p * bytes / 4 + w] = own[w];
      }
    }
  });
  uint32_t result[Work::out_words];
  Work::compute(params.operands, functor, rows.packs, words, result);
  Out::with_size(out, [&]<int bytes>(Constant<bytes>) {
#pragma unroll
    for (int p = 0; p < max; ++p) {
      unsigned char* const at = global_pointer(locate(0) + static_cast<uintptr_t>(p * out.pack_stride));
      const PackPart part = parts[p];
      if (out.access == ElementwiseAccess::aligned) {
        if (part.last - part.first == kN)
          store_from<kN * bytes>(result, p, at);
        else
          store_part<kN, bytes>(at, result, p, part);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (i < part.first || i >= part.last) continue;
        uint32_t element[(bytes + 3) / 4];
        pack::take<bytes>(result, p * kN + i, element);
        pack::store<bytes>(at + i * out.step, element);
      }
    }
  });
}

}  // namespace flowk::detail
