// SPDX-License-Identifier: Apache-2.0
// One pack in a kernel: load the words of the inputs, call the functor on their values, store the words of out.
#pragma once

#include "flowk/detail/elementwise_elements.cuh"

namespace flowk::detail {

// The words of one pack of the widest input: whole, and with room for the access more that a shifted pack is cut from.
template <int kN, class... In>
struct PackWords {
  FLOWK_HOST_DEVICE static constexpr int largest_bytes() {
    int largest = 1;
    ((largest = In::largest_bytes > largest ? In::largest_bytes : largest), ...);
    return largest;
  }
  static constexpr int whole = (kN * largest_bytes() + 3) / 4;
  static constexpr int shifted = pack::num_words<kN * largest_bytes()>;
};

// Puts pack p into a thread's words. Packs of less than a word share one.
template <int kPackBytes>
__device__ __forceinline__ void put_short_pack(uint32_t* words, int p, uint32_t pack) {
  const int bit = p * kPackBytes * 8;
  words[bit / 32] = bit % 32 == 0 ? pack : words[bit / 32] | pack << (bit % 32);
}

// Loads pack p into a thread's words, and stores it from there.
template <int kPackBytes>
__device__ __forceinline__ void load_into(uint32_t* words, int p, const unsigned char* address) {
  if constexpr (kPackBytes >= 4) {
    pack::load<kPackBytes>(words + p * kPackBytes / 4, address);
  } else {
    uint32_t loaded;
    pack::load<kPackBytes>(&loaded, address);
    put_short_pack<kPackBytes>(words, p, loaded);
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

// Loads an aligned pack, or one element into the first word, to be repeated later.
template <int kN, int kSize>
__device__ __forceinline__ void load_unrepeated(const ElementwiseOperand& operand, const unsigned char* here,
                                                uint32_t* words) {
  if (operand.access == ElementwiseAccess::aligned) return pack::load<kN * kSize>(words, here);
  words[0] = operand.number[0];
  if constexpr (kSize == 8) words[1] = operand.number[1];
  if (operand.access == ElementwiseAccess::one_element) pack::load<kSize>(words, here);
}

// Loads an aligned pack, or one element into all places of the pack.
template <int kN, int kSize>
__device__ __forceinline__ void load_whole_pack(const ElementwiseOperand& operand, const unsigned char* here,
                                                uint32_t* words) {
  load_unrepeated<kN, kSize>(operand, here, words);
  if (operand.access != ElementwiseAccess::aligned) pack::repeat<kN, kSize>(words);
}

// Elements [first, first + kN) of an array, which stays in registers.
template <int kN, class T>
__device__ __forceinline__ T (&part_of(T* values, int first)) [kN] { return reinterpret_cast<T(&)[kN]>(values[first]); }

// Calls the functor on kPacks packs of kN elements: `words[k - 1]` holds those of input k, `out` the result. A functor
// whose takes_packs_together is true gets all of them in one call, another one gets the first `packs`, one by one.
template <int kN, int kPacks, class Out, class... In>
struct PackWork {
  static constexpr int num_inputs = static_cast<int>(sizeof...(In));
  static constexpr int num_elements = kN * kPacks;
  static constexpr int out_words = (num_elements * Out::largest_bytes + 3) / 4;

  template <class Operands, class Functor, int kWords>
  __device__ __forceinline__ static void compute(const Operands& operands, const Functor& functor, int packs,
                                                 const uint32_t (&words)[num_inputs][kWords],
                                                 uint32_t (&out)[out_words]) {
    compute_from<1, Operands, Functor, kWords, In...>(operands, functor, packs, words, out);
  }

 private:
  template <int k, class Operands, class Functor, int kWords, class First, class... Rest, class... Values>
  __device__ __forceinline__ static void compute_from(const Operands& operands, const Functor& functor, int packs,
                                                      const uint32_t (&words)[num_inputs][kWords],
                                                      uint32_t (&out)[out_words], Values&... values) {
    typename First::Value next[num_elements];
    First::unpack(operands[k], words[k - 1], next);
    if constexpr (sizeof...(Rest) > 0) {
      compute_from<k + 1, Operands, Functor, kWords, Rest...>(operands, functor, packs, words, out, values..., next);
    } else {
      typename Out::Value result[num_elements];
      if constexpr (kPacks == 1 || requires { requires Functor::takes_packs_together; }) {
        apply<num_elements>(functor, result, values..., next);
      } else {
#pragma unroll
        for (int p = 0; p < kPacks; ++p)
          if (p < packs)
            apply<kN>(functor, part_of<kN>(result, p * kN), part_of<kN>(values, p * kN)..., part_of<kN>(next, p * kN));
      }
      Out::pack(operands[0], result, out);
    }
  }
};

// Computes one of the elements around the whole packs. `locate(k)` is its address in operand k.
template <class Factory, class Out, class... In, class Operands, class Locate>
__device__ __forceinline__ void compute_element(const Operands& operands, const Factory& factory,
                                                const Locate& locate) {
  const auto functor = factory();
  // A functor that takes only pairs gets the element twice.
  constexpr int n = TakesElements<decltype(functor), Out, In...> ? 1 : 2;
  using Work = PackWork<n, 1, Out, In...>;
  constexpr int num_words = PackWords<n, In...>::whole;
  uint32_t words[sizeof...(In)][num_words] = {};
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    decltype(type)::type::with_size(operands[k], [&](auto size) {
      constexpr int bytes = decltype(size)::value;
      uint32_t* const own = words[k - 1];
      own[0] = operands[k].number[0];
      if constexpr (bytes == 8) own[1] = operands[k].number[1];
      if (operands[k].access != ElementwiseAccess::number) pack::load<bytes>(own, locate(k));
      pack::repeat<n, bytes>(own);
    });
  });
  uint32_t out[Work::out_words] = {};
  Work::compute(operands, functor, 1, words, out);
  Out::with_size(operands[0],
                 [&](auto size) { pack::store<decltype(size)::value>(const_cast<unsigned char*>(locate(0)), out); });
}

// May the functor be called with values that are not elements of the operands? For other functors the values beside a
// part of a pack are 0.
template <class Functor>
concept TakesAnyValues = requires { requires Functor::takes_any_values; };

// The blocks that an SM shall hold: 4, which leaves 64 registers per thread, or what the functor says.
template <class Factory>
constexpr int resident_blocks = 4;
template <class Factory>
  requires requires { Factory::resident_blocks; }
constexpr int resident_blocks<Factory> = Factory::resident_blocks;

// The same for a kernel that needs more registers itself: at most kMax.
template <class Factory, int kMax>
constexpr int fewer_resident_blocks = resident_blocks<Factory> < kMax ? resident_blocks<Factory> : kMax;

}  // namespace flowk::detail
