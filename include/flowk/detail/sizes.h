// SPDX-License-Identifier: Apache-2.0
// The sizes that kernels and plans count in.
#pragma once

namespace flowk::detail {

constexpr int vector_bytes = 16;  // one vector: the widest access of one thread
constexpr int warp_lanes = 32;    // threads per warp
constexpr int line_bytes = 128;   // a line of global memory; all banks of shared memory
constexpr int line_vectors = line_bytes / vector_bytes;
constexpr int sector_bytes = 32;  // the unit of the traffic of L2 and of memory

}  // namespace flowk::detail
