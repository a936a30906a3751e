// SPDX-License-Identifier: Apache-2.0
// flowk.hpp: every function gives what the C call gives, shapes are compared, views come from everything that holds a
// tensor. tests/python/test_cpp_header.py compiles it as C++17 too.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "check.h"
#include "flowk/flowk.hpp"

struct OwnHalf {  // a user's type
  uint16_t bits;
};
template <>
struct flowk::dtype_of<OwnHalf> : flowk::dtype_constant<FLOWK_FLOAT16> {};

namespace {

using flowk::view;

// What std::mdspan has and view looks at: C++23 alone brings the real one.
struct Matrix {
  using element_type = const double;
  const double* pointer;
  std::array<int, 2> extents, strides;
  static constexpr size_t rank() { return 2; }
  const double* const& data_handle() const { return pointer; }
  int extent(size_t d) const { return extents[d]; }
  int stride(size_t d) const { return strides[d]; }
};

static_assert(view<const int64_t>::dtype == FLOWK_INT64 && view<long long>::dtype == FLOWK_INT64);
static_assert(view<unsigned short>::dtype == FLOWK_UINT16 && view<signed char>::dtype == FLOWK_INT8);
static_assert(view<bool>::dtype == FLOWK_BOOL && view<double>::dtype == FLOWK_FLOAT64);
static_assert(view<std::complex<float>>::dtype == FLOWK_COMPLEX64 && view<__half>::dtype == FLOWK_FLOAT16);
static_assert(view<OwnHalf>::dtype == FLOWK_FLOAT16);
static_assert(std::is_trivially_destructible_v<view<float>> && sizeof(view<float, 2>) <= 48);

// The text that a call throws, "" if it does not.
template <class Call>
std::string thrown(const Call& call) {
  try {
    call();
  } catch (const flowk::error& error) {
    CHECK(error.status() != FLOWK_STATUS_SUCCESS);
    return error.what();
  }
  return "";
}
bool has(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::printf("\"%s\" has no \"%s\"\n", text.c_str(), part);
  return false;
}

std::vector<float> counted(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST(permute_takes_braces_containers_and_strides) {
  const std::vector<float> src = counted(6);
  std::vector<float> dst(6), again(12);
  const std::vector<float> wanted = {0, 3, 1, 4, 2, 5};
  flowk::permute(view{src.data(), {2, 3}}, view{dst.data(), {3, 2}}, {1, 0});
  CHECK(dst == wanted);
  const std::vector<int> shape = {3, 2};
  const std::array<unsigned, 2> strides = {4, 2};
  flowk::permute(view<const float>(src.data(), {2, 3}), view{again.data(), shape, strides}, std::vector<int>{1, 0});
  for (size_t i = 0; i < 6; ++i) CHECK(again[2 * i] == wanted[i]);
  CHECK(flowk::permute(std::nothrow, view{src.data(), {size_t{2}, size_t{3}}}, view{dst.data(), {3, 2}}, {1, 0}));
  flowk::batch_transpose(view{src.data(), {1, 2, 3}}, view{again.data(), {1, 3, 2}});
  CHECK(std::memcmp(again.data(), wanted.data(), sizeof(float) * 6) == 0);
  std::vector<int8_t> bytes(6);
  flowk::permute_convert(view{src.data(), {2, 3}}, view{bytes.data(), {3, 2}}, {1, 0}, 10.0);
  CHECK(bytes[1] == 30 && bytes[5] == 50);
  const std::string plan = flowk::permute(flowk::explain, view{src.data(), {2, 3}}, view{dst.data(), {3, 2}}, {1, 0});
  CHECK(has(plan, "tile"));
}

TEST(wrong_shapes_are_named_and_nothing_is_written) {
  const std::vector<float> src = counted(6);
  std::vector<float> dst(6, -1.0f);
  const view x{src.data(), {2, 3}};
  CHECK(has(thrown([&] { flowk::permute(x, view{dst.data(), {2, 3}}, {1, 0}); }),
            "dst has extent 2 in dimension 0, must be 3"));
  CHECK(has(thrown([&] { flowk::permute(x, view{dst.data(), {6}}, {1, 0}); }), "dst has 1 dimension, must have 2"));
  CHECK(has(thrown([&] { flowk::permute(x, view{dst.data(), {3, 2}}, {1}); }), "axes has 1 entry, must have 2"));
  CHECK(has(thrown([&] { flowk::permute(x, view{dst.data(), {3, 2}}, {1, 7}); }), "axes[1] = 7"));
  CHECK(has(thrown([&] { flowk::relu(x, view<float>(dst.data(), {2, 2})); }),
            "x has extent 3 in dimension 1, must be 2"));
  CHECK(has(thrown([&] { flowk::relu(x, view<float>(dst.data(), {3})); }), "x has 2 dimensions, must have <= 1"));
  CHECK(has(thrown([&] { flowk::batch_transpose(x, view{dst.data(), {3, 2}, {1, 3}}); }), "must be contiguous"));
  CHECK(has(thrown([&] { view<float>(dst.data(), std::vector<int>(33)); }), "shape has 33 entries, must have <= 32"));
  CHECK(has(thrown([&] { view<float>(dst.data(), std::vector<int>{2, 3}, std::vector<int>{1}); }),
            "strides has 1 entry, must have 2"));
  const flowk::status status = flowk::permute(std::nothrow, x, view{dst.data(), {2, 3}}, {1, 0});
  CHECK(!status && status.code() == FLOWK_STATUS_INVALID_ARGUMENT && has(status.text(), "dst has extent 2"));
  const flowk::status null = flowk::negative(std::nothrow, x, view{static_cast<float*>(nullptr), {2, 3}});
  CHECK(null.code() == FLOWK_STATUS_NULL_POINTER && has(null.text(), "out"));
  CHECK(flowk::status().text()[0] == '\0');
  for (const float value : dst) CHECK(value == -1.0f);
}

TEST(elementwise_broadcasts_and_takes_numbers) {
  const std::vector<float> x = counted(6);
  std::vector<float> row = {10, 20, 30}, column = {100, 200}, out(6);
  const view whole{x.data(), {2, 3}};
  const view result{out.data(), {2, 3}};
  flowk::add(whole, view{row}, result);
  CHECK(out[0] == 10 && out[4] == 24);
  flowk::add(whole, view{column.data(), {2, 1}}, result);
  CHECK(out[0] == 100 && out[4] == 204);
  flowk::add(view{row.data(), {3}, {0}}, view<const float>(column.data(), {2, 1}), result);
  CHECK(out[0] == 110 && out[5] == 210);
  flowk::multiply(whole, 2, result);
  CHECK(out[5] == 10);
  flowk::subtract(1.0, whole, result);
  CHECK(out[5] == -4);
  flowk::clip(whole, result, 1.0, 4.0);
  CHECK(out[0] == 1 && out[5] == 4);
  flowk::leaky_relu(whole, result, 0.5);
  CHECK(out[5] == 5);
  std::array<bool, 6> mask{};
  flowk::greater(whole, 2.5, view{mask.data(), {2, 3}});
  CHECK(!mask[2] && mask[3]);
  flowk::where(view{mask.data(), {2, 3}}, whole, -1, result);
  CHECK(out[2] == -1 && out[3] == 3);
  flowk::where(view{mask.data(), {2, 3}}, 7, 8, result);
  CHECK(out[2] == 8 && out[3] == 7);
  flowk::fma(whole, 2, view{row}, result);
  CHECK(out[5] == 40);
  flowk::add_multiply(whole, whole, whole, result, 2.0);
  CHECK(out[5] == 55);
  CHECK(flowk::minimum(std::nothrow, whole, 2, result));
  CHECK(out[1] == 1 && out[5] == 2);
  flowk::unary(FLOWK_UNARY_SQUARE, whole, result);
  CHECK(out[5] == 25);
  CHECK(has(flowk::binary(flowk::explain, FLOWK_BINARY_ADD, whole, 1, result), "float32"));
  CHECK(flowk::add(flowk::explain, whole, 1, result) ==
        flowk::binary(flowk::explain, FLOWK_BINARY_ADD, whole, 1, result));
  CHECK(has(thrown([&] { flowk::relu(flowk::explain, whole, view{out.data(), {2, 2}}); }), "must be 2"));
  float one = 0;
  flowk::copy(view{x.data() + 3, std::array<int, 0>{}}, view{&one, std::array<int, 0>{}});  // rank 0
  CHECK(one == 3);
}

TEST(views_come_from_ranges_and_mdspan) {
  std::vector<double> storage = {0, 1, 2, 3, 4, 5};
  const Matrix transposed = {storage.data(), {3, 2}, {1, 3}};
  view from_mdspan{transposed};
  static_assert(std::is_same_v<decltype(from_mdspan), view<const double, 2>>);
  std::array<double, 6> out{};
  flowk::copy(from_mdspan, view{out.data(), {3, 2}});
  CHECK(out[1] == 3 && out[2] == 1);
  const std::vector<double>& constant = storage;
  static_assert(std::is_same_v<decltype(view{constant}), view<const double, 1>>);
  static_assert(std::is_same_v<decltype(view{out}), view<double, 1>>);
#if __cplusplus >= 202002L
  static_assert(std::is_same_v<decltype(view{std::span(storage)}), view<double, 1>>);
  flowk::negative(view{std::span(storage)}, view{out});
  CHECK(out[5] == -5);
#endif
  static_assert(!std::is_constructible_v<view<double>, const std::vector<double>&>, "no view of const drops it");
  static_assert(!std::is_constructible_v<view<float>, std::vector<double>&>);
  static_assert(!std::is_constructible_v<view<double>, std::vector<double>>, "no view of a temporary");
  const view<const double> any = view{storage};  // of no const, of a rank in the type
  CHECK(any.rank() == 1 && any.shape()[0] == 6 && any.size() == 6 && any.strides() != nullptr);
}

// What a view is copied as: the constructor for ranges must not take it.
struct Layer {
  view<float> x;
};

TEST(a_copy_is_the_same_view) {
  std::vector<float> storage(12);
  const std::vector<int> shape = {2, 3}, strides = {6, 2};
  view<float> x{storage.data(), shape, strides};  // not const
  const Layer layer{x};
  const auto by_value = [x] { return x; };
  for (const view<float>& copy : {layer.x, by_value(), view{x}}) {
    CHECK(copy.rank() == 2 && copy.shape()[1] == 3 && copy.strides() != nullptr && copy.strides()[0] == 6);
    CHECK(copy.data() == storage.data());
  }
  view fixed{storage.data(), {2, 3}};
  auto fixed_copy = fixed;
  const view<const float, 2> read_only = fixed_copy;
  const view constant{storage.data(), {2, 3}};
  const view<const float, 2> of_constant = constant;
  const view<const float> of_any_rank = constant, of_temporary = view{storage.data(), {2, 3}};
  CHECK(read_only.shape()[1] == 3 && of_constant.shape()[1] == 3 && of_constant.strides() == nullptr);
  CHECK(of_any_rank.rank() == 2 && of_temporary.rank() == 2);
}

TEST(extents_past_64_bits_are_refused) {
  float x = 0;
  const int64_t huge = int64_t{1} << 32;
  const view whole{&x, {huge, huge}};
  CHECK(whole.size() == INT64_MAX);
  const flowk::status status = flowk::prelu(std::nothrow, whole, view{&x, {1}}, whole);
  CHECK(status.code() == FLOWK_STATUS_SIZE_OVERFLOW);
  const std::vector<int64_t> far = {huge + 1, huge};
  CHECK(has(thrown([&] { flowk::permute(view{&x, {1, 1}}, view{&x, {1, 1}}, far); }), "axes[0] = 4294967297"));
}

TEST(prelu_and_its_gradients) {
  const std::vector<float> x = {-1, 2, -3, 4, -5, 6, -7, 8}, alpha = {0.5f, 0.25f}, ones(8, 1.0f);
  std::vector<float> y(8), dx(8), dalpha(2);
  const view input{x.data(), {2, 2, 2}};
  flowk::prelu(input, view{alpha}, view{y.data(), {2, 2, 2}});
  CHECK(y[0] == -0.5f && y[2] == -0.75f && y[7] == 8);
  flowk::prelu(input, view{alpha.data(), {1}}, view{y.data(), {2, 2, 2}});
  CHECK(y[2] == -1.5f);
  flowk::prelu(input, view{alpha}, view{y.data(), {2, 2, 2}}, 2);
  CHECK(y[2] == -1.5f && y[0] == -0.5f);
  CHECK(has(thrown([&] { flowk::prelu(input, view{alpha}, view{y.data(), {2, 2, 2}}, 3); }), "channel_axis = 3"));
  std::vector<unsigned char> workspace(flowk::prelu_backward_workspace_bytes(input, view{alpha}) + 16);
  void* const aligned = workspace.data() + (16 - reinterpret_cast<uintptr_t>(workspace.data()) % 16) % 16;
  flowk::prelu_backward(view{ones.data(), {2, 2, 2}}, input, view{alpha}, view{dx.data(), {2, 2, 2}}, view{dalpha},
                        aligned, workspace.size() - 16);
  CHECK(dx[0] == 0.5f && dx[1] == 1 && dalpha[0] == -6 && dalpha[1] == -10);
  dx.assign(8, 0);
  flowk::prelu_backward(view{ones.data(), {2, 2, 2}}, input, view{alpha}, view{dx.data(), {2, 2, 2}}, view<float>(),
                        nullptr, 0);
  CHECK(dx[0] == 0.5f);
  dx.assign(8, 0);
  flowk::prelu_backward(view{ones.data(), {2, 2, 2}}, input, view{alpha}, view{dx.data(), {2, 2, 2}}, {}, nullptr, 0);
  CHECK(dx[0] == 0.5f);
  CHECK(has(flowk::prelu_backward(flowk::explain, view{ones.data(), {2, 2, 2}}, input, view{alpha},
                                  view{dx.data(), {2, 2, 2}}, view{dalpha}, nullptr, 0),
            "by_"));
}

TEST(softmax_masks_broadcast) {
  const std::vector<float> x(12, 1.0f);
  std::vector<float> y(12), dx(12);
  const std::vector<int32_t> lengths = {1, 2};  // one per batch, for both rows
  const view scores{x.data(), {2, 2, 3}};
  const view out{y.data(), {2, 2, 3}};
  flowk::masked_softmax(scores, out);
  CHECK(std::fabs(y[0] - 1.0f / 3) < 1e-6f);
  flowk::masked_softmax(scores, out, flowk::softmax_mask().lengths(view{lengths.data(), {2, 1}}));
  CHECK(y[0] == 1 && y[3] == 1 && y[6] == 0.5f && y[8] == 0);
  flowk::masked_softmax(scores, out, flowk::softmax_mask().causal(-1));
  CHECK(y[0] == 1 && y[1] == 0 && y[4] == 0.5f);
  const std::array<bool, 3> dense = {true, false, true};
  const std::vector<float> bias = {0, 5, 0};
  flowk::softmax_mask mask;
  mask.dense(view{dense}).bias(view{bias});
  const flowk::softmax_mask copied = mask;
  flowk::masked_softmax(scores, out, copied, 2.0);
  CHECK(y[0] == 0 && y[1] == 1 && y[11] == 0);
  flowk::masked_softmax(scores, out, copied, 2.0, true);
  CHECK(y[1] == 0 && std::isinf(y[0]));
  flowk::masked_softmax(scores, out);
  flowk::masked_softmax_backward(scores, out, view{dx.data(), {2, 2, 3}});
  CHECK(std::fabs(dx[0]) < 1e-6f);
  CHECK(has(flowk::masked_softmax(flowk::explain, scores, out, copied), "bias"));
  const std::vector<float> sinks = {1, 3}, row_scale = {2};  // a sink per batch, for both rows
  std::vector<float> lse(4), dsinks(4), dlse(4, 1.0f);
  flowk::softmax_mask rows;
  rows.sinks(view{sinks.data(), {2, 1}}).row_scale(view{row_scale.data(), {1, 1}}).softcap(4).lse(lse.data());
  flowk::masked_softmax(scores, out, rows);
  const double z = 4 * std::tanh(0.5), total = 3 * std::exp(z) + std::exp(3.0);
  CHECK(std::fabs(y[11] - std::exp(z) / total) < 1e-6 && std::fabs(lse[3] - std::log(total)) < 1e-6);
  rows.dlse(dlse.data()).dsinks(dsinks.data()).scores(scores);
  flowk::masked_softmax_backward(scores, out, view{dx.data(), {2, 2, 3}}, rows);
  CHECK(std::fabs(dsinks[3] - std::exp(3 - std::log(total)) * (1 - 3 * std::exp(z) / total)) < 1e-6);
  CHECK(has(flowk::masked_softmax(flowk::explain, scores, out, rows), "softcap; sinks"));
  CHECK(has(thrown([&] { flowk::masked_softmax(scores, out, flowk::softmax_mask().bias(view{x.data(), {2}})); }),
            "bias has extent 2 in dimension 0, must be 3"));
  CHECK(!flowk::masked_softmax(std::nothrow, scores, view{y.data(), {3}}));
}

TEST(a_shared_bias_has_a_gradient) {
  const std::vector<float> dy = {1, 0, 0, 1, 0, 0, 0, 2}, y = {0.5f, 0.5f, 0.25f, 0.75f, 0.5f, 0.5f, 0.5f, 0.5f};
  std::vector<float> dx(8), dbias(4);
  const view of_y{dy.data(), {2, 2, 2}}, probabilities{y.data(), {2, 2, 2}};
  const view out{dx.data(), {2, 2, 2}};
  const view shared{dbias.data(), {2, 2}};
  CHECK(flowk::masked_softmax_backward_dbias_workspace_bytes(probabilities, shared) == 0);
  flowk::masked_softmax_backward_dbias(of_y, probabilities, out, shared, nullptr, 0, {}, 2.0);
  CHECK(dx[0] == 0.5f && dx[1] == -0.5f && dbias[0] == 0.25f && dbias[2] == -0.1875f - 0.5f);
  dbias.assign(4, 7);
  flowk::masked_softmax_backward_dbias(of_y, probabilities, {}, view{dbias.data(), {1, 2}}, nullptr, 0);
  CHECK(dbias[1] == -0.25f + 0.1875f + 0.5f && dbias[2] == 7);
  CHECK(has(flowk::masked_softmax_backward_dbias(flowk::explain, of_y, probabilities, out, shared, nullptr, 0),
            "2 rows of 2 columns, each shared by 2 rows"));
  CHECK(!flowk::masked_softmax_backward_dbias(std::nothrow, of_y, probabilities, out, view{dbias.data(), {3, 2}},
                                              nullptr, 0));
}

TEST(two_softmaxes_merge) {
  const std::vector<float> y1 = {1, 2, 3, 4}, y2 = {5, 6, 7, 8}, lse1 = {0, -INFINITY}, lse2 = {std::log(3.0f), 2};
  std::vector<float> y(4), lse(2);
  const view one{y1.data(), {2, 2}}, two{y2.data(), {2, 2}};
  const view out{y.data(), {2, 2}};
  flowk::softmax_merge(one, lse1.data(), two, lse2.data(), out, lse.data());
  CHECK(std::fabs(y[0] - 4) < 1e-6f && std::fabs(y[1] - 5) < 1e-6f && y[2] == 7 && y[3] == 8);
  CHECK(std::fabs(lse[0] - std::log(4.0f)) < 1e-6f && lse[1] == 2);
  CHECK(has(flowk::softmax_merge(flowk::explain, one, lse1.data(), two, lse2.data(), out, lse.data()), "merge_rows"));
  CHECK(!flowk::softmax_merge(std::nothrow, one, lse1.data(), view{y2.data(), {4}}, lse2.data(), out, lse.data()));
  flowk::masked_softmax(one, out, flowk::softmax_mask().batch_invariant());
  CHECK(std::fabs(y[0] - 1 / (1 + std::exp(1.0f))) < 1e-6f);
}

TEST(a_plan_of_any_length_is_whole) {
  const std::string wanted(5000, 'x');
  CHECK(flowk::detail::explained([&](flowk::detail::Text to) {
          std::snprintf(to.text, to.bytes, "%s", wanted.c_str());
          return flowk::status();
        }) == wanted);
}

TEST(any_rank_is_known_at_run_time) {
  const std::vector<float> src = counted(24);
  std::vector<float> dst(24), wanted(24);
  const std::vector<int64_t> shape = {2, 3, 4}, permuted = {4, 2, 3};
  flowk::permute(view{src.data(), shape}, view{dst.data(), permuted}, std::vector<int32_t>{2, 0, 1});
  flowk::permute(view{src.data(), {2, 3, 4}}, view{wanted.data(), {4, 2, 3}}, {2, 0, 1});
  CHECK(dst == wanted && dst[1] == 4);
  view<const float> copy = view{src.data(), shape};
  copy = view<const float>(dst.data(), permuted);
  CHECK(copy.data() == dst.data() && copy.shape()[0] == 4);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
