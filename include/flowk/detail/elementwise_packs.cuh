// SPDX-License-Identifier: Apache-2.0
// A pack's way through a kernel: its inputs' words, the functor on their values, the words of out.
#pragma once

#include "flowk/detail/elementwise_elements.cuh"

namespace flowk::detail {

// The words of an input's packs, with room for those that a shifted pack is cut from.
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

// A pack of neighbours at a multiple of its bytes, or one element in the first word, to be repeated when it is wanted.
template <int kN, int kSize>
__device__ __forceinline__ void load_unrepeated(const ElementwiseOperand& operand, const unsigned char* here,
                                                uint32_t* words) {
  if (operand.access == ElementwiseAccess::aligned) return pack::load<kN * kSize>(words, here);
  words[0] = operand.number[0];
  if constexpr (kSize == 8) words[1] = operand.number[1];
  if (operand.access == ElementwiseAccess::splat) pack::load<kSize>(words, here);
}

// The same, of one element throughout.
template <int kN, int kSize>
__device__ __forceinline__ void load_whole_pack(const ElementwiseOperand& operand, const unsigned char* here,
                                                uint32_t* words) {
  load_unrepeated<kN, kSize>(operand, here, words);
  if (operand.access != ElementwiseAccess::aligned) pack::repeat<kN, kSize>(words);
}

// Elements [first, first + kN) of an array that stays in registers.
template <int kN, class T>
__device__ __forceinline__ T (&part_of(T* values, int first)) [kN] { return reinterpret_cast<T(&)[kN]>(values[first]); }

// The functor of the words of kPacks packs of kN: `words[k - 1]` of input k, the result's in `out`. A functor that says
// takes_packs_together gets them at once, another one `packs` of them, one after the other.
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

// One element, by a thread of its own: for those that whole packs leave over. `locate(k)` is its address in operand k.
template <class Factory, class Out, class... In, class Operands, class Locate>
__device__ __forceinline__ void compute_element(const Operands& operands, const Factory& factory,
                                                const Locate& locate) {
  const auto functor = factory();
  // A functor of pairs alone gets the element twice.
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

// Blocks that an SM is to hold: 4 leave a thread 64 registers, unless the functor asks for more blocks.
template <class Factory>
constexpr int resident_blocks = 4;
template <class Factory>
  requires requires { Factory::resident_blocks; }
constexpr int resident_blocks<Factory> = Factory::resident_blocks;

// The same where the kernel wants registers of its own.
template <class Factory, int kMost>
constexpr int fewer_resident_blocks = resident_blocks<Factory> < kMost ? resident_blocks<Factory> : kMost;

}  // namespace flowk::detail
