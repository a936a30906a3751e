// SPDX-License-Identifier: Apache-2.0
// Division: rounded up, and by a number that is known at launch as a multiply, an add and a shift. Divider itself is
// installed, because a user's own elementwise kernels divide as well.
#pragma once

#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/divider.h"

namespace flowk::core {

constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
constexpr int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

// Divider for 64-bit numbers: exact for every n < 2^63 and 1 <= d <= 2^62.
struct WideDivider {
  uint64_t divisor = 1;
  uint64_t multiplier = 1;
  uint32_t shift = 0;

  friend bool operator==(const WideDivider&, const WideDivider&) = default;
  WideDivider() = default;
  explicit WideDivider(uint64_t given) : divisor(given == 0 ? 1 : given) {
    const uint64_t d = divisor;
    __extension__ typedef unsigned __int128 Wide;
    shift = d <= 1 ? 0u : 64u - static_cast<uint32_t>(__builtin_clzll(d - 1));
    multiplier = static_cast<uint64_t>((static_cast<Wide>((uint64_t{1} << shift) - d) << 64) / d + 1);
  }

  FLOWK_HOST_DEVICE uint64_t divide(uint64_t n) const {
#ifdef __CUDA_ARCH__
    return (__umul64hi(n, multiplier) + n) >> shift;
#else
    __extension__ typedef unsigned __int128 Wide;
    return (static_cast<uint64_t>((static_cast<Wide>(n) * multiplier) >> 64) + n) >> shift;
#endif
  }
};

}  // namespace flowk::core
