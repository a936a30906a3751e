// SPDX-License-Identifier: Apache-2.0
// What was found by measurement. bench/tuning/elementwise_h200.json has the figures.
#pragma once

#include <cstdint>

namespace flowk::elementwise {

#include "elementwise/plan/elementwise_tuning.inc"

}  // namespace flowk::elementwise
