// SPDX-License-Identifier: Apache-2.0
// The plans that flowk_permute_tune() has measured, for all threads of the process, and their file.
#pragma once

#include "permute/plan/plan_key.h"

namespace flowk::permute {

// Remembers that a problem's fastest plan is `choice`, measured on this GPU.
void add_measured_plan(const PlanKey& key, const char* gpu, const MeasuredTile& measured);

// False if the problem was not measured.
bool find_measured_plan(const PlanKey& key, MeasuredTile* measured);

// Grows whenever plans are added. A plan that was made at an earlier version may not be the measured one.
uint64_t measured_plans_version();

// The file of flowk_plans_save() and flowk_plans_load(). Lines of other GPUs or library versions are counted in
// `num_ignored`. If a line is not as save_measured_plans() writes it, nothing is added.
Status save_measured_plans(const char* path);
Status load_measured_plans(const char* path, const Device& device, const char* gpu, int32_t* num_loaded,
                           int32_t* num_ignored);

// Loads the file that the environment variable FLOWK_PLANS names, once; without it does nothing.
Status load_plans_of_environment(const Device& device);

}  // namespace flowk::permute
