// SPDX-License-Identifier: Apache-2.0
// Loads of repeated inputs: element i of out takes element (i / repeat) % period of the input.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::detail {

template <class Params>
constexpr bool is_broadcast = requires(Params params) { params.has_tables; };

// Element `i` of out, counted from its first pack: the index of the input's element, and which repetition it is.
struct PeriodIndex {
  uint32_t index;
  uint32_t in_repeat;
};
__device__ __forceinline__ PeriodIndex index_in_period(const RepeatedOperand& operand, uint32_t i) {
  PeriodIndex found;
  uint32_t rest = i + operand.head;
  found.in_repeat = take_index(&rest, operand.repeat);
  found.index = take_index(&rest, operand.period);
  return found;
}
__device__ __forceinline__ const unsigned char* locate_in_period(const RepeatedOperand& operand, int64_t i) {
  return operand.data + index_in_period(operand, static_cast<uint32_t>(i)).index * operand.step;
}

// Loads the pack that begins at element `index` of a run, and may wrap around the run's end. With kHasRoom `words` have
// room for one more access, and the caller moves the pack down by the returned number of bytes.
template <int kN, int kSize, bool kHasRoom>
__device__ __forceinline__ int load_repeated_run(const RepeatedOperand& operand, uint32_t index, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const unsigned char* const here = operand.data + int64_t{index} * kSize;
  if (operand.access == ElementwiseAccess::repeated_packs) {
    pack::load<bytes>(words, here);
    return 0;
  }
  if constexpr (bytes >= 4) {
    constexpr int width = pack::access_bytes<bytes>;
    const int shift = static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(here)) % width);
    const uint32_t elements_before = static_cast<uint32_t>(shift) / kSize;
    const uint32_t num_elements = shift == 0 ? kN : kN + width / kSize;
    if (index >= elements_before && index - elements_before + num_elements <= operand.period.divisor) {
      if constexpr (kHasRoom) {
        pack::load_around<bytes>(words, here, shift);
        return shift;
      }
      uint32_t around[pack::num_words<bytes>];
      pack::load_around<bytes>(around, here, shift);
      if (shift != 0) pack::shift_down<bytes>(around, shift);
#pragma unroll
      for (int w = 0; w < bytes / 4; ++w) words[w] = around[w];
      return 0;
    }
  }
#pragma unroll
  for (int w = 0; w < (bytes + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, operand.data + int64_t{index} * kSize);
    pack::put<kSize>(words, i, element);
    index = index + 1 == operand.period.divisor ? 0 : index + 1;
  }
  return 0;
}

// A pack in which elements repeat. Most packs have one element, two, or a few neighbours; these are left in the
// first words of the pack, and spread_repeated_elements() spreads them after all loads have started. Returns
//   > 0  the number of repetitions of the first element: one or two elements were loaded
//   < 0  neighbours were loaded: -1 - 4 in_repeat - the bytes before it
//   0    nothing is left to be done
template <int kN, int kSize>
__device__ __forceinline__ int load_repeated_elements(const RepeatedOperand& operand, PeriodIndex at, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const auto next_of = [&](uint32_t i) { return i + 1 == operand.period.divisor ? 0 : i + 1; };
  if (operand.repeat.divisor >= kN) {
    pack::load<kSize>(words, operand.data + at.index * operand.step);
    const int left = static_cast<int>(operand.repeat.divisor - at.in_repeat);
    if (left >= kN) return kN;
    uint32_t next[(kSize + 3) / 4];
    pack::load<kSize>(next, operand.data + next_of(at.index) * operand.step);
    if constexpr (bytes <= 4) {
      words[0] |= next[0] << (bytes * 4);
    } else {
#pragma unroll
      for (int w = 0; w < (kSize + 3) / 4; ++w) words[(kSize + 3) / 4 + w] = next[w];
    }
    return left;
  }
  if constexpr (kSize < 4 && bytes == 16) {
    const unsigned char* const first = operand.data + at.index * kSize;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(first) % 4);
    const unsigned char* const around = first - shift;
    if (operand.spread_elements != 0 && at.index + operand.spread_elements <= operand.period.divisor &&
        around >= operand.begin && operand.end - around >= spread_load_bytes) {
#pragma unroll
      for (int w = 0; w < spread_load_bytes / 4; ++w) pack::load<4>(words + w, around + 4 * w);
      return -1 - static_cast<int>(4 * at.in_repeat) - shift;
    }
  }
#pragma unroll
  for (int w = 0; w < (bytes + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, operand.data + at.index * operand.step);
    pack::put<kSize>(words, i, element);
    if (++at.in_repeat == operand.repeat.divisor) {
      at.in_repeat = 0;
      at.index = next_of(at.index);
    }
  }
  return 0;
}

// Byte i of the pack is byte `spread[i + in_repeat * kSize]` of the neighbours.
template <int kSize>
__device__ __forceinline__ void spread_neighbours(const RepeatedOperand& operand, int times, uint32_t* words) {
  const uint32_t loaded = static_cast<uint32_t>(-1 - times);
  const uint32_t low = __funnelshift_r(words[0], words[1], loaded % 4 * 8);
  const uint32_t high = __funnelshift_r(words[1], words[2], loaded % 4 * 8);
  const uint32_t bits = loaded / 4 * (spread_index_bits * kSize);
  const bool is_far = bits >= 32;
  const uint32_t middle = is_far ? operand.spread[2] : operand.spread[1];
  const uint32_t first = __funnelshift_r(is_far ? operand.spread[1] : operand.spread[0], middle, bits % 32);
  const uint32_t second = __funnelshift_r(middle, is_far ? operand.spread[3] : operand.spread[2], bits % 32);
  words[0] = __byte_perm(low, high, first);
  words[1] = __byte_perm(low, high, first >> 16);
  words[2] = __byte_perm(low, high, second);
  words[3] = __byte_perm(low, high, second >> 16);
}

template <int kN, int kSize>
__device__ __forceinline__ void spread_repeated_elements(const RepeatedOperand& operand, int times, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  if constexpr (kSize < 4 && bytes == 16) {
    if (times < 0) return spread_neighbours<kSize>(operand, times, words);
  }
  if constexpr (kSize < 4) {
    // Selector 0 is byte 0 of the first element, 4 of the next one; 2-byte elements take bytes 1 and 5 as well.
    const uint32_t first = words[0], next = bytes <= 4 ? words[0] >> (bytes * 4) : words[1];
#pragma unroll
    for (int w = 0; w < (bytes + 3) / 4; ++w) {
      const auto zeros = static_cast<uint32_t>(::max(times * (kSize * 4) - 16 * w, 0));
      words[w] = __byte_perm(first, next, (kSize == 2 ? 0x1010u : 0u) | __funnelshift_lc(0u, 0x4444u, zeros));
    }
  } else {
    constexpr int size = kSize / 4;
    uint32_t elements[2][size];
#pragma unroll
    for (int w = 0; w < size; ++w) {
      elements[0][w] = words[w];
      elements[1][w] = words[size + w];
    }
#pragma unroll
    for (int i = 0; i < kN; ++i)
#pragma unroll
      for (int w = 0; w < size; ++w) words[i * size + w] = i < times ? elements[0][w] : elements[1][w];
  }
}

// The packs of a thread, the first of which is pack `item`; pack p exists if has(p). `pending[p]` is the result of
// load_repeated_elements() or load_repeated_run() for packs of whole words.
template <int kN, int kPacks, int kSize, class Has>
__device__ __forceinline__ void load_repeated(const RepeatedOperand& operand, uint32_t item, const Has& has,
                                              uint32_t* words, int (&pending)[kPacks]) {
  constexpr int pack_bytes = kN * kSize;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!has(p)) continue;
    const PeriodIndex first = index_in_period(operand, (item + p * elementwise_threads) * kN);
    const auto load = [&](uint32_t* own) {
      if (operand.access == ElementwiseAccess::repeated_elements)
        pending[p] = load_repeated_elements<kN, kSize>(operand, first, own);
      else
        pending[p] = load_repeated_run<kN, kSize, (kPacks == 1 && pack_bytes >= 4)>(operand, first.index, own);
    };
    if constexpr (pack_bytes >= 4) {
      load(words + p * pack_bytes / 4);
    } else {
      uint32_t own;
      load(&own);
      if (pending[p] != 0) spread_repeated_elements<kN, kSize>(operand, pending[p], &own);
      put_short_pack<pack_bytes>(words, p, own);
    }
  }
}

// Copies the tables to shared memory: element j of a table is element j % period of the input.
template <class... In, class Params>
__device__ __forceinline__ void stage_tables(const Params& params) {
  const auto has_table = [&](int k) { return params.operands[k].access == ElementwiseAccess::repeated_table; };
  for_each_input_if<In...>(params.operands, has_table, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
    const RepeatedOperand& operand = params.operands[k];
#pragma unroll 1
    for (uint32_t j = threadIdx.x; j < operand.table_elements; j += elementwise_threads) {
      uint32_t rest = j;
      const uint32_t index = take_index(&rest, operand.period);
      uint32_t element[(bytes + 3) / 4];
      pack::load<bytes>(element, operand.data + index * bytes);
      pack::store<bytes>(&shared<unsigned char>() + operand.table_offset + j * bytes, element);
    }
  });
}

// The packs of a thread from a table, cut from the words that hold them. The table is a pack and a word longer than the
// period.
template <int kN, int kPacks, int kSize>
__device__ __forceinline__ void load_table(const RepeatedOperand& operand, uint32_t item, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  constexpr int num_words = (bytes + 3) / 4;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const uint32_t offset = index_in_period(operand, (item + p * elementwise_threads) * kN).index * kSize;
    const unsigned char* const staged = &shared<unsigned char>() + operand.table_offset + offset / 4 * 4;
    uint32_t own[num_words + 1];
#pragma unroll
    for (int w = 0; w < num_words + (kSize < 4 ? 1 : 0); ++w) pack::load<4>(own + w, staged + 4 * w);
    if constexpr (kSize < 4) {
#pragma unroll
      for (int w = 0; w < num_words; ++w) own[w] = __funnelshift_r(own[w], own[w + 1], offset % 4 * 8);
    }
    if constexpr (bytes >= 4) {
#pragma unroll
      for (int w = 0; w < num_words; ++w) words[p * num_words + w] = own[w];
    } else {
      put_short_pack<bytes>(words, p, own[0] & 0xffffu);
    }
  }
}

}  // namespace flowk::detail
