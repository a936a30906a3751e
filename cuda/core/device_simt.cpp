// SPDX-License-Identifier: Apache-2.0
// The executor's device: an H200's numbers, so that the plans that run on a CPU are those that run on the GPU, and no
// capability.
#include "core/device.h"

namespace flowk::core {

Status current_device(Device* device) {
  *device = Device{.capability = 0,
                   .num_multiprocessors = 132,
                   .shared_bytes_per_multiprocessor = 233472,
                   .shared_bytes_per_block = 232448};
  return {};
}

}  // namespace flowk::core
