// SPDX-License-Identifier: Apache-2.0
// Which GPUs run a library, and the status of an error of the CUDA runtime.
#include "check.h"
#include "core/cuda_status.h"
#include "core/gpu_archs.h"
#include "flowk/detail/launch_bounds.h"

using namespace flowk::core;
using namespace flowk::detail;

TEST(a_gpu_without_code_in_the_library_is_no_device) {
  for (const cudaError_t error :
       {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction, cudaErrorUnsupportedPtxVersion,
        cudaErrorJitCompilerNotFound, cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorStubLibrary})
    CHECK(status_of(error) == FLOWK_STATUS_NO_DEVICE);
  for (const cudaError_t error : {cudaErrorInvalidConfiguration, cudaErrorIllegalAddress, cudaErrorMemoryAllocation})
    CHECK(status_of(error) == FLOWK_STATUS_CUDA_ERROR);
  CHECK(status_of(cudaSuccess) == FLOWK_STATUS_SUCCESS);
}

TEST(code_runs_on_later_minor_versions_and_ptx_on_all_later_gpus) {
  for (const int capability : {80, 86, 89, 90, 100, 120}) CHECK(has_code_for("80-real,90", capability));
  for (const int capability : {70, 75}) CHECK(!has_code_for("80-real,90", capability));
  for (const int capability : {90, 100, 121}) CHECK(has_code_for("90-virtual", capability));
  CHECK(!has_code_for("90-virtual", 89));
  CHECK(has_code_for("86-real", 89) && !has_code_for("86-real", 80) && !has_code_for("86-real", 90));
}

TEST(suffixes_bind_code_to_a_gpu_or_a_family) {
  CHECK(has_code_for("90a", 90) && !has_code_for("90a", 100));
  CHECK(has_code_for("100f", 103) && !has_code_for("100f", 120) && !has_code_for("100a", 103));
}

TEST(features_of_sm_90_need_code_for_all_newer_gpus) {
  for (const char* archs : {"90", "80-real,90", "90-real,80", "100-real", "90a"})
    CHECK(newer_gpus_run_code_for_sm_90(archs));
  for (const char* archs : {"80", "89-virtual", "80,100-real"}) CHECK(!newer_gpus_run_code_for_sm_90(archs));
}

TEST(launch_bounds_ask_for_no_more_threads_than_a_multiprocessor_has) {
  for (const int arch : {800, 900, 1000, 1030}) CHECK(threads_per_multiprocessor(arch) == 2048);
  for (const int arch : {860, 870, 890, 1100, 1200, 1210}) CHECK(threads_per_multiprocessor(arch) == 1536);
  CHECK(fitting_blocks_of(900, 256, 8) == 8 && fitting_blocks_of(860, 256, 8) == 6);
  CHECK(fitting_blocks_of(1200, 512, 4) == 3 && fitting_blocks_of(1200, 128, 12) == 12);
  CHECK(fitting_blocks_of(1200, 1024, 2) == 1 && fitting_blocks_of(1200, 256, 0) == 0);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
