// SPDX-License-Identifier: Apache-2.0
// C++17 with flowk.hpp, on the CPU: a causal softmax of scores, then heads to the last dimension but one.
// CMakeLists.txt and meson.build build it; so does: c++ -std=c++17 attention.cpp $(pkg-config --cflags --libs
// flowk_simt)
#include <cstdint>
#include <cstdio>
#include <flowk/flowk.hpp>
#include <vector>

int main() {
  constexpr int64_t heads = 2, rows = 3, columns = 4;
  std::vector<float> scores(heads * rows * columns, 1.0f), result(scores.size());
  const flowk::view x{scores.data(), {heads, rows, columns}};
  flowk::masked_softmax(x, x, flowk::softmax_mask().causal(), 0.5);
  const flowk::view by_row{result.data(), {rows, heads, columns}};
  flowk::permute(x, by_row, {1, 0, 2});
  flowk::multiply(by_row, 2, by_row);
  try {
    flowk::permute(x, by_row, {0, 1, 2});
    return 1;  // by_row has another shape
  } catch (const flowk::error& error) {
    std::printf("as expected: %s\n", error.what());
  }
  std::printf("the first row: %g %g %g %g\n", result[0], result[1], result[2], result[3]);
  return result[0] == 1.0f && result[1] == 1.0f && result[2] == 0.0f ? 0 : 1;
}
