// SPDX-License-Identifier: Apache-2.0
// Converts several values between two element types that are known only at run time: one switch for all values, uniform
// over the grid.
#pragma once

#include "core/conversion.h"
#include "core/values.cuh"
#include "flowk/flowk.h"

namespace flowk::core {

// Calls body(std::type_identity<T>()) with the type that `dtype` names, which has kBytes bytes. Integers of 32 bits are
// computed in double only. The most frequent type is found first: the compiler makes a table of jumps of a switch.
template <int kBytes, class Compute, class Body>
__device__ __forceinline__ void visit_type(int32_t dtype, const Body& body) {
  if constexpr (kBytes == 1) {
    if (dtype == FLOWK_UINT8) return body(std::type_identity<uint8_t>());
    switch (dtype) {
      case FLOWK_INT8: return body(std::type_identity<int8_t>());
      case FLOWK_FLOAT8_E4M3: return body(std::type_identity<Float8E4M3>());
      case FLOWK_FLOAT8_E5M2: return body(std::type_identity<Float8E5M2>());
    }
    body(std::type_identity<bool>());
  } else if constexpr (kBytes == 2) {
    if (dtype == FLOWK_FLOAT16) return body(std::type_identity<Float16>());
    switch (dtype) {
      case FLOWK_INT16: return body(std::type_identity<int16_t>());
      case FLOWK_UINT16: return body(std::type_identity<uint16_t>());
    }
    body(std::type_identity<BFloat16>());
  } else if constexpr (kBytes == 4) {
    if constexpr (std::is_same_v<Compute, double>) {
      switch (dtype) {
        case FLOWK_INT32: return body(std::type_identity<int32_t>());
        case FLOWK_UINT32: return body(std::type_identity<uint32_t>());
      }
    }
    body(std::type_identity<float>());
  } else {
    body(std::type_identity<double>());
  }
}

// Byte i of a word as a T of one byte, extended to 32 bits in one instruction.
template <class T>
__device__ __forceinline__ int32_t byte_of(uint32_t word, int i) {
#ifdef FLOWK_SIMT
  return static_cast<T>(word >> (8 * i));
#else
  // Selector 4 is a zero byte, 8 + i the sign of byte i.
  const uint32_t selector = static_cast<uint32_t>(std::is_signed_v<T> ? (8 + i) * 0x1110 + i : 0x4440 + i);
  int32_t value;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"(selector));
  return value;
#endif
}

// x != 0 as 0 or 1, in one instruction.
__device__ __forceinline__ uint32_t as_bool(uint32_t x) {
#ifdef FLOWK_SIMT
  return x != 0;
#else
  uint32_t result;
  asm("min.u32 %0, %1, 1;" : "=r"(result) : "r"(x));
  return result;
#endif
}

// Raw: elements as they are in memory, or in the low bits of words, with zeros above.
template <class T, class Compute, int kN, class Raw>
__device__ __forceinline__ void widen_as(const Raw (&raw)[kN], Compute (&values)[kN]) {
  constexpr bool is_short = is_short_integer<T> && std::is_same_v<Compute, float>;
  if constexpr (is_float8<T> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const float2 pair = widen_pair<T>(raw[i] | static_cast<uint32_t>(raw[i + 1]) << 8);
      values[i] = pair.x;
      values[i + 1] = pair.y;
    }
  } else if constexpr (is_short_integer<T> && sizeof(Raw) == 1 && (is_short || std::is_same_v<Compute, int32_t>) &&
                       kN % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      uint32_t word;
      __builtin_memcpy(&word, raw + i / 4 * 4, sizeof(word));
      if constexpr (is_short)
        values[i] = from_integer(byte_of<T>(word, i % 4));
      else
        values[i] = byte_of<T>(word, i % 4);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      if constexpr (std::is_same_v<T, bool>) {  // any byte but 0 is true
        values[i] = raw[i] != 0 ? Compute{1} : Compute{0};
      } else {
        T element;
        __builtin_memcpy(static_cast<void*>(&element), &raw[i], sizeof(T));
        if constexpr (is_short)
          values[i] = from_integer(element);
        else
          values[i] = static_cast<Compute>(widen(element));
      }
    }
  }
}

// Converts kN elements of `dtype`, of kBytes bytes each, to Compute. Compute holds all values of `dtype`.
template <int kBytes, class Compute, int kN, class Raw>
__device__ __forceinline__ void widen_elements(int32_t dtype, const Raw (&raw)[kN], Compute (&values)[kN]) {
  visit_type<kBytes, Compute>(dtype, [&](auto type) { widen_as<typename decltype(type)::type>(raw, values); });
}

// Round to odd: `x` truncated to float, with the last bit set if bits were lost. Rounding the result to a narrower
// float gives the same as rounding `x`.
__device__ __forceinline__ float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = __float_as_uint(nearest);
  if (fabs(static_cast<double>(nearest)) > fabs(x)) --bits;
  return __uint_as_float(bits | 1);
}

// Elements as words: raw[i] is the low bits of bits(i). Elements of 1 and 2 bytes are packed by one instruction for
// two; the compiler's own choice takes three.
template <int kBytes, int kN, class Bits>
__device__ __forceinline__ void pack_elements(Pack<kBytes> (&raw)[kN], const Bits& bits) {
  if constexpr (kBytes == 1 && kN % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 4) {
      const uint32_t low = __byte_perm(bits(i), bits(i + 1), 0x0040);
      const uint32_t word = __byte_perm(low, __byte_perm(bits(i + 2), bits(i + 3), 0x0040), 0x5410);
      __builtin_memcpy(raw + i, &word, sizeof(word));
    }
  } else if constexpr (kBytes == 2 && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const uint32_t word = __byte_perm(bits(i), bits(i + 1), 0x5410);
      __builtin_memcpy(raw + i, &word, sizeof(word));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) raw[i] = static_cast<Pack<kBytes>>(bits(i));
  }
}

template <class T, class Compute, int kN>
__device__ __forceinline__ void narrow_as(const Compute (&values)[kN], Pack<sizeof(T)> (&raw)[kN]) {
  constexpr bool is_short_float = is_float8<T> || is_float16<T>;
  constexpr int per_word = sizeof(T) == 1 ? 4 : 2;
  if constexpr (is_short_float && std::is_same_v<Compute, double>) {
    float odd[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) odd[i] = round_to_odd(values[i]);
    narrow_as<T>(odd, raw);
  } else if constexpr (is_float16<T> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const uint32_t pair = narrow_pair<T>(values[i], values[i + 1]);
      __builtin_memcpy(raw + i, &pair, sizeof(pair));
    }
  } else if constexpr (is_float8<T> && kN % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 4) {
      const uint32_t word =
          __byte_perm(narrow_pair<T>(values[i], values[i + 1]), narrow_pair<T>(values[i + 2], values[i + 3]), 0x5410);
      __builtin_memcpy(raw + i, &word, sizeof(word));
    }
  } else if constexpr (std::is_same_v<T, bool> && std::is_integral_v<Compute> && sizeof(Compute) == 4) {
    pack_elements<1>(raw, [&](int i) { return as_bool(static_cast<uint32_t>(values[i])); });
  } else if constexpr (is_short_integer<T> && std::is_same_v<Compute, float> && kN % per_word == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += per_word) {
      const uint32_t last = to_bits<T>(values[i + per_word - 2], values[i + per_word - 1]);
      const uint32_t word = sizeof(T) == 1 ? to_bits<T>(values[i], values[i + 1], last) : last;
      __builtin_memcpy(raw + i, &word, sizeof(word));
    }
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 2 && std::is_same_v<Compute, float>) {
    pack_elements<sizeof(T)>(raw, [&](int i) { return to_bits<T>(values[i]); });
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const T element = convert<T>(values[i]);
      __builtin_memcpy(&raw[i], &element, sizeof(T));
    }
  }
}

// Values as elements of `dtype`, of kBytes bytes each, by the rules of convert<To>().
template <int kBytes, class Compute, int kN>
__device__ __forceinline__ void narrow_elements(int32_t dtype, bool wraps, const Compute (&values)[kN],
                                                Pack<kBytes> (&raw)[kN]) {
  if constexpr (kBytes <= 4) {
    if (wraps) {
      // The value is an integer that Compute holds exactly: of up to 16 bits in float, of up to 32 bits in double.
      using Integer = std::conditional_t<std::is_same_v<Compute, float>, int32_t, int64_t>;
      return pack_elements<kBytes>(raw, [&](int i) { return static_cast<uint32_t>(static_cast<Integer>(values[i])); });
    }
  }
  visit_type<kBytes, Compute>(dtype, [&](auto type) { narrow_as<typename decltype(type)::type>(values, raw); });
}

// dst[i] = conversion of src[i].
template <int kSrcBytes, int kDstBytes, class Compute, int kN, class Raw>
__device__ __forceinline__ void convert_elements(const Conversion& conversion, const Raw (&src)[kN],
                                                 Pack<kDstBytes> (&dst)[kN]) {
  Compute values[kN];
  widen_elements<kSrcBytes>(conversion.src_dtype, src, values);
  const Compute scale = std::is_same_v<Compute, float> ? conversion.float_scale : conversion.double_scale;
#pragma unroll
  for (int i = 0; i < kN; ++i) values[i] *= scale;
  narrow_elements<kDstBytes>(conversion.dst_dtype, conversion.wraps, values, dst);
}

}  // namespace flowk::core
