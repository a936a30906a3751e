// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of long rows that are held by a block or a cluster: a thread's first vectors in registers,
// the others in shared memory.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// Softmax: y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x; a dense mask
// has one byte per column. Gradients: dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row,
// i)); log_softmax: see flowk.h. All operands are (rows, columns).
//
// A row has all threads of a block, or of the blocks of a cluster. A thread has kHeld vectors in registers and the
// others in shared memory; no other thread reads them, so that there is no barrier between the passes. The inputs are
// loaded in three stages, and each stage adds to the running maximum and sum when it arrives. Results are computed from
// the inputs again, of float32 softmax from the exponentials.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    row_in_shared(const __grid_constant__ GridConstant<RowInShared> mechanism,
                  const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>, kHeld = shared_row_register_vectors, num_inputs = Terms::num_inputs;
  constexpr int num_stages = 3;  // the vectors in registers, then two halves of the vectors in shared memory
  constexpr bool has_dense = Terms::mask == SoftmaxMask::dense;
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, group);
  const int threads = params.lanes_per_row, lane = static_cast<int>(threadIdx.x);
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift;
  const SoftmaxRow row = locate_row<Terms::mask, Terms::is_backward>(params, linear);
  const RowVectors vectors = row_vectors<T>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, group.rank, lane);
  const int num = own.count();
  const auto is_held = [&](int n) { return n < num && (n > 0 || own.first >= vectors.read_begin); };
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const int step_bytes = threads * vector_bytes;
  const auto input = [&](int k) { return (k == 0 ? row.x : row.bias_or_y) + first_bytes; };
  unsigned char* const out = row.out + first_bytes;
  uint4* const slots =
      reinterpret_cast<uint4*>(buffer.memory + mechanism.vectors_offset_bytes) + lane - num_inputs * kHeld * threads;
  const auto slot = [&](int n, int k = 0) { return slots + (num_inputs * n + k) * threads; };  // of vector n >= kHeld
  const int middle = kHeld + (num > kHeld ? (num - kHeld + 1) / 2 : 0);
  const auto stage_begin = [&](int stage) { return stage == 1 ? kHeld : middle; };  // of stages 1 and 2
  const auto stage_end = [&](int stage) { return stage == 1 ? middle : num; };
  const auto wait_for_stage = [](int stage) {
    if (stage == 1)
      async_copy_wait_groups<1>();
    else
      async_copy_wait();
  };

  uint4 held[kHeld][num_inputs];
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
#pragma unroll
    for (int k = 0; k < num_inputs; ++k)
      held[n][k] = is_held(n) ? load_vector(input(k) + n * step_bytes) : Terms::masked_vector(params, k);
  const unsigned char* const dense_vectors =
      row.dense == nullptr ? nullptr : row.dense + vectors.head + static_cast<int64_t>(own.first) * width;
  const bool dense_is_aligned = (reinterpret_cast<uintptr_t>(dense_vectors) & (width - 1)) == 0;
  [[maybe_unused]] DenseWords<width> held_dense[kHeld];
  if constexpr (has_dense)
    load_dense(params, row, dense_vectors, threads * width, dense_is_aligned, is_held, held_dense);
#pragma unroll 1
  for (int stage = 1; stage < num_stages; ++stage) {
    int64_t offset = static_cast<int64_t>(stage_begin(stage)) * step_bytes;
#pragma unroll(4 / num_inputs)
    for (int n = stage_begin(stage); n < stage_end(stage); ++n, offset += step_bytes)
#pragma unroll
      for (int k = 0; k < num_inputs; ++k) async_copy_vector(slot(n, k), input(k) + offset);
    async_copy_commit();
  }
  if constexpr (!Terms::is_backward) fetch_sink<A>(params, static_cast<uint32_t>(linear), row.columns > 0);
  if (params.interval.exists)
    fill_unread(RowOutput<T>{params}, row.out + head_bytes, vectors, own, group.rank, lane,
                Terms::masked_result(params));
  const int outer_column = outer_column_of<T>(params, row, vectors, group.rank, lane);
  A outer[num_inputs];
  Terms::load_one(params, row, outer_column, outer);
  const auto column_of = [&](int n) { return vectors.head + own.at(n) * width; };

  const Terms terms(params);
  const bool is_first = group.rank == 0 && lane == 0 && row.columns > 0;
  typename Terms::Partial partial = Terms::begin(params, linear, is_first);
  terms.take(outer, &partial);
  [[maybe_unused]] A maxima[num_stages];  // the running maximum of each stage
  constexpr bool keeps_exponentials = !Terms::is_backward && !is_float16<T>;
  // Only a thread's first and last vector can contain an end of the interval.
  if constexpr (Terms::is_backward) {
#pragma unroll
    for (int n = 0; n < kHeld; ++n)
      if (params.interval.exists && (n == 0 || n == num - 1) && is_held(n))
        Terms::cut(params, row, column_of(n), &held[n][0], &held[n][1]);
    terms.take(held, &partial);
#pragma unroll 1
    for (int stage = 1; stage < num_stages; ++stage) {
      const int begin = stage_begin(stage), end = stage_end(stage);
      wait_for_stage(stage);
      if (params.interval.exists && begin < end && end == num)
        Terms::cut(params, row, column_of(num - 1), slot(num - 1, 0), slot(num - 1, 1));
#pragma unroll 2
      for (int n = begin; n < end; ++n) partial.sum += terms.vector_term(*slot(n, 0), *slot(n, 1));
    }
  } else {
    // With a dense mask the ends of the interval are added to the mask's bytes.
    const bool changes_x = has_dense || params.negates_x;
    [[maybe_unused]] const auto cut_dense = [&](auto& dense, int n) {
      if (!params.interval.exists) return;
#pragma unroll
      for (auto& vector : dense) mask_outside(&vector, column_of(n++), row.begin, row.end);
    };
    const auto mask = [&](uint4* vector, int n, [[maybe_unused]] const DenseWords<width>& dense) {
      if (params.negates_x) negate_vector<T>(vector);
      if constexpr (has_dense) {
        mask_vector<T>(vector, dense);
      } else {
        const int column = column_of(n);
        if (params.interval.exists && (column < row.begin || column + width > row.end))
          select_interval<T>(vector, column, row.begin, row.end, negative_infinity_vector<T>());
      }
    };
    // Adds a vector's exponentials to a sum. They overwrite the scores if those are not needed again.
    const bool stores_exponentials = keeps_exponentials && !params.log_softmax;
    const auto take = [&](uint4* vector, const ScoreScale<T, Terms::mask>& to_exponent, ThreadSum<T>* sum) {
      A p[width];
      widen_vector<T>(*vector, p);
#pragma unroll
      for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
      if constexpr (keeps_exponentials)
        if (stores_exponentials) *vector = narrow_vector<T>(p);
      sum->take(p);
    };
    {
      if constexpr (has_dense) cut_dense(held_dense, 0);
      VectorMax<T> largest;
#pragma unroll
      for (int n = 0; n < kHeld; ++n) {
        if ((changes_x || (params.interval.exists && (n == 0 || n == num - 1))) && is_held(n))
          mask(&held[n][0], n, held_dense[n]);
        largest.take(held[n][0]);
      }
      partial.raise(largest.largest());
      const ScoreScale<T, Terms::mask> to_exponent = partial.to_exponent();
      maxima[0] = partial.max;
      ThreadSum<T> sum;
#pragma unroll
      for (int n = 0; n < kHeld; ++n) take(&held[n][0], to_exponent, &sum);
      partial.sum += sum.total();
    }
#pragma unroll 1
    for (int stage = 1; stage < num_stages; ++stage) {
      const int begin = stage_begin(stage), end = stage_end(stage);
      VectorMax<T> largest;
      if constexpr (!has_dense) wait_for_stage(stage);
      if (changes_x) {
        constexpr int batch = 4;  // vectors whose masks are loaded together
        bool has_waited = !has_dense;
#pragma unroll 1
        for (int n = begin; n < end; n += batch) {
          [[maybe_unused]] DenseWords<width> dense[batch];
          if constexpr (has_dense)
            load_dense(
                params, row, dense_vectors + static_cast<int64_t>(n) * threads * width, threads * width,
                dense_is_aligned, [&](int i) { return n + i < end; }, dense);
          if (!has_waited) {
            wait_for_stage(stage);
            has_waited = true;
          }
          if constexpr (has_dense) cut_dense(dense, n);
#pragma unroll
          for (int i = 0; i < batch; ++i) {
            if (n + i >= end) continue;
            uint4 vector = *slot(n + i);
            mask(&vector, n + i, dense[i]);
            *slot(n + i) = vector;
            largest.take(vector);
          }
        }
      } else {
        if (params.interval.exists && begin < end && end == num) {
          uint4 vector = *slot(num - 1);
          mask(&vector, num - 1, {});
          *slot(num - 1) = vector;
        }
#pragma unroll 4
        for (int n = begin; n < end; ++n) largest.take(*slot(n));
      }
      partial.raise(largest.largest());
      const ScoreScale<T, Terms::mask> to_exponent = partial.to_exponent();
      if (stage == 1) maxima[1] = partial.max;
      maxima[2] = partial.max;
      ThreadSum<T> sum;
#pragma unroll 2
      for (int n = begin; n < end; ++n) {
        uint4 vector = *slot(n);
        take(&vector, to_exponent, &sum);
        if (stores_exponentials) *slot(n) = vector;
      }
      partial.sum += sum.total();
    }
  }

  RowPartial<T> total = terms.merge(buffer, group, partial);
  if (row.columns > 0) total = terms.with_sinks(params, linear, total);
  if (terms.has_nan(total)) {
    store_nan_columns<T, Terms::mask>(params, row, group.rank * threads + lane, row.columns, threads * group.blocks);
    return terms.leave(params, linear, is_first, total);
  }
  const auto results = terms.finish(params, total);
  const auto store = [&](auto kind) {
    constexpr HeldAs held_as = decltype(kind)::value;
    [[maybe_unused]] ResultFactors<T> factors;
    if constexpr (!Terms::is_backward) factors = results.factors;
    const auto store_vector = [&](unsigned char* address, int n, const uint4(&inputs)[num_inputs]) {
      A values[width];
      if constexpr (Terms::is_backward)
        results.of_vector(row, column_of(n), inputs, values);
      else
        vector_results<held_as>(inputs[0], results.to_exponent, factors, values);
      store_values<T>(address, values);
    };
    // Exponentials of one stage have one factor.
    const auto find_factor = [&]([[maybe_unused]] A maximum) {
      if constexpr (keeps_exponentials)
        if constexpr (held_as == HeldAs::exponentials)
          factors.factor = factor_of_exponentials<T, Terms::mask>(maximum, results.to_exponent, total.sum);
    };
    find_factor(maxima[0]);
#pragma unroll
    for (int n = 0; n < kHeld; ++n)
      if (is_held(n)) store_vector(out + n * step_bytes, n, held[n]);
    unsigned char* address = out + kHeld * step_bytes;
#pragma unroll 1
    for (int stage = 1; stage < num_stages; ++stage) {
      find_factor(stage == 1 ? maxima[1] : maxima[2]);
#pragma unroll 2
      for (int n = stage_begin(stage); n < stage_end(stage); ++n, address += step_bytes) {
        uint4 inputs[num_inputs];
#pragma unroll
        for (int k = 0; k < num_inputs; ++k) inputs[k] = *slot(n, k);
        store_vector(address, n, inputs);
      }
    }
  };
  if (!Terms::is_backward && params.log_softmax)
    store(std::integral_constant<HeldAs, HeldAs::scores_for_logarithms>());
  else
    store(std::integral_constant<HeldAs, keeps_exponentials ? HeldAs::exponentials : HeldAs::scores>());
  if (outer_column >= 0) store_element<T>(row.out, outer_column, results.of_column(row, outer_column, outer));
  terms.leave(params, linear, is_first, total);
}

}  // namespace flowk::softmax
