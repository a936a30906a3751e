// SPDX-License-Identifier: Apache-2.0
// Softmax of rows held in registers, by lanes of a warp, a warp, a block or a cluster.
#pragma once

#include "softmax/kernels/register_scores.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x + bias; a dense mask
// has one byte per column; log_softmax: see flowk.h. All operands are (rows, columns).
//
// A row has lanes_per_row threads of a block, or of each block of a cluster. A thread has up to kVectors vectors of 16
// bytes, lanes_per_row apart, and at most one outer column. Operands are read once, into registers; the threads
// exchange one maximum and one sum. With kConverts the result may have another type than x. With is_unaligned a row may
// have any alignment, and its threads have the columns that they have of an aligned row.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    row_in_registers(const __grid_constant__ GridConstant<RowInRegisters> mechanism,
                     const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using Kernel = RegisterKernel<Terms, kRow>;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  using E = RowValue<T>;
  constexpr int kVectors = Kernel::vectors, width = Kernel::width;
  constexpr SoftmaxForm kForm = Kernel::form;
  constexpr SoftmaxMask kMask = Kernel::mask;
  constexpr bool has_bias = Kernel::has_bias, has_bias_alone = Kernel::has_bias_alone, has_dense = Kernel::has_dense,
                 has_x_scores = Kernel::has_x_scores, is_whole = Kernel::is_whole, is_unaligned = Kernel::is_unaligned,
                 has_row_numbers = Kernel::has_row_numbers, recomputes = Kernel::recomputes_exponentials;
  const RowOutput<T, Kernel::converts> output{params};
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, group);

  const auto [linear, lane] = row_position(params);
  SoftmaxRow row = locate_row<kMask, false, kForm>(params, linear);
  if constexpr (has_bias_alone) row.dense = nullptr;
  const RowVectors vectors = is_unaligned ? padded_row_vectors<T>(params, row) : row_vectors<T, kForm>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const bool is_first = group.rank == 0 && lane == 0 && row.columns > 0;
  unsigned char* const out_vectors = row.out + vectors.head * output.column_bytes();
  const OwnVectors own = own_vectors_of<Kernel>(params, mechanism, row.x + head_bytes, vectors, group.rank, lane);
  const RegisterRow<Kernel> thread{own, vectors};

  // All loads come before the first use. Unaligned rows go through shared memory.
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const unsigned char* first_x = row.x + first_bytes;
  const unsigned char* first_bias = address_past(row.bias_or_y, first_bytes);
  if constexpr (Kernel::holds_addresses) first_x = held(first_x);
  if constexpr (Kernel::holds_addresses && has_bias) first_bias = held(first_bias);
  // The thread's first vector of x, and of the bias.
  const auto input = [&](int k) { return k == 0 ? first_x : first_bias; };
  [[maybe_unused]] UnalignedRow<T> unaligned(params, mechanism, row, vectors, own, lane);
  const bool stages_bias = has_bias && params.bias_or_y != nullptr && !params.bias_is_float32;
  const int dense_operand = mechanism.stage_operands - 1;
  if constexpr (is_unaligned) {
    unaligned.copy(mechanism, 0, 0, row.x);
    if (stages_bias) unaligned.copy(mechanism, 1, 1, row.bias_or_y);
    if (has_dense && row.dense != nullptr) unaligned.copy(mechanism, 2, dense_operand, row.dense, 1);
  }
  uint4 x[kVectors];
  load_x(thread, input(0), x);
  const bool bias_is_aligned = is_whole || (!is_unaligned && params.bias_is_aligned);
  const bool loads_bias = bias_is_aligned && (!Kernel::has_score_terms || params.bias_or_y != nullptr);
  BiasVector<Kernel> bias_vectors[has_bias ? kVectors : 1];
  const unsigned before_bias = has_bias_alone ? UnalignedVector<T>::bytes_before(input(1)) : 0;
  if constexpr (has_bias_alone)
    load_bias_vectors(thread, input(1), before_bias, bias_is_aligned, bias_vectors);
  else if constexpr (has_bias && !is_unaligned)
    load_bias_vectors(thread, input(1), loads_bias, bias_vectors);
  DenseWords<width> dense[has_dense && !is_unaligned ? kVectors : 1];
  if constexpr (has_dense && !is_unaligned) load_dense_of(params, row, vectors, own, thread, dense);
  if (!is_whole && params.interval.exists) {
    if constexpr (is_unaligned)
      unaligned.fill(vectors, group, Terms::masked_result(params));
    else
      fill_unread(output, out_vectors, vectors, own, group.rank, lane, Terms::masked_result(params));
  }
  // What the row waits for is read before the first use of what its threads have loaded.
  using HeldNumbers =
      std::conditional_t<Kernel::holds_sink, RowNumbers<A, has_x_scores || Kernel::has_row_scale>, FetchedSink<A>>;
  using Numbers = std::conditional_t<has_row_numbers, HeldNumbers, NoRowScore>;
  [[maybe_unused]] const Numbers numbers(params, static_cast<uint32_t>(linear), row.columns > 0, is_first);
  const int outer_column = Kernel::has_outer ? outer_column_of<T>(params, row, vectors, group.rank, lane) : -1;
  A outer[1];
  [[maybe_unused]] const auto score = [&] {
    if constexpr (has_x_scores)
      return RowScore<T>(params, numbers.scale);
    else if constexpr (Kernel::has_score_terms)
      return RowScore<T>(params, static_cast<uint32_t>(linear), row.columns > 0);
    else
      return NoRowScore(params, 0, false, false);
  }();
  [[maybe_unused]] A outer_x = negative_infinity<A>();
  if constexpr (Kernel::has_score_terms) {
    outer[0] = negative_infinity<A>();
    if (outer_column >= 0 && is_unmasked<kMask>(row, outer_column)) {
      outer[0] = load_row_score(params, row, score, outer_column);
      if constexpr (has_x_scores) {
        outer_x = load_element<T>(row.x, outer_column);
        if (score.scale < A{0}) outer_x = -outer_x;
      }
    }
  } else {
    Terms::load_one(params, row, outer_column, outer);
    // The call's scale is positive unless there is one per row.
    if constexpr (Kernel::has_row_scale)
      if (numbers.scale * params.scale32 < A{0} && outer_column >= 0 && is_unmasked<kMask>(row, outer_column))
        outer[0] = -outer[0];
  }
  const auto dense_at = [&]([[maybe_unused]] int i) -> DenseWords<width> {
    if constexpr (!has_dense)
      return {};
    else if constexpr (is_unaligned)
      return unaligned.load_dense(dense_operand, own.at(i));
    else
      return dense[i];
  };
  if constexpr (is_unaligned) {
    async_copy_wait();
    unaligned.synchronize();
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      if (thread.is_read(i)) x[i] = unaligned.load(0, input(0), own.at(i));
  }

  // Is i past the vectors of all threads of the block? The lower half is not tested: kVectors is mostly the least that
  // holds a row, and vectors that do not exist add nothing.
  const auto is_past = [&](int i) {
    return (kForm == SoftmaxForm::unfilled || is_unaligned) && 2 * i >= kVectors &&
           i * params.lanes_per_row >= mechanism.block_vectors;
  };
  // Masks, and the largest score. Scores without a bias are x; the scale is applied in the exponent.
  A scores[has_bias ? kVectors * width : 1];
  VectorMax<T> largest_x;
  A largest = has_x_scores ? outer_x : outer[0];
  if constexpr (has_bias) {
    A scale = signed_scale<A>(params);
    if constexpr (Kernel::has_score_terms) scale = score.factor();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = thread.column_of(i);
      if (Kernel::has_masked_bias ? is_past(i) : !thread.is_read(i)) {
#pragma unroll
        for (int j = 0; j < width; ++j) scores[i * width + j] = negative_infinity<A>();
        continue;
      }
      A values[width], bias[width];
      widen_vector<T>(x[i], values);
      if constexpr (Kernel::has_score_terms) {
        if (score.has_softcap()) {
#pragma unroll
          for (int j = 0; j < width; ++j) values[j] = score.capped(values[j]);
        }
      }
      bias_values<Kernel>(params, row, unaligned, stages_bias, input(1), bias_is_aligned, own.at(i), column,
                          bias_vectors[i], before_bias, bias);
#pragma unroll
      for (int j = 0; j < width; ++j) scores[i * width + j] = scale * values[j] + bias[j];
      if (has_dense && row.dense != nullptr) mask_scores(dense_at(i), &scores[i * width]);
      if (!is_whole && !has_bias_alone) mask_scores_outside<width>(row, column, &scores[i * width]);
#pragma unroll
      for (int j = 0; j < width; ++j) largest = larger_of(largest, scores[i * width + j]);
    }
  } else {
    mask_x(params, is_past, row, thread, score, numbers, dense_at, dense, x, &largest_x);
    largest = larger_of(largest, largest_x.largest());
  }

  // Exponentials relative to the warp's largest score, and their sum. A warp without a column that is not masked has
  // the least score. Its sum is 0.
  largest = max_over_lanes(largest, group.lanes);
  [[maybe_unused]] A largest_of_x = largest;
  if constexpr (has_x_scores) {
    if (score.slope == A{0}) largest_of_x = 0;
    largest = score.capped(score.scale < A{0} ? -largest_of_x : largest_of_x);
  }
  const A reference = largest == negative_infinity<A>() ? A{0} : largest;
  const RowScale<Kernel, Numbers> scale(params, numbers);
  A values[recomputes ? 1 : kVectors * width];
  const ScoreScale<T, kMask> to_exponent(reference, scale.at(reference));
  const A outer_difference = to_exponent.difference(outer[0]);
  const A outer_value = exponential<T>(to_exponent.exponent(outer_difference));
  ThreadSum<T> sum;
  if constexpr (Kernel::has_outer) sum.take_one(outer_value);
  const A held_outer = params.log_softmax ? outer_difference : outer_value;
  const auto take_all = [&](bool keeps_differences) {
    take_exponentials(params, is_past, thread, to_exponent, x, scores, keeps_differences, values, &sum);
  };
  if constexpr (has_x_scores) {
    if (kForm != SoftmaxForm::whole && score.slope == A{0}) {
      // Vectors that are not read are -infinity: times a slope of 0 that would be NaN.
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (!thread.is_read(i)) x[i] = {0, 0, 0, 0};
    }
    const RowExponents<T> exponents(score, largest_of_x);
    const auto take_x = [&](auto kind) {
      take_capped_exponentials<Kernel, decltype(kind)::value>(params, row, thread, is_past, exponents, x, values, sum);
    };
    if (params.log_softmax)
      take_x(std::true_type{});
    else
      take_x(std::false_type{});
  } else if constexpr (Kernel::selects_logarithms) {
    take_all(params.log_softmax);
  } else if (!recomputes && params.log_softmax) {  // one code with a selection per column would be slower
    take_all(true);
  } else {
    take_all(false);
  }
  // The threads of whole rows are few: a sum of its own for whole warps would take more registers.
  const E thread_sum = sum.total();
  const RowPartial<T> part = {largest, kForm == SoftmaxForm::whole ? sum_over_lanes(thread_sum, group.lanes)
                                                                   : sum_over_lanes_of(group, thread_sum)};

  RowPartial<T> total = combine_row<T, kMask>(buffer, group, part, scale.scale);
  const auto leave = [&] {
    if constexpr (!has_row_numbers)
      return Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
    else if (params.lse == nullptr || !is_first)
      return;
    else if constexpr (Kernel::leaves_first)
      store_lse<T>(params, static_cast<uint32_t>(linear), scale.natural, numbers.sink, total);
    else
      called_store_lse<T>(params, static_cast<uint32_t>(linear), scale.natural, numbers.sink, total);
  };
  if constexpr (has_row_numbers) {
    if (params.has_row_values && row.columns > 0) {
      total = with_sink(params, numbers.sink, scale.natural, total);
      if constexpr (Kernel::leaves_first) leave();
    }
  }
  if (total.sum != total.sum) {
    store_nan_columns<T, kMask, Kernel::converts>(params, row, group.rank * params.lanes_per_row + lane, row.columns,
                                                  params.lanes_per_row * group.blocks);
    // The other rows of a warp are written with this one.
    if constexpr (is_unaligned) {
      unaligned.end = unaligned.begin;
    } else {
      if constexpr (!Kernel::leaves_first) leave();
      return;
    }
  }

  // The results: y = value * factor + term.
  const A row_reference = total.max == negative_infinity<A>() ? A{0} : total.max;
  const ScoreScale<T, kMask> to_row_exponent(row_reference, scale.at(row_reference));
  A factor, term;
  find_factors<Kernel>(params, scale, to_exponent, to_row_exponent, largest, total, &factor, &term);
  const auto logarithm = [&](A score_of_column) {
    const A difference =
        scale.is_limited ? score_of_column - row_reference : to_row_exponent.difference(score_of_column);
    return difference * factor + term;
  };
  const int out_bytes = output.vector_bytes_out();
  unsigned char* out = out_vectors + static_cast<int64_t>(own.first) * out_bytes;
  if constexpr (Kernel::holds_addresses) out = held(out);
  if (is_whole && row.columns == 0) return;
  if constexpr (is_unaligned) unaligned.begin_stores(group);
  const auto store = [&](auto kind) {
    [[maybe_unused]] constexpr bool stores_logarithms = decltype(kind)::value;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!thread.is_read(i)) continue;
      A y[width];
      if constexpr (recomputes) {
        forget_values(&x[i]);
        widen_vector<T>(x[i], y);
      }
#pragma unroll
      for (int j = 0; j < width; ++j) {
        if constexpr (recomputes) {
          y[j] = stores_logarithms ? logarithm(y[j]) : exponential<T>(to_row_exponent(y[j])) * factor;
        } else {
          y[j] = values[i * width + j] * factor + term;
        }
      }
      if constexpr (is_unaligned)
        unaligned.store(own.at(i), y);
      else
        output.store_vector(out + static_cast<uint32_t>(i * own.step * out_bytes), y);
    }
    if (outer_column >= 0) {
      if constexpr (recomputes)
        output.store_column(
            row.out, outer_column,
            params.log_softmax ? logarithm(outer[0]) : exponential<T>(to_row_exponent(outer[0])) * factor);
      else
        output.store_column(row.out, outer_column, held_outer * factor + term);
    }
  };
  if (recomputes && params.log_softmax)
    store(std::true_type{});
  else
    store(std::false_type{});
  if constexpr (is_unaligned) unaligned.write();
  if constexpr (!Kernel::leaves_first) leave();
}

}  // namespace flowk::softmax
