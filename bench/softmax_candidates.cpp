// SPDX-License-Identifier: Apache-2.0
// Softmax with a given config, for tune_softmax.py: linked with the library's objects, never installed.
#include <initializer_list>

#include "core/device.h"
#include "softmax/softmax.h"

// Runs a contiguous (batch, heads, rows, columns) softmax, forward or backward, with a given config. `y` is the
// gradient's second input, or NULL; `bias` and `dense` have columns like x, `lengths` is of int32; each of the three is
// NULL or has the strides of its first three dimensions, in elements, in mask_strides. `count` is vectors or rows per
// thread, slices or clusters, as the mechanism has.
// Returns 0 enqueued, 1 the config does not fit, 3 failed.
extern "C" FLOWK_API int flowk_bench_softmax_candidate(int backward, flowk_dtype dtype, const void* x, const void* y,
                                                       void* out, const void* bias, const void* dense,
                                                       const void* lengths, const int64_t* mask_strides, int causal,
                                                       int64_t batch, int64_t heads, int64_t rows, int64_t columns,
                                                       double scale, int kernel, int count, int lanes, int threads,
                                                       int cluster_blocks, int resident_blocks, int64_t rows_per_launch,
                                                       int uses_pdl, flowk_stream stream) {
  using namespace flowk::softmax;
  SoftmaxRequest request;
  request.backward = backward != 0;
  request.in_dtype = request.out_dtype = request.bias_dtype = dtype;
  request.rank = 3;
  request.columns = columns;
  request.scale = scale;
  const int64_t extents[3] = {batch, heads, rows};
  const int64_t bytes = static_cast<int64_t>(flowk_dtype_bytes(dtype));
  request.pointers[softmax_x] = x;
  request.pointers[softmax_bias_or_y] = backward != 0 ? y : bias;
  request.pointers[softmax_out] = out;
  request.pointers[softmax_dense] = dense;
  request.pointers[softmax_lengths] = lengths;
  request.lengths_bytes = lengths != nullptr ? 4 : 0;
  request.has_diagonal = causal != 0;
  request.diagonal_begin = -(int64_t{1} << 40);
  request.diagonal_end = columns - rows + 1;
  int64_t stride = 1;
  for (int d = 2; d >= 0; --d) {
    request.extents[d] = extents[d];
    for (int operand = 0; operand < num_softmax_operands; ++operand) request.strides[operand][d] = 0;
    for (const SoftmaxOperand operand : {softmax_x, softmax_bias_or_y, softmax_out})
      if (request.pointers[operand] != nullptr) request.strides[operand][d] = stride * columns * bytes;
    if (bias != nullptr) request.strides[softmax_bias_or_y][d] = mask_strides[d] * bytes;
    if (dense != nullptr) request.strides[softmax_dense][d] = mask_strides[d];
    if (lengths != nullptr) request.strides[softmax_lengths][d] = mask_strides[d] * 4;
    stride *= extents[d];
  }
  if (causal != 0) request.strides[softmax_row][2] = 1;
  Device device;
  if (!current_device(&device).ok()) return 3;
  const auto mechanism_of = [&]() -> SoftmaxMechanism {
    switch (static_cast<SoftmaxKernel>(kernel)) {
      case SoftmaxKernel::row_in_registers: return RowInRegisters{count};
      case SoftmaxKernel::row_in_shared: return RowInShared{};
      case SoftmaxKernel::staged_rows: return StagedRows{.rows_per_thread = count};
      case SoftmaxKernel::rows_by_vectors: return RowsByVectors{count};
      case SoftmaxKernel::rows_in_lanes: return RowsInLanes{count};
      case SoftmaxKernel::split_row: return SplitRow{count, rows_per_launch};
      case SoftmaxKernel::persistent_rows: return PersistentRows{count};
      case SoftmaxKernel::framed_rows: return FramedRows{};
      case SoftmaxKernel::strided_rows: return StridedRows{};
      case SoftmaxKernel::two_pass_row: break;
    }
    return TwoPassRow{};
  };
  SoftmaxPlan plan;
  if (!plan_softmax_as(request, device, {mechanism_of(), lanes, threads, cluster_blocks, resident_blocks}, &plan))
    return 1;
  plan.launch.uses_pdl = uses_pdl != 0;
  return run_softmax(plan, stream).ok() ? 0 : 3;
}
