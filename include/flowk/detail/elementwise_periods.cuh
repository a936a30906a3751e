// SPDX-License-Identifier: Apache-2.0
// Loads of broadcast inputs: element i of out meets element (i / repeat) % period of the input's run.
#pragma once

#include "flowk/detail/elementwise_packs.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::detail {

template <class Params>
constexpr bool is_periodic = requires(Params params) { params.periods; };

// The place of element `i` of out, which counts from its first pack: its index in the run, and among its repetitions.
struct PeriodPlace {
  uint32_t index;
  uint32_t in_repeat;
};
__device__ __forceinline__ PeriodPlace place_in_period(const ElementwisePeriod& period, uint32_t i) {
  PeriodPlace place;
  uint32_t rest = i + period.head;
  place.in_repeat = take_index(&rest, period.repeat);
  place.index = take_index(&rest, period.period);
  return place;
}
__device__ __forceinline__ const unsigned char* locate_in_period(const ElementwiseOperand& operand,
                                                                 const ElementwisePeriod& period, int64_t i) {
  return operand.data + place_in_period(period, static_cast<uint32_t>(i)).index * operand.step;
}

// Neighbours in memory from `index` on, where a pack may go over the end of the period: to be moved down by the
// result's bytes, if `words` have room for an access more (kHasRoom).
template <int kN, int kSize, bool kHasRoom>
__device__ __forceinline__ int load_cycled_pack(const ElementwiseOperand& operand, const ElementwisePeriod& period,
                                                uint32_t index, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const unsigned char* const here = operand.data + int64_t{index} * kSize;
  if (operand.access == ElementwiseAccess::cycled_packs) {
    pack::load<bytes>(words, here);
    return 0;
  }
  if constexpr (bytes >= 4) {
    constexpr int width = pack::access_bytes<bytes>;
    const int shift = static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(here)) % width);
    const uint32_t elements_before = static_cast<uint32_t>(shift) / kSize;
    const uint32_t num_elements = shift == 0 ? kN : kN + width / kSize;
    if (index >= elements_before && index - elements_before + num_elements <= period.period.divisor) {
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
    index = index + 1 == period.period.divisor ? 0 : index + 1;
  }
  return 0;
}

// Each element `repeat` times: a pack has one of them, or two, or a window of neighbours, or the loop's. What is loaded
// of all but the last is left in the pack's first places, for spread_repeated_pack() to spread when all loads are under
// way. Returns how often the first one stands in the pack; a negative number for a window; 0: all stand in their
// places.
template <int kN, int kSize>
__device__ __forceinline__ int load_repeated_pack(const ElementwiseOperand& operand, const ElementwisePeriod& period,
                                                  PeriodPlace place, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const auto next_of = [&](uint32_t i) { return i + 1 == period.period.divisor ? 0 : i + 1; };
  if (period.repeat.divisor >= kN) {
    pack::load<kSize>(words, operand.data + place.index * operand.step);
    const int left = static_cast<int>(period.repeat.divisor - place.in_repeat);
    if (left >= kN) return kN;
    uint32_t next[(kSize + 3) / 4];
    pack::load<kSize>(next, operand.data + next_of(place.index) * operand.step);
    if constexpr (bytes <= 4) {
      words[0] |= next[0] << (bytes * 4);
    } else {
#pragma unroll
      for (int w = 0; w < (kSize + 3) / 4; ++w) words[(kSize + 3) / 4 + w] = next[w];
    }
    return left;
  }
  if constexpr (kSize < 4 && bytes == 16) {
    const unsigned char* const first = operand.data + place.index * kSize;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(first) % 4);
    const unsigned char* const around = first - shift;
    if (period.window_elements != 0 && place.index + period.window_elements <= period.period.divisor &&
        around >= operand.begin && operand.end - around >= window_bytes) {
#pragma unroll
      for (int w = 0; w < window_bytes / 4; ++w) pack::load<4>(words + w, around + 4 * w);
      return -1 - static_cast<int>(4 * place.in_repeat) - shift;
    }
  }
#pragma unroll
  for (int w = 0; w < (bytes + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, operand.data + place.index * operand.step);
    pack::put<kSize>(words, i, element);
    if (++place.in_repeat == period.repeat.divisor) {
      place.in_repeat = 0;
      place.index = next_of(place.index);
    }
  }
  return 0;
}

// The selectors of a pack's bytes among the 8 of its window stand in `spread` from the pack's place among the
// repetitions on.
template <int kSize>
__device__ __forceinline__ void spread_window(const ElementwisePeriod& period, int times, uint32_t* words) {
  const uint32_t place = static_cast<uint32_t>(-1 - times);
  const uint32_t low = __funnelshift_r(words[0], words[1], place % 4 * 8);
  const uint32_t high = __funnelshift_r(words[1], words[2], place % 4 * 8);
  const uint32_t bits = place / 4 * (4 * kSize);
  const bool is_far = bits >= 32;
  const uint32_t middle = is_far ? period.spread[2] : period.spread[1];
  const uint32_t first = __funnelshift_r(is_far ? period.spread[1] : period.spread[0], middle, bits % 32);
  const uint32_t second = __funnelshift_r(middle, is_far ? period.spread[3] : period.spread[2], bits % 32);
  words[0] = __byte_perm(low, high, first);
  words[1] = __byte_perm(low, high, first >> 16);
  words[2] = __byte_perm(low, high, second);
  words[3] = __byte_perm(low, high, second >> 16);
}

template <int kN, int kSize>
__device__ __forceinline__ void spread_repeated_pack(const ElementwisePeriod& period, int times, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  if constexpr (kSize < 4 && bytes == 16) {
    if (times < 0) return spread_window<kSize>(period, times, words);
  }
  if constexpr (kSize < 4) {
    // A selector of zeros takes the first element, one of fours the next one; of 2 bytes byte 1 as well.
    const uint32_t first = words[0], next = bytes <= 4 ? words[0] >> (bytes * 4) : words[1];
#pragma unroll
    for (int w = 0; w < (bytes + 3) / 4; ++w) {
      const auto zeros = static_cast<uint32_t>(max(times * (kSize * 4) - 16 * w, 0));
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

// A thread's packs, the first of which is pack `item`; pack p exists where has(p). `times` is what
// load_repeated_pack() leaves to be spread, or load_cycled_pack() to be moved down, for packs of whole words.
template <int kN, int kPacks, int kSize, class Has>
__device__ __forceinline__ void load_periodic(const ElementwiseOperand& operand, const ElementwisePeriod& period,
                                              uint32_t item, const Has& has, uint32_t* words, int (&times)[kPacks]) {
  constexpr int pack_bytes = kN * kSize;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (!has(p)) continue;
    const PeriodPlace place = place_in_period(period, (item + p * elementwise_threads) * kN);
    const auto load = [&](uint32_t* own) {
      if (operand.access == ElementwiseAccess::repeated)
        times[p] = load_repeated_pack<kN, kSize>(operand, period, place, own);
      else
        times[p] = load_cycled_pack<kN, kSize, (kPacks == 1 && pack_bytes >= 4)>(operand, period, place.index, own);
    };
    if constexpr (pack_bytes >= 4) {
      load(words + p * pack_bytes / 4);
    } else {
      uint32_t own;
      load(&own);
      if (times[p] != 0) spread_repeated_pack<kN, kSize>(period, times[p], &own);
      const int bit = p * pack_bytes * 8;
      words[bit / 32] = bit % 32 == 0 ? own : words[bit / 32] | own << (bit % 32);
    }
  }
}

// Brings the tables into shared memory: element j of one is the input's element j % period.
template <class... In, class Params>
__device__ __forceinline__ void stage_tables(const Params& params) {
  for_each_input<In...>([&](auto input, auto type) {
    constexpr int k = decltype(input)::value;
    if (params.operands[k].access != ElementwiseAccess::cycled_table) return;
    decltype(type)::type::with_size(params.operands[k], [&](auto size) {
      constexpr int bytes = decltype(size)::value;
      const ElementwisePeriod& period = params.periods[k];
#pragma unroll 1
      for (uint32_t j = threadIdx.x; j < period.table_elements; j += elementwise_threads) {
        uint32_t cycles = j;
        const uint32_t index = take_index(&cycles, period.period);
        uint32_t element[(bytes + 3) / 4];
        pack::load<bytes>(element, params.operands[k].data + index * bytes);
        pack::store<bytes>(&shared<unsigned char>() + period.table_offset + j * bytes, element);
      }
    });
  });
}

// A thread's packs from a table, which goes on for a pack and a word past its period, cut from the words that hold
// them.
template <int kN, int kPacks, int kSize>
__device__ __forceinline__ void load_table(const ElementwisePeriod& period, uint32_t item, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  constexpr int num_words = (bytes + 3) / 4;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const uint32_t offset = place_in_period(period, (item + p * elementwise_threads) * kN).index * kSize;
    const unsigned char* const staged = &shared<unsigned char>() + period.table_offset + offset / 4 * 4;
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
      const int bit = p * bytes * 8;
      const uint32_t part = own[0] & 0xffffu;
      words[bit / 32] = bit % 32 == 0 ? part : words[bit / 32] | part << (bit % 32);
    }
  }
}

}  // namespace flowk::detail
