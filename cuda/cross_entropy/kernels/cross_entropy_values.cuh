// SPDX-License-Identifier: Apache-2.0
// Targets, logits as z, partial results and what follows from them: the rules for ignored rows, infinities and NaN are
// here.
#pragma once

#include <numbers>
#include <type_traits>

#include "core/element_vector.cuh"
#include "core/float_vector.cuh"
#include "core/index_split.h"
#include "core/warp_reduce.cuh"
#include "cross_entropy/cross_entropy_params.h"

namespace flowk::cross_entropy {

template <class A>
__device__ __forceinline__ A not_a_number() {
  return negative_infinity<A>() - negative_infinity<A>();
}

constexpr float log2_of_e = std::numbers::log2e_v<float>, ln_2 = std::numbers::ln2_v<float>;

// e^z, of z <= 0. In float32 by the special function unit, to 2 units in the last place and to the rounding of
// z * log2(e).
__device__ __forceinline__ float exponential(float z) { return exponential_of_base_2(z * log2_of_e); }
__device__ __forceinline__ double exponential(double z) { return called_exp(z); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

template <class A>
constexpr A exponent_per_natural = sizeof(A) == 8 ? A{1} : static_cast<A>(log2_of_e);

// exp(x * factor - of * of_factor) = power(exponent(x)) * correction. In float32 the exponents are of base 2 and one
// fma each. The correction takes back the rounding of of * of_factor, which is the same for all x.
template <class A>
struct Exponents {
  A factor, shift, correction = 1;
  __device__ __forceinline__ Exponents(A exponent_factor, A of, A of_factor) : factor(exponent_factor) {
    if constexpr (sizeof(A) == 8) {
      shift = of * of_factor;
    } else {
      shift = __fmul_rn(of, of_factor);
      correction = exponential_of_base_2(-fmaf(of, of_factor, -shift));
    }
  }
  __device__ __forceinline__ A exponent(A x) const { return fma(x, factor, -shift); }
  __device__ __forceinline__ A power(A exponent) const {
    if constexpr (sizeof(A) == 8)
      return exponential(exponent);
    else
      return exponential_of_base_2(exponent);
  }
  __device__ __forceinline__ A natural(A exponent) const { return sizeof(A) == 8 ? exponent : exponent * A{ln_2}; }
};

// What is subtracted in exponents for a maximum or a log-sum-exp: 0 for -infinity, so that the exponential of -infinity
// is 0 and not NaN.
template <class A>
__device__ __forceinline__ A reference_of(A value) {
  return value == negative_infinity<A>() ? A{0} : value;
}

__device__ __forceinline__ int64_t load_target(const Targets& targets, int64_t row) {
  return targets.is_wide ? static_cast<const int64_t*>(targets.targets)[row]
                         : static_cast<const int32_t*>(targets.targets)[row];
}

__device__ __forceinline__ bool is_valid(const Targets& targets, int64_t target) {
  return target >= 0 && target < targets.vocab_size;
}

// ---- logits ---------------------------------------------------------------------------------------------------------

template <class A>
__device__ __forceinline__ const LogitScale<A>& scale_of(const Logits& logits) {
  if constexpr (sizeof(A) == 8)
    return logits.scale64;
  else
    return logits.scale32;
}

// z of a logit, which is negated already if the scale is negative. -infinity stays -infinity.
template <class A>
__device__ __forceinline__ A capped_logit(const LogitScale<A>& scale, A x) {
  A z;
  if constexpr (sizeof(A) == 8)
    z = scale.softcap * called_tanh(scale.scale * x / scale.softcap);
  else  // tanh(u) = 1 - 2 / (exp(2 u) + 1)
    z = scale.softcap - 2 * scale.softcap * reciprocal_of(exponential_of_base_2(scale.capped_exponent * x) + 1.0f);
  return x == negative_infinity<A>() ? x : z;
}
template <class A>
__device__ __forceinline__ A scaled_logit(const LogitScale<A>& scale, A x) {
  if (scale.softcap == 0) [[likely]]
    return scale.scale * x;
  return capped_logit(scale, x);
}

// The logits of a vector; z of each if there is a softcap.
template <class T>
__device__ __forceinline__ void widen_logits(const LogitScale<ComputeType<T>>& scale, bool is_capped,
                                             const uint4& vector, ComputeType<T> (&x)[vector_width<T>]) {
  widen_vector<T>(vector, x);
  if (is_capped) {
#pragma unroll
    for (int j = 0; j < vector_width<T>; ++j) x[j] = capped_logit(scale, x[j]);
  }
}

// The first logit of a row.
__device__ __forceinline__ const unsigned char* row_of_logits(const Logits& logits, uint32_t row) {
  const unsigned char* address = logits.logits;
  split_index<1>(row, logits.rows.dims, logits.rows.rank,
                 [&](int d, uint32_t index) { address += index * logits.rows.dims[d].logits_stride; });
  return address;
}

// The elements that are in memory before a row's first one and behind its last one, or fewer of them.
struct ElementsAround {
  int before = 0, behind = 0;
  __device__ __forceinline__ ElementsAround(const Logits& logits, int64_t row, int64_t num_rows) {
    if (!logits.is_packed) return;
    constexpr int64_t enough = int64_t{1} << 20;
    before = static_cast<int>(min(row * logits.columns, enough));
    behind = static_cast<int>(min((num_rows - 1 - row) * logits.columns, enough));
  }
};

// Loads kBatch vectors, at columns first, first + step, ...; `first` may be negative. Columns past the row's ends are
// -infinity, or elements of the neighbouring rows. With kReadsOn the vectors past the row's last one are read too, if
// they are in memory: a test for each takes longer. All elements are negated if the scale is negative. Vectors of a row
// that is not aligned to 16 bytes are put together from two, so that a thread has the same columns of every row.
template <class T, int kBatch, bool kReadsOn>
__device__ __forceinline__ void load_batch(const Logits& logits, const unsigned char* row, const ElementsAround& around,
                                           int first, int step, uint4* loaded) {
  constexpr int W = vector_width<T>, size = static_cast<int>(sizeof(T));
  const unsigned char* const address = row + static_cast<int64_t>(first) * size;
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(address) % vector_bytes);
  const int last_of_batch = first + (kBatch - 1) * step;
  const int last = kReadsOn ? last_of_batch : min(last_of_batch, logits.columns - 1);
  const int num_read = shift == 0 ? W : 2 * W - shift / size;
  const auto exists = [&](int i) { return kReadsOn || first + i * step < logits.columns; };
  uint4 absent = negative_infinity_vector<T>();
  if (logits.negates) negate_vector<T>(&absent);
  if (first >= -around.before && last - logits.columns + num_read <= around.behind) {
    const auto* const vectors = reinterpret_cast<const uint4*>(address - shift);
    const int vector_step = step / W;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) loaded[i] = exists(i) ? vectors[i * vector_step] : absent;
    if (shift != 0) {
      constexpr int at_once = kBatch < 4 ? kBatch : 4;  // more take too many registers
#pragma unroll
      for (int first_of = 0; first_of < kBatch; first_of += at_once) {
        uint4 next[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          next[i] = exists(first_of + i) ? vectors[(first_of + i) * vector_step + 1] : absent;
#pragma unroll
        for (int i = 0; i < at_once; ++i) loaded[first_of + i] = shift_vectors(loaded[first_of + i], next[i], shift);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      loaded[i] = exists(i) ? load_elements<T, false>(row, first + i * step, logits.columns, shift, absent) : absent;
  }
  if (logits.negates) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) negate_vector<T>(&loaded[i]);
  }
}

// Calls use(std::true_type()) for the plain form, and use(std::false_type()) for the others, which share their code.
template <class Use>
__device__ __forceinline__ void with_plain(LossForm form, Use use) {
  if (form == LossForm::plain)
    use(std::true_type());
  else
    use(std::false_type());
}

// ---- partial results ------------------------------------------------------------------------------------------------

template <class A>
struct Partial {
  A max = negative_infinity<A>();
  A sum = 0;
  A weighted = 0;
  A total = 0;
  A target = 0;

  static __device__ __forceinline__ Partial load(const void* values, int64_t at) {
    const A* from = static_cast<const A*>(values) + at;
    Partial partial;
    partial.max = from[0];
    partial.sum = from[1];
    partial.weighted = from[2];
    partial.total = from[3];
    partial.target = from[4];
    return partial;
  }
  __device__ __forceinline__ void store(void* values, int64_t at) const {
    A* to = static_cast<A*>(values) + at;
    to[0] = max;
    to[1] = sum;
    to[2] = weighted;
    to[3] = total;
    to[4] = target;
  }
  // Makes exponents relative to another maximum. A sum of 0 has no weight.
  __device__ __forceinline__ void refer_to(A other_max) {
    const A difference = max - reference_of(other_max), factor = exponential(difference);
    weighted = factor == A{0} ? A{0} : factor * (weighted + difference * sum);
    sum *= factor;
    max = other_max;
  }
  // Adds the columns of `other`.
  __device__ __forceinline__ void take(Partial other) {
    const A largest = larger_of(max, other.max);
    refer_to(largest);
    other.refer_to(largest);
    sum += other.sum;
    weighted += other.weighted;
    total += other.total;
    target += other.target;
  }
};

// Gives each of `lanes` neighbouring lanes, a power of 2, their partial result; if `plain` only its max and sum.
template <class A>
__device__ __forceinline__ Partial<A> merge_over_lanes(Partial<A> partial, int lanes, bool plain = false) {
  partial.refer_to(max_over_lanes(partial.max, lanes));
  partial.sum = sum_over_lanes(partial.sum, lanes);
  if (plain) return partial;
  partial.weighted = sum_over_lanes(partial.weighted, lanes);
  partial.total = sum_over_lanes(partial.total, lanes);
  partial.target = sum_over_lanes(partial.target, lanes);
  return partial;
}

// ---- a row's results ------------------------------------------------------------------------------------------------

template <class A>
__device__ __forceinline__ void store_results(const RowResults& results, int64_t row, A loss, A lse, A entropy) {
  if (results.loss != nullptr) static_cast<A*>(results.loss)[row] = loss;
  if (results.lse != nullptr) static_cast<A*>(results.lse)[row] = lse;
  if (results.entropy != nullptr) static_cast<A*>(results.entropy)[row] = entropy;
}

// All results of an ignored row are 0.
template <class A>
__device__ __forceinline__ void store_ignored(const RowResults& results, int64_t row) {
  if (results.partials == nullptr) return store_results<A>(results, row, 0, 0, 0);
  Partial<A> none;
  none.max = 0;
  none.store(results.partials, row * partial_values);
}

template <class A>
__device__ __forceinline__ void store_row(const RowResults& results, const Targets& targets, int64_t target,
                                          int64_t row, const Partial<A>& partial) {
  if (results.partials != nullptr) return partial.store(results.partials, row * partial_values);
  const A reference = reference_of(partial.max), log_sum = logarithm(partial.sum), lse = reference + log_sum;
  // lse - z, without the rounding of lse; +infinity for z = -infinity, even if the whole row is -infinity.
  const auto distance_to = [&](A z) {
    return z == negative_infinity<A>() && lse == lse ? -z : reference - z + log_sum;
  };
  const A label_smoothing = static_cast<A>(results.label_smoothing), z_loss = static_cast<A>(results.z_loss);
  A loss = distance_to(partial.target);
  if (label_smoothing > 0)
    loss = (1 - label_smoothing) * loss +
           label_smoothing * distance_to(partial.total / static_cast<A>(targets.vocab_size));
  if (z_loss > 0) loss += z_loss * lse * lse;
  if (!is_valid(targets, target)) loss = not_a_number<A>();
  const bool has_entropy = results.entropy != nullptr && partial.sum != A{0};
  const A entropy = has_entropy ? log_sum - partial.weighted / partial.sum : A{0};
  store_results(results, row, loss, lse, entropy);
}

}  // namespace flowk::cross_entropy
