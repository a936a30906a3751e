// SPDX-License-Identifier: Apache-2.0
// select_mechanism() finds the fastest mechanism that can do a call.
#include <cstdint>

#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

// The longest rows that staged_rows is the fastest for.
int64_t max_staged_row_columns(const SoftmaxCall& call) {
  if (call.request.backward) return call.has_interval ? INT64_MAX : staged_gradient_columns;
  if (call.mask == SoftmaxMask::bias && call.in_bytes == 4 && !rows_share(call, softmax_bias_or_y))
    return staged_32_bit_bias_columns;
  const bool has_edges = !is_aligned(call, softmax_x, int64_t{staged_unit_columns} * call.in_bytes);
  const bool has_costly_edges =
      has_edges && !may_have_dense(call.mask) && (call.in_bytes == 2 || has_scaled_scores(call.mask));
  return has_costly_edges ? staged_edge_columns : INT64_MAX;
}

// Rows that share a mask and have a whole block in both mechanisms: do they fill the vectors of row_in_registers, or
// have threads of staged_rows few units of 16 bits?
bool fills_registers_of_block(const SoftmaxCall& call, int64_t vectors, int32_t staged_lanes) {
  constexpr int64_t few_unit_columns = int64_t{8} * staged_unit_columns;
  return 100 * call.row_vectors >= filled_registers_of_block * vectors ||
         (call.in_bytes == 2 && call.request.columns <= few_unit_columns * staged_lanes);
}

// Has row_in_registers no more threads than staged_rows for a row with tails that starts or ends inside a unit, and
// does the row fill their vectors? For whole warps with a mask or a bias in 16 bits, for float32 with a bias, and for
// whole blocks with a mask that rows share.
bool fills_registers(const SoftmaxCall& call, const SoftmaxConfig& in_registers, const SoftmaxConfig& staged) {
  if (!call.has_tails || !may_have_dense(call.mask)) return false;
  const int32_t lanes = in_registers.lanes_per_row;
  const int64_t vectors = int64_t{lanes} * in_registers.as<RowInRegisters>().vectors_per_thread;
  const bool has_bias = call.mask == SoftmaxMask::bias;
  if (!has_bias && lanes > warp_lanes && rows_share(call, softmax_dense))
    return staged.lanes_per_row > warp_lanes && fills_registers_of_block(call, vectors, staged.lanes_per_row);
  if (call.in_bytes == 2 ? lanes != warp_lanes : !has_bias || lanes > warp_lanes) return false;
  if (first_column_step(call, staged_unit_columns) == staged_unit_columns) return false;
  const int32_t fill = has_bias && call.in_bytes == 2 ? filled_registers_with_16_bit_bias : filled_registers;
  return 100 * call.row_vectors >= fill * vectors && staged.lanes_per_row >= lanes;
}

// Is staged_rows faster than row_in_registers? It is for rows with tails that do not fill registers, and for rows that
// leave many vectors of their threads empty.
bool prefers_staged_rows(const SoftmaxCall& call, const SoftmaxConfig& in_registers) {
  if (call.request.columns > max_staged_row_columns(call)) return false;
  const int64_t vectors = int64_t{in_registers.lanes_per_row} * in_registers.as<RowInRegisters>().vectors_per_thread;
  const auto has_less_than = [&](int32_t percent) { return 100 * call.row_vectors < percent * vectors; };
  if (call.request.backward && call.has_interval && (call.in_bytes == 4 || call.row_vectors >= warp_lanes))
    return has_less_than(staged_gradient_fill);
  if (call.has_tails) return true;
  const bool has_32_bit_bias = call.mask == SoftmaxMask::bias && call.in_bytes == 4;
  return call.mask != SoftmaxMask::scores && has_less_than(has_32_bit_bias ? staged_32_bit_bias_fill : staged_fill);
}

// A row of framed_rows has at most a warp: a few rows leave threads of the GPU without work.
bool are_few(const SoftmaxCall& call) {
  return call.rows.num_rows * warp_lanes < framed_softmax_filling_threads * call.device.num_multiprocessors;
}

bool are_few_and_long(const SoftmaxCall& call) {
  return call.in_bytes == 2 && call.row_vectors > 5 * warp_lanes && are_few(call);
}

// Is framed_rows the fastest, forward, for rows under an interval that rows_in_lanes does not take?
bool prefers_framed_softmax(const SoftmaxCall& call) {
  const int64_t min_columns =
      call.in_bytes == 2 && call.has_tails ? framed_softmax_min_columns_with_tails : framed_softmax_min_columns;
  return !call.request.backward && call.request.columns >= min_columns &&
         call.row_bytes <= framed_softmax_max_row_bytes && !are_few_and_long(call);
}

// And for gradients? Whole vectors that fill the threads of row_in_registers stay there, if the row is not short.
bool prefers_framed_gradients(const SoftmaxCall& call, const SoftmaxConfig& in_registers) {
  const int64_t max_bytes = call.in_bytes == 2 ? framed_gradient_16_bit_bytes : framed_gradient_32_bit_bytes;
  if (!call.request.backward || call.request.columns < framed_gradient_min_columns || call.row_bytes > max_bytes ||
      are_few_and_long(call))
    return false;
  const int64_t vectors = int64_t{in_registers.lanes_per_row} * in_registers.as<RowInRegisters>().vectors_per_thread;
  return call.has_tails || call.row_vectors <= framed_short_row_vectors ||
         100 * call.row_vectors < framed_gradient_fill * vectors;
}

// And for rows that rows_in_lanes takes? It is for rows that leave vectors of the lanes empty, and, if there are enough
// rows, for short rows of 16 bits and for long ones of 32 bits.
bool prefers_framed_softmax_to_lanes(const SoftmaxCall& call, const SoftmaxConfig& in_lanes) {
  const int32_t vectors = in_lanes.as<RowsInLanes>().vectors_per_thread;
  const bool fits_frames = call.in_bytes == 2 ? call.row_vectors <= framed_softmax_16_bit_vectors
                                              : call.row_vectors >= framed_softmax_32_bit_vectors;
  return prefers_framed_softmax(call) &&
         ((fits_frames && !are_few(call)) ||
          100 * call.row_vectors < int64_t{framed_softmax_lanes_fill} * in_lanes.lanes_per_row * vectors);
}

// Is staged_rows faster than rows_in_lanes? It is for rows of one vector, and for rows that leave many vectors of the
// lanes empty.
bool prefers_staged_rows_to_lanes(const SoftmaxCall& call, const SoftmaxConfig& in_lanes) {
  const int64_t vectors = int64_t{in_lanes.lanes_per_row} * in_lanes.as<RowsInLanes>().vectors_per_thread;
  const int32_t fill = call.in_bytes == 2 ? rows_in_lanes_16_bit_fill : rows_in_lanes_32_bit_fill;
  return call.row_bytes < rows_in_lanes_bytes || 100 * call.row_vectors < fill * vectors;
}

}  // namespace

SoftmaxConfig select_mechanism(const SoftmaxCall& call) {
  if (call.request.has_strided_columns) return choose_strided_rows(call);
  SoftmaxConfig config;
  const auto take = [&](const SoftmaxConfig& candidate) {
    config = candidate;
    return fits(call, config);
  };
  const SoftmaxTuningRow& tuning = find_tuning_row(call);
  // Only these two have an order of sums that depends on the columns alone.
  if (call.request.batch_invariant)
    return take(choose_row_in_registers(call, tuning)) ? config : choose_two_pass_row(call);
  const int64_t num_rows = call.rows.num_rows, few_rows_bytes = num_rows == 1 ? split_row_bytes : 2 * split_row_bytes;
  const bool has_row_scale = call.request.numbers[row_scale] != nullptr;
  const bool has_few_long_rows = num_rows <= max_split_rows && call.row_bytes >= few_rows_bytes;

  const auto take_staged = [&](const SoftmaxConfig& in_registers) {
    if (!prefers_staged_rows(call, in_registers)) return false;
    const SoftmaxConfig staged = choose_staged_rows(call);
    return !fills_registers(call, in_registers, staged) && take(staged);
  };
  const auto take_registers = [&] {
    const SoftmaxConfig in_registers = choose_row_in_registers(call, tuning);
    return ((prefers_framed_softmax(call) || prefers_framed_gradients(call, in_registers)) &&
            take(choose_framed_rows(call))) ||
           take_staged(in_registers) || take(in_registers);
  };
  const auto take_lanes = [&] {
    const SoftmaxConfig in_lanes = choose_rows_in_lanes(call);
    return fits(call, in_lanes) &&
           ((prefers_framed_softmax_to_lanes(call, in_lanes) && take(choose_framed_rows(call))) ||
            (prefers_staged_rows_to_lanes(call, in_lanes) && take(choose_staged_rows(call))) || take(in_lanes));
  };
  // The fastest mechanism first.
  const bool is_found =
      take(choose_rows_by_vectors(call)) || take_lanes() || (has_few_long_rows && take(choose_split_row(call))) ||
      (tuning.persistent_blocks > 0 && take(choose_persistent_rows(call, tuning))) ||
      ((tuning.shared_threads == 0 || has_row_scale) && take_registers()) || take(choose_row_in_shared(call, tuning)) ||
      (call.row_bytes >= split_row_bytes && take(choose_split_row(call)));
  return is_found ? config : choose_two_pass_row(call);
}

}  // namespace flowk::softmax
