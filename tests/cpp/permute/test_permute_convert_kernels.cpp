// SPDX-License-Identifier: Apache-2.0
// The kernels of permute that convert, against a naive loop: the planner's own pick and every tile that it may choose,
// with a pair of types after the other, in memory that ends where the tensors do.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "core/convert.cuh"
#include "permute_case_run.h"
#include "permute_convert_case.h"
#include "permute_kernel_cases.h"

namespace {

using namespace flowk::permute;

constexpr double scale = 0.5;

// Calls visit(T()) for the type that `dtype` names, of those in type_pairs.
template <class Visit>
void visit_type(flowk_dtype dtype, Visit visit) {
  switch (dtype) {
    case FLOWK_INT8: return visit(int8_t());
    case FLOWK_INT32: return visit(int32_t());
    case FLOWK_UINT8: return visit(uint8_t());
    case FLOWK_UINT16: return visit(uint16_t());
    case FLOWK_FLOAT16: return visit(Float16());
    case FLOWK_BFLOAT16: return visit(BFloat16());
    case FLOWK_FLOAT32: return visit(float());
    case FLOWK_FLOAT64: return visit(double());
    case FLOWK_FLOAT8_E4M3: return visit(Float8E4M3());
    case FLOWK_FLOAT8_E5M2: return visit(Float8E5M2());
    default: CHECK(!"a type of type_pairs");
  }
}

// The value of element i of src's memory: an integer that every type holds, or rounds on the way in.
float value_of(size_t i) { return static_cast<float>((i * 2654435761u >> 8) % 113); }

void fill(flowk_dtype dtype, size_t num_elements, unsigned char* bytes) {
  visit_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < num_elements; ++i) {
      const T element = convert<T>(value_of(i));
      std::memcpy(bytes + i * sizeof(T), &element, sizeof(T));
    }
  });
}

void convert_element(const TypePair& types, const unsigned char* src, unsigned char* dst) {
  visit_type(types.src, [&](auto src_type) {
    decltype(src_type) element;
    std::memcpy(static_cast<void*>(&element), src, sizeof(element));
    const double product = static_cast<double>(widen(element)) * scale;  // exact
    visit_type(types.dst, [&](auto dst_type) {
      const auto result = convert<decltype(dst_type)>(product);
      std::memcpy(dst, &result, sizeof(result));
    });
  });
}

// What the plans that ran had in them.
struct Reached {
  bool rows = false, wide_rows = false, aligned_tile = false, even_tile = false, table_tile = false,
       strided_tile = false, halo = false, joined_rows = false, interleave = false, deinterleave = false;

  void add(const PermutePlan& plan) {
    if (const CopyParams* copy = plan.copy()) (copy->wide_index ? wide_rows : rows) = true;
    if (const auto* planes = std::get_if<Channels>(&plan.mechanism))
      (planes->interleaves ? interleave : deinterleave) = true;
    if (const auto* tile = std::get_if<AlignedTile>(&plan.mechanism)) {
      aligned_tile = true;
      joined_rows |= tile->params.tile.dst_row_shift > 0;
    }
    if (const auto* tile = std::get_if<GeneralTile>(&plan.mechanism)) {
      (tile->params.table.rank > 0 ? table_tile : even_tile) = true;
      halo |= tile->params.tile.halo > 0;
    }
    strided_tile |= plan.kernel() == PermuteKernel::strided_tile;
  }
  void check_everything_was() const {
    CHECK(rows && wide_rows && aligned_tile && even_tile && table_tile && strided_tile && halo && joined_rows);
    CHECK(interleave && deinterleave);
  }
};

struct ConvertRun : CaseRun<Reached> {
  ConvertRun(const PermuteCase& row, const TypePair& types, Reached* reached_so_far)
      : CaseRun(row, case_side(case_of_size(row, dtype_info(types.src).element_bytes), false),
                case_side(case_of_size(row, dtype_info(types.dst).element_bytes), true), reached_so_far) {
    const int64_t src_bytes = dtype_info(types.src).element_bytes, dst_bytes = dtype_info(types.dst).element_bytes;
    fill(types.src, src.num_bytes() / static_cast<size_t>(src_bytes), src.bytes());
    for_each_element(row, [&](int64_t src_at, int64_t dst_at) {
      convert_element(types, src.first + src_at * src_bytes, expected_first() + dst_at * dst_bytes);
    });
    src.poison_what_lies_before();
    request = make_convert_request(row, types, scale, src.first, dst.first);
  }
};

// Every row with one pair of types, the pairs in turn. Rows of aligned tiles come with two pairs more: few pairs have
// kernels of theirs.
TEST(every_tile_of_every_row_converts_every_element_and_nothing_else) {
  Reached reached;
  size_t next = 0;
  for (const PermuteCase& row : permute_kernel_cases)
    if (!row.every_type) ConvertRun(row, type_pairs[next++ % std::size(type_pairs)], &reached).run_all();
  for (const PermuteCase& row : permute_kernel_cases) {
    if (row.mechanism != std::string("aligned_tile")) continue;
    ConvertRun(row, {FLOWK_UINT8, FLOWK_FLOAT16}, &reached).run_all();
    ConvertRun(row, {FLOWK_FLOAT16, FLOWK_UINT8}, &reached).run_all();
  }
  reached.check_everything_was();
}

TEST(rows_of_every_type_are_converted_with_every_pair) {
  Reached reached;
  for (const PermuteCase& row : permute_kernel_cases)
    for (const TypePair& types : type_pairs)
      if (row.every_type) ConvertRun(row, types, &reached).run_planned();
}

TEST(every_tile_of_drawn_permutes_converts_too) {
  Reached reached;
  for (unsigned seed = 0; seed < 60; ++seed)
    ConvertRun(drawn_permute_case(seed), type_pairs[seed % std::size(type_pairs)], &reached).run_all();
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
