// SPDX-License-Identifier: Apache-2.0
// Softmax of rows held in registers, by lanes of a warp, a warp, a block or a cluster.
#pragma once

#include "softmax/kernels/register_row.cuh"

namespace flowk::softmax {

// 16-bit scores stay in registers unconverted and their exponentials are computed twice. That halves the registers, so
// more loads are in flight, which is worth more than the instructions. Short rows with a dense mask have enough
// instructions for the mask, and scores with a bias are float32: they keep their exponentials.
template <class T, SoftmaxMask kMask, SoftmaxForm kForm, int kVectors>
constexpr bool recomputes_exponentials =
    is_float16<T> &&
    (kMask == SoftmaxMask::none || (kMask == SoftmaxMask::dense && (kForm == SoftmaxForm::whole || kVectors >= 8)));

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
  constexpr int kVectors = Kernel::vectors;
  constexpr SoftmaxForm kForm = Kernel::form;
  constexpr bool kConverts = Kernel::converts;
  constexpr SoftmaxMask kMask = Terms::mask;
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  constexpr bool has_bias = Kernel::has_bias, is_scaled = Kernel::is_scaled, is_whole = Kernel::is_whole,
                 has_x_scores = Kernel::has_x_scores, holds_scores = Kernel::holds_scores,
                 is_unaligned = Kernel::is_unaligned, has_outer = Kernel::has_outer,
                 has_score_terms = Kernel::has_score_terms, has_bias_alone = Kernel::has_bias_alone,
                 has_dense = Kernel::has_dense, has_masked_bias = Kernel::has_masked_bias,
                 has_row_numbers = Kernel::has_row_numbers, has_row_scale = Kernel::has_row_scale,
                 holds_addresses = Kernel::holds_addresses;
  const RowOutput<T, kConverts> output{params};
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
  OwnVectors own;
  if constexpr (is_whole) {
    const int part = group.rank * mechanism.block_vectors, part_end = part + mechanism.block_vectors;
    own = {part + lane, params.lanes_per_row, part_end < mechanism.row_vectors ? part_end : mechanism.row_vectors, 0};
  } else {
    own = own_vectors(params, row.x + head_bytes, vectors, group.rank, lane);
  }
  const RegisterRow<Kernel> thread{own, vectors};

  // All loads come before the first use; offsets from the thread's first vector have 32 bits.
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const unsigned char* first_x = row.x + first_bytes;
  const unsigned char* first_bias = address_past(row.bias_or_y, first_bytes);
  if constexpr (holds_addresses) first_x = held(first_x);
  if constexpr (holds_addresses && has_bias) first_bias = held(first_bias);
  const auto input = [&](int k) { return k == 0 ? first_x : first_bias; };
  uint4 raw[kVectors];
  // Unaligned rows go through shared memory.
  [[maybe_unused]] UnalignedRow<T> unaligned(params, mechanism, row, vectors, own, lane);
  const bool stages_bias = has_bias && params.bias_or_y != nullptr && !params.bias_is_float32;
  const int last_operand = mechanism.stage_operands - 1;  // the dense mask
  if constexpr (is_unaligned) {
    unaligned.copy(mechanism, 0, 0, row.x);
    if (stages_bias) unaligned.copy(mechanism, 1, 1, row.bias_or_y);
    if (has_dense && row.dense != nullptr) unaligned.copy(mechanism, 2, last_operand, row.dense, 1);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    // With a dense mask these elements become -infinity anyway.
    if constexpr (has_masked_bias)
      raw[i] = {0, 0, 0, 0};
    else if constexpr (kMask != SoftmaxMask::dense || is_unaligned)
      raw[i] = negative_infinity_vector<T>();
    if (!is_unaligned && thread.is_read(i)) raw[i] = load_vector(input(0) + thread.offset_of(i));
  }
  const bool bias_is_aligned = is_whole || (!is_unaligned && params.bias_is_aligned);
  const bool loads_bias = bias_is_aligned && (!has_score_terms || params.bias_or_y != nullptr);
  uint4 raw_bias[has_bias && !has_bias_alone ? kVectors : 1];
  if constexpr (has_bias && !has_bias_alone && !is_unaligned) {
    const unsigned char* const bias = has_score_terms && !loads_bias ? nullptr : input(1);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      raw_bias[i] = has_masked_bias ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};
      if (loads_bias && thread.is_read(i)) raw_bias[i] = load_vector(bias + thread.offset_of(i));
    }
  }
  // A bias alone starts anywhere: its vectors are put together when they are used.
  UnalignedVector<T> loose_bias[has_bias_alone ? kVectors : 1];
  const unsigned before_bias = has_bias_alone ? UnalignedVector<T>::bytes_before(input(1)) : 0;
  if constexpr (has_bias_alone) {
    const auto load_all = [&](auto load) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        loose_bias[i] = thread.is_read(i) ? load(input(1) + thread.offset_of(i)) : UnalignedVector<T>::masked();
    };
    if (bias_is_aligned)
      load_all([](const unsigned char* address) { return UnalignedVector<T>::load_aligned(address); });
    else
      load_all([=](const unsigned char* address) { return UnalignedVector<T>::load(address, before_bias); });
  }
  DenseWords<width> dense[has_dense && !is_unaligned ? kVectors : 1];
  if constexpr (has_dense && !is_unaligned) {
    if (kMask == SoftmaxMask::bias && row.dense == nullptr) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) dense[i] = {};
    } else {
      const unsigned char* const first = row.dense + vectors.head + own.first * width;
      const bool is_aligned = is_whole || (reinterpret_cast<uintptr_t>(row.dense + vectors.head) & (width - 1)) == 0;
      load_dense(
          params, row, first, own.step * width, is_aligned, [thread](int i) { return thread.is_read(i); }, dense);
    }
  }
  if (!is_whole && params.interval.exists) {
    if constexpr (is_unaligned)
      unaligned.fill(vectors, group, Terms::masked_result(params));
    else
      fill_unread(output, out_vectors, vectors, own, group.rank, lane, Terms::masked_result(params));
  }
  // What the row waits for is read before the first use of what its threads have loaded.
  constexpr bool holds_sink = is_float16<T> || is_whole || kVectors <= 4 || has_x_scores || has_row_scale;
  using SoftmaxNumbers = std::conditional_t<holds_sink, RowNumbers<A, has_x_scores || has_row_scale>, FetchedSink<A>>;
  using Numbers = std::conditional_t<has_row_numbers, SoftmaxNumbers, NoRowScore>;
  [[maybe_unused]] const Numbers numbers(params, static_cast<uint32_t>(linear), row.columns > 0, is_first);
  const int outer_column = has_outer ? outer_column_of<T>(params, row, vectors, group.rank, lane) : -1;
  A outer[1];
  [[maybe_unused]] const auto score = [&] {
    if constexpr (has_x_scores)
      return RowScore<T>(params, numbers.scale);
    else if constexpr (has_score_terms)
      return RowScore<T>(params, static_cast<uint32_t>(linear), row.columns > 0);
    else
      return NoRowScore(params, 0, false, false);
  }();
  [[maybe_unused]] A outer_x = negative_infinity<A>();
  if constexpr (has_score_terms && is_scaled) {
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
    if constexpr (has_row_scale)
      if (numbers.scale * params.scale32 < A{0} && outer_column >= 0 && is_unmasked<kMask>(row, outer_column))
        outer[0] = -outer[0];
  }

  const auto dense_at = [&]([[maybe_unused]] int i) -> DenseWords<width> {
    if constexpr (!has_dense)
      return {};
    else if constexpr (is_unaligned)
      return unaligned.load_dense(last_operand, own.at(i));
    else
      return dense[i];
  };
  if constexpr (is_unaligned) {
    async_copy_wait();
    unaligned.synchronize();
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      if (thread.is_read(i)) raw[i] = unaligned.load(0, input(0), own.at(i));
  }

  using E = RowValue<T>;
  constexpr bool recomputes = recomputes_exponentials<T, kMask, kForm, kVectors>;
  // Is i past the vectors of all threads of the block? The lower half is not tested: kVectors is mostly the least
  // that holds a row, and vectors that do not exist add nothing.
  const auto is_past = [&](int i) {
    return (kForm == SoftmaxForm::unfilled || is_unaligned) && 2 * i >= kVectors &&
           i * params.lanes_per_row >= mechanism.block_vectors;
  };
  // Masks, and the largest score. Scores that are not held are x; the scale is applied in the exponent.
  A scores[holds_scores ? kVectors * width : 1];
  VectorMax<T> largest_x;
  A largest = has_x_scores ? outer_x : outer[0];
  if constexpr (holds_scores) {
    A scale = signed_scale<A>(params);
    if constexpr (has_score_terms) scale = score.factor();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = thread.column_of(i);
      if (has_masked_bias ? is_past(i) : !thread.is_read(i)) {
#pragma unroll
        for (int j = 0; j < width; ++j) scores[i * width + j] = negative_infinity<A>();
        continue;
      }
      A values[width];
      [[maybe_unused]] A bias[width];
      widen_vector<T>(raw[i], values);
      if constexpr (has_score_terms) {
        if (score.has_softcap()) {
#pragma unroll
          for (int j = 0; j < width; ++j) values[j] = score.capped(values[j]);
        }
      }
      if constexpr (has_bias) {
        if constexpr (has_bias_alone) {
          widen_vector<T>(loose_bias[i].whole(before_bias), bias);
        } else if (is_unaligned && stages_bias) {
          widen_vector<T>(unaligned.load(1, input(1), own.at(i)), bias);
        } else if (bias_is_aligned) {
          widen_vector<T>(raw_bias[i], bias);
        } else {
#pragma unroll
          for (int j = 0; j < width; ++j) {
            bias[j] = 0;
            if (!is_unaligned || (params.bias_or_y != nullptr && column + j < row.columns))
              bias[j] = load_bias<T>(params, row, column + j);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < width; ++j)
        scores[i * width + j] = has_bias ? scale * values[j] + bias[j] : scale * values[j];
      if (has_bias && has_dense && row.dense != nullptr) {
        const DenseWords<width> masked = dense_at(i);
#pragma unroll
        for (int j = 0; j < width; ++j)
          if ((masked.words[j / 4] >> (8 * (j % 4)) & 0xff) != 0) scores[i * width + j] = negative_infinity<A>();
      }
      if (!is_whole && !has_bias_alone && (column < row.begin || column + width > row.end)) {
        const uint32_t kept = interval_bits(column, width, row.begin, row.end);
#pragma unroll
        for (int j = 0; j < width; ++j)
          if ((kept >> j & 1) == 0) scores[i * width + j] = negative_infinity<A>();
      }
#pragma unroll
      for (int j = 0; j < width; ++j) largest = larger_of(largest, scores[i * width + j]);
    }
  } else {
    bool negates_x = params.negates_x;
    if constexpr (has_x_scores) negates_x = score.scale < 0;
    if constexpr (has_row_scale) negates_x |= numbers.scale * params.scale32 < A{0};
    if (negates_x) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (thread.is_read(i)) negate_vector<T>(&raw[i]);
    }
    // At most two vectors per row contain an end of the interval; with a dense mask the ends are added to the mask's
    // bytes.
    if (!is_whole && (is_unaligned || params.interval.exists)) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int column = thread.column_of(i);
        if constexpr (kMask == SoftmaxMask::dense && !is_unaligned)
          mask_outside(&dense[i], column, row.begin, row.end);
        else if (thread.is_read(i) && (column < row.begin || column + width > row.end))
          select_interval<T>(&raw[i], column, row.begin, row.end, negative_infinity_vector<T>());
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (is_past(i)) continue;
      if constexpr (kMask == SoftmaxMask::dense)
        if (!is_unaligned || (row.dense != nullptr && thread.is_read(i))) mask_vector<T>(&raw[i], dense_at(i));
      largest_x.take(raw[i]);
    }
    largest = larger_of(largest, largest_x.largest());
  }

  // Exponentials relative to the warp's largest score, and their sum.
  largest = max_over_lanes(largest, group.lanes);
  // Of a warp without a column that is not masked, the least score. Its sum is 0.
  [[maybe_unused]] A largest_of_x = largest;
  if constexpr (has_x_scores) {
    if (score.slope == A{0}) largest_of_x = 0;
    largest = score.capped(score.scale < A{0} ? -largest_of_x : largest_of_x);
  }
  const A reference = largest == negative_infinity<A>() ? A{0} : largest;
  A scale = exponent_scale<T, kMask>(params), natural = has_x_scores ? A{1} : Terms::natural_scale(params);
  if constexpr (has_row_scale) {
    scale = at_least(fabsf(scale * numbers.scale), 0x1p-148f);  // for a scale of 0: -infinity stays what it is
    natural = at_least(fabsf(natural * numbers.scale), 0x1p-148f);
  }
  // With x of float16, a scale of the row may be larger than ScoreScale takes. It is then limited, so that reference
  // * scale is 2^20. The exponent of any other x is below that of the reference by 2^9 or more, so its exponential is
  // 0, as it is without the limit.
  constexpr bool limits_scale = has_row_scale && std::is_same_v<T, Float16>;
  if constexpr (limits_scale)
    if (scale > 0x1p100f) scale = 0x1p100f;
  const auto scale_at = [&]([[maybe_unused]] A of) {
    if constexpr (limits_scale)
      if (scale > 2 * static_cast<A>(max_float16_scale)) return fminf(scale, 0x1p20f * reciprocal_of(fabsf(of)));
    return scale;
  };
  // float32: a loop for logarithms and one for results, or one that selects, which takes fewer registers.
  constexpr bool has_two_loops = !kConverts && (kVectors >= 16 || (kVectors >= 8 && kMask == SoftmaxMask::dense));
  A values[recomputes ? 1 : kVectors * width];
  const ScoreScale<T, kMask> to_exponent(reference, scale_at(reference));
  const A outer_difference = to_exponent.difference(outer[0]);
  const A outer_value = exponential<T>(to_exponent.exponent(outer_difference));
  ThreadSum<T> sum;
  if constexpr (has_outer) sum.take_one(outer_value);
  const A held_outer = params.log_softmax ? outer_difference : outer_value;
  const auto take_exponentials = [&]([[maybe_unused]] bool keeps_differences) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      A z[width], p[width];
      if (is_whole || has_bias_alone || is_unaligned ? is_past(i) : !thread.is_read(i)) {
        if constexpr (!recomputes) {
#pragma unroll
          for (int j = 0; j < width; ++j) values[i * width + j] = keeps_differences ? negative_infinity<A>() : A{0};
        }
        continue;
      }
      if constexpr (holds_scores) {
#pragma unroll
        for (int j = 0; j < width; ++j) z[j] = scores[i * width + j];
      } else {
        widen_vector<T>(raw[i], z);
      }
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const A difference = to_exponent.difference(z[j]);
        p[j] = exponential<T>(to_exponent.exponent(difference));
        if constexpr (!recomputes) values[i * width + j] = keeps_differences ? difference : p[j];
      }
      sum.take(p);
    }
  };
  if constexpr (has_x_scores) {
    if (kForm != SoftmaxForm::whole && score.slope == A{0}) {
      // Vectors that are not read are -infinity: times a slope of 0 that would be NaN.
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (!thread.is_read(i)) raw[i] = {0, 0, 0, 0};
    }
    const RowExponents<T> exponents(score, largest_of_x);
    const auto take_x = [&](auto kind) {
      constexpr bool keeps_differences = decltype(kind)::value;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (is_past(i)) continue;
        const A shift = thread.is_read(i) ? exponents.shift : negative_infinity<A>();
        A p[width];
        exponents.template take<keeps_differences>(raw[i], shift, p, &values[i * width]);
        const int column = thread.column_of(i);
        if (!is_whole && params.interval.exists && (column < row.begin || column + width > row.end)) {
          const uint32_t kept = interval_bits(column, width, row.begin, row.end);
#pragma unroll
          for (int j = 0; j < width; ++j) {
            if ((kept >> j & 1) != 0) continue;
            p[j] = 0;
            values[i * width + j] = keeps_differences ? negative_infinity<A>() : A{0};
          }
        }
        sum.take(p);
      }
    };
    if (params.log_softmax)
      take_x(std::true_type{});
    else
      take_x(std::false_type{});
  } else if constexpr (is_unaligned || (!is_float16<T> && kForm != SoftmaxForm::whole && !has_two_loops)) {
    take_exponentials(params.log_softmax);
  } else if (!recomputes && params.log_softmax) {  // one code with a selection per column would be slower
    take_exponentials(true);
  } else {
    take_exponentials(false);
  }
  // The threads of whole rows are few: a sum of its own for whole warps would take more registers.
  const E thread_sum = sum.total();
  const RowPartial<T> part = {largest, kForm == SoftmaxForm::whole ? sum_over_lanes(thread_sum, group.lanes)
                                                                   : sum_over_lanes_of(group, thread_sum)};

  RowPartial<T> total = combine_row<T, kMask>(buffer, group, part, scale);
  // The log-sum-exp is stored before the results if that takes few instructions, else when few registers are in use.
  constexpr bool leaves_first = has_row_numbers && is_float16<T> && !holds_scores;
  const auto leave = [&] {
    if constexpr (!has_row_numbers)
      return Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
    else if (params.lse == nullptr || !is_first)
      return;
    else if constexpr (leaves_first)
      store_lse<T>(params, static_cast<uint32_t>(linear), natural, numbers.sink, total);
    else
      called_store_lse<T>(params, static_cast<uint32_t>(linear), natural, numbers.sink, total);
  };
  if constexpr (has_row_numbers) {
    if (params.has_row_values && row.columns > 0) {
      total = with_sink(params, numbers.sink, natural, total);
      if constexpr (leaves_first) leave();
    }
  }
  if (total.sum != total.sum) {
    store_nan_columns<T, kMask, kConverts>(params, row, group.rank * params.lanes_per_row + lane, row.columns,
                                           params.lanes_per_row * group.blocks);
    // The other rows of a warp are written with this one.
    if constexpr (is_unaligned) {
      unaligned.end = unaligned.begin;
    } else {
      if constexpr (!leaves_first) leave();
      return;
    }
  }
  // y = value * factor + term
  A factor = to_exponent.log_factor(), term = 0;
  // A fully masked warp has values of 0 or -infinity, which no factor may turn into NaN.
  const A to_row = largest == negative_infinity<A>() ? A{0} : to_exponent.difference_to(total.max);
  const A row_reference = total.max == negative_infinity<A>() ? A{0} : total.max;
  const ScoreScale<T, kMask> to_row_exponent(row_reference, scale_at(row_reference));
  if (params.log_softmax) {
    if (total.sum > E{0}) term = (recomputes ? A{0} : to_row * factor) - log_of<A>(total.sum);
  } else {
    factor = total.sum > E{0} ? quotient_of(recomputes ? A{1} : exponential<T>(to_exponent.exponent(to_row)), total.sum)
                              : A{0};
  }
  // Their logarithms do not come from these exponents.
  if constexpr (limits_scale) {
    if (params.log_softmax) {
      term += to_row_exponent.difference(row_reference) * factor;
      factor = natural;
    }
  }
  const auto logarithm = [&](A x) {
    const A difference = limits_scale ? x - row_reference : to_row_exponent.difference(x);
    return difference * factor + term;
  };
  const int out_bytes = output.vector_bytes_out();
  unsigned char* out = out_vectors + static_cast<int64_t>(own.first) * out_bytes;
  if constexpr (holds_addresses) out = held(out);
  if (is_whole && row.columns == 0) return;
  if constexpr (is_unaligned) unaligned.begin_stores(group);
  const auto store = [&](auto kind) {
    [[maybe_unused]] constexpr bool stores_logarithms = decltype(kind)::value;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!thread.is_read(i)) continue;
      A y[width];
      if constexpr (recomputes) {
        forget_values(&raw[i]);
        widen_vector<T>(raw[i], y);
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
  if constexpr (!leaves_first) leave();
}

}  // namespace flowk::softmax
