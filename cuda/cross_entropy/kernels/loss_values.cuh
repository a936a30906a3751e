// SPDX-License-Identifier: Apache-2.0
// The forward pass of cross-entropy: partial results from vectors of logits, and what is stored.
#pragma once

#include "cross_entropy/kernels/cross_entropy_values.cuh"

namespace flowk::cross_entropy {

// The partial result of a thread's vectors; without the target, and without the total of a vector that reaches past the
// row's last column. for_all(use) calls use(column, vectors) for some of them at a time, which begin at columns column,
// column + step, ...
template <class T, bool kPlain, class ForAll>
__device__ __forceinline__ Partial<ComputeType<T>> take_vectors(const Logits& logits, int step, ForAll for_all) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  const bool is_capped = !kPlain && logits.form == LossForm::capped;
  constexpr A min_exponent = -1100;  // finite; the power of each smaller exponent is 0
  const LogitScale<A>& scale = scale_of<A>(logits);
  const A linear_scale = is_capped ? A{1} : scale.scale;
  VectorMax<T> largest;
  for_all([&](int, const auto& vectors) {
#pragma unroll
    for (const uint4& vector : vectors) largest.take(vector);
  });
  // The exponents are of z if it is capped, otherwise of the logits.
  const A max_exponent = is_capped ? capped_logit(scale, largest.largest()) : largest.largest();
  const A factor = is_capped ? exponent_per_natural<A> : scale.exponent;
  const Exponents<A> exponents(factor, reference_of(max_exponent), factor);
  Partial<A> partial;
  partial.max = linear_scale * max_exponent;
  for_all([&](int column, const auto& vectors) {
#pragma unroll
    for (const uint4& vector : vectors) {
      A x[W], e[W];
      widen_logits<T>(scale, is_capped, vector, x);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        e[j] = exponents.power(exponents.exponent(x[j]));
        partial.sum += e[j];
      }
      if (!kPlain && logits.needs_weighted) {
#pragma unroll
        for (int j = 0; j < W; ++j) partial.weighted += e[j] * larger_of(exponents.exponent(x[j]), min_exponent);
      }
      if (!kPlain && logits.needs_total && column + W <= logits.columns) {
#pragma unroll
        for (int j = 0; j < W; ++j) partial.total += linear_scale * x[j];
      }
      column += step;
    }
  });
  // The correction makes the exponents exact at the largest z.
  if constexpr (!kPlain) partial.weighted = exponents.natural(partial.weighted) * exponents.correction;
  partial.sum *= exponents.correction;
  return partial;
}

// Adds z of the target's column, and the total of the row's last columns if they are no whole vector, where these
// columns are in [first, end). Stores the row's results, or the slice's partial result.
template <class T, class LogitAt>
__device__ __forceinline__ void store_partial(const LossParams& params, uint32_t row, int64_t target, int first,
                                              int end, LogitAt logit_at, Partial<ComputeType<T>> partial) {
  const Logits& logits = params.logits;
  const auto z_at = [&](int64_t column) {
    const ComputeType<T> logit = widen(logit_at(column));
    return scaled_logit(scale_of<ComputeType<T>>(logits), logits.negates ? -logit : logit);
  };
  const int64_t target_column = target - params.targets.vocab_start;
  if (is_valid(params.targets, target) && target_column >= first && target_column < end)
    partial.target = z_at(target_column);
  if (logits.needs_total) [[unlikely]] {
    const int whole_columns = logits.columns / vector_width<T> * vector_width<T>;
#pragma unroll 1
    for (int column = max(whole_columns, first); column < end; ++column) partial.total += z_at(column);
  }
  if (params.slices.divisor == 1)
    store_row(params.results, params.targets, target, row, partial);
  else
    partial.store(params.partials, static_cast<int64_t>(blockIdx.x) * partial_values);
}

}  // namespace flowk::cross_entropy
