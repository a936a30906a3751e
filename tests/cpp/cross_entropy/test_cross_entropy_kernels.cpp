// SPDX-License-Identifier: Apache-2.0
// The kernels of cross-entropy against a plain loop in long double, in memory that ends where the tensors do, so that
// AddressSanitizer sees the first byte too many.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "core/convert.cuh"
#include "cross_entropy_case.h"
#include "thread_order.h"

namespace {

using namespace flowk::cross_entropy;
using Wide = long double;

// `count` elements from `lead` elements past a multiple of 16 bytes.
template <class T>
class Tensor {
 public:
  explicit Tensor(int64_t count, int64_t lead = 0) : lead_(lead) {
    void* memory = nullptr;
    const size_t num_bytes = static_cast<size_t>(lead + count) * sizeof(T);
    if (posix_memalign(&memory, 16, num_bytes) != 0) std::abort();
    memory_.reset(static_cast<T*>(memory));
    std::memset(memory, 0xa5, num_bytes);
  }
  T* data() const { return memory_.get() + lead_; }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  int64_t lead_;
  std::unique_ptr<T, Free> memory_;
};

template <class T>
void run_case(const CrossEntropyCase& one) {
  using A = ComputeType<T>;
  const int64_t rows = one.rows, columns = one.columns, pitch = columns + one.padding;
  Tensor<T> logits((rows - 1) * pitch + columns, one.lead), dlogits((rows - 1) * pitch + columns, one.lead + 1);
  Tensor<int64_t> targets(rows);
  Tensor<A> loss(rows), lse(rows), entropy(rows), dloss(rows), dlse(rows), dentropy(rows);
  CrossEntropyRequest request = request_of(one);
  Tensor<unsigned char> workspace(cross_entropy_workspace_bytes(rows, columns, one.dtype) + 1);
  uint32_t state = 1;
  const auto draw = [&] { return static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1; };
  for (int64_t i = 0; i < (rows - 1) * pitch + columns; ++i) logits[i] = convert<T>(A{4} * static_cast<A>(draw()));
  for (int64_t i = 0; i < rows; ++i) {
    targets[i] = i == 1 ? -100 : (i * 7919 + columns - 1) % columns;
    dloss[i] = static_cast<A>(draw());
    dlse[i] = static_cast<A>(draw());
    dentropy[i] = static_cast<A>(draw());
  }
  request.logits = logits.data();
  request.targets = targets.data();
  request.workspace = workspace.data();
  request.results = {loss.data(), lse.data(), entropy.data()};
  CrossEntropyPlan plan;
  plan_cross_entropy(request, {}, &plan);
  draw_thread_order();
  CHECK(run_cross_entropy(plan, nullptr).ok());
  request.lse = lse.data();
  request.entropy = entropy.data();
  request.dloss = dloss.data();
  request.dlse = dlse.data();
  request.dentropy = dentropy.data();
  request.dlogits = dlogits.data();
  CrossEntropyBackwardPlan backward;
  plan_cross_entropy_backward(request, {}, &backward);
  draw_thread_order();
  CHECK(run_cross_entropy_backward(backward, nullptr).ok());
  // In place, without the other gradients' sum changing anything that is read.
  Tensor<T> in_place((rows - 1) * pitch + columns, one.lead);
  std::memcpy(in_place.data(), logits.data(), static_cast<size_t>((rows - 1) * pitch + columns) * sizeof(T));
  request.logits = request.dlogits = in_place.data();
  plan_cross_entropy_backward(request, {}, &backward);
  draw_thread_order();
  CHECK(run_cross_entropy_backward(backward, nullptr).ok());

  const Wide unit = sizeof(A) == 8 ? 1e-12L : 2e-5L, rounding = sizeof(T) == 2 ? 8e-3L : unit;
  const auto is_near = [](Wide a, Wide b, Wide error) { return std::fabs(a - b) <= error * (1 + std::fabs(b)); };
  std::vector<Wide> z(static_cast<size_t>(columns));
  bool results_right = true, gradients_right = true;
  for (int64_t i = 0; i < rows; ++i) {
    Wide sum = 0, total = 0, of_entropy = 0;
    for (int64_t j = 0; j < columns; ++j) {
      Wide& own = z[static_cast<size_t>(j)];
      own = static_cast<Wide>(one.scale) * static_cast<Wide>(widen(logits[i * pitch + j]));
      if (one.softcap > 0) own = static_cast<Wide>(one.softcap) * std::tanh(own / static_cast<Wide>(one.softcap));
      sum += std::exp(own);
      total += own;
    }
    const Wide row_lse = std::log(sum), e = static_cast<Wide>(one.label_smoothing), w = static_cast<Wide>(one.z_loss);
    for (const Wide own : z) of_entropy -= std::exp(own - row_lse) * (own - row_lse);
    const bool is_ignored = targets[i] == -100;
    const Wide of_target = is_ignored ? 0 : z[static_cast<size_t>(targets[i])], size = static_cast<Wide>(columns);
    const Wide expected = (1 - e) * (row_lse - of_target) + e * (row_lse - total / size) + w * row_lse * row_lse;
    results_right &= is_near(static_cast<Wide>(loss[i]), is_ignored ? 0 : expected, unit);
    results_right &= is_near(static_cast<Wide>(lse[i]), is_ignored ? 0 : row_lse, unit);
    results_right &= is_near(static_cast<Wide>(entropy[i]), is_ignored ? 0 : of_entropy, unit);
    for (int64_t j = 0; j < columns; ++j) {
      const Wide own = z[static_cast<size_t>(j)], p = std::exp(own - row_lse), g = static_cast<Wide>(dloss[i]);
      Wide dz = g * (p * (1 + 2 * w * row_lse) - (j == targets[i] ? 1 - e : 0) - e / size) +
                static_cast<Wide>(dlse[i]) * p - static_cast<Wide>(dentropy[i]) * p * (own - row_lse + of_entropy);
      dz *= static_cast<Wide>(one.scale);
      if (one.softcap > 0) dz *= 1 - std::pow(own / static_cast<Wide>(one.softcap), Wide{2});
      if (is_ignored) dz = 0;
      gradients_right &= is_near(static_cast<Wide>(widen(dlogits[i * pitch + j])), dz, rounding);
      gradients_right &= std::memcmp(&dlogits[i * pitch + j], &in_place[i * pitch + j], sizeof(T)) == 0;
    }
  }
  if (!results_right || !gradients_right) std::printf("%s (%lld columns)\n", one.why, static_cast<long long>(columns));
  CHECK(results_right);
  CHECK(gradients_right);
}

TEST(results_and_gradients_are_those_of_a_loop) {
  for (const CrossEntropyCase& one : cases) switch (one.dtype) {
      case FLOWK_FLOAT16: run_case<Float16>(one); break;
      case FLOWK_BFLOAT16: run_case<BFloat16>(one); break;
      case FLOWK_FLOAT32: run_case<float>(one); break;
      default: run_case<double>(one);
    }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
