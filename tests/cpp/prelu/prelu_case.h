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
  bool every_type = false;                                // to be run with every type, by the planner's choice alone
  bool big = false;                                       // too big for the executor under sanitizers
  const char* mechanism = "";                             // that the planner of the gradients chooses; "": not said
  flowk_dtype type_of_alpha() const { return alpha_dtype == static_cast<flowk_dtype>(0) ? dtype : alpha_dtype; }
};

inline int64_t bytes_of(flowk_dtype dtype) { return dtype == FLOWK_FLOAT64 ? 8 : dtype == FLOWK_FLOAT32 ? 4 : 2; }

inline std::string text_of(const PreluCase& row) {
  const auto number = [](int64_t value) { return std::to_string(value) + " "; };
  return std::string(row.why) + ": dtype " + number(row.dtype) + number(row.type_of_alpha()) + "shape " +
         number(row.outer) + number(row.channels) + number(row.inner) + "leads " + number(row.x_lead) +
         number(row.dy_lead) + number(row.out_lead);
}

// tests/cases/prelu_cases.json: every kernel, way to find the alphas and way to sum up is there.
inline const std::vector<PreluCase> prelu_kernel_cases = {
#include "prelu_cases.inc"
};

// Every alignment and type of alpha, on shapes of each kernel.
inline std::vector<PreluCase> prelu_alignment_cases() {
  constexpr flowk_dtype f16 = FLOWK_FLOAT16, bf16 = FLOWK_BFLOAT16, f32 = FLOWK_FLOAT32, f64 = FLOWK_FLOAT64;
  std::vector<PreluCase> rows;
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
