// SPDX-License-Identifier: Apache-2.0
// The two sizes that every kernel and every plan counts in.
#pragma once

namespace flowk::detail {

constexpr int vector_bytes = 16;  // one vector: the widest access of one thread
constexpr int warp_lanes = 32;    // threads per warp

}  // namespace flowk::detail
