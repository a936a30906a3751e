// SPDX-License-Identifier: Apache-2.0
// A PReLU as a row of a test's table: (outer, channels, inner), types, and how far its pointers are past a multiple of
// 16 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prelu/prelu.h"

struct PreluCase {
  const char* why;
  flowk_dtype dtype;
  int64_t outer, channels, inner;
  int64_t x_lead = 0;  // elements
  int64_t dy_lead = 0;
  int64_t out_lead = 0;
  flowk_dtype alpha_dtype = static_cast<flowk_dtype>(0);  // 0: the same
  flowk_dtype type_of_alpha() const { return alpha_dtype == static_cast<flowk_dtype>(0) ? dtype : alpha_dtype; }
};

inline int64_t bytes_of(flowk_dtype dtype) { return dtype == FLOWK_FLOAT64 ? 8 : dtype == FLOWK_FLOAT32 ? 4 : 2; }

inline std::string text_of(const PreluCase& row) {
  const auto number = [](int64_t value) { return std::to_string(value) + " "; };
  return std::string(row.why) + ": dtype " + number(row.dtype) + number(row.type_of_alpha()) + "shape " +
         number(row.outer) + number(row.channels) + number(row.inner) + "leads " + number(row.x_lead) +
         number(row.dy_lead) + number(row.out_lead);
}

// Small enough to run on the executor; every kernel, way to find the alphas and way to sum up is there.
inline std::vector<PreluCase> prelu_kernel_cases() {
  constexpr flowk_dtype f16 = FLOWK_FLOAT16, bf16 = FLOWK_BFLOAT16, f32 = FLOWK_FLOAT32, f64 = FLOWK_FLOAT64;
  std::vector<PreluCase> rows = {
      {"one element", f32, 1, 1, 1},
      {"one element, misaligned", f16, 1, 1, 1, 3, 5, 7},
      {"fewer elements than a vector", f16, 1, 5, 1, 1, 1, 1},
      {"one alpha for all", f32, 1, 1, 10007},
      {"one alpha for all, misaligned", f16, 3, 1, 3001, 3, 3, 3},
      {"NCHW, planes of whole vectors", f16, 3, 5, 64},
      {"NCHW, planes of whole vectors, f32", f32, 3, 5, 196},
      {"NCHW, planes longer than a block", f16, 2, 3, 5000},
      {"NCHW, planes of an odd number of blocks", f32, 2, 3, 12544},
      {"NCHW, 7x7", f16, 9, 16, 49},
      {"NCHW, 7x7, f32", f32, 9, 16, 49},
      {"NCHW, 7x7, an odd number of channels", bf16, 5, 7, 49},
      {"NCHW, 14x14", bf16, 6, 8, 196},
      {"NCHW, 57x57", f16, 2, 5, 3249},
      {"NCHW, 57x57, f64", f64, 2, 5, 3249},
      {"NCHW, 3x3: a vector holds two channels", f16, 20, 12, 9},
      {"NCHW, 2x2: a vector holds more than two", f16, 40, 16, 4},
      {"NCHW, 2x3 in f32", f32, 30, 10, 6},
      {"channels last, whole vectors", f16, 300, 64, 1},
      {"channels last, 72 channels: the last tile reaches past the row", f16, 100, 72, 1},
      {"channels last, alpha misaligned by its type alone", f32, 301, 32, 1},
      {"channels last, 3 channels", f16, 1001, 3, 1},
      {"channels last, 100 channels: two rows are whole vectors", f16, 77, 100, 1},
      {"channels last, 1001 channels: eight rows are whole vectors", f16, 21, 1001, 1},
      {"channels last, 3 channels: 64 rows are whole lines of 128 bytes", f16, 4200, 3, 1},
      {"channels last, 5 channels: 32 rows are whole lines, misaligned alike", f32, 2101, 5, 1, 3, 3, 3},
      {"channels last, 24 channels: 8 rows are whole lines of 128 bytes", f16, 520, 24, 1},
      {"NCHW, 2x3: 16 rows are whole lines of 128 bytes", bf16, 1100, 10, 6},
      {"channels last, more channels than a block has columns", f32, 9, 2048, 1},
      {"few rows, many columns", f16, 2, 4096, 1},
      {"(C,)", f32, 1, 1000, 1},
      {"channels last, f64", f64, 50, 6, 1},
      {"many planes: partials are summed up by two kernels", f16, 40000, 1, 8},
      {"channels last, 40 channels: partials are summed up by two kernels", f16, 30016, 40, 1},
      {"many planes of two channels", f64, 4200, 2, 2},
      {"no vector is whole", f64, 1, 1, 1, 1, 1, 1},
      {"no elements: dalpha is 0", f16, 0, 100, 3},
  };
  // Every alignment of each pointer, on shapes of each kernel.
  for (const flowk_dtype dtype : {f16, f32, f64}) {
    const int64_t V = 16 / bytes_of(dtype);
    for (int64_t lead = 1; lead < V; ++lead) {
      rows.push_back({"all misaligned alike, planes", dtype, 2, 3, 401, lead, lead, lead});
      rows.push_back({"all misaligned alike, columns", dtype, 70, 24, 1, lead, lead, lead});
      rows.push_back({"all misaligned alike, odd columns", dtype, 70, 5, 1, lead, lead, lead});
      rows.push_back({"x misaligned", dtype, 2, 3, 401, lead, 0, 0});
      rows.push_back({"dy misaligned", dtype, 30, 24, 2, 0, lead, 0});
      rows.push_back({"output misaligned", dtype, 2, 4, 401, 0, 0, lead});
      rows.push_back({"each misaligned by itself", dtype, 31, 9, 1, lead, V - lead, 1});
    }
  }
  for (const flowk_dtype dtype : {f16, bf16}) {
    rows.push_back({"float32 alpha, planes", dtype, 3, 5, 257, 0, 0, 0, f32});
    rows.push_back({"float32 alpha, columns", dtype, 30, 40, 1, 0, 0, 0, f32});
    rows.push_back({"float32 alpha, odd columns", dtype, 30, 5, 1, 1, 2, 3, f32});
  }
  return rows;
}
