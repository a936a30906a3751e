// SPDX-License-Identifier: Apache-2.0
// The columns of a thread in a row of any alignment and number of columns, one element at a time.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// As row_vectors(), but the row's last vector may reach past its last column.
template <class T>
__device__ __forceinline__ RowVectors padded_row_vectors(const SoftmaxParams& params, SoftmaxRow row) {
  row.columns = (row.columns + vector_width<T> - 1) / vector_width<T> * vector_width<T>;
  return row_vectors<T>(params, row);
}

// Vector i of a thread has columns first + i * vector_step + j * element_step. If element_step is 1, these columns are
// neighbours. If it is lanes_per_row, neighbouring threads have neighbouring columns, and vectors i of all threads of
// the row together have lanes_per_row * width neighbouring columns.
template <class T>
struct RowElements {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>;
  int first, vector_step, element_step;
  int first_vector, last_vector;  // of the threads of the row in this block, and the one after the last
  int stored_begin, stored_end;   // columns that the block stores

  __device__ __forceinline__ RowElements(const RowInRegisters& mechanism, const SoftmaxRow& row,
                                         const RowVectors& vectors, const OwnVectors& own, int lane)
      : vector_step(own.step * width),
        element_step(mechanism.element_step),
        first_vector(own.first - lane),
        last_vector(own.end) {
    first = first_vector * width + lane * (element_step == 1 ? width : 1);
    stored_begin = vectors.read_begin * width;
    stored_end = min(own.end * width, row.columns);
  }
  __device__ __forceinline__ bool has_vector(int i) const {
    return first_vector + i * (vector_step / width) < last_vector;
  }
  __device__ __forceinline__ int column(int i, int j) const { return first + i * vector_step + j * element_step; }
  __device__ __forceinline__ bool is_stored(int column) const { return column >= stored_begin && column < stored_end; }

  // One bit per column of vector i: is it stored, and unmasked?
  __device__ __forceinline__ unsigned unmasked(const SoftmaxRow& row, int i) const {
    const int end = min(row.end, stored_end);
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < width; ++j)
      if (column(i, j) >= row.begin && column(i, j) < end) bits |= 1u << j;
    if (row.dense == nullptr) return bits;
#pragma unroll
    for (int j = 0; j < width; ++j)
      if ((bits >> j & 1) != 0 && row.dense[column(i, j)] != 0) bits &= ~(1u << j);
    return bits;
  }
  // The columns of vector i that have a bit; the others are from `absent`.
  __device__ __forceinline__ uint4 load(const unsigned char* source, int i, unsigned bits, const uint4& absent) const {
    Vector<sizeof(T)> vector = {absent};
#pragma unroll
    for (int j = 0; j < width; ++j)
      if ((bits >> j & 1) != 0) vector.elements[j] = reinterpret_cast<const Pack<sizeof(T)>*>(source)[column(i, j)];
    return vector.whole;
  }
  // The biases of columns that have a bit, as load_bias(); 0 of the others.
  __device__ __forceinline__ void load_bias(const SoftmaxParams& params, const SoftmaxRow& row, int i, unsigned bits,
                                            A (&bias)[width]) const {
#pragma unroll
    for (int j = 0; j < width; ++j) bias[j] = 0;
    const auto load_as = [&](auto type) {
#pragma unroll
      for (int j = 0; j < width; ++j)
        if ((bits >> j & 1) != 0)
          bias[j] = static_cast<A>(load_element<typename decltype(type)::type>(row.bias_or_y, column(i, j)));
    };
    if (params.bias_is_float32)
      load_as(std::type_identity<float>());
    else
      load_as(std::type_identity<T>());
  }
  // The gradients of masked columns are 0 for every sum.
  __device__ __forceinline__ void clear_masked(const SoftmaxRow& row, int i, A sum, A (&dx)[width]) const {
    if (sum - sum == A{0}) return;
    const unsigned bits = unmasked(row, i);
#pragma unroll
    for (int j = 0; j < width; ++j)
      if ((bits >> j & 1) == 0) dx[j] = 0;
  }
  template <class Output>
  __device__ __forceinline__ void store(const Output& output, const SoftmaxRow& row, int i,
                                        const A (&values)[width]) const {
#pragma unroll
    for (int j = 0; j < width; ++j)
      if (is_stored(column(i, j))) output.store_column(row.out, column(i, j), values[j]);
  }
  // Writes `value` to all columns that no thread of the row stores otherwise.
  template <class Output>
  __device__ __forceinline__ void fill_unread(const Output& output, const SoftmaxRow& row, const RowVectors& vectors,
                                              const RowThreads& group, int lane, A value) const {
    const int lanes = output.params.lanes_per_row, step = lanes * group.blocks;
    for (int column = group.rank * lanes + lane; column < stored_begin; column += step)
      output.store_column(row.out, column, value);
    for (int column = vectors.read_end * width + group.rank * lanes + lane; column < row.columns; column += step)
      output.store_column(row.out, column, value);
  }
};

}  // namespace flowk::softmax
