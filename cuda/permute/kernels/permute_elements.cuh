// SPDX-License-Identifier: Apache-2.0
// Element functors: what a kernel of permute does to the elements that it moves. Every kernel takes one as its second
// parameter; a functor of empty type costs nothing.
//
//   Moved<Bytes>              dst[i] = src[i]
//   Converted<Src, Dst, C>    dst[i] = narrow(scale * widen(src[i])), sizes and compute type known to the compiler
//   AnyMoved, AnyConverted    the same for elements of every size, and for every pair of types: decided at run time
#pragma once

#include <type_traits>

#include "core/convert_vector.cuh"
#include "permute/permute_params.h"

namespace flowk::permute {

// Which pair of src and dst a block works on, and the number of the block within this pair. Neighbouring blocks take
// the same part of different pairs.
struct PairBlock {
  uint32_t block = blockIdx.x;
  int64_t src_offset = 0;
  int64_t dst_offset = 0;

  PairBlock() = default;
  template <class Params>
  __device__ __forceinline__ explicit PairBlock(const Params& params) {
    if (params.num_pairs > 1) [[unlikely]] {
      const uint32_t num_pairs = params.num_pairs, pair = block % num_pairs;
      block /= num_pairs;
      src_offset = pair_src_offset(params, static_cast<int>(pair));
      dst_offset = pair_dst_offset(params, static_cast<int>(pair));
    }
  }
};

// One past the last byte of the elements of the block's src. Few threads need it, so it is not kept in a register.
template <class Params>
__device__ __forceinline__ const unsigned char* src_end_of(const Params& params) {
  return params.src_end + PairBlock(params).src_offset;
}

// An element in a register, zero-extended to a word.
template <int Bytes>
using Element = std::conditional_t<(Bytes < 4), uint32_t, Pack<Bytes>>;

// Packs elements into a vector.
template <int Bytes>
__device__ __forceinline__ Vector<Bytes> vector_of(const Element<Bytes> (&elements)[vector_bytes / Bytes]) {
  Vector<Bytes> vector;
  pack_elements<Bytes>(vector.elements, [&](int i) { return elements[i]; });
  return vector;
}

template <int Bytes>
struct Moved {
  static constexpr int src_bytes = Bytes;
  static constexpr int dst_bytes = Bytes;

  __device__ __forceinline__ Vector<Bytes> make_vector(const Element<Bytes> (&src)[vector_bytes / Bytes]) const {
    return vector_of<Bytes>(src);
  }
  __device__ __forceinline__ Pack<Bytes> make_element(const Element<Bytes>& src) const {
    return static_cast<Pack<Bytes>>(src);
  }
  template <int kN>
  __device__ __forceinline__ void convert(const Pack<Bytes> (&src)[kN], Pack<Bytes> (&dst)[kN]) const {
#pragma unroll
    for (int i = 0; i < kN; ++i) dst[i] = src[i];
  }
};

template <int kSrcBytes, int kDstBytes, class Compute>
struct Converted {
  static constexpr int src_bytes = kSrcBytes;
  static constexpr int dst_bytes = kDstBytes;
  Conversion conversion;

  template <int kN, class Raw>
  __device__ __forceinline__ void convert(const Raw (&src)[kN], Pack<kDstBytes> (&dst)[kN]) const {
    convert_elements<kSrcBytes, kDstBytes, Compute, kN>(conversion, src, dst);
  }

  // The conversion is in steps, so that the values take few registers.
  __device__ __forceinline__ Vector<kDstBytes> make_vector(
      const Element<kSrcBytes> (&src)[vector_bytes / kDstBytes]) const {
    constexpr int num_elements = vector_bytes / kDstBytes;
    constexpr int max_at_once = std::is_same_v<Compute, double> ? 4 : 8;
    constexpr int at_once = num_elements < max_at_once ? num_elements : max_at_once;
    Vector<kDstBytes> vector;
#pragma unroll
    for (int begin = 0; begin < num_elements; begin += at_once) {
      Element<kSrcBytes> in[at_once];
      Pack<kDstBytes> out[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) in[i] = src[begin + i];
      convert(in, out);
      __builtin_memcpy(vector.words + begin * kDstBytes / 4, out, sizeof(out));  // by words: they are packed already
    }
    return vector;
  }
  __device__ __forceinline__ Pack<kDstBytes> make_element(const Element<kSrcBytes>& src) const {
    const Element<kSrcBytes> in[1] = {src};
    Pack<kDstBytes> out[1];
    convert(in, out);
    return out[0];
  }
};

// Calls visit() with the size as a constant.
template <class Visit>
__device__ __forceinline__ void visit_size(int32_t log2_bytes, const Visit& visit) {
  switch (log2_bytes) {
    case 0: return visit(std::integral_constant<int, 1>());
    case 1: return visit(std::integral_constant<int, 2>());
    case 2: return visit(std::integral_constant<int, 4>());
    default: return visit(std::integral_constant<int, 8>());
  }
}

struct AnyMoved {
  int32_t log2_bytes;

  template <class Visit>
  __device__ __forceinline__ void visit_src_size(const Visit& visit) const {
    if (log2_bytes == 4) return visit(std::integral_constant<int, 16>());
    visit_size(log2_bytes, visit);
  }
};

// Every pair of types in one kernel: sizes and types are switches, uniform over the grid. Values are doubles, but a
// product that is computed in float32 is rounded to it.
struct AnyConverted {
  Conversion conversion;
  int32_t log2_src_bytes;
  int32_t log2_dst_bytes;

  template <class Visit>
  __device__ __forceinline__ void visit_src_size(const Visit& visit) const {
    visit_size(log2_src_bytes, visit);
  }

  // Calls visit() with a Converted of the call's sizes and compute type.
  template <class Visit>
  __device__ __forceinline__ void visit(const Visit& visit_converted) const {
    visit_size(log2_src_bytes, [&](auto src_bytes) {
      visit_size(log2_dst_bytes, [&](auto dst_bytes) {
        constexpr int src = decltype(src_bytes)::value, dst = decltype(dst_bytes)::value;
        if constexpr (src <= 4 && dst <= 4) {
          if (!conversion.in_double) return visit_converted(Converted<src, dst, float>{conversion});
        }
        if constexpr (src >= 4 || dst >= 4) visit_converted(Converted<src, dst, double>{conversion});
      });
    });
  }

  template <int kN>
  __device__ __forceinline__ void read(const unsigned char* const (&src)[kN], double (&values)[kN]) const {
    visit_size(log2_src_bytes, [&](auto bytes) {
      constexpr int src_bytes = decltype(bytes)::value;
      Pack<src_bytes> raw[kN];
#pragma unroll
      for (int i = 0; i < kN; ++i) raw[i] = *reinterpret_cast<const Pack<src_bytes>*>(src[i]);
      widen_elements<src_bytes>(conversion.src_dtype, raw, values);
    });
#pragma unroll
    for (int i = 0; i < kN; ++i)
      values[i] = conversion.in_double ? values[i] * conversion.double_scale
                                       : static_cast<double>(static_cast<float>(values[i]) * conversion.float_scale);
  }

  // Converts one element from `src` in shared memory to `dst`.
  __device__ __forceinline__ void convert_one(const unsigned char* src, unsigned char* dst) const {
    const unsigned char* const from[1] = {src};
    double values[1];
    read(from, values);
    visit_size(log2_dst_bytes, [&](auto bytes) {
      constexpr int dst_bytes = decltype(bytes)::value;
      Pack<dst_bytes> raw[1];
      narrow_elements<dst_bytes>(conversion.dst_dtype, conversion.wraps, values, raw);
      *reinterpret_cast<Pack<dst_bytes>*>(dst) = raw[0];
    });
  }

  // Shifts two elements into the end of a vector: after all pairs of a vector its elements are in order.
  __device__ __forceinline__ void append_pair(const unsigned char* const (&src)[2], uint32_t (&words)[4]) const {
    double values[2];
    read(src, values);
    visit_size(log2_dst_bytes, [&](auto bytes) {
      constexpr int dst_bytes = decltype(bytes)::value;
      constexpr int num_words = dst_bytes < 4 ? 1 : dst_bytes / 2;
      union {
        uint32_t words[num_words];
        Pack<dst_bytes> elements[2];
      } pair = {};
      narrow_elements<dst_bytes>(conversion.dst_dtype, conversion.wraps, values, pair.elements);
      if constexpr (dst_bytes == 1) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], i < 3 ? words[i + 1] : pair.words[0], 16);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = i + num_words < 4 ? words[i + num_words] : pair.words[i + num_words - 4];
      }
    });
  }
};

template <class Elements>
constexpr bool is_moved = false;
template <int Bytes>
constexpr bool is_moved<Moved<Bytes>> = true;

// Blocks per SM that a tile kernel is compiled for. Kernels that only move elements get 40 registers, which leave room
// for 6 blocks of 256 threads. Without this bound the compiler takes 72, and fewer blocks are resident.
template <class Elements>
constexpr int min_tile_blocks = is_moved<Elements> || std::is_same_v<Elements, AnyMoved> ? max_resident_tiles : 0;

// Are the sizes of the elements known to the compiler?
template <class Elements>
constexpr bool has_sizes = requires { Elements::dst_bytes; };

// Elements of dst in a number of bytes, and the bytes of a number of elements.
template <class Elements>
__device__ __forceinline__ int32_t dst_elements_of(const Elements& elements, int32_t num_bytes) {
  if constexpr (has_sizes<Elements>)
    return num_bytes / Elements::dst_bytes;
  else
    return num_bytes >> elements.log2_dst_bytes;
}
template <class Elements>
__device__ __forceinline__ int32_t dst_bytes_of(const Elements& elements, int32_t num_elements) {
  if constexpr (has_sizes<Elements>)
    return num_elements * Elements::dst_bytes;
  else
    return num_elements << elements.log2_dst_bytes;
}

}  // namespace flowk::permute
