// SPDX-License-Identifier: Apache-2.0
// The kernels of permute that convert, against a naive loop: the planner's own pick and every tile that it may choose,
// with a pair of types after the other, in memory that ends where the tensors do.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "case_memory.h"
#include "check.h"
#include "core/convert.cuh"
#include "core/device.h"
#include "permute/plan/permute_problem.h"
#include "permute_candidates.h"
#include "permute_convert_case.h"
#include "permute_kernel_cases.h"
#include "thread_order.h"

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

void convert_naively(const PermuteCase& row, const TypePair& types, const unsigned char* src, unsigned char* dst) {
  const CaseSide src_side = case_side(row, false), dst_side = case_side(row, true);
  const int64_t src_bytes = dtype_info(types.src).element_bytes, dst_bytes = dtype_info(types.dst).element_bytes;
  int64_t index[max_rank] = {};  // of dst
  const int rank = dst_side.layout.rank;
  for (;;) {
    int64_t src_at = 0, dst_at = 0;
    for (int d = 0; d < rank; ++d) {
      src_at += index[d] * src_side.layout.strides[row.axes[static_cast<size_t>(d)]];
      dst_at += index[d] * dst_side.layout.strides[d];
    }
    convert_element(types, src + src_at * src_bytes, dst + dst_at * dst_bytes);
    int d = rank - 1;
    while (d >= 0 && ++index[d] == dst_side.layout.extents[d]) index[d--] = 0;
    if (d < 0) return;
  }
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

// A case with its memory, and what dst's memory, gaps and all, is to hold.
class CaseRun {
 public:
  CaseRun(const PermuteCase& row, const TypePair& types, Reached* reached)
      : row_(row),
        types_(types),
        reached_(reached),
        src_(case_side(case_of_size(row, dtype_info(types.src).element_bytes), false)),
        dst_(case_side(case_of_size(row, dtype_info(types.dst).element_bytes), true)),
        expected_(dst_.num_bytes(), guard) {
    fill(types.src, src_.num_bytes() / static_cast<size_t>(dtype_info(types.src).element_bytes), src_.bytes());
    convert_naively(row, types, src_.first(), expected_.data() + (dst_.first() - dst_.bytes()));
    src_.poison_what_lies_before();
    CHECK(current_device(&device_).ok());
  }

  PermutePlan run_planned() {
    PermutePlan plan;
    plan_permute(request(), device_, &plan);
    run(request(), plan, "planned");
    return plan;
  }

  void run_all() {
    const PermuteRequest request = this->request();
    PermutePlan plan = run_planned();
    if (plan.copy() != nullptr) {
      const_cast<CopyParams*>(plan.copy())->wide_index = true;
      run(request, plan, "with 64-bit indices");
    }
    PermuteProblem problem;
    make_problem(request, &problem);
    for_each_tile_candidate(problem, device_, [&](const PermutePlan& tile, int src_choice, int dst_choice) {
      run(request, tile, "candidate " + std::to_string(src_choice) + ", " + std::to_string(dst_choice));
    });
  }

 private:
  static constexpr unsigned char guard = 0xA5;

  PermuteRequest request() const { return make_convert_request(row_, types_, scale, src_.first(), dst_.first()); }

  void run(const PermuteRequest& request, const PermutePlan& plan, const std::string& what) {
    std::memset(dst_.bytes(), guard, dst_.num_bytes());
    reached_->add(plan);
    draw_thread_order();
    const bool is_run = run_permute(plan, nullptr).ok();
    const bool is_right = is_run && std::memcmp(dst_.bytes(), expected_.data(), expected_.size()) == 0;
    CHECK(is_right);
    if (is_right) return;
    char text[4096];
    explain_permute(plan, request, text, sizeof(text));
    size_t at = 0;
    while (at < expected_.size() && dst_.bytes()[at] == expected_[at]) ++at;
    std::printf("  %s, %s: %s, first wrong at byte %zu of %zu\n  %s", text_of(row_).c_str(), what.c_str(),
                is_run ? "ran" : last_error_text(), at, expected_.size(), text);
  }

  const PermuteCase& row_;
  TypePair types_;
  Reached* reached_;
  Device device_;
  Memory src_, dst_;
  std::vector<unsigned char> expected_;
};

// Every row with one pair of types, the pairs in turn. Rows of aligned tiles come with two pairs more: few pairs have
// kernels of theirs.
TEST(every_tile_of_every_row_converts_every_element_and_nothing_else) {
  Reached reached;
  size_t next = 0;
  for (const PermuteCase& row : permute_kernel_cases)
    if (!row.every_type) CaseRun(row, type_pairs[next++ % std::size(type_pairs)], &reached).run_all();
  for (const PermuteCase& row : permute_kernel_cases) {
    if (row.mechanism != std::string("aligned_tile")) continue;
    CaseRun(row, {FLOWK_UINT8, FLOWK_FLOAT16}, &reached).run_all();
    CaseRun(row, {FLOWK_FLOAT16, FLOWK_UINT8}, &reached).run_all();
  }
  reached.check_everything_was();
}

TEST(rows_of_every_type_are_converted_with_every_pair) {
  Reached reached;
  for (const PermuteCase& row : permute_kernel_cases)
    for (const TypePair& types : type_pairs)
      if (row.every_type) CaseRun(row, types, &reached).run_planned();
}

TEST(every_tile_of_drawn_permutes_converts_too) {
  Reached reached;
  for (unsigned seed = 0; seed < 60; ++seed)
    CaseRun(drawn_permute_case(seed), type_pairs[seed % std::size(type_pairs)], &reached).run_all();
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
