// SPDX-License-Identifier: Apache-2.0
// A permute's case with its memory: runs the planner's own pick and every tile that it may choose.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "core/device.h"
#include "heap_memory.h"
#include "permute/plan/permute_problem.h"
#include "permute_candidates.h"
#include "permute_case.h"
#include "thread_order.h"

// Calls visit(src_at, dst_at) for every element, with its place in elements from the ones with all indices 0.
template <class Visit>
void for_each_element(const PermuteCase& row, Visit visit) {
  const CaseSide src = case_side(row, false), dst = case_side(row, true);
  int64_t index[flowk::permute::max_rank] = {};  // of dst
  const int rank = dst.layout.rank;
  for (;;) {
    int64_t src_at = 0, dst_at = 0;
    for (int d = 0; d < rank; ++d) {
      src_at += index[d] * src.layout.strides[row.axes[static_cast<size_t>(d)]];
      dst_at += index[d] * dst.layout.strides[d];
    }
    visit(src_at, dst_at);
    int d = rank - 1;
    while (d >= 0 && ++index[d] == dst.layout.extents[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

// One side's memory: `lead_bytes` from a multiple of 128, then the elements' bytes.
struct SideMemory : HeapMemory {
  explicit SideMemory(const CaseSide& side)
      : HeapMemory(static_cast<size_t>(side.lead_bytes + side.span_bytes)),
        lead_bytes(static_cast<size_t>(side.lead_bytes)),
        first(bytes() + side.lead_bytes + side.first_bytes) {}
  // A vector of 16 bytes that holds a byte of the tensor may be read whole, but not what lies before the first one.
  void poison_what_lies_before() { poison(lead_bytes / 16 * 16); }

  size_t lead_bytes;
  unsigned char* first;  // the element with all indices 0
};

// A case with its memory, and what dst's memory, gaps and all, is to hold. The constructor of a derived class fills src
// and `expected`, and sets `request`. `Reached` notes what the plans that ran had in them.
template <class Reached>
struct CaseRun {
  CaseRun(const PermuteCase& case_to_run, const CaseSide& src_side, const CaseSide& dst_side, Reached* reached_so_far)
      : row(case_to_run), reached(reached_so_far), src(src_side), dst(dst_side), expected(dst.num_bytes(), guard) {
    CHECK(current_device(&device).ok());
  }
  unsigned char* expected_first() { return expected.data() + (dst.first - dst.bytes()); }

  flowk::permute::PermutePlan run_planned() {
    flowk::permute::PermutePlan plan;
    plan_permute(request, device, &plan);
    run(plan, "planned");
    return plan;
  }

  void run_all() {
    flowk::permute::PermutePlan plan = run_planned();
    if (plan.copy() != nullptr) {
      // The kernel of wide rows takes one item per thread.
      const_cast<flowk::permute::CopyParams*>(plan.copy())->wide_index = true;
      plan.launch.num_blocks = flowk::core::ceil_div(plan.copy()->num_items, plan.launch.num_threads);
      run(plan, "with 64-bit indices");
    }
    flowk::permute::PermuteProblem problem;
    make_problem(request, &problem);
    for_each_tile_candidate(problem, device, [&](const auto& tile, int src_choice, int dst_choice) {
      run(tile, "candidate " + std::to_string(src_choice) + ", " + std::to_string(dst_choice));
    });
  }

  void run(const flowk::permute::PermutePlan& plan, const std::string& what) {
    std::memset(dst.bytes(), guard, dst.num_bytes());
    reached->add(plan);
    draw_thread_order();
    const bool is_run = run_permute(plan, nullptr).ok();
    const bool is_right = is_run && std::memcmp(dst.bytes(), expected.data(), expected.size()) == 0;
    CHECK(is_right);
    if (is_right) return;
    char text[4096];
    explain_permute(plan, request, text, sizeof(text));
    size_t at = 0;
    while (at < expected.size() && dst.bytes()[at] == expected[at]) ++at;
    std::printf("  %s, %s: %s, first wrong at byte %zu of %zu\n  %s", text_of(row).c_str(), what.c_str(),
                is_run ? "ran" : flowk::permute::last_error_text(), at, expected.size(), text);
  }

  static constexpr unsigned char guard = 0xA5;
  const PermuteCase& row;
  Reached* reached;
  flowk::permute::Device device;
  SideMemory src, dst;
  std::vector<unsigned char> expected;
  flowk::permute::PermuteRequest request;
};
