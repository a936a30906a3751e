// SPDX-License-Identifier: Apache-2.0
// bench/*_candidates.cpp, which bench/tune_*.py call: they compile and link, and their results are right.
#include <numeric>
#include <vector>

#include "../../../bench/elementwise_candidates.cpp"
#include "../../../bench/permute_candidates.cpp"
#include "../../../bench/prelu_candidates.cpp"
#include "../../../bench/softmax_candidates.cpp"
#include "check.h"

static std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), -5.0f);
  return values;
}

TEST(permute_tiles_are_right) {
  constexpr int64_t num_rows = 96, num_columns = 160;
  const std::vector<float> x = counted(num_rows * num_columns);
  const int64_t extents[2] = {num_columns, num_rows}, src_strides[2] = {1, num_columns}, dst_strides[2] = {num_rows, 1};
  double features[18 + sizeof(flowk::permute::TileCosts) / sizeof(float)];
  int num_planned = 0;
  for (int src = 0; src < 64; ++src) {
    std::vector<float> y(x.size());
    const int status = flowk_bench_permute_candidate(x.data(), y.data(), 2, extents, src_strides, dst_strides,
                                                     FLOWK_FLOAT32, FLOWK_FLOAT32, 1, src, 0, 1, features, nullptr);
    if (status == 2) break;
    if (status != 0) continue;
    ++num_planned;
    bool is_right = features[1] > 0 && features[2] > 0;
    for (int64_t i = 0; i < num_rows * num_columns; ++i)
      is_right = is_right && y[(i % num_columns) * num_rows + i / num_columns] == x[i];
    CHECK(is_right);
  }
  CHECK(num_planned > 0);
  CHECK(flowk_bench_permute_candidate(x.data(), nullptr, 2, extents, src_strides, dst_strides, FLOWK_FLOAT32,
                                      FLOWK_FLOAT32, 1, 1000, 0, 0, features, nullptr) == 2);
}

TEST(permute_tiles_convert) {
  constexpr int64_t num_rows = 96, num_columns = 160;
  const std::vector<float> x = counted(num_rows * num_columns);
  const int64_t extents[2] = {num_columns, num_rows}, src_strides[2] = {1, num_columns}, dst_strides[2] = {num_rows, 1};
  double features[18 + sizeof(flowk::permute::TileCosts) / sizeof(float)];
  std::vector<double> y(x.size());
  int src = 0, status = 1;
  while (status == 1)
    status = flowk_bench_permute_candidate(x.data(), y.data(), 2, extents, src_strides, dst_strides, FLOWK_FLOAT32,
                                           FLOWK_FLOAT64, 0.5, src++, 0, 1, features, nullptr);
  CHECK(status == 0);
  bool is_right = true;
  for (int64_t i = 0; i < num_rows * num_columns; ++i)
    is_right = is_right && y[(i % num_columns) * num_rows + i / num_columns] == x[i] * 0.5f;
  CHECK(is_right);
}

TEST(conversions_are_right) {
  const std::vector<float> x = counted(1000);
  for (const int32_t packs : {1, 2, 4}) {
    std::vector<double> y(x.size());
    CHECK(flowk_bench_elementwise_candidate(x.data(), FLOWK_FLOAT32, y.data(), FLOWK_FLOAT64, 1000, packs, nullptr) ==
          0);
    CHECK(std::equal(x.begin(), x.end(), y.begin()));
  }
}

TEST(prelu_is_right) {
  constexpr int64_t outer = 3, channels = 4, inner = 40;
  const std::vector<float> x = counted(outer * channels * inner), alpha = {0.5f, 1, 2, 3};
  std::vector<float> expected(x.size()), y(x.size());
  flowk_prelu(x.data(), alpha.data(), expected.data(), outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, nullptr);
  for (const int num_threads : {64, 128, 256}) {
    std::fill(y.begin(), y.end(), 0.0f);
    CHECK(flowk_bench_prelu_candidate(x.data(), alpha.data(), y.data(), outer, channels, inner, FLOWK_FLOAT32,
                                      FLOWK_FLOAT32, num_threads, nullptr) == 0);
    CHECK(y == expected);
  }
  const int32_t no_choice[7] = {};
  char text[256] = "";
  std::vector<char> workspace(1 << 20);
  std::vector<float> dx(x.size()), dalpha(channels);
  const int status = flowk_bench_prelu_backward_candidate(
      x.data(), x.data(), alpha.data(), dx.data(), dalpha.data(), outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32,
      workspace.data(), workspace.size(), no_choice, text, sizeof text, nullptr);
  CHECK(status == 0 || status == 1);
}

TEST(softmax_is_right) {
  using flowk::softmax::SoftmaxKernel;
  constexpr int64_t rows = 6, columns = 256;
  std::vector<float> x = counted(rows * columns);
  for (float& value : x) value *= 0.01f;
  const auto run = [&](SoftmaxKernel kernel, int count, int lanes, int threads, std::vector<float>* y) {
    return flowk_bench_softmax_candidate(0, FLOWK_FLOAT32, x.data(), nullptr, y->data(), nullptr, nullptr, nullptr,
                                         nullptr, 0, 1, 1, rows, columns, 1.0, static_cast<int>(kernel), count, lanes,
                                         threads, 1, 0, 0, 0, nullptr);
  };
  int num_planned = 0;
  for (int kernel = 0; kernel <= static_cast<int>(SoftmaxKernel::two_pass_row); ++kernel) {
    for (const int count : {1, 2, 4}) {
      for (const int threads : {64, 128, 256}) {
        std::vector<float> y(x.size());
        const int status = run(static_cast<SoftmaxKernel>(kernel), count, 32, threads, &y);
        CHECK(status == 0 || status == 1);
        if (status != 0) continue;
        ++num_planned;
        for (int64_t row = 0; row < rows; ++row) {
          const double sum = std::accumulate(y.begin() + row * columns, y.begin() + (row + 1) * columns, 0.0);
          CHECK(sum > 0.9999 && sum < 1.0001);
        }
      }
    }
  }
  CHECK(num_planned > 0);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
