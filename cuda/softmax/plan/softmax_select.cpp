// SPDX-License-Identifier: Apache-2.0
// Which mechanism does a call.
#include "softmax/plan/softmax_mechanisms.h"

namespace flowk::softmax {
namespace {

// Short rows that have tails, or that would leave one vector in ten of their threads empty in registers.
bool prefers_staged_rows(const SoftmaxCall& call, const SoftmaxConfig& in_registers) {
  if (call.request.columns > staged_columns) return false;
  if (call.has_tails) return true;
  if (call.mask == SoftmaxMask::bias) return false;
  const int64_t vectors = int64_t{in_registers.lanes_per_row} * in_registers.as<RowInRegisters>().vectors_per_thread;
  return 10 * call.row_vectors < 9 * vectors;
}

}  // namespace

SoftmaxConfig select_mechanism(const SoftmaxCall& call) {
  SoftmaxConfig config;
  const auto take = [&](const SoftmaxConfig& candidate) {
    config = candidate;
    return fits(call, config);
  };
  const SoftmaxTuningRow& tuning = find_tuning_row(call);
  const int64_t num_rows = call.rows.num_rows, few_rows_bytes = num_rows == 1 ? split_row_bytes : 2 * split_row_bytes;
  const bool has_few_long_rows = num_rows <= max_split_rows && call.row_bytes >= few_rows_bytes;

  const auto take_registers = [&] {
    const SoftmaxConfig in_registers = choose_row_in_registers(call, tuning);
    return (prefers_staged_rows(call, in_registers) && take(choose_staged_rows(call))) || take(in_registers);
  };
  // The fastest mechanism first.
  const bool is_found = take(choose_rows_by_vectors(call)) || take(choose_rows_in_lanes(call)) ||
                        (has_few_long_rows && take(choose_split_row(call))) ||
                        (tuning.persistent_blocks > 0 && take(choose_persistent_rows(call, tuning))) ||
                        (tuning.shared_threads == 0 && take_registers()) || take(choose_row_in_shared(call, tuning)) ||
                        (call.row_bytes >= split_row_bytes && take(choose_split_row(call)));
  return is_found ? config : choose_two_pass_row(call);
}

}  // namespace flowk::softmax
