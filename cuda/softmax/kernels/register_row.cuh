// SPDX-License-Identifier: Apache-2.0
// Rows held in registers: what a kernel is compiled for, the vectors of a thread, and their loads.
#pragma once

#include "softmax/kernels/unaligned_row.cuh"

namespace flowk::softmax {

// Makes the compiler compute values from a vector again, instead of holding them since they were first computed.
__device__ __forceinline__ void forget_values([[maybe_unused]] uint4* vector) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+r"(vector->x), "+r"(vector->y), "+r"(vector->z), "+r"(vector->w));
#endif
}

// What the kernel of the table's row kRow is compiled for.
template <class RowTerms, int kRow>
struct RegisterKernel {
  using Terms = RowTerms;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  static constexpr SoftmaxKernelRow table_row = softmax_kernels[kRow];
  static constexpr int width = vector_width<T>, vectors = table_row.max_vectors;
  static constexpr SoftmaxMask mask = Terms::mask;
  static constexpr SoftmaxForm form = table_row.form;
  static constexpr bool is_backward = Terms::is_backward, converts = table_row.converts;
  static constexpr bool is_unaligned = table_row.unaligned, is_whole = has_whole_rows<form>;
  static constexpr bool has_outer = form == SoftmaxForm::any && !is_unaligned;
  static constexpr bool has_bias = mask == SoftmaxMask::bias, has_bias_alone = table_row.bias_alone;
  static constexpr bool has_dense = may_have_dense(mask) && !has_bias_alone;
  // With a softcap, and neither a bias nor a dense mask, exponents come from x.
  static constexpr bool has_x_scores = mask == SoftmaxMask::scores;
  static constexpr bool has_score_terms = table_row.score_terms && (has_scaled_scores(mask) || is_backward);
  static constexpr bool has_row_numbers = table_row.row_values && table_row.sinks;
  static constexpr bool has_row_scale = table_row.row_scale;  // in the exponent, or a factor of the gradients
  // Do vectors that are not read have scores of 0 + -infinity, instead of a branch?
  static constexpr bool has_masked_bias = has_bias && vectors > 2 && !has_score_terms && !is_unaligned;
  // 16-bit scores stay in registers unconverted and their exponentials are computed twice. That halves the registers,
  // so more loads are in flight, which is worth more than the instructions. Short rows with a dense mask have enough
  // instructions for the mask, and scores with a bias are float32: they keep their exponentials.
  static constexpr bool recomputes_exponentials =
      is_float16<T> &&
      (mask == SoftmaxMask::none || (mask == SoftmaxMask::dense && (form == SoftmaxForm::whole || vectors >= 8)));
  // float32: a loop for logarithms and one for results, or one that selects, which takes fewer registers.
  static constexpr bool has_two_loops = !converts && (vectors >= 16 || (vectors >= 8 && mask == SoftmaxMask::dense));
  static constexpr bool selects_logarithms =
      is_unaligned || (!is_float16<T> && form != SoftmaxForm::whole && !has_two_loops);
  // The log-sum-exp is stored before the results if that takes few instructions, else when few registers are in use.
  static constexpr bool leaves_first = has_row_numbers && is_float16<T> && !has_bias;
  static constexpr bool holds_sink = is_float16<T> || is_whole || vectors <= 4 || has_x_scores || has_row_scale;
  static constexpr bool holds_addresses = form != SoftmaxForm::whole;  // others take more registers
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

// As own_vectors(), but whole rows have equal parts in the blocks of a cluster.
template <class Kernel>
__device__ __forceinline__ OwnVectors own_vectors_of(const SoftmaxParams& params, const RowInRegisters& mechanism,
                                                     const unsigned char* first_vector, const RowVectors& vectors,
                                                     int rank, int lane) {
  if constexpr (!Kernel::is_whole) return own_vectors(params, first_vector, vectors, rank, lane);
  const int part = rank * mechanism.block_vectors, part_end = part + mechanism.block_vectors;
  return {part + lane, params.lanes_per_row, part_end < mechanism.row_vectors ? part_end : mechanism.row_vectors, 0};
}

// A thread's vectors of x, from the address of the first one. Those that are not read are masked; unaligned rows come
// through shared memory.
template <class Kernel>
__device__ __forceinline__ void load_x(const RegisterRow<Kernel>& thread, const unsigned char* first,
                                       uint4 (&x)[Kernel::vectors]) {
#pragma unroll
  for (int i = 0; i < Kernel::vectors; ++i) {
    // With a dense mask these elements become -infinity anyway.
    if constexpr (Kernel::has_masked_bias)
      x[i] = {0, 0, 0, 0};
    else if constexpr (Kernel::mask != SoftmaxMask::dense || Kernel::is_unaligned)
      x[i] = negative_infinity_vector<typename Kernel::T>();
    if (!Kernel::is_unaligned && thread.is_read(i)) x[i] = load_vector(first + thread.offset_of(i));
  }
}

// The dense mask's bytes of a thread's vectors; none is masked if there is no mask.
template <class Kernel, int kCount>
__device__ __forceinline__ void load_dense_of(const SoftmaxParams& params, const SoftmaxRow& row,
                                              const RowVectors& vectors, const OwnVectors& own,
                                              RegisterRow<Kernel> thread, DenseWords<Kernel::width> (&dense)[kCount]) {
  constexpr int width = Kernel::width;
  if (Kernel::mask == SoftmaxMask::bias && row.dense == nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) dense[i] = {};
  } else {
    const unsigned char* const first = row.dense + vectors.head + own.first * width;
    const bool is_aligned =
        Kernel::is_whole || (reinterpret_cast<uintptr_t>(row.dense + vectors.head) & (width - 1)) == 0;
    load_dense(params, row, first, own.step * width, is_aligned, [thread](int i) { return thread.is_read(i); }, dense);
  }
}

// A bias alone starts anywhere: its vectors are put together when they are used.
template <class Kernel>
using BiasVector = std::conditional_t<Kernel::has_bias_alone, UnalignedVector<typename Kernel::T>, uint4>;

// The bias of a thread's vectors, from the address of the first one. `before`: see UnalignedVector.
template <class Kernel>
__device__ __forceinline__ void load_bias_vectors(const RegisterRow<Kernel>& thread, const unsigned char* first,
                                                  unsigned before, bool is_aligned,
                                                  UnalignedVector<typename Kernel::T> (&bias)[Kernel::vectors]) {
  using Vector = UnalignedVector<typename Kernel::T>;
  const auto load_all = [&](auto load) {
#pragma unroll
    for (int i = 0; i < Kernel::vectors; ++i)
      bias[i] = thread.is_read(i) ? load(first + thread.offset_of(i)) : Vector::masked();
  };
  if (is_aligned)
    load_all([](const unsigned char* address) { return Vector::load_aligned(address); });
  else
    load_all([=](const unsigned char* address) { return Vector::load(address, before); });
}
// Whole vectors, if the bias is given and aligned as x is: `is_loaded`.
template <class Kernel>
__device__ __forceinline__ void load_bias_vectors(const RegisterRow<Kernel>& thread, const unsigned char* first,
                                                  bool is_loaded, uint4 (&bias)[Kernel::vectors]) {
  const unsigned char* const address = Kernel::has_score_terms && !is_loaded ? nullptr : first;
#pragma unroll
  for (int i = 0; i < Kernel::vectors; ++i) {
    bias[i] = Kernel::has_masked_bias ? negative_infinity_vector<typename Kernel::T>() : uint4{0, 0, 0, 0};
    if (is_loaded && thread.is_read(i)) bias[i] = load_vector(address + thread.offset_of(i));
  }
}

}  // namespace flowk::softmax
