// SPDX-License-Identifier: Apache-2.0
// The parameters of the PReLU kernels, one struct per kernel. They arrive in lines of 64 bytes, and a kernel waits for
// each line, so what it needs first stands together.
//
// The tensors are (outer, channels, inner), contiguous. Threads walk them in vectors: 16 bytes that are aligned in the
// output. Vector k holds the V = 16 / element bytes elements from k * V - misalignment on, where `misalignment` is the
// number of elements from a multiple of 16 bytes to the output's first one. Elements before 0 and past the last do not
// exist. The *position* of an element is its index + phase + misalignment, where phase + misalignment is a multiple of
// channels * inner. So vector k begins at position k * V + phase, which is never negative, and
//
//   channel = (position / inner) % channels
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/dtype.h"
#include "flowk/detail/sizes.h"

namespace flowk::prelu {

// Threads per block, at most. Each thread has one vector at a time. Blocks of 4 KB in memory order are as fast as a
// copy: bench/tuning/prelu_h200.json has that measurement. The other bounds are not measured.
constexpr int max_prelu_threads = 256;
constexpr int max_backward_threads = 512;
constexpr int max_span_threads = 256;
constexpr int max_row_sum_threads = 1024;
constexpr int partials_in_flight = 8;  // that a thread of reduce_partials loads at once
constexpr int max_cluster_blocks = 8;  // every GPU with clusters allows 8

// The vectors of x and of dy that a thread of by_channel has in flight in kernels for clusters.
constexpr int by_channel_rows_of_cluster(int64_t element_bytes) { return element_bytes >= 4 ? 3 : 4; }

// Which alphas the elements of one vector need.
enum class AlphaAccess : int32_t {
  one_per_vector,   // all elements have one channel
  two_per_vector,   // inner >= V: one channel or two
  consecutive,      // inner = 1: the alphas are consecutive, and aligned to 16 bytes
  one_per_element,  // anything else
};

struct VectorGrid {
  int64_t num_elements = 0;
  int64_t channels = 0;
  int64_t inner = 0;
  int64_t phase = 0;
  int32_t misalignment = 0;
  Divider by_inner;
  Divider by_channels;
  bool is_wide = false;        // positions need more than 31 bits: divide by the wide dividers
  int64_t num_planes = 0;      // outer * channels
  int64_t missing_planes = 0;  // planes in the positions before element 0
  WideDivider by_inner_wide;
  WideDivider by_channels_wide;
  friend bool operator==(const VectorGrid&, const VectorGrid&) = default;
};

struct ForwardParams {
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* y = nullptr;
  int16_t x_shift = 0;           // bytes from a multiple of 16 to the element of x that a vector begins with
  bool has_float_alpha = false;  // with 16-bit elements
  AlphaAccess alpha_access = AlphaAccess::one_per_element;
  VectorGrid grid;
  friend bool operator==(const ForwardParams&, const ForwardParams&) = default;
};

// The tensors of a backward pass. Sums have type float, or double for float64.
struct BackwardTensors {
  VectorGrid grid;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* dx = nullptr;        // null: not wanted
  void* dalpha = nullptr;    // not null: the kernel finishes the sums and writes them here
  void* partials = nullptr;  // not null: it writes partial sums here; if both are null, no sums are wanted
  int16_t dy_shift = 0;      // as ForwardParams::x_shift
  int16_t x_shift = 0;
  bool has_float_alpha = false;  // alpha and dalpha, with 16-bit elements
  friend bool operator==(const BackwardTensors&, const BackwardTensors&) = default;
};

// A row is the channels * inner elements of one `outer`: whole vectors. A block takes a tile of `tile_channels`
// consecutive channels (up to `tile_vectors` vectors of a row) and `rows_per_block` consecutive rows, `tile_rows` at a
// time. The blocks of one tile are a cluster.
struct ByChannelParams {
  BackwardTensors tensors;
  int32_t outer = 0;
  int32_t channels = 0;
  int32_t inner = 0;
  int32_t row_vectors = 0;
  int32_t tile_channels = 0;
  int32_t tile_rows = 0;
  int32_t rows_per_block = 0;
  int32_t log2_cluster_blocks = 0;
  int32_t log2_vectors_at_once = 0;  // vectors of a row that the lanes of a warp sum at once
  int32_t num_sums = 0;              // in shared memory
  int64_t step_vectors = 0;          // between consecutive rows of one thread
  Divider tile_vectors;
  Divider by_inner;
  friend bool operator==(const ByChannelParams&, const ByChannelParams&) = default;
};

// A warp takes a span of `span_elements` consecutive elements: whole vectors, and at most `inner` elements. A plane
// overlaps at most `partials_per_plane` spans; partials are (channels, outer, partials_per_plane).
struct BySpanParams {
  BackwardTensors tensors;
  int32_t span_elements = 0;
  int64_t partials_per_plane = 1;
  int64_t outer = 0;
  int64_t missing_outer = 0;  // rows in the positions before element 0
  Divider by_span;            // span_elements
  WideDivider by_span_wide;
  friend bool operator==(const BySpanParams&, const BySpanParams&) = default;
};

// A block takes `span_vectors` consecutive vectors, one per thread. A plane overlaps at most `partials_per_plane`
// spans. Partials are (outer * partials_per_plane, channels).
struct ByPlaneParams {
  BackwardTensors tensors;
  int32_t span_vectors = 0;
  int64_t partials_per_plane = 1;
  int32_t log2_threads_per_plane = 5;  // threads that sum one plane, at most 32
  Divider by_span;                     // elements of a span
  WideDivider by_span_wide;
  friend bool operator==(const ByPlaneParams&, const ByPlaneParams&) = default;
};

// The vectors of x and of dy that a thread of by_column has in flight.
FLOWK_HOST_DEVICE constexpr int column_rows_in_flight(bool is_general) { return is_general ? 1 : 4; }

// A vector with elements that do not exist.
struct PartialVector {
  int64_t row = 0;
  int64_t column = 0;
  friend bool operator==(const PartialVector&, const PartialVector&) = default;
};

// The vectors form rows of `row_vectors`; a row is a whole number of periods of channels * inner elements, its columns.
// A block takes a line of consecutive vectors of `rows_per_block` consecutive rows. Partials are
// (blocks per tile, num_columns) = (blocks per tile * periods, channels, inner).
struct ByColumnParams {
  BackwardTensors tensors;
  void* sums = nullptr;  // dalpha or partials; null: not wanted
  int64_t num_rows = 0;  // the last may be short
  int64_t row_vectors = 0;
  bool has_wide_rows = false;  // positions in a row need more than 31 bits
  int64_t num_columns = 0;
  int32_t first_column = 0;  // the columns before it do not exist: misalignment if one row holds all elements
  int64_t step_vectors = 0;  // between consecutive rows of one thread
  int32_t rows_per_block = 0;
  bool is_dalpha = false;        // sums are finished
  bool is_folded = false;        // partials are (channels, blocks): a block adds up its columns of each channel
  int32_t first_vector = 0;      // the first whole one; the special form handles partial vectors apart
  int64_t num_whole_rows = 0;    // rows of whole vectors
  int64_t last_row_vectors = 0;  // whole vectors of the row after them
  int32_t num_partial_vectors = 0;
  PartialVector partial_vectors[2];
  Divider num_tiles;
  friend bool operator==(const ByColumnParams&, const ByColumnParams&) = default;
};

// A warp takes one vector of all rows. The parameters are one line of 64 bytes.
struct ByWarpColumnParams {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* alpha = nullptr;
  void* dx = nullptr;  // null: not wanted
  void* dalpha = nullptr;
  int32_t num_rows = 0;
  int32_t row_vectors = 0;
  friend bool operator==(const ByWarpColumnParams&, const ByWarpColumnParams&) = default;
};

// by_span: the most vectors of x and of dy per lane.
FLOWK_HOST_DEVICE constexpr int max_span_vectors(bool is_in_one_plane) { return is_in_one_plane ? 4 : 2; }

// How partials lie in memory.
enum class PartialLayout : int32_t {
  rows_last,      // (channels, rows)
  runs,           // (rows, channels, run); by its strides the other two as well
  channels_last,  // (rows, channels)
};

// Sums over segments of `rows_per_segment` rows. The fields stand in the order in which the kernel needs them.
struct ReducePartialsParams {
  const void* partials = nullptr;
  int64_t num_rows = 0;
  int64_t channels = 0;
  int64_t row_stride = 0;           // in partials
  int64_t column_stride = 0;        // between channels
  int32_t log2_block_channels = 0;  // channels per block, at most 32
  Divider run;                      // consecutive partials of one channel, of PartialLayout::runs
  void* sums = nullptr;
  flowk_dtype sums_dtype = FLOWK_FLOAT32;
  int64_t rows_per_segment = 0;
  Divider num_segments;
  friend bool operator==(const ReducePartialsParams&, const ReducePartialsParams&) = default;
};

}  // namespace flowk::prelu
