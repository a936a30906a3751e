// SPDX-License-Identifier: Apache-2.0
// elementwise_broadcast_rows: out[i, j] = functor(x[i, j], ...) where all rows are whole aligned packs, and an input is
// the same in all rows. A thread computes pack j of several rows i, one after another: it loads inputs that are the
// same in all rows once, and steps from row to row without the two divisions per pack of elementwise_broadcast.
#pragma once

#include "flowk/detail/elementwise_strided.cuh"
#include "flowk/detail/launch_bounds.h"

namespace flowk::detail {

// While one row is computed the packs of the next are loading, which takes registers for both.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(
    elementwise_threads,
    fitting_blocks(elementwise_threads, fewer_resident_blocks<Factory, (kN == 16 || sizeof...(In) > 2) ? 4 : 5>))
    elementwise_broadcast_rows(const __grid_constant__ GridConstant<StridedElementwiseParams<1 + sizeof...(In)>> params,
                               const Factory factory) {
  launch_dependent_grids();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  constexpr int num_inputs = num_operands - 1;
  using Work = PackWork<kN, 1, Out, In...>;
  constexpr int num_words = PackWords<kN, In...>::whole;
  uint32_t index = blockIdx.x * elementwise_threads + threadIdx.x;
  if (index >= params.rows.num_items) return;
  const auto& tile = params.tile;
  const uint32_t column = take_index(&index, tile.tiles_per_row) * kN;
  const uint32_t first_row = take_index(&index, tile.tiles_per_column) * static_cast<uint32_t>(params.rows.packs);
  int64_t offsets[num_operands];
  locate_row(params, index, offsets);
  unsigned char* addresses[num_operands];
#pragma unroll
  for (int k = 0; k < num_operands; ++k)
    addresses[k] = params.operands[k].data + offsets[k] + first_row * params.operands[k].row_stride +
                   column * params.operands[k].step;
  int num_rows = static_cast<int>(::min(tile.column_elements - first_row, static_cast<uint32_t>(params.rows.packs)));
  uint32_t words[num_inputs][num_words] = {};
  const auto load = [&](auto index_of, auto type, uint32_t* own) {
    constexpr int k = decltype(index_of)::value;
    decltype(type)::type::with_size(params.operands[k], [&](auto size) {
      load_unrepeated<kN, decltype(size)::value>(params.operands[k], addresses[k], own);
    });
  };
  const auto repeat = [&](auto index_of, auto type) {
    constexpr int k = decltype(index_of)::value;
    if (params.operands[k].access == ElementwiseAccess::aligned) return;
    decltype(type)::type::with_size(params.operands[k],
                                    [&](auto size) { pack::repeat<kN, decltype(size)::value>(words[k - 1]); });
  };
  wait_on_dependent_grids();
  for_each_input<In...>([&](auto k, auto type) { load(k, type, words[decltype(k)::value - 1]); });
  const auto functor = factory();
  for_each_input<In...>(repeat);
#pragma unroll 1
  for (;;) {
    uint32_t next[num_inputs][num_words] = {};
    if (num_rows > 1)
      for_each_input<In...>([&](auto index_of, auto type) {
        constexpr int k = decltype(index_of)::value;
        if (params.operands[k].row_stride == 0) return;
        addresses[k] += params.operands[k].row_stride;
        load(index_of, type, next[k - 1]);
      });
    uint32_t out[Work::out_words];
    Work::compute(params.operands, functor, 1, words, out);
    Out::with_size(params.operands[0], [&](auto size) { pack::store<kN* decltype(size)::value>(addresses[0], out); });
    if (--num_rows == 0) return;
    addresses[0] += params.operands[0].row_stride;
    for_each_input<In...>([&](auto index_of, auto type) {
      constexpr int k = decltype(index_of)::value;
      if (params.operands[k].row_stride == 0) return;
#pragma unroll
      for (int w = 0; w < num_words; ++w) words[k - 1][w] = next[k - 1][w];
      repeat(index_of, type);
    });
  }
}

}  // namespace flowk::detail
