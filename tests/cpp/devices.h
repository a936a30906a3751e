// SPDX-License-Identifier: Apache-2.0
// Devices that plans are made for.
#pragma once

#include "core/device.h"

inline constexpr flowk::core::Device h200 = {.capability = 90,
                                             .num_multiprocessors = 132,
                                             .shared_bytes_per_multiprocessor = 233472,
                                             .shared_bytes_per_block = 232448};
