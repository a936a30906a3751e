// SPDX-License-Identifier: Apache-2.0
// Packs: 1 to 16 bytes moved by one instruction, and asynchronous copies of 16 bytes into shared memory.
#pragma once

#include <cstdint>

#include "core/target.cuh"

namespace flowk {

// The unsigned integer type of `Bytes` bytes, aligned to them: what an element is to a kernel that only moves it.
template <int Bytes>
struct PackType;
template <>
struct PackType<1> {
  using type = uint8_t;
};
template <>
struct PackType<2> {
  using type = uint16_t;
};
template <>
struct PackType<4> {
  using type = uint32_t;
};
template <>
struct PackType<8> {
  using type = uint2;
};
template <>
struct PackType<16> {
  using type = uint4;
};
template <int Bytes>
using Pack = typename PackType<Bytes>::type;

constexpr int chunk_bytes = 16;  // the widest access of one thread

// Stores 16 bytes at `address`, a multiple of 16, as one: the compiler makes four of some that it has words of in
// registers.
__device__ __forceinline__ void store_chunk(void* address, const uint4& chunk) {
#ifdef FLOWK_SIMT
  *static_cast<uint4*>(address) = chunk;
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z),
               "r"(chunk.w)
               : "memory");
#endif
}

// Starts copying 16 bytes to shared memory; the thread's async_copy_wait() ends it. Both addresses are multiples of 16.
__device__ __forceinline__ void async_copy_chunk(void* shared_dst, const void* src) {
#ifdef FLOWK_SIMT
  simt::async_copy(shared_dst, src, chunk_bytes);
#else
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(src) : "memory");
#endif
}

// The same where only the first `valid_bytes` of the 16 may be read: the last chunk of a tensor byte by byte, at once.
// cp.async with a source size would do it too, but memcheck takes it for a read of all 16.
__device__ __forceinline__ void async_copy_chunk_head(void* shared_dst, const void* src, int64_t valid_bytes) {
  if (valid_bytes >= chunk_bytes) return async_copy_chunk(shared_dst, src);
#pragma unroll 1
  for (int i = 0; i < static_cast<int>(valid_bytes); ++i)
    static_cast<unsigned char*>(shared_dst)[i] = static_cast<const unsigned char*>(src)[i];
}

// The chunk at `address`, a multiple of 16, without reading at or past `end`; the rest is zero.
__device__ __forceinline__ uint4 load_chunk_before(const unsigned char* address, const unsigned char* end) {
  if (end - address >= chunk_bytes) return *reinterpret_cast<const uint4*>(address);
  uint4 chunk = {0, 0, 0, 0};
#pragma unroll 1
  for (int i = static_cast<int>(end - address) - 1; i >= 0; --i) {
    chunk.w = __funnelshift_l(chunk.z, chunk.w, 8);
    chunk.z = __funnelshift_l(chunk.y, chunk.z, 8);
    chunk.y = __funnelshift_l(chunk.x, chunk.y, 8);
    chunk.x = chunk.x << 8 | address[i];
  }
  return chunk;
}

// Bytes [shift, shift + 16) of the 32 bytes (low, high), 0 <= shift < 16.
__device__ __forceinline__ uint4 shift_chunks(const uint4& low, const uint4& high, int shift) {
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  // Whole words first, by selects of constant indices so that the words stay in registers; then bits within words.
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = (shift & 8) ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = (shift & 4) ? words[i + 1] : words[i];
  const unsigned bits = (shift & 3) * 8;
  return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
          __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

// Waits for this thread's asynchronous copies; other threads see them after a barrier.
__device__ __forceinline__ void async_copy_wait() {
#ifdef FLOWK_SIMT
  simt::async_copy_wait();
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Closes a group of the copies that this thread has started since the last one; and waits for all groups but the
// latest kPending.
__device__ __forceinline__ void async_copy_commit() {
#ifdef FLOWK_SIMT
  simt::async_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ __forceinline__ void async_copy_wait_groups() {
#ifdef FLOWK_SIMT
  simt::async_copy_wait_groups(kPending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// A 16-byte chunk as elements of `Bytes` bytes, for kernels that put it together or take it apart.
template <int Bytes>
union Chunk {
  uint4 whole;
  uint32_t words[4];
  Pack<Bytes> elements[chunk_bytes / Bytes];
};

// Stores elements [first, last) of a chunk that belongs at `address`, a multiple of 16; 32-bit words that lie inside go
// whole.
template <int Bytes>
__device__ __forceinline__ void store_partial_chunk(unsigned char* address, const Chunk<Bytes>& chunk, int first,
                                                    int last) {
  constexpr int elements_per_word = Bytes < 4 ? 4 / Bytes : 1;
  constexpr int num_steps = chunk_bytes / Bytes / elements_per_word;
#pragma unroll
  for (int step = 0; step < num_steps; ++step) {
    const int begin = step * elements_per_word;
    if (Bytes < 4 && begin >= first && begin + elements_per_word <= last) {
      *reinterpret_cast<uint32_t*>(address + step * 4) = chunk.words[step];
      continue;
    }
#pragma unroll
    for (int i = begin; i < begin + elements_per_word; ++i)
      if (i >= first && i < last) *reinterpret_cast<Pack<Bytes>*>(address + i * Bytes) = chunk.elements[i];
  }
}

}  // namespace flowk
