// SPDX-License-Identifier: Apache-2.0
// Loads of broadcast inputs: element i of out meets element (i / repeat) % period of the input's run.
#pragma once

#include "flowk/elementwise_packs.cuh"
#include "flowk/shared.cuh"

namespace flowk {

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

// Neighbours in memory from `index` on, where a pack may go over the end of the period.
template <int kN, int kSize>
__device__ __forceinline__ void load_cycled_pack(const ElementwiseOperand& operand, const ElementwisePeriod& period,
                                                 uint32_t index, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const unsigned char* const here = operand.data + int64_t{index} * kSize;
  if (operand.access == ElementwiseAccess::cycled_packs) return pack::load<bytes>(words, here);
  if constexpr (bytes >= 4) {
    constexpr int width = pack::access_bytes<bytes>;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(here) % width);
    if (index + kN <= period.period.divisor && here - shift >= operand.begin &&
        here - shift + bytes + (shift == 0 ? 0 : width) <= operand.end) {
      uint32_t around[pack::num_words<bytes>];
      pack::load_around<bytes>(around, here, shift);
      if (shift != 0) pack::shift_down<bytes>(around, shift);
#pragma unroll
      for (int w = 0; w < bytes / 4; ++w) words[w] = around[w];
      return;
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
}

// Each element `repeat` times: a pack has one of them, or two, or the loop's. One or two are left in the pack's first
// places, for spread_repeated_pack() to spread when all loads are under way. Returns how often the first one stands in
// the pack; 0: all elements stand in their places.
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

template <int kN, int kSize>
__device__ __forceinline__ void spread_repeated_pack(int times, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  constexpr int num_words = (bytes + 3) / 4;
  uint32_t next[num_words];
  if constexpr (bytes <= 4) {
    next[0] = words[0] >> (bytes * 4);
    words[0] &= (1u << (bytes * 4)) - 1;
  } else {
#pragma unroll
    for (int w = 0; w < (kSize + 3) / 4; ++w) next[w] = words[(kSize + 3) / 4 + w];
  }
  pack::repeat<kN, kSize>(words);
  if (times >= kN) return;
  pack::repeat<kN, kSize>(next);
#pragma unroll
  for (int w = 0; w < num_words; ++w) {
    const int bits = times * (kSize * 8) - 32 * w;  // of this word that are of the first element
    const uint32_t mask = bits <= 0 ? 0u : bits >= 32 ? ~0u : (1u << bits) - 1;
    words[w] = (words[w] & mask) | (next[w] & ~mask);
  }
}

// A thread's packs, the first of which is pack `item`; pack p exists where has(p). `times` is what
// load_repeated_pack() leaves to be spread, for packs of whole words.
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
        load_cycled_pack<kN, kSize>(operand, period, place.index, own);
    };
    if constexpr (pack_bytes >= 4) {
      load(words + p * pack_bytes / 4);
    } else {
      uint32_t own;
      load(&own);
      if (times[p] != 0) spread_repeated_pack<kN, kSize>(times[p], &own);
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

}  // namespace flowk
