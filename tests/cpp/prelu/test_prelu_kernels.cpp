// SPDX-License-Identifier: Apache-2.0
// The kernels of PReLU against a plain loop, forward bit for bit and dalpha against double: the planner's own choice
// and every other that a bench may force, in memory that ends where the tensors do, so that AddressSanitizer sees the
// first byte too many.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "core/convert.cuh"
#include "core/device.h"
#include "prelu_case.h"
#include "thread_order.h"

namespace {

using namespace flowk::prelu;

constexpr unsigned char guard = 0xA5;

// `num_elements` from `lead` elements past a multiple of 16 bytes, on a heap block that ends with them.
class Tensor {
 public:
  Tensor(flowk_dtype dtype, int64_t num_elements, int64_t lead)
      : dtype_(dtype), num_elements_(num_elements), lead_bytes_(lead * bytes_of(dtype)) {
    void* memory = nullptr;
    const size_t size = static_cast<size_t>(std::max<int64_t>(1, lead_bytes_ + num_bytes()));
    if (posix_memalign(&memory, 16, size) != 0) std::abort();
    memory_ = static_cast<unsigned char*>(memory);
    std::memset(memory_, guard, static_cast<size_t>(lead_bytes_ + num_bytes()));
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { std::free(memory_); }

  void* data() const { return memory_ + lead_bytes_; }
  int64_t size() const { return num_elements_; }
  int64_t num_bytes() const { return num_elements_ * bytes_of(dtype_); }
  bool guard_is_whole() const {
    return std::all_of(memory_, memory_ + lead_bytes_, [](unsigned char byte) { return byte == guard; });
  }
  double get(int64_t i) const {
    switch (dtype_) {
      case FLOWK_FLOAT16: return static_cast<double>(widen(static_cast<const Float16*>(data())[i]));
      case FLOWK_BFLOAT16: return static_cast<double>(widen(static_cast<const BFloat16*>(data())[i]));
      case FLOWK_FLOAT32: return static_cast<double>(static_cast<const float*>(data())[i]);
      default: return static_cast<const double*>(data())[i];
    }
  }
  // Rounded from float, for the 16-bit types, as the kernels do.
  void set(int64_t i, double value) {
    switch (dtype_) {
      case FLOWK_FLOAT16: static_cast<Float16*>(data())[i] = convert<Float16>(static_cast<float>(value)); break;
      case FLOWK_BFLOAT16: static_cast<BFloat16*>(data())[i] = convert<BFloat16>(static_cast<float>(value)); break;
      case FLOWK_FLOAT32: static_cast<float*>(data())[i] = static_cast<float>(value); break;
      default: static_cast<double*>(data())[i] = value;
    }
  }
  // Values of both signs, zeros among them.
  void fill(uint32_t seed) {
    uint32_t state = seed;
    for (int64_t i = 0; i < num_elements_; ++i) {
      state = state * 1664525 + 1013904223;
      set(i, state >> 28 == 0 ? (state & 1 ? 0.0 : -0.0) : (static_cast<double>(state >> 8) / (1 << 23) - 1.0));
    }
  }

 private:
  flowk_dtype dtype_;
  int64_t num_elements_, lead_bytes_;
  unsigned char* memory_ = nullptr;
};

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.num_bytes())) == 0;
}

// value > 0 ? kept : alpha * kept, in the type that products are made in
double gate(double value, double kept, double alpha, flowk_dtype dtype) {
  if (value > 0) return kept;
  return dtype == FLOWK_FLOAT64 ? alpha * kept
                                : static_cast<double>(static_cast<float>(alpha) * static_cast<float>(kept));
}

struct Reached {
  bool kernels[num_prelu_backward_kernels] = {};
  bool forward_access[4] = {};
  bool num_reductions[3] = {};
  bool forward_shift = false, backward_shift = false;
  bool spans_share_planes = false, general_columns[2] = {}, one_row = false, many_periods = false, row_blocks = false;
  bool num_partial_vectors[3] = {}, folded = false;
  bool span_planes[2] = {}, layouts[2][3] = {};
  bool paired_planes = false, lone_planes = false;
  bool clusters = false;

  void add(const PreluPlan& plan) {
    forward_access[static_cast<int>(plan.params.alpha_access)] = true;
    forward_shift |= plan.params.x_shift != 0;
  }
  void add(const ByChannel& plan) { (plan.params.tile_channels > 1 ? paired_planes : lone_planes) = true; }
  void add(const BySpan& plan) { span_planes[plan.is_in_one_plane] = true; }
  void add(const ByPlane& plan) {
    spans_share_planes |= plan.params.partials_per_plane > 1;
    backward_shift |= plan.params.tensors.x_shift != 0 && plan.params.tensors.dy_shift != 0;
  }
  void add(const ByColumn& plan) {
    const ByColumnParams& params = plan.params;
    general_columns[plan.is_general] = true;
    num_partial_vectors[params.num_partial_vectors] = true;
    folded |= params.is_folded;
    one_row |= params.num_rows == 1 && params.first_column > 0;
    many_periods |= params.num_rows > 1 && params.num_columns > params.tensors.grid.channels;
    row_blocks |= params.num_rows > params.rows_per_block;
  }
  void add(const ByWarpColumn&) {}
  void add(const NoElements&) {}
  void add(const PreluBackwardPlan& plan) {
    for (int i = 0; i < plan.num_reductions; ++i) layouts[i][static_cast<int>(plan.reductions[i].layout)] = true;
    kernels[static_cast<int>(plan.kernel())] = true;
    clusters |= plan.launch.cluster_blocks > 1;
    num_reductions[plan.num_reductions] = true;
    std::visit([&](const auto& gradient) { add(gradient); }, plan.gradient);
  }
  void check_everything_was() const {
    for (const bool reached : kernels) CHECK(reached);
    for (const bool reached : forward_access) CHECK(reached);
    for (const bool reached : num_reductions) CHECK(reached);
    CHECK(forward_shift && backward_shift);
    CHECK(span_planes[0] && span_planes[1]);
    for (const bool reached : layouts[0]) CHECK(reached);
    CHECK(paired_planes && lone_planes);
    CHECK(spans_share_planes && one_row && many_periods && row_blocks);
    for (const bool reached : general_columns) CHECK(reached);
    CHECK(folded);
    for (const bool reached : num_partial_vectors) CHECK(reached);
    CHECK(clusters);
  }
};

class CaseRun {
 public:
  CaseRun(const PreluCase& row, Reached* reached)
      : row_(row),
        reached_(reached),
        x_(row.dtype, row.outer * row.channels * row.inner, row.x_lead),
        dy_(row.dtype, x_.size(), row.dy_lead),
        alpha_(row.type_of_alpha(), row.channels, 0),
        expected_(row.dtype, x_.size(), row.out_lead),
        exact_(static_cast<size_t>(row.channels)),
        magnitude_(static_cast<size_t>(row.channels)) {
    x_.fill(1);
    dy_.fill(2);
    alpha_.fill(3);
    CHECK(current_device(&device_).ok());
  }

  void run_forward() {
    for (int64_t i = 0; i < x_.size(); ++i)
      expected_.set(i, gate(x_.get(i), x_.get(i), alpha_.get(channel_of(i)), row_.dtype));
    Tensor y(row_.dtype, x_.size(), row_.out_lead);
    PreluRequest request = {x_.data(),     alpha_.data(), y.data(),   row_.outer,
                            row_.channels, row_.inner,    row_.dtype, row_.type_of_alpha()};
    PreluPlan plan;
    plan_prelu(request, device_, &plan);
    reached_->add(plan);
    for (const bool wide : {false, true}) {
      plan.params.grid.is_wide |= wide;
      plan.is_general |= wide;
      std::memset(y.data(), guard, static_cast<size_t>(y.num_bytes()));
      draw_thread_order();
      const bool is_right = run_prelu(plan, nullptr).ok() && same_bytes(y, expected_) && y.guard_is_whole();
      CHECK(is_right);
      if (!is_right) std::printf("  forward, %s\n", text_of(row_).c_str());
    }
    Tensor in_place(row_.dtype, x_.size(), row_.x_lead);
    std::memcpy(in_place.data(), x_.data(), static_cast<size_t>(x_.num_bytes()));
    request.x = request.y = in_place.data();
    plan = {};
    plan_prelu(request, device_, &plan);
    draw_thread_order();
    CHECK(run_prelu(plan, nullptr).ok() && same_bytes(in_place, expected_));
  }

  void run_backward_as_planned() {
    for (int64_t i = 0; i < x_.size(); ++i) {
      const int64_t c = channel_of(i);
      expected_.set(i, gate(x_.get(i), dy_.get(i), alpha_.get(c), row_.dtype));
      const double term = x_.get(i) > 0 ? 0 : x_.get(i) * dy_.get(i);
      exact_[static_cast<size_t>(c)] += term;
      magnitude_[static_cast<size_t>(c)] += std::fabs(term);
    }
    run({}, "planned", true, true);
    run({}, "dx alone", true, false);
    run({}, "dalpha alone", false, true);
  }

  void run_backward() {
    run_backward_as_planned();
    for (const int vectors_in_flight : {3, 4})
      for (const int threads : {64, 200, 512})
        for (const int tile_vectors : {0, 1, 40})
          run({.kernel = 1 + static_cast<int>(PreluBackwardKernel::by_channel),
               .max_threads = threads,
               .tile_vectors = tile_vectors,
               .vectors_in_flight = vectors_in_flight},
              "forced", true, true);
    run({.kernel = 1 + static_cast<int>(PreluBackwardKernel::by_warp_column)}, "forced", true, true);
    run_backward_on_sm_90();
    for (const int vectors_per_lane : {1, 2, 4})
      for (const int threads : {32, 128})
        run({.kernel = 1 + static_cast<int>(PreluBackwardKernel::by_span),
             .max_threads = threads,
             .vectors_in_flight = vectors_per_lane},
            "forced", true, true);
    for (const PreluBackwardKernel kernel : {PreluBackwardKernel::by_plane, PreluBackwardKernel::by_column})
      for (const int threads : {32, 96, 512})
        for (const int rows_per_block : {0, 7, 40})
          if (kernel == PreluBackwardKernel::by_column || rows_per_block == 0)
            run({.kernel = 1 + static_cast<int>(kernel), .max_threads = threads, .rows_per_block = rows_per_block},
                "forced", true, true);
  }

 private:
  void run_backward_on_sm_90() {
    setenv("FLOWK_SIMT_CAPABILITY", "90", 1);
    CHECK(current_device(&device_).ok());
    run({}, "planned for sm_90", true, true);
    for (const int cluster_blocks : {2, 8})
      for (const int vectors_in_flight : {2, 4})
        run({.kernel = 1 + static_cast<int>(PreluBackwardKernel::by_channel),
             .max_threads = 96,
             .cluster_blocks = cluster_blocks,
             .vectors_in_flight = vectors_in_flight},
            "forced", true, true);
    setenv("FLOWK_SIMT_CAPABILITY", "0", 1);
    CHECK(current_device(&device_).ok());
  }

  int64_t channel_of(int64_t element) const { return element / row_.inner % row_.channels; }

  void run(const PreluBackwardChoice& choice, const char* what, bool wants_dx, bool wants_dalpha) {
    Tensor dx(row_.dtype, x_.size(), row_.out_lead), dalpha(row_.type_of_alpha(), row_.channels, 0);
    PreluBackwardRequest request = {dy_.data(),
                                    x_.data(),
                                    alpha_.data(),
                                    wants_dx ? dx.data() : nullptr,
                                    wants_dalpha ? dalpha.data() : nullptr,
                                    nullptr,
                                    row_.outer,
                                    row_.channels,
                                    row_.inner,
                                    row_.dtype,
                                    row_.type_of_alpha()};
    PreluBackwardPlan plan;
    if (!plan_prelu_backward(request, device_, choice, &plan)) return;
    const Tensor workspace(FLOWK_FLOAT32, plan.workspace_bytes / 4, 0);  // full of what no sum may read
    std::memset(workspace.data(), 0xFF, static_cast<size_t>(workspace.num_bytes()));
    if (choice.kernel == 0) CHECK(plan.workspace_bytes <= prelu_backward_workspace_bytes(request, device_));
    request.workspace = workspace.data();
    CHECK(plan_prelu_backward(request, device_, choice, &plan));
    reached_->add(plan);
    check(plan, what, wants_dx ? &dx : nullptr, wants_dalpha ? &dalpha : nullptr);
    if (use_wide_indices(&plan)) {
      reached_->add(plan);
      check(plan, "with 64-bit indices", wants_dx ? &dx : nullptr, wants_dalpha ? &dalpha : nullptr);
    }
  }

  // False where the mechanism has 32-bit indices only.
  static bool use_wide_indices(PreluBackwardPlan* plan) {
    if (BySpan* span = std::get_if<BySpan>(&plan->gradient)) {
      span->params.tensors.grid.is_wide = true;
    } else if (ByPlane* plane = std::get_if<ByPlane>(&plan->gradient)) {
      plane->is_general = plane->params.tensors.grid.is_wide = true;
    } else if (ByColumn* column = std::get_if<ByColumn>(&plan->gradient)) {
      column->params.has_wide_rows = true;
    } else {
      return false;
    }
    return true;
  }

  void check(const PreluBackwardPlan& plan, const char* what, Tensor* dx, Tensor* dalpha) {
    if (dx != nullptr) std::memset(dx->data(), guard, static_cast<size_t>(dx->num_bytes()));
    if (dalpha != nullptr) std::memset(dalpha->data(), guard, static_cast<size_t>(dalpha->num_bytes()));
    draw_thread_order();
    bool is_right = run_prelu_backward(plan, nullptr).ok();
    if (!is_right) std::printf("  %s\n", flowk::core::last_error_text());
    if (dx != nullptr) is_right &= same_bytes(*dx, expected_) && dx->guard_is_whole();
    for (int64_t c = 0; dalpha != nullptr && c < row_.channels; ++c) {
      const size_t i = static_cast<size_t>(c);
      const flowk_dtype type = row_.type_of_alpha();
      const double rounding = type == FLOWK_FLOAT16 ? 0x1p-11 : type == FLOWK_BFLOAT16 ? 0x1p-8 : 0;
      const double bound =
          (row_.dtype == FLOWK_FLOAT64 ? 1e-14 : 1e-6) * magnitude_[i] + rounding * std::fabs(exact_[i]);
      is_right &= std::fabs(dalpha->get(c) - exact_[i]) <= bound + (type == FLOWK_FLOAT16 ? 0x1p-25 : 0);
    }
    CHECK(is_right);
    if (is_right) return;
    char text[1024];
    explain_prelu_backward(plan, text, sizeof(text));
    std::printf("  %s, %s\n  %s", text_of(row_).c_str(), what, text);
  }

  const PreluCase& row_;
  Reached* reached_;
  Tensor x_, dy_, alpha_, expected_;
  std::vector<double> exact_, magnitude_;
  Device device_;
};

TEST(every_row_is_right_forward_and_backward) {
  Reached reached;
  for (const PreluCase& row : prelu_kernel_cases) {
    if (row.every_type) continue;
    CaseRun(row, &reached).run_forward();
    CaseRun(row, &reached).run_backward();
  }
  reached.check_everything_was();
}

TEST(every_alignment_is_right_forward_and_backward) {
  Reached reached;
  for (const PreluCase& row : prelu_alignment_cases()) {
    CaseRun(row, &reached).run_forward();
    CaseRun(row, &reached).run_backward();
  }
}

TEST(rows_of_every_type_are_right_in_every_type) {
  Reached reached;
  for (PreluCase row : prelu_kernel_cases)
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_BFLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64}) {
      if (!row.every_type || row.big) continue;
      row.dtype = dtype;
      CaseRun(row, &reached).run_forward();
      CaseRun(row, &reached).run_backward_as_planned();
    }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
