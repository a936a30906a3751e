// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_plan.h"

#include <algorithm>

#include "core/divide.h"

namespace flowk {
namespace {

// A tile's elements along the staged inputs' neighbours (rows) and along the output's (columns), by the bytes of the
// widest operand: runs of 128 to 256 bytes on both sides, which reach 0.86-0.93 of the best tile's speed each where 64
// reach 0.67-0.73 (permute's tiles, H200).
struct TileShape {
  int32_t rows, columns;
};
constexpr TileShape tile_shapes[4] = {{128, 128}, {64, 128}, {64, 64}, {32, 32}};

// A dimension shorter than this is no side of a tile.
constexpr int64_t shortest_tile_side = 8;

// Bytes by which a staged run's pitch passes its elements: an odd number of words, or of elements where they are wider,
// so that neighbours along a row of the output stand in different banks.
constexpr int32_t pitch_padding = 4;

struct Problem {
  OperandShape shape;  // strides in bytes
  int num_operands;
  int inner;  // the innermost dimension, -1: one element
  int64_t count;
};

// The pack is as many elements as the widest operand has in 16 bytes. One such unit a thread reaches 1.00 of
// cudaMemcpyAsync, 2 units 0.98 (H200).
int32_t choose_pack(const ElementwiseRequest& request) {
  int32_t widest = 0;
  for (int k = 0; k < request.shape.num_operands; ++k) widest = std::max(widest, request.element_shifts[k]);
  return 16 >> widest;
}

bool is_linear(const Problem& problem, int k, int64_t element_bytes) {
  int64_t stride = element_bytes;
  for (int d = problem.shape.rank - 1; d >= 0; --d) {
    if (problem.shape.strides[k][d] != stride) return false;
    stride *= problem.shape.extents[d];
  }
  return true;
}

// Is every row of operand k, and its first element, at a multiple of `bytes`? Dimension `except` aside.
bool rows_are_aligned(const Problem& problem, const ElementwiseOperand& operand, int k, int64_t bytes, int except) {
  bytes = std::min<int64_t>(bytes, 16);
  if (reinterpret_cast<intptr_t>(operand.data) % bytes != 0) return false;
  for (int d = 0; d < problem.shape.rank; ++d)
    if (d != except && d != problem.inner && problem.shape.strides[k][d] % bytes != 0) return false;
  return true;
}

void describe_operand(const ElementwiseRequest& request, const Problem& problem, int k, ElementwiseOperand* operand) {
  const int64_t element_bytes = int64_t{1} << request.element_shifts[k];
  operand->data =
      static_cast<unsigned char*>(const_cast<void*>(request.pointers[k])) + problem.shape.offsets[k] * element_bytes;
  int64_t lowest = 0, highest = element_bytes;
  for (int d = 0; d < problem.shape.rank; ++d) {
    const int64_t span = problem.shape.strides[k][d] * (problem.shape.extents[d] - 1);
    (span < 0 ? lowest : highest) += span;
  }
  operand->begin = operand->data + lowest;
  operand->end = operand->data + highest;
  operand->step = problem.inner >= 0 ? problem.shape.strides[k][problem.inner] : 0;
  operand->dtype = request.dtypes[k];
  operand->element_shift = request.element_shifts[k];
  operand->is_linear = is_linear(problem, k, element_bytes);
}

// The rows' dimensions but for `except`, innermost first.
void describe_rows(const Problem& problem, int except, ElementwiseRows<max_operands>* rows) {
  rows->row_elements = Divider(static_cast<uint32_t>(problem.shape.extents[problem.inner]));
  for (int d = problem.inner - 1; d >= 0; --d) {
    if (d == except) continue;
    const int at = rows->num_dims++;
    rows->dims[at] = Divider(static_cast<uint32_t>(problem.shape.extents[d]));
    for (int k = 0; k < problem.num_operands; ++k) rows->strides[at][k] = problem.shape.strides[k][d];
  }
}

// How input k is loaded where packs start at multiples of `pack_elements` in every row (`packs_start_whole`).
ElementwiseAccess access_in_rows(const Problem& problem, const ElementwiseOperand& operand, int k,
                                 int32_t pack_elements, bool packs_start_whole) {
  const int64_t element_bytes = int64_t{1} << operand.element_shift;
  if (operand.step == 0) return ElementwiseAccess::splat;
  if (operand.step != element_bytes) return ElementwiseAccess::gather;
  const int64_t pack_bytes = pack_elements * element_bytes;
  if (packs_start_whole && rows_are_aligned(problem, operand, k, pack_bytes, -1)) return ElementwiseAccess::aligned;
  return pack_bytes < 4 ? ElementwiseAccess::gather : ElementwiseAccess::shifted;
}

// The dimension along which most inputs that have no neighbours in a row have them: -1 if there is none.
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

template <int kN>
constexpr TileShape aligned_tile() {
  return {AlignedTile<kN>::rows, AlignedTile<kN>::columns};
}
TileShape aligned_tile_of(int32_t pack_elements) {
  switch (pack_elements) {
    case 2: return aligned_tile<2>();
    case 4: return aligned_tile<4>();
    case 8: return aligned_tile<8>();
    default: return aligned_tile<16>();
  }
}

// Are all rows whole aligned packs, in every operand that has them, and do the runs that would be staged stand at
// multiples of 16 bytes?
bool has_aligned_tiles(const Problem& problem, int dim, const ElementwisePlan& plan) {
  const auto& operands = plan.params.operands;
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

void plan_tiles(const Problem& problem, int dim, int32_t widest_shift, ElementwisePlan* plan) {
  auto& params = plan->params;
  auto& tile = params.tile;
  const bool is_aligned = has_aligned_tiles(problem, dim, *plan);
  plan->kernel = is_aligned ? ElementwiseKernel::aligned_tiles : ElementwiseKernel::staged_tiles;
  if (!is_aligned) plan->pack_elements = std::min(plan->pack_elements, 8);
  describe_rows(problem, dim, &params.rows);
  const TileShape shape = is_aligned ? aligned_tile_of(plan->pack_elements) : tile_shapes[widest_shift];
  tile.rows = shape.rows;
  tile.columns = shape.columns;
  tile.column_elements = static_cast<uint32_t>(problem.shape.extents[dim]);
  const ElementwiseOperand& out = params.operands[0];
  const int64_t out_bytes = int64_t{1} << out.element_shift;
  const bool has_whole_packs =
      out.step != out_bytes || rows_are_aligned(problem, out, 0, plan->pack_elements * out_bytes, -1);
  tile.halo = has_whole_packs ? 0 : plan->pack_elements - 1;
  const int64_t num_columns = ceil_div(problem.shape.extents[problem.inner] + tile.halo, tile.columns);
  const int64_t num_rows = ceil_div(problem.shape.extents[dim], tile.rows);
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
      tile.shared_offset[k] = plan->launch.shared_bytes;
      tile.pitch[k] = tile.rows * static_cast<int32_t>(element_bytes) +
                      std::max(pitch_padding, static_cast<int32_t>(element_bytes));
      tile.chunked[k] = operand.step % 16 == 0 && rows_are_aligned(problem, operand, k, 16, dim);
      plan->launch.shared_bytes += ((tile.columns + tile.halo) * tile.pitch[k] + 15) / 16 * 16;
    }
  }
  int64_t num_tiles = num_columns * num_rows;
  for (int d = 0; d < problem.inner; ++d)
    if (d != dim) num_tiles *= problem.shape.extents[d];
  plan->launch.num_blocks = num_tiles;
}

void plan_rows(const Problem& problem, ElementwisePlan* plan) {
  auto& params = plan->params;
  ElementwiseOperand& out = params.operands[0];
  const int32_t pack_elements = plan->pack_elements;
  const int64_t out_bytes = int64_t{1} << out.element_shift;
  const int64_t row_elements = problem.shape.extents[problem.inner];
  plan->kernel = ElementwiseKernel::strided_packs;
  describe_rows(problem, -1, &params.rows);
  out.access = out.step == out_bytes ? ElementwiseAccess::aligned : ElementwiseAccess::gather;
  bool packs_start_whole = rows_are_aligned(problem, out, 0, pack_elements * out_bytes, -1);
  int64_t num_packs = 0;
  if (out.is_linear) {
    params.lead = lead_of(out.data, out.element_shift, pack_elements);
    packs_start_whole = params.lead == 0 && row_elements % pack_elements == 0;
    num_packs = ceil_div(problem.count + params.lead, pack_elements);
  } else {
    packs_start_whole = packs_start_whole || out.access == ElementwiseAccess::gather;
    const int64_t packs_per_row = ceil_div(row_elements + (packs_start_whole ? 0 : pack_elements - 1), pack_elements);
    params.rows.packs_per_row = Divider(static_cast<uint32_t>(packs_per_row));
    num_packs = problem.count / row_elements * packs_per_row;
    params.rows.num_packs = static_cast<uint32_t>(num_packs);
  }
  for (int k = 1; k < problem.num_operands; ++k) {
    ElementwiseOperand& operand = params.operands[k];
    const int64_t element_bytes = int64_t{1} << operand.element_shift;
    // A linear operand follows the packs of a linear output over the ends of rows.
    if (out.is_linear && operand.is_linear) {
      operand.access = contiguous_access(reinterpret_cast<intptr_t>(operand.data) - params.lead * element_bytes,
                                         pack_elements * element_bytes);
    } else {
      operand.is_linear = false;
      operand.access = access_in_rows(problem, operand, k, pack_elements, packs_start_whole);
    }
  }
  plan->launch.num_blocks = ceil_div(num_packs, elementwise_threads);
}

// A longer period is read in place: of 2048 bytes one pack in 128 goes over the end, and so a warp in 4 takes elements
// one by one; shorter ones cost a block less to copy than the packs that it stores, 4096 bytes.
constexpr int64_t longest_table_bytes = 2048;

// Input k as (i / repeat) % period of a run of step `operand->step`, if it is one.
bool describe_period(const Problem& problem, int k, ElementwiseOperand* operand, int64_t* repeat, int64_t* period) {
  *repeat = *period = 1;
  int64_t next = 0;  // the stride that would go on with the run
  bool has_ended = false;
  for (int d = problem.shape.rank - 1; d >= 0; --d) {
    const int64_t extent = problem.shape.extents[d], stride = problem.shape.strides[k][d];
    if (stride == 0) {
      if (next == 0)
        *repeat *= extent;
      else
        has_ended = true;
    } else if (!has_ended && (next == 0 || stride == next)) {
      if (next == 0) operand->step = stride;
      *period *= extent;
      next = stride * extent;
    } else {
      return false;
    }
  }
  return true;
}

// Leaves a plan of the periodic kernel, if every input is linear, periodic or one element.
bool plan_periods(const Problem& problem, ElementwisePlan* plan) {
  auto& params = plan->params;
  const int32_t pack_elements = plan->pack_elements;
  // A kernel of one input has no such form.
  if (problem.num_operands < 3 || !params.operands[0].is_linear) return false;
  const int32_t lead = lead_of(params.operands[0].data, params.operands[0].element_shift, pack_elements);
  ElementwiseOperand operands[max_operands];
  ElementwisePeriod periods[max_operands] = {};
  int32_t shared_bytes = 0;
  for (int k = 0; k < problem.num_operands; ++k) {
    ElementwiseOperand& operand = operands[k] = params.operands[k];
    const int64_t element_bytes = int64_t{1} << operand.element_shift;
    const int64_t pack_bytes = pack_elements * element_bytes;
    if (operand.is_linear) {
      operand.step = element_bytes;
      operand.access = contiguous_access(reinterpret_cast<intptr_t>(operand.data) - lead * element_bytes, pack_bytes);
      continue;
    }
    int64_t repeat = 1, period = 1;
    if (!describe_period(problem, k, &operand, &repeat, &period)) return false;
    if (period == 1) {
      operand.step = 0;
      operand.access = ElementwiseAccess::splat;
      continue;
    }
    periods[k].repeat = Divider(static_cast<uint32_t>(repeat));
    periods[k].period = Divider(static_cast<uint32_t>(period));
    periods[k].lead = static_cast<uint32_t>(ceil_div(lead, repeat * period) * repeat * period);
    if (repeat > 1 || operand.step != element_bytes) {
      operand.access = ElementwiseAccess::repeated;
    } else if (lead == 0 && period % pack_elements == 0 &&
               contiguous_access(reinterpret_cast<intptr_t>(operand.data), pack_bytes) == ElementwiseAccess::aligned) {
      operand.access = ElementwiseAccess::cycled_packs;
    } else if (period * element_bytes <= longest_table_bytes) {
      operand.access = ElementwiseAccess::cycled_table;
      periods[k].table_offset = shared_bytes;
      periods[k].table_elements = static_cast<uint32_t>(period + pack_elements + 4);
      shared_bytes += static_cast<int32_t>((periods[k].table_elements * element_bytes + 15) / 16 * 16);
    } else {
      operand.access = ElementwiseAccess::cycled;
    }
  }
  plan->kernel = ElementwiseKernel::periodic_packs;
  params.lead = lead;
  for (int k = 0; k < problem.num_operands; ++k) {
    params.operands[k] = operands[k];
    plan->periods[k] = periods[k];
  }
  params.operands[0].access = ElementwiseAccess::aligned;
  plan->launch.shared_bytes = shared_bytes;
  plan->launch.num_blocks = ceil_div(ceil_div(problem.count + lead, pack_elements), elementwise_threads);
  return true;
}

Problem make_problem(const ElementwiseRequest& request) {
  Problem problem = {request.shape, request.shape.num_operands, request.shape.rank - 1, 1};
  for (int d = 0; d < problem.shape.rank; ++d) {
    problem.count *= problem.shape.extents[d];
    for (int k = 0; k < problem.num_operands; ++k)
      problem.shape.strides[k][d] *= int64_t{1} << request.element_shifts[k];
  }
  return problem;
}

void enter_numbers(const ElementwiseRequest& request, ElementwiseParams<max_operands>* params) {
  for (int k = 1; k < request.shape.num_operands; ++k) {
    if (!request.is_number[k]) continue;
    params->operands[k].access = ElementwiseAccess::number;
    for (int w = 0; w < 2; ++w) params->operands[k].number[w] = request.numbers[k][w];
  }
}

bool is_flat(const Problem& problem, const ElementwiseRequest& request) {
  if (problem.shape.rank == 0) return true;
  if (problem.shape.rank > 1) return false;
  for (int k = 0; k < problem.num_operands; ++k) {
    const int64_t stride = problem.shape.strides[k][0];
    if (stride != int64_t{1} << request.element_shifts[k] && (k == 0 || stride != 0)) return false;
  }
  return true;
}

}  // namespace

bool needs_split(const ElementwiseRequest& request) {
  const Problem problem = make_problem(request);
  return problem.count > max_strided_elements && !is_flat(problem, request);
}

void split_request(const ElementwiseRequest& request, ElementwiseRequest* first, ElementwiseRequest* second) {
  *first = *second = request;
  int longest = 0;  // the outermost dimension, unless it is short
  for (int d = 0; d < request.shape.rank; ++d)
    if (request.shape.extents[d] > 1) {
      longest = d;
      break;
    }
  const int64_t half = request.shape.extents[longest] / 2;
  first->shape.extents[longest] = half;
  second->shape.extents[longest] -= half;
  for (int k = 0; k < request.shape.num_operands; ++k)
    second->shape.offsets[k] += half * request.shape.strides[k][longest];
  simplify(&first->shape);
  simplify(&second->shape);
}

void plan_elementwise(const ElementwiseRequest& request, const Device& device, int32_t pack_elements,
                      ElementwisePlan* plan) {
  *plan = {};
  plan->arity = request.arity;
  plan->compute = request.compute;
  plan->op = request.op;
  plan->a = request.a;
  plan->b = request.b;
  plan->launch.num_threads = elementwise_threads;
  plan->launch.overlaps_previous = device.capability >= 90;
  plan->pack_elements = pack_elements > 0 ? pack_elements : choose_pack(request);
  const Problem problem = make_problem(request);
  auto& params = plan->params;
  params.count = problem.count;
  for (int k = 0; k < problem.num_operands; ++k) describe_operand(request, problem, k, &params.operands[k]);
  if (is_flat(problem, request)) {
    plan->kernel = ElementwiseKernel::flat_packs;
    params.lead = lead_of(params.operands[0].data, request.element_shifts[0], plan->pack_elements);
    for (int k = 0; k < problem.num_operands; ++k)
      params.operands[k] = flat_operand(params.operands[k].data, problem.count,
                                        k > 0 && problem.inner >= 0 && problem.shape.strides[k][0] == 0,
                                        request.dtypes[k], request.element_shifts[k], plan->pack_elements, params.lead);
    plan->launch.num_blocks = ceil_div(ceil_div(problem.count + params.lead, plan->pack_elements), elementwise_threads);
    return enter_numbers(request, &params);
  }
  if (plan_periods(problem, plan)) return enter_numbers(request, &params);
  int32_t widest = 0;
  for (int k = 0; k < problem.num_operands; ++k) widest = std::max(widest, request.element_shifts[k]);
  const int dim = staged_dim(problem, params.operands);
  if (dim >= 0) {
    plan_tiles(problem, dim, widest, plan);
  } else {
    plan->pack_elements = std::min(plan->pack_elements, 8);  // that kernel has no longer ones
    plan_rows(problem, plan);
  }
  enter_numbers(request, &params);
}

}  // namespace flowk
