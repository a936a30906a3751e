// SPDX-License-Identifier: Apache-2.0
#include "softmax/softmax_holder.h"

#include <bit>
#include <cstddef>

#include "softmax/softmax_shape.h"

namespace flowk::softmax {
namespace {

// Fractions of copy on an H200 stand with each row.

// No dense mask and no bias, every column kept. Many vectors a thread and few threads a row: a maximum and a sum over a
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
    {128, 2, 1},                     // 32 columns: 0.965; 4 vectors a thread 0.92
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
// Lengths, causal, window.
constexpr HolderRow interval_16_bit[] = {
    {128, 2, 1},
    {1024, 4, 1},
    {32768, 8, 1},        // 4096: 0.93, 8192: 0.92, 16384: 0.915; 4 vectors a thread 0.87, 0.85
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
    {32768, 8, 1},     // 8192
    {65536, 8, 2},     // 16384: 1.03; 4 vectors a thread, 4 blocks 0.93 to 0.99
    {131072, 8, 4},    // 32768: 1.04; 4 vectors a thread 0.90
    {262144, 8, 8},    // 65536: 1.00; 4 vectors a thread 0.82
    {1048576, 8, 16},  // 131072: 0.90 to 0.96; 262144
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
    {4096, 8, 1},           // 512: 0.99, 1024: 0.98; 4 vectors a thread 0.92
    {32768, 16, 1},         // 2048: 0.953, 4096: 0.96, 8192: 0.95; 4 vectors a thread 0.88, 0.83
    {65536, 8, 4},          // 16384: 0.947
    {131072, 8, 8},         // 32768: 0.95
    {262144, 8, 8},         // 65536: 0.93
    {524288, 8, 16},        // 131072: 0.947; shared memory 0.79
    {1048576, 4, 16, 256},  // 262144
    {2097152, 4, 16, 512},  // 2^19
    {INT64_MAX, 8, 16, 512},
};
// Backward: two inputs, both in registers. 128 to 131072 columns reach 1.00 to 1.04 in both types.
constexpr HolderRow backward_16_bit[] = {
    {4096, 2, 1},                    // 32 columns: 1.03, 64: 1.02, 512: 1.03, 1024: 1.03, 2048: 1.04
    {32768, 8, 1},                   // 4096: 1.02, 8192: 1.02, 16384: 1.02
    {65536, 8, 2},                   // 32768: 1.03
    {131072, 4, 8},                  // 65536: 1.02, 50257: 0.996; 8 vectors a thread 0.90
    {524288, 4, 16},                 // 131072: 1.018, 262144: 0.978; 8 vectors a thread 0.96, 0.91
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

// Rows of no power of 2 of vectors ("ragged"), whose last vectors not all threads have, and rows with columns outside
// whole vectors ("uneven"): fewer threads and blocks than a row of the next power of 2 has.

constexpr HolderRow ragged_plain_16_bit[] = {
    {128, 2, 1},
    {8192, 4, 1},                 // 384: 0.99, 2432: 0.98
    {24576, 8, 1},                // 4560: 0.93, 6144: 0.98; 4 vectors a thread 0.905, 0.94
    {65536, 8, 2},                // 13056: 0.97, 14336: 0.975, 18432: 0.96
    {131072, 8, 4},               // 33160: 0.89, 40960: 0.94, 41429: 0.95; by 8 blocks 0.77, -, 0.88
    {262144, 8, 8},               // 98304: 0.94, 104080: 0.94
    {655360, 8, 16},              // 151936: 0.91, 300000: 0.82
    {1048576, 4, 16, 256, 0, 8},  // 393216: 0.81
    {INT64_MAX, 4, 16, 512, 0, 16},
};
constexpr HolderRow ragged_plain_32_bit[] = {
    {1024, 4, 1},
    {32768, 8, 1},                 // 300 columns: 0.924, 777: 0.947, 1000: 0.98; 4 vectors a thread 0.80, -, 0.95
    {65536, 8, 2},                 // 14336: 0.97
    {131072, 8, 4},                // 24576: 0.98
    {262144, 8, 8},                // 40960: 0.95, 49152: 0.95
    {524288, 8, 16},               // 98304: 0.92
    {786432, 4, 8, 256},           // 134868: 0.83, 176064: 0.86; in turn by 8 blocks 0.62, 0.77
    {1310720, 4, 16, 256},         // 300000: 0.78; in turn by 16 blocks 0.64
    {2097152, 4, 16, 512, 0, 16},  // 393216: 0.79
    {INT64_MAX, 8, 16, 512, 0, 16},
};
constexpr HolderRow ragged_interval_32_bit[] = {
    {2048, 4, 1},
    {32768, 8, 1},
    {57344, 8, 2},       // 10240: 0.87, 12288: 0.865; in shared memory 0.82, 0.84
    {81920, 4, 2, 128},  // 18432: 0.83; by 4 blocks 0.77
    {131072, 4, 4, 128},
    {262144, 4, 8, 128},          // 49152: 0.81
    {360448, 4, 8, 128},          // 85312: 0.84; blocks of 256 threads 0.82
    {524288, 4, 8, 256},          // 98304: 0.83
    {655360, 4, 16, 128},         // 151936: 0.82; blocks of 256 threads 0.73
    {1310720, 4, 16, 256, 0, 8},  // 300000: 0.76
    {2097152, 4, 16, 512, 0, 16},
    {INT64_MAX, 8, 16, 512, 0, 16},
};
constexpr HolderRow ragged_bias_16_bit[] = {
    {32768, 4, 1},     // 392: 1.01, 2760: 1.00, 6792: 0.98; 392 by 2 vectors a thread 0.91
    {65536, 4, 4},     // 24576: 1.00
    {131072, 4, 8},    // 49152: 0.99
    {524288, 4, 16},   // 98304: 0.96
    {1048576, 8, 16},  // 393216: 0.63
};
// What a thread does once is more, so each has more vectors.
constexpr HolderRow uneven_bias_16_bit[] = {
    {1024, 4, 1},      // to 511 columns
    {32768, 8, 1},     // 1607: 0.90, 12877: 0.85, 14852: 0.89; 4 vectors a thread 0.77, 0.58, 0.64
    {65536, 8, 2},     // 20110: 0.80; 4 vectors a thread, 4 blocks 0.75
    {262144, 8, 8},    // 70046: 0.68, 116742: 0.74; 4 vectors a thread, 16 blocks 0.60, 0.53
    {1048576, 8, 16},  // 251112: 0.61; 4 vectors a thread 0.42
};
constexpr HolderRow ragged_bias_32_bit[] = {
    {8192, 4, 1},      // 1536: 0.995
    {32768, 8, 1},     // 3072: 1.00, 5120: 1.00, 3210: 0.87; 4 vectors a thread 0.98, 0.95, 0.65
    {65536, 8, 2},     // 10240: 0.99, 14336: 0.99; 4 vectors a thread, 4 blocks 0.91, 0.92
    {131072, 8, 4},    // 24576: 0.89
    {262144, 8, 8},    // 40960: 0.92
    {1048576, 8, 16},  // 98304: 0.76
};
constexpr HolderRow ragged_dense_16_bit[] = {
    {8192, 4, 1},           // 2592: 0.90, 3888: 0.84, 3072: 0.94; 8 vectors a thread 0.81, 0.79, 0.87
    {32768, 8, 1},          // 6144: 0.96, 10240: 0.94, 14336: 0.93; 4 vectors a thread 0.90, -, -
    {65536, 8, 4},          // 24576: 0.96
    {131072, 8, 8},         // 40960: 0.97, 59504: 0.87
    {786432, 8, 16},        // 98304: 0.97, 151936: 0.80, 393216: 0.83; in shared memory -, 0.765, 0.77
    {1048576, 4, 16, 256},  // to 524280 columns
    {INT64_MAX, 4, 16, 512},
};
constexpr HolderRow ragged_dense_32_bit[] = {
    {1024, 4, 1},           // to 255 columns
    {32768, 8, 1},          // 1000: 0.987, 1001: 0.955; 16 vectors a thread 0.92, 0.86
    {65536, 8, 2},          // 10240: 0.93, 14336: 0.94; by 4 blocks -, 0.77
    {131072, 8, 4},         // 24576: 0.93
    {262144, 8, 8},         // 40960: 0.94, 50600: 0.82
    {524288, 8, 16},        // 98304: 0.935; in shared memory 0.80
    {786432, 16, 16},       // 151936: 0.76; in shared memory 0.66
    {1310720, 4, 16, 256},  // 300000: 0.66
    {2097152, 4, 16, 512},  // to 524284 columns
    {INT64_MAX, 8, 16, 512},
};
constexpr HolderRow ragged_backward_16_bit[] = {
    {4096, 2, 1},
    {16384, 4, 1},               // 2560: 1.01, 5120: 1.01, 6144: 1.00; 8 vectors a thread 0.95, 0.98, 0.97
    {32768, 4, 2},               // 10240: 1.00, 15496: 0.99; by one block 0.98, 0.96
    {65536, 4, 4},               // 18656: 1.02, 24576: 1.00
    {131072, 4, 8},              // 40960: 1.00, 49152: 1.00, 50257: 0.996
    {524288, 4, 16},             // 98304: 0.99, 151936: 0.91
    {786432, 8, 16, 0, 0, 8},    // 300000: 0.85
    {1048576, 8, 16, 0, 0, 16},  // 393216: 0.90
    {INT64_MAX, 8, 16, 512, 0, 16},
};
constexpr HolderRow ragged_backward_32_bit[] = {
    {8192, 2, 1},
    {32768, 4, 1},
    {65536, 4, 4},               // 12288: 1.02, 14336: 1.02
    {131072, 4, 8},              // 18432: 1.025, 24576: 1.03; by 4 blocks 1.01, 0.99
    {262144, 4, 16},             // 40960: 1.01, 49152: 1.01
    {524288, 4, 16, 256},        // 98304: 0.98; in registers 0.855
    {786432, 4, 16, 512, 0, 8},  // 151936: 0.93
    {1048576, 4, 16, 512, 0, 16},
    {INT64_MAX, 8, 16, 512, 0, 16},
};

template <size_t kSize>
const HolderRow* find_row(const HolderRow (&table)[kSize], int64_t row_bytes) {
  for (const HolderRow& row : table)
    if (row_bytes <= row.max_row_bytes) return &row;
  return nullptr;
}

}  // namespace

bool is_ragged_row(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  return problem.has_leftovers || !std::has_single_bit(static_cast<uint64_t>(request.columns / problem.vector_columns));
}

const HolderRow* find_holder(const SoftmaxRequest& request, const SoftmaxProblem& problem, int64_t row_bytes) {
  const auto find = [&](const auto& table_16_bit, const auto& table_32_bit) {
    return problem.in_bytes == 2 ? find_row(table_16_bit, row_bytes) : find_row(table_32_bit, row_bytes);
  };
  const bool is_ragged = is_ragged_row(request, problem), is_uneven = problem.has_leftovers;
  if (request.backward)
    return is_ragged ? find(ragged_backward_16_bit, ragged_backward_32_bit) : find(backward_16_bit, backward_32_bit);
  switch (mask_of(request)) {
    case SoftmaxMask::none:
      if (request.has_diagonal || request.lengths_bytes != 0)
        return is_ragged ? find(interval_16_bit, ragged_interval_32_bit) : find(interval_16_bit, interval_32_bit);
      // 50257 columns of float32 in shared memory 0.94, in registers 0.85.
      if (is_uneven && row_bytes > 32768) return find(ragged_plain_16_bit, ragged_interval_32_bit);
      return is_ragged ? find(ragged_plain_16_bit, ragged_plain_32_bit) : find(plain_16_bit, plain_32_bit);
    case SoftmaxMask::dense:
      // Long uneven rows as those without a mask: 50257 columns 0.72, registers 0.66 and 0.63.
      if (is_uneven && row_bytes > 65536) return find(interval_16_bit, ragged_interval_32_bit);
      return is_ragged ? find(ragged_dense_16_bit, ragged_dense_32_bit) : find(dense_16_bit, dense_32_bit);
    case SoftmaxMask::bias: break;
  }
  if (is_uneven) return find(uneven_bias_16_bit, ragged_bias_32_bit);
  return is_ragged ? find(ragged_bias_16_bit, ragged_bias_32_bit) : find(bias_16_bit, bias_32_bit);
}

}  // namespace flowk::softmax
