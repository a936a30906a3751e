// SPDX-License-Identifier: Apache-2.0
// The gradient of a bias that rows share, in one pass with dx.
#pragma once

#include "softmax/kernels/row_elements.cuh"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::softmax {

// One thread's sums of its columns, in packs of 16 bytes. The packs of neighbouring threads are neighbours.
template <class T>
struct ColumnSums {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>, pack_width = vector_width<A>, vector_packs = width / pack_width;
  struct alignas(vector_bytes) SumPack {
    A values[pack_width];
  };
  SumPack* packs;  // this thread's first

  __device__ __forceinline__ explicit ColumnSums(const BiasGradient& gradient) {
    unsigned char* const block = gradient.sums == nullptr ? &shared<unsigned char>() + gradient.sums_offset_bytes
                                                          : gradient.sums + blockIdx.x * gradient.block_sums_bytes;
    packs = reinterpret_cast<SumPack*>(block) + threadIdx.x;
    for (int i = 0; i < gradient.vectors_per_thread * vector_packs; ++i) packs[i * static_cast<int>(blockDim.x)] = {};
  }
  __device__ __forceinline__ SumPack& pack(int vector, int i) const {
    return packs[(vector * vector_packs + i) * static_cast<int>(blockDim.x)];
  }
  __device__ __forceinline__ void add(int vector, const A (&values)[width]) const {
#pragma unroll
    for (int i = 0; i < vector_packs; ++i) {
      SumPack sum = pack(vector, i);
#pragma unroll
      for (int j = 0; j < pack_width; ++j) sum.values[j] += values[i * pack_width + j];
      pack(vector, i) = sum;
    }
  }
  __device__ __forceinline__ void get(int vector, A (&values)[width]) const {
#pragma unroll
    for (int i = 0; i < vector_packs; ++i) {
      const SumPack sum = pack(vector, i);
#pragma unroll
      for (int j = 0; j < pack_width; ++j) values[i * pack_width + j] = sum.values[j];
    }
  }
};

// store(address, type) with the row of dbias of a group, and its element type.
template <class A, class Store>
__device__ __forceinline__ void store_in_dbias(const BiasGradient& gradient, const SoftmaxParams& params, int64_t group,
                                               Store store) {
  unsigned char* address = gradient.dbias;
  const auto step = [&](int d, int64_t index) { address += index * params.rows.dims[d].strides[softmax_dense]; };
  const int64_t linear = group * gradient.members;
  if (params.rows.is_wide)
    split_index<0>(static_cast<uint64_t>(linear), params.rows.dims, params.rows.rank, step);
  else
    split_index<0>(static_cast<uint32_t>(linear), params.rows.dims, params.rows.rank, step);
  if constexpr (sizeof(A) == 8)
    store(address, std::type_identity<double>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT32)
    store(address, std::type_identity<float>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT16)
    store(address, std::type_identity<Float16>());
  else
    store(address, std::type_identity<BFloat16>());
}

// dz(row, j) = y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), dx(row, j) = scale * dz(row, j), and
// dbias(group, j) = sum over the members of a group of dz(member, j). The threads of a row take the members of one
// chunk, one after the other; a thread has the same columns of each and adds them up itself. Rows have any number of
// columns. If there are several chunks, their sums are partials(chunk, group, j).
template <class Input>
__global__ void __launch_bounds__(max_bias_gradient_threads)
    bias_gradient(const __grid_constant__ GridConstant<BiasGradient> gradient,
                  const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = Input;
  using A = ComputeType<T>;
  using Terms = GradientTerms<T>;
  constexpr int width = vector_width<T>, held_vectors = 2;  // the others are loaded twice
  const RowThreads threads = row_threads(params);
  const auto [linear_chunk, lane] = row_position(params);
  const uint32_t chunk = gradient.chunks > 1 ? gradient.groups_of_chunk.divide(static_cast<uint32_t>(linear_chunk)) : 0;
  const int64_t group = linear_chunk - chunk * gradient.groups;
  const bool group_exists = chunk < static_cast<uint32_t>(gradient.chunks) && group < gradient.groups;
  const RowOutput<T, sizeof(T) < 8> output{params};
  Terms terms(params);
  const A scale = terms.scale;
  terms.scale = 1;
  const RowInRegisters mechanism = {.element_step = gradient.element_step};
  const RowVectors vectors = {.count = gradient.row_vectors, .read_end = gradient.row_vectors};
  const OwnVectors own = {lane, params.lanes_per_row, vectors.count, 0};
  wait_on_dependent_grids();
  const ColumnSums<T> sums(gradient);

  // Threads of a warp may have different groups, so all of them take as many members as the first chunk has.
  int turn = 0;
#pragma unroll 1
  for (int64_t first = 0; first < gradient.members; first += gradient.chunks, turn ^= 1) {
    const int64_t member = first + chunk;
    const bool exists = group_exists && member < gradient.members;
    const int64_t linear = exists ? group * gradient.members + member : params.rows.num_rows;
    const SoftmaxRow row = locate_row<SoftmaxMask::none, true>(params, linear, false);
    const RowElements<T> elements(mechanism, row, vectors, own, lane);
    const bool is_first = lane == 0 && exists;
    const auto load = [&](int i, uint4(&inputs)[Terms::num_inputs]) {
      if (!gradient.by_vectors) {
#pragma unroll
        for (int k = 0; k < Terms::num_inputs; ++k) inputs[k] = elements.load(terms, params, row, i, k);
        return;
      }
      const int column = elements.column(i, 0);
#pragma unroll
      for (int k = 0; k < Terms::num_inputs; ++k) inputs[k] = Terms::masked_vector(params, k);
      if (column + width <= row.begin || column >= row.end) return;
      const int64_t offset = static_cast<int64_t>(column) * static_cast<int>(sizeof(T));
      inputs[0] = load_vector(row.x + offset);
      inputs[1] = load_vector(row.bias_or_y + offset);
      if (params.interval.exists) Terms::cut(params, row, column, &inputs[0], &inputs[1]);
    };

    typename Terms::Partial partial = Terms::begin(params, static_cast<uint32_t>(linear), is_first);
    uint4 held[held_vectors][Terms::num_inputs];
#pragma unroll
    for (int i = 0; i < held_vectors; ++i) load(i, held[i]);
    terms.take(held, &partial);
#pragma unroll 1
    for (int i = held_vectors; i < gradient.vectors_per_thread; ++i) {
      uint4 inputs[1][Terms::num_inputs];
      load(i, inputs[0]);
      terms.take(inputs, &partial);
    }
    // Two buffers in turn: all threads have read one before any writes it again.
    const RowPartial<T> total = Terms::merge(exchange_buffer_at(exchange_buffer<T>(), threads, turn), threads, partial);
    const A sum = static_cast<A>(total.sum);
    const auto finish = [&](int i, const uint4(&inputs)[Terms::num_inputs]) {
      A results[width];
      terms.vector_results(inputs[0], inputs[1], sum, results);
      elements.clear_masked(row, i, sum, results);
      sums.add(i, results);
      if (params.out == nullptr) return;
#pragma unroll
      for (A& result : results) result *= scale;
      const int column = elements.column(i, 0);
      if (!gradient.by_vectors)
        elements.store(output, row, i, results);
      else if (column < row.columns)
        output.store_vector(row.out + static_cast<int64_t>(column) * output.column_bytes(), results);
    };
#pragma unroll
    for (int i = 0; i < held_vectors; ++i)
      if (i < gradient.vectors_per_thread) finish(i, held[i]);
#pragma unroll 1
    for (int i = held_vectors; i < gradient.vectors_per_thread; ++i) {
      uint4 inputs[Terms::num_inputs];
      load(i, inputs);
      finish(i, inputs);
    }
    Terms::leave(params, static_cast<uint32_t>(linear), is_first, total);
  }
  if (!group_exists) return;

  SoftmaxRow whole;
  whole.columns = params.columns;
  const RowElements<T> elements(mechanism, whole, vectors, own, lane);
  const auto store = [&](unsigned char* address, auto type) {
    using Out = typename decltype(type)::type;
#pragma unroll 1
    for (int i = 0; i < gradient.vectors_per_thread; ++i) {
      A values[width];
      sums.get(i, values);
      const int column = elements.column(i, 0);
      if (!gradient.stores_vectors) {
#pragma unroll
        for (int j = 0; j < width; ++j)
          if (elements.is_stored(elements.column(i, j))) store_element<Out>(address, elements.column(i, j), values[j]);
      } else if (column < params.columns) {
        store_values<Out>(address + static_cast<int64_t>(column) * static_cast<int>(sizeof(Out)), values);
      }
    }
  };
  if (gradient.chunks == 1) return store_in_dbias<A>(gradient, params, group, store);
  store(gradient.partials + linear_chunk * params.columns * static_cast<int>(sizeof(A)), std::type_identity<A>());
}

// dbias(group, j) = sum over chunks of partials(chunk, group, j). A warp has 32 neighbouring elements; the warps of a
// block take its chunks in turn, and the first warp adds up their sums.
template <class A>
__global__ void __launch_bounds__(max_bias_gradient_threads)
    bias_gradient_of_chunks(const __grid_constant__ GridConstant<BiasGradient> gradient,
                            const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes, warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int num_warps = static_cast<int>(blockDim.x) / warp_lanes;
  const int64_t num_elements = gradient.groups * params.columns;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * warp_lanes + lane;
  const A* const partials = reinterpret_cast<const A*>(gradient.partials) + element;
  wait_on_dependent_grids();
  A sum = 0;
  if (element < num_elements)
#pragma unroll 8
    for (int chunk = warp; chunk < gradient.chunks; chunk += num_warps) sum += partials[chunk * num_elements];
  A* const sums = &shared<A>();
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || element >= num_elements) return;
  for (int i = 1; i < num_warps; ++i) sum += sums[i * warp_lanes + lane];
  const auto group = static_cast<int64_t>(gradient.columns.divide(static_cast<uint64_t>(element)));
  store_in_dbias<A>(gradient, params, group, [&](unsigned char* address, auto type) {
    store_element<typename decltype(type)::type>(address, element - group * params.columns, sum);
  });
}

}  // namespace flowk::softmax
