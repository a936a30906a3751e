// SPDX-License-Identifier: Apache-2.0
// Rows held in registers: what their kernels are compiled for, and which vectors of a row a thread has.
#pragma once

#include "softmax/kernels/unaligned_row.cuh"

namespace flowk::softmax {

// Makes the compiler compute values from a vector again, instead of holding them since they were first computed.
__device__ __forceinline__ void forget_values([[maybe_unused]] uint4* vector) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+r"(vector->x), "+r"(vector->y), "+r"(vector->z), "+r"(vector->w));
#endif
}

// What row_in_registers is compiled for in row kRow of the table.
template <class RowTerms, int kRow>
struct RegisterKernel {
  using Terms = RowTerms;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  static constexpr SoftmaxKernelRow table_row = softmax_kernels[kRow];
  static constexpr int width = vector_width<T>, vectors = table_row.max_vectors, num_inputs = Terms::num_inputs;
  static constexpr SoftmaxMask mask = Terms::mask;
  static constexpr SoftmaxForm form = table_row.form;
  static constexpr bool is_backward = Terms::is_backward, converts = table_row.converts;
  static constexpr bool is_unaligned = table_row.unaligned, is_whole = has_whole_rows<form>;
  static constexpr bool has_outer = form == SoftmaxForm::any && !is_unaligned;
  static constexpr bool has_bias = mask == SoftmaxMask::bias, has_bias_alone = table_row.bias_alone;
  static constexpr bool has_dense = may_have_dense(mask) && !has_bias_alone;
  // With a softcap alone exponents come from x.
  static constexpr bool is_scaled = has_scaled_scores(mask), has_x_scores = mask == SoftmaxMask::scores;
  static constexpr bool holds_scores = is_scaled && !has_x_scores;
  static constexpr bool has_score_terms = table_row.score_terms && (is_scaled || is_backward);
  static constexpr bool has_row_numbers = table_row.row_values && table_row.sinks;
  static constexpr bool has_row_scale = table_row.row_scale;  // in the exponent, or a factor of the gradients
  // Do vectors that are not read have scores of 0 + -infinity, instead of a branch?
  static constexpr bool has_masked_bias = has_bias && vectors > 2 && !has_score_terms && !is_unaligned;
  // Others would take more registers.
  static constexpr bool holds_addresses = !is_backward && form != SoftmaxForm::whole;
};

// A thread's vectors of a row: at most Kernel::vectors, own.step apart.
template <class Kernel>
struct RegisterRow {
  const OwnVectors& own;
  const RowVectors& vectors;
  // Whole rows: a row past the last one is loaded as row 0 and not stored.
  __device__ __forceinline__ bool is_read(int i) const {
    if constexpr (Kernel::form == SoftmaxForm::whole) return true;
    return (Kernel::is_whole || own.at(i) >= vectors.read_begin) && own.at(i) < own.end;
  }
  __device__ __forceinline__ int column_of(int i) const { return vectors.head + own.at(i) * Kernel::width; }
  // Offsets from the thread's first vector have 32 bits.
  __device__ __forceinline__ uint32_t offset_of(int i) const {
    return static_cast<uint32_t>(i * own.step) * vector_bytes;
  }
};

}  // namespace flowk::softmax
