// SPDX-License-Identifier: Apache-2.0
// elementwise_shifted_tiles: as elementwise_aligned_tiles, for rows and runs at any address. All inputs with neighbours
// go through shared memory, where they have the same address modulo 32 as in global memory. The packs of a row start up
// to a halo before the tile, so that they are aligned in out.
#pragma once

#include "flowk/detail/elementwise_aligned_tiles.cuh"
#include "flowk/detail/launch_bounds.h"

namespace flowk::detail {

// Runs of neighbours to be copied to shared memory.
struct StagedRuns {
  const unsigned char* first;  // the first run
  int64_t step;                // between runs
  int num_runs;
  uint32_t run_bytes;
  uint32_t offset;  // of `first` in the operand's shared memory, the same modulo 32
  uint32_t pitch;   // between runs there, the same as `step` modulo 32
};

// The offset at which byte `at` of an operand's shared memory is stored.
__device__ __forceinline__ int swizzled_offset(const StridedOperand& operand, int at) {
  return at ^ (at >> operand.swizzle_shift & operand.swizzle_bits);
}

// Copies the aligned vectors that hold the runs: of at most kMaxRuns runs, at most kMaxVectors each. A thread keeps its
// vector and steps from run to run. Run r begins `offset_of(r)` bytes after its place. `is_inner`: no run begins or
// ends within 16 bytes of the operand's ends.
template <int kMaxVectors, int kMaxRuns, class OffsetOf>
__device__ __forceinline__ void stage_runs(const StridedOperand& operand, bool is_inner, const StagedRuns& runs,
                                           const OffsetOf& offset_of) {
  constexpr int runs_per_pass = elementwise_threads / kMaxVectors;
  unsigned char* const staged = &shared<unsigned char>() + operand.shared_offset;
  const SharedAddress staged_address = shared_address(staged);
  int run = static_cast<int>(threadIdx.x / kMaxVectors);
  const uint32_t in_run = threadIdx.x % kMaxVectors * vector_bytes;
  if (run >= runs_per_pass) return;
  const unsigned char* at = runs.first + (run * runs.step + in_run);
  uint32_t to = runs.offset + static_cast<uint32_t>(run) * runs.pitch + in_run;
  const int64_t pass_step = runs_per_pass * runs.step;
  const uint32_t pass_pitch = runs_per_pass * runs.pitch;
  // Calls copy(the vector's offset in shared memory, its address), both rounded down, if the run has bytes in it.
  const auto visit_vector = [&](const auto& copy) {
    const uint32_t offset = offset_of(run);
    const uint32_t in_vector = (to + offset) % vector_bytes;
    if (run < runs.num_runs && in_run < in_vector + runs.run_bytes)
      copy(swizzled_offset(operand, static_cast<int>(to + offset - in_vector)), at + offset - in_vector);
    run += runs_per_pass;
    at += pass_step;
    to += pass_pitch;
  };
  if (is_inner) {
#pragma unroll
    for (int pass = 0; pass < (kMaxRuns + runs_per_pass - 1) / runs_per_pass; ++pass)
      visit_vector([&](int offset, const unsigned char* src) { async_copy_vector(staged_address + offset, src); });
    return;
  }
  const unsigned char *const begin = operand.begin, *const end = operand.end;
#pragma unroll 1
  while (run < runs.num_runs)
    visit_vector([&](int offset, const unsigned char* src) {
      if (src >= begin && end - src >= vector_bytes) return async_copy_vector(staged_address + offset, src);
#pragma unroll 1
      for (int i = 0; i < vector_bytes; ++i)
        if (src + i >= begin && src + i < end) staged[offset + i] = src[i];
    });
}

// Copies the tile's part of an operand, whose element (0, -halo) is at `corner`. Row r is copied from phase_of(r) on.
template <int kN, int kSize, int kOperands, class PhaseOf>
__device__ __forceinline__ void stage_operand(const StridedElementwiseParams<kOperands>& params,
                                              const TilePosition<kOperands>& position, int k,
                                              const unsigned char* corner, const PhaseOf& phase_of) {
  using Shape = ElementwiseTileShape<kN>;
  const StridedOperand& operand = params.operands[k];
  const ElementwiseTile& tile = params.tile;
  const int row_elements = static_cast<int>(params.rows.row_elements.divisor);
  const int first_column = static_cast<int>(position.column) - tile.halo;
  const int num_rows = static_cast<int>(::min(tile.column_elements - position.row, uint32_t{Shape::rows}));
  const auto pitch = static_cast<uint32_t>(operand.pitch);
  const uint32_t lead = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(corner)) % sector_bytes;
  // is_inner: 16 elements before and after the tile's part are at least one vector.
  if (operand.access == ElementwiseAccess::staged) {
    const int lower = first_column < 0 ? -first_column : 0;
    const int upper = ::min(Shape::columns + tile.halo, row_elements - first_column);
    const bool is_inner =
        position.row > 0 && tile.column_elements - position.row >= static_cast<uint32_t>(Shape::rows + vector_bytes);
    stage_runs<Shape::rows * kSize / vector_bytes + 1, Shape::columns + 2 * kN - 1>(
        operand, is_inner,
        {corner + lower * operand.step, operand.step, upper - lower, static_cast<uint32_t>(num_rows * kSize),
         lead + static_cast<uint32_t>(lower) * pitch, pitch},
        [](int) { return 0u; });
  } else {
    const int num_columns = ::min(Shape::columns, row_elements - first_column);
    const bool is_inner = first_column >= vector_bytes &&
                          row_elements - static_cast<int>(position.column) >= Shape::columns + vector_bytes;
    stage_runs<Shape::columns * kSize / vector_bytes + 1, Shape::rows>(
        operand, is_inner,
        {corner, operand.row_stride, num_rows, static_cast<uint32_t>(num_columns * kSize), lead, pitch},
        [&](int row) { return static_cast<uint32_t>((tile.halo - phase_of(row)) * kSize); });
  }
}

// The pack of an operand that is staged as runs along the rows: its elements are `pitch` apart, from `here` on.
template <int kN, int kSize>
__device__ __forceinline__ void gather_pack(const StridedOperand& operand, int here, uint32_t* words) {
  const unsigned char* const staged = &shared<unsigned char>() + operand.shared_offset;
  const int pitch = operand.pitch;
  uint32_t elements[kN][(kSize + 3) / 4];
  if (operand.swizzle_bits == 0) {
#pragma unroll
    for (int i = 0; i < kN; ++i) pack::load<kSize>(elements[i], staged + (here + i * pitch));
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) pack::load<kSize>(elements[i], staged + swizzled_offset(operand, here + i * pitch));
  }
  pack::join<kN, kSize>(elements, words);
}

// The pack of an operand that is staged by rows: neighbours at any address.
template <int kN, int kSize>
__device__ __forceinline__ void cut_pack(const StridedOperand& operand, int here, uint32_t* words) {
  constexpr int bytes = kN * kSize;
  const unsigned char* const at = &shared<unsigned char>() + (operand.shared_offset + here);
  const int shift = here % pack::access_bytes<bytes>;
  if (shift == 0) return pack::load<bytes>(words, at);
  if constexpr (bytes >= 4) {
    uint32_t around[pack::num_words<bytes>];
    pack::load_around<bytes>(around, at, shift);
    pack::shift_down<bytes>(around, shift);
#pragma unroll
    for (int w = 0; w < bytes / 4; ++w) words[w] = around[w];
  }
}

// A thread computes rows_per_thread packs, one per pass of the block over the rows.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(
    elementwise_threads,
    fitting_blocks(elementwise_threads, fewer_resident_blocks<Factory, (kN == 16 || sizeof...(In) > 2) ? 4 : 5>))
    elementwise_shifted_tiles(const __grid_constant__ GridConstant<StridedElementwiseParams<1 + sizeof...(In)>> params,
                              const Factory factory) {
  launch_dependent_grids();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  constexpr int num_inputs = num_operands - 1;
  using Shape = ElementwiseTileShape<kN>;
  using Work = PackWork<kN, 1, Out, In...>;
  const ElementwiseTile& tile = params.tile;
  const StridedOperand& out = params.operands[0];
  const TilePosition<num_operands> position = locate_tile(params, blockIdx.x, Shape::rows, Shape::columns);
  const TileThread<kN> thread;
  const int num_rows = static_cast<int>(::min(tile.column_elements - position.row, uint32_t{Shape::rows}));
  const int tile_column = static_cast<int>(position.column);
  const int row_elements = static_cast<int>(params.rows.row_elements.divisor);
  // The first element of a row's pack at phase 0: its offset in shared memory, or its address.
  int staged_offsets[num_operands] = {};
  uintptr_t addresses[num_operands] = {};
  wait_on_dependent_grids();
  const auto find_corner = [&](int k) {
    return params.operands[k].data + position.offsets[k] + position.row * params.operands[k].row_stride +
           (tile_column - tile.halo) * params.operands[k].step;
  };
  const int in_row = thread.pack * kN + tile.halo;
  const auto find_here = [&](int k, const unsigned char* corner) {
    addresses[k] = reinterpret_cast<uintptr_t>(corner + thread.word * params.operands[k].row_stride +
                                               in_row * params.operands[k].step);
  };
  const unsigned char* const out_corner = find_corner(0);
  find_here(0, out_corner);
  // phase_of(row): the elements between the tile and the pack before it that is aligned in out, from the address of
  // the tile's first element.
  const auto out_address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out_corner)) +
                           (static_cast<uint32_t>(tile.halo) << out.element_shift);
  const auto phase_of = [&](int row) {
    const uint32_t element = out_address + static_cast<uint32_t>(row) * static_cast<uint32_t>(out.row_stride);
    return static_cast<int>(element >> out.element_shift) & tile.halo;
  };
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    const StridedOperand& operand = params.operands[k];
    const unsigned char* const corner = find_corner(k);
    const auto lead = static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(corner)) % sector_bytes);
    if (operand.access == ElementwiseAccess::staged)
      staged_offsets[k] = lead + in_row * operand.pitch + (thread.word << operand.element_shift);
    else if (operand.access == ElementwiseAccess::staged_rows)
      staged_offsets[k] = lead + thread.word * operand.pitch + (in_row << operand.element_shift);
    else
      return find_here(k, corner);
    decltype(type)::type::with_size(
        operand, [&](auto size) { stage_operand<kN, decltype(size)::value>(params, position, k, corner, phase_of); });
  });
  const auto functor = factory();
  async_copy_wait();
  __syncthreads();
#pragma unroll 1
  for (int row = thread.word; row < num_rows; row += Shape::rows_per_pass) {
    const int phase = phase_of(row);
    const int column = tile_column + thread.pack * kN - phase;
    const auto has = [&](int i) { return static_cast<uint32_t>(column + i) < static_cast<uint32_t>(row_elements); };
    uint32_t words[num_inputs][PackWords<kN, In...>::whole];
    for_each_input<In...>(params.operands, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
      const StridedOperand& operand = params.operands[k];
      uint32_t* const own = words[k - 1];
      if (operand.access == ElementwiseAccess::staged) {
        gather_pack<kN, bytes>(operand, staged_offsets[k] - phase * operand.pitch, own);
        staged_offsets[k] += Shape::rows_per_pass * bytes;
        return;
      }
      if (operand.access == ElementwiseAccess::staged_rows) {
        cut_pack<kN, bytes>(operand, staged_offsets[k] - phase * bytes, own);
        staged_offsets[k] += Shape::rows_per_pass * operand.pitch;
        return;
      }
      const unsigned char* at = global_pointer(addresses[k]);
      addresses[k] += static_cast<uintptr_t>(operand.pass_stride);
      if (operand.access != ElementwiseAccess::gather) return load_whole_pack<kN, bytes>(operand, at, own);
      uint32_t elements[kN][(bytes + 3) / 4] = {};
      at -= phase * operand.step;
#pragma unroll
      for (int i = 0; i < kN; ++i, at += operand.step)
        if (has(i)) pack::load<bytes>(elements[i], at);
      pack::join<kN, bytes>(elements, own);
    });
    uint32_t result[Work::out_words];
    Work::compute(params.operands, functor, 1, words, result);
    Out::with_size(out, [&]<int bytes>(Constant<bytes>) {
      unsigned char* at = global_pointer(addresses[0]) - phase * out.step;
      if (out.access == ElementwiseAccess::aligned && column >= 0 && column + kN <= row_elements)
        return pack::store<kN * bytes>(at, result);
#pragma unroll
      for (int i = 0; i < kN; ++i, at += out.step) {
        uint32_t element[(bytes + 3) / 4];
        pack::take<bytes>(result, i, element);
        if (has(i)) pack::store<bytes>(at, element);
      }
    });
    addresses[0] += static_cast<uintptr_t>(out.pass_stride);
  }
}

}  // namespace flowk::detail
