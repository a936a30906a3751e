// SPDX-License-Identifier: Apache-2.0
// Selects the table of measured rows in which a call is looked up.
#include "softmax/plan/softmax_tuning.h"

#include "softmax/plan/softmax_call.h"

namespace flowk::softmax {

const SoftmaxTuningRow& find_tuning_row(const SoftmaxCall& call) {
  const auto find = [&](const auto& rows_16_bit, const auto& rows_32_bit) -> const SoftmaxTuningRow& {
    constexpr auto bound = &SoftmaxTuningRow::max_row_bytes;
    return call.in_bytes == 2 ? find_tuning_row(rows_16_bit, bound, call.row_bytes)
                              : find_tuning_row(rows_32_bit, bound, call.row_bytes);
  };
  if (call.request.backward)
    return call.is_power_of_2 ? find(backward_16_bit, backward_32_bit)
                              : find(backward_16_bit_any_length, backward_32_bit_any_length);
  // Threads hold the scores of all types in float32: 4 vectors per thread are enough.
  if (call.mask == SoftmaxMask::scores && call.in_bytes <= 4)
    return call.is_power_of_2 ? find(bias_16_bit, bias_16_bit) : find(bias_16_bit_any_length, bias_16_bit_any_length);
  if (has_scaled_scores(call.mask)) {
    if (call.has_tails && !call.has_bias_alone) return find(bias_16_bit_tails, bias_32_bit);
    if (call.is_power_of_2 || call.in_bytes == 8) return find(bias_16_bit, bias_32_bit);
    return find(bias_16_bit_any_length, bias_32_bit_any_length);
  }
  if (call.mask == SoftmaxMask::dense) {
    if (call.has_tails)
      return call.request.columns > dense_tails_as_interval_columns ? find(interval_16_bit, interval_32_bit)
                                                                    : find(dense_16_bit_tails, dense_32_bit_any_length);
    return call.is_power_of_2 ? find(dense_16_bit, dense_32_bit)
                              : find(dense_16_bit_any_length, dense_32_bit_any_length);
  }
  if (call.has_interval) return find(interval_16_bit, interval_32_bit);
  if (call.has_tails && call.row_bytes > plain_tails_as_interval_bytes)
    return find(plain_16_bit_any_length, interval_32_bit);
  return call.is_power_of_2 ? find(plain_16_bit, plain_32_bit) : find(plain_16_bit_any_length, plain_32_bit_any_length);
}

}  // namespace flowk::softmax
