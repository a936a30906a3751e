// SPDX-License-Identifier: Apache-2.0
// The C ABI of permutes of one shape between many pairs of tensors: check, sort the pairs into launches, plan, run.
#include <string.h>  // strnlen

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "api/call.h"
#include "api/permute_call.h"
#include "flowk/flowk.h"
#include "permute/permute.h"

namespace flowk::api {
using namespace permute;
namespace {

struct ManyArguments {
  int32_t count;
  const void* const* srcs;
  void* const* dsts;
  PermuteArguments shared;  // src and dst are not set
};

// The bytes [begin, end) around a pointer in which the elements of a layout lie.
struct ByteRange {
  int64_t begin, end;
};

ByteRange range_of(const Layout& layout, int64_t element_bytes) {
  ByteRange range = {0, element_bytes};
  for (int d = 0; d < layout.rank; ++d) {
    const int64_t last = layout.strides[d] * (layout.extents[d] - 1) * element_bytes;
    (last < 0 ? range.begin : range.end) += last;
  }
  return range;
}

ByteRange src_range_of(const ManyArguments& many, const PermuteTypes& types) {
  return range_of(layout_of(many.shared.rank, many.shared.shape, many.shared.src_strides),
                  dtype_info(types.src).element_bytes);
}

// No dst overlaps another pair's dst or src. Tensors are taken in the order of their first bytes, and each is compared
// with those that reach past its first byte. The error names the first dst that overlaps another pair's tensor, and
// the first of these, dsts[j] before srcs[j].
Status check_pairs_apart(const ManyArguments& many, const PermuteTypes& types) {
  const PermuteArguments& shared = many.shared;
  int64_t dst_extents[max_rank];
  for (int d = 0; d < shared.rank; ++d) dst_extents[d] = shared.shape[shared.axes[d]];
  const Layout src = layout_of(shared.rank, shared.shape, shared.src_strides);
  const Layout dst = layout_of(shared.rank, dst_extents, shared.dst_strides);
  const int64_t src_bytes = dtype_info(types.src).element_bytes, dst_bytes = dtype_info(types.dst).element_bytes;
  const ByteRange src_range = src_range_of(many, types), dst_range = range_of(dst, dst_bytes);

  // Tensor 2 i is dsts[i], tensor 2 i + 1 is srcs[i].
  const auto is_dst = [](int tensor) { return tensor % 2 == 0; };
  const auto begin_of = [&](int tensor) {
    return is_dst(tensor) ? reinterpret_cast<int64_t>(many.dsts[tensor / 2]) + dst_range.begin
                          : reinterpret_cast<int64_t>(many.srcs[tensor / 2]) + src_range.begin;
  };
  const auto end_of = [&](int tensor) {
    const ByteRange& range = is_dst(tensor) ? dst_range : src_range;
    return begin_of(tensor) + (range.end - range.begin);
  };
  const auto check = [&](int pair, int other) {
    char name[32], other_name[32];
    std::snprintf(name, sizeof(name), "dsts[%d]", pair);
    std::snprintf(other_name, sizeof(other_name), is_dst(other) ? "dsts[%d]" : "srcs[%d]", other / 2);
    return is_dst(other) ? check_no_overlap(other_name, many.dsts[other / 2], dst, dst_bytes, name, many.dsts[pair],
                                            dst, dst_bytes)
                         : check_no_overlap(other_name, many.srcs[other / 2], src, src_bytes, name, many.dsts[pair],
                                            dst, dst_bytes);
  };
  constexpr int max_tensors = 2 * FLOWK_MAX_PAIRS;
  int first_overlap = INT32_MAX;  // pair * max_tensors + other
  const auto compare = [&](int a, int b) {
    if (a / 2 == b / 2) return;
    const bool is_pair_a = is_dst(a) && (!is_dst(b) || a < b);
    const int pair = (is_pair_a ? a : b) / 2, other = is_pair_a ? b : a;
    const int place = pair * max_tensors + other;
    if (place < first_overlap && !check(pair, other).ok()) first_overlap = place;
  };

  int16_t order[max_tensors];
  const int num_tensors = 2 * many.count;
  std::iota(order, order + num_tensors, int16_t{0});
  std::sort(order, order + num_tensors, [&](int a, int b) { return begin_of(a) < begin_of(b); });
  // The tensors so far that may reach past the next one's first byte.
  int16_t open_dsts[FLOWK_MAX_PAIRS], open_srcs[FLOWK_MAX_PAIRS];
  int num_open_dsts = 0, num_open_srcs = 0;
  for (int k = 0; k < num_tensors; ++k) {
    const int tensor = order[k];
    const int64_t begin = begin_of(tensor);
    const auto compare_with = [&](int16_t* open, int* num_open) {
      *num_open = static_cast<int>(
          std::remove_if(open, open + *num_open, [&](int other) { return end_of(other) <= begin; }) - open);
      for (int other = 0; other < *num_open; ++other) compare(open[other], tensor);
    };
    compare_with(open_dsts, &num_open_dsts);
    if (is_dst(tensor)) compare_with(open_srcs, &num_open_srcs);
    (is_dst(tensor) ? open_dsts[num_open_dsts++] : open_srcs[num_open_srcs++]) = order[k];
  }
  if (first_overlap == INT32_MAX) return {};
  return check(first_overlap / max_tensors, first_overlap % max_tensors);
}

// Fills the request, with the pointers of the last pair. Each launch sets its own.
Status check_many(const ManyArguments& many, const PermuteTypes& types, PermuteRequest* request, bool* is_empty) {
  FLOWK_RETURN_IF_ERROR(check_permute_types(types, request));
  if (many.count < 0 || many.count > FLOWK_MAX_PAIRS)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "count = %d, must be in 0 ... %d", many.count,
                           FLOWK_MAX_PAIRS);
  *is_empty = many.count == 0;
  if (*is_empty) return {};
  FLOWK_RETURN_IF_ERROR(check_not_null("srcs", many.srcs));
  FLOWK_RETURN_IF_ERROR(check_not_null("dsts", many.dsts));
  for (int i = 0; i < many.count; ++i) {
    char src_name[32], dst_name[32];
    std::snprintf(src_name, sizeof(src_name), "srcs[%d]", i);
    std::snprintf(dst_name, sizeof(dst_name), "dsts[%d]", i);
    PermuteArguments one = many.shared;
    one.src = many.srcs[i];
    one.dst = many.dsts[i];
    one.src_name = src_name;
    one.dst_name = dst_name;
    FLOWK_RETURN_IF_ERROR(check_permute(one, types, request, is_empty));
    if (*is_empty) return {};
  }
  return check_pairs_apart(many, types);
}

// The pairs that the next launch takes.
struct LaunchPairs {
  int members[max_launch_pairs];
  int count = 0;
  int planned = 0;  // the pair whose pointers are planned for
};

uintptr_t offset_in_line(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % line_bytes; }

// The largest power of two, up to a line, that divides the address of a src's first byte in memory, which is
// `src_begin` bytes from its pointer: not 0 where a stride is negative.
uintptr_t alignment_of(const void* src, int64_t src_begin) {
  const uintptr_t bits = (reinterpret_cast<uintptr_t>(src) + static_cast<uintptr_t>(src_begin)) | line_bytes;
  return bits & -bits;
}

// Takes pairs that are not `taken` yet. A plan suits every dst with the same offset in a line, and every src with at
// least the alignment of the planned one.
LaunchPairs take_pairs(const ManyArguments& many, int64_t src_begin, bool* taken) {
  LaunchPairs pairs;
  for (int i = 0; i < many.count && pairs.count < max_launch_pairs; ++i) {
    if (taken[i]) continue;
    if (pairs.count == 0) pairs.planned = i;
    if (offset_in_line(many.dsts[i]) != offset_in_line(many.dsts[pairs.planned])) continue;
    taken[i] = true;
    pairs.members[pairs.count++] = i;
    if (alignment_of(many.srcs[i], src_begin) < alignment_of(many.srcs[pairs.planned], src_begin)) pairs.planned = i;
  }
  return pairs;
}

// Plans one launch, and runs or explains it; if `use` is null, only checks it. If the plan does not take all pairs,
// each has a launch of its own.
Status use_pairs(const ManyArguments& many, PermuteRequest request, const LaunchPairs& pairs, const Device& device,
                 PlanUse* use) {
  request.src = many.srcs[pairs.planned];
  request.dst = many.dsts[pairs.planned];
  int64_t src_offsets[max_launch_pairs], dst_offsets[max_launch_pairs];
  for (int i = 0; i < pairs.count; ++i) {
    const auto distance = [](const void* to, const void* from) {  // of two allocations
      return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
    };
    src_offsets[i] = distance(many.srcs[pairs.members[i]], request.src);
    dst_offsets[i] = distance(many.dsts[pairs.members[i]], request.dst);
  }
  const auto one_by_one = [&]() -> Status {
    for (int i = 0; i < pairs.count; ++i)
      FLOWK_RETURN_IF_ERROR(use_pairs(many, request, {{pairs.members[i]}, 1, pairs.members[i]}, device, use));
    return {};
  };
  const PermutePlan* cached = nullptr;
  FLOWK_RETURN_IF_ERROR(cached_plan(request, device, &cached));
  PermutePlan plan = *cached;
  if (!set_pairs(pairs.count, src_offsets, dst_offsets, &plan)) return one_by_one();
  FLOWK_RETURN_IF_ERROR(check_grid("dsts", plan.launch));
  if (use == nullptr) return {};
  if (!use->explains) return run_permute(plan, use->stream);
  explain_permute(plan, request, use->text, use->text_bytes);
  // The next launch's text follows.
  const size_t length = strnlen(use->text, use->text_bytes);
  use->text += length;
  use->text_bytes -= length;
  return {};
}

flowk_status permute_many(const ManyArguments& many, const PermuteTypes& types, const PlanUse& use) {
  return check_plan_run<PermuteRequest>(
      use, [&](PermuteRequest* request, bool* is_empty) { return check_many(many, types, request, is_empty); },
      [&](const PermuteRequest& request, const Device& device) -> Status {
        const int64_t src_begin = src_range_of(many, types).begin;
        const auto use_all = [&](PlanUse* rest) -> Status {
          bool taken[FLOWK_MAX_PAIRS] = {};
          for (int num_taken = 0; num_taken < many.count;) {
            const LaunchPairs pairs = take_pairs(many, src_begin, taken);
            FLOWK_RETURN_IF_ERROR(use_pairs(many, request, pairs, device, rest));
            num_taken += pairs.count;
          }
          return {};
        };
        // A later launch may need more blocks than the first, so all are checked before the first runs. Every block
        // moves an element, so a grid has at most as many blocks as there are elements.
        int64_t num_elements = 1;
        for (int d = 0; d < request.shape.rank; ++d) num_elements *= request.shape.extents[d];
        if (num_elements > max_grid_blocks) FLOWK_RETURN_IF_ERROR(use_all(nullptr));
        PlanUse rest = use;
        return use_all(&rest);
      });
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_permute_many(int32_t count, const void* const* srcs, const int64_t* src_strides,
                                flowk_dtype src_dtype, void* const* dsts, const int64_t* dst_strides,
                                flowk_dtype dst_dtype, int32_t rank, const int64_t* shape, const int32_t* axes,
                                double scale, flowk_stream stream) {
  return permute_many({count, srcs, dsts, {nullptr, src_strides, nullptr, dst_strides, rank, shape, axes}},
                      {src_dtype, dst_dtype, scale}, stream);
}

flowk_status flowk_permute_many_explain(int32_t count, const void* const* srcs, const int64_t* src_strides,
                                        flowk_dtype src_dtype, void* const* dsts, const int64_t* dst_strides,
                                        flowk_dtype dst_dtype, int32_t rank, const int64_t* shape, const int32_t* axes,
                                        double scale, char* text, size_t text_bytes) {
  return permute_many({count, srcs, dsts, {nullptr, src_strides, nullptr, dst_strides, rank, shape, axes}},
                      {src_dtype, dst_dtype, scale}, {text, text_bytes});
}

}  // extern "C"
