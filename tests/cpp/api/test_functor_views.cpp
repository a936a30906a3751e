// SPDX-License-Identifier: Apache-2.0
// Kernels of a user's own on views of any strides, by flowk/elementwise_views.cuh, on the executor.
#include <cuda_fp16.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "flowk/elementwise_views.cuh"
#include "flowk/flowk.hpp"  // its functions beside the kernels'

namespace {

using flowk::view;

struct Axpy {
  float a;
  __device__ float operator()(float x, float y) const { return a * x + y; }
};
struct MakeAxpy {
  const float* a;
  __device__ Axpy operator()() const { return {*a}; }
};
struct Mixed {
  __device__ double operator()(uint8_t x, __half y, int64_t z) const {
    return static_cast<double>(x) * static_cast<double>(__half2float(y)) + static_cast<double>(z);
  }
};
struct Point {  // a type that flowk does not know
  float x, y;
};
struct Swap {
  __device__ Point operator()(Point p) const { return {p.y, p.x}; }
};

// A tensor of 2 dimensions in memory of its own.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, int64_t shift = 0)
      : memory(static_cast<size_t>(shift + rows * row_stride + columns * column_stride + 1)),
        shape{rows, columns},
        strides{row_stride, column_stride},
        first(shift) {}
  float& at(int64_t i, int64_t j) { return memory[static_cast<size_t>(first + i * strides[0] + j * strides[1])]; }
  view<float, 2> whole() { return {memory.data() + first, {shape[0], shape[1]}, {strides[0], strides[1]}}; }

  std::vector<float> memory;
  int64_t shape[2], strides[2], first;
};

std::set<int32_t> kernels_run;

// out = 2 x + y, compared for each element; notes the kernel.
void check_axpy(Matrix out, Matrix x, Matrix y) {
  for (int64_t i = 0; i < x.shape[0]; ++i)
    for (int64_t j = 0; j < x.shape[1]; ++j) x.at(i, j) = static_cast<float>(100 * i + j);
  for (int64_t i = 0; i < y.shape[0]; ++i)
    for (int64_t j = 0; j < y.shape[1]; ++j) y.at(i, j) = static_cast<float>(i - 7 * j);
  flowk::transform(Axpy{2.0f}, nullptr, out.whole(), x.whole(), y.whole());
  int num_wrong = 0;
  for (int64_t i = 0; i < out.shape[0]; ++i)
    for (int64_t j = 0; j < out.shape[1]; ++j)
      num_wrong += out.at(i, j) != 2 * x.at(x.shape[0] == 1 ? 0 : i, x.shape[1] == 1 ? 0 : j) +
                                       y.at(y.shape[0] == 1 ? 0 : i, y.shape[1] == 1 ? 0 : j);
  CHECK(num_wrong == 0);

  const flowk_dtype dtypes[] = {FLOWK_FLOAT32, FLOWK_FLOAT32, FLOWK_FLOAT32};
  const void* const pointers[] = {out.whole().data(), x.whole().data(), y.whole().data()};
  const int64_t x_strides[] = {x.shape[0] == 1 ? 0 : x.strides[0], x.shape[1] == 1 ? 0 : x.strides[1]};
  const int64_t y_strides[] = {y.shape[0] == 1 ? 0 : y.strides[0], y.shape[1] == 1 ? 0 : y.strides[1]};
  const int64_t* const strides[] = {out.strides, x_strides, y_strides};
  flowk_functor_launch launch = {};
  launch.struct_bytes = sizeof launch;
  launch.params_version = flowk::detail::elementwise_params_version;
  CHECK(flowk_functor_plan(pointers, strides, dtypes, 3, 2, out.shape, 0, &launch) == FLOWK_STATUS_SUCCESS);
  kernels_run.insert(launch.kernel);
}

// A table of four elements: what a functor is called with is an element of x, or 0.
struct LookUp {
  const uint8_t* table;
  __device__ uint8_t operator()(uint8_t x) const { return table[x]; }
};
TEST(what_lies_between_rows_does_not_reach_the_functor) {
  const std::vector<uint8_t> table = {7, 6, 5, 4};
  std::vector<uint8_t> x(9 * 42, 255), out(9 * 21);
  for (size_t i = 0; i < out.size(); ++i) x[i / 21 * 42 + i % 21] = static_cast<uint8_t>(i % 4);
  flowk::transform(LookUp{table.data()}, nullptr, view{out.data(), {9, 21}}, view{x.data(), {9, 21}, {42, 1}});
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == 7 - i % 4);
}

TEST(every_kernel_is_right) {
  check_axpy({9, 13, 13, 1}, {9, 13, 13, 1}, {9, 13, 13, 1});
  check_axpy({9, 13, 13, 1}, {9, 13, 13, 1}, {1, 13, 0, 1});
  check_axpy({9, 13, 13, 1}, {9, 13, 13, 1}, {9, 1, 1, 0});
  check_axpy({64, 64, 64, 1}, {64, 64, 64, 1}, {1, 64, 0, 1});
  check_axpy({4224, 1024, 1024, 1}, {1, 1024, 0, 1}, {4224, 1, 1, 0});
  check_axpy({9, 13, 20, 1}, {9, 13, 17, 1}, {9, 13, 26, 2});
  check_axpy({64, 64, 64, 1}, {64, 64, 1, 64}, {64, 64, 64, 1});
  check_axpy({67, 61, 61, 1}, {67, 61, 1, 67, 1}, {1, 61, 0, 1});
  check_axpy({67, 61, 64, 1, 3}, {67, 61, 1, 67}, {67, 1, 1, 0});
  CHECK(kernels_run == (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(types_may_differ_and_be_the_users) {
  std::vector<uint8_t> x = {1, 2, 3};
  std::vector<__half> y = {__float2half_rn(0.5f), __float2half_rn(2.0f)};
  std::vector<int64_t> z(6, 10);
  std::vector<double> out(6);
  flowk::transform(Mixed{}, nullptr, view{out.data(), {2, 3}}, view{x}, view{y.data(), {2, 1}}, view{z.data(), {2, 3}});
  CHECK(out[0] == 10.5 && out[2] == 11.5 && out[5] == 16);
  std::vector<Point> points = {{1, 2}, {3, 4}, {5, 6}}, swapped(3);
  flowk::transform(Swap{}, nullptr, view{swapped.data(), {3}}, view{points.data() + 2, {3}, {-1}});
  CHECK(swapped[0].x == 6 && swapped[0].y == 5 && swapped[2].x == 2);
}

TEST(a_factory_reads_memory_and_out_may_be_x) {
  const float a = 3;
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const view whole{x.data(), {2, 3}, {1, 2}};
  flowk::transform_by(MakeAxpy{&a}, nullptr, whole, whole, whole);
  CHECK(x[0] == 4 && x[5] == 24);
}

TEST(faults_are_named_and_zero_elements_are_nothing) {
  std::vector<float> x(6, 1.0f), out(6, -1.0f);
  const view whole{x.data(), {2, 3}};
  std::string text;
  try {
    flowk::transform(Axpy{1}, nullptr, view{out.data(), {2, 3}}, whole, view{x.data(), {2}});
  } catch (const flowk::error& error) {
    text = error.what();
  }
  CHECK(text == "y has extent 2 in dimension 0, must be 3");
  const flowk::status null = flowk::transform(std::nothrow, Axpy{1}, nullptr, view{out.data(), {2, 3}}, whole,
                                              view{static_cast<const float*>(nullptr), {2, 3}});
  CHECK(null.code() == FLOWK_STATUS_NULL_POINTER);
  CHECK(flowk::transform(std::nothrow, Axpy{1}, nullptr, view{x.data() + 1, {2, 2}}, whole, whole).code() ==
        FLOWK_STATUS_INVALID_ARGUMENT);
  CHECK(flowk::transform(std::nothrow, Axpy{1}, nullptr, view{x.data() + 1, {5}}, view{x.data(), {5}},
                         view{x.data(), {5}})
            .code() == FLOWK_STATUS_OVERLAP);
  for (const float value : out) CHECK(value == -1.0f);
  CHECK(flowk::transform(std::nothrow, Axpy{1}, nullptr, view{out.data(), {0, 3}}, view{x.data(), {0, 3}},
                         view{x.data(), {3}}));
}

TEST(headers_of_another_version_are_refused) {
  std::vector<float> x(6), out(6);
  const void* const pointers[] = {out.data(), x.data()};
  const int64_t* const strides[] = {nullptr, nullptr};
  const flowk_dtype dtypes[] = {FLOWK_FLOAT32, FLOWK_FLOAT32};
  const int64_t shape[] = {6};
  for (const int32_t version : {0, flowk::detail::elementwise_params_version + 1}) {
    flowk_functor_launch launch = {};
    launch.struct_bytes = sizeof launch;
    launch.params_version = version;
    launch.num_parts = -1;
    CHECK(flowk_functor_plan(pointers, strides, dtypes, 2, 1, shape, 0, &launch) == FLOWK_STATUS_INVALID_ARGUMENT);
    CHECK(std::string(flowk_last_error()).find("launch->params_version = ") == 0 && launch.num_parts == -1);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
