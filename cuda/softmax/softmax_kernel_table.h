// SPDX-License-Identifier: Apache-2.0
// The table of softmax's kernels: which exist, and what each takes. A plan finds its kernel in the table. The launch
// compiles every kernel of the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/sizes.h"

namespace flowk::softmax {

enum class SoftmaxKernel : int32_t {
  row_in_registers,
  row_in_shared,
  staged_rows,
  two_pass_row,
  rows_by_vectors,
  rows_in_lanes,
  split_row,
  persistent_rows,
  framed_rows,
  strided_rows,
};

// What a kernel is compiled for, besides the interval of columns that lengths, causal and window leave of a row.
enum class SoftmaxMask : int32_t {
  none,    // neither of the three below
  dense,   // a dense mask
  bias,    // a bias; a softcap or a scale per row with a dense mask
  scores,  // a softcap, without a dense mask or a bias
};

// Are scores computed before exponents? Else a score is x, and the scale is in the exponent.
FLOWK_HOST_DEVICE constexpr bool has_scaled_scores(SoftmaxMask mask) {
  return mask == SoftmaxMask::bias || mask == SoftmaxMask::scores;
}
FLOWK_HOST_DEVICE constexpr bool may_have_dense(SoftmaxMask mask) {
  return mask == SoftmaxMask::dense || mask == SoftmaxMask::bias;
}

// What row_in_registers is compiled without. Each form takes all rows that a later form takes.
enum class SoftmaxForm : int32_t {
  any,       // nothing
  aligned,   // heads and tails: all columns are in whole vectors
  unfilled,  // also lengths, causal, window and masks that are not aligned with their vectors; without a dense mask or
             // bias, rows lie one after the other
  whole      // also missing vectors: every thread has all of its vectors
};

template <SoftmaxForm kForm>
constexpr bool has_whole_rows = kForm == SoftmaxForm::unfilled || kForm == SoftmaxForm::whole;

// The most threads per block that hold a row: each then has 128 registers.
constexpr int max_row_threads = 512;
constexpr int max_cluster_blocks = 16;

// ---- the table

// Element types by the bytes of an element of x, and masks: sets of bits.
constexpr int bits_16 = 2, bits_32 = 4, bits_64 = 8, up_to_32_bits = bits_16 | bits_32, all_types = 14;
constexpr int mask_bit(SoftmaxMask mask) { return 1 << static_cast<int>(mask); }
constexpr int no_mask = 1, dense_mask = 2, bias_mask = 4, score_mask = 8, no_bias = no_mask | dense_mask;
constexpr int all_masks = no_bias | bias_mask;  // without score_mask: kernels of bias_mask take its calls

// One kernel for each of its types and, if the mechanism tells masks apart, each of its masks.
struct SoftmaxKernelRow {
  SoftmaxKernel mechanism;
  bool backward;
  int types;
  int masks;
  // The numbers of vectors, units or columns per thread that it takes; of rows_by_vectors, rows; of persistent_rows,
  // vectors in a batch.
  int min_vectors;
  int max_vectors;
  int max_threads = max_row_threads;    // per block
  int blocks_per_multiprocessor = 0;    // that fit by their registers; 0: not asked of the compiler
  SoftmaxForm form = SoftmaxForm::any;  // row_in_registers
  bool converts = false;                // row_in_registers: the types of x and out differ
  int unit_columns = 0;                 // staged_rows: columns per unit; strided_rows: words of a column per thread
  bool row_values = true;               // takes calls with a log-sum-exp, or its gradient
  bool sinks = true;                    // and with sinks, or their gradients
  bool row_scale = false;               // and with a scale per row, without a bias or a dense mask
  bool score_terms = false;             // and with a scale per row or a softcap
  bool bias_alone = false;              // takes a bias of x's type, and no other mask with it
  bool unaligned = false;               // row_in_registers: rows of any alignment, through shared memory
  bool whole_block = false;             // staged_rows: a row has all threads of its block, two warps or more
};

// What a plan asks for.
struct SoftmaxKernelQuery {
  SoftmaxKernel mechanism = {};
  bool backward = false;
  int element_bytes = 0;  // of x
  SoftmaxMask mask = {};
  int vectors = 0;  // as min_vectors
  SoftmaxForm form = SoftmaxForm::any;
  bool converts = false;
  int unit_columns = 0;
  bool row_values = false;
  bool sinks = false;
  bool row_scale = false;
  bool score_terms = false;
  bool bias_alone = false;
  bool unaligned = false;
  bool whole_block = false;
};

constexpr bool takes(const SoftmaxKernelRow& row, int element_bytes, SoftmaxMask mask) {
  return (row.types & element_bytes) != 0 && (row.masks & mask_bit(mask)) != 0;
}

// The mask that the row's kernel for calls with this mask is compiled for. With row values, the kernels of staged_rows
// for scores take calls without a mask, and the kernels for a bias take calls with scores.
constexpr SoftmaxMask kernel_mask(const SoftmaxKernelRow& row, SoftmaxMask mask) {
  if ((row.masks & mask_bit(mask)) != 0) return mask;
  if (mask == SoftmaxMask::scores) return SoftmaxMask::bias;
  return mask == SoftmaxMask::none && row.mechanism == SoftmaxKernel::staged_rows ? SoftmaxMask::scores : mask;
}

// row_in_shared: the vectors of a thread that are in registers; its others are in shared memory.
constexpr int shared_row_register_vectors = 4;
// staged_rows: threads per block with several rows, and with one.
constexpr int staged_threads = 128;
constexpr int max_staged_lanes = 256;
// strided_rows: a thread's columns are a multiple of strided_step(). Where is_general, it holds strided_general_columns
// at a time.
constexpr int strided_step(int words) { return words == 4 ? 1 : 4; }
constexpr int strided_general_columns = 8;

namespace table {

constexpr SoftmaxKernelRow in_registers(int types, int masks, SoftmaxForm form, int vectors, int blocks = 0,
                                        int max_threads = max_row_threads) {
  const int min_vectors = form == SoftmaxForm::whole ? vectors : 1;
  return {SoftmaxKernel::row_in_registers, false, types, masks, min_vectors, vectors, max_threads, blocks, form};
}
constexpr SoftmaxKernelRow in_registers_backward(int types, int vectors, int blocks = 0) {
  return {SoftmaxKernel::row_in_registers, true, types, no_mask, 1, vectors, max_row_threads, blocks};
}
constexpr SoftmaxKernelRow converting(SoftmaxKernelRow row) {
  row.converts = true;
  return row;
}
constexpr SoftmaxKernelRow without_sinks(SoftmaxKernelRow row) {
  row.sinks = false;
  return row;
}
constexpr SoftmaxKernelRow with_score_terms(SoftmaxKernelRow row) {
  row.score_terms = true;
  return row;
}
constexpr SoftmaxKernelRow with_bias_alone(SoftmaxKernelRow row) {
  row.bias_alone = true;
  return row;
}
constexpr SoftmaxKernelRow with_row_scale(SoftmaxKernelRow row) {
  row.row_scale = true;
  return row;
}
constexpr SoftmaxKernelRow unaligned(SoftmaxKernelRow row) {
  row.unaligned = true;
  return row;
}
// For kernels that would have more registers, or be slower for short rows, in all calls.
constexpr SoftmaxKernelRow without_row_values(SoftmaxKernelRow row) {
  row.row_values = false;
  return row;
}
constexpr SoftmaxKernelRow in_shared(bool backward, int masks) {
  return {SoftmaxKernel::row_in_shared,
          backward,
          up_to_32_bits,
          masks,
          shared_row_register_vectors,
          shared_row_register_vectors,
          max_row_threads,
          2};
}
constexpr SoftmaxKernelRow staged_with_row_values(int types, int unit_columns, int min_vectors, int max_vectors,
                                                  int blocks = 0) {
  return with_score_terms({SoftmaxKernel::staged_rows, false, types, score_mask, min_vectors, max_vectors,
                           staged_threads, blocks, SoftmaxForm::any, false, unit_columns});
}
constexpr SoftmaxKernelRow staged(bool backward, int types, int masks, int unit_columns, int min_vectors,
                                  int max_vectors, int blocks = 0) {
  return without_row_values({SoftmaxKernel::staged_rows, backward, types, masks, min_vectors, max_vectors,
                             staged_threads, blocks, SoftmaxForm::any, false, unit_columns});
}
constexpr SoftmaxKernelRow whole_block(SoftmaxKernelRow row, int max_threads) {
  row.whole_block = true;
  row.max_threads = max_threads;
  return row;
}
constexpr SoftmaxKernelRow framed(bool backward, int types, int vectors, int blocks) {
  return without_row_values({SoftmaxKernel::framed_rows, backward, types, no_mask, 1, vectors, 128, blocks});
}
constexpr SoftmaxKernelRow in_lanes(int types, int min_vectors, int max_vectors, int blocks = 0) {
  return without_row_values(
      {SoftmaxKernel::rows_in_lanes, false, types, no_mask, min_vectors, max_vectors, 128, blocks});
}

constexpr SoftmaxKernelRow strided(bool backward, int types, int words, int columns, int max_threads = 256,
                                   int blocks = 0) {
  return without_row_values({SoftmaxKernel::strided_rows, backward, types, no_mask, 1, columns, max_threads, blocks,
                             SoftmaxForm::any, false, words});
}

}  // namespace table

// A plan gets the first kernel that takes it. The kernels of a mechanism are neighbours, so that few are searched.
inline constexpr SoftmaxKernelRow softmax_kernels[] = {
    // Vectors of 16 bytes per thread. 8 vectors without a mask fit 64 registers, but the compiler would take 70. With
    // a dense mask that is unaligned, or that some threads do not read, they fit 80, but it would take 117 (16 bits)
    // or 88. In the kernels for calls without, a scale per row of 16 bits would cost time in all calls.
    table::without_row_values(table::in_registers(up_to_32_bits, no_bias, SoftmaxForm::whole, 1)),
    table::without_sinks(table::in_registers(up_to_32_bits, no_mask, SoftmaxForm::whole, 2)),
    table::without_sinks(table::in_registers(bits_32, dense_mask, SoftmaxForm::whole, 4)),
    table::in_registers(bits_32, dense_mask, SoftmaxForm::whole, 8),
    table::in_registers(bits_32, bias_mask, SoftmaxForm::whole, 8),
    table::in_registers(bits_16, bias_mask, SoftmaxForm::unfilled, 2),
    table::in_registers(bits_16, dense_mask, SoftmaxForm::unfilled, 4),
    table::without_row_values(table::in_registers(bits_32, no_bias, SoftmaxForm::unfilled, 4)),
    table::in_registers(bits_16, no_mask, SoftmaxForm::unfilled, 4, 3),
    table::with_row_scale(table::in_registers(bits_32, no_mask, SoftmaxForm::unfilled, 4)),
    table::in_registers(up_to_32_bits, bias_mask, SoftmaxForm::unfilled, 4),
    table::in_registers(up_to_32_bits, no_mask, SoftmaxForm::unfilled, 8, 2),
    table::with_row_scale(table::in_registers(bits_16, no_mask, SoftmaxForm::unfilled, 8, 2)),
    table::without_row_values(table::in_registers(bits_16, dense_mask, SoftmaxForm::unfilled, 8)),
    table::in_registers(bits_32, dense_mask, SoftmaxForm::unfilled, 8, 3, 256),
    table::in_registers(bits_32, bias_mask, SoftmaxForm::unfilled, 8),
    table::in_registers(bits_32, no_bias, SoftmaxForm::unfilled, 16),
    table::in_registers(bits_32, no_mask, SoftmaxForm::aligned, 8, 2),
    table::with_score_terms(table::in_registers(up_to_32_bits, score_mask, SoftmaxForm::unfilled, 4, 2)),
    table::with_score_terms(table::in_registers(up_to_32_bits, score_mask, SoftmaxForm::any, 4, 2)),
    table::in_registers(bits_16, no_mask, SoftmaxForm::any, 4),
    table::with_row_scale(table::in_registers(bits_32, no_mask, SoftmaxForm::any, 4)),
    table::with_bias_alone(table::in_registers(up_to_32_bits, bias_mask, SoftmaxForm::any, 4, 2)),
    table::with_score_terms(table::in_registers(up_to_32_bits, dense_mask | bias_mask, SoftmaxForm::any, 4)),
    table::in_registers(up_to_32_bits, no_mask, SoftmaxForm::any, 8, 2),
    table::with_row_scale(table::in_registers(up_to_32_bits, no_mask, SoftmaxForm::any, 8, 2)),
    table::in_registers(up_to_32_bits, dense_mask, SoftmaxForm::any, 8, 3, 256),
    table::with_score_terms(table::in_registers(up_to_32_bits, bias_mask, SoftmaxForm::any, 8)),
    table::converting(table::in_registers(bits_32, no_mask, SoftmaxForm::any, 4)),
    table::with_row_scale(table::converting(table::in_registers(bits_32, no_mask, SoftmaxForm::any, 16))),
    table::converting(table::in_registers(bits_32, dense_mask, SoftmaxForm::any, 16)),
    table::with_score_terms(table::converting(table::in_registers(bits_32, bias_mask, SoftmaxForm::any, 8))),
    table::in_registers_backward(up_to_32_bits, 2),
    table::without_row_values(table::in_registers_backward(up_to_32_bits, 4)),
    table::with_score_terms(table::in_registers_backward(up_to_32_bits, 2)),
    table::with_row_scale(table::in_registers_backward(up_to_32_bits, 4, 2)),
    table::with_row_scale(table::converting(table::in_registers_backward(bits_16, 8))),
    // Rows of any alignment, with the sums of aligned ones. A kernel without a bias takes calls with and without a
    // dense mask.
    table::unaligned(table::in_registers(up_to_32_bits, no_bias, SoftmaxForm::any, 8, 2)),
    table::unaligned(table::with_score_terms(table::in_registers(up_to_32_bits, bias_mask, SoftmaxForm::any, 8))),
    table::unaligned(table::with_score_terms(table::in_registers_backward(bits_16, 4, 2))),
    table::unaligned(table::with_score_terms(table::in_registers_backward(bits_32, 8))),
    table::in_shared(false, no_bias),
    table::in_shared(true, no_mask),
    // Whole rows by single columns, with a dense mask or a bias; then by units. The limits cap registers at 64, or 72;
    // of 16 bits at 48 to 80.
    table::staged(false, up_to_32_bits, no_mask, 1, 1, 2),
    table::staged(false, up_to_32_bits, no_mask, 1, 3, 4),
    table::staged(false, up_to_32_bits, no_mask, 1, 5, 8),
    table::staged(false, up_to_32_bits, no_mask, 1, 9, 12),
    table::staged(false, up_to_32_bits, no_mask, 1, 13, 20, 8),
    table::staged(false, up_to_32_bits, dense_mask | bias_mask, 1, 1, 20, 8),
    table::staged(false, bits_16, no_bias, 4, 5, 6, 10),
    table::staged(false, bits_16, no_bias, 4, 7, 8, 9),
    table::staged(false, bits_16, no_bias, 4, 9, 10, 8),
    table::staged(false, bits_16, dense_mask, 4, 11, 13, 6),
    table::staged(false, bits_32, no_mask, 4, 5, 8),
    table::staged(false, bits_32, no_mask, 4, 9, 10, 7),
    table::staged(false, bits_32, dense_mask, 4, 5, 5),
    table::staged(false, bits_32, dense_mask, 4, 6, 7),
    table::staged(false, bits_32, dense_mask, 4, 8, 9, 8),
    table::staged(false, bits_16, bias_mask, 4, 3, 6, 10),
    table::staged(false, bits_16, bias_mask, 4, 7, 10, 8),
    table::staged(false, bits_16, bias_mask, 4, 11, 13, 6),
    table::staged(false, bits_32, bias_mask, 4, 3, 5),
    table::staged(false, bits_32, bias_mask, 4, 6, 8, 6),
    table::whole_block(table::staged(false, bits_16, dense_mask, 4, 7, 10, 4), max_staged_lanes),
    table::whole_block(table::staged(false, bits_32, dense_mask, 4, 5, 7, 4), max_staged_lanes),
    table::staged_with_row_values(bits_32, 1, 1, 20),
    table::staged_with_row_values(bits_16, 4, 5, 6, 10),
    table::staged_with_row_values(bits_16, 4, 7, 8, 8),
    table::staged_with_row_values(bits_32, 4, 5, 6),
    table::staged_with_row_values(bits_32, 4, 7, 8),
    table::staged(true, up_to_32_bits, no_mask, 1, 1, 20),
    table::staged(true, bits_16, no_mask, 4, 3, 5, 6),
    table::staged(true, bits_16, no_mask, 4, 6, 10, 6),
    table::staged(true, bits_32, no_mask, 4, 3, 5, 6),
    // The vectors that a thread has in registers; it may have more.
    table::framed(false, bits_16, 1, 16),
    table::framed(false, bits_32, 3, 12),
    table::framed(true, up_to_32_bits, 3, 9),
    // Rows per thread.
    table::without_sinks({SoftmaxKernel::rows_by_vectors, false, bits_16, no_mask, 4, 4, 256, 8}),
    table::without_sinks({SoftmaxKernel::rows_by_vectors, true, up_to_32_bits, no_mask, 2, 2, 256}),
    table::in_lanes(up_to_32_bits, 1, 3),
    table::in_lanes(bits_16, 4, 4, 10),
    table::in_lanes(bits_32, 4, 4),
    // Each row has two kernels, one per grid; blocks_per_multiprocessor of the second one.
    {SoftmaxKernel::split_row, false, up_to_32_bits, no_bias, 0, 0, max_row_threads, 2},
    {SoftmaxKernel::split_row, true, up_to_32_bits, no_mask, 0, 0, max_row_threads, 2},
    // Vectors per batch.
    {SoftmaxKernel::persistent_rows, false, up_to_32_bits, no_mask, 4, 4, max_row_threads, 1},
    {SoftmaxKernel::persistent_rows, true, up_to_32_bits, no_mask, 2, 2, max_row_threads, 1},
    // Words of a column, and columns that a thread holds.
    table::strided(false, up_to_32_bits, 4, 8, 256, 4),
    table::strided(false, up_to_32_bits, 4, 12, 256, 2),
    table::strided(false, up_to_32_bits, 1, 32, 512, 2),
    table::strided(false, bits_64, 2, 8),
    table::strided(true, up_to_32_bits, 4, 4, 256, 4),
    table::strided(true, up_to_32_bits, 1, 16, 512, 2),
    table::strided(true, bits_64, 2, 8, 256, 4),
    table::without_row_values({SoftmaxKernel::two_pass_row, false, all_types, all_masks, 0, 0}),
    table::without_row_values({SoftmaxKernel::two_pass_row, true, all_types, no_mask, 0, 0}),
    // With row values.
    table::with_score_terms({SoftmaxKernel::two_pass_row, false, all_types, all_masks, 0, 0}),
    table::with_score_terms({SoftmaxKernel::two_pass_row, true, all_types, no_mask, 0, 0}),
};
constexpr int num_softmax_kernels = sizeof(softmax_kernels) / sizeof(softmax_kernels[0]);

// The second argument of a kernel's __launch_bounds__.
template <int kRow>
FLOWK_HOST_DEVICE constexpr int kernel_blocks() {
  return fitting_blocks(softmax_kernels[kRow].max_threads, softmax_kernels[kRow].blocks_per_multiprocessor);
}

// Does the row take such calls, with some number of vectors?
constexpr bool answers(const SoftmaxKernelRow& row, const SoftmaxKernelQuery& query) {
  if (kernel_mask(row, query.mask) != query.mask && !query.row_values) return false;
  return row.mechanism == query.mechanism && row.backward == query.backward &&
         takes(row, query.element_bytes, kernel_mask(row, query.mask)) && row.form <= query.form &&
         row.converts == query.converts && row.unit_columns == query.unit_columns &&
         (row.row_values || !query.row_values) && (row.sinks || !query.sinks) &&
         (row.score_terms || !query.score_terms) && (row.row_scale || row.score_terms || !query.row_scale) &&
         (!row.bias_alone || query.bias_alone) && row.unaligned == query.unaligned &&
         row.whole_block == query.whole_block;
}

// The kernels of a mechanism in the table.
struct SoftmaxKernelRange {
  int begin = 0;
  int end = 0;
};
constexpr int num_mechanisms = static_cast<int>(SoftmaxKernel::strided_rows) + 1;
inline constexpr auto softmax_kernel_ranges = [] {
  std::array<SoftmaxKernelRange, num_mechanisms> ranges = {};
  for (int i = 0; i < num_softmax_kernels; ++i) {
    SoftmaxKernelRange& range = ranges[static_cast<size_t>(softmax_kernels[i].mechanism)];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  return ranges;
}();
constexpr SoftmaxKernelRange kernels_of(SoftmaxKernel mechanism) {
  return softmax_kernel_ranges[static_cast<size_t>(mechanism)];
}

// The index of the query's kernel; -1: there is none. Every call asks several times.
constexpr int find_kernel(const SoftmaxKernelQuery& query) {
  const SoftmaxKernelRange range = kernels_of(query.mechanism);
  for (int i = range.begin; i < range.end; ++i) {
    const SoftmaxKernelRow& row = softmax_kernels[i];
    if (answers(row, query) && query.vectors >= row.min_vectors && query.vectors <= row.max_vectors) return i;
  }
  return -1;
}

// The largest number of vectors that some kernel takes, whatever query.vectors is; 0: there is none.
constexpr int max_kernel_vectors(const SoftmaxKernelQuery& query) {
  const SoftmaxKernelRange range = kernels_of(query.mechanism);
  int vectors = 0;
  for (int i = range.begin; i < range.end; ++i) {
    const SoftmaxKernelRow& row = softmax_kernels[i];
    if (answers(row, query) && row.max_vectors > vectors) vectors = row.max_vectors;
  }
  return vectors;
}

}  // namespace flowk::softmax
