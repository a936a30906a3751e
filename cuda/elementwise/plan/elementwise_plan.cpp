// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel, and the plans of contiguous, broadcast and strided.
#include <algorithm>
#include <iterator>

#include "core/divide.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_op_info.h"
#include "elementwise/plan/elementwise_problem.h"

namespace flowk::elementwise {
namespace {

// Sets the pack of a kernel: 16 bytes of the widest operand, or the longest shorter one that the kernel is compiled
// for. False: the kernel has none.
bool choose_pack(const ElementwiseRequest& request, ElementwiseKernel kernel, ElementwisePlan* plan) {
  int32_t widest = 0;
  for (int k = 0; k < request.shape.num_operands; ++k) widest = std::max(widest, request.element_shifts[k]);
  plan->pack_elements = vector_bytes >> widest;
  if (request.arity == ElementwiseArity::functor) {
    if (kernel == ElementwiseKernel::strided)
      plan->pack_elements = std::min(plan->pack_elements, max_strided_pack_elements);
    return true;
  }
  for (; plan->pack_elements > 1; plan->pack_elements /= 2)
    if (has_kernel(kernel, request.arity, plan->compute, plan->pack_elements, cost_of(request))) return true;
  return false;
}

// Packs per thread. Two packs share the computation of an index, the switch over the operations and the latency of a
// heavy formula. One pack is faster for light operations on packs of 16 bytes, and for small problems.
int32_t choose_packs(const ElementwiseRequest& request, const Device& device, int64_t num_packs, int32_t pack_elements,
                     bool has_no_repeats) {
  if (num_packs <= small_problem_items(device)) return 1;
  if (!has_no_repeats || cost_of(request) != OpCost::light) return 2;
  for (int k = 1; k < request.shape.num_operands; ++k)
    if (request.element_shifts[k] != request.element_shifts[0]) return 2;
  return pack_elements << request.element_shifts[0] < 16 ? 2 : 1;
}

bool is_linear(const Problem& problem, int k, int64_t element_bytes) {
  int64_t stride = element_bytes;
  for (int d = problem.shape.rank - 1; d >= 0; --d) {
    if (problem.shape.strides[k][d] != stride) return false;
    stride *= problem.shape.extents[d];
  }
  return true;
}

void describe_operand(const ElementwiseRequest& request, int k, Problem* described) {
  const Problem& problem = *described;
  ElementwiseOperand* const operand = &described->operands[k];
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

// Adds an innermost dimension of one element.
Problem with_single_elements(Problem problem) {
  problem.inner = problem.shape.rank++;
  problem.shape.extents[problem.inner] = 1;
  for (int k = 0; k < problem.num_operands; ++k) {
    problem.operands[k].step = int64_t{1} << problem.operands[k].element_shift;
    problem.shape.strides[k][problem.inner] = problem.operands[k].step;
  }
  return problem;
}

// Distributes the packs of the rows over threads. The second pack of a thread is in another row with the same cuts into
// packs; if rows are few and long, it is in the same row.
void describe_packs(int64_t packs_per_row, int64_t num_rows, int32_t pack_elements,
                    StridedElementwiseParams<max_operands>* params) {
  ElementwiseRows* const rows = &params->rows;
  const int64_t extent = rows->dims[0].divisor, half = round_up(ceil_div(extent, 2), pack_elements);
  int64_t items_per_row = packs_per_row, num_items = num_rows * packs_per_row;
  if (rows->packs == 2 && 2 * half - extent <= extent / 8) {
    rows->pack_rows = static_cast<int32_t>(half);
    num_items = num_items / extent * half;
  } else if (rows->packs == 2 && packs_per_row >= min_split_row_packs) {
    items_per_row = ceil_div(packs_per_row, 2);
    rows->pack_columns = static_cast<int32_t>(items_per_row * pack_elements);
    num_items = num_rows * items_per_row;
  } else {
    rows->packs = 1;
    rows->pack_rows = static_cast<int32_t>(extent);  // past the last row: there is no second pack
  }
  rows->items_per_row = Divider(static_cast<uint32_t>(items_per_row));
  rows->num_items = static_cast<uint32_t>(num_items);
  for (StridedOperand& operand : params->operands)
    operand.pack_stride = rows->pack_columns * operand.step + rows->pack_rows * operand.strides[0];
}

void plan_strided(const Problem& problem, const Device& device, int32_t packs, ElementwisePlan* plan) {
  for (int k = 0; k < problem.num_operands; ++k)
    if (static_cast<int32_t>(problem.operands[k].step) != problem.operands[k].step)
      return plan_strided(with_single_elements(problem), device, packs, plan);
  auto& params = plan->mechanism.emplace<Strided>().params;
  describe_rows(problem, -1, &params);
  ElementwiseOperand& out = params.operands[0];
  const int32_t pack_elements = plan->pack_elements;
  const int64_t out_bytes = int64_t{1} << out.element_shift;
  const int64_t row_elements = problem.shape.extents[problem.inner];
  const bool is_aligned = rows_are_aligned(problem, out, 0, pack_elements * out_bytes, -1);
  // A row that fits one pack is stored element by element if it is not aligned.
  out.access = out.step == out_bytes && (is_aligned || row_elements > pack_elements) ? ElementwiseAccess::aligned
                                                                                     : ElementwiseAccess::gather;
  params.rows.prefetches_ends = out.access == ElementwiseAccess::aligned && !out.is_linear &&
                                row_elements * out_bytes <= max_prefetched_row_bytes;
  const bool packs_start_whole = is_aligned || out.access == ElementwiseAccess::gather;
  const int64_t packs_per_row = ceil_div(row_elements + (packs_start_whole ? 0 : pack_elements - 1), pack_elements);
  const int64_t num_rows = problem.count / row_elements;
  if (packs == 0) packs = num_rows * packs_per_row <= small_problem_items(device) ? 1 : 2;
  params.rows.packs = std::min(packs, max_packs(pack_elements, problem.num_operands - 1));
  describe_packs(packs_per_row, num_rows, pack_elements, &params);
  for (int k = 1; k < problem.num_operands; ++k) {
    ElementwiseOperand& operand = params.operands[k];
    operand.access = access_in_rows(problem, operand, k, pack_elements, packs_start_whole);
    operand.end -= int64_t{2} * pack_elements << operand.element_shift;
  }
  plan->launch.num_blocks = ceil_div(params.rows.num_items, elementwise_threads);
}

// Divides the operands into packs, `packs` per thread, or 0 to let the plan choose.
template <class Params>
void divide_into_packs(const Problem& problem, const ElementwiseRequest& request, const Device& device, int32_t packs,
                       Params* params, ElementwisePlan* plan) {
  bool has_no_repeats = true;
  for (int k = 1; k < problem.num_operands; ++k) has_no_repeats &= params->operands[k].is_linear != 0;
  if (packs == 0)
    packs = choose_packs(request, device, problem.count / plan->pack_elements, plan->pack_elements, has_no_repeats);
  packs = std::min(packs, max_packs(plan->pack_elements, problem.num_operands - 1));
  plan->launch.num_blocks = cut_into_packs(problem.count, plan->pack_elements, packs, params, problem.num_operands);
}

void plan_contiguous(const Problem& problem, const ElementwiseRequest& request, const Device& device, int32_t packs,
                     ElementwisePlan* plan) {
  auto& params = plan->mechanism.emplace<Contiguous>().params;
  for (int k = 0; k < problem.num_operands; ++k) {
    const int64_t offset = problem.shape.offsets[k] << request.element_shifts[k];
    params.operands[k] = linear_operand(static_cast<const unsigned char*>(request.pointers[k]) + offset, problem.count,
                                        k > 0 && problem.inner >= 0 && problem.shape.strides[k][0] == 0,
                                        request.dtypes[k], request.element_shifts[k]);
  }
  divide_into_packs(problem, request, device, packs, &params, plan);
}

// Longer runs are read from global memory. In a run of 2048 bytes one pack in 128, or one warp in 4, wraps around the
// end and is loaded element by element. A shorter run is copied to shared memory, which costs a block less than the
// 4096 bytes that it stores. Not measured.
constexpr int64_t max_table_bytes = 2048;

// Describes input k as a run with step `operand->step`: element i of out takes its element (i / repeat) % period.
// False: the input is not such a run.
bool describe_period(const Problem& problem, int k, ElementwiseOperand* operand, int64_t* repeat, int64_t* period) {
  *repeat = *period = 1;
  int64_t next = 0;  // the stride that would continue the run
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

// Sets how a pack of 16 bytes is made from 8 bytes if each element repeats `repeat` times; see RepeatedOperand.
void describe_spread(int64_t repeat, int64_t element_bytes, int32_t pack_elements, RepeatedOperand* operand) {
  const int64_t elements = (pack_elements - 2 + repeat) / repeat + 1;
  if (element_bytes * pack_elements != vector_bytes || elements * element_bytes > spread_bytes) return;
  operand->spread_elements = static_cast<uint32_t>(elements);
  constexpr int64_t indices_per_word = 32 / spread_index_bits;
  for (int64_t i = 0; i < indices_per_word * static_cast<int64_t>(std::size(operand->spread)); ++i) {
    const int64_t index = i / element_bytes / repeat * element_bytes + i % element_bytes;
    operand->spread[i / indices_per_word] |= static_cast<uint32_t>(index % spread_bytes)
                                             << (i % indices_per_word * spread_index_bits);
  }
}

// Plans broadcast. False: out is not linear, or an input is neither linear nor repeated nor one element.
bool plan_broadcast(const Problem& problem, const ElementwiseRequest& request, const Device& device, int32_t packs,
                    ElementwisePlan* plan) {
  const int32_t pack_elements = plan->pack_elements;
  if (problem.num_operands < 3 || !problem.operands[0].is_linear) return false;
  BroadcastElementwiseParams<max_operands> params = {};
  int64_t repeats[max_operands] = {}, lengths[max_operands] = {};
  for (int k = 0; k < problem.num_operands; ++k) {
    RepeatedOperand& operand = params.operands[k];
    static_cast<ElementwiseOperand&>(operand) = problem.operands[k];
    if (operand.is_linear) {
      operand.step = int64_t{1} << operand.element_shift;
      continue;
    }
    if (!describe_period(problem, k, &operand, &repeats[k], &lengths[k])) return false;
    if (lengths[k] == 1) {
      operand.step = 0;
      operand.access = ElementwiseAccess::one_element;
    }
  }
  divide_into_packs(problem, request, device, packs, &params, plan);
  for (int k = 1; k < problem.num_operands; ++k) {
    RepeatedOperand& operand = params.operands[k];
    if (lengths[k] <= 1) continue;
    const int64_t element_bytes = int64_t{1} << operand.element_shift, num_runs = problem.count / lengths[k];
    // A long run has left the L2 cache before its next repetition, so the blocks of all repetitions take turns.
    if (pack_elements <= max_turns_pack_elements && repeats[k] == 1 &&
        lengths[k] * element_bytes >= min_long_row_bytes && num_runs > 1 && num_runs <= max_long_rows) {
      const int64_t blocks = ceil_div(plan->launch.num_blocks, num_runs);
      params.num_runs = Divider(static_cast<uint32_t>(num_runs));
      params.run_blocks = static_cast<uint32_t>(round_up(blocks, broadcast_group_blocks));
    }
    operand.repeat = Divider(static_cast<uint32_t>(repeats[k]));
    operand.period = Divider(static_cast<uint32_t>(lengths[k]));
    operand.head = static_cast<uint32_t>(params.head);
    if (repeats[k] > 1 || operand.step != element_bytes) {
      operand.access = ElementwiseAccess::repeated_elements;
      if (operand.step == element_bytes) describe_spread(repeats[k], element_bytes, pack_elements, &operand);
    } else if (params.head % pack_elements == 0 && lengths[k] % pack_elements == 0 &&
               contiguous_access(reinterpret_cast<intptr_t>(operand.data), pack_elements * element_bytes) ==
                   ElementwiseAccess::aligned) {
      operand.access = ElementwiseAccess::repeated_packs;
    } else if (lengths[k] * element_bytes <= max_table_bytes) {
      operand.access = ElementwiseAccess::repeated_table;
      operand.table_offset = plan->launch.shared_bytes;
      operand.table_elements =
          table_elements_of(static_cast<uint32_t>(lengths[k]), static_cast<uint32_t>(pack_elements));
      plan->launch.shared_bytes += static_cast<int32_t>(round_up(operand.table_elements * element_bytes, vector_bytes));
    } else {
      operand.access = ElementwiseAccess::repeated_run;
    }
  }
  if (params.run_blocks != 0) plan->launch.num_blocks = int64_t{params.run_blocks} * params.num_runs.divisor;
  params.has_tables = plan->launch.shared_bytes > 0;
  plan->mechanism.emplace<Broadcast>().params = params;
  return true;
}

Problem make_problem(const ElementwiseRequest& request) {
  Problem problem = {request.shape, request.shape.num_operands, request.shape.rank - 1, 1, {}};
  for (int d = 0; d < problem.shape.rank; ++d) {
    problem.count *= problem.shape.extents[d];
    for (int k = 0; k < problem.num_operands; ++k)
      problem.shape.strides[k][d] *= int64_t{1} << request.element_shifts[k];
  }
  return problem;
}

void choose_compute(const ElementwiseRequest& request, ElementwisePlan* plan) {
  const bool is_functor = request.arity == ElementwiseArity::functor;
  plan->compute = is_functor ? ComputeClass::float32 : compute_class_of(request);
  plan->is_unsigned = false;
  plan->signed_operand = 0;
  if (is_functor) return;
  for (int k = 1; k < request.shape.num_operands; ++k)
    plan->is_unsigned |= request.dtypes[k] == FLOWK_UINT64 ||
                         (request.dtypes[k] == FLOWK_UINT32 && plan->compute == ComputeClass::int32);
  const bool compares = request.arity == ElementwiseArity::binary && request.op >= FLOWK_BINARY_EQUAL &&
                        request.op <= FLOWK_BINARY_GREATER_EQUAL;
  if (compares && request.dtypes[1] != request.dtypes[2] && !is_float(request.dtypes[1]))
    plan->signed_operand = request.dtypes[1] == FLOWK_INT64 ? 1 : 2;
}

// Sets the numbers of the call, and the integer types as the kernels name them (OperandsOf).
void finish_operands(const ElementwiseRequest& request, ElementwisePlan* plan) {
  const auto signed_type = [](flowk_dtype dtype) -> flowk_dtype {
    switch (dtype) {
      case FLOWK_UINT8: return FLOWK_INT8;
      case FLOWK_UINT16: return FLOWK_INT16;
      case FLOWK_UINT32: return FLOWK_INT32;
      case FLOWK_UINT64: return FLOWK_INT64;
      default: return dtype;
    }
  };
  const bool has_integers = plan->compute == ComputeClass::int32 || plan->compute == ComputeClass::int64;
  const int32_t compute_shift = plan->compute == ComputeClass::int32 ? 2 : 3;
  for (int k = 0; k < request.shape.num_operands; ++k) {
    ElementwiseOperand& operand = plan->operand(k);
    if (has_integers && (k == 0 || operand.element_shift == compute_shift)) {
      operand.dtype = signed_type(operand.dtype);
      if (k == 0 && plan->is_unsigned && is_float(request.dtypes[0])) operand.dtype |= from_unsigned;
    }
    if (!request.is_number[k]) continue;
    operand.access = ElementwiseAccess::number;
    for (int w = 0; w < 2; ++w) operand.number[w] = request.numbers[k][w];
  }
}

bool is_contiguous(const Problem& problem, const ElementwiseRequest& request) {
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
  return problem.count > max_strided_elements && !is_contiguous(problem, request);
}

void split_request(const ElementwiseRequest& request, ElementwiseRequest* first, ElementwiseRequest* second) {
  *first = *second = request;
  int longest = 0;  // the outermost dimension of more than one element
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

void plan_elementwise(const ElementwiseRequest& request, const Device& device, int32_t packs, ElementwisePlan* plan) {
  plan->arity = request.arity;
  choose_compute(request, plan);
  plan->op = request.op;
  plan->a = request.a;
  plan->b = request.b;
  plan->launch = {.num_threads = elementwise_threads, .uses_pdl = device.runs_pdl()};
  Problem problem = make_problem(request);
  if (is_contiguous(problem, request)) {
    choose_pack(request, ElementwiseKernel::contiguous, plan);
    plan_contiguous(problem, request, device, packs, plan);
  } else {
    for (int k = 0; k < problem.num_operands; ++k) describe_operand(request, k, &problem);
    const auto has = [&](ElementwiseKernel kernel) { return choose_pack(request, kernel, plan); };
    const int dim = staged_dim(problem);
    const bool is_planned =
        (packs == 0 && has(ElementwiseKernel::broadcast_rows) && plan_broadcast_rows(problem, device, plan)) ||
        (has(ElementwiseKernel::broadcast) && plan_broadcast(problem, request, device, packs, plan)) ||
        (dim >= 0 && has(ElementwiseKernel::shifted_tiles) && plan_tiles(problem, dim, plan));
    if (!is_planned) {
      choose_pack(request, ElementwiseKernel::strided, plan);
      plan_strided(problem, device, packs, plan);
    }
  }
  finish_operands(request, plan);
}

}  // namespace flowk::elementwise
