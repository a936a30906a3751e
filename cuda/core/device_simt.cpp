// SPDX-License-Identifier: Apache-2.0
// The executor's device: the numbers of an H200, so that its plans are those of the GPU, with capability 0 unless
// FLOWK_SIMT_CAPABILITY is 90.
#include <cstring>

#include "core/device.h"
#include "simt/settings.h"

namespace flowk::core {

Status current_device(Device* device) {
  simt::Settings settings;
  if (const char* wrong = simt::read_settings(&settings))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s", wrong);
  *device = Device{.capability = settings.capability,
                   .num_multiprocessors = 132,
                   .shared_bytes_per_multiprocessor = 233472,
                   .shared_bytes_per_block = 232448};
  return {};
}

Status current_device_name(char (*name)[device_name_bytes]) {
  std::strcpy(*name, "CPU executor");
  return {};
}

}  // namespace flowk::core
