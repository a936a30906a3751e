// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels against a naive loop, in memory that ends where the operands do: every layout, alignment and
// element type, with values that every type holds, so that results are equal bit for bit. What the operations compute
// is tested from Python.
#include <cstdio>
#include <memory>
#include <random>

#include "check.h"
#include "core/device.h"
#include "elementwise_case.h"
#include "thread_order.h"

namespace {

using namespace flowk::elementwise;

constexpr flowk_dtype all_dtypes[] = {FLOWK_BOOL,    FLOWK_INT8,        FLOWK_INT16,      FLOWK_INT32,
                                      FLOWK_INT64,   FLOWK_UINT8,       FLOWK_UINT16,     FLOWK_UINT32,
                                      FLOWK_UINT64,  FLOWK_FLOAT16,     FLOWK_BFLOAT16,   FLOWK_FLOAT32,
                                      FLOWK_FLOAT64, FLOWK_FLOAT8_E4M3, FLOWK_FLOAT8_E5M2};

// What the plans that ran had in them.
struct Reached {
  bool kernels[num_elementwise_kernels] = {};
  bool accesses[num_elementwise_accesses] = {};
  bool head = false, cut_packs = false, two_packs_of_a_row = false, packs_of_two_rows = false, no_packs = false,
       rows_with_gaps = false, shifted_rows = false, rows_shorter_than_packs = false, gathered_out = false;
  bool two_packs_a_thread = false, swizzled_tile = false, plain_tile = false, two_staged = false, pack_of[17] = {};
};
Reached reached;

void note(const ElementwisePlan& plan, int num_operands) {
  reached.kernels[static_cast<int>(plan.kernel())] = true;
  reached.pack_of[plan.pack_elements] = true;
  if (linear(plan) != nullptr) {
    reached.head |= linear(plan)->head > 0 && linear(plan)->num_packs > 0;
    reached.no_packs |= linear(plan)->num_packs == 0;
    reached.two_packs_a_thread |= linear(plan)->packs == 2;
  }
  const auto* const rows = std::get_if<Strided>(&plan.mechanism);
  const auto* const tiles = std::get_if<ShiftedTiles>(&plan.mechanism);
  int num_staged = 0;
  for (int k = 0; k < num_operands; ++k) {
    const ElementwiseAccess access = plan.operand(k).access;
    reached.accesses[static_cast<int>(access)] = true;
    num_staged += access == ElementwiseAccess::staged;
    if (access == ElementwiseAccess::staged && tiles != nullptr)
      (tiles->params.operands[k].swizzle_bits != 0 ? reached.swizzled_tile : reached.plain_tile) = true;
    reached.shifted_rows |= k > 0 && rows != nullptr && access == ElementwiseAccess::shifted;
  }
  reached.two_staged |= num_staged == 2;
  if (rows != nullptr) {
    const auto& of = rows->params.rows;
    reached.cut_packs |= plan.operand(0).access == ElementwiseAccess::aligned &&
                         of.row_elements.divisor % static_cast<uint32_t>(plan.pack_elements) != 0;
    reached.two_packs_of_a_row |= of.packs == 2 && of.pack_columns > 0;
    reached.packs_of_two_rows |= of.packs == 2 && of.pack_rows > 0;
    reached.gathered_out |= plan.operand(0).access == ElementwiseAccess::gather;
    reached.rows_with_gaps |= !plan.operand(0).is_linear;
    reached.rows_shorter_than_packs |= of.row_elements.divisor < static_cast<uint32_t>(plan.pack_elements);
  }
}

double compute_naively(const ElementwiseCase& row, const double* values) {
  switch (row.arity) {
    case ElementwiseArity::unary:
      if (row.op == FLOWK_UNARY_SQUARE) return values[0] * values[0];
      return row.operands[0].dtype == FLOWK_BOOL ? values[0] != 0 : values[0];
    case ElementwiseArity::binary:
      return row.op == FLOWK_BINARY_LESS ? values[0] < values[1] : std::max(values[0], values[1]);
    case ElementwiseArity::ternary: return values[0] != 0 ? values[1] : values[2];
    case ElementwiseArity::functor: break;
  }
  return 0;
}

void run_case_of(const ElementwiseCase& row, int32_t packs) {
  const size_t num_operands = row.operands.size();
  std::vector<std::unique_ptr<OperandMemory>> memory;
  for (const CaseOperand& operand : row.operands) memory.push_back(std::make_unique<OperandMemory>(row, operand));
  OperandMemory expected(row, row.operands[0]);
  std::vector<std::vector<int64_t>> strides;
  for (const CaseOperand& operand : row.operands) strides.push_back(strides_of(row, operand));

  const auto for_each_index = [&](auto visit) {
    std::vector<int64_t> index(row.shape.size());
    for (int64_t counter = 0;; ++counter) {
      std::vector<int64_t> offsets(num_operands);
      for (size_t k = 0; k < num_operands; ++k)
        for (size_t d = 0; d < index.size(); ++d) offsets[k] += index[d] * strides[k][d];
      visit(counter, offsets);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == row.shape[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  };
  const auto address = [&](const OperandMemory& operand, size_t k, int64_t offset) {
    return operand.first() + offset * bytes_of(row.operands[k].dtype);
  };
  // Values 0 ... 3, which every type holds, as well as their squares; 0 and 1 in bool.
  for_each_index([&](int64_t counter, const std::vector<int64_t>& offsets) {
    for (size_t k = 1; k < num_operands; ++k) {
      const flowk_dtype dtype = row.operands[k].dtype;
      const int64_t value = (counter * 7 + counter / 5 + static_cast<int64_t>(k) * 3) % (dtype == FLOWK_BOOL ? 2 : 4);
      set_element(dtype, address(*memory[k], k, offsets[k]), static_cast<double>(value));
    }
  });
  for_each_index([&](int64_t, const std::vector<int64_t>& offsets) {
    double values[max_operands] = {};
    for (size_t k = 1; k < num_operands; ++k)
      values[k - 1] = element_of(row.operands[k].dtype, address(*memory[k], k, offsets[k]));
    set_element(row.operands[0].dtype, address(expected, 0, offsets[0]), compute_naively(row, values));
  });

  std::vector<const void*> pointers;
  for (const auto& operand : memory) pointers.push_back(operand->first());
  const ElementwiseRequest request = make_request(row, pointers);
  Device device;
  CHECK(current_device(&device).ok());
  if (packs == 0) device.num_multiprocessors = 1;  // so that few elements make a grid
  ElementwisePlan plan;
  plan_elementwise(request, device, packs, &plan);
  note(plan, static_cast<int>(num_operands));
  draw_thread_order();
  const bool is_right = run_elementwise(plan, nullptr).ok() && memory[0]->same_bytes(expected);
  if (!is_right) {
    char text[2048];
    explain_elementwise(plan, request, text, sizeof text);
    std::printf("wrong: %s\n%s", row.why, text);
  }
  CHECK(is_right);
}

// With one pack per thread, and with two if possible.
void run_case(const ElementwiseCase& row) {
  run_case_of(row, 1);
  run_case_of(row, 2);
}

ElementwiseCase square(const char* why, flowk_dtype dtype, const std::vector<int64_t>& shape, const CaseOperand& out,
                       const CaseOperand& x) {
  ElementwiseCase row = {why, ElementwiseArity::unary, FLOWK_UNARY_SQUARE, shape, {out, x}};
  for (CaseOperand& operand : row.operands) operand.dtype = dtype;
  return row;
}

TEST(contiguous_operands_take_every_alignment_and_count) {
  for (const flowk_dtype dtype : {FLOWK_UINT8, FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64, FLOWK_FLOAT8_E5M2})
    for (const int64_t count : {1, 3, 16, 17, 63, 1000, 4111})
      for (const int64_t out_lead : {0, 1, 5})
        for (const int64_t x_lead : {0, 1, 2, 7})
          run_case(square("flat", dtype, {count}, {dtype, {}, out_lead}, {dtype, {}, x_lead}));
}

TEST(every_type_is_copied_to_every_other) {
  for (const flowk_dtype from : all_dtypes)
    for (const flowk_dtype to : all_dtypes) {
      if (from == to) continue;
      for (const int64_t lead : {0, 1})
        run_case({"copy", ElementwiseArity::unary, FLOWK_UNARY_COPY, {515}, {{to, {}, 1 - lead}, {from, {}, lead}}});
      run_case(
          {"copy of a transpose", ElementwiseArity::unary, FLOWK_UNARY_COPY, {37, 70}, {{to, {}}, {from, {1, 37}}}});
      run_case(
          {"copy of rows", ElementwiseArity::unary, FLOWK_UNARY_COPY, {9, 21}, {{to, {24, 1}}, {from, {21, 1}, 1}}});
    }
}

TEST(broadcast_operands_repeat) {
  for (const flowk_dtype dtype : {FLOWK_INT8, FLOWK_BFLOAT16, FLOWK_INT32, FLOWK_UINT64, FLOWK_FLOAT64})
    for (const int64_t cols : {1, 2, 3, 7, 8, 16, 57, 64, 130, 4099})
      for (const int64_t lead : {0, 1}) {
        const std::vector<int64_t> shape = {11, cols};
        const auto of = [&](const std::vector<int64_t>& y) -> ElementwiseCase {
          return {"broadcast",
                  ElementwiseArity::binary,
                  FLOWK_BINARY_MAXIMUM,
                  shape,
                  {{dtype, {}, lead}, {dtype, {}, 0}, {dtype, y, lead}}};
        };
        run_case(of({0, 1}));
        run_case(of({1, 0}));
        run_case(of({0, 0}));
        run_case({"outer",
                  ElementwiseArity::binary,
                  FLOWK_BINARY_LESS,
                  shape,
                  {{FLOWK_BOOL, {}, lead}, {dtype, {1, 0}}, {dtype, {0, 1}}}});
        run_case({"cyclic outer",
                  ElementwiseArity::ternary,
                  FLOWK_TERNARY_WHERE,
                  {2, 3, cols},
                  {{dtype, {}, lead}, {FLOWK_BOOL, {0, 0, 1}}, {dtype, {0, 1, 0}}, {dtype, {0, cols, 1}, lead}}});
        run_case({"expanded", ElementwiseArity::unary, FLOWK_UNARY_COPY, shape, {{dtype, {}, lead}, {dtype, {0, 1}}}});
        run_case({"middle",
                  ElementwiseArity::binary,
                  FLOWK_BINARY_MAXIMUM,
                  {3, 5, cols},
                  {{dtype, {}}, {dtype, {}}, {dtype, {0, 1, 0}, lead}}});
      }
}

TEST(rows_that_share_an_input_have_a_kernel) {
  for (const flowk_dtype dtype : {FLOWK_UINT8, FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_INT64})
    for (const int64_t rows : {37, 64}) {
      const int64_t cols = 512;
      const auto of = [&](const char* name, const std::vector<int64_t>& shape, const CaseOperand& out,
                          const std::vector<int64_t>& x, const std::vector<int64_t>& y) {
        run_case_of({name, ElementwiseArity::binary, FLOWK_BINARY_MAXIMUM, shape, {out, {dtype, x}, {dtype, y}}}, 0);
      };
      of("outer", {rows, cols}, {dtype, {}}, {1, 0}, {0, 1});
      of("a row", {rows, cols}, {dtype, {}}, {}, {0, 1});
      of("a row, gaps", {rows, cols}, {dtype, {cols + 16, 1}}, {cols + 32, 1}, {0, 1});
      of("a row of each batch", {3, rows, cols}, {dtype, {}}, {}, {cols, 0, 1});
      run_case_of({"a row, a column and a mask",
                   ElementwiseArity::ternary,
                   FLOWK_TERNARY_WHERE,
                   {rows, cols},
                   {{dtype, {}}, {FLOWK_BOOL, {0, 1}}, {dtype, {1, 0}}, {dtype, {}}}},
                  0);
    }
}

TEST(strided_operands_keep_their_gaps) {
  for (const flowk_dtype dtype : {FLOWK_UINT8, FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_INT64})
    for (const int64_t lead : {0, 1, 3}) {
      run_case(square("padded output", dtype, {7, 45}, {dtype, {50, 1}, lead}, {dtype, {}, 0}));
      run_case(square("aligned rows with gaps", dtype, {7, 48}, {dtype, {64, 1}, 0}, {dtype, {64, 1}, lead}));
      run_case(square("every second element", dtype, {7, 45}, {dtype, {90, 2}, lead}, {dtype, {}, 0}));
      run_case(square("input of every third", dtype, {200}, {dtype, {}, lead}, {dtype, {3}, 1}));
      run_case(square("backwards", dtype, {33, 20}, {dtype, {}, lead}, {dtype, {-20, -1}, 0}));
      run_case(square("output backwards", dtype, {33, 20}, {dtype, {20, -1}, lead}, {dtype, {}, 0}));
      run_case(square("one element", dtype, {}, {dtype, {}, lead}, {dtype, {}, 0}));
    }
}

TEST(transposed_operands_go_through_tiles) {
  for (const flowk_dtype dtype : {FLOWK_INT8, FLOWK_FLOAT16, FLOWK_INT32, FLOWK_FLOAT64})
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{64, 64}, {96, 160}, {17, 130}, {129, 9}, {8, 8}})
      for (const int64_t lead : {0, 1}) {
        run_case(square("transposed", dtype, {rows, cols}, {dtype, {}, 0}, {dtype, {1, rows}, lead}));
        run_case(
            square("transposed, odd output", dtype, {rows, cols}, {dtype, {cols + 3, 1}, 1}, {dtype, {1, rows}, lead}));
        run_case({"both transposed",
                  ElementwiseArity::binary,
                  FLOWK_BINARY_MAXIMUM,
                  {2, rows, cols},
                  {{dtype, {}}, {dtype, {rows * cols, 1, rows}}, {dtype, {0, 1, rows}, lead}}});
        run_case({"one transposed, one broadcast",
                  ElementwiseArity::ternary,
                  FLOWK_TERNARY_WHERE,
                  {rows, cols},
                  {{dtype, {}}, {FLOWK_BOOL, {0, 1}, lead}, {dtype, {1, rows}}, {dtype, {}, lead}}});
      }
}

// Layouts drawn at random: dimensions in any order, with gaps, either way round, repeated.
TEST(random_layouts) {
  std::mt19937 draw(1234);
  const auto up_to = [&](int n) { return static_cast<int64_t>(draw() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 1500; ++round) {
    std::vector<int64_t> shape(static_cast<size_t>(up_to(5)));
    int64_t count = 1;
    for (int64_t& extent : shape) {
      extent = 1 + up_to(count > 300 ? 4 : 24);
      count *= extent;
    }
    const auto layout = [&](bool is_out) {
      std::vector<int64_t> strides(shape.size());
      std::vector<size_t> order(shape.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = d;
      if (up_to(2)) std::shuffle(order.begin(), order.end(), draw);
      int64_t stride = up_to(4) == 0 ? 2 : 1;
      for (size_t at = order.size(); at-- > 0;) {
        const size_t d = order[at];
        strides[d] = !is_out && up_to(4) == 0 ? 0 : up_to(8) == 0 ? -stride : stride;
        stride *= shape[d];
        if (up_to(4) == 0) stride += up_to(5);
      }
      return strides;
    };
    const flowk_dtype dtype = all_dtypes[up_to(15)];
    switch (up_to(3)) {
      case 0:
        run_case(
            {"random",
             ElementwiseArity::binary,
             FLOWK_BINARY_MAXIMUM,
             shape,
             {{dtype, layout(true), up_to(9)}, {dtype, layout(false), up_to(9)}, {dtype, layout(false), up_to(9)}}});
        break;
      case 1:
        run_case({"random",
                  ElementwiseArity::ternary,
                  FLOWK_TERNARY_WHERE,
                  shape,
                  {{dtype, layout(true), up_to(9)},
                   {FLOWK_BOOL, layout(false), up_to(9)},
                   {dtype, layout(false), up_to(9)},
                   {dtype, layout(false), up_to(9)}}});
        break;
      default: {
        const flowk_dtype to = all_dtypes[up_to(15)];
        run_case({"random",
                  ElementwiseArity::unary,
                  FLOWK_UNARY_COPY,
                  shape,
                  {{to, layout(true), up_to(9)}, {dtype, layout(false), up_to(9)}}});
      }
    }
  }
}

const std::vector<ElementwiseLayout> layouts = {
#include "elementwise_cases.inc"
};

ElementwiseCase of_types(const ElementwiseLayout& layout, ElementwiseArity arity, int32_t op, flowk_dtype out,
                         flowk_dtype input) {
  ElementwiseCase row = {layout.why, arity, op, layout.shape, layout.operands};
  for (size_t k = 0; k < 3; ++k) row.operands[k].dtype = k == 0 ? out : input;
  if (arity == ElementwiseArity::unary) row.operands.erase(row.operands.begin() + 1);
  return row;
}

TEST(every_row_is_planned_as_it_says) {
  Device device;
  CHECK(current_device(&device).ok());
  for (const ElementwiseLayout& layout : layouts) {
    const ElementwiseCase row =
        of_types(layout, ElementwiseArity::binary, FLOWK_BINARY_MAXIMUM, layout.mechanism_dtype, layout.mechanism_dtype);
    const OperandMemory out(row, row.operands[0]), x(row, row.operands[1]), y(row, row.operands[2]);
    ElementwisePlan plan;
    plan_elementwise(make_request(row, {out.first(), x.first(), y.first()}), device, 0, &plan);
    const bool is_as_said = std::strcmp(elementwise_kernel_name(plan.kernel()), layout.mechanism) == 0;
    CHECK(is_as_said);
    if (!is_as_said) std::printf("  %s: %s\n", layout.why, elementwise_kernel_name(plan.kernel()));
  }
}

// On a device of one multiprocessor too, where few elements fill the GPU.
TEST(every_row_is_right_in_every_type_and_every_mechanism_is_reached) {
  reached = {};
  for (const ElementwiseLayout& layout : layouts) {
    if (layout.big) continue;
    for (const flowk_dtype dtype : all_dtypes) {
      for (const int32_t packs : {0, 2})
        run_case_of(of_types(layout, ElementwiseArity::binary, FLOWK_BINARY_MAXIMUM, dtype, dtype), packs);
      run_case_of(of_types(layout, ElementwiseArity::binary, FLOWK_BINARY_LESS, FLOWK_BOOL, dtype), 1);
      run_case_of(of_types(layout, ElementwiseArity::unary, FLOWK_UNARY_COPY, FLOWK_FLOAT32, dtype), 1);
    }
  }
  for (const bool kernel : reached.kernels) CHECK(kernel);
  for (int access = 0; access < num_elementwise_accesses; ++access)
    CHECK(reached.accesses[access] || access == static_cast<int>(ElementwiseAccess::number));
  for (const int pack : {2, 4, 8, 16}) CHECK(reached.pack_of[pack]);
  CHECK(reached.cut_packs);
  CHECK(reached.two_packs_of_a_row);
  CHECK(reached.packs_of_two_rows);
  CHECK(reached.rows_with_gaps);
  CHECK(reached.shifted_rows);
  CHECK(reached.rows_shorter_than_packs);
  CHECK(reached.gathered_out);
  CHECK(reached.head);
  CHECK(reached.no_packs);
  CHECK(reached.two_packs_a_thread);
  CHECK(reached.swizzled_tile);
  CHECK(reached.plain_tile);
  CHECK(reached.two_staged);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
