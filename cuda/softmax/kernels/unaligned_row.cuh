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

// A block's part of a row goes through shared memory: aligned vectors of memory on one side, the threads' vectors on
// the other. The results take the place of the first operand.
template <class T>
struct UnalignedRow {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>, size = static_cast<int>(sizeof(T));
  const SoftmaxRow& row;
  unsigned char* memory;  // of the row, in shared memory
  int operand_bytes;      // of it
  int lane, lanes;        // of the row in the block
  int first;              // vector of the part
  int begin, end;         // the columns that the block stores

  __device__ __forceinline__ UnalignedRow(const SoftmaxParams& params, const RowInRegisters& mechanism,
                                          const SoftmaxRow& of, const RowVectors& vectors, const OwnVectors& own,
                                          int own_lane)
      : row(of),
        operand_bytes(stage_vectors(params.lanes_per_row * mechanism.vectors_per_thread) * vector_bytes),
        lane(own_lane),
        lanes(params.lanes_per_row),
        first(own.first - own_lane),
        begin(vectors.read_begin * width),
        end(min(own.end * width, of.columns)) {
    const int row_in_block = params.rows_per_block == 1 ? 0 : static_cast<int>(threadIdx.x) >> params.rows_shift;
    memory = &shared<unsigned char>() + mechanism.stage_offset_bytes +
             row_in_block * mechanism.stage_operands * operand_bytes;
  }

  // Starts to copy an operand of the row, from `source`. Nothing outside of the operand's memory is read.
  __device__ __forceinline__ void copy(const RowInRegisters& mechanism, int index, int operand,
                                       const unsigned char* source, int element_bytes = size) const {
    const OperandMemory& range = mechanism.memory[index];
    const int part = first * width * element_bytes, bytes = end * element_bytes - part, shift = shift_of(source);
    const unsigned char* const from = source + part - shift;
    unsigned char* const to = memory + operand * operand_bytes;
    const int count = (shift + bytes + vector_bytes - 1) / vector_bytes;
    const int inner = from < range.first ? 1 : 0,
              inner_end = from + count * vector_bytes > range.end ? count - 1 : count;
#pragma unroll 1
    for (int n = lane + inner; n < inner_end; n += lanes)
      async_copy_vector(to + n * vector_bytes, from + n * vector_bytes);
    if (inner == 0 && inner_end == count) return;
#pragma unroll 1
    for (int j = lane; j < 2 * vector_bytes; j += lanes) {
      const int n = j < vector_bytes ? 0 : count - 1, at = n * vector_bytes + j % vector_bytes;
      const bool is_copied = (n >= inner && n < inner_end) || (n == 0 && j >= vector_bytes);
      if (!is_copied && at >= shift && at < shift + bytes) to[at] = from[at];
    }
  }
  // Waits until all threads of the row have copied, or stored.
  __device__ __forceinline__ void synchronize() const {
    if (lanes <= 32)
      __syncwarp();
    else
      __syncthreads();
  }
  // A vector of an operand, and its bytes of the dense mask. Columns past the row's last one are undefined.
  __device__ __forceinline__ uint4 load(int operand, const unsigned char* source, int vector) const {
    return load_shifted(memory + operand * operand_bytes + (vector - first) * vector_bytes, shift_of(source));
  }
  __device__ __forceinline__ DenseWords<width> load_dense(int operand, int vector) const {
    const int byte = shift_of(row.dense + first * width) + (vector - first) * width;
    uint32_t next;
    const DenseWords<width> dense = load_dense_words<width>(memory + operand * operand_bytes + (byte & ~3), &next);
    return shifted_right(dense, next, 8 * (byte & 3));
  }
  // Called before the first store, which takes the place of what another thread has read. The warps of one block have
  // passed a barrier since then, in the exchange of the row's sum. The exchange of a cluster has none: it waits for the
  // values that all warps send, which does not order what they have read.
  __device__ __forceinline__ void begin_stores(const RowThreads& group) const {
    if (group.warps == 1 || group.blocks > 1) synchronize();
  }
  __device__ __forceinline__ void store(int vector, const A (&values)[width]) const {
    *reinterpret_cast<uint4*>(memory + (vector - first + 1) * vector_bytes) = narrow_vector<T>(values);
  }
  // Writes the stored vectors to the result.
  __device__ __forceinline__ void write() const {
    synchronize();
    const int part = first * vector_bytes;
    const unsigned char* const vectors = memory + vector_bytes;
    const int shift = -shift_of(row.out) & (vector_bytes - 1);
    const auto vector_at = [&](int byte) { return load_shifted(vectors + byte - shift, shift); };
    write(row.out + part, max(begin * size - part, 0), end * size - part, lane, lanes, vector_at,
          [&](int byte) { return *reinterpret_cast<const Pack<size>*>(vectors + byte); });
  }
  // Writes `value` to the columns that no thread of the row stores otherwise.
  __device__ __forceinline__ void fill(const RowVectors& vectors, const RowThreads& group, A value) const {
    A values[width];
#pragma unroll
    for (int j = 0; j < width; ++j) values[j] = value;
    const Vector<size> vector = {narrow_vector<T>(values)};
    const auto fill_part = [&](int from, int to) {
      write(
          row.out, from * size, to * size, group.rank * lanes + lane, group.blocks * lanes,
          [&](int) { return vector.whole; }, [&](int) { return vector.elements[0]; });
    };
    fill_part(0, begin);
    fill_part(vectors.read_end * width, row.columns);
  }

 private:
  static __device__ __forceinline__ int shift_of(const unsigned char* address) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(address) % vector_bytes);
  }
  // 16 bytes from `shift` bytes past an aligned address. Of elements of 4 bytes, words take fewer instructions.
  static __device__ __forceinline__ uint4 load_shifted(const unsigned char* address, int shift) {
    if constexpr (size == 4) {
      const auto* const words = reinterpret_cast<const uint32_t*>(address + shift);
      return {words[0], words[1], words[2], words[3]};
    } else {
      return shift_vectors(load_vector(address), load_vector(address + vector_bytes), shift);
    }
  }
  // Writes bytes [from, to) of the memory at `out`. vector_at(byte) are the 16 bytes from this one on, and
  // element_at(byte) the element there.
  template <class VectorAt, class ElementAt>
  static __device__ __forceinline__ void write(unsigned char* out, int from, int to, int thread, int num_threads,
                                               VectorAt vector_at, ElementAt element_at) {
    const int before = shift_of(out);
    const int inner = ((from + before + vector_bytes - 1) & ~(vector_bytes - 1)) - before;
    const int inner_end = max(((to + before) & ~(vector_bytes - 1)) - before, inner);
#pragma unroll 1
    for (int byte = inner + thread * vector_bytes; byte < inner_end; byte += num_threads * vector_bytes)
      store_vector(out + byte, vector_at(byte));
    const auto write_elements = [&](int first_byte, int last) {
#pragma unroll 1
      for (int byte = first_byte + thread * size; byte < last; byte += num_threads * size)
        *reinterpret_cast<Pack<size>*>(out + byte) = element_at(byte);
    };
    write_elements(from, min(inner, to));
    write_elements(inner_end, to);
  }
};

}  // namespace flowk::softmax
