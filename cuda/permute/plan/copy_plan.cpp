// SPDX-License-Identifier: Apache-2.0
// Plans of rows: copy_rows and copy_shifted_rows.
#include <algorithm>

#include "permute/plan/permute_problem.h"
#include "permute/plan/permute_tuning.h"

namespace flowk::permute {
namespace {

// Do rows follow each other in dst? A tile stores such rows as one run.
bool are_joined(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  const int64_t row_bytes = problem.extents[last] * problem.dst_unit_bytes;
  return problem.dst_strides[last - 1] == row_bytes && problem.extents[last - 1] * row_bytes >= min_joined_bytes;
}

// The shortest of several rows; shorter ones go through a tile. With a conversion the bytes are the mean of src and
// dst.
int64_t min_row_bytes_of(const PermuteProblem& problem, bool is_shifted, bool is_reversed) {
  const bool is_joined = !is_reversed && are_joined(problem);
  if (is_shifted && !is_joined) return min_shifted_row_bytes;
  if (is_shifted) return problem.unit_bytes == 1 ? min_joined_shifted_byte_row_bytes : min_joined_shifted_row_bytes;
  for (const CopyRowsBound& bound : copy_rows_bounds)
    if (problem.rank <= bound.max_rank) return is_joined ? bound.min_joined_row_bytes : bound.min_row_bytes;
  return INT64_MAX;
}

// Rows are all dimensions except the last, or the whole tensor as one row of `items_per_row` items.
template <class Mechanism>
Mechanism& set_rows(const PermuteProblem& problem, const Device& device, int64_t items_per_row, PermutePlan* plan) {
  Mechanism& rows = plan->mechanism.emplace<Mechanism>();
  CopyParams& copy = rows.params;
  const int last = problem.rank - 1;
  copy.src = problem.src;
  copy.dst = problem.dst;
  copy.src_end = problem.src_end;
  copy.row_bytes = (problem.rank > 0 ? problem.extents[last] : 1) * problem.dst_unit_bytes;
  copy.rank = std::max(last, 0);
  int64_t num_rows = 1;
  for (int d = last - 1, i = 0; d >= 0; --d, ++i) {
    copy.dims[i].src_stride = problem.src_strides[d];
    copy.dims[i].dst_stride = problem.dst_strides[d];
    copy.dims[i].extent = problem.extents[d];
    copy.dims[i].divider = Divider(static_cast<uint32_t>(problem.extents[d]));
    num_rows *= problem.extents[d];
  }
  copy.num_items = num_rows * items_per_row;
  copy.row_items = {Divider(static_cast<uint32_t>(items_per_row)), items_per_row};
  copy.wide_index = copy.num_items >= (int64_t{1} << 31);
  set_units(problem, plan);
  const bool takes_packs = problem.is_converted() && converts_rows(problem.unit_bytes, problem.dst_unit_bytes,
                                                                   problem.in_double(), copy.wide_index);
  const int items_per_thread = takes_packs ? converted_packs_per_thread : 1;
  plan->launch = {ceil_div(copy.num_items, copy_threads * items_per_thread), copy_threads, 0};
  plan->launch.uses_pdl = device.runs_pdl();
  return rows;
}

// Does every row start on a multiple of a pack's bytes in this array?
bool start_on_packs(const PermuteProblem& problem, const unsigned char* array, const int64_t* strides, int32_t bytes) {
  uint64_t starts = reinterpret_cast<uintptr_t>(array);
  for (int d = 0; d < problem.rank - 1; ++d) starts |= static_cast<uint64_t>(strides[d]);
  return starts % static_cast<uint64_t>(convert_pack_elements(problem.unit_bytes, problem.dst_unit_bytes) * bytes) == 0;
}

// Packs of elements that start on a multiple of their bytes in dst. A row that starts inside a pack touches one pack
// more than it fills.
int64_t packs_per_row(const PermuteProblem& problem) {
  const int64_t pack = convert_pack_elements(problem.unit_bytes, problem.dst_unit_bytes);
  const bool are_whole = start_on_packs(problem, problem.dst, problem.dst_strides, problem.dst_unit_bytes);
  return ceil_div(problem.extents[problem.rank - 1] + (are_whole ? 0 : pack - 1), pack);
}

// Several converted rows are read and written by whole packs; a tile is faster for others.
bool converts_whole_packs(const PermuteProblem& problem) {
  return converts_rows(problem.unit_bytes, problem.dst_unit_bytes, problem.in_double(), false) &&
         start_on_packs(problem, problem.src, problem.src_strides, problem.unit_bytes) &&
         start_on_packs(problem, problem.dst, problem.dst_strides, problem.dst_unit_bytes);
}

}  // namespace

bool plan_copy(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  const int last = problem.rank - 1;
  const int64_t src_stride = problem.rank > 0 ? problem.src_strides[last] : problem.unit_bytes;
  const int64_t dst_stride = problem.rank > 0 ? problem.dst_strides[last] : problem.dst_unit_bytes;
  const bool is_reversed = !problem.is_converted() && dst_stride == -int64_t{problem.unit_bytes};
  if (src_stride != problem.unit_bytes || (dst_stride != problem.dst_unit_bytes && !is_reversed)) return false;

  const int64_t row_units = problem.rank > 0 ? problem.extents[last] : 1;
  const int64_t row_bytes = problem.bytes_of(row_units);
  const bool is_one_run = problem.rank <= 1 && !is_reversed;
  const bool is_shifted = !problem.is_converted() && (is_reversed || problem.unit_bytes < vector_bytes);
  if (!is_one_run && problem.is_converted() && !converts_whole_packs(problem)) return false;
  if (!is_one_run && row_bytes < min_row_bytes_of(problem, is_shifted, is_reversed)) return false;

  // Shifted vectors have any alignment: a row touches up to one vector more than it fills.
  const int64_t shifted_vectors = ceil_div(row_bytes + vector_bytes - 1, vector_bytes);
  if (is_shifted) {
    CopyShiftedRows& rows = set_rows<CopyShiftedRows>(problem, device, shifted_vectors, plan);
    rows.is_reversed = is_reversed;
    if (is_reversed) rows.params.dst -= rows.params.row_bytes - problem.unit_bytes;
  } else {
    set_rows<CopyRows>(problem, device, problem.is_converted() ? packs_per_row(problem) : row_units, plan);
    // A copy of one run stays a plain launch, because all other plans are measured against it.
    if (!problem.is_converted() && is_one_run) plan->launch.uses_pdl = false;
  }
  return true;
}

}  // namespace flowk::permute
