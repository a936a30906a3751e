// SPDX-License-Identifier: Apache-2.0
// A row of permute's tables with a type of its own on each side.
#pragma once

#include "core/dtype.h"
#include "permute/permute.h"
#include "permute_case.h"

struct TypePair {
  flowk_dtype src, dst;
};

// Sizes of 1, 2, 4 and 8 bytes on either side, computed in float and in double.
inline constexpr TypePair type_pairs[] = {
    {FLOWK_FLOAT32, FLOWK_FLOAT16},     {FLOWK_UINT8, FLOWK_FLOAT32},   {FLOWK_FLOAT16, FLOWK_FLOAT32},
    {FLOWK_FLOAT32, FLOWK_FLOAT8_E4M3}, {FLOWK_INT8, FLOWK_FLOAT16},    {FLOWK_BFLOAT16, FLOWK_FLOAT16},
    {FLOWK_FLOAT64, FLOWK_FLOAT32},     {FLOWK_FLOAT64, FLOWK_UINT8},   {FLOWK_INT32, FLOWK_FLOAT64},
    {FLOWK_FLOAT32, FLOWK_FLOAT32},     {FLOWK_UINT8, FLOWK_INT8},      {FLOWK_FLOAT16, FLOWK_FLOAT8_E5M2},
    {FLOWK_INT32, FLOWK_FLOAT16},       {FLOWK_UINT16, FLOWK_FLOAT64},  {FLOWK_INT8, FLOWK_INT32},
    {FLOWK_FLOAT64, FLOWK_FLOAT64},     {FLOWK_FLOAT64, FLOWK_FLOAT16},
};

// The request over pointers to the elements with all indices 0.
inline flowk::permute::PermuteRequest make_convert_request(const PermuteCase& row, const TypePair& types, double scale,
                                                           const void* src, void* dst) {
  return {src, dst, flowk::permute::dtype_info(types.src).element_bytes,
          flowk::permute::conversion_of(types.src, types.dst, scale), make_request(row, src, dst).shape};
}
