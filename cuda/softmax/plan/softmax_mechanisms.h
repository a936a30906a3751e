// SPDX-License-Identifier: Apache-2.0
// Each mechanism has a module, plan/MECHANISM.cpp: choose_MECHANISM() suggests a config, which may not fit; fits() says
// whether a config of an existing kernel can do a call; kernel_of() finds the kernel in the table, or returns -1;
// fill(), if there is one, sets what the mechanism's kernels need in the plan.
#pragma once

#include "softmax/plan/softmax_call.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {

SoftmaxConfig choose_row_in_registers(const SoftmaxCall& call, const SoftmaxTuningRow& tuning);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInRegisters& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInRegisters& mechanism);
void fill(const SoftmaxCall& call, RowInRegisters& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_row_in_shared(const SoftmaxCall& call, const SoftmaxTuningRow& tuning);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInShared& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInShared& mechanism);
void fill(const SoftmaxCall& call, RowInShared& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_staged_rows(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const StagedRows& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const StagedRows& mechanism);
void fill(const SoftmaxCall& call, StagedRows& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_two_pass_row(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const TwoPassRow& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const TwoPassRow& mechanism);
void fill(const SoftmaxCall& call, TwoPassRow& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_rows_by_vectors(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsByVectors& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsByVectors& mechanism);

SoftmaxConfig choose_rows_in_lanes(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsInLanes& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsInLanes& mechanism);

SoftmaxConfig choose_split_row(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const SplitRow& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const SplitRow& mechanism);
void fill(const SoftmaxCall& call, SplitRow& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_persistent_rows(const SoftmaxCall& call, const SoftmaxTuningRow& tuning);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const PersistentRows& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const PersistentRows& mechanism);
void fill(const SoftmaxCall& call, PersistentRows& mechanism, SoftmaxPlan* plan);

SoftmaxConfig choose_framed_rows(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows& mechanism);
void fill(const SoftmaxCall& call, FramedRows& mechanism, SoftmaxPlan* plan);

// For a call with strided columns; the other mechanisms are for calls without.
SoftmaxConfig choose_strided_rows(const SoftmaxCall& call);
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const StridedRows& mechanism);
int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const StridedRows& mechanism);
void fill(const SoftmaxCall& call, StridedRows& mechanism, SoftmaxPlan* plan);

// Fills what does not depend on the mechanism.
void fill_params(const SoftmaxCall& call, const SoftmaxRows& rows, int32_t lanes_per_row, int32_t rows_per_block,
                 SoftmaxParams* params);

// Can the config do the call? Checks its numbers of threads and blocks, and what its mechanism asks for.
bool fits(const SoftmaxCall& call, const SoftmaxConfig& config);

// The config of the fastest mechanism that fits.
SoftmaxConfig select_mechanism(const SoftmaxCall& call);

}  // namespace flowk::softmax
