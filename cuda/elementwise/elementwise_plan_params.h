// SPDX-License-Identifier: Apache-2.0
// What a kernel of fewer operands than max_operands takes of a plan.
#pragma once

#include "elementwise/elementwise_plan.h"

namespace flowk {

template <int kOperands>
ElementwiseParams<kOperands> flat_params(const ElementwisePlan& plan) {
  ElementwiseParams<kOperands> params = {};
  for (int k = 0; k < kOperands; ++k) params.operands[k] = plan.params.operands[k];
  params.count = plan.params.count;
  params.lead = plan.params.lead;
  params.packs = 1;
  return params;
}
template <int kOperands>
PeriodicElementwiseParams<kOperands> periodic_params(const ElementwisePlan& plan) {
  PeriodicElementwiseParams<kOperands> params = {};
  static_cast<ElementwiseParams<kOperands>&>(params) = flat_params<kOperands>(plan);
  for (int k = 0; k < kOperands; ++k) params.periods[k] = plan.periods[k];
  params.has_tables = plan.launch.shared_bytes > 0;
  return params;
}
template <int kOperands>
StridedElementwiseParams<kOperands> strided_params(const ElementwisePlan& plan) {
  StridedElementwiseParams<kOperands> params = {};
  static_cast<ElementwiseParams<kOperands>&>(params) = flat_params<kOperands>(plan);
  const auto& rows = plan.params.rows;
  const auto& tile = plan.params.tile;
  params.rows.row_elements = rows.row_elements;
  params.rows.packs_per_row = rows.packs_per_row;
  params.rows.num_packs = rows.num_packs;
  params.rows.num_dims = rows.num_dims;
  for (int d = 0; d < rows.num_dims; ++d) {
    params.rows.dims[d] = rows.dims[d];
    for (int k = 0; k < kOperands; ++k) params.rows.strides[d][k] = rows.strides[d][k];
  }
  params.tile.rows = tile.rows;
  params.tile.columns = tile.columns;
  params.tile.halo = tile.halo;
  params.tile.tiles_per_row = tile.tiles_per_row;
  params.tile.tiles_per_column = tile.tiles_per_column;
  params.tile.column_elements = tile.column_elements;
  for (int k = 0; k < kOperands; ++k) {
    params.tile.row_strides[k] = tile.row_strides[k];
    params.tile.shared_offset[k] = tile.shared_offset[k];
    params.tile.pitch[k] = tile.pitch[k];
    params.tile.chunked[k] = tile.chunked[k];
  }
  return params;
}

}  // namespace flowk
