// SPDX-License-Identifier: Apache-2.0
// What the kernels of cross-entropy get, and the sizes that they and the plan share.
//
// Let x be a row's logits and z = softcap(scale * x). A row's partial result over some of its columns is
//   max       the largest z
//   sum       sum of exp(z - max)
//   weighted  sum of exp(z - max) * (z - max), for the entropy
//   total     sum of z, for label smoothing
//   target    z of the target's column, 0 if it is not among them
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"
#include "flowk/detail/sizes.h"
#include "flowk/flowk.h"

namespace flowk::cross_entropy {

constexpr int slice_batch = 8;          // vectors per thread of loss_slices
constexpr int slice_step = 4;           // of them at a time
constexpr int max_slice_threads = 128;  // of loss_slices
constexpr int short_batch = 8;          // vectors per thread of loss_rows, if a row takes a warp; else half of them
constexpr int gradient_batch = 4;       // vectors per thread of logits_gradient
constexpr int gradient_threads = 64;    // of logits_gradient
constexpr int short_row_threads = 128;  // per block if a row takes a warp or part of one
constexpr int merge_threads = 256;      // of merge_partials
constexpr int partial_values = FLOWK_CROSS_ENTROPY_PARTIAL_VALUES;

// The shared memory of loss_slices: a slice, which may begin inside a vector, two vectors of -infinity, and a barrier;
// then the partial results of the warps.
FLOWK_HOST_DEVICE constexpr int slice_bytes(int slice_vectors) { return (slice_vectors + 1 + 2 + 1) * vector_bytes; }

// One dimension of the rows, innermost first. Strides are in bytes.
struct RowDim {
  Divider divider;
  int64_t logits_stride = 0;
  int64_t dlogits_stride = 0;
  friend bool operator==(const RowDim&, const RowDim&) = default;
};

struct LogitsRows {
  int32_t rank = 0;
  RowDim dims[max_rank];
  friend bool operator==(const LogitsRows&, const LogitsRows&) = default;
};

// z = scale * x, or softcap * tanh(scale * x / softcap). `scale` is positive here.
template <class A>
struct LogitScale {
  A scale = 1;
  A exponent = 1;  // exp(scale * x) = 2^(exponent * x); in float64 the scale itself, exp(exponent * x)
  A softcap = 0;   // 0: none
  A inverse_softcap = 0;
  A capped_exponent = 0;  // exp(2 * scale * x / softcap) = 2^(capped_exponent * x)
  friend bool operator==(const LogitScale&, const LogitScale&) = default;
};

// What kernels compute.
enum class LossForm : int32_t {
  plain,     // z = scale * x; forward without `weighted` and `total`, backward without `dentropy`
  extended,  // z = scale * x
  capped,    // with a softcap
};

struct Logits {
  const unsigned char* logits = nullptr;
  int32_t columns = 0;
  bool negates = false;  // scale < 0
  LossForm form = LossForm::plain;
  bool needs_weighted = false;  // not read in the plain form
  bool needs_total = false;
  bool is_packed = false;  // each row begins where the one before it ends
  LogitScale<float> scale32;
  LogitScale<double> scale64;
  LogitsRows rows;
  friend bool operator==(const Logits&, const Logits&) = default;
};

struct Targets {
  const void* targets = nullptr;
  bool is_wide = false;  // int64, not int32
  int64_t ignore_index = 0;
  int64_t vocab_start = 0;
  int64_t vocab_size = 0;
  friend bool operator==(const Targets&, const Targets&) = default;
};

// Where a row's results go: to `partials`, or to each of loss, lse and entropy that is not null.
struct RowResults {
  void* loss = nullptr;
  void* lse = nullptr;
  void* entropy = nullptr;
  void* partials = nullptr;
  double label_smoothing = 0;
  double z_loss = 0;
  friend bool operator==(const RowResults&, const RowResults&) = default;
};

// The parameters of loss_rows and of loss_slices. A block of loss_rows has several rows.
struct LossParams {
  Targets targets;
  int64_t num_rows = 0;
  int32_t rows_per_block = 1;      // 1: loss_slices
  Divider threads_per_row;         // of a block; a power of 2 if less than a warp
  int32_t vectors_per_thread = 0;  // slice_batch, or up to short_batch
  bool skips_ignored = false;      // loss_slices reads a row after its target, and an ignored row not at all
  Divider slices;                  // per row
  int32_t slice_vectors = 0;       // vectors of 16 bytes of a row, counted from its first column
  int32_t row_vectors = 0;
  void* partials = nullptr;  // (rows, slices, partial_values); not used with one slice
  RowResults results;        // of rows of one slice
  Logits logits;
  friend bool operator==(const LossParams&, const LossParams&) = default;
};

struct MergePartialsParams {
  Targets targets;
  const void* partials = nullptr;
  int64_t row_stride = 0;   // in values
  int64_t part_stride = 0;  // in values
  int64_t num_parts = 0;
  int64_t num_rows = 0;
  int32_t lanes_per_row = 1;  // a power of 2
  RowResults results;
  friend bool operator==(const MergePartialsParams&, const MergePartialsParams&) = default;
};

// A gradient that is not given is null and counts as 0.
struct LogitsGradientParams {
  Targets targets;
  int64_t num_rows = 0;
  int32_t rows_per_block = 1;  // more only with one chunk
  Divider threads_per_row;     // of a block; a power of 2 if less than a warp
  Divider chunks;              // blocks per row
  const void* lse = nullptr;
  const void* entropy = nullptr;
  const void* dloss = nullptr;
  const void* dlse = nullptr;
  const void* dentropy = nullptr;
  unsigned char* dlogits = nullptr;
  double scale = 1;  // with its sign
  double label_smoothing = 0;
  double z_loss = 0;
  Logits logits;
  friend bool operator==(const LogitsGradientParams&, const LogitsGradientParams&) = default;
};

}  // namespace flowk::cross_entropy
