// SPDX-License-Identifier: Apache-2.0
// Packs: neighbouring elements that one thread moves together, in 32-bit words. A vector is a pack of 16 bytes.
#pragma once

#include "flowk/detail/sizes.h"
#include "flowk/detail/target.cuh"

namespace flowk::detail {

template <int v>
struct Constant {
  static constexpr int value = v;
};

namespace pack {

// The bytes of one access of a pack of `bytes`.
template <int bytes>
constexpr int access_bytes = bytes < vector_bytes ? bytes : vector_bytes;

// The words of a pack of `bytes` plus one access: what load_around() reads.
template <int bytes>
constexpr int num_words = (bytes + access_bytes<bytes> + 3) / 4;

// Loads or stores `kBytes` at `address`, a multiple of access_bytes<kBytes>.
template <int kBytes>
__device__ __forceinline__ void load(uint32_t* words, const unsigned char* address) {
  if constexpr (kBytes == 1) {
    words[0] = *address;
  } else if constexpr (kBytes == 2) {
    words[0] = *reinterpret_cast<const uint16_t*>(address);
  } else if constexpr (kBytes == 4) {
    words[0] = *reinterpret_cast<const uint32_t*>(address);
  } else if constexpr (kBytes == 8) {
    const uint2 loaded = *reinterpret_cast<const uint2*>(address);
    words[0] = loaded.x;
    words[1] = loaded.y;
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 16) {
      const uint4 loaded = *reinterpret_cast<const uint4*>(address + at);
      words[at / 4] = loaded.x;
      words[at / 4 + 1] = loaded.y;
      words[at / 4 + 2] = loaded.z;
      words[at / 4 + 3] = loaded.w;
    }
  }
}

template <int kBytes>
__device__ __forceinline__ void store(unsigned char* address, const uint32_t* words) {
  if constexpr (kBytes == 1) {
    *address = static_cast<uint8_t>(words[0]);
  } else if constexpr (kBytes == 2) {
    *reinterpret_cast<uint16_t*>(address) = static_cast<uint16_t>(words[0]);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<uint32_t*>(address) = words[0];
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(address) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 16)
      *reinterpret_cast<uint4*>(address + at) =
          make_uint4(words[at / 4], words[at / 4 + 1], words[at / 4 + 2], words[at / 4 + 3]);
  }
}

// Loads the aligned accesses that hold `kBytes` at `address`, where shift = address % access_bytes<kBytes>;
// shift_down() then moves the pack to the front. With shift 0 the last access is skipped.
template <int kBytes>
__device__ __forceinline__ void load_around(uint32_t* words, const unsigned char* address, int shift) {
  constexpr int width = access_bytes<kBytes>;
#pragma unroll
  for (int at = 0; at < kBytes; at += width) load<width>(words + at / 4, address - shift + at);
  if (shift != 0) load<width>(words + kBytes / 4, address - shift + kBytes);
}

// Bytes [shift, shift + kBytes) of the words, 0 <= shift < access_bytes<kBytes>. Moves whole words first, by selects
// with constant indices so that the words stay in registers, then bits within words.
template <int kBytes>
__device__ __forceinline__ void shift_down(uint32_t* words, int shift) {
  constexpr int width = access_bytes<kBytes>;
  constexpr int count = (kBytes + width) / 4;
  if constexpr (width > 8) {
#pragma unroll
    for (int i = 0; i + 2 < count; ++i) words[i] = (shift & 8) ? words[i + 2] : words[i];
  }
  if constexpr (width > 4) {
#pragma unroll
    for (int i = 0; i + 1 < count; ++i) words[i] = (shift & 4) ? words[i + 1] : words[i];
  }
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], (shift & 3) * 8);
}

// Loads `kBytes` at any address. A pack of four bytes or more still has to be moved: the result is the shift for
// shift_down(). A smaller pack is loaded by elements, and the result is 0.
template <int kBytes, int kSize>
__device__ __forceinline__ int load_shifted(uint32_t* words, const unsigned char* address) {
  if constexpr (kBytes >= 4) {
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(address) % access_bytes<kBytes>);
    load_around<kBytes>(words, address, shift);
    return shift;
  } else {
    words[0] = 0;
#pragma unroll
    for (int at = 0; at < kBytes; at += kSize) {
      uint32_t element;
      load<kSize>(&element, address + at);
      words[0] |= element << (at * 8);
    }
    return 0;
  }
}

// put() ORs element i of kSize bytes into the words; take() reads it.
template <int kSize>
__device__ __forceinline__ void put(uint32_t* words, int i, const uint32_t* element) {
  if constexpr (kSize >= 4) {
#pragma unroll
    for (int w = 0; w < kSize / 4; ++w) words[i * kSize / 4 + w] = element[w];
  } else {
    words[i * kSize / 4] |= element[0] << (i * kSize % 4 * 8);
  }
}
template <int kSize>
__device__ __forceinline__ void take(const uint32_t* words, int i, uint32_t* element) {
  if constexpr (kSize >= 4) {
#pragma unroll
    for (int w = 0; w < kSize / 4; ++w) element[w] = words[i * kSize / 4 + w];
  } else {
    element[0] = words[i * kSize / 4] >> (i * kSize % 4 * 8);
  }
}

// Packs kN elements that are in one or two words each. Two 16-bit elements take one instruction; the compiler emits
// three.
template <int kN, int kSize>
__device__ __forceinline__ void join(const uint32_t (&elements)[kN][(kSize + 3) / 4], uint32_t* words) {
  if constexpr (kSize >= 4 || kN == 1) {
#pragma unroll
    for (int i = 0; i < kN; ++i)
#pragma unroll
      for (int w = 0; w < (kSize + 3) / 4; ++w) words[i * ((kSize + 3) / 4) + w] = elements[i][w];
  } else if constexpr (kSize == 2) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) words[i / 2] = __byte_perm(elements[i][0], elements[i + 1][0], 0x5410);
  } else {
    uint32_t halves[kN / 2][1];
#pragma unroll
    for (int i = 0; i < kN; i += 2) halves[i / 2][0] = __byte_perm(elements[i][0], elements[i + 1][0], 0x0040);
    join<kN / 2, 2>(halves, words);
  }
}

// Transposes 4 / kSize words of 4 / kSize elements each.
template <int kSize>
__device__ __forceinline__ void transpose(uint32_t (&words)[4 / kSize]) {
  if constexpr (kSize == 2) {
    const uint32_t low = __byte_perm(words[0], words[1], 0x5410);
    words[1] = __byte_perm(words[0], words[1], 0x7632);
    words[0] = low;
  } else {
    const uint32_t low01 = __byte_perm(words[0], words[1], 0x5140), high01 = __byte_perm(words[0], words[1], 0x7362);
    const uint32_t low23 = __byte_perm(words[2], words[3], 0x5140), high23 = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(low01, low23, 0x5410);
    words[1] = __byte_perm(low01, low23, 0x7632);
    words[2] = __byte_perm(high01, high23, 0x5410);
    words[3] = __byte_perm(high01, high23, 0x7632);
  }
}

// Repeats the element at the front kN times.
template <int kN, int kSize>
__device__ __forceinline__ void repeat(uint32_t* words) {
  if constexpr (kSize < 4) words[0] *= kSize == 1 ? 0x01010101u : 0x00010001u;
  constexpr int period = kSize < 4 ? 1 : kSize / 4;
#pragma unroll
  for (int w = period; w < kN * kSize / 4; ++w) words[w] = words[w - period];
}

}  // namespace pack
}  // namespace flowk::detail
