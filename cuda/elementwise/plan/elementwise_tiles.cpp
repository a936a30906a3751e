// SPDX-License-Identifier: Apache-2.0
// The plans of broadcast_rows, aligned_tiles and shifted_tiles; and the rows and the accesses in rows that
// plan_strided() describes too.
#include <algorithm>

#include "core/divide.h"
#include "elementwise/elementwise_op_info.h"
#include "elementwise/plan/elementwise_problem.h"

namespace flowk::elementwise {
namespace {

// Tiles are of dimensions that are at least this long. Not measured.
constexpr int64_t min_tile_extent = 8;

// Returns the rows that a block computes at once.
template <int kN>
int32_t set_tile_shape(Tiles* tiles) {
  using Shape = ElementwiseTileShape<kN>;
  tiles->tile_rows = Shape::rows;
  tiles->tile_columns = Shape::columns;
  return Shape::rows_per_pass;
}
int32_t set_tile_shape(int32_t pack_elements, Tiles* tiles) {
  switch (pack_elements) {
    case 2: return set_tile_shape<2>(tiles);
    case 4: return set_tile_shape<4>(tiles);
    case 8: return set_tile_shape<8>(tiles);
    default: return set_tile_shape<16>(tiles);
  }
}

// Do the operands with neighbours in a row have rows of whole aligned packs, and do all staged runs begin at multiples
// of 16 bytes?
bool has_aligned_tiles(const Problem& problem, int dim, int32_t pack_elements) {
  const auto& operands = problem.operands;
  if (operands[0].step != int64_t{1} << operands[0].element_shift ||
      problem.shape.extents[problem.inner] % pack_elements != 0)
    return false;
  for (int k = 0; k < problem.num_operands; ++k) {
    const int64_t element_bytes = int64_t{1} << operands[k].element_shift;
    if (operands[k].step == element_bytes) {
      if (!rows_are_aligned(problem, operands[k], k, pack_elements * element_bytes, -1)) return false;
      continue;
    }
    if (operands[k].step == 0) continue;
    if (problem.shape.strides[k][dim] != element_bytes || operands[k].step % vector_bytes != 0 ||
        !rows_are_aligned(problem, operands[k], k, vector_bytes, dim))
      return false;
  }
  return true;
}

// Reserves the shared memory of a staged operand of aligned tiles.
void reserve_aligned(int k, Tiles* tiles, int32_t* shared_bytes) {
  StridedOperand& operand = tiles->params.operands[k];
  operand.pitch = aligned_run_bytes(tiles->tile_rows, 1 << operand.element_shift);
  operand.shared_offset = *shared_bytes;
  *shared_bytes += tiles->tile_columns * operand.pitch;
}

// The same for shifted tiles, whose runs share no vector. A run has the same address modulo a sector as in global
// memory, so that a sector is read at once.
void reserve_shifted(int k, int32_t pack_elements, Tiles* tiles, int32_t* shared_bytes) {
  StridedOperand& operand = tiles->params.operands[k];
  const bool are_rows = operand.access == ElementwiseAccess::staged_rows;
  const int32_t columns = tiles->tile_columns + tiles->params.tile.halo;
  const int32_t run_bytes = (are_rows ? columns : tiles->tile_rows) << operand.element_shift;
  const int64_t step = are_rows ? operand.row_stride : operand.step;
  const int32_t min_pitch = run_bytes + sector_bytes - 1;
  operand.pitch = min_pitch + static_cast<int32_t>((step - min_pitch) & (sector_bytes - 1));
  // The packs of a row are 2^shift bytes apart, times an odd number. From a line on they have the same banks and differ
  // in the bits above, so the vector is XORed with those bits. Below a line at most 4 packs share a bank, and the XOR
  // costs more than the conflicts.
  const int shift = __builtin_ctz(static_cast<unsigned>(operand.pitch * pack_elements));
  if (!are_rows && shift >= 7) {
    operand.swizzle_shift = shift - 4;
    operand.swizzle_bits = vector_in_line_bits;
  }
  operand.shared_offset = *shared_bytes;
  // A pack is cut from two accesses; the second may begin where the last run ends.
  const int32_t bytes = (are_rows ? tiles->tile_rows : columns) * operand.pitch + 2 * sector_bytes;
  *shared_bytes += static_cast<int32_t>(round_up(bytes, line_bytes));
}

}  // namespace

bool rows_are_aligned(const Problem& problem, const ElementwiseOperand& operand, int k, int64_t bytes, int except) {
  bytes = std::min<int64_t>(bytes, vector_bytes);
  if (reinterpret_cast<intptr_t>(operand.data) % bytes != 0) return false;
  for (int d = 0; d < problem.shape.rank; ++d)
    if (d != except && d != problem.inner && problem.shape.strides[k][d] % bytes != 0) return false;
  return true;
}

void describe_rows(const Problem& problem, int except, StridedElementwiseParams<max_operands>* params) {
  for (int k = 0; k < problem.num_operands; ++k)
    static_cast<ElementwiseOperand&>(params->operands[k]) = problem.operands[k];
  ElementwiseRows* const rows = &params->rows;
  rows->row_elements = Divider(static_cast<uint32_t>(problem.shape.extents[problem.inner]));
  const int outermost = except == 0 ? 1 : 0;
  rows->num_dims = 1;
  for (int d = problem.inner - 1; d >= 0; --d) {
    if (d == except) continue;
    const int at = d == outermost ? 0 : rows->num_dims++;
    rows->dims[at] = Divider(static_cast<uint32_t>(problem.shape.extents[d]));
    for (int k = 0; k < problem.num_operands; ++k) params->operands[k].strides[at] = problem.shape.strides[k][d];
  }
}

ElementwiseAccess access_in_rows(const Problem& problem, const ElementwiseOperand& operand, int k,
                                 int32_t pack_elements, bool packs_start_whole) {
  const int64_t element_bytes = int64_t{1} << operand.element_shift;
  if (operand.step == 0) return ElementwiseAccess::one_element;
  if (operand.step != element_bytes) return ElementwiseAccess::gather;
  const int64_t pack_bytes = pack_elements * element_bytes;
  if (packs_start_whole && rows_are_aligned(problem, operand, k, pack_bytes, -1)) return ElementwiseAccess::aligned;
  return pack_bytes < 4 ? ElementwiseAccess::gather : ElementwiseAccess::shifted;
}

int staged_dim(const Problem& problem) {
  if (problem.shape.extents[problem.inner] < min_tile_extent) return -1;
  int staged = -1, max_inputs = 0;
  for (int d = 0; d < problem.inner; ++d) {
    if (problem.shape.extents[d] < min_tile_extent) continue;
    int num = 0;
    for (int k = 1; k < problem.num_operands; ++k) {
      const ElementwiseOperand& operand = problem.operands[k];
      const int64_t element_bytes = int64_t{1} << operand.element_shift;
      num += operand.step != 0 && operand.step != element_bytes && problem.shape.strides[k][d] == element_bytes;
    }
    if (num > max_inputs) {
      staged = d;
      max_inputs = num;
    }
  }
  return staged;
}

bool plan_broadcast_rows(const Problem& problem, const Device& device, ElementwisePlan* plan) {
  const int dim = problem.inner - 1;
  const int64_t row_elements = problem.shape.extents[problem.inner];
  if (problem.num_operands < 3 || dim < 0 || row_elements % plan->pack_elements != 0) return false;
  const int64_t num_rows = problem.shape.extents[dim];
  bool has_shared_row = false;
  for (int k = 0; k < problem.num_operands; ++k) {
    const ElementwiseOperand& operand = problem.operands[k];
    const int64_t element_bytes = int64_t{1} << operand.element_shift;
    if (k > 0 && operand.step == 0) continue;
    // With an input that has elements of its own in every row, broadcast is faster.
    const bool has_own_rows = k > 0 && problem.shape.strides[k][dim] != 0;
    if (operand.step != element_bytes || has_own_rows ||
        !rows_are_aligned(problem, operand, k, plan->pack_elements * element_bytes, -1))
      return false;
    has_shared_row |= k > 0 && !has_own_rows;
  }
  const int64_t packs_per_row = row_elements / plan->pack_elements;
  const int64_t num_row_batches = ceil_div(num_rows, broadcast_rows_per_thread);
  const int64_t num_items = problem.count / row_elements / num_rows * packs_per_row * num_row_batches;
  if (!has_shared_row || num_rows < broadcast_rows_per_thread || num_items < small_problem_items(device)) return false;
  auto& params = plan->mechanism.emplace<BroadcastRows>().params;
  auto& tile = params.tile;
  describe_rows(problem, dim, &params);
  params.rows.num_items = static_cast<uint32_t>(num_items);
  tile.tiles_per_row = Divider(static_cast<uint32_t>(packs_per_row));
  tile.tiles_per_column = Divider(static_cast<uint32_t>(num_row_batches));
  tile.column_elements = static_cast<uint32_t>(num_rows);
  params.rows.packs = broadcast_rows_per_thread;
  for (int k = 0; k < problem.num_operands; ++k) {
    StridedOperand& operand = params.operands[k];
    operand.access = operand.step == 0 ? ElementwiseAccess::one_element : ElementwiseAccess::aligned;
    operand.is_linear = false;
    operand.row_stride = problem.shape.strides[k][dim];
  }
  plan->launch.num_blocks = ceil_div(num_items, elementwise_threads);
  return true;
}

bool plan_tiles(const Problem& problem, int dim, ElementwisePlan* plan) {
  const bool is_aligned = has_aligned_tiles(problem, dim, plan->pack_elements);
  Tiles& tiles = is_aligned ? static_cast<Tiles&>(plan->mechanism.emplace<AlignedTiles>())
                            : plan->mechanism.emplace<ShiftedTiles>();
  auto& params = tiles.params;
  auto& tile = params.tile;
  describe_rows(problem, dim, &params);
  const int32_t rows_per_pass = set_tile_shape(plan->pack_elements, &tiles);
  int32_t* const shared_bytes = &plan->launch.shared_bytes;
  tile.column_elements = static_cast<uint32_t>(problem.shape.extents[dim]);
  const ElementwiseOperand& out = params.operands[0];
  const int64_t out_bytes = int64_t{1} << out.element_shift;
  const bool has_whole_packs =
      out.step != out_bytes || rows_are_aligned(problem, out, 0, plan->pack_elements * out_bytes, -1);
  tile.halo =
      has_whole_packs ? 0 : std::min(2 * plan->pack_elements, static_cast<int32_t>(sector_bytes / out_bytes)) - 1;
  const int64_t num_columns = ceil_div(problem.shape.extents[problem.inner] + tile.halo, tiles.tile_columns);
  const int64_t num_rows = ceil_div(problem.shape.extents[dim], tiles.tile_rows);
  tile.tiles_per_row = Divider(static_cast<uint32_t>(num_columns));
  tile.tiles_per_column = Divider(static_cast<uint32_t>(num_rows));
  for (int k = 0; k < problem.num_operands; ++k) {
    StridedOperand& operand = params.operands[k];
    const int64_t element_bytes = int64_t{1} << operand.element_shift;
    operand.is_linear = false;
    operand.row_stride = problem.shape.strides[k][dim];
    operand.pass_stride = operand.row_stride * rows_per_pass;
    operand.access = access_in_rows(problem, operand, k, plan->pack_elements, has_whole_packs);
    if (k == 0) {
      operand.access = operand.step == element_bytes ? ElementwiseAccess::aligned : ElementwiseAccess::gather;
    } else if (operand.access == ElementwiseAccess::gather && operand.step != element_bytes &&
               operand.row_stride == element_bytes) {
      operand.access = ElementwiseAccess::staged;
      if (is_aligned)
        reserve_aligned(k, &tiles, shared_bytes);
      else
        reserve_shifted(k, plan->pack_elements, &tiles, shared_bytes);
    } else if (!is_aligned && operand.step == element_bytes && operand.access != ElementwiseAccess::gather) {
      operand.access = ElementwiseAccess::staged_rows;
      reserve_shifted(k, plan->pack_elements, &tiles, shared_bytes);
    }
  }
  int64_t num_tiles = num_columns * num_rows;
  for (int d = 0; d < problem.inner; ++d)
    if (d != dim) num_tiles *= problem.shape.extents[d];
  plan->launch.num_blocks = num_tiles;
  return true;
}

}  // namespace flowk::elementwise
