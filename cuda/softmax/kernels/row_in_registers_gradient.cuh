// SPDX-License-Identifier: Apache-2.0
// The gradient of softmax of rows held in registers, by lanes of a warp, a warp, a block or a cluster.
#pragma once

#include "softmax/kernels/register_row.cuh"

namespace flowk::softmax {

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); log_softmax: see flowk.h. All
// operands are (rows, columns).
//
// Threads hold a row as in row_in_registers. dy and y are read once, into registers; the threads exchange one sum. With
// a softcap this is the gradient of z, and x is read for the gradient of x.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    row_in_registers_gradient(const __grid_constant__ GridConstant<RowInRegisters> mechanism,
                              const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using Kernel = RegisterKernel<Terms, kRow>;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int kVectors = Kernel::vectors, width = Kernel::width;
  constexpr bool is_unaligned = Kernel::is_unaligned;
  const RowOutput<T, Kernel::converts> output{params};
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, group);

  const auto [linear, lane] = row_position(params);
  const SoftmaxRow row = locate_row<Terms::mask, true>(params, linear);
  const RowVectors vectors = is_unaligned ? padded_row_vectors<T>(params, row) : row_vectors<T>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const bool is_first = group.rank == 0 && lane == 0 && row.columns > 0;
  unsigned char* const out_vectors = row.out + vectors.head * output.column_bytes();
  const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, group.rank, lane);
  const RegisterRow<Kernel> thread{own, vectors};

  // All loads come before the first use. Unaligned rows go through shared memory.
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const unsigned char* first_dy = row.x + first_bytes;
  const unsigned char* first_y = address_past(row.bias_or_y, first_bytes);
  const auto input = [&](int k) { return k == 0 ? first_dy : first_y; };
  uint4 raw[kVectors][2];  // dy and y
  [[maybe_unused]] UnalignedRow<T> unaligned(params, mechanism, row, vectors, own, lane);
  [[maybe_unused]] const int x_operand = mechanism.stage_operands - 1;
  if constexpr (is_unaligned) {
    unaligned.copy(mechanism, 0, 0, row.x);
    unaligned.copy(mechanism, 1, 1, row.bias_or_y);
    if (params.extras.softcap > 0 && row.columns > 0)
      unaligned.copy(mechanism, 2, x_operand, row_of_scores(params, static_cast<uint32_t>(linear)));
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      raw[i][k] = Terms::masked_vector(params, k);
      if (!is_unaligned && thread.is_read(i)) raw[i][k] = load_vector(input(k) + thread.offset_of(i));
    }
  }
  if (params.interval.exists) {
    if constexpr (is_unaligned)
      unaligned.fill(vectors, group, A{0});
    else
      fill_unread(output, out_vectors, vectors, own, group.rank, lane, A{0});
  }
  // What the row waits for is read before the first use of what its threads have loaded.
  using Numbers = std::conditional_t<Kernel::has_row_numbers, GradientNumbers<A, Kernel::has_row_scale>, NoRowScore>;
  [[maybe_unused]] const Numbers numbers(params, static_cast<uint32_t>(linear), row.columns > 0, is_first);
  const int outer_column = Kernel::has_outer ? outer_column_of<T>(params, row, vectors, group.rank, lane) : -1;
  A outer[2];
  using Score = std::conditional_t<Kernel::has_score_terms, RowScore<T>, NoRowScore>;
  [[maybe_unused]] const Score score(params, static_cast<uint32_t>(linear), row.columns > 0);
  Terms::load_one(params, row, outer_column, outer);
  if constexpr (is_unaligned) {
    async_copy_wait();
    unaligned.synchronize();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!thread.is_read(i)) continue;
#pragma unroll
      for (int k = 0; k < 2; ++k) raw[i][k] = unaligned.load(k, input(k), own.at(i));
    }
  }

  [[maybe_unused]] A probability = 0;  // of the sink, in the row's first thread
  if constexpr (Kernel::has_row_numbers)
    if (params.has_row_values && params.extras.dsinks != nullptr && is_first) probability = numbers.probability();
  // At most two vectors per row contain an end of the interval, or of an unaligned row.
  if (is_unaligned || params.interval.exists) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      if (thread.is_read(i)) Terms::cut(params, row, thread.column_of(i), &raw[i][0], &raw[i][1]);
  }
  // With a softcap the gradients of z come first.
  const auto terms_of = [&](bool is_log) {
    Terms terms(params, is_log);
    if constexpr (Kernel::has_score_terms) terms.scale = score.factor();
    if constexpr (Kernel::has_row_scale) terms.scale *= numbers.scale;
    return terms;
  };
  [[maybe_unused]] bool has_softcap = false;
  [[maybe_unused]] const unsigned char* scores = nullptr;
  constexpr bool holds_raw_scores = Kernel::has_score_terms && kVectors <= 2;
  [[maybe_unused]] uint4 raw_scores[holds_raw_scores ? kVectors : 1];
  if constexpr (Kernel::has_score_terms) {
    has_softcap = score.has_softcap();
    if (has_softcap && row.columns > 0) {
      scores = row_of_scores(params, static_cast<uint32_t>(linear));
      scores += first_bytes;
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (holds_raw_scores && thread.is_read(i))
          raw_scores[holds_raw_scores ? i : 0] = load_vector(scores + thread.offset_of(i));
    }
  }
  const Terms terms = terms_of(params.log_softmax);
  A sum = terms.term(outer);
  if constexpr (Kernel::has_row_numbers) sum -= numbers.dlse;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    A dy[width], y[width];
    widen_vector<T>(raw[i][0], dy);
    widen_vector<T>(raw[i][1], y);
    if (params.log_softmax) {
#pragma unroll
      for (int j = 0; j < width; ++j) sum += Terms(params, true).term(dy[j], y[j]);
    } else {
#pragma unroll
      for (int j = 0; j < width; ++j) sum += y[j] * dy[j];
    }
  }
  sum = sum_row(buffer, group, sum_over_lanes_of(group, sum));
  const int out_bytes = output.vector_bytes_out();
  unsigned char* const out = out_vectors + static_cast<int64_t>(own.first) * out_bytes;
  if constexpr (is_unaligned) unaligned.begin_stores(group);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!thread.is_read(i)) continue;
    if constexpr (is_float16<T>) {  // the compiler would hold bfloat16 widened, in twice the registers
      forget_values(&raw[i][0]);
      forget_values(&raw[i][1]);
    }
    A dx[width];
    if (params.log_softmax)
      terms_of(true).vector_results(raw[i][0], raw[i][1], sum, dx);
    else
      terms_of(false).vector_results(raw[i][0], raw[i][1], sum, dx);
    Terms::clear_masked(row, thread.column_of(i), sum, dx);
    if constexpr (Kernel::has_score_terms) {
      if (has_softcap) {
        A x[width];
        if constexpr (is_unaligned)
          widen_vector<T>(unaligned.load(x_operand, scores, own.at(i)), x);
        else
          widen_vector<T>(
              holds_raw_scores ? raw_scores[holds_raw_scores ? i : 0] : load_vector(scores + thread.offset_of(i)), x);
#pragma unroll
        for (int j = 0; j < width; ++j) dx[j] = score.gradient(dx[j], x[j]);
      }
    }
    if constexpr (is_unaligned)
      unaligned.store(own.at(i), dx);
    else
      output.store_vector(out + static_cast<uint32_t>(i * own.step * out_bytes), dx);
  }
  if constexpr (is_unaligned) unaligned.write();
  if (outer_column >= 0) {
    A dx = typename Terms::Results{terms, sum}.of_column(row, outer_column, outer);
    if constexpr (Kernel::has_score_terms)
      if (has_softcap) dx = score.gradient(dx, load_element<T>(scores - first_bytes, outer_column));
    output.store_column(row.out, outer_column, dx);
  }
  if constexpr (Kernel::has_row_numbers)
    if (params.has_row_values && params.extras.dsinks != nullptr && is_first)
      store_sink_gradient(params, static_cast<uint32_t>(linear), probability, sum);
}

}  // namespace flowk::softmax
