// SPDX-License-Identifier: Apache-2.0
// The option gpu_archs of the build, "80-real,90": which GPUs the library has code for.
#pragma once

#include <cstdint>
#include <string_view>

namespace flowk::core {

// An entry: a number alone is code and PTX, NUMBER-real the code alone, NUMBER-virtual the PTX alone.
struct GpuArch {
  int32_t number = 0;
  char suffix = '\0';  // 'a': for this GPU alone; 'f': for its family alone
  bool has_code = true, has_ptx = true;
};

// Takes the first entry off `archs`.
constexpr GpuArch next_gpu_arch(std::string_view* archs) {
  const std::string_view word = archs->substr(0, archs->find(','));
  archs->remove_prefix(word.size() < archs->size() ? word.size() + 1 : word.size());
  GpuArch arch;
  for (const char c : word.substr(0, word.find('-'))) {
    if (c >= '0' && c <= '9')
      arch.number = 10 * arch.number + (c - '0');
    else
      arch.suffix = c;
  }
  arch.has_code = !word.ends_with("-virtual");
  arch.has_ptx = !word.ends_with("-real");
  return arch;
}

// Whether a GPU of compute capability `capability`, 90 for 9.0, runs the library. Code runs on later minor versions,
// PTX on all later GPUs.
constexpr bool has_code_for(std::string_view archs, int32_t capability) {
  while (!archs.empty()) {
    const GpuArch arch = next_gpu_arch(&archs);
    if (arch.number == capability) return true;
    if (arch.number > capability || arch.suffix == 'a') continue;
    if (arch.number / 10 == capability / 10 || (arch.has_ptx && arch.suffix == '\0')) return true;
  }
  return false;
}

// Whether every GPU from sm_90 on runs code compiled for sm_90 or newer: has_code_for_sm_90 of kernel_launch.cuh.
constexpr bool newer_gpus_run_code_for_sm_90(std::string_view archs) {
  bool has_90 = false, has_older = false;
  while (!archs.empty()) {
    const GpuArch arch = next_gpu_arch(&archs);
    has_90 |= arch.number == 90;
    has_older |= arch.number < 90;
  }
  return has_90 || !has_older;
}

}  // namespace flowk::core
