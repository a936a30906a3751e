// SPDX-License-Identifier: Apache-2.0
// The parameters of a kernel of kOperands operands, from a plan.
#pragma once

#include "elementwise/elementwise.h"

namespace flowk::elementwise {

template <int kOperands>
ContiguousElementwiseParams<kOperands> contiguous_params(const ElementwisePlan& plan) {
  ContiguousElementwiseParams<kOperands> params = {};
  for (int k = 0; k < kOperands; ++k) params.operands[k] = plan.linear.operands[k];
  params.num_packs = plan.linear.num_packs;
  params.head = plan.linear.head;
  params.num_edges = plan.linear.num_edges;
  params.packs = plan.linear.packs;
  return params;
}
template <int kOperands>
BroadcastElementwiseParams<kOperands> broadcast_params(const ElementwisePlan& plan) {
  BroadcastElementwiseParams<kOperands> params = {};
  static_cast<ContiguousElementwiseParams<kOperands>&>(params) = contiguous_params<kOperands>(plan);
  for (int k = 0; k < kOperands; ++k) params.periods[k] = plan.periods[k];
  params.has_tables = plan.launch.shared_bytes > 0;
  return params;
}
template <int kOperands>
StridedElementwiseParams<kOperands> strided_params(const ElementwisePlan& plan) {
  StridedElementwiseParams<kOperands> params = {};
  params.count = plan.strided.count;
  params.lead = plan.strided.lead;
  const auto& rows = plan.strided.rows;
  const auto& tile = plan.strided.tile;
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
    params.operands[k] = plan.strided.operands[k];
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
