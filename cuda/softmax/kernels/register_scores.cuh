// SPDX-License-Identifier: Apache-2.0
// Softmax of rows held in registers: the scores of a thread's vectors, their masks, and their exponentials.
#pragma once

#include "softmax/kernels/register_row.cuh"

namespace flowk::softmax {

// The bias of the vector at `column`: a loaded vector, one in shared memory, or single columns.
template <class Kernel>
__device__ __forceinline__ void bias_values(const SoftmaxParams& params, const SoftmaxRow& row,
                                            const UnalignedRow<typename Kernel::T>& unaligned, bool is_staged,
                                            const unsigned char* first, bool is_aligned, int vector, int column,
                                            const BiasVector<Kernel>& loaded, [[maybe_unused]] unsigned before,
                                            typename Kernel::A (&bias)[Kernel::width]) {
  using T = typename Kernel::T;
  if constexpr (Kernel::has_bias_alone) {
    widen_vector<T>(loaded.whole(before), bias);
  } else if (Kernel::is_unaligned && is_staged) {
    widen_vector<T>(unaligned.load(1, first, vector), bias);
  } else if (!Kernel::is_unaligned && is_aligned) {
    widen_vector<T>(loaded, bias);
  } else {
    const int columns = row.columns;
#pragma unroll
    for (int j = 0; j < Kernel::width; ++j) {
      bias[j] = 0;
      if (!Kernel::is_unaligned || (params.bias_or_y != nullptr && column + j < columns))
        bias[j] = load_bias<T>(params, row, column + j);
    }
  }
}

// Masks the scores of a vector's columns by the bytes of the dense mask, and outside the row's interval.
template <int kWidth, class A>
__device__ __forceinline__ void mask_scores(const DenseWords<kWidth>& masked, A* scores) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if ((masked.words[j / 4] >> (8 * (j % 4)) & 0xff) != 0) scores[j] = negative_infinity<A>();
}
template <int kWidth, class A>
__device__ __forceinline__ void mask_scores_outside(const SoftmaxRow& row, int column, A* scores) {
  if (column >= row.begin && column + kWidth <= row.end) return;
  const uint32_t kept = interval_bits(column, kWidth, row.begin, row.end);
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if ((kept >> j & 1) == 0) scores[j] = negative_infinity<A>();
}

// Negates x if the scale is negative, masks its columns, and takes them into `largest`. At most two vectors per row
// contain an end of the interval; with a dense mask the ends are added to the mask's bytes.
template <class Kernel, class Score, class Numbers, class DenseAt, class IsPast, int kDense>
__device__ __forceinline__ void mask_x(const SoftmaxParams& params, const IsPast& is_past, const SoftmaxRow& row,
                                       const RegisterRow<Kernel>& thread, [[maybe_unused]] const Score& score,
                                       [[maybe_unused]] const Numbers& numbers,
                                       [[maybe_unused]] const DenseAt& dense_at,
                                       [[maybe_unused]] DenseWords<Kernel::width> (&dense)[kDense],
                                       uint4 (&x)[Kernel::vectors], VectorMax<typename Kernel::T>* largest) {
  using T = typename Kernel::T;
  constexpr bool has_dense = Kernel::has_dense, is_unaligned = Kernel::is_unaligned;
  bool negates_x = params.negates_x;
  if constexpr (Kernel::has_x_scores) negates_x = score.scale < 0;
  if constexpr (Kernel::has_row_scale) negates_x |= numbers.scale * params.scale32 < typename Kernel::A{0};
  if (negates_x) {
#pragma unroll
    for (int i = 0; i < Kernel::vectors; ++i)
      if (thread.is_read(i)) negate_vector<T>(&x[i]);
  }
  if (!Kernel::is_whole && (is_unaligned || params.interval.exists)) {
#pragma unroll
    for (int i = 0; i < Kernel::vectors; ++i) {
      const int column = thread.column_of(i);
      if constexpr (has_dense && !is_unaligned)
        mask_outside(&dense[i], column, row.begin, row.end);
      else if (thread.is_read(i) && (column < row.begin || column + Kernel::width > row.end))
        select_interval<T>(&x[i], column, row.begin, row.end, negative_infinity_vector<T>());
    }
  }
#pragma unroll
  for (int i = 0; i < Kernel::vectors; ++i) {
    if (is_past(i)) continue;
    if constexpr (has_dense)
      if (!is_unaligned || (row.dense != nullptr && thread.is_read(i))) mask_vector<T>(&x[i], dense_at(i));
    largest->take(x[i]);
  }
}

// The factors of a row's scores: `scale` in the exponent; z of a score is score * natural.
template <class Kernel, class Numbers>
struct RowScale {
  using T = typename Kernel::T;
  using A = typename Kernel::A;
  // With x of float16, a scale of the row may be larger than ScoreScale takes. It is then limited, so that reference
  // * scale is 2^20. The exponent of any other x is below that of the reference by 2^9 or more, so its exponential is
  // 0, as it is without the limit.
  static constexpr bool is_limited = Kernel::has_row_scale && std::is_same_v<T, Float16>;
  A scale, natural;
  __device__ __forceinline__ RowScale(const SoftmaxParams& params, [[maybe_unused]] const Numbers& numbers)
      : scale(exponent_scale<T, Kernel::mask>(params)),
        natural(Kernel::has_x_scores ? A{1} : Kernel::Terms::natural_scale(params)) {
    if constexpr (Kernel::has_row_scale) {
      scale = at_least(fabsf(scale * numbers.scale), 0x1p-148f);  // for a scale of 0: -infinity stays what it is
      natural = at_least(fabsf(natural * numbers.scale), 0x1p-148f);
    }
    if constexpr (is_limited)
      if (scale > 0x1p100f) scale = 0x1p100f;
  }
  __device__ __forceinline__ A at([[maybe_unused]] A reference) const {
    if constexpr (is_limited)
      if (scale > 2 * static_cast<A>(max_float16_scale)) return fminf(scale, 0x1p20f * reciprocal_of(fabsf(reference)));
    return scale;
  }
};

// Adds the exponentials of a thread's scores to `sum`. `values` are what it holds of them: exponentials, or differences
// from the largest score. Kernels that compute exponentials again hold nothing.
template <class Kernel, class IsPast, int kScores, int kValues>
__device__ __forceinline__ void take_exponentials(
    [[maybe_unused]] const SoftmaxParams& params, const IsPast& is_past, const RegisterRow<Kernel>& thread,
    const ScoreScale<typename Kernel::T, Kernel::mask>& to_exponent, const uint4 (&x)[Kernel::vectors],
    [[maybe_unused]] const typename Kernel::A (&scores)[kScores], [[maybe_unused]] bool keeps_differences,
    [[maybe_unused]] typename Kernel::A (&values)[kValues], ThreadSum<typename Kernel::T>* sum) {
  using T = typename Kernel::T;
  using A = typename Kernel::A;
  constexpr int width = Kernel::width;
  constexpr bool recomputes = Kernel::recomputes_exponentials;
#pragma unroll
  for (int i = 0; i < Kernel::vectors; ++i) {
    A z[width], p[width];
    if (Kernel::is_whole || Kernel::has_bias_alone || Kernel::is_unaligned ? is_past(i) : !thread.is_read(i)) {
      if constexpr (!recomputes) {
#pragma unroll
        for (int j = 0; j < width; ++j) values[i * width + j] = keeps_differences ? negative_infinity<A>() : A{0};
      }
      continue;
    }
    if constexpr (Kernel::has_bias) {
#pragma unroll
      for (int j = 0; j < width; ++j) z[j] = scores[i * width + j];
    } else {
      widen_vector<T>(x[i], z);
    }
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const A difference = to_exponent.difference(z[j]);
      p[j] = exponential<T>(to_exponent.exponent(difference));
      if constexpr (!recomputes) values[i * width + j] = keeps_differences ? difference : p[j];
    }
    sum->take(p);
  }
}

// The exponentials outside the row's interval are 0; `values` are what the thread holds of them.
template <bool kLogarithms, int kWidth, class A>
__device__ __forceinline__ void clear_outside(const SoftmaxRow& row, int column, A (&exponentials)[kWidth], A* values) {
  if (column >= row.begin && column + kWidth <= row.end) return;
  const uint32_t kept = interval_bits(column, kWidth, row.begin, row.end);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if ((kept >> j & 1) != 0) continue;
    exponentials[j] = 0;
    values[j] = kLogarithms ? negative_infinity<A>() : A{0};
  }
}

// The same if exponents come from x. With kLogarithms the thread holds logarithms.
template <class Kernel, bool kLogarithms, class IsPast>
__device__ __forceinline__ void take_capped_exponentials(const SoftmaxParams& params, const SoftmaxRow& row,
                                                         const RegisterRow<Kernel>& thread, const IsPast& is_past,
                                                         const RowExponents<typename Kernel::T>& exponents,
                                                         const uint4 (&x)[Kernel::vectors],
                                                         typename Kernel::A (&values)[Kernel::vectors * Kernel::width],
                                                         ThreadSum<typename Kernel::T>& sum) {
  using A = typename Kernel::A;
  constexpr int width = Kernel::width;
#pragma unroll
  for (int i = 0; i < Kernel::vectors; ++i) {
    if (is_past(i)) continue;
    const A shift = thread.is_read(i) ? exponents.shift : negative_infinity<A>();
    A p[width];
    exponents.template take<kLogarithms>(x[i], shift, p, &values[i * width]);
    const int column = thread.column_of(i);
    if (!Kernel::is_whole && params.interval.exists) clear_outside<kLogarithms>(row, column, p, &values[i * width]);
    sum.take(p);
  }
}

// The factor and the term of a row's results, value * factor + term, from the row's largest score and its sum.
// `largest` is the score that the thread's values are relative to.
template <class Kernel, class Scale>
__device__ __forceinline__ void find_factors(const SoftmaxParams& params, [[maybe_unused]] const Scale& scale,
                                             const ScoreScale<typename Kernel::T, Kernel::mask>& to_exponent,
                                             const ScoreScale<typename Kernel::T, Kernel::mask>& to_row_exponent,
                                             typename Kernel::A largest, const RowPartial<typename Kernel::T>& total,
                                             typename Kernel::A* factor, typename Kernel::A* term) {
  using T = typename Kernel::T;
  using A = typename Kernel::A;
  using E = RowValue<T>;
  constexpr bool recomputes = Kernel::recomputes_exponentials;
  *factor = to_exponent.log_factor(), *term = 0;
  // A fully masked warp has values of 0 or -infinity, which no factor may turn into NaN.
  const A to_row = largest == negative_infinity<A>() ? A{0} : to_exponent.difference_to(total.max);
  if (params.log_softmax) {
    if (total.sum > E{0}) *term = (recomputes ? A{0} : to_row * *factor) - log_of<A>(total.sum);
  } else {
    *factor = total.sum > E{0}
                  ? quotient_of(recomputes ? A{1} : exponential<T>(to_exponent.exponent(to_row)), total.sum)
                  : A{0};
  }
  // Logarithms do not come from exponents of a limited scale.
  if constexpr (Scale::is_limited) {
    if (params.log_softmax) {
      *term += to_row_exponent.difference(to_row_exponent.reference) * *factor;
      *factor = scale.natural;
    }
  }
}

}  // namespace flowk::softmax
