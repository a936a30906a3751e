// SPDX-License-Identifier: Apache-2.0
// fitting_blocks(): the second argument of every __launch_bounds__.
#pragma once

#include "flowk/detail/divider.h"

namespace flowk::detail {

// Resident threads of a multiprocessor, at most, of architecture `arch`, as __CUDA_ARCH__ says it: 860 for sm_86.
FLOWK_HOST_DEVICE constexpr int threads_per_multiprocessor(int arch) {
  return (arch > 800 && arch < 900) || arch >= 1100 ? 1536 : 2048;
}

// `blocks`, or the number of blocks of `threads` threads that a multiprocessor holds, if that is less. ptxas ignores a
// bound that it cannot meet, and then does not limit the registers.
FLOWK_HOST_DEVICE constexpr int fitting_blocks_of(int arch, int threads, int blocks) {
  const int max_blocks = threads_per_multiprocessor(arch) / threads;
  return blocks < max_blocks ? blocks : max_blocks;
}

// The same for the architecture that is being compiled.
FLOWK_HOST_DEVICE constexpr int fitting_blocks([[maybe_unused]] int threads, int blocks) {
#ifdef __CUDA_ARCH__
  return fitting_blocks_of(__CUDA_ARCH__, threads, blocks);
#else
  return blocks;
#endif
}

}  // namespace flowk::detail
