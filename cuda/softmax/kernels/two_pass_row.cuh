// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient with each row read twice: for rows too long to hold, and for operands of different types or
// alignments.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// Calls vector(first column) and column(column) for the columns of one thread: whole vectors, then an outer column;
// without reads_vectors single columns only.
template <class T, class Vector, class Column>
__device__ __forceinline__ void for_own_columns(const SoftmaxParams& params, const TwoPassRow& mechanism,
                                                const SoftmaxRow& row, const RowVectors& vectors,
                                                const RowThreads& group, int lane, bool all, Vector vector,
                                                Column column) {
  const int first = group.rank * params.lanes_per_row + lane, step = params.lanes_per_row * group.blocks;
  if (!mechanism.reads_vectors) {
#pragma unroll 4
    for (int i = (all ? 0 : row.begin) + first; i < (all ? row.columns : row.end); i += step) column(i);
    return;
  }
#pragma unroll 2
  for (int i = (all ? 0 : vectors.read_begin) + first; i < (all ? vectors.count : vectors.read_end); i += step)
    vector(vectors.head + i * vector_width<T>);
  const int outer_column = outer_column_of<T>(params, row, vectors, group.rank, lane);
  if (outer_column >= 0) column(outer_column);
}

// Has the call a softcap or a scale per row?
template <class Score>
__device__ __forceinline__ bool uses_score(const SoftmaxParams& params, const Score& score) {
  if constexpr (std::is_same_v<Score, NoRowScore>)
    return false;
  else
    return score.has_softcap() || params.extras.numbers[row_scale] != nullptr;
}

// The score of one column.
template <class T, class Score>
__device__ __forceinline__ ComputeType<T> load_any_score(const SoftmaxParams& params, const SoftmaxRow& row,
                                                         const ScoreSteps<ComputeType<T>>& steps, const Score& score,
                                                         int column) {
  if constexpr (!std::is_same_v<Score, NoRowScore>)
    if (uses_score(params, score)) return load_row_score(params, row, score, column);
  return params.bias_or_y != nullptr ? load_score<T, SoftmaxMask::bias>(params, row, column)
                                     : load_element<T>(row.x, column) * steps.step;
}

// The scores of a vector's columns, -infinity in masked ones.
template <class T, class Score>
__device__ __forceinline__ void load_scores(const SoftmaxParams& params, const SoftmaxRow& row,
                                            const ScoreSteps<ComputeType<T>>& steps, const Score& score, int column,
                                            ComputeType<T> (&scores)[vector_width<T>]) {
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  const bool has_bias = params.bias_or_y != nullptr;
  const uint4 vector = load_vector(row.x + static_cast<int64_t>(column) * static_cast<int>(sizeof(T)));
  uint32_t kept = params.interval.exists ? interval_bits(column, width, row.begin, row.end) : (1u << width) - 1;
  widen_vector<T>(vector, scores);
  A scale = signed_scale<A>(params);
  if constexpr (!std::is_same_v<Score, NoRowScore>) {
    scale = score.factor();
    if (score.has_softcap()) {
#pragma unroll
      for (int j = 0; j < width; ++j) scores[j] = score.capped(scores[j]);
    }
  }
  if (has_bias) {
#pragma unroll
    for (int j = 0; j < width; ++j)
      if ((kept >> j & 1) != 0) scores[j] = scale * scores[j] + load_bias<T>(params, row, column + j);
  } else {
    const A step = uses_score(params, score) ? scale : steps.step;
#pragma unroll
    for (int j = 0; j < width; ++j) scores[j] *= step;
  }
  if (row.dense != nullptr) {
#pragma unroll
    for (int j = 0; j < width; ++j)
      if ((kept >> j & 1) != 0 && row.dense[column + j] != 0) kept &= ~(1u << j);
  }
#pragma unroll
  for (int j = 0; j < width; ++j)
    if ((kept >> j & 1) == 0) scores[j] = negative_infinity<A>();
}

// Softmax: y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), as in row_in_registers; each
// thread has a running maximum and a sum of exponentials relative to it. Gradients: dx(row, j) = scale * y(row, j) *
// (dy(row, j) - sum over i of y(row, i) * dy(row, i)).
//
// A row has lanes_per_row threads of a block, or of each block of a cluster.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads)
    two_pass_row(const __grid_constant__ GridConstant<TwoPassRow> mechanism,
                 const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  constexpr bool converts = sizeof(T) < 8;
  const RowThreads group = row_threads(params);
  const ExchangeBuffer<A> buffer = exchange_buffer<A>();
  begin_exchange(buffer, group);
  const auto [linear, lane] = row_position(params);
  const SoftmaxRow row = locate_row<Terms::mask, Terms::is_backward>(params, linear);
  const RowVectors vectors = row_vectors<T>(params, row);
  const auto is_read = [&](int column) { return column + width > row.begin && column < row.end; };
  const RowOutput<T, converts> output{params};
  const auto store_vector = [&](int column, const A(&results)[width]) {
    output.store_vector(row.out + static_cast<int64_t>(column) * output.column_bytes(), results);
  };
  const bool is_first = group.rank == 0 && lane == 0 && row.columns > 0;
  constexpr bool has_score_terms = softmax_kernels[kRow].score_terms;
  const std::conditional_t<has_score_terms, RowScore<T>, NoRowScore> row_score(params, static_cast<uint32_t>(linear),
                                                                               row.columns > 0);
  if constexpr (Terms::is_backward) {
    Terms terms(params);
    [[maybe_unused]] const unsigned char* scores = nullptr;
    if constexpr (has_score_terms) {
      terms.scale = row_score.factor();
      if (row_score.has_softcap() && row.columns > 0) scores = row_of_scores(params, static_cast<uint32_t>(linear));
    }
    // dx of a column from the gradient of its z.
    const auto of_x = [&](A dz, int column) {
      if constexpr (has_score_terms)
        if (scores != nullptr) return row_score.gradient(dz, load_element<T>(scores, column));
      return dz;
    };
    const auto is_inside = [&](int column) { return column >= row.begin && column < row.end; };
    const auto load_both = [&](int column, A(&dy)[width], A(&y)[width]) {
      const int64_t offset = static_cast<int64_t>(column) * static_cast<int>(sizeof(T));
      widen_vector<T>(load_vector(row.x + offset), dy);
      widen_vector<T>(load_vector(row.bias_or_y + offset), y);
    };

    A sum = Terms::begin(params, linear, is_first).sum;
    for_own_columns<T>(
        params, mechanism, row, vectors, group, lane, false,
        [&](int column) {
          A dy[width], y[width];
          load_both(column, dy, y);
#pragma unroll
          for (int j = 0; j < width; ++j)
            if (is_inside(column + j)) sum += terms.term(dy[j], y[j]);
        },
        [&](int column) {
          if (is_inside(column))
            sum += terms.term(load_element<T>(row.x, column), load_element<T>(row.bias_or_y, column));
        });
    sum = sum_row(buffer, group, sum_over_lanes_of(group, sum));

    for_own_columns<T>(
        params, mechanism, row, vectors, group, lane, true,
        [&](int column) {
          A dx[width], y[width];
          if (is_read(column)) load_both(column, dx, y);
#pragma unroll
          for (int j = 0; j < width; ++j)
            dx[j] = is_read(column) && is_inside(column + j) ? of_x(terms.result(dx[j], y[j], sum), column + j) : A{0};
          store_vector(column, dx);
        },
        [&](int column) {
          A dx = 0;
          if (is_inside(column))
            dx =
                of_x(terms.result(load_element<T>(row.x, column), load_element<T>(row.bias_or_y, column), sum), column);
          output.store_column(row.out, column, dx);
        });
    terms.leave(params, static_cast<uint32_t>(linear), is_first, {A{0}, static_cast<RowValue<T>>(sum)});
  } else {
    using E = RowValue<A>;  // as a float32 row: the output may be float32
    // With a bias, a softcap or a scale per row, scores are z.
    const bool are_scaled = params.bias_or_y != nullptr || uses_score(params, row_score);
    const ScoreSteps<A> steps = are_scaled ? ScoreSteps<A>() : score_steps<A>(params.scale, params.negates_x);
    const A scale = steps.factor;
    const A infinity = -negative_infinity<A>();

    A largest = -infinity;
    E sum = 0;
    const auto take = [&](const A* scores, int count) {
      A most = largest;
      for (int j = 0; j < count; ++j) most = larger_of(most, scores[j]);
      if (most > largest) {
        sum *= exponential<A>((largest - most) * scale);
        largest = most;
      }
      for (int j = 0; j < count; ++j)
        if (scores[j] != -infinity) sum += exponential<A>((scores[j] - largest) * scale);
    };
    for_own_columns<T>(
        params, mechanism, row, vectors, group, lane, false,
        [&](int column) {
          A scores[width];
          load_scores<T>(params, row, steps, row_score, column, scores);
          take(scores, width);
        },
        [&](int column) {
          if (!is_unmasked<SoftmaxMask::bias>(row, column)) return;
          const A score = load_any_score<T>(params, row, steps, row_score, column);
          take(&score, 1);
        });
    // Combines the lanes' sums.
    const A largest_of_warp = max_over_lanes(largest, group.lanes);
    if (sum != E{0}) sum *= exponential<A>((largest - largest_of_warp) * scale);
    const RowPartial<A> part = {largest_of_warp, sum_over_lanes_of(group, sum)};
    RowPartial<A> total = combine_row<A, SoftmaxMask::bias>(buffer, group, part, scale);
    if constexpr (softmax_kernels[kRow].row_values)
      if (row.columns > 0) total = with_sink(params, SinkOfRow{static_cast<uint32_t>(linear)}, scale, total);

    const A reference = static_cast<A>(total.max) == -infinity ? A{0} : static_cast<A>(total.max);
    const bool log_softmax = params.log_softmax;
    ResultFactors<A> result(log_softmax, total.sum, A{1});
    if constexpr (softmax_kernels[kRow].row_values) {
      if (log_softmax && params.extras.numbers[row_sink] != nullptr && total.sum > E{0}) {
        const SinkOfRow sink = {static_cast<uint32_t>(linear)};
        const A distance = sink_distance(params, sink, scale, static_cast<A>(total.max));
        if (distance > max_sink_distance<A>) result.term = -distance;
      }
    }
    if constexpr (softmax_kernels[kRow].row_values)
      if (params.lse != nullptr && is_first)
        called_store_lse<A>(params, linear, scale, SinkOfRow{static_cast<uint32_t>(linear)}, total);
    if (total.sum != total.sum)
      return store_nan_columns<T, SoftmaxMask::bias, converts>(params, row, group.rank * params.lanes_per_row + lane,
                                                               row.columns, params.lanes_per_row * group.blocks);
    const auto probability = [&](A score) {
      const A z = (score - reference) * scale;
      return log_softmax ? z * result.factor + result.term : exponential<A>(z) * result.factor;
    };
    for_own_columns<T>(
        params, mechanism, row, vectors, group, lane, true,
        [&](int column) {
          A y[width];
          if (is_read(column)) load_scores<T>(params, row, steps, row_score, column, y);
#pragma unroll
          for (int j = 0; j < width; ++j) y[j] = probability(is_read(column) ? y[j] : -infinity);
          store_vector(column, y);
        },
        [&](int column) {
          const bool is_own_unmasked = is_unmasked<SoftmaxMask::bias>(row, column);
          output.store_column(
              row.out, column,
              probability(is_own_unmasked ? load_any_score<T>(params, row, steps, row_score, column) : -infinity));
        });
  }
}

}  // namespace flowk::softmax
