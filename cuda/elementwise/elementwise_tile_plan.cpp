// SPDX-License-Identifier: Apache-2.0
// Plans of rows and tiles: what both share, and tiles for inputs whose neighbours stand along another dimension.
#include <algorithm>

#include "core/divide.h"
#include "elementwise/elementwise_problem.h"

namespace flowk {
namespace {

// A dimension shorter than this is no side of a tile.
constexpr int64_t shortest_tile_side = 8;

template <int kN>
void set_tile_shape(ElementwisePlan* plan) {
  plan->tile_rows = ElementwiseTileShape<kN>::rows;
  plan->tile_columns = ElementwiseTileShape<kN>::columns;
}
void set_tile_shape(ElementwisePlan* plan) {
  switch (plan->pack_elements) {
    case 2: return set_tile_shape<2>(plan);
    case 4: return set_tile_shape<4>(plan);
    case 8: return set_tile_shape<8>(plan);
    default: return set_tile_shape<16>(plan);
  }
}

// Are all rows whole aligned packs, in every operand that has them, and do the runs that would be staged stand at
// multiples of 16 bytes?
bool has_aligned_tiles(const Problem& problem, int dim, const ElementwisePlan& plan) {
  const auto& operands = plan.strided.operands;
  if (operands[0].step != int64_t{1} << operands[0].element_shift ||
      problem.shape.extents[problem.inner] % plan.pack_elements != 0)
    return false;
  for (int k = 0; k < problem.num_operands; ++k) {
    const int64_t element_bytes = int64_t{1} << operands[k].element_shift;
    if (operands[k].step == element_bytes) {
      if (!rows_are_aligned(problem, operands[k], k, plan.pack_elements * element_bytes, -1)) return false;
      continue;
    }
    if (operands[k].step == 0) continue;
    if (problem.shape.strides[k][dim] != element_bytes || operands[k].step % 16 != 0 ||
        !rows_are_aligned(problem, operands[k], k, 16, dim))
      return false;
  }
  return true;
}

// Lays a staged operand out in shared memory.
void place_staged(int k, bool is_aligned, ElementwisePlan* plan) {
  auto& tile = plan->strided.tile;
  const ElementwiseOperand& operand = plan->strided.operands[k];
  const int32_t run_bytes = plan->tile_rows << operand.element_shift;
  tile.shared_offset[k] = plan->launch.shared_bytes;
  if (is_aligned) {
    tile.pitch[k] = std::max(run_bytes, 128);
  } else {
    // Runs share no chunk, and their places agree with memory modulo 16.
    const int32_t least = run_bytes + 15;
    tile.pitch[k] = least + static_cast<int32_t>((operand.step - least) & 15);
    // Packs of a row are a power of two apart, times an odd number: its multiples meet in the same banks from 32 bytes
    // on, and differ in the bits from there, which the chunk is XORed with.
    const int shift = __builtin_ctz(static_cast<unsigned>(tile.pitch[k] * plan->pack_elements));
    tile.swizzle_shift[k] = std::max(shift - 4, 0);
    tile.swizzle_bits[k] = shift > 4 ? 0x70 : 0;
  }
  const int32_t bytes = (plan->tile_columns + tile.halo) * tile.pitch[k] + (is_aligned ? 0 : 15);
  plan->launch.shared_bytes += (bytes + 127) / 128 * 128;
}

}  // namespace

bool rows_are_aligned(const Problem& problem, const ElementwiseOperand& operand, int k, int64_t bytes, int except) {
  bytes = std::min<int64_t>(bytes, 16);
  if (reinterpret_cast<intptr_t>(operand.data) % bytes != 0) return false;
  for (int d = 0; d < problem.shape.rank; ++d)
    if (d != except && d != problem.inner && problem.shape.strides[k][d] % bytes != 0) return false;
  return true;
}

void describe_rows(const Problem& problem, int except, ElementwiseRows<max_operands>* rows) {
  rows->row_elements = Divider(static_cast<uint32_t>(problem.shape.extents[problem.inner]));
  for (int d = problem.inner - 1; d >= 0; --d) {
    if (d == except) continue;
    const int at = rows->num_dims++;
    rows->dims[at] = Divider(static_cast<uint32_t>(problem.shape.extents[d]));
    for (int k = 0; k < problem.num_operands; ++k) rows->strides[at][k] = problem.shape.strides[k][d];
  }
}

ElementwiseAccess access_in_rows(const Problem& problem, const ElementwiseOperand& operand, int k,
                                 int32_t pack_elements, bool packs_start_whole) {
  const int64_t element_bytes = int64_t{1} << operand.element_shift;
  if (operand.step == 0) return ElementwiseAccess::splat;
  if (operand.step != element_bytes) return ElementwiseAccess::gather;
  const int64_t pack_bytes = pack_elements * element_bytes;
  if (packs_start_whole && rows_are_aligned(problem, operand, k, pack_bytes, -1)) return ElementwiseAccess::aligned;
  return pack_bytes < 4 ? ElementwiseAccess::gather : ElementwiseAccess::shifted;
}

int staged_dim(const Problem& problem, const ElementwiseOperand* operands) {
  if (problem.shape.extents[problem.inner] < shortest_tile_side) return -1;
  int found = -1, most = 0;
  for (int d = 0; d < problem.inner; ++d) {
    if (problem.shape.extents[d] < shortest_tile_side) continue;
    int num = 0;
    for (int k = 1; k < problem.num_operands; ++k) {
      const int64_t element_bytes = int64_t{1} << operands[k].element_shift;
      num += operands[k].step != 0 && operands[k].step != element_bytes && problem.shape.strides[k][d] == element_bytes;
    }
    if (num > most) {
      found = d;
      most = num;
    }
  }
  return found;
}

void plan_tiles(const Problem& problem, int dim, ElementwisePlan* plan) {
  auto& params = plan->strided;
  auto& tile = params.tile;
  const bool is_aligned = has_aligned_tiles(problem, dim, *plan);
  plan->kernel = is_aligned ? ElementwiseKernel::aligned_tiles : ElementwiseKernel::shifted_tiles;
  describe_rows(problem, dim, &params.rows);
  set_tile_shape(plan);
  tile.column_elements = static_cast<uint32_t>(problem.shape.extents[dim]);
  const ElementwiseOperand& out = params.operands[0];
  const int64_t out_bytes = int64_t{1} << out.element_shift;
  const bool has_whole_packs =
      out.step != out_bytes || rows_are_aligned(problem, out, 0, plan->pack_elements * out_bytes, -1);
  tile.halo = has_whole_packs ? 0 : plan->pack_elements - 1;
  const int64_t num_columns = ceil_div(problem.shape.extents[problem.inner] + tile.halo, plan->tile_columns);
  const int64_t num_rows = ceil_div(problem.shape.extents[dim], plan->tile_rows);
  tile.tiles_per_row = Divider(static_cast<uint32_t>(num_columns));
  tile.tiles_per_column = Divider(static_cast<uint32_t>(num_rows));
  for (int k = 0; k < problem.num_operands; ++k) {
    ElementwiseOperand& operand = params.operands[k];
    const int64_t element_bytes = int64_t{1} << operand.element_shift;
    operand.is_linear = false;
    tile.row_strides[k] = problem.shape.strides[k][dim];
    operand.access = access_in_rows(problem, operand, k, plan->pack_elements, has_whole_packs);
    if (k == 0) {
      operand.access = operand.step == element_bytes ? ElementwiseAccess::aligned : ElementwiseAccess::gather;
    } else if (operand.access == ElementwiseAccess::gather && operand.step != element_bytes &&
               tile.row_strides[k] == element_bytes) {
      operand.access = ElementwiseAccess::staged;
      place_staged(k, is_aligned, plan);
    }
  }
  int64_t num_tiles = num_columns * num_rows;
  for (int d = 0; d < problem.inner; ++d)
    if (d != dim) num_tiles *= problem.shape.extents[d];
  plan->launch.num_blocks = num_tiles;
}

}  // namespace flowk
