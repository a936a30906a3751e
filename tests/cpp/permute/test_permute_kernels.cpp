// SPDX-License-Identifier: Apache-2.0
// The kernels of permute against a naive loop: the planner's own pick and every tile that it may choose, bit for bit,
// in memory that ends where the tensors do, so that AddressSanitizer sees the first byte too many.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "core/device.h"
#include "permute_case_run.h"
#include "permute_kernel_cases.h"

namespace {

using namespace flowk::permute;

// What the plans that ran had in them.
struct Reached {
  bool kernels[num_permute_kernels] = {}, interleave = false, deinterleave = false;
  bool row_copy_ranks[7] = {};  // of the rows; 6 and more
  bool wide_copy = false, halo = false, swizzle = false, table = false, swizzled_table = false, periodic_table = false;
  bool unswizzled = false, shared_rows_cut = false, one_dim_cuts_both = false, short_last_src = false, plain = false,
       not_plain = false, short_last_dst = false;
  bool several_passes = false, joined_rows = false, wide_rows = false, partial_vectors = false, whole_vectors = false;
  bool skewed = false, unskewed = false, words_by_table = false, words_with_halo = false, words_joined = false,
       words_rotated = false, words_in_large_blocks = false, words_without_ends = false, words_past_run = false,
       words_short_last_src = false, words_short_last_dst = false, words_joined_along_cut = false,
       words_joined_outside = false, words_batched = false, words_batch_cut = false, words_aligned = false,
       words_not_aligned = false;
  bool words_stored[5] = {}, words_per_item[5] = {};  // by the bytes that are stored at once, and by words

  void add(const PermutePlan& plan) {
    kernels[static_cast<int>(plan.kernel())] = true;
    if (const CopyParams* copy = plan.copy()) {
      wide_copy |= copy->wide_index;
      if (plan.kernel() == PermuteKernel::copy_rows && !copy->wide_index)
        row_copy_ranks[std::min(copy->rank, 6)] = true;
    }
    if (const auto* planes = std::get_if<Channels>(&plan.mechanism))
      (planes->interleaves ? interleave : deinterleave) = true;
    words_in_large_blocks |= plan.kernel() == PermuteKernel::byte_tile && plan.launch.num_threads == tile_threads;
    std::visit([&](const auto& chosen) { add(chosen); }, plan.mechanism);
  }
  void add(const Rows&) {}
  void add(const Channels&) {}
  void add(const StridedTile&) {}
  void add(const ByteTile& chosen) {
    const ByteTileParams& params = chosen.params;
    const TileParams& tile = params.tile;
    skewed |= params.skew_mask > 0;
    unskewed |= params.skew_mask == 0;
    words_by_table |= params.table.rank > 1;
    words_with_halo |= tile.halo > 0;
    words_joined |= params.run_join.divisor > 1 && !params.joins_src_cut;
    words_joined_along_cut |= params.joins_src_cut && tile.num_src_slices > 1;
    const bool is_batched = params.has_outer && tile.src_rows.per_src_index > 0;
    words_joined_outside |= params.has_outer && params.dst_outer_step < params.columns_pitch;
    words_batched |= params.has_outer && params.dst_outer_step >= params.columns_pitch;
    words_batch_cut |= is_batched && has_short_last_src(tile);
    (params.dst_rows_are_aligned ? words_aligned : words_not_aligned) = true;
    words_stored[params.store_bytes] = true;
    words_per_item[params.words_per_item] = true;
    words_rotated |= params.src_rows_are_words;
    words_without_ends |= !params.dst_rows_have_ends;
    words_past_run |= params.table.num_entries % 4 != 0;
    words_short_last_src |= has_short_last_src(tile);
    words_short_last_dst |= has_short_last_dst(tile);
  }
  void add(const AlignedTile& chosen) {
    add_vectors(chosen.params.tile, chosen.params.store);
    unswizzled |= chosen.params.swizzle_bits == 0;
    (chosen.params.has_plain_rows ? plain : not_plain) = true;
    joined_rows |= chosen.params.tile.dst_row_shift > 0;
  }
  void add(const GeneralTile& chosen) {
    const GeneralTileParams& params = chosen.params;
    add_vectors(params.tile, params.store);
    swizzle |= params.swizzle_bits != 0;
    table |= params.table.rank > 0 && params.swizzle_bits == 0;
    swizzled_table |= params.table.rank > 0 && params.swizzle_bits != 0;
    periodic_table |= params.table.rank > 0 && params.period_step != 0;
    wide_rows |= params.load.row_is_wide;
    (params.dst_rows_have_ends ? partial_vectors : whole_vectors) = true;
  }
  void add_vectors(const TileParams& tile, const TileStore& store) {
    halo |= tile.halo > 0;
    shared_rows_cut |= tile.src_rows.per_src_index > 0;
    for (int d = 0; d < tile.grid_rank; ++d)
      one_dim_cuts_both |= tile.grid[d].src_slices == 1 && tile.grid[d].dst_slices == 1;
    short_last_src |= has_short_last_src(tile);
    short_last_dst |= has_short_last_dst(tile);
    several_passes |= store.num_vectors * store.num_rows.divisor > tile_threads;
  }
  static bool has_short_last_src(const TileParams& tile) {
    return tile.num_src_slices > 1 && tile.src_last_slice != tile.src_slice;
  }
  static bool has_short_last_dst(const TileParams& tile) {
    return tile.num_dst_slices > 1 && tile.dst_last_end != tile.dst_slice + tile.halo;
  }
  void check_everything_was() const {
    for (int kernel = 0; kernel < num_permute_kernels; ++kernel) {
      CHECK(kernels[kernel]);
      if (!kernels[kernel]) std::printf("  %s\n", permute_kernel_name(static_cast<PermuteKernel>(kernel)));
    }
    for (int rank = 1; rank <= 6; ++rank) CHECK(row_copy_ranks[rank]);
    CHECK(wide_copy && halo && swizzle && table && swizzled_table && periodic_table);
    CHECK(unswizzled && shared_rows_cut && one_dim_cuts_both && short_last_src && short_last_dst);
    CHECK(plain && not_plain);
    CHECK(interleave && deinterleave);
    CHECK(several_passes && joined_rows && wide_rows && partial_vectors && whole_vectors);
    CHECK(skewed && unskewed && words_by_table && words_past_run);
    CHECK(words_short_last_src && words_short_last_dst);
    CHECK(words_joined && words_joined_along_cut);
    CHECK(words_with_halo && words_rotated && words_in_large_blocks && words_without_ends);
    CHECK(words_joined_outside && words_batched && words_batch_cut && words_aligned && words_not_aligned);
    CHECK(words_stored[1] && words_stored[2] && words_stored[4]);
    for (int words = 1; words <= max_words_per_item; ++words) CHECK(words_per_item[words]);
  }
};

struct MoveRun : CaseRun<Reached> {
  MoveRun(const PermuteCase& row, Reached* reached_so_far)
      : CaseRun(row, case_side(row, false), case_side(row, true), reached_so_far) {
    uint32_t state = 1;
    for (size_t i = 0; i < src.num_bytes(); ++i)
      src.bytes()[i] = static_cast<unsigned char>((state = state * 1664525 + 1013904223) >> 24);
    for_each_element(row, [&](int64_t src_at, int64_t dst_at) {
      std::memcpy(expected_first() + dst_at * row.element_bytes, src.first + src_at * row.element_bytes,
                  static_cast<size_t>(row.element_bytes));
    });
    src.poison_what_lies_before();
    request = make_request(row, src.first, dst.first);
  }
};

TEST(every_tile_of_every_row_moves_every_element_and_nothing_else) {
  Reached reached;
  for (const PermuteCase& row : permute_kernel_cases)
    if (!row.every_type) MoveRun(row, &reached).run_all();
  reached.check_everything_was();
}

TEST(rows_of_every_type_are_moved_in_every_size) {
  Reached reached;
  for (const PermuteCase& row : permute_kernel_cases)
    for (const int32_t element_bytes : {1, 2, 4, 8, 16}) {
      if (!row.every_type) continue;
      const PermuteCase sized = case_of_size(row, element_bytes);
      MoveRun(sized, &reached).run_planned();
    }
}

TEST(every_row_is_planned_as_it_says) {
  Device device;
  CHECK(current_device(&device).ok());
  for (const PermuteCase& row : permute_kernel_cases) {
    SideMemory src(case_side(row, false)), dst(case_side(row, true));
    PermutePlan plan;
    plan_permute(make_request(row, src.first, dst.first), device, &plan);
    const bool is_as_said = std::strcmp(permute_kernel_name(plan.kernel()), row.mechanism) == 0;
    CHECK(is_as_said);
    if (!is_as_said) std::printf("  %s: %s\n", text_of(row).c_str(), permute_kernel_name(plan.kernel()));
  }
}

TEST(every_tile_of_drawn_permutes_does_too) {
  Reached reached;
  for (unsigned seed = 0; seed < 130; ++seed) {
    const PermuteCase row = drawn_permute_case(seed);
    const CaseSide dst = case_side(row, true);
    CHECK(check_no_self_overlap("dst", dst.layout).ok());
    MoveRun(row, &reached).run_all();
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
