// SPDX-License-Identifier: Apache-2.0
// allow_next_grid() and wait_for_previous_grid(), for launches of LaunchConfig::overlaps_previous.
#pragma once

#include "flowk/grid_order.cuh"
