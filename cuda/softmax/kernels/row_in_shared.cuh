// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of long rows held by a block or a cluster: a thread's first vectors in registers, the others
// in shared memory.
#pragma once

#include "softmax/kernels/softmax_normalize.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x; x and y are (rows,
// columns), a dense mask has one byte per column.
//
// A row has all threads of a block, or of the blocks of a cluster. A thread has kHeld vectors in registers and the
// others in shared memory; no other thread reads them, so that there is no barrier between the passes. x is loaded in
// three stages, and each stage adds to the running maximum and sum when it arrives. Results are computed from x again,
// for float32 from the exponentials.
template <class T, SoftmaxMask kMask, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    row_in_shared(const __grid_constant__ GridConstant<SoftmaxParams> params,
                  const __grid_constant__ GridConstant<RowInShared> mechanism) {
  launch_dependent_grids();
  constexpr int kHeld = softmax_kernels[kRow].max_vectors;
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  constexpr int num_stages = 3;  // vectors in registers, and two halves of those in shared memory
  constexpr bool has_dense = kMask == SoftmaxMask::dense;
  constexpr bool keeps_exponentials = !is_float16<T>;
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, group);
  const int threads = params.lanes_per_row, lane = static_cast<int>(threadIdx.x);
  const SoftmaxRow row = locate_row<kMask, false>(params, static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift);
  const RowVectors vectors = row_vectors<T>(params, row);
  const unsigned char* const x_vectors = row.x + vectors.head * static_cast<int>(sizeof(T));
  unsigned char* const out_vectors = row.out + vectors.head * static_cast<int>(sizeof(T));
  const OwnVectors own = own_vectors(params, x_vectors, vectors, group.rank, lane);
  const int num = own.count();
  const auto is_held = [&](int n) { return n < num && (n > 0 || own.first >= vectors.read_begin); };
  const int64_t first_bytes = static_cast<int64_t>(own.first) * vector_bytes;
  const int step_bytes = threads * vector_bytes;
  const unsigned char* const x = x_vectors + first_bytes;
  unsigned char* const out = out_vectors + first_bytes;
  // Slot n holds vector n, n >= kHeld.
  uint4* const slots =
      reinterpret_cast<uint4*>(buffer.memory + mechanism.vectors_offset_bytes) + lane - kHeld * threads;
  const int stage_end[num_stages] = {kHeld, kHeld + (num > kHeld ? (num - kHeld + 1) / 2 : 0), num};

  uint4 held[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    held[n] = is_held(n) ? load_vector(x + n * step_bytes) : negative_infinity_vector<T>();
  const unsigned char* const dense_vectors =
      row.dense == nullptr ? nullptr : row.dense + vectors.head + static_cast<int64_t>(own.first) * width;
  const bool dense_is_aligned = (reinterpret_cast<uintptr_t>(dense_vectors) & (width - 1)) == 0;
  [[maybe_unused]] DenseWords<width> held_dense[kHeld];
  if constexpr (has_dense)
    load_dense(params, row, dense_vectors, threads * width, dense_is_aligned, is_held, held_dense);
#pragma unroll
  for (int stage = 1; stage < num_stages; ++stage) {
    const unsigned char* source = x + stage_end[stage - 1] * step_bytes;
#pragma unroll 4
    for (int n = stage_end[stage - 1]; n < stage_end[stage]; ++n, source += step_bytes)
      async_copy_vector(slots + n * threads, source);
    async_copy_commit();
  }
  if (params.interval.exists)
    fill_unread(RowOutput<T>{params}, out_vectors, vectors, own, group.rank, lane,
                params.log_softmax ? negative_infinity<A>() : A{0});
  A outer = negative_infinity<A>();
  const int outer_column = outer_column_of<T>(params, row, vectors, group.rank, lane);
  if (outer_column >= 0 && is_unmasked<kMask>(row, outer_column))
    outer = load_score<T, kMask>(params, row, outer_column);

  // Only a thread's first and last vector can contain an end of the interval; with a dense mask the ends are added to
  // the mask's bytes.
  const bool changes_x = has_dense || params.negates_x;
  const auto column_of = [&](int n) { return vectors.head + own.at(n) * width; };
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
  const auto take = [&](uint4* vector, const ScoreScale<T, kMask>& to_exponent, ThreadSum<T>* sum) {
    A p[width];
    widen_vector<T>(*vector, p);
#pragma unroll
    for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
    if constexpr (keeps_exponentials)
      if (stores_exponentials) *vector = narrow_vector<T>(p);
    sum->take(p);
  };
  RunningSum<T, kMask> running{exponent_scale<T, kMask>(params)};
  running.raise(outer);
  running.sum = exponential<T>(running.to_exponent()(outer));
  A maxima[num_stages];  // the running maximum of each stage
  {
    if constexpr (has_dense) cut_dense(held_dense, 0);
    VectorMax<T> largest;
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
      if ((changes_x || (params.interval.exists && (n == 0 || n == num - 1))) && is_held(n))
        mask(&held[n], n, held_dense[n]);
      largest.take(held[n]);
    }
    running.raise(largest.largest());
    const ScoreScale<T, kMask> to_exponent = running.to_exponent();
    maxima[0] = running.max;
    ThreadSum<T> sum;
#pragma unroll
    for (int n = 0; n < kHeld; ++n) take(&held[n], to_exponent, &sum);
    running.sum += sum.total();
  }
#pragma unroll
  for (int stage = 1; stage < num_stages; ++stage) {
    const int begin = stage_end[stage - 1], end = stage_end[stage];
    VectorMax<T> largest;
    if constexpr (!has_dense) {
      if (stage == 1)
        async_copy_wait_groups<1>();
      else
        async_copy_wait();
    }
    if (changes_x) {
      constexpr int batch = 4;  // vectors whose masks are loaded together
      bool has_waited = !has_dense;
#pragma unroll 1
      for (int n = begin; n < end; n += batch) {
        [[maybe_unused]] DenseWords<width> dense[batch];
        if constexpr (has_dense)
          load_dense(
              params, row, dense_vectors + static_cast<int64_t>(n) * threads * width, threads * width, dense_is_aligned,
              [&](int i) { return n + i < end; }, dense);
        if (!has_waited) {
          if (stage == 1)
            async_copy_wait_groups<1>();
          else
            async_copy_wait();
          has_waited = true;
        }
        if constexpr (has_dense) cut_dense(dense, n);
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          if (n + i >= end) continue;
          uint4 vector = slots[(n + i) * threads];
          mask(&vector, n + i, dense[i]);
          slots[(n + i) * threads] = vector;
          largest.take(vector);
        }
      }
    } else {
      if (params.interval.exists && begin < end && end == num) {
        uint4 vector = slots[(num - 1) * threads];
        mask(&vector, num - 1, {});
        slots[(num - 1) * threads] = vector;
      }
#pragma unroll 4
      for (int n = begin; n < end; ++n) largest.take(slots[n * threads]);
    }
    running.raise(largest.largest());
    const ScoreScale<T, kMask> to_exponent = running.to_exponent();
    maxima[stage] = running.max;
    ThreadSum<T> sum;
#pragma unroll 2
    for (int n = begin; n < end; ++n) {
      uint4 vector = slots[n * threads];
      take(&vector, to_exponent, &sum);
      if (stores_exponentials) slots[n * threads] = vector;
    }
    running.sum += sum.total();
  }

  running.raise(max_over_lanes(running.max, 32));
  const RowPartial<T> part = {running.max, sum_over_lanes(running.sum, 32)};
  const RowPartial<T> total = combine_row<T, kMask>(buffer, group, part, running.scale);
  if (total.sum != total.sum)
    return store_nan_columns<T, kMask>(params, row, group.rank * threads + lane, row.columns, threads * group.blocks);
  running.max = total.max;
  const ScoreScale<T, kMask> to_row_exponent = running.to_exponent();
  const ResultFactors<T> result(params.log_softmax, total.sum, to_row_exponent.log_factor());
  enum class Held { exponentials, scores, logarithms };
  const auto store = [&](auto kind) {
    constexpr Held held_as = decltype(kind)::value;
    const auto store_vector = [&](unsigned char* address, const uint4& vector, A stage_factor) {
      A y[width];
      widen_vector<T>(vector, y);
#pragma unroll
      for (int j = 0; j < width; ++j)
        y[j] = held_as == Held::exponentials ? y[j] * stage_factor
               : held_as == Held::scores     ? exponential<T>(to_row_exponent(y[j])) * result.factor
                                             : to_row_exponent.difference(y[j]) * result.factor + result.term;
      store_values<T>(address, y);
    };
#pragma unroll
    for (int stage = 0; stage < num_stages; ++stage) {
      const A stage_factor = held_as == Held::exponentials
                                 ? factor_of_exponentials<T, kMask>(maxima[stage], to_row_exponent, total.sum)
                                 : A{0};
      if (stage == 0) {
#pragma unroll
        for (int n = 0; n < kHeld; ++n)
          if (is_held(n)) store_vector(out + n * step_bytes, held[n], stage_factor);
        continue;
      }
      const int begin = stage_end[stage - 1], end = stage_end[stage];
      unsigned char* address = out + static_cast<int64_t>(begin) * step_bytes;
#pragma unroll 2
      for (int n = begin; n < end; ++n, address += step_bytes) store_vector(address, slots[n * threads], stage_factor);
    }
    if (outer_column >= 0) {
      const A difference = to_row_exponent.difference(outer);
      store_element<T>(row.out, outer_column,
                       held_as == Held::logarithms
                           ? difference * result.factor + result.term
                           : exponential<T>(to_row_exponent.exponent(difference)) * result.factor);
    }
  };
  if (params.log_softmax)
    store(std::integral_constant<Held, Held::logarithms>());
  else
    store(std::integral_constant<Held, keeps_exponentials ? Held::exponentials : Held::scores>());
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); dy, y and dx are (rows,
// columns). log_softmax: see flowk.h.
//
// Threads and vectors as in row_in_shared; both inputs are read once.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    row_in_shared_backward(const __grid_constant__ GridConstant<SoftmaxParams> params,
                           const __grid_constant__ GridConstant<RowInShared> mechanism) {
  launch_dependent_grids();
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>, kHeld = softmax_kernels[kRow].max_vectors;
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, group);
  const int threads = params.lanes_per_row, lane = static_cast<int>(threadIdx.x);
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift;
  const SoftmaxRow row = locate_row<SoftmaxMask::none, true>(params, linear);
  const RowVectors vectors = row_vectors<T>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, group.rank, lane);
  const int num = own.count();
  const auto is_held = [&](int n) { return n < num && (n > 0 || own.first >= vectors.read_begin); };
  const int64_t first_bytes = head_bytes + static_cast<int64_t>(own.first) * vector_bytes;
  const int step_bytes = threads * vector_bytes;
  const unsigned char* const dy_vectors = row.x + first_bytes;
  const unsigned char* const y_vectors = row.side + first_bytes;
  unsigned char* const out = row.out + first_bytes;
  // Slots 2 * n and 2 * n + 1 hold vector n of dy and of y, n >= kHeld.
  uint4* const slots =
      reinterpret_cast<uint4*>(buffer.memory + mechanism.vectors_offset_bytes) + lane - 2 * kHeld * threads;
  const int stage_end[3] = {kHeld, kHeld + (num > kHeld ? (num - kHeld + 1) / 2 : 0), num};
  const bool log_softmax = params.log_softmax;
  // The y of a masked column: it adds nothing, and its gradient is 0 while the sum is finite.
  const uint4 masked_y = log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};

  uint4 held_dy[kHeld], held_y[kHeld];
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    held_dy[n] = {0, 0, 0, 0};
    held_y[n] = masked_y;
    if (!is_held(n)) continue;
    held_dy[n] = load_vector(dy_vectors + n * step_bytes);
    held_y[n] = load_vector(y_vectors + n * step_bytes);
  }
#pragma unroll
  for (int stage = 1; stage < 3; ++stage) {
    int64_t offset = static_cast<int64_t>(stage_end[stage - 1]) * step_bytes;
#pragma unroll 2
    for (int n = stage_end[stage - 1]; n < stage_end[stage]; ++n, offset += step_bytes) {
      async_copy_vector(slots + 2 * n * threads, dy_vectors + offset);
      async_copy_vector(slots + (2 * n + 1) * threads, y_vectors + offset);
    }
    async_copy_commit();
  }
  if (params.interval.exists)
    fill_unread(RowOutput<T>{params}, row.out + head_bytes, vectors, own, group.rank, lane, A{0});
  A outer_dy = 0, outer_y = log_softmax ? negative_infinity<A>() : A{0};
  const int outer_column = outer_column_of<T>(params, row, vectors, group.rank, lane);
  if (outer_column >= 0 && is_unmasked<SoftmaxMask::none>(row, outer_column)) {
    outer_dy = load_element<T>(row.x, outer_column);
    outer_y = load_element<T>(row.side, outer_column);
  }

  // Only a thread's first and last vector can contain an end of the interval.
  const auto cut = [&](int n, uint4* dy, uint4* y) {
    const int column = vectors.head + own.at(n) * width;
    if (column >= row.begin && column + width <= row.end) return;
    select_interval<T>(dy, column, row.begin, row.end, uint4{0, 0, 0, 0});
    select_interval<T>(y, column, row.begin, row.end, masked_y);
  };
  A sum = backward_term(log_softmax, outer_dy, outer_y);
#pragma unroll
  for (int n = 0; n < kHeld; ++n) {
    if (params.interval.exists && (n == 0 || n == num - 1) && is_held(n)) cut(n, &held_dy[n], &held_y[n]);
    sum += backward_vector_sum<T>(log_softmax, held_dy[n], held_y[n]);
  }
#pragma unroll
  for (int stage = 1; stage < 3; ++stage) {
    const int begin = stage_end[stage - 1], end = stage_end[stage];
    if (stage == 1)
      async_copy_wait_groups<1>();
    else
      async_copy_wait();
    if (params.interval.exists && begin < end && end == num)
      cut(num - 1, slots + 2 * (num - 1) * threads, slots + (2 * num - 1) * threads);
#pragma unroll 2
    for (int n = begin; n < end; ++n)
      sum += backward_vector_sum<T>(log_softmax, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  }
  sum = sum_row(buffer, group, sum_over_lanes(sum, 32));

  const A scale = signed_scale<A>(params);
  const bool is_finite = sum - sum == A{0};
  const auto store_vector = [&](int n, const uint4& dy_vector, const uint4& y_vector) {
    A dx[width], y[width];
    widen_vector<T>(dy_vector, dx);
    widen_vector<T>(y_vector, y);
#pragma unroll
    for (int j = 0; j < width; ++j) dx[j] = backward_gradient(log_softmax, dx[j], y[j], sum, scale);
    if (!is_finite) clear_masked(row, vectors.head + own.at(n) * width, dx);
    store_values<T>(out + static_cast<int64_t>(n) * step_bytes, dx);
  };
#pragma unroll
  for (int n = 0; n < kHeld; ++n)
    if (is_held(n)) store_vector(n, held_dy[n], held_y[n]);
#pragma unroll 2
  for (int n = kHeld; n < num; ++n) store_vector(n, slots[2 * n * threads], slots[(2 * n + 1) * threads]);
  if (outer_column >= 0)
    store_element<T>(row.out, outer_column,
                     is_unmasked<SoftmaxMask::none>(row, outer_column)
                         ? backward_gradient(log_softmax, outer_dy, outer_y, sum, scale)
                         : A{0});
}

}  // namespace flowk::softmax
