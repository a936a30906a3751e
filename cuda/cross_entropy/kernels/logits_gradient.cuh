// SPDX-License-Identifier: Apache-2.0
// The backward pass of cross-entropy: one read of the logits, one write of their gradient.
#pragma once

#include "cross_entropy/kernels/cross_entropy_values.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"

namespace flowk::cross_entropy {

// dz[j] = p[j] * (factor + slope * z[j]) - uniform - (j is the target ? of_target : 0), with p[j] = exp(z[j] - lse).
// All of them are multiplied by the scale.
template <class A>
struct RowGradient {
  A lse, factor, slope, uniform, of_target;
  int64_t target_column;

  __device__ __forceinline__ RowGradient(const LogitsGradientParams& params, int64_t row, int64_t target) {
    const auto load = [row](const void* values) {
      return values == nullptr ? A{0} : static_cast<const A*>(values)[row];
    };
    const A scale = static_cast<A>(params.scale), dloss = load(params.dloss), dentropy = load(params.dentropy);
    const A label_smoothing = static_cast<A>(params.label_smoothing);
    lse = reference_of(load(params.lse));
    factor = dloss * (1 + 2 * static_cast<A>(params.z_loss) * lse) + load(params.dlse) -
             (params.dentropy == nullptr ? A{0} : dentropy * (load(params.entropy) - lse));
    factor *= scale;
    slope = -dentropy * scale;
    uniform = dloss * label_smoothing / static_cast<A>(params.targets.vocab_size) * scale;
    of_target = dloss * (1 - label_smoothing) * scale;
    target_column = target - params.targets.vocab_start;
    if (!is_valid(params.targets, target)) uniform = not_a_number<A>();
  }

  // Of the vector at `column`.
  template <class T, bool kPlain>
  __device__ __forceinline__ uint4 of_vector(const Logits& logits, int column, const uint4& vector) const {
    constexpr int W = vector_width<T>;
    const LogitScale<A>& scale = scale_of<A>(logits);
    const bool is_capped = !kPlain && logits.form == LossForm::capped;
    const Exponents<A> exponents(is_capped ? exponent_per_natural<A> : scale.exponent, lse, exponent_per_natural<A>);
    const A corrected = factor * exponents.correction;
    const A corrected_slope = slope * exponents.correction * (is_capped ? A{1} : scale.scale);  // of x
    A x[W], dz[W];
    widen_logits<T>(scale, is_capped, vector, x);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const A p = exponents.power(exponents.exponent(x[j]));
      dz[j] = p * corrected - uniform;
      if constexpr (!kPlain) dz[j] += p == A{0} ? A{0} : p * corrected_slope * x[j];
    }
    if (target_column >= column && target_column < column + W) {
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (target_column == column + j) dz[j] -= of_target;
    }
    if (is_capped) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const A tanh_z = x[j] * scale.inverse_softcap;
        dz[j] *= x[j] == negative_infinity<A>() ? A{0} : 1 - tanh_z * tanh_z;
      }
    }
    return narrow_vector<T>(dz);
  }
};

// The gradient of a chunk of one row per block, in vectors of dlogits; short rows have a warp each, or a part of one.
// Chunks begin with a line of dlogits, because two blocks that write to one sector take longer if dlogits is logits.
//   dlogits[row, j] = dz[j] * the derivative of z[j]   as RowGradient says
// logits, dlogits (rows, columns), the last dimension contiguous; dlogits may be logits: elements of neighbouring rows,
// which other threads may be writing, are read with a row's first and last vector and not used. The others are (rows).
template <class T>
__global__ void __launch_bounds__(short_row_threads, fitting_blocks(short_row_threads, sizeof(T) == 2 ? 9 : 8))
    logits_gradient(const __grid_constant__ GridConstant<LogitsGradientParams> params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  launch_dependent_grids();
  wait_on_dependent_grids();
  uint32_t row = blockIdx.x;
  const int chunk = static_cast<int>(take_index(&row, params.chunks));
  int thread = static_cast<int>(threadIdx.x);
  const int num_threads = static_cast<int>(params.threads_per_row.divisor);
  if (params.rows_per_block > 1) {
    uint32_t row_in_block = threadIdx.x;
    thread = static_cast<int>(take_index(&row_in_block, params.threads_per_row));
    row = row * params.rows_per_block + row_in_block;
    if (row >= params.num_rows) return;
  }
  const Logits& logits = params.logits;
  const unsigned char* x = logits.logits;
  unsigned char* out = params.dlogits;
  split_index<1>(row, logits.rows.dims, logits.rows.rank, [&](int d, uint32_t index) {
    x += index * logits.rows.dims[d].logits_stride;
    out += index * logits.rows.dims[d].dlogits_stride;
  });
  const int first_bytes = num_threads < warp_lanes ? vector_bytes : line_bytes;
  const int head = static_cast<int>(reinterpret_cast<uintptr_t>(out) % first_bytes / sizeof(T));
  const int first = (chunk * gradient_batch * num_threads + thread) * W - head, step = num_threads * W;
  const auto store = [&](auto vector_at) {
#pragma unroll
    for (int i = 0; i < gradient_batch; ++i) {
      const int column = first + i * step;
      if (column < logits.columns) store_elements<T, false>(out, column, logits.columns, vector_at(i));
    }
  };
  const int64_t target = load_target(params.targets, row);
  // The first half is loaded while the target is.
  constexpr int half = gradient_batch / 2;
  const ElementsAround around(logits, row, params.num_rows);
  uint4 loaded[gradient_batch];
  load_batch<T, half, false>(logits, x, around, first, step, loaded);
  if (target == params.targets.ignore_index) return store([](int) { return uint4{0, 0, 0, 0}; });
  const RowGradient<A> gradient(params, row, target);
  load_batch<T, half, false>(logits, x, around, first + half * step, step, loaded + half);
  with_plain(logits.form, [&](auto plain) {
    store([&](int i) {
      return gradient.template of_vector<T, decltype(plain)::value>(logits, first + i * step, loaded[i]);
    });
  });
}

}  // namespace flowk::cross_entropy
