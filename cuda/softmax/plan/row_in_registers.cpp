// SPDX-License-Identifier: Apache-2.0
// row_in_registers: chooses the vectors, threads and blocks that hold a row, and the simplest kernel that can do it.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {
namespace {

// float32 scores may become 16-bit probabilities, and their gradients float32 again.
SoftmaxKernelQuery query_of(const SoftmaxCall& call, int32_t vectors, SoftmaxForm form = SoftmaxForm::any) {
  SoftmaxKernelQuery query = query_of(call, SoftmaxKernel::row_in_registers, vectors);
  query.form = form;
  query.converts = call.request.in_dtype != call.request.out_dtype;
  query.unaligned = call.is_unaligned;
  query.bias_alone = call.has_bias_alone;
  return query;
}

// Lanes of a row, by vectors per thread and blocks.
struct Lanes {
  const SoftmaxCall& call;
  int32_t min_threads = min_lanes(call);

  int32_t operator()(int32_t vectors, int32_t blocks = 1) const {
    return lanes_for(call.row_vectors, vectors, blocks, min_threads);
  }
};

// With 4 vectors per thread: the percentage of them that a row must fill. Below it, fewer threads with 8 are faster.
int32_t enough_of_4_vectors(const SoftmaxCall& call, int32_t lanes) {
  const SoftmaxFillRow& row = find_tuning_row(fill_of_4_vectors, &SoftmaxFillRow::max_lanes, lanes);
  if (call.is_plain) return call.has_tails ? row.plain_tails : row.plain;
  if (call.mask == SoftmaxMask::dense) return call.has_tails ? row.dense_tails : row.dense;
  if (call.mask != SoftmaxMask::bias) return 0;
  return call.has_tails && !call.has_bias_alone ? row.bias_tails : row.bias;
}

// Rows that are not 2^n vectors leave some threads without all their vectors.
void adapt_to_length(const SoftmaxCall& call, const Lanes& lanes, int32_t* vectors, int32_t* blocks) {
  while (*blocks > 1 && lanes(*vectors, *blocks) <= min_cluster_threads) *blocks /= 2;
  if (*blocks > 1) return;
  const auto held = [&](int32_t n) { return int64_t{n} * lanes(n); };
  const auto has_less_than = [&](int32_t n, int32_t percent) { return 100 * call.row_vectors < percent * held(n); };
  if (call.request.backward && *vectors == 2) {
    const bool misses_one = round_up(call.row_vectors, lanes(4)) < round_up(call.row_vectors, lanes(2));
    if (misses_one || has_less_than(2, fill_of_2_vectors)) *vectors = 4;
  }
  if (call.request.backward) return;
  // With 4 vectors per thread, no thread lacks one.
  const bool fits_4 = held(4) == call.row_vectors && held(4) < held(8);
  // With 8 vectors per thread, one warp holds a row for which 4 take two warps.
  const bool fits_warp = call.mask == SoftmaxMask::bias && call.in_bytes == 4 && lanes(4) == 2 * warp_lanes;
  if (*vectors == 8 && fits_4 && (call.has_dense || call.in_bytes == 4))
    *vectors = 4;
  else if (*vectors == 4 && held(8) <= held(4) && (fits_warp || has_less_than(4, enough_of_4_vectors(call, lanes(4)))))
    *vectors = 8;
}

// Long float32 rows with a dense mask have 16 vectors per thread where 128 or 160 threads then hold a block's part:
// such blocks fill the registers of a multiprocessor. Rows that leave no thread without one of 8 vectors stay with 8.
void take_16_vectors(const SoftmaxCall& call, const Lanes& lanes, int32_t* vectors, int32_t* blocks) {
  if (call.is_power_of_2 || call.mask != SoftmaxMask::dense || call.in_bytes != 4 || *vectors != 8 || *blocks == 1 ||
      int64_t{lanes(8, *blocks)} * 8 * *blocks == call.row_vectors)
    return;
  for (int32_t n = 2; n <= device_cluster_blocks(call.device); n *= 2) {
    const int32_t threads = lanes(16, n);
    if (threads != 4 * warp_lanes && threads != 5 * warp_lanes) continue;
    *vectors = 16;
    *blocks = n;
    return;
  }
}

// Is a row of 16 bits with a dense mask and tails so short that more threads, with 4 vectors each, are faster?
bool takes_few_vectors(const SoftmaxCall& call) {
  return call.mask == SoftmaxMask::dense && call.in_bytes == 2 && call.has_tails && !call.request.batch_invariant &&
         call.row_bytes <= dense_tails_of_4_vectors_bytes;
}

// Are there kernels of 4 and of 8 vectors for float32 rows with a scale?
bool has_32_bit_row_scale(const SoftmaxCall& call) {
  return call.request.numbers[row_scale] != nullptr && !call.request.backward && call.mask == SoftmaxMask::none &&
         call.is_one_type && call.in_bytes == 4;
}

// Have these rows 4 vectors per thread? Short rows of whole vectors have kernels without heads and tails then. Under an
// interval 8 vectors were not measured.
bool has_32_bit_row_scale_of_4_vectors(const SoftmaxCall& call) {
  return has_32_bit_row_scale(call) &&
         (call.has_interval || (!call.has_tails && call.row_bytes <= row_scale_of_4_vectors_bytes));
}

// Threads per block if a row has a warp or less.
int32_t short_row_threads(const SoftmaxCall& call, int32_t lanes, int32_t vectors) {
  const int32_t min_threads =
      call.is_power_of_2 || call.num_inputs == 2 ? min_short_row_threads : min_other_length_threads;
  int32_t threads = block_threads_for(lanes, vectors * vector_bytes * call.num_inputs, min_threads);
  const int64_t all_threads = call.rows.num_rows * lanes, num_multiprocessors = call.device.num_multiprocessors;
  const int32_t few_blocks = call.num_inputs == 2 ? few_blocks_of_two_inputs : few_blocks_of_one_input;
  if (threads < few_rows_threads && all_threads < few_blocks * threads * num_multiprocessors)
    threads = few_rows_threads;
  while (threads > 2 * warp_lanes && all_threads < threads * num_multiprocessors) threads /= 2;
  return threads;
}

// Is one of two inputs in L2, or are columns of both masked? Threads then need more vectors, so that enough loads are
// in flight. Very short rows with a bias keep their threads.
bool reads_less(const SoftmaxCall& call) {
  constexpr int64_t min_bias_vectors = 8;
  if (call.request.backward) return call.has_interval && call.row_vectors >= warp_lanes;
  if (call.row_vectors < min_bias_vectors) return false;
  if (call.request.batch_invariant) return false;  // whether rows share a bias must not change a result
  if (call.mask != SoftmaxMask::bias || call.in_bytes != 2) return false;
  return std::any_of(call.rows.dims, call.rows.dims + call.rows.rank,
                     [](const SoftmaxRowDim& dim) { return dim.strides[softmax_bias_or_y] == 0; });
}

// The form of the kernels that take all rows of the call, also if some threads have fewer vectors than others.
SoftmaxForm form_of(const SoftmaxCall& call) {
  const bool is_score_any = call.has_score_terms && call.mask != SoftmaxMask::scores;
  if (call.has_tails || is_score_any || call.is_unaligned) return SoftmaxForm::any;
  if (call.has_interval) return SoftmaxForm::aligned;
  if (!may_have_dense(call.mask)) {
    if (call.rows.num_rows >= int64_t{1} << 31) return SoftmaxForm::aligned;
    for (const SoftmaxOperand operand : {softmax_x, softmax_out, softmax_bias_or_y}) {
      if (!has_one_stride(call.rows, operand)) return SoftmaxForm::aligned;
      const int64_t stride = call.rows.dims[0].strides[operand];
      if (stride < 0 || stride >= int64_t{1} << 32) return SoftmaxForm::aligned;
    }
  }
  if (call.mask == SoftmaxMask::bias && !call.bias_vectors_agree) return SoftmaxForm::aligned;
  if (call.has_dense && !is_aligned(call, softmax_dense, call.vector_columns)) return SoftmaxForm::aligned;
  return SoftmaxForm::unfilled;
}

SoftmaxForm form_of(const SoftmaxCall& call, const SoftmaxConfig& config, int32_t vectors) {
  const SoftmaxForm form = form_of(call);
  const bool is_whole = call.row_vectors == int64_t{config.lanes_per_row} * vectors * config.cluster_blocks;
  return form == SoftmaxForm::unfilled && is_whole ? SoftmaxForm::whole : form;
}

// The vectors of the kernel that takes `vectors` per thread. All batch-invariant calls with a dense mask of 16-bit
// scores compute exponentials twice, as the kernels of 8 vectors do.
int32_t kernel_vectors(const SoftmaxCall& call, int32_t vectors) {
  return call.request.batch_invariant && call.mask == SoftmaxMask::dense && call.in_bytes == 2 ? 8 : vectors;
}

// Has no batch-invariant row of these columns a kernel for aligned ones?
bool is_never_aligned(const SoftmaxCall& call) {
  return call.request.batch_invariant && call.request.columns % call.vector_columns != 0;
}

int64_t stage_offset_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return round_up(int64_t{exchange_bytes(call, config)}, int64_t{vector_bytes});
}

int32_t stage_operands(const SoftmaxCall& call) {
  const bool has_last = call.has_dense || (call.request.backward && call.request.softcap > 0);
  return call.num_inputs + (has_last ? 1 : 0);
}

// The shared memory of a block for unaligned rows.
int64_t unaligned_shared_bytes(const SoftmaxCall& call, const SoftmaxConfig& config, int32_t vectors) {
  return stage_offset_bytes(call, config) + int64_t{rows_per_block(config)} * stage_operands(call) *
                                                stage_vectors(config.lanes_per_row * vectors) * vector_bytes;
}

bool has_kernels_of_all_alignments(const SoftmaxCall& call, const SoftmaxConfig& config, int32_t vectors) {
  SoftmaxKernelQuery query = query_of(call, kernel_vectors(call, vectors));
  const auto has_kernel = [&](bool unaligned) {
    query.unaligned = unaligned;
    const int32_t kernel = find_kernel(query);
    return kernel >= 0 && config.block_threads <= softmax_kernels[kernel].max_threads;
  };
  return (is_never_aligned(call) || has_kernel(false)) && has_kernel(true) &&
         unaligned_shared_bytes(call, config, vectors) <= call.device.shared_bytes_per_block;
}

}  // namespace

SoftmaxConfig choose_row_in_registers(const SoftmaxCall& call, const SoftmaxTuningRow& tuning) {
  const Lanes lanes{call};
  SoftmaxKernelQuery query = query_of(call, 0, call.request.batch_invariant ? SoftmaxForm::any : form_of(call));
  int32_t max_vectors = max_kernel_vectors(query);
  // A batch-invariant row has the same number of vectors at any alignment.
  if (call.request.batch_invariant && !is_never_aligned(call)) {
    query.unaligned = !query.unaligned;
    max_vectors = std::min(max_vectors, max_kernel_vectors(query));
  }
  if (max_vectors == 0) return {};
  const int32_t tuned_vectors = reads_less(call) ? std::max(tuning.vectors_per_thread, 4) : tuning.vectors_per_thread;
  int32_t vectors = std::min(tuned_vectors, max_vectors), tuned_blocks = tuning.cluster_blocks;
  if (!call.is_power_of_2) adapt_to_length(call, lanes, &vectors, &tuned_blocks);
  if (max_vectors == 16) take_16_vectors(call, lanes, &vectors, &tuned_blocks);
  vectors = std::min(vectors, max_vectors);
  // With a softcap threads hold more than vectors: more blocks are better than more vectors. A bias alone has no more
  // vectors in rows of any alignment.
  const int32_t few_vectors = call.request.backward ? 2 : 4;
  const bool has_few_vectors =
      (call.mask == SoftmaxMask::bias ? call.has_bias_alone && call.has_tails : call.has_score_terms) ||
      takes_few_vectors(call) || has_32_bit_row_scale_of_4_vectors(call);
  if (has_few_vectors && max_vectors >= few_vectors &&
      lanes(few_vectors, device_cluster_blocks(call.device)) <= max_row_threads) {
    vectors = few_vectors;
    while (lanes(vectors, tuned_blocks) > max_row_threads) tuned_blocks *= 2;
  }
  if (is_never_aligned(call)) vectors = max_vectors;
  int32_t blocks = cluster_blocks_for(call, tuned_blocks);
  // A few rows over more blocks: at least two warps per block, and up to 8 warps rather than more than 4 vectors.
  while (blocks > tuned_blocks && ((vectors > 2 && lanes(vectors, blocks) < 2 * warp_lanes) ||
                                   (vectors > 4 && lanes(vectors / 2, blocks) <= 8 * warp_lanes)))
    vectors /= 2;
  // Fewer blocks than wanted: a thread holds more.
  while (lanes(vectors, blocks) > max_row_threads && vectors < max_vectors) vectors *= 2;
  // No other mechanism holds a row of a batch-invariant call.
  while (call.request.batch_invariant && lanes(vectors, blocks) > max_row_threads &&
         blocks < device_cluster_blocks(call.device))
    blocks *= 2;
  // Few short rows: more threads per row, down to one vector per thread.
  const auto is_few = [&] {
    const int64_t threads = vectors > 2 ? few_threads_of_4_vectors : few_threads_of_2_vectors;
    return call.expected_rows * lanes(vectors) < threads * call.device.num_multiprocessors;
  };
  while (blocks == 1 && vectors > 1 && lanes(vectors / 2) <= warp_lanes && is_few()) vectors /= 2;

  SoftmaxConfig config;
  config.mechanism = RowInRegisters{.vectors_per_thread = vectors};
  config.lanes_per_row = config.block_threads = lanes(vectors, blocks);
  config.cluster_blocks = blocks;
  if (blocks == 1 && config.lanes_per_row <= warp_lanes)
    config.block_threads = short_row_threads(call, config.lanes_per_row, vectors);
  // The tuned limit is for rows of 2^n vectors in more blocks than are resident at once. Float32 rows with a scale are
  // faster without it.
  if (call.is_power_of_2 && !has_few_vectors && !has_32_bit_row_scale(call) &&
      call.rows.num_rows * blocks > int64_t{tuning.resident_blocks} * call.device.num_multiprocessors)
    config.resident_blocks = tuning.resident_blocks;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInRegisters& mechanism) {
  const int32_t vectors = mechanism.vectors_per_thread, lanes = config.lanes_per_row;
  if (call.request.batch_invariant && !has_kernels_of_all_alignments(call, config, vectors)) return false;
  return call.vectors_agree && std::has_single_bit(static_cast<uint32_t>(vectors)) && lanes >= min_lanes(call) &&
         call.row_vectors <= int64_t{lanes} * vectors * config.cluster_blocks;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInRegisters& mechanism) {
  const int32_t vectors = mechanism.vectors_per_thread;
  return find_kernel(query_of(call, kernel_vectors(call, vectors), form_of(call, config, vectors)));
}

void fill(const SoftmaxCall& call, RowInRegisters& mechanism, SoftmaxPlan* plan) {
  const int32_t vectors = mechanism.vectors_per_thread;
  mechanism.form = form_of(call, plan->config, vectors);
  plan->params.starts_on_lines = !call.request.batch_invariant && fits_from_line(call, plan->config, vectors);
  if (call.is_unaligned) {
    mechanism.stage_offset_bytes = static_cast<int32_t>(stage_offset_bytes(call, plan->config));
    mechanism.stage_operands = stage_operands(call);
    constexpr SoftmaxOperand operands[] = {softmax_x, softmax_bias_or_y, softmax_dense};
    for (int k = 0; k < 3; ++k)
      if (call.request.pointers[operands[k]] != nullptr)
        mechanism.memory[k] =
            memory_of(call, operands[k], k == 2 && call.has_dense ? call.request.columns : call.row_bytes);
    plan->launch.shared_bytes = static_cast<int32_t>(unaligned_shared_bytes(call, plan->config, vectors));
  }
  // A block's part of a row starts on a line if its threads can hold that much.
  const int64_t part = ceil_div(call.row_vectors, plan->config.cluster_blocks);
  const int64_t line_part = round_up(part, line_bytes / vector_bytes);
  mechanism.row_vectors = static_cast<int32_t>(call.row_vectors);
  mechanism.block_vectors = static_cast<int32_t>(line_part <= plan->config.lanes_per_row * vectors ? line_part : part);
}

}  // namespace flowk::softmax
