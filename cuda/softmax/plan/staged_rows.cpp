// SPDX-License-Identifier: Apache-2.0
// staged_rows: chooses the threads per row and the rows per block, and lays out the block's shared memory.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

// With fewer blocks some multiprocessors have no work.
constexpr int64_t blocks_per_multiprocessor = 8;

// Up to max_staged_columns columns one thread has whole rows, by single columns.
bool has_single_columns(const SoftmaxCall& call) { return call.request.columns <= max_staged_columns; }

int64_t offset_step(const SoftmaxCall& call) { return first_column_step(call, staged_unit_columns); }

// Units per thread of a row; 0: there is no such kernel.
int32_t units_per_thread(const SoftmaxCall& call, int32_t lanes) {
  const int64_t columns = call.request.columns;
  if (has_single_columns(call)) return lanes == 1 ? static_cast<int32_t>(columns) : 0;
  // A row that starts late in a unit has one unit more. All threads have the same number of units, or one less.
  const int64_t min_units = ceil_div(columns, staged_unit_columns);
  const int64_t max_units = ceil_div(columns + staged_unit_columns - offset_step(call), staged_unit_columns);
  const int64_t units = ceil_div(max_units, lanes);
  return min_units / lanes >= units - 1 ? static_cast<int32_t>(units) : 0;
}

SoftmaxKernelQuery query_of_lanes(const SoftmaxCall& call, int32_t lanes) {
  SoftmaxKernelQuery query = query_of(call, SoftmaxKernel::staged_rows, units_per_thread(call, lanes));
  query.whole_block = lanes > warp_lanes;
  query.unit_columns = has_single_columns(call) ? 1 : staged_unit_columns;
  return query;
}

bool has_mask(const SoftmaxCall& call) { return may_have_dense(call.mask); }

SoftmaxOperand mask_operand(const SoftmaxCall& call) {
  return call.mask == SoftmaxMask::bias ? softmax_bias_or_y : softmax_dense;
}

int64_t mask_row_bytes(const SoftmaxCall& call) {
  return call.mask == SoftmaxMask::bias ? call.row_bytes : call.request.columns;
}

// The innermost dimension of the rows. The masks of its rows are at one stride.
const SoftmaxRowDim& run_dim(const SoftmaxCall& call) { return call.output_rows.dims[0]; }

// Runs of rows of the mask that a block's rows lie in.
int64_t mask_runs(const SoftmaxCall& call, int64_t block_rows) {
  return std::min(ceil_div(block_rows - 1, run_dim(call).extent) + 1, call.output_rows.num_rows);
}

// Bytes of shared memory for a block's rows of y, or of the mask.
int64_t second_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  if (call.request.backward) return segment_bytes(call, config);
  if (!has_mask(call)) return 0;
  // Each run of the mask starts and ends inside a vector.
  const int64_t rows = rows_per_block(config), row_stride = run_dim(call).strides[mask_operand(call)];
  const int64_t gap = std::max(mask_row_bytes(call) - row_stride, int64_t{0});
  const int64_t bytes = rows * row_stride + mask_runs(call, rows) * (gap + 2 * vector_bytes);
  return round_up(bytes, vector_bytes) + mask_table_bytes + vector_bytes;
}

// Is it worth its instructions to copy only the unmasked columns of each row?
bool copies_rows(const SoftmaxCall& call) {
  if (!call.has_interval || has_single_columns(call)) return false;
  const bool is_16_bit_forward = call.in_bytes == 2 && !call.request.backward;
  return call.row_bytes >= (is_16_bit_forward ? staged_copied_16_bit_row_bytes : staged_copied_row_bytes);
}

bool mask_fits(const SoftmaxCall& call, const SoftmaxConfig& config) {
  if (!has_mask(call)) return true;
  const int64_t stride = run_dim(call).strides[mask_operand(call)];
  return call.output_rows.num_rows < int64_t{1} << 31 && stride >= 0 && stride <= 2 * mask_row_bytes(call) &&
         mask_runs(call, rows_per_block(config)) <= max_mask_runs;
}

bool shares_mask(const SoftmaxCall& call) { return has_mask(call) && rows_share(call, mask_operand(call)); }

// A row has 2^n lanes of a warp, or whole warps, which are then the block.
int32_t more_lanes(int32_t lanes) { return lanes < warp_lanes ? 2 * lanes : lanes + warp_lanes; }

// The most lanes for which staged_rows is the fastest. Few rows have more threads in row_in_registers. There long rows
// of whole vectors find a mask that they share in L1.
int32_t max_lanes(const SoftmaxCall& call) {
  const bool are_few = call.rows.num_rows < blocks_per_multiprocessor * call.device.num_multiprocessors;
  const bool is_shared_and_long = shares_mask(call) && !call.has_tails &&
                                  (call.in_bytes == 2 || call.request.columns > staged_32_bit_shared_mask_columns);
  return call.mask != SoftmaxMask::dense || are_few || is_shared_and_long ? warp_lanes : max_staged_lanes;
}

// The most units that threads read at the same time from the same banks of shared memory. 1: there are no conflicts.
int32_t bank_conflicts(const SoftmaxCall& call, int32_t lanes, const StagedRowOrder& order) {
  constexpr int32_t max_units = 16;  // of 8 bytes, in all banks
  const int32_t unit_shift = call.in_bytes == 2 ? 3 : 4, units = call.in_bytes == 2 ? max_units : max_units / 2;
  int32_t readers[max_units] = {}, most = 1;
  for (int32_t row = 0; (row + 1) * lanes <= units; ++row) {
    const auto first = static_cast<int32_t>(order.row_of(row) * call.row_bytes >> unit_shift);
    for (int32_t lane = 0; lane < lanes; ++lane) most = std::max(most, ++readers[(first + lane) & (units - 1)]);
  }
  return most;
}

// From this number of conflicts on another order, more threads per row or larger blocks are faster.
constexpr int32_t many_bank_conflicts = 4;

struct OrderedRows {
  StagedRowOrder order;
  int32_t conflicts;
};

// The order of a block's rows with the fewest bank conflicts.
OrderedRows order_rows(const SoftmaxCall& call, int32_t lanes, int32_t threads) {
  const int32_t rows = threads / lanes;
  OrderedRows best = {{}, bank_conflicts(call, lanes, {})};
  if (best.conflicts < many_bank_conflicts || !std::has_single_bit(static_cast<uint32_t>(rows))) return best;
  for (int32_t step = 2; step < rows; step *= 2) {
    const int32_t n = rows / step;
    const StagedRowOrder order = {step, n - 1, std::countr_zero(static_cast<uint32_t>(n))};
    const int32_t conflicts = bank_conflicts(call, lanes, order);
    if (conflicts < best.conflicts) best = {order, conflicts};
  }
  return best;
}

constexpr int32_t masked_threads = 2 * warp_lanes;

// Threads of a block with several rows. Two warps start the copies of x and of a mask. Larger blocks are for long rows
// that share a mask or have a float32 bias, for threads that read little, and against bank conflicts.
int32_t threads_of_rows(const SoftmaxCall& call, int32_t lanes) {
  if (has_single_columns(call)) return staged_threads;
  const int32_t max_threads = call.has_interval ? staged_interval_threads : staged_threads;
  if (!has_mask(call)) return max_threads;
  const bool shares = shares_mask(call);
  if (lanes >= 16 && (call.in_bytes == 2 ? shares : call.mask == SoftmaxMask::bias)) return max_threads;
  if (!shares && lanes == 1) {
    const int64_t warps = ceil_div(staged_masked_block_bytes, warp_lanes * call.row_bytes);
    return static_cast<int32_t>(std::clamp<int64_t>(warps * warp_lanes, masked_threads, max_threads));
  }
  const int32_t conflicts = order_rows(call, lanes, masked_threads).conflicts;
  const bool are_fewer = conflicts >= many_bank_conflicts && order_rows(call, lanes, max_threads).conflicts < conflicts;
  return are_fewer ? max_threads : masked_threads;
}

}  // namespace

SoftmaxConfig choose_staged_rows(const SoftmaxCall& call) {
  SoftmaxConfig config;
  StagedRows staged;
  // The fewest threads that hold a row: each has hundreds of instructions of its own.
  const auto holds = [&](int32_t lanes) { return find_kernel(query_of_lanes(call, lanes)) >= 0; };
  int32_t& lanes = config.lanes_per_row = 1;
  while (lanes < max_lanes(call) && !holds(lanes)) lanes = more_lanes(lanes);
  // Twice the threads, where no order of the rows helps against bank conflicts.
  if (!has_single_columns(call) && lanes < warp_lanes && holds(2 * lanes)) {
    const int32_t conflicts = order_rows(call, lanes, staged_threads).conflicts;
    if (conflicts >= many_bank_conflicts && order_rows(call, 2 * lanes, staged_threads).conflicts < conflicts)
      lanes *= 2;
  }
  if (lanes > warp_lanes) {
    config.block_threads = lanes;
    config.mechanism = staged;
    return config;
  }
  if (has_single_columns(call)) {
    const int64_t pass_bytes = call.row_bytes * call.num_inputs * staged_threads;
    staged.rows_per_thread =
        static_cast<int32_t>(std::min<int64_t>(ceil_div(staged_block_bytes, pass_bytes), max_rows_per_thread));
    if (staged.rows_per_thread > 4) staged.rows_per_thread += staged.rows_per_thread % 2;
  }
  // Few rows: more threads per row and smaller blocks, until every multiprocessor has work.
  constexpr int64_t threads_per_multiprocessor = 512;
  const int64_t num_multiprocessors = call.device.num_multiprocessors;
  const auto has_few_threads = [&] {
    return call.rows.num_rows * lanes < threads_per_multiprocessor * num_multiprocessors;
  };
  for (int32_t more = 2 * lanes; more <= warp_lanes && has_few_threads(); more *= 2)
    if (holds(more)) lanes = more;
  config.block_threads = threads_of_rows(call, lanes);
  const auto block_rows = [&] { return int64_t{config.block_threads / lanes * staged.rows_per_thread}; };
  const auto has_few_blocks = [&] {
    return ceil_div(call.rows.num_rows, block_rows()) < blocks_per_multiprocessor * num_multiprocessors;
  };
  while (staged.rows_per_thread > 1 && has_few_blocks()) --staged.rows_per_thread;
  while (config.block_threads > warp_lanes &&
         (has_few_blocks() || (has_mask(call) && mask_runs(call, block_rows()) > max_mask_runs)))
    config.block_threads = (config.block_threads / warp_lanes + 1) / 2 * warp_lanes;
  config.mechanism = staged;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const StagedRows& mechanism) {
  if (!is_one_run(call) || config.cluster_blocks != 1) return false;
  if (call.has_interval &&
      (call.rows.num_rows >= int64_t{1} << 31 || call.request.columns > max_staged_interval_columns))
    return false;
  // One mask goes through shared memory.
  if (call.mask == SoftmaxMask::bias && (call.request.bias_dtype != call.request.in_dtype || call.has_dense))
    return false;
  const int32_t max_rows = has_single_columns(call) ? max_rows_per_thread : 1;
  if (mechanism.rows_per_thread < 1 || mechanism.rows_per_thread > max_rows) return false;
  return config.lanes_per_row <= max_staged_lanes && mask_fits(call, config) &&
         segment_bytes(call, config) + second_bytes(call, config) + staged_barrier_bytes +
                 staged_exchange_bytes(config.lanes_per_row) <=
             call.device.shared_bytes_per_block;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const StagedRows&) {
  if (call.request.columns > max_staged_lanes * staged_unit_columns * max_staged_columns) return -1;
  return find_kernel(query_of_lanes(call, config.lanes_per_row));
}

void fill(const SoftmaxCall& call, StagedRows& mechanism, SoftmaxPlan* plan) {
  mechanism.unit_columns = has_single_columns(call) ? 1 : staged_unit_columns;
  mechanism.units_per_thread = units_per_thread(call, plan->config.lanes_per_row);
  mechanism.has_unit_edges = !has_single_columns(call) && offset_step(call) < staged_unit_columns;
  mechanism.copies_rows = copies_rows(call);
  if (!has_single_columns(call))
    mechanism.row_order = order_rows(call, plan->config.lanes_per_row, plan->config.block_threads).order;
  mechanism.second_offset_bytes = static_cast<int32_t>(segment_bytes(call, plan->config));
  mechanism.barrier_offset_bytes =
      mechanism.second_offset_bytes + static_cast<int32_t>(second_bytes(call, plan->config));
  plan->launch.shared_bytes =
      mechanism.barrier_offset_bytes + staged_barrier_bytes + staged_exchange_bytes(plan->config.lanes_per_row);
  if (!has_mask(call)) return;
  const SoftmaxOperand operand = mask_operand(call);
  const OperandMemory memory = memory_of(call, operand, mask_row_bytes(call));
  mechanism.mask = {.base = static_cast<const unsigned char*>(call.request.pointers[operand]),
                    .first = memory.first,
                    .end = memory.end,
                    .operand = operand,
                    .row_bytes = static_cast<int32_t>(mask_row_bytes(call)),
                    .row_stride = static_cast<int32_t>(run_dim(call).strides[operand])};
}

}  // namespace flowk::softmax
