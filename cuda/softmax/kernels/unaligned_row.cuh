// SPDX-License-Identifier: Apache-2.0
// Rows of any alignment and number of columns. Vectors have the columns of aligned rows: the first one starts with the
// row's first column, and the last one may have fewer columns.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// As row_vectors(), but the row's last vector may reach past its last column.
template <class T>
__device__ __forceinline__ RowVectors padded_row_vectors(const SoftmaxParams& params, SoftmaxRow row) {
  row.columns = (row.columns + vector_width<T> - 1) / vector_width<T> * vector_width<T>;
  return row_vectors<T>(params, row);
}

// The first `count` elements of a vector, which are fewer than it has; the others are 0.
template <class T>
__device__ __forceinline__ uint4 load_elements(const unsigned char* address, int count) {
  Vector<sizeof(T)> vector = {};
#pragma unroll
  for (int j = 0; j < vector_width<T>; ++j)
    if (j < count) vector.elements[j] = reinterpret_cast<const Pack<sizeof(T)>*>(address)[j];
  return vector.whole;
}
template <int kWidth>
__device__ __forceinline__ DenseWords<kWidth> load_dense_elements(const unsigned char* address, int count) {
  DenseWords<kWidth> dense = {};
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if (j < count) dense.words[j / 4] |= uint32_t{address[j]} << (8 * (j % 4));
  return dense;
}

// Stores the vectors of a row as aligned vectors of memory. The aligned vector of a lane starts with the last elements
// of the vector of the lane before it. The row's first and last lanes in a warp store a part of one: an edge.
template <class T>
struct UnalignedStores {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>, size = static_cast<int>(sizeof(T));
  unsigned char* out;
  int begin, end;          // the columns that the block stores
  int before;              // elements of an aligned vector before the row's first column
  int first, step;         // the thread's aligned vector i starts with column first + i * step
  int warp_first;          // the warp's first vector i with column warp_first + i * step
  int warp_end;            // of all rows of the warp
  bool is_first, is_last;  // of the row's lanes in the warp, if it has edges
  VectorCut<T> cut;

  __device__ __forceinline__ UnalignedStores(const SoftmaxRow& row, const RowVectors& vectors, const OwnVectors& own,
                                             const RowThreads& group, int columns)
      : out(row.out),
        begin(vectors.read_begin * width),
        end(min(own.end * width, row.columns)),
        before(static_cast<int>(reinterpret_cast<uintptr_t>(row.out) % vector_bytes) / size),
        first(own.first * width - before),
        step(own.step * width),
        warp_first(group.lanes < 32 ? 0 : (own.first - group.lane) * width),
        warp_end(group.lanes < 32 ? columns : end),
        is_first(before > 0 && group.lane == 0),
        is_last(before > 0 && group.lane == group.lanes - 1),
        cut(before) {}

  // Does the warp have no vector i?
  __device__ __forceinline__ bool is_past(int i) const { return warp_first + i * step >= warp_end; }

  // All lanes of a warp call it.
  __device__ __forceinline__ void store(int i, const A (&values)[width]) const {
    const uint4 own = narrow_vector<T>(values);
    const uint4 turned = shift_vectors(own, own, -before * size & (vector_bytes - 1));  // its last elements come first
    const auto of_lane_before = [](uint32_t word) {
      return __shfl_sync(0xffffffffu, word, static_cast<int>(threadIdx.x) - 1);
    };
    uint4 vector = turned;
    cut.replace_before(&vector, {of_lane_before(turned.x), of_lane_before(turned.y), of_lane_before(turned.z),
                                 of_lane_before(turned.w)});
    const int column = first + i * step;
    if (!is_first) put(column, vector, begin, end);
    if (is_first || is_last) store_edges(column, own, turned);
  }
  // Writes `value` to the columns that no thread of the row stores otherwise.
  __device__ __forceinline__ void fill(const RowVectors& vectors, int columns, int thread, int num_threads,
                                       A value) const {
    A values[width];
#pragma unroll
    for (int j = 0; j < width; ++j) values[j] = value;
    const auto fill_part = [&](int part_begin, int part_end) {
      int column = (part_begin + before) / width * width - before + thread * width;
#pragma unroll 1
      for (; column < part_end; column += num_threads * width)
        put(column, narrow_vector<T>(values), part_begin, part_end);
    };
    fill_part(0, vectors.read_begin * width);
    fill_part(vectors.read_end * width, columns);
  }

 private:
  __device__ __forceinline__ unsigned char* at(int column) const { return out + int64_t{column} * size; }

  // Stores the elements of the aligned vector at `column` that lie in [of_begin, of_end).
  __device__ __forceinline__ void put(int column, uint4 vector, int of_begin, int of_end) const {
    if (column >= of_begin && column + width <= of_end) {
      store_vector(at(column), vector);
      return;
    }
#pragma unroll 1
    for (int j = 0; j < width; ++j) {
      if (column + j >= of_begin && column + j < of_end)
        *reinterpret_cast<Pack<size>*>(at(column + j)) = static_cast<Pack<size>>(vector.x);
      vector = shift_vectors(vector, vector, size);
    }
  }
  // The first lane's aligned vector at `column` has its elements from `before` on, and the vector after the last lane's
  // one the others.
  __device__ __forceinline__ void store_edges(int column, const uint4& own, const uint4& turned) const {
    const int edge = is_last ? column + width : column;
    const int low = is_last ? 0 : before, high = is_last ? before : width;
    if (is_first && is_last) put(column, turned, max(begin, column + before), end);
    if ((is_first && is_last) || edge + low < begin || edge + high > end) {
      put(edge, turned, max(begin, edge + low), min(end, edge + high));
      return;
    }
    const uint32_t words[4] = {turned.x, turned.y, turned.z, turned.w};
    constexpr int word_elements = 4 / size;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i * word_elements >= low && (i + 1) * word_elements <= high)
        *reinterpret_cast<uint32_t*>(at(edge) + 4 * i) = words[i];
    if (size == 2 && before % 2 != 0)
      *reinterpret_cast<uint16_t*>(at(is_last ? edge + before - 1 : edge + before)) =
          static_cast<uint16_t>(is_last ? own.w >> 16 : own.x);
  }
};

}  // namespace flowk::softmax
