// SPDX-License-Identifier: Apache-2.0
// A slice of a row in shared memory, which a bulk copy fills: vectors on their way take no registers, and one copy
// serves both halves of vectors that are not aligned.
#pragma once

#include "core/bulk_copy.cuh"
#include "cross_entropy/kernels/cross_entropy_values.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::cross_entropy {

// Vector n has the slice's columns [n * W, (n + 1) * W). The slice lies in shared memory as far from an aligned vector
// as in the logits, so a vector is put together from two.
template <class T>
struct StagedSlice {
  static constexpr int W = vector_width<T>, size = static_cast<int>(sizeof(T));
  unsigned char* memory;  // slice_bytes()
  int shift;              // bytes before the first column
  int count;              // of the vectors; the last one may reach past the row's last column
  int absent;             // two vectors of columns that do not exist: -infinity
  bool negates;

  __device__ __forceinline__ StagedSlice(const LossParams& params, const unsigned char* first_column, int columns)
      : memory(&shared<unsigned char>()),
        shift(static_cast<int>(reinterpret_cast<uintptr_t>(first_column) % vector_bytes)),
        count((columns + W - 1) / W),
        absent(params.slice_vectors + 1),
        negates(params.logits.negates) {}

  // Starts to copy the slice: `columns` at `first_column` of a row. Bytes beside them are read only if they are in the
  // row, which goes on for `columns_behind`. All threads call it.
  __device__ __forceinline__ void start_copy(const unsigned char* first_column, int columns, bool begins_row,
                                             int columns_behind) const {
    const unsigned char* const from = first_column - shift;
    const int bytes = shift + columns * size, whole_bytes = (bytes + vector_bytes - 1) / vector_bytes * vector_bytes;
    const int row_bytes = (bytes + min(columns_behind, W) * size) / vector_bytes * vector_bytes;
    const int begin = begins_row && shift > 0 ? vector_bytes : 0, end = min(whole_bytes, row_bytes);
    const CopyGroup group = copy_group(0);
    if (group.lane < group.lanes) {
      copies().begin();
      copies().copy(group, memory + begin, from + begin, end - begin);
      copies().end();
    }
    const int thread = static_cast<int>(threadIdx.x);
    uint4 no_columns = negative_infinity_vector<T>();
    if (negates) negate_vector<T>(&no_columns);
    if (thread < 2) reinterpret_cast<uint4*>(memory)[absent + thread] = no_columns;
    if (thread >= W) return;
    const auto element_at = [&](int byte) { return reinterpret_cast<T*>(memory + byte); };
    const auto copy_element = [&](int byte) { *element_at(byte) = *reinterpret_cast<const T*>(from + byte); };
    const int byte = thread * size;
    if (byte < begin && byte >= shift) copy_element(byte);
    if (end + byte < bytes) copy_element(end + byte);
    if (bytes + byte < shift + count * vector_bytes)
      *element_at(bytes + byte) = ElementVector<T>{no_columns}.elements[0];
  }
  __device__ __forceinline__ void wait() const {
    __syncthreads();
    copies().wait();
  }

  __device__ __forceinline__ T element(int column) const {
    return *reinterpret_cast<const T*>(memory + shift + column * size);
  }

  // Loads vectors first, first + warp_lanes, and so on. A vector past the slice is -infinity.
  template <int kCount>
  __device__ __forceinline__ void load(int first, uint4 (&loaded)[kCount]) const {
    const auto load_all = [&](auto load_one) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int n = first + i * warp_lanes;
        loaded[i] = load_one(reinterpret_cast<const uint4*>(memory) + (n < count ? n : absent));
      }
    };
    const auto load_past = [&](auto words) {
      load_all([&](const uint4* at) { return shift_vectors_past<decltype(words)::value>(at[0], at[1], shift); });
    };
    // All vectors have the same shift, so one branch finds the words of all.
    if (shift == 0)
      load_all([](const uint4* at) { return *at; });
    else if (shift < 4)
      load_past(std::integral_constant<int, 0>());
    else if (shift < 8)
      load_past(std::integral_constant<int, 1>());
    else if (shift < 12)
      load_past(std::integral_constant<int, 2>());
    else
      load_past(std::integral_constant<int, 3>());
    if (negates) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) negate_vector<T>(&loaded[i]);
    }
  }

 private:
  __device__ __forceinline__ BulkCopies copies() const {
    return {{reinterpret_cast<uint64_t*>(memory + (absent + 2) * vector_bytes)}};
  }
};

}  // namespace flowk::cross_entropy
