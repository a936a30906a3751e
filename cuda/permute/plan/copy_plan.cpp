// SPDX-License-Identifier: Apache-2.0
// Plans of rows: copy_rows, copy_shifted_rows and copy_reversed_rows.
#include <algorithm>

#include "permute/plan/permute_problem.h"
#include "permute/plan/permute_tuning.h"

namespace flowk::permute {
namespace {

// Shorter rows go through a tile. With a conversion `row_bytes` is the mean of both sides.
bool rows_are_long(int rank, int64_t row_bytes) {
  for (const CopyRowsBound& bound : copy_rows_bounds)
    if (rank <= bound.max_rank) return row_bytes >= bound.min_row_bytes;
  return false;
}

// Rows are all dimensions except the last, or the whole tensor as one row of `units_per_row` units.
template <class Mechanism>
bool set_rows(const PermuteProblem& problem, const Device& device, int64_t units_per_row, PermutePlan* plan) {
  CopyParams& copy = plan->mechanism.emplace<Mechanism>().params;
  const int last = problem.rank - 1;
  copy.src = problem.src;
  copy.dst = problem.dst;
  copy.src_end = problem.src_end;
  copy.row_bytes = (problem.rank > 0 ? problem.extents[last] : 1) * problem.dst_unit_bytes;
  if (std::is_same_v<Mechanism, CopyReversedRows>) copy.dst -= copy.row_bytes - problem.unit_bytes;
  copy.rank = std::max(last, 0);
  int64_t num_rows = 1;
  for (int d = last - 1, i = 0; d >= 0; --d, ++i) {
    copy.dims[i].src_stride = problem.src_strides[d];
    copy.dims[i].dst_stride = problem.dst_strides[d];
    copy.dims[i].extent = problem.extents[d];
    copy.dims[i].divider = Divider(static_cast<uint32_t>(problem.extents[d]));
    num_rows *= problem.extents[d];
  }
  copy.num_units = num_rows * units_per_row;
  copy.wide_units_per_row = units_per_row;
  copy.units_per_row = Divider(static_cast<uint32_t>(units_per_row));
  copy.wide_index = copy.num_units >= (int64_t{1} << 31);
  plan->unit_bytes = problem.unit_bytes;
  plan->launch = {ceil_div(copy.num_units, copy_threads), copy_threads, 0};
  plan->launch.uses_pdl = device.runs_pdl();
  return true;
}

// Groups of elements that start on a multiple of their bytes in dst. A row that starts inside a group touches one group
// more than it fills.
bool set_converted_rows(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  const int last = problem.rank - 1;
  const int64_t group = convert_group_elements(problem.unit_bytes, problem.dst_unit_bytes);
  uint64_t starts = reinterpret_cast<uintptr_t>(problem.dst);
  for (int d = 0; d < last; ++d) starts |= static_cast<uint64_t>(problem.dst_strides[d]);
  const bool starts_on_groups = starts % static_cast<uint64_t>(group * problem.dst_unit_bytes) == 0;
  const int64_t groups_per_row = ceil_div(problem.extents[last] + (starts_on_groups ? 0 : group - 1), group);
  return set_rows<CopyRows>(problem, device, groups_per_row, plan);
}

// Vectors of dst at any alignment: a row touches up to one vector more than it fills.
template <class Mechanism>
bool set_shifted_rows(const PermuteProblem& problem, const Device& device, int64_t row_bytes, PermutePlan* plan) {
  return set_rows<Mechanism>(problem, device, ceil_div(row_bytes + vector_bytes - 1, vector_bytes), plan);
}

}  // namespace

bool plan_copy(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  const int last = problem.rank - 1;
  const int64_t row_units = problem.rank > 0 ? problem.extents[last] : 1;
  const int64_t row_bytes = row_units * problem.unit_bytes;
  const bool is_one_run = problem.rank <= 1;
  if (problem.rank > 0 && problem.src_strides[last] != problem.unit_bytes) return false;
  if (problem.rank == 0 || problem.dst_strides[last] == problem.dst_unit_bytes) {
    if (problem.is_converted)
      return (is_one_run || rows_are_long(problem.rank, problem.bytes_of(row_units))) &&
             set_converted_rows(problem, device, plan);
    if (problem.unit_bytes < vector_bytes)
      return (is_one_run || row_bytes >= min_shifted_row_bytes) &&
             set_shifted_rows<CopyShiftedRows>(problem, device, row_bytes, plan);
    if (!is_one_run && !rows_are_long(problem.rank, row_bytes)) return false;
    set_rows<CopyRows>(problem, device, row_units, plan);
    // One run stays a plain launch: it is the copy that all others are measured by.
    if (is_one_run) plan->launch.uses_pdl = false;
    return true;
  }
  return !problem.is_converted && problem.dst_strides[last] == -int64_t{problem.unit_bytes} &&
         row_bytes >= min_shifted_row_bytes && set_shifted_rows<CopyReversedRows>(problem, device, row_bytes, plan);
}

}  // namespace flowk::permute
