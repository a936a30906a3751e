// SPDX-License-Identifier: Apache-2.0
#include "masked_softmax/softmax_holder.h"

#include <cstddef>

#include "masked_softmax/softmax_shape.h"

namespace flowk {
namespace {

constexpr int32_t warp_lanes = 32;

// Fractions of copy on an H200 stand with each row.

// No dense mask and no bias, every column kept. Many chunks a thread and few threads a row: a maximum and a sum over a
// warp cost a third of what they do over a block.
constexpr HolderRow plain_16_bit[] = {
    {128, 2, 1},                     // 32 columns: 1.00, 64: 0.99
    {16384, 4, 1},                   // 128: 0.99, 512: 0.98, 1024: 0.99, 2048: 0.99, 4096: 0.967, 8192: 0.975
    {32768, 8, 1, 0, 3},             // 16384: 0.965
    {65536, 8, 4, 0, 6},             // 32768: 0.983
    {131072, 8, 8},                  // 65536: 0.977, 50257: 0.958
    {262144, 8, 8},                  // 131072: 0.96
    {524288, 8, 16},                 // 262144: 0.958
    {1048576, 4, 16, 256, 0, 8},     // 524288: 0.90; by a cluster a row 0.85
    {INT64_MAX, 4, 16, 512, 0, 16},  // 2^20: 0.88; 0.78
};
constexpr HolderRow plain_32_bit[] = {
    {128, 2, 1},                     // 32 columns: 0.965; 4 chunks a thread 0.92
    {4096, 4, 1},                    // 64: 0.98, 128: 0.99, 512: 0.99, 1024: 0.987
    {8192, 16, 1, 0, 5},             // 2048: 0.987; as many blocks as fit 0.97
    {16384, 16, 1, 0, 6},            // 4096: 0.973; 0.967
    {32768, 16, 1, 0, 3},            // 8192: 0.98; 0.965
    {65536, 8, 4, 0, 6},             // 16384: 0.984; 0.97
    {131072, 8, 2},                  // 32768: 0.978
    {524288, 8, 16},                 // 131072: 0.918; in turn by 4 blocks 0.88
    {1048576, 4, 16, 256, 0, 8},     // 262144: 0.90; by a cluster a row 0.87
    {2097152, 4, 16, 512, 0, 16},    // 524288: 0.89; 0.75
    {INT64_MAX, 8, 16, 512, 0, 16},  // 2^20: 0.72; 0.57
};
// Lengths, causal, window; and float32 rows that do not fill warps: 1000 columns without a mask 0.98, by 4 chunks a
// thread 0.95.
constexpr HolderRow interval_16_bit[] = {
    {128, 2, 1},
    {1024, 4, 1},
    {32768, 8, 1},        // 4096: 0.93, 8192: 0.92, 16384: 0.915; 4 chunks a thread 0.87, 0.85
    {65536, 8, 2},        // 32768: 0.905
    {131072, 4, 4, 128},  // 65536: 0.90
    {262144, 4, 8, 128},  // 131072: 0.88
    {524288, 4, 16, 128},
    {1048576, 4, 16, 256},
    {INT64_MAX, 4, 16, 512},
};
constexpr HolderRow interval_32_bit[] = {
    {2048, 4, 1},
    {32768, 8, 1},        // 2048: 0.90, 4096: 0.94, 8192: 0.95
    {65536, 4, 2, 128},   // 16384: 0.89
    {131072, 4, 4, 128},  // 32768: 0.907
    {262144, 4, 4, 256},  // 65536: 0.896; 50257 without a mask 0.94, registers 0.85
    {524288, 4, 8, 256},  // 131072: 0.878
    {1048576, 4, 16, 256, 0, 8},
    {2097152, 4, 16, 512, 0, 16},
    {INT64_MAX, 8, 16, 512, 0, 16},
};
// A bias: its scores are float32 and stay in registers.
constexpr HolderRow bias_16_bit[] = {
    {1024, 2, 1},      // to 512 columns
    {32768, 4, 1},     // to 16384
    {65536, 4, 4},     // 32768
    {131072, 4, 8},    // 65536
    {524288, 4, 16},   // to 262144
    {1048576, 8, 16},  // to 524288
};
constexpr HolderRow bias_32_bit[] = {
    {16384, 4, 1},     // to 4096 columns
    {65536, 8, 1},     // to 16384
    {131072, 4, 4},    // 32768: 1.00
    {262144, 4, 8},    // 65536: 0.947; 8 chunks a thread 0.89
    {524288, 8, 8},    // 131072: 0.89; 4 chunks a thread 0.88
    {1048576, 8, 16},  // 262144
};
// With a dense mask.
constexpr HolderRow dense_16_bit[] = {
    {2048, 4, 1},             // 128: 0.89, 512: 0.98, 1024: 1.00
    {16384, 8, 1},            // 2048: 0.95, 4096: 0.94, 8192: 0.948
    {32768, 8, 2},            // 16384: 0.956
    {65536, 8, 4},            // 32768: 0.963
    {131072, 8, 8},           // 65536: 0.969
    {524288, 8, 16},          // 131072: 0.99
    {1048576, 4, 16, 256},    // 524288
    {INT64_MAX, 4, 16, 512},  // 2^20
};
constexpr HolderRow dense_32_bit[] = {
    {1024, 4, 1},           // 128: 0.94
    {4096, 8, 1},           // 512: 0.99, 1024: 0.98; 4 chunks a thread 0.92
    {32768, 16, 1},         // 2048: 0.953, 4096: 0.96, 8192: 0.95; 4 chunks a thread 0.88, 0.83
    {65536, 8, 4},          // 16384: 0.947
    {131072, 8, 8},         // 32768: 0.95
    {262144, 8, 8},         // 65536: 0.93
    {524288, 8, 16},        // 131072: 0.947; shared memory 0.79
    {1048576, 4, 16, 256},  // 262144
    {2097152, 4, 16, 512},  // 2^19
    {INT64_MAX, 8, 16, 512},
};
// With a dense mask, rows that do not fill warps.
constexpr HolderRow ragged_dense_32_bit[] = {
    {1024, 4, 1},
    {32768, 16, 1},  // 1000: 0.913, 1001: 0.87; 8 chunks a thread 0.82, 0.80
    {65536, 8, 4},
};
// Backward: two inputs, both in registers. 128 to 131072 columns reach 1.00 to 1.04 in both types.
constexpr HolderRow backward_16_bit[] = {
    {4096, 2, 1},                    // 32 columns: 1.03, 64: 1.02, 512: 1.03, 1024: 1.03, 2048: 1.04
    {32768, 8, 1},                   // 4096: 1.02, 8192: 1.02, 16384: 1.02
    {65536, 8, 2},                   // 32768: 1.03
    {131072, 4, 8},                  // 65536: 1.02, 50257: 0.996; 8 chunks a thread 0.90
    {524288, 4, 16},                 // 131072: 1.018, 262144: 0.978; 8 chunks a thread 0.96, 0.91
    {1048576, 8, 16, 0, 0, 16},      // 524288: 0.943; by a cluster a row 0.765
    {INT64_MAX, 8, 16, 512, 0, 16},  // 2^20: 0.817; 0.62
};
constexpr HolderRow backward_32_bit[] = {
    {8192, 2, 1},                    // 512: 1.03, 1024: 1.03, 2048: 1.03
    {32768, 4, 1},                   // 4096: 1.04, 8192: 1.03
    {65536, 4, 2},                   // 16384: 1.04
    {131072, 4, 4},                  // 32768: 1.04
    {262144, 4, 8},                  // 65536: 1.03
    {524288, 8, 16},                 // 131072: 1.004
    {1048576, 4, 16, 512, 0, 16},    // 262144: 0.963; by a cluster a row 0.86
    {INT64_MAX, 8, 16, 512, 0, 16},  // 524288: 0.853; 0.667
};

template <size_t kSize>
const HolderRow* find_row(const HolderRow (&table)[kSize], int64_t row_bytes) {
  for (const HolderRow& row : table)
    if (row_bytes <= row.max_row_bytes) return &row;
  return nullptr;
}

}  // namespace

const HolderRow* find_holder(const SoftmaxRequest& request, const SoftmaxProblem& problem, int64_t row_bytes) {
  const bool is_16_bit = problem.in_bytes == 2;
  const bool fills_warps = !problem.has_leftovers && request.columns / problem.chunk_columns % warp_lanes == 0;
  if (request.backward) return is_16_bit ? find_row(backward_16_bit, row_bytes) : find_row(backward_32_bit, row_bytes);
  switch (mask_of(request)) {
    case SoftmaxMask::interval:
      if (request.has_diagonal || request.lengths_bytes != 0 || (!is_16_bit && !fills_warps))
        return is_16_bit ? find_row(interval_16_bit, row_bytes) : find_row(interval_32_bit, row_bytes);
      return is_16_bit ? find_row(plain_16_bit, row_bytes) : find_row(plain_32_bit, row_bytes);
    case SoftmaxMask::dense:
      // Long rows with leftover columns as those without a mask: 50257 columns 0.72, registers 0.66 and 0.63.
      if (!is_16_bit && !fills_warps && row_bytes <= 65536) return find_row(ragged_dense_32_bit, row_bytes);
      if (!problem.has_leftovers || row_bytes <= 65536)
        return is_16_bit ? find_row(dense_16_bit, row_bytes) : find_row(dense_32_bit, row_bytes);
      return is_16_bit ? find_row(interval_16_bit, row_bytes) : find_row(interval_32_bit, row_bytes);
    case SoftmaxMask::bias: break;
  }
  return is_16_bit ? find_row(bias_16_bit, row_bytes) : find_row(bias_32_bit, row_bytes);
}

}  // namespace flowk
