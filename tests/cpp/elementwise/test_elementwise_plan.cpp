// SPDX-License-Identifier: Apache-2.0
// Which kernel, pack and access plan_elementwise() chooses, for a machine written by hand; and simplify() of operands.
#include <cstdio>

#include "check.h"
#include "devices.h"
#include "elementwise_case.h"

namespace {

using namespace flowk::elementwise;
using enum ElementwiseAccess;

unsigned char* const base = reinterpret_cast<unsigned char*>(uintptr_t{1} << 40);

ElementwisePlan plan_of(const ElementwiseCase& row, ElementwiseRequest* request_out = nullptr) {
  std::vector<const void*> pointers;
  for (size_t k = 0; k < row.operands.size(); ++k)
    pointers.push_back(base + (int64_t{1} << 36) * static_cast<int64_t>(k) +
                       row.operands[k].lead_elements * bytes_of(row.operands[k].dtype));
  const ElementwiseRequest request = make_request(row, pointers);
  if (request_out != nullptr) *request_out = request;
  ElementwisePlan plan;
  plan_elementwise(request, h200, 0, &plan);
  return plan;
}

// Of input 2.
const RepeatedOperand& period_of(const ElementwisePlan& plan) {
  return std::get<Broadcast>(plan.mechanism).params.operands[2];
}

const Tiles& tiles_of(const ElementwisePlan& plan) {
  if (plan.kernel() == ElementwiseKernel::aligned_tiles) return std::get<AlignedTiles>(plan.mechanism);
  return std::get<ShiftedTiles>(plan.mechanism);
}

ElementwiseCase add(flowk_dtype dtype, const std::vector<int64_t>& shape, std::vector<CaseOperand> operands) {
  for (CaseOperand& operand : operands) operand.dtype = dtype;
  return {"", ElementwiseArity::binary, FLOWK_BINARY_ADD, shape, std::move(operands)};
}

TEST(contiguous_operands_are_flat_whatever_their_rank) {
  const ElementwisePlan plan = plan_of(add(FLOWK_FLOAT16, {4, 1, 32, 64}, {{}, {}, {}}));
  CHECK(plan.kernel() == ElementwiseKernel::contiguous);
  CHECK(plan.pack_elements == 8);
  CHECK(linear(plan)->num_packs == 1024 && linear(plan)->head == 0 && linear(plan)->num_edges == 0);
  CHECK(plan.launch.num_blocks == 4 && linear(plan)->packs == 1 && plan.launch.num_threads == 256 &&
        plan.launch.shared_bytes == 0);
  for (int k = 0; k < 3; ++k) CHECK(plan.operand(k).access == aligned);
  // In any order of dimensions, as long as it is everyone's.
  const ElementwisePlan transposed =
      plan_of(add(FLOWK_FLOAT16, {32, 64}, {{{}, {1, 32}}, {{}, {1, 32}}, {{}, {1, 32}}}));
  CHECK(transposed.kernel() == ElementwiseKernel::contiguous);
}

TEST(one_misaligned_pointer_shifts_its_own_operand_only) {
  const ElementwisePlan x_odd = plan_of(add(FLOWK_FLOAT16, {1 << 20}, {{}, {{}, {}, 1}, {}}));
  CHECK(x_odd.operand(0).access == aligned && linear(x_odd)->head == 8);
  // A shifted pack is cut from two aligned accesses, which would reach past an operand's ends: the first and the last
  // packs are computed as edges, element by element.
  CHECK(linear(x_odd)->num_packs == (1 << 17) - 2 && linear(x_odd)->num_edges == 16);
  CHECK(x_odd.operand(1).access == shifted);
  CHECK(x_odd.operand(2).access == aligned);
  const ElementwisePlan out_odd = plan_of(add(FLOWK_FLOAT16, {1 << 20}, {{{}, {}, 3}, {{}, {}, 3}, {}}));
  CHECK(linear(out_odd)->head == 5);
  CHECK(out_odd.operand(0).access == aligned && out_odd.operand(1).access == aligned);
  CHECK(out_odd.operand(2).access == shifted);
  CHECK(linear(out_odd)->num_packs == (1 << 17) - 1 && linear(out_odd)->num_edges == 8);
  CHECK(out_odd.launch.num_blocks == (1 << 17) / 256 + 1);
}

TEST(a_pack_is_16_bytes_of_the_widest_operand) {
  const auto pack_of = [](flowk_dtype out, flowk_dtype x) {
    return plan_of({"", ElementwiseArity::unary, FLOWK_UNARY_COPY, {4096}, {{out}, {x}}}).pack_elements;
  };
  CHECK(pack_of(FLOWK_FLOAT8_E4M3, FLOWK_UINT8) == 16);
  CHECK(pack_of(FLOWK_FLOAT8_E4M3, FLOWK_FLOAT16) == 8);
  CHECK(pack_of(FLOWK_FLOAT16, FLOWK_FLOAT32) == 4);
  CHECK(pack_of(FLOWK_FLOAT32, FLOWK_BOOL) == 4);
  CHECK(pack_of(FLOWK_INT64, FLOWK_INT8) == 2);
}

TEST(a_thread_owns_two_packs_where_they_pay) {
  const auto packs_of = [](ElementwiseArity arity, int32_t op, std::vector<CaseOperand> operands) {
    return linear(plan_of({"", arity, op, {1 << 22}, std::move(operands)}))->packs;
  };
  const CaseOperand f32 = {FLOWK_FLOAT32}, f16 = {FLOWK_FLOAT16}, u8 = {FLOWK_UINT8};
  CHECK(packs_of(ElementwiseArity::unary, FLOWK_UNARY_RELU, {f32, f32}) == 1);
  CHECK(packs_of(ElementwiseArity::unary, FLOWK_UNARY_EXP, {f32, f32}) == 2);
  CHECK(packs_of(ElementwiseArity::unary, FLOWK_UNARY_COPY, {f16, f32}) == 2);
  CHECK(packs_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, {f16, f16, f16}) == 1);
  CHECK(packs_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, {f16, f16, {FLOWK_FLOAT16, {0}}}) == 2);
  CHECK(linear(plan_of({"", ElementwiseArity::unary, FLOWK_UNARY_EXP, {1 << 19}, {f32, f32}}))->packs == 1);
  // What would take too many registers, and what is cut from accesses around it, keeps to one.
  CHECK(packs_of(ElementwiseArity::ternary, FLOWK_TERNARY_FMA, {f32, f16, f16, f16}) == 2);
  CHECK(packs_of(ElementwiseArity::ternary, FLOWK_TERNARY_FMA, {f16, f16, f16, {FLOWK_FLOAT16, {0}}}) == 1);
  CHECK(packs_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, {u8, u8, {FLOWK_UINT8, {0}}}) == 1);
  CHECK(packs_of(ElementwiseArity::unary, FLOWK_UNARY_EXP, {f32, {FLOWK_FLOAT32, {}, 1}}) == 1);
}

TEST(broadcast_operands_repeat_a_run_or_its_elements) {
  const ElementwisePlan row = plan_of(add(FLOWK_FLOAT32, {100, 64}, {{}, {}, {{}, {0, 1}}}));
  CHECK(row.kernel() == ElementwiseKernel::broadcast && row.launch.shared_bytes == 0);
  CHECK(row.operand(1).access == aligned && row.operand(1).is_linear);
  CHECK(row.operand(2).access == repeated_packs && period_of(row).period.divisor == 64);
  const ElementwisePlan odd_row = plan_of(add(FLOWK_FLOAT32, {100, 57}, {{}, {}, {{}, {0, 1}}}));
  CHECK(odd_row.operand(1).access == aligned);
  CHECK(odd_row.operand(2).access == repeated_table);
  CHECK(period_of(odd_row).table_elements == 57 + 4 + 4 && odd_row.launch.shared_bytes == 272);
  const ElementwisePlan long_row = plan_of(add(FLOWK_FLOAT32, {100, 4097}, {{}, {}, {{}, {0, 1}}}));
  CHECK(long_row.operand(2).access == repeated_run && long_row.launch.shared_bytes == 0);
  const ElementwisePlan column = plan_of(add(FLOWK_FLOAT32, {100, 57}, {{}, {}, {{}, {1, 0}}}));
  CHECK(column.operand(2).access == repeated_elements);
  CHECK(period_of(column).repeat.divisor == 57 && period_of(column).period.divisor == 100);
  const ElementwisePlan channels = plan_of(add(FLOWK_UINT8, {5, 64, 56, 56}, {{}, {}, {{}, {0, 1, 0, 0}}}));
  CHECK(channels.pack_elements == 16 && channels.operand(2).access == repeated_elements);
  CHECK(period_of(channels).repeat.divisor == 56 * 56 && period_of(channels).period.divisor == 64);
  const ElementwisePlan shifted_out = plan_of(add(FLOWK_FLOAT32, {100, 3}, {{{}, {}, 2}, {}, {{}, {1, 0}}}));
  CHECK(linear(shifted_out)->head == 2 && period_of(shifted_out).head == 2);
  const ElementwisePlan scalar = plan_of(add(FLOWK_FLOAT32, {100, 57}, {{}, {}, {{}, {0, 0}}}));
  CHECK(scalar.kernel() == ElementwiseKernel::contiguous);
  CHECK(scalar.operand(2).access == one_element && scalar.operand(2).step == 0);
  // Both ends of a period in one operand, or an output with gaps, are no periods.
  const ElementwisePlan twice = plan_of(add(FLOWK_FLOAT32, {3, 5, 7}, {{}, {}, {{}, {1, 0, 3}}}));
  CHECK(twice.kernel() == ElementwiseKernel::strided);
  const ElementwisePlan gaps = plan_of(add(FLOWK_FLOAT32, {100, 64}, {{{}, {80, 1}}, {}, {{}, {0, 1}}}));
  CHECK(gaps.kernel() == ElementwiseKernel::strided);
}

TEST(rows_that_share_all_inputs_are_broadcast_rows) {
  const std::vector<int64_t> shape = {8192, 4096};
  const ElementwisePlan outer = plan_of(add(FLOWK_FLOAT32, shape, {{}, {{}, {1, 0}}, {{}, {0, 1}}}));
  CHECK(outer.kernel() == ElementwiseKernel::broadcast_rows);
  CHECK(outer.operand(1).access == one_element && outer.operand(2).access == aligned);
  CHECK(outer.launch.num_blocks == 8192 / 8 * 1024 / 256 && strided(outer)->rows.packs == 8);
  // What has elements of its own in every row is as fast by periods; rows that are cut have no column of packs.
  const ElementwisePlan row = plan_of(add(FLOWK_FLOAT32, shape, {{}, {}, {{}, {0, 1}}}));
  CHECK(row.kernel() == ElementwiseKernel::broadcast);
  const ElementwisePlan odd = plan_of(add(FLOWK_FLOAT32, {8192, 4097}, {{}, {{}, {1, 0}}, {{}, {0, 1}}}));
  CHECK(odd.kernel() == ElementwiseKernel::broadcast);
  const ElementwisePlan small = plan_of(add(FLOWK_FLOAT32, {512, 512}, {{}, {{}, {1, 0}}, {{}, {0, 1}}}));
  CHECK(small.kernel() == ElementwiseKernel::broadcast);
}

TEST(the_blocks_of_long_rows_take_turns) {
  const auto params_of_rows = [](flowk_dtype dtype, int64_t rows, int64_t columns) {
    const ElementwisePlan plan = plan_of(add(dtype, {rows, columns}, {{}, {}, {{}, {0, 1}}}));
    const auto& params = std::get<Broadcast>(plan.mechanism).params;
    if (params.run_blocks != 0)
      CHECK(plan.launch.num_blocks == rows * params.run_blocks && params.num_runs.divisor == rows);
    return params;
  };
  CHECK(params_of_rows(FLOWK_FLOAT32, 3, 1 << 22).run_blocks == 2048);
  CHECK(params_of_rows(FLOWK_FLOAT32, 3, (1 << 22) + 1).run_blocks == 2048 + broadcast_group_blocks);
  CHECK(params_of_rows(FLOWK_FLOAT32, 16, 1 << 22).run_blocks != 0);
  CHECK(params_of_rows(FLOWK_FLOAT32, 17, 1 << 22).run_blocks == 0);
  CHECK(params_of_rows(FLOWK_FLOAT32, 3, 1 << 20).run_blocks == 0);
  CHECK(params_of_rows(FLOWK_UINT8, 3, 1 << 25).run_blocks == 0);
}

TEST(short_rows_with_gaps_prefetch_their_ends) {
  const auto prefetches = [](int64_t columns, int64_t out_stride) {
    const ElementwisePlan plan = plan_of(add(FLOWK_FLOAT16, {1000, columns}, {{{}, {out_stride, 1}}, {}, {}}));
    return strided(plan)->rows.prefetches_ends != 0;
  };
  CHECK(prefetches(77, 154) && prefetches(288, 300));
  CHECK(!prefetches(289, 300));
  CHECK(!prefetches(5, 10));  // is stored by elements
  const ElementwisePlan linear = plan_of(add(FLOWK_FLOAT16, {1000, 77}, {{}, {{}, {154, 1}}, {{}, {154, 1}}}));
  CHECK(!strided(linear)->rows.prefetches_ends);
}

TEST(outputs_with_gaps_have_packs_of_their_own_in_every_row) {
  const ElementwisePlan whole = plan_of(add(FLOWK_FLOAT32, {10, 64}, {{{}, {80, 1}}, {}, {}}));
  CHECK(strided(whole)->rows.items_per_row.divisor == 16 && strided(whole)->rows.num_items == 160);
  CHECK(whole.operand(1).access == aligned);
  const ElementwisePlan cut = plan_of(add(FLOWK_FLOAT32, {10, 64}, {{{}, {81, 1}}, {}, {}}));
  CHECK(strided(cut)->rows.items_per_row.divisor == 17);
  CHECK(cut.operand(1).access == shifted);
  const ElementwisePlan apart = plan_of(add(FLOWK_FLOAT32, {10, 64}, {{{}, {128, 2}}, {}, {}}));
  CHECK(apart.operand(0).access == gather && apart.operand(1).access == aligned);
}

TEST(a_thread_computes_packs_of_two_rows_or_two_of_a_long_row) {
  const auto plan_halves = [](int64_t rows, int64_t columns, int64_t out_stride) {
    const std::vector<int64_t> halves = {2 * columns, 1};
    return plan_of(add(FLOWK_FLOAT16, {rows, columns}, {{{}, {out_stride, 1}}, {{}, halves}, {{}, halves, columns}}));
  };
  const ElementwisePlan aligned_rows = plan_halves(8192, 1024, 1024);
  const auto& rows = strided(aligned_rows)->rows;
  CHECK(aligned_rows.kernel() == ElementwiseKernel::strided && rows.packs == 2);
  CHECK(rows.items_per_row.divisor == 128 && rows.num_items == 4096 * 128 && aligned_rows.launch.num_blocks == 2048);
  CHECK(rows.pack_columns == 0 && rows.pack_rows == 4096);
  CHECK(strided(aligned_rows)->operands[1].pack_stride == 4096 * 4096);
  for (int k = 0; k < 3; ++k) CHECK(aligned_rows.operand(k).access == aligned);
  // Packs at any alignment: one more per row.
  const ElementwisePlan odd = plan_halves(8192, 1023, 1023);
  CHECK(strided(odd)->rows.items_per_row.divisor == 129 && odd.operand(0).access == aligned);
  CHECK(odd.operand(1).access == shifted && odd.operand(2).access == shifted);
  // The rows of a thread's packs are a multiple of 8 apart, so that both are aligned alike.
  const ElementwisePlan short_rows = plan_halves(100003, 77, 77);
  const auto& of = strided(short_rows)->rows;
  CHECK(of.packs == 2 && of.items_per_row.divisor == 11 && of.pack_columns == 0);
  CHECK(of.pack_rows == 50008 && of.num_items == 50008 * 11 &&
        strided(short_rows)->operands[1].pack_stride == 50008 * 308);
  const ElementwisePlan few = plan_halves(3, 1 << 20, 1 << 20);
  CHECK(strided(few)->rows.packs == 2 && strided(few)->rows.items_per_row.divisor == 1 << 16);
  CHECK(strided(few)->rows.pack_columns == 1 << 19 && strided(few)->rows.pack_rows == 0);
  const ElementwisePlan small = plan_halves(100, 77, 77);
  CHECK(strided(small)->rows.packs == 1 && strided(small)->rows.pack_rows == 100);
}

TEST(steps_past_32_bits_are_a_dimension_of_their_own) {
  const int64_t far = int64_t{1} << 31;
  const ElementwisePlan plan = plan_of(add(FLOWK_FLOAT16, {3, 4}, {{{}, {far / 2, far * 2}}, {}, {}}));
  CHECK(plan.kernel() == ElementwiseKernel::strided && strided(plan)->rows.row_elements.divisor == 1);
  CHECK(strided(plan)->rows.num_items == 12 && strided(plan)->rows.num_dims == 2);
}

TEST(a_transposed_operand_is_staged) {
  const ElementwisePlan plan = plan_of(add(FLOWK_FLOAT32, {1024, 2048}, {{}, {}, {{}, {1, 1024}}}));
  CHECK(plan.kernel() == ElementwiseKernel::aligned_tiles);
  CHECK(plan.operand(0).access == aligned && plan.operand(1).access == aligned);
  CHECK(plan.operand(2).access == staged);
  CHECK(tiles_of(plan).tile_rows == 64 && tiles_of(plan).tile_columns == 64);
  CHECK(plan.launch.num_blocks == 16 * 32);
  CHECK(strided(plan)->operands[2].pitch == 256 && plan.launch.shared_bytes == 64 * 256);
  const ElementwisePlan odd = plan_of(add(FLOWK_FLOAT32, {1023, 2048}, {{}, {}, {{}, {1, 1023}}}));
  CHECK(odd.kernel() == ElementwiseKernel::shifted_tiles && tiles_of(odd).tile_rows == 64);
  CHECK(odd.operand(1).access == staged_rows && odd.operand(2).access == staged);
  // Runs of 64 elements, 1023 apart, and rows of 64, a multiple of a pack apart, stand as in memory modulo 32.
  CHECK(strided(odd)->operands[2].pitch >= 256 + 31 && (strided(odd)->operands[2].pitch - 1023 * 4) % 32 == 0);
  CHECK(strided(odd)->operands[1].pitch >= 256 + 31 && strided(odd)->operands[1].pitch % 32 == 0);
  CHECK(strided(odd)->operands[2].swizzle_bits == 0 && strided(odd)->tile.halo == 0);
  const ElementwisePlan bytes = plan_of(add(FLOWK_UINT8, {1024, 2048}, {{}, {}, {{}, {1, 1024}}}));
  CHECK(bytes.kernel() == ElementwiseKernel::aligned_tiles && bytes.pack_elements == 16);
  CHECK(tiles_of(bytes).tile_rows == 128 && tiles_of(bytes).tile_columns == 128);
  // Runs too short to be worth a tile.
  const ElementwisePlan narrow = plan_of(add(FLOWK_FLOAT32, {3, 2048}, {{}, {}, {{}, {1, 3}}}));
  CHECK(narrow.kernel() == ElementwiseKernel::strided && narrow.operand(2).access == gather);
}

TEST(kernels_that_are_not_compiled_are_replaced) {
  // A type or an operation that is used rarely has packs of fewer elements.
  const auto pack_of = [](ElementwiseArity arity, int32_t op, flowk_dtype dtype, const std::vector<int64_t>& x) {
    std::vector<CaseOperand> operands(arity == ElementwiseArity::unary ? 2 : 3, CaseOperand{dtype});
    operands[1].strides = x;
    return plan_of({"", arity, op, {1024, 1024}, operands}).pack_elements;
  };
  CHECK(pack_of(ElementwiseArity::unary, FLOWK_UNARY_RELU, FLOWK_FLOAT8_E4M3, {}) == 16);
  CHECK(pack_of(ElementwiseArity::unary, FLOWK_UNARY_EXP, FLOWK_FLOAT8_E4M3, {}) == 8);
  CHECK(pack_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, FLOWK_FLOAT8_E4M3, {0, 1}) == 8);
  CHECK(pack_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, FLOWK_UINT8, {1, 1024}) == 16);
  CHECK(pack_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, FLOWK_INT16, {1, 1024}) == 4);
  CHECK(pack_of(ElementwiseArity::binary, FLOWK_BINARY_ADD, FLOWK_FLOAT16, {1, 1024}) == 8);
  // Ternary operations have no tiles.
  ElementwiseRequest request;
  const CaseOperand transposed = {FLOWK_FLOAT32, {1, 64}};
  const ElementwiseCase fma = {"", ElementwiseArity::ternary, FLOWK_TERNARY_FMA, {64, 64}, {{}, transposed, {}, {}}};
  CHECK(plan_of(fma, &request).kernel() == ElementwiseKernel::strided);
  // A functor's kernel is compiled for the call.
  request.arity = ElementwiseArity::functor;
  ElementwisePlan plan;
  plan_elementwise(request, h200, 0, &plan);
  CHECK(plan.kernel() == ElementwiseKernel::aligned_tiles);
}

TEST(integers_share_the_kernels_of_signed_ones) {
  const auto plan_copy = [](flowk_dtype out, flowk_dtype x) {
    return plan_of({"", ElementwiseArity::unary, FLOWK_UNARY_COPY, {4096}, {{out}, {x}}});
  };
  const ElementwisePlan to_float = plan_copy(FLOWK_FLOAT32, FLOWK_UINT32);
  CHECK(to_float.compute == ComputeClass::int32 && to_float.is_unsigned);
  CHECK(to_float.operand(0).dtype == (FLOWK_FLOAT32 | from_unsigned) && to_float.operand(1).dtype == FLOWK_INT32);
  const ElementwisePlan wider = plan_copy(FLOWK_INT64, FLOWK_UINT32);
  CHECK(wider.compute == ComputeClass::int64 && !wider.is_unsigned && wider.operand(1).dtype == FLOWK_UINT32);
  CHECK(plan_copy(FLOWK_FLOAT64, FLOWK_FLOAT32).compute == ComputeClass::float64);
  const ElementwisePlan sum = plan_of(add(FLOWK_UINT64, {4096}, {{}, {}, {}}));
  CHECK(sum.compute == ComputeClass::int64 && sum.is_unsigned && sum.operand(0).dtype == FLOWK_INT64);
}

TEST(a_comparison_of_mixed_signs_knows_the_signed_operand) {
  const auto plan_less = [](flowk_dtype x, flowk_dtype y) {
    return plan_of({"", ElementwiseArity::binary, FLOWK_BINARY_LESS, {4096}, {{FLOWK_BOOL}, {x}, {y}}});
  };
  const ElementwisePlan first = plan_less(FLOWK_INT64, FLOWK_UINT64), second = plan_less(FLOWK_UINT64, FLOWK_INT64);
  CHECK(first.signed_operand == 1 && first.is_unsigned && second.signed_operand == 2 && second.is_unsigned);
  CHECK(first.operand(2).dtype == FLOWK_INT64 && first.compute == ComputeClass::int64);
  CHECK(plan_less(FLOWK_UINT64, FLOWK_UINT64).signed_operand == 0);
  CHECK(plan_less(FLOWK_INT64, FLOWK_INT64).signed_operand == 0);
  CHECK(plan_less(FLOWK_FLOAT16, FLOWK_FLOAT32).signed_operand == 0);
}

TEST(requests_past_31_bits_are_halved) {
  const int64_t n = int64_t{1} << 31;
  ElementwiseRequest request, first, second;
  plan_of(add(FLOWK_FLOAT16, {n}, {{}, {}, {}}), &request);
  CHECK(!needs_split(request));
  plan_of(add(FLOWK_FLOAT16, {4, 3, n / 4}, {{}, {}, {{}, {0, 1, 0}}}), &request);
  CHECK(needs_split(request));
  split_request(request, &first, &second);
  CHECK(first.shape.extents[0] == 2 && second.shape.extents[0] == 2);
  CHECK(second.shape.offsets[0] == 2 * 3 * (n / 4) && second.shape.offsets[2] == 0);
  CHECK(needs_split(first));
  split_request(first, &first, &second);
  CHECK(second.shape.offsets[0] == 3 * (n / 4));
}

TEST(every_row_of_the_list_has_its_facts) {
  for (int32_t op = 1; op <= FLOWK_NUM_UNARY_OPS; ++op) CHECK(unary_op_info(op).name != nullptr);
  for (int32_t op = 1; op <= FLOWK_NUM_BINARY_OPS; ++op) CHECK(binary_op_info(op).name != nullptr);
  for (int32_t op = 1; op <= FLOWK_NUM_TERNARY_OPS; ++op) CHECK(ternary_op_info(op).name != nullptr);
  CHECK(unary_op_info(0).name == nullptr && unary_op_info(FLOWK_NUM_UNARY_OPS + 1).name == nullptr);
  CHECK(takes_dtype(unary_op_info(FLOWK_UNARY_NEGATIVE), FLOWK_INT8) &&
        !takes_dtype(unary_op_info(FLOWK_UNARY_NEGATIVE), FLOWK_BOOL));
  CHECK(!takes_dtype(unary_op_info(FLOWK_UNARY_EXP), FLOWK_INT8) &&
        takes_dtype(unary_op_info(FLOWK_UNARY_EXP), FLOWK_FLOAT8_E4M3));
  CHECK(!takes_dtype(unary_op_info(FLOWK_UNARY_COPY), FLOWK_COMPLEX64));
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
