// SPDX-License-Identifier: Apache-2.0
// The executor's device: the numbers of an H200, so that its plans are those of the GPU, with capability 0.
#include <cstdlib>
#include <cstring>

#include "core/device.h"

namespace flowk::core {

Status current_device(Device* device) {
  const char* order = std::getenv("FLOWK_SIMT_THREAD_ORDER");
  if (order != nullptr && std::strcmp(order, "forward") != 0 && std::strcmp(order, "reverse") != 0)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                           "the environment variable FLOWK_SIMT_THREAD_ORDER = \"%s\", must be forward or reverse",
                           order);
  *device = Device{.capability = 0,
                   .num_multiprocessors = 132,
                   .shared_bytes_per_multiprocessor = 233472,
                   .shared_bytes_per_block = 232448};
  return {};
}

}  // namespace flowk::core
