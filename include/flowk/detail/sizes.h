// SPDX-License-Identifier: Apache-2.0
// The sizes that every kernel and every plan counts in.
#pragma once

namespace flowk::detail {

constexpr int vector_bytes = 16;  // one vector: the widest access of one thread
constexpr int sector_bytes = 32;  // the unit of L2 and memory traffic
constexpr int line_bytes = 128;   // a line of global memory, and of shared memory: all its banks once
constexpr int line_vectors = line_bytes / vector_bytes;
constexpr int vector_in_line_bits = line_bytes - vector_bytes;  // the bits of an offset that a swizzle changes
constexpr int warp_lanes = 32;                                  // threads per warp

}  // namespace flowk::detail
