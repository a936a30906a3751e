// SPDX-License-Identifier: Apache-2.0
// strided_rows with whole planes in shared memory, where their rows start at any address.
#pragma once

#include "softmax/kernels/staged_segment.cuh"
#include "softmax/kernels/strided_terms.cuh"

namespace flowk::softmax {

// A block holds contiguous images in shared memory, or in a cluster some columns of one image. It computes the results
// in place. Each word of a plane has lanes_per_row threads per block, which share its columns. In
// a folded plane a row is twice, once for each half of its columns.
template <class Strided, class T>
__device__ __forceinline__ void compute_strided_planes(const StridedRows& mechanism, const SoftmaxParams& params) {
  using A = ComputeType<T>;
  using Partial = typename Strided::Partial;
  constexpr int num_rows = Strided::num_rows, num_inputs = Strided::num_inputs;
  const StridedPlanes& planes = mechanism.planes;
  unsigned char* const memory = &shared<unsigned char>();
  const int blocks_shift = cluster_shift<1>(params);
  const int first_image = static_cast<int>(blockIdx.x >> blocks_shift) * mechanism.images;
  const int num_images = min(mechanism.images, planes.num_images - first_image);
  const int first_column = (static_cast<int>(blockIdx.x) & ((1 << blocks_shift) - 1)) * planes.block_columns;
  const int num_columns = min(planes.block_columns, planes.image_columns - first_column);
  RowSegment segment = {static_cast<int64_t>(first_image) * planes.image_bytes + first_column * planes.column_bytes,
                        num_images, 0, 0, blockIdx.x == gridDim.x - 1};
  segment.shift = static_cast<int>(reinterpret_cast<uintptr_t>(params.x + segment.first_byte)) & (vector_bytes - 1);
  segment.end = segment.shift + (num_images - 1) * planes.image_bytes + num_columns * planes.column_bytes;
  begin_merge<Strided>(mechanism.merge, blocks_shift);
  // Bulk copies are faster between addresses that are as far from a line.
  unsigned char* const images = memory + (static_cast<int>(reinterpret_cast<uintptr_t>(params.x + segment.first_byte)) &
                                          (line_bytes - vector_bytes));
  const BulkCopies copies{{reinterpret_cast<uint64_t*>(memory + planes.barrier_offset_bytes)}};
  const CopyGroup group = copy_group(0);
  if (group.lane < group.lanes) {
    copies.begin();
    load_segment<T>(segment, group, copies, params.x, images);
    if (num_inputs == 2) load_segment<T>(segment, group, copies, params.bias_or_y, images + planes.second_offset_bytes);
    copies.end();
  }
  wait_on_dependent_grids();
  __syncthreads();
  copies.wait();

  const int slices = params.lanes_per_row, thread = static_cast<int>(threadIdx.x);
  uint32_t rest = static_cast<uint32_t>(thread);
  const int lane = static_cast<int>(take_index(&rest, planes.lanes)), slice = static_cast<int>(rest);
  rest = static_cast<uint32_t>(lane);
  const int unit = static_cast<int>(take_index(&rest, planes.units)), image = static_cast<int>(rest);
  const bool exist = slice < slices && image < num_images;
  const int count = exist ? static_cast<int>(planes.slices.divide(num_columns + slices - 1 - slice)) : 0;
  const int step = slices * planes.column_bytes;
  unsigned char* const base = images + segment.shift + image * planes.image_bytes +
                              unit * num_rows * static_cast<int>(sizeof(T)) + slice * planes.column_bytes;
  const Strided strided(mechanism, params);
  // Calls use(columns, their number, address of the first one) for the thread's columns, several at a time.
  const auto for_all = [&](bool are_exponentials, auto use) {
    unsigned char* at = base;
    int rest = count;
    const auto take_part = [&](auto size) {
      constexpr int part = decltype(size)::value;
#pragma unroll 1
      for (; rest >= part; rest -= part, at += part * step) {
        typename Strided::Column columns[part];
#pragma unroll
        for (int k = 0; k < part; ++k)
#pragma unroll
          for (int i = 0; i < num_inputs; ++i)
            pack::load<4>(columns[k][i], at + i * planes.second_offset_bytes + k * step);
        if (!are_exponentials) strided.prepare(columns, part);
        use(columns, size, at);
      }
    };
    take_part(Constant<8>());
    take_part(Constant<2>());
    take_part(Constant<1>());
  };

  Partial own[num_rows], totals[num_rows];
  forget(strided, own);
  A most[num_rows];
#pragma unroll
  for (A& value : most) value = negative_infinity<A>();
  if constexpr (num_inputs == 1)
    for_all(false,
            [&](auto& columns, auto size, unsigned char*) { strided.find_max(columns, decltype(size)::value, most); });
  strided.raise(most, own);
  const bool keeps = Strided::keeps_exponentials && !strided.log_softmax;
  for_all(false, [&](auto& columns, auto size, unsigned char* at) {
    strided.add(columns, decltype(size)::value, own);
    if constexpr (Strided::keeps_exponentials) {
#pragma unroll
      for (int k = 0; k < decltype(size)::value; ++k)
        if (keeps) pack::store<4>(at + k * step, columns[k][0]);
    }
  });

  // rows[r] is the number of the thread's row r in the block, parts_of[r] that of its partial result in this row.
  int rows[num_rows], parts_of[num_rows];
#pragma unroll
  for (int r = 0; r < num_rows; ++r) {
    rows[r] = lane * num_rows + r;
    parts_of[r] = slice;
    if (planes.is_folded) {
      const int row = unit * num_rows + r, half = planes.plane_rows / 2;
      rows[r] = image * half + (row < half ? row : row - half);
      parts_of[r] = 2 * slice + (row < half ? 0 : 1);
    }
    totals[r] = own[r];
  }
  if (mechanism.merge.slices << blocks_shift > 1) {
#pragma unroll
    for (int r = 0; r < num_rows; ++r)
      if (slice < slices)
        partial_results<Strided>(mechanism.merge)[parts_of[r] * strided_pitch(mechanism.merge.rows) + rows[r]] = own[r];
    const Partial* const merged = merge_slices(strided, mechanism.merge, blocks_shift);
#pragma unroll
    for (int r = 0; r < num_rows; ++r) totals[r] = merged[rows[r]];
  }

  typename Strided::Results results[num_rows];
#pragma unroll
  for (int r = 0; r < num_rows; ++r) results[r] = strided.finish(totals[r], own[r]);
  with_constant(strided.log_softmax, [&](auto is_log) {
    for_all(keeps, [&](auto& columns, auto size, unsigned char* at) {
#pragma unroll
      for (int k = 0; k < decltype(size)::value; ++k) {
        A values[num_rows];
        uint32_t word[1];
        strided.template results_of<decltype(is_log)::value>(columns[k], results, values);
        narrow_words<T>(values, word);
        pack::store<4>(at + k * step, word);
      }
    });
  });
  store_segment<T>(params, segment, images);
}

}  // namespace flowk::softmax
