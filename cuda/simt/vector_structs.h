// SPDX-License-Identifier: Apache-2.0
// The short vectors that kernels use, dim3 and make_*(): the toolkit's own where its headers are on the include path
// (cuda_fp16.h brings them in as well, so any order of includes works), else the same names, members and alignments.
#pragma once

#if defined(__VECTOR_TYPES_H__) || (__has_include(<vector_types.h>) && __has_include(<vector_functions.h>))

#include <vector_functions.h>
#include <vector_types.h>

#else

#define FLOWK_SIMT_VECTOR_2(name, type, align_bytes) \
  struct alignas(align_bytes) name {                 \
    type x, y;                                       \
  };                                                 \
  static inline name make_##name(type x, type y) { return name{x, y}; }
#define FLOWK_SIMT_VECTOR_4(name, type, align_bytes) \
  struct alignas(align_bytes) name {                 \
    type x, y, z, w;                                 \
  };                                                 \
  static inline name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }

FLOWK_SIMT_VECTOR_2(uint2, unsigned int, 8)
FLOWK_SIMT_VECTOR_2(float2, float, 8)
FLOWK_SIMT_VECTOR_4(uchar4, unsigned char, 4)
FLOWK_SIMT_VECTOR_4(ushort4, unsigned short, 8)
FLOWK_SIMT_VECTOR_4(int4, int, 16)
FLOWK_SIMT_VECTOR_4(uint4, unsigned int, 16)

#undef FLOWK_SIMT_VECTOR_2
#undef FLOWK_SIMT_VECTOR_4

struct uint3 {
  unsigned int x, y, z;
};
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

#endif
