// SPDX-License-Identifier: Apache-2.0
// Bit and math functions that device code has and a host compiler lacks. Approximate math is exact here.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>

// Byte n of the result is the byte of y:x (8 bytes, x low) that nibble n of `selector` names in its low three bits. The
// high bit, by which prmt.b32 spreads a byte's sign, is ignored: nvcc masks it off.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = (static_cast<std::uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (unsigned n = 0; n < 4; ++n) {
    const unsigned byte = static_cast<unsigned>(bytes >> (8 * ((selector >> (4 * n)) & 7))) & 0xff;
    result |= byte << (8 * n);
  }
  return result;
}

// 32 bits of hi:lo; the shift wraps at 32, or stays at 32 in the _lc form.
inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((((static_cast<std::uint64_t>(hi) << 32) | lo) << (shift < 32 ? shift : 32)) >> 32);
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return __funnelshift_lc(lo, hi, shift & 31);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>(((static_cast<std::uint64_t>(hi) << 32) | lo) >> (shift & 31));
}

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(x) * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ typedef unsigned __int128 uint128;
  return static_cast<unsigned long long>((static_cast<uint128>(x) * y) >> 64);
}

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Rounded toward zero; past either bound that bound, NaN 0.
inline int __float2int_rz(float x) {
  if (x >= 0x1p31f) return INT32_MAX;
  if (x < -0x1p31f) return INT32_MIN;
  return x == x ? static_cast<int>(x) : 0;
}
inline unsigned __float2uint_rz(float x) {
  if (x >= 0x1p32f) return UINT32_MAX;
  return x > 0 ? static_cast<unsigned>(x) : 0;
}

#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 42)  // which brings C23's
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#endif
inline float normcdff(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }
inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmul_rd(float x, float y) {
  const float nearest = x * y;
  return static_cast<double>(nearest) > static_cast<double>(x) * y ? std::nextafter(nearest, -INFINITY) : nearest;
}

// A macro, because glibc declares a function of this name for its own use.
#define __logf(x) logf(x)

#define FLOWK_SIMT_MIN_MAX(type)                               \
  constexpr type min(type x, type y) { return y < x ? y : x; } \
  constexpr type max(type x, type y) { return x < y ? y : x; }
FLOWK_SIMT_MIN_MAX(int)
FLOWK_SIMT_MIN_MAX(unsigned)
FLOWK_SIMT_MIN_MAX(long)
FLOWK_SIMT_MIN_MAX(unsigned long)
FLOWK_SIMT_MIN_MAX(long long)
FLOWK_SIMT_MIN_MAX(unsigned long long)
#undef FLOWK_SIMT_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
