// SPDX-License-Identifier: Apache-2.0
// Kernels of a user's own, by flowk/elementwise.cuh: what its comments promise, on the executor. It may be read as an
// example; only Memory and the checks are the test's.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "check.h"
#include "flowk/elementwise.cuh"

namespace {

// A functor with a parameter, and a factory that reads it from device memory.
struct Axpy {
  float a;
  __device__ float operator()(float x, float y) const { return a * x + y; }
};
struct MakeAxpy {
  const float* a;
  __device__ Axpy operator()() const { return {*a}; }
};

// Types that differ, and one that is wider than the rest.
struct Mixed {
  __device__ double operator()(uint8_t x, float y, int64_t z) const {
    return static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z);
  }
};

// Two halves at once; elements alone have no operator().
struct AddPairs {
  __device__ __half2 pair(__half2 x, __half2 y) const { return __hadd2(x, y); }
};

// Whole packs, or the one element of an edge: it says how many it got.
struct PackCounts {
  template <int n>
  __device__ void pack(uint32_t (&out)[n], const uint32_t (&)[n]) const {
    for (int i = 0; i < n; ++i) out[i] = n;
  }
};

struct Complex {
  double re, im;
};
struct Conjugate {
  __device__ Complex operator()(Complex x) const { return {x.re, -x.im}; }
};

// `count` elements on the heap, `shift` elements past a multiple of 128 bytes, and not a byte more.
template <class T>
class Memory {
 public:
  Memory(int64_t count, int64_t shift) : shift_(shift) {
    if (posix_memalign(&bytes_, 128, static_cast<size_t>(count + shift) * sizeof(T)) != 0) bytes_ = nullptr;
    std::memset(bytes_, 0xA5, static_cast<size_t>(count + shift) * sizeof(T));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(bytes_); }
  T* data() const { return static_cast<T*>(bytes_) + shift_; }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  int64_t shift_;
  void* bytes_ = nullptr;
};

constexpr int64_t counts[] = {1, 2, 7, 8, 31, 257, 1024, 5003};
constexpr int64_t shifts[] = {0, 1, 3};

TEST(functor_and_factory_take_every_alignment) {
  for (const int64_t count : counts)
    for (const int64_t out_shift : shifts)
      for (const int64_t x_shift : shifts)
        for (const int64_t y_shift : shifts) {
          Memory<float> out(count, out_shift), made(count, out_shift), x(count, x_shift), y(count, y_shift), a(1, 0);
          a[0] = 2.0f;
          for (int64_t i = 0; i < count; ++i) {
            x[i] = static_cast<float>(i);
            y[i] = static_cast<float>(1000 - i);
          }
          CHECK(flowk::binary(Axpy{2.0f}, count, out.data(), x.data(), y.data(), nullptr) == 0);
          CHECK(flowk::transform_by(MakeAxpy{a.data()}, count, nullptr, made.data(), x.data(), y.data()) == 0);
          bool is_right = true;
          for (int64_t i = 0; i < count; ++i)
            is_right = is_right && out[i] == static_cast<float>(1000 + i) && made[i] == out[i];
          CHECK(is_right);
        }
}

TEST(types_may_differ) {
  for (const int64_t count : counts)
    for (const int64_t shift : shifts) {
      Memory<double> out(count, shift);
      Memory<uint8_t> x(count, 2 * shift);
      Memory<float> y(count, shift);
      Memory<int64_t> z(count, 0);
      for (int64_t i = 0; i < count; ++i) {
        x[i] = static_cast<uint8_t>(i);
        y[i] = 0.5f;
        z[i] = -i;
      }
      CHECK(flowk::ternary(Mixed{}, count, out.data(), x.data(), y.data(), z.data(), nullptr) == 0);
      bool is_right = true;
      for (int64_t i = 0; i < count; ++i)
        is_right = is_right && out[i] == 0.5 * static_cast<double>(i % 256) - static_cast<double>(i);
      CHECK(is_right);
    }
}

TEST(pairs_of_halves_may_be_added_in_place) {
  for (const int64_t count : counts)
    for (const int64_t shift : shifts) {
      Memory<__half> x(count, shift), y(count, 0);
      for (int64_t i = 0; i < count; ++i) {
        x[i] = __float2half_rn(static_cast<float>(i % 100));
        y[i] = __float2half_rn(0.25f);
      }
      CHECK(flowk::binary(AddPairs{}, count, x.data(), x.data(), y.data(), nullptr) == 0);
      bool is_right = true;
      for (int64_t i = 0; i < count; ++i)
        is_right = is_right && __half2float(x[i]) == static_cast<float>(i % 100) + 0.25f;
      CHECK(is_right);
    }
}

TEST(whole_packs_and_edges_are_told_apart) {
  Memory<uint32_t> out(4099, 1), x(4099, 1);
  CHECK(flowk::unary(PackCounts{}, 4099, out.data(), x.data(), nullptr) == 0);
  for (int64_t i = 0; i < 4099; ++i) CHECK(i < 3 ? out[i] == 1 : out[i] % 4 == 0);
}

struct MakeNegate {
  struct Negate {
    __device__ float operator()(float x) const { return -x; }
  };
  __device__ Negate operator()() const { return {}; }
};

// Calls have one pack per thread; here the parameters say two.
TEST(a_thread_may_own_two_packs) {
  using namespace flowk::elementwise;
  constexpr int n = 4;
  for (const int64_t count : {1, 5, 1024, 2048, 3072, 3073, 5000, 9999})
    for (const int64_t shift : {0, 1})
      for (const int32_t packs : {1, 2}) {
        Memory<float> out(count, shift), x(count, shift);
        for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(i + 1);
        ContiguousElementwiseParams<2> params = {};
        params.operands[0] = linear_operand(out.data(), count, false, 0, 2);
        params.operands[1] = linear_operand(x.data(), count, false, 0, 2);
        const int64_t num_blocks = cut_into_packs(count, n, packs, &params);
        CHECK(params.packs == packs || params.num_packs == 0);
        CHECK(flowk::detail::launch_elementwise(elementwise_contiguous<n, MakeNegate, Element<float>, Element<float>>,
                                                num_blocks, 0, nullptr, params, MakeNegate{}) == 0);
        int num_wrong = 0;
        for (int64_t i = 0; i < count; ++i) num_wrong += out[i] != -static_cast<float>(i + 1);
        CHECK(num_wrong == 0);
      }
}

TEST(elements_may_have_16_bytes) {
  Memory<Complex> out(1000, 1), x(1000, 0);
  for (int i = 0; i < 1000; ++i) x[i] = {1.0 * i, 2.0 * i};
  CHECK(flowk::unary(Conjugate{}, 1000, out.data(), x.data(), nullptr) == 0);
  for (int i = 0; i < 1000; ++i) CHECK(out[i].re == 1.0 * i && out[i].im == -2.0 * i);
}

TEST(a_count_of_0_does_nothing) {
  CHECK(flowk::binary(Axpy{1.0f}, 0, static_cast<float*>(nullptr), static_cast<const float*>(nullptr),
                      static_cast<const float*>(nullptr), nullptr) == 0);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
