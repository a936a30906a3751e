// SPDX-License-Identifier: Apache-2.0
// The kernel of every elementwise operation, flowk's own and a user's: out[i] = functor(x[i], y[i], ...). Device code
// for nvcc, NVRTC (13.0 and before with --device-as-default-execution-space, for the lambdas) and the executor;
// elementwise.cuh and flowk's own plan fill its parameters in.
#pragma once

#ifndef __CUDACC_RTC__  // which knows memcpy without it
#include <cstring>
#endif

#include "flowk/elementwise_params.h"
#include "flowk/grid_order.cuh"
#include "flowk/packs.cuh"
#include "flowk/shared.cuh"

namespace flowk {

// The elements of an operand, of a type that the compiler knows. A class of the same members may stand for several
// types that ElementwiseOperand::dtype tells apart.
template <class T>
struct Element {
  using Value = T;  // what the functor takes or gives
  static constexpr int largest_bytes = sizeof(T);

  // Calls visit(Constant<bytes of an element>()).
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

// Two neighbours of a 16-bit type, for functors that take them together.
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
template <class Functor, class... In>
concept TakesPairs = requires(const Functor& functor, typename PairOf<In>::type... in) { functor.pair(in...); };

// Calls a functor on a pack, by the widest of these that it has:
//   pack(out, x, ...)   whole packs, as arrays of kN values
//   pair(x, ...)        two neighbours: __half2 of __half2, __nv_bfloat162 of __nv_bfloat162
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

// Where one operand's pack stands: element i at here + i * step, from element `wrap` on, the first of the next row, at
// wrapped + i * step. Of a staged operand, `staged` is the offset of element 0 in shared memory.
struct PackPlace {
  unsigned char* here = nullptr;
  unsigned char* wrapped = nullptr;
  int wrap = 0;
  int staged = 0;
};

template <int kOperands>
struct PackPlaces {
  PackPlace operands[kOperands];
  int64_t linear;    // index in C order of the pack's element 0, which is < 0 where it does not exist
  int first, last;   // the elements that exist
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

template <class Params>
constexpr bool is_strided = requires(Params params) { params.rows; };
template <class Params>
constexpr bool is_periodic = requires(Params params) { params.periods; };

// A pack's work for given operand types: all loads, then all conversions, the functor and the store, so that no load
// waits for another.
template <bool kWhole, class Params, int kN, class Out, class... In>
struct PackWorkOf {
  static constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  static constexpr bool strided = is_strided<Params>;
  FLOWK_HOST_DEVICE static constexpr int largest_bytes() {
    int largest = 1;
    ((largest = In::largest_bytes > largest ? In::largest_bytes : largest), ...);
    return largest;
  }

  using Places = PackPlaces<num_operands>;
  struct Loaded {
    uint32_t words[pack::num_words<kN * largest_bytes()>];
    int shift;  // the pack starts so many bytes into the words
  };

  template <class Functor>
  __device__ __forceinline__ static void run(const Params& params, const Places& places, const Functor& functor) {
    Loaded loaded[sizeof...(In)];
    load_all(params, places, loaded);
    finish(params, places, functor, loaded);
  }
  __device__ __forceinline__ static void load_all(const Params& params, const Places& places, Loaded* loaded) {
    load_from<1, In...>(params, places, loaded);
  }
  template <class Functor>
  __device__ __forceinline__ static void finish(const Params& params, const Places& places, const Functor& functor,
                                                Loaded* loaded) {
    finish_from<1, Functor, In...>(params, places, functor, loaded);
  }
  // The staged inputs of all rows of a thread, from `column` of a tile on.
  __device__ __forceinline__ static void load_staged(const Params& params, int column, int group,
                                                     Loaded (*loaded)[sizeof...(In)]) {
    load_staged_from<1, In...>(params, column, group, loaded);
  }
  // The inputs that stand in shared memory by now.
  __device__ __forceinline__ static void load_tables(const Params& params, const Places& places, Loaded* loaded) {
    load_tables_from<1, In...>(params, places, loaded);
  }

 private:
  template <int k, class First, class... Rest>
  __device__ __forceinline__ static void load_from(const Params& params, const Places& places, Loaded* loaded) {
    loaded[k - 1].shift = 0;
    First::with_size(params.operands[k],
                     [&](auto size) { load<k, decltype(size)::value>(params, places, loaded[k - 1]); });
    if constexpr (sizeof...(Rest) > 0) load_from<k + 1, Rest...>(params, places, loaded);
  }
  template <int k, class First, class... Rest>
  __device__ __forceinline__ static void load_tables_from(const Params& params, const Places& places, Loaded* loaded) {
    if (params.operands[k].access == ElementwiseAccess::cycled_table)
      First::with_size(params.operands[k],
                       [&](auto size) { load_table<k, decltype(size)::value>(params, places, loaded[k - 1]); });
    if constexpr (sizeof...(Rest) > 0) load_tables_from<k + 1, Rest...>(params, places, loaded);
  }

  // Bytes of a run in shared memory, cut from the words that hold them: a table goes on for a pack and a word past its
  // period.
  template <int k, int kSize>
  __device__ __forceinline__ static void load_table(const Params& params, const Places& places, Loaded& loaded) {
    constexpr int bytes = kN * kSize;
    constexpr int num_words = (bytes + 3) / 4;
    const ElementwisePeriod& period = params.periods[k];
    uint32_t cycles = static_cast<uint32_t>(places.linear + period.lead);
    const uint32_t offset = take_index(&cycles, period.period) * kSize;
    const unsigned char* const staged = &shared<unsigned char>() + period.table_offset + offset / 4 * 4;
#pragma unroll
    for (int w = 0; w < num_words; ++w) pack::load<4>(loaded.words + w, staged + 4 * w);
    if constexpr (kSize < 4) {
      uint32_t next;
      pack::load<4>(&next, staged + 4 * num_words);
#pragma unroll
      for (int w = 0; w < num_words; ++w)
        loaded.words[w] =
            __funnelshift_r(loaded.words[w], w + 1 < num_words ? loaded.words[w + 1] : next, offset % 4 * 8);
    }
  }

  // Neighbours in memory where a pack may go over the end of the period.
  template <int k, int kSize>
  __device__ __forceinline__ static void load_cycled(const Params& params, const Places& places, Loaded& loaded) {
    constexpr int bytes = kN * kSize;
    const ElementwiseOperand& operand = params.operands[k];
    const ElementwisePeriod& period = params.periods[k];
    uint32_t cycles = static_cast<uint32_t>(places.linear + period.lead);
    uint32_t index = take_index(&cycles, period.period);
    const unsigned char* const here = operand.data + int64_t{index} * kSize;
    if (operand.access == ElementwiseAccess::cycled_packs) return pack::load<bytes>(loaded.words, here);
    if constexpr (bytes >= 4) {
      constexpr int width = pack::access_bytes<bytes>;
      const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(here) % width);
      if (index + kN <= period.period.divisor && here - shift >= operand.begin &&
          here - shift + bytes + (shift == 0 ? 0 : width) <= operand.end) {
        pack::load_around<bytes>(loaded.words, here, shift);
        loaded.shift = shift;
        return;
      }
    }
    clear<kSize>(loaded);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, operand.data + int64_t{index} * kSize);
      pack::put<kSize>(loaded.words, i, element);
      index = index + 1 == period.period.divisor ? 0 : index + 1;
    }
  }

  // Each element `repeat` times: a pack has one of them, or two, or the loop's.
  template <int k, int kSize>
  __device__ __forceinline__ static void load_repeated(const Params& params, const Places& places, Loaded& loaded) {
    const ElementwiseOperand& operand = params.operands[k];
    const ElementwisePeriod& period = params.periods[k];
    uint32_t index = static_cast<uint32_t>(places.linear + period.lead);
    uint32_t in_repeat = take_index(&index, period.repeat);
    uint32_t cycles = index;
    index = take_index(&cycles, period.period);
    const auto next_of = [&](uint32_t i) { return i + 1 == period.period.divisor ? 0 : i + 1; };
    if (period.repeat.divisor >= kN) {
      pack::load<kSize>(loaded.words, operand.data + index * operand.step);
      pack::repeat<kN, kSize>(loaded.words);
      const int left = static_cast<int>(period.repeat.divisor - in_repeat);
      if (left >= kN) return;
      uint32_t next[(kN * kSize + 3) / 4];
      pack::load<kSize>(next, operand.data + next_of(index) * operand.step);
      pack::repeat<kN, kSize>(next);
#pragma unroll
      for (int w = 0; w < (kN * kSize + 3) / 4; ++w) {
        const int bits = left * (kSize * 8) - 32 * w;  // of this word that are of the first element
        const uint32_t mask = bits <= 0 ? 0u : bits >= 32 ? ~0u : (1u << bits) - 1;
        loaded.words[w] = (loaded.words[w] & mask) | (next[w] & ~mask);
      }
      return;
    }
    clear<kSize>(loaded);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, operand.data + index * operand.step);
      pack::put<kSize>(loaded.words, i, element);
      if (++in_repeat == period.repeat.divisor) {
        in_repeat = 0;
        index = next_of(index);
      }
    }
  }

  template <int k, class First, class... Rest>
  __device__ __forceinline__ static void load_staged_from(const Params& params, int column, int group,
                                                          Loaded (*loaded)[sizeof...(In)]) {
    if (params.operands[k].access == ElementwiseAccess::staged)
      First::with_size(params.operands[k],
                       [&](auto size) { load_staged_rows<k, decltype(size)::value>(params, column, group, loaded); });
    if constexpr (sizeof...(Rest) > 0) load_staged_from<k + 1, Rest...>(params, column, group, loaded);
  }

  // The packs of a thread's rows: kN runs of `rows_per_word` neighbours along the rows, which change places with the
  // elements of a pack.
  template <int k, int kSize>
  __device__ __forceinline__ static void load_staged_rows(const Params& params, int column, int group,
                                                          Loaded (*loaded)[sizeof...(In)]) {
    using Tile = AlignedTile<kN>;
    constexpr int run = Tile::rows_per_word;
    const int pitch = params.tile.pitch[k];
    const unsigned char* const staged =
        &shared<unsigned char>() + params.tile.shared_offset[k] + column * pitch + group * (run * kSize);
#pragma unroll
    for (int first = 0; first < Tile::rows_per_thread; first += run) {
      const unsigned char* const here = staged + first * (Tile::row_groups * kSize);
      if constexpr (run * kSize == 4 && kSize < 4) {
#pragma unroll
        for (int i = 0; i < kN; i += run) {
          uint32_t words[run];
#pragma unroll
          for (int j = 0; j < run; ++j) pack::load<4>(words + j, here + (i + j) * pitch);
          pack::transpose<kSize>(words);
#pragma unroll
          for (int r = 0; r < run; ++r) loaded[first + r][k - 1].words[i / run] = words[r];
        }
      } else {
#pragma unroll
        for (int r = 0; r < run; ++r)
#pragma unroll
          for (int w = 0; w < (kN * kSize + 3) / 4; ++w) loaded[first + r][k - 1].words[w] = 0;
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          constexpr int piece = kSize >= 4 ? kSize : run * kSize < 4 ? run * kSize : 4;
          uint32_t elements[(run * kSize + 3) / 4];
#pragma unroll
          for (int at = 0; at < run * kSize; at += piece) pack::load<piece>(elements + at / 4, here + i * pitch + at);
#pragma unroll
          for (int r = 0; r < run; ++r) {
            uint32_t element[(kSize + 3) / 4];
            pack::take<kSize>(elements, r, element);
            if constexpr (kSize < 4) element[0] &= kSize == 1 ? 0xffu : 0xffffu;
            pack::put<kSize>(loaded[first + r][k - 1].words, i, element);
          }
        }
      }
    }
  }

  template <int kSize>
  __device__ __forceinline__ static void clear(Loaded& loaded) {
#pragma unroll
    for (int w = 0; w < (kN * kSize + 3) / 4; ++w) loaded.words[w] = 0;
  }

  template <int k, int kSize>
  __device__ __forceinline__ static void load(const Params& params, const Places& places, Loaded& loaded) {
    constexpr int bytes = kN * kSize;
    const ElementwiseOperand& operand = params.operands[k];
    const PackPlace& place = places.operands[k];
    if constexpr (is_periodic<Params>) {
      if (operand.access == ElementwiseAccess::cycled_table) return;  // by load_tables()
      if (operand.access == ElementwiseAccess::cycled_packs || operand.access == ElementwiseAccess::cycled)
        return load_cycled<k, kSize>(params, places, loaded);
      if (operand.access == ElementwiseAccess::repeated) return load_repeated<k, kSize>(params, places, loaded);
    }
    if constexpr (kWhole) {
      // Whole packs, and what is staged comes by load_staged().
      if (operand.access == ElementwiseAccess::aligned) return pack::load<bytes>(loaded.words, place.here);
      if (operand.access == ElementwiseAccess::staged) return;
      loaded.words[0] = operand.number[0];
      if constexpr (kSize == 8) loaded.words[1] = operand.number[1];
      if (operand.access == ElementwiseAccess::splat) pack::load<kSize>(loaded.words, place.here);
      return pack::repeat<kN, kSize>(loaded.words);
    } else {
      const bool is_whole = places.last - places.first == kN && (!strided || place.wrap >= kN);
      if (is_whole && operand.access == ElementwiseAccess::aligned) return pack::load<bytes>(loaded.words, place.here);
      if (operand.access == ElementwiseAccess::number) {
        loaded.words[0] = operand.number[0];
        if constexpr (kSize == 8) loaded.words[1] = operand.number[1];
        return pack::repeat<kN, kSize>(loaded.words);
      }
      if (is_whole && operand.access == ElementwiseAccess::splat) {
        pack::load<kSize>(loaded.words, place.here);
        return pack::repeat<kN, kSize>(loaded.words);
      }
      if constexpr (bytes >= 4) {
        if (is_whole && operand.access == ElementwiseAccess::shifted) {
          constexpr int width = pack::access_bytes<bytes>;
          const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(place.here) % width);
          if (place.here - shift >= operand.begin &&
              place.here - shift + bytes + (shift == 0 ? 0 : width) <= operand.end) {
            pack::load_around<bytes>(loaded.words, place.here, shift);
            loaded.shift = shift;
            return;
          }
        }
      }
      gather<k, kSize>(params, places, loaded);
    }
  }

  // Element by element.
  template <int k, int kSize>
  __device__ __forceinline__ static void gather(const Params& params, const Places& places, Loaded& loaded) {
    const ElementwiseOperand& operand = params.operands[k];
    const PackPlace& place = places.operands[k];
    clear<kSize>(loaded);
    if constexpr (strided) {
      if (operand.access == ElementwiseAccess::staged) {
        const unsigned char* staged = &shared<unsigned char>() + place.staged;
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          if (i < places.first || i >= places.last) continue;
          uint32_t element[(kSize + 3) / 4];
          pack::load<kSize>(element, staged + i * params.tile.pitch[k]);
          pack::put<kSize>(loaded.words, i, element);
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i < places.first || i >= places.last) continue;
      const unsigned char* address = place.here + i * operand.step;
      if constexpr (strided) {
        if (i >= place.wrap) address = place.wrapped + i * operand.step;
        if (places.wraps_often && !operand.is_linear) address = locate_element(params, k, places.linear + i);
      }
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, address);
      pack::put<kSize>(loaded.words, i, element);
    }
  }

  template <int k, class Functor, class First, class... Rest, class... Values>
  __device__ __forceinline__ static void finish_from(const Params& params, const Places& places, const Functor& functor,
                                                     Loaded* loaded, const Values&... values) {
    typename First::Value next[kN];
    if (!kWhole && loaded[k - 1].shift != 0) {
      First::with_size(params.operands[k], [&](auto size) {
        constexpr int bytes = kN * decltype(size)::value;
        if constexpr (bytes >= 4) pack::shift_down<bytes>(loaded[k - 1].words, loaded[k - 1].shift);
      });
    }
    First::unpack(params.operands[k], loaded[k - 1].words, next);
    if constexpr (sizeof...(Rest) > 0) {
      finish_from<k + 1, Functor, Rest...>(params, places, functor, loaded, values..., next);
    } else {
      typename Out::Value result[kN];
      apply<kN>(functor, result, values..., next);
      store(params, places, result);
    }
  }

  __device__ __forceinline__ static void store(const Params& params, const Places& places,
                                               const typename Out::Value (&result)[kN]) {
    const ElementwiseOperand& operand = params.operands[0];
    unsigned char* here = places.operands[0].here;
    uint32_t words[(kN * Out::largest_bytes + 3) / 4];
    Out::pack(operand, result, words);
    Out::with_size(operand, [&](auto size) {
      constexpr int element_bytes = decltype(size)::value;
      if constexpr (kWhole) {
        pack::store<kN * element_bytes>(here, words);
      } else {
        store_elements<element_bytes>(operand, places, words);
      }
    });
  }

  template <int element_bytes>
  __device__ __forceinline__ static void store_elements(const ElementwiseOperand& operand, const Places& places,
                                                        const uint32_t* words) {
    unsigned char* here = places.operands[0].here;
    if (places.last - places.first == kN && operand.access == ElementwiseAccess::aligned)
      return pack::store<kN * element_bytes>(here, words);
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if (i < places.first || i >= places.last) continue;
      uint32_t element[(element_bytes + 3) / 4];
      pack::take<element_bytes>(words, i, element);
      pack::store<element_bytes>(here + i * operand.step, element);
    }
  }
};

template <class Params, int kN, class Out, class... In>
using PackWork = PackWorkOf<false, Params, kN, Out, In...>;

// Pack `index` of an operation whose operands are linear or one element. False: it has no element.
template <int kN, int kOperands>
__device__ __forceinline__ bool place_flat(const ElementwiseParams<kOperands>& params, int64_t index,
                                           PackPlaces<kOperands>* places) {
  const int64_t linear = index * kN - params.lead;
  const int64_t remaining = params.count - linear;
  places->linear = linear;
  places->first = linear < 0 ? static_cast<int>(-linear) : 0;
  places->last = remaining < kN ? static_cast<int>(remaining) : kN;
#pragma unroll
  for (int k = 0; k < kOperands; ++k)
    places->operands[k].here = params.operands[k].data + linear * params.operands[k].step;
  return places->first < places->last;
}

// The same over rows, where out is linear: a pack may go over the end of a row.
template <int kN, int kOperands>
__device__ __forceinline__ bool place_linear(const StridedElementwiseParams<kOperands>& params, int64_t index,
                                             PackPlaces<kOperands>* places) {
  const int64_t linear = index * kN - params.lead;
  const int64_t remaining = params.count - linear;
  places->linear = linear;
  places->first = linear < 0 ? static_cast<int>(-linear) : 0;
  places->last = remaining < kN ? static_cast<int>(remaining) : kN;
  if (places->first >= places->last) return false;
  uint32_t row = linear < 0 ? 0 : static_cast<uint32_t>(linear);
  const uint32_t row_elements = params.rows.row_elements.divisor;
  const uint32_t in_row = take_index(&row, params.rows.row_elements);
  const int64_t column = linear < 0 ? linear : static_cast<int64_t>(in_row);
  const int64_t wrap = row_elements - column;
  places->wraps_often = row_elements < kN;
  int64_t offsets[kOperands], wrapped[kOperands] = {};
  locate_row(params.rows, row, offsets);
  if (wrap < kN) locate_row(params.rows, row + 1, wrapped);
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    const ElementwiseOperand& operand = params.operands[k];
    PackPlace& place = places->operands[k];
    place.here = operand.data + (operand.is_linear ? linear * operand.step : offsets[k] + column * operand.step);
    place.wrapped = operand.data + wrapped[k] - wrap * operand.step;
    place.wrap = operand.is_linear || wrap >= kN ? kN : static_cast<int>(wrap);
  }
  return true;
}

// The same where out has gaps between its rows: packs stay within a row and are aligned in it.
template <int kN, int kOperands>
__device__ __forceinline__ bool place_in_row(const StridedElementwiseParams<kOperands>& params, int64_t index,
                                             PackPlaces<kOperands>* places) {
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
  places->first = column < 0 ? static_cast<int>(-column) : 0;
  places->last = remaining < kN ? static_cast<int>(remaining) : kN;
  places->wraps_often = false;
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    places->operands[k].here = params.operands[k].data + offsets[k] + column * params.operands[k].step;
    places->operands[k].wrap = kN;
  }
  return places->first < places->last;
}

// A tile's place: its first row and column, and the offsets of the dimensions that it has no part in.
template <int kOperands>
struct TilePlace {
  int64_t offsets[kOperands];
  uint32_t row;
  uint32_t column;
};

template <int kOperands>
__device__ __forceinline__ TilePlace<kOperands> locate_tile(const StridedElementwiseParams<kOperands>& params,
                                                            uint32_t index) {
  TilePlace<kOperands> place;
  place.column = take_index(&index, params.tile.tiles_per_row) * params.tile.columns;
  place.row = take_index(&index, params.tile.tiles_per_column) * params.tile.rows;
  locate_row(params.rows, index, place.offsets);
  return place;
}

// Brings a tile of operand k into shared memory: `columns` runs of `rows` elements, a run in chunks of 16 bytes where
// it stands at multiples of them.
template <int k, int kSize, int kOperands>
__device__ __forceinline__ void stage(const StridedElementwiseParams<kOperands>& params,
                                      const TilePlace<kOperands>& place) {
  const ElementwiseOperand& operand = params.operands[k];
  const ElementwiseTile<kOperands>& tile = params.tile;
  const uint32_t num_rows = min(static_cast<uint32_t>(tile.rows), tile.column_elements - place.row);
  const uint32_t num_columns = static_cast<uint32_t>(tile.columns + tile.halo);
  const int64_t first_column = static_cast<int64_t>(place.column) - tile.halo;
  unsigned char* const staged = &shared<unsigned char>() + tile.shared_offset[k];
  const unsigned char* const first =
      operand.data + place.offsets[k] + place.row * tile.row_strides[k] + first_column * operand.step;
  const auto has_column = [&](uint32_t column) {
    return first_column + column >= 0 && first_column + column < params.rows.row_elements.divisor;
  };
  constexpr uint32_t chunk_elements = 16 / kSize;
  if (tile.chunked[k] && num_rows % chunk_elements == 0) {
    const uint32_t chunks_per_run = static_cast<uint32_t>(tile.rows) / chunk_elements;  // a power of two
    const int shift = 31 - __clz(static_cast<int>(chunks_per_run));
#pragma unroll 4
    for (uint32_t item = threadIdx.x; item < chunks_per_run * num_columns; item += elementwise_threads) {
      const uint32_t column = item >> shift;
      const uint32_t row = (item & (chunks_per_run - 1)) * chunk_elements;
      if (row >= num_rows || !has_column(column)) continue;
      uint32_t words[4];
      pack::load<16>(words, first + column * operand.step + row * kSize);
#pragma unroll
      for (int w = 0; w < 4; ++w) pack::store<4>(staged + column * tile.pitch[k] + row * kSize + 4 * w, words + w);
    }
  } else {
    const int shift = 31 - __clz(tile.rows);
#pragma unroll 8
    for (uint32_t item = threadIdx.x; item < tile.rows * num_columns; item += elementwise_threads) {
      const uint32_t column = item >> shift;
      const uint32_t row = item & (tile.rows - 1);
      if (row >= num_rows || !has_column(column)) continue;
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, first + column * operand.step + row * kSize);
      pack::store<kSize>(staged + column * tile.pitch[k] + row * kSize, element);
    }
  }
}

// The pack of item `item` of a tile, in C order of its rows.
template <int kN, int kOperands>
__device__ __forceinline__ bool place_in_tile(const StridedElementwiseParams<kOperands>& params,
                                              const TilePlace<kOperands>& tile_place, uint32_t item,
                                              PackPlaces<kOperands>* places) {
  const ElementwiseTile<kOperands>& tile = params.tile;
  const uint32_t packs_per_row = static_cast<uint32_t>(tile.columns) / kN;  // a power of two
  const uint32_t row_in_tile = item >> (31 - __clz(static_cast<int>(packs_per_row)));
  const uint32_t column_in_tile = (item & (packs_per_row - 1)) * kN;
  const uint32_t row = tile_place.row + row_in_tile;
  int phase = 0;  // columns that the row's packs are shifted down by
  if (tile.halo > 0) {
    const ElementwiseOperand& out = params.operands[0];
    const uintptr_t address = reinterpret_cast<uintptr_t>(out.data + tile_place.offsets[0] + row * tile.row_strides[0]);
    phase = static_cast<int>((static_cast<uint32_t>(address) >> out.element_shift) % kN);
  }
  const int64_t column = static_cast<int64_t>(tile_place.column) + column_in_tile - phase;
  const int64_t remaining = params.rows.row_elements.divisor - column;
  places->first = column < 0 ? static_cast<int>(-column) : 0;
  places->last = remaining < kN ? static_cast<int>(remaining) : kN;
  places->wraps_often = false;
#pragma unroll
  for (int k = 0; k < kOperands; ++k) {
    const ElementwiseOperand& operand = params.operands[k];
    PackPlace& place = places->operands[k];
    place.here = operand.data + tile_place.offsets[k] + row * tile.row_strides[k] + column * operand.step;
    place.wrap = kN;
    place.staged = tile.shared_offset[k] + (static_cast<int>(column_in_tile) + tile.halo - phase) * tile.pitch[k] +
                   (static_cast<int>(row_in_tile) << operand.element_shift);
  }
  return row < tile.column_elements && places->first < places->last;
}

template <int k, int kOperands, class First, class... Rest>
__device__ __forceinline__ void stage_all(const StridedElementwiseParams<kOperands>& params,
                                          const TilePlace<kOperands>& place) {
  if (params.operands[k].access == ElementwiseAccess::staged)
    First::with_size(params.operands[k], [&](auto size) { stage<k, decltype(size)::value>(params, place); });
  if constexpr (sizeof...(Rest) > 0) stage_all<k + 1, kOperands, Rest...>(params, place);
}

// Blocks that an SM is to hold: 4 leave a thread 64 registers, unless the functor asks for more blocks. The strided
// form needs those registers for itself.
template <class Factory>
constexpr int resident_blocks = 4;
template <class Factory>
  requires requires { Factory::resident_blocks; }
constexpr int resident_blocks<Factory> = Factory::resident_blocks;
template <class Factory>
constexpr int strided_resident_blocks = resident_blocks<Factory> < 4 ? resident_blocks<Factory> : 4;

// Packs that a thread of the flat form owns, unless the functor says more: one whose registers leave an SM too few
// threads to keep memory busy loads several packs before it computes.
template <class Factory>
constexpr int packs_per_thread = 1;
template <class Factory>
  requires requires { Factory::packs_per_thread; }
constexpr int packs_per_thread<Factory> = Factory::packs_per_thread;

// out[i] = functor(x[i], ...) over packs of kN neighbours in out; functor = factory(). All operands are linear or one
// element. A thread owns packs_per_thread packs, the threads of a block standing side by side; blocks go through memory
// in order.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, resident_blocks<Factory>)
    elementwise_flat(const __grid_constant__ ElementwiseParams<1 + sizeof...(In)> params, const Factory factory) {
  allow_next_grid();
  wait_for_previous_grid();
  using Params = ElementwiseParams<1 + sizeof...(In)>;
  using Work = PackWork<Params, kN, Out, In...>;
  constexpr int num_packs = packs_per_thread<Factory>;
  const int packs = num_packs == 1 ? 1 : params.packs;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (elementwise_threads * packs) + threadIdx.x;
  PackPlaces<1 + sizeof...(In)> places;
  if constexpr (num_packs == 1) {
    if (place_flat<kN>(params, first, &places)) Work::run(params, places, factory());
  } else {
    typename Work::Loaded loaded[num_packs][sizeof...(In)];
#pragma unroll
    for (int p = 0; p < num_packs; ++p)
      if (p < packs && place_flat<kN>(params, first + p * elementwise_threads, &places))
        Work::load_all(params, places, loaded[p]);
    // A loop, for one copy of the functor's code; the packs move up, for constant places in registers.
#pragma unroll 1
    for (int p = 0; p < packs; ++p) {
      if (!place_flat<kN>(params, first + p * elementwise_threads, &places)) return;
      Work::finish(params, places, factory(), loaded[0]);
#pragma unroll
      for (int q = 0; q + 1 < num_packs; ++q)
#pragma unroll
        for (int k = 0; k < static_cast<int>(sizeof...(In)); ++k) loaded[q][k] = loaded[q + 1][k];
    }
  }
}

// Brings operand k's table into shared memory, if it has one: element j is its element j % period.
template <int k, int kOperands, class First, class... Rest>
__device__ __forceinline__ void stage_tables(const PeriodicElementwiseParams<kOperands>& params) {
  if (params.operands[k].access == ElementwiseAccess::cycled_table)
    First::with_size(params.operands[k], [&](auto size) {
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
  if constexpr (sizeof...(Rest) > 0) stage_tables<k + 1, kOperands, Rest...>(params);
}

// out[i] = functor(x[i], ...) where element i of an input is its element i, or (i / repeat) % period: what is broadcast
// along rows, columns or channels. A thread owns one pack.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, resident_blocks<Factory>)
    elementwise_periodic(const __grid_constant__ PeriodicElementwiseParams<1 + sizeof...(In)> params,
                         const Factory factory) {
  allow_next_grid();
  wait_for_previous_grid();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  using Work = PackWork<PeriodicElementwiseParams<num_operands>, kN, Out, In...>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * elementwise_threads + threadIdx.x;
  PackPlaces<num_operands> places;
  typename Work::Loaded loaded[sizeof...(In)];
  const bool has_elements = place_flat<kN>(static_cast<const ElementwiseParams<num_operands>&>(params), index, &places);
  if (has_elements) Work::load_all(params, places, loaded);
  if (params.has_tables) {
    stage_tables<1, num_operands, In...>(params);
    __syncthreads();
    if (has_elements) Work::load_tables(params, places, loaded);
  }
  if (has_elements) Work::finish(params, places, factory(), loaded);
}

// out[i, j] = functor(x[i, j], ...) over rows i of the innermost dimension j, of any strides. A thread owns one pack;
// or a block owns a tile, into which the staged inputs are brought first, and a thread several packs of it.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, strided_resident_blocks<Factory>)
    elementwise_strided(const __grid_constant__ StridedElementwiseParams<1 + sizeof...(In)> params,
                        const Factory factory) {
  allow_next_grid();
  wait_for_previous_grid();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  using Params = StridedElementwiseParams<num_operands>;
  const auto functor = factory();
  PackPlaces<num_operands> places;
  TilePlace<num_operands> tile_place;
  uint32_t num_items = 1;
  const bool is_tiled = params.tile.rows > 0;
  if (is_tiled) {
    tile_place = locate_tile(params, blockIdx.x);
    stage_all<1, num_operands, In...>(params, tile_place);
    __syncthreads();
    num_items = static_cast<uint32_t>(params.tile.rows * params.tile.columns) / (kN * elementwise_threads);
  }
#pragma unroll 1
  for (uint32_t item = 0; item < num_items; ++item) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * elementwise_threads + threadIdx.x;
    const bool has_elements =
        is_tiled ? place_in_tile<kN>(params, tile_place, item * elementwise_threads + threadIdx.x, &places)
        : params.operands[0].is_linear ? place_linear<kN>(params, index, &places)
                                       : place_in_row<kN>(params, index, &places);
    if (has_elements) PackWork<Params, kN, Out, In...>::run(params, places, functor);
  }
}

// The same in tiles whose rows are whole aligned packs, and staged runs aligned, in one pass: a thread loads what is
// not staged of its rows, brings its share of the tile, and computes its packs row by row.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, kN == 16 && sizeof...(In) > 1 ? 2 : 3)
    elementwise_tiles(const __grid_constant__ StridedElementwiseParams<1 + sizeof...(In)> params,
                      const Factory factory) {
  allow_next_grid();
  wait_for_previous_grid();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  using Work = PackWorkOf<true, StridedElementwiseParams<num_operands>, kN, Out, In...>;
  using Tile = AlignedTile<kN>;
  const TilePlace<num_operands> tile_place = locate_tile(params, blockIdx.x);
  const int group = static_cast<int>(threadIdx.x) / Tile::packs_per_row;
  const int column_in_tile = static_cast<int>(threadIdx.x) % Tile::packs_per_row * kN;
  const uint32_t column = tile_place.column + static_cast<uint32_t>(column_in_tile);
  PackPlaces<num_operands> places;
  const auto place_row = [&](int r) {
    constexpr int run = Tile::rows_per_word;
    const uint32_t row =
        tile_place.row + static_cast<uint32_t>(r / run * run * Tile::row_groups + group * run + r % run);
#pragma unroll
    for (int k = 0; k < num_operands; ++k)
      places.operands[k].here = params.operands[k].data + tile_place.offsets[k] + row * params.tile.row_strides[k] +
                                column * params.operands[k].step;
    return row < params.tile.column_elements && column < params.rows.row_elements.divisor;
  };
  typename Work::Loaded loaded[Tile::rows_per_thread][sizeof...(In)];
#pragma unroll
  for (int r = 0; r < Tile::rows_per_thread; ++r)
    if (place_row(r)) Work::load_all(params, places, loaded[r]);
  stage_all<1, num_operands, In...>(params, tile_place);
  __syncthreads();
  Work::load_staged(params, column_in_tile, group, loaded);
  const auto functor = factory();
#pragma unroll 1
  for (int r = 0; r < Tile::rows_per_thread; ++r) {
    if (place_row(r)) Work::finish(params, places, functor, loaded[0]);
#pragma unroll
    for (int q = 0; q + 1 < Tile::rows_per_thread; ++q)
#pragma unroll
      for (int k = 0; k < static_cast<int>(sizeof...(In)); ++k) loaded[q][k] = loaded[q + 1][k];
  }
}

}  // namespace flowk
