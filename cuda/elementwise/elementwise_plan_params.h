// SPDX-License-Identifier: Apache-2.0
// The parameters of a kernel of kOperands operands, from those of its plan.
#pragma once

#include <algorithm>

#include "elementwise/elementwise.h"

namespace flowk::elementwise {

template <int kOperands>
ContiguousElementwiseParams<kOperands> params_for(const ContiguousElementwiseParams<max_operands>& plan) {
  ContiguousElementwiseParams<kOperands> params = {};
  std::copy_n(plan.operands, kOperands, params.operands);
  params.num_packs = plan.num_packs;
  params.head = plan.head;
  params.num_edges = plan.num_edges;
  params.packs = plan.packs;
  return params;
}
template <int kOperands>
BroadcastElementwiseParams<kOperands> params_for(const BroadcastElementwiseParams<max_operands>& plan) {
  const ContiguousElementwiseParams<max_operands>& contiguous = plan;
  BroadcastElementwiseParams<kOperands> params = {params_for<kOperands>(contiguous), {}, plan.has_tables};
  std::copy_n(plan.periods, kOperands, params.periods);
  return params;
}
template <int kOperands>
StridedElementwiseParams<kOperands> params_for(const StridedElementwiseParams<max_operands>& plan) {
  StridedElementwiseParams<kOperands> params = {};
  params.count = plan.count;
  params.misalignment = plan.misalignment;
  const auto& rows = plan.rows;
  const auto& tile = plan.tile;
  params.rows.row_elements = rows.row_elements;
  params.rows.packs_per_row = rows.packs_per_row;
  params.rows.num_packs = rows.num_packs;
  params.rows.num_dims = rows.num_dims;
  for (int d = 0; d < rows.num_dims; ++d) {
    params.rows.dims[d] = rows.dims[d];
    for (int k = 0; k < kOperands; ++k) params.rows.strides[d][k] = rows.strides[d][k];
  }
  params.tile.halo = tile.halo;
  params.tile.tiles_per_row = tile.tiles_per_row;
  params.tile.tiles_per_column = tile.tiles_per_column;
  params.tile.rows_per_thread = tile.rows_per_thread;
  params.tile.column_elements = tile.column_elements;
  for (int k = 0; k < kOperands; ++k) {
    params.operands[k] = plan.operands[k];
    params.tile.row_strides[k] = tile.row_strides[k];
    params.tile.pass_strides[k] = tile.pass_strides[k];
    params.tile.shared_offset[k] = tile.shared_offset[k];
    params.tile.pitch[k] = tile.pitch[k];
    params.tile.swizzle_shift[k] = tile.swizzle_shift[k];
    params.tile.swizzle_bits[k] = tile.swizzle_bits[k];
  }
  return params;
}

}  // namespace flowk::elementwise
