// SPDX-License-Identifier: Apache-2.0
// LaunchConfig, and the largest grid.
#pragma once

#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::core {

constexpr int64_t max_grid_blocks = 2147483647;

}  // namespace flowk::core
