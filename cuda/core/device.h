// SPDX-License-Identifier: Apache-2.0
// Device: what a plan may know of the machine, as plain numbers that a test can write by hand.
#pragma once

#include "core/status.h"

namespace flowk::core {

struct Device {
  // 90 for sm_90; at most 89 if the library has no code for sm_90. Of the CPU executor: FLOWK_SIMT_CAPABILITY, 0 or 90.
  int32_t capability = 0;
  int32_t num_multiprocessors = 1;
  int32_t shared_bytes_per_multiprocessor = 0;
  int32_t shared_bytes_per_block = 0;  // with opt-in
  // May a kernel start before the stream's previous one ends (programmatic dependent launch)? All plans ask here. Older
  // GPUs cannot, and code for them does not wait.
  bool runs_pdl() const { return capability >= 90; }
  friend bool operator==(const Device&, const Device&) = default;
};

// This thread's current device. The runtime is asked once per device. NO_DEVICE if there is none.
Status current_device(Device* device);

// What the vendor calls this thread's current device: "NVIDIA H200".
constexpr int device_name_bytes = 256;
Status current_device_name(char (*name)[device_name_bytes]);

}  // namespace flowk::core
