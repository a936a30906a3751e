// SPDX-License-Identifier: Apache-2.0
// The C ABI from C++, under sanitizers: the types of its constants, and values that are none of them.
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "api/call.h"
#include "check.h"
#include "flowk/flowk.h"

namespace {

bool error_has(const char* part) { return std::strstr(flowk_last_error(), part) != nullptr; }

template <class Constant>
constexpr bool is_int32_constant = std::is_same_v<std::underlying_type_t<Constant>, int32_t>;

constexpr int32_t no_constants[] = {INT32_MIN, -1, 0, 99, FLOWK_HOST_SCALAR, INT32_MAX};

}  // namespace

TEST(the_flag_of_a_number_joins_a_dtype_in_a_constant_expression) {
  constexpr flowk_dtype number_dtype = FLOWK_FLOAT32 | FLOWK_HOST_SCALAR;
  static_assert(number_dtype == 268);
  const float x[2] = {1, 2}, y = 10;
  const int64_t shape[1] = {2};
  float out[2] = {};
  CHECK(flowk_binary(FLOWK_BINARY_ADD, x, nullptr, FLOWK_FLOAT32, &y, nullptr, number_dtype, out, nullptr,
                     FLOWK_FLOAT32, 1, shape, nullptr) == FLOWK_STATUS_SUCCESS);
  CHECK(out[0] == 11 && out[1] == 12);
}

TEST(constants_are_int32_values) {
  static_assert(is_int32_constant<decltype(FLOWK_STATUS_OVERLAP)> && is_int32_constant<decltype(FLOWK_INT8)> &&
                is_int32_constant<decltype(FLOWK_UNARY_ABS)> && is_int32_constant<decltype(FLOWK_BINARY_ADD)> &&
                is_int32_constant<decltype(FLOWK_TERNARY_FMA)>);
}

TEST(values_that_are_no_constant_are_answered_or_refused) {
  float x = 1, out = -1;
  for (const int32_t value : no_constants) {
    if (value != 0) CHECK(std::strcmp(flowk_status_string(value), "unknown flowk_status") == 0);
    CHECK(std::strcmp(flowk_dtype_string(value), "unknown flowk_dtype") == 0);
    CHECK(flowk_dtype_bytes(value) == 0 && flowk_dtype_alignment_bytes(value) == 0);
    CHECK(flowk_unary_op_name(value) == nullptr && flowk_unary_op_result(value, FLOWK_FLOAT32) == 0);
    CHECK(flowk_binary_op_formula(value) == nullptr && flowk_binary_op_result(FLOWK_BINARY_ADD, value) == 0);
    CHECK(flowk_ternary_op_num_parameters(value) == 0);
    CHECK(flowk_unary(value, &x, nullptr, FLOWK_FLOAT32, &out, nullptr, FLOWK_FLOAT32, 0, nullptr, 0, 0, nullptr) ==
              FLOWK_STATUS_INVALID_ARGUMENT &&
          error_has(("op = " + std::to_string(value) + ", must be in 1 ... 48").c_str()));
    CHECK(flowk_unary(FLOWK_UNARY_ABS, &x, nullptr, value, &out, nullptr, FLOWK_FLOAT32, 0, nullptr, 0, 0, nullptr) ==
              FLOWK_STATUS_UNSUPPORTED_DTYPE &&
          error_has(("x_dtype = " + std::to_string(value)).c_str()));
    CHECK(flowk_permute(&x, nullptr, &out, nullptr, 0, nullptr, nullptr, value, nullptr) ==
              FLOWK_STATUS_UNSUPPORTED_DTYPE &&
          error_has(("dtype = " + std::to_string(value)).c_str()));
  }
  CHECK(out == -1);
}

TEST(the_types_that_an_operation_takes_are_named) {
  const char x[8] = {};
  char out[8] = {};
  const auto text_of = [&](auto launch, int32_t op, flowk_dtype dtype) -> std::string {
    CHECK(launch(op, dtype) == FLOWK_STATUS_UNSUPPORTED_DTYPE);
    return flowk_last_error();
  };
  const auto unary = [&](int32_t op, flowk_dtype dtype) {
    return flowk_unary(op, x, nullptr, dtype, out, nullptr, dtype, 0, nullptr, 0, 0, nullptr);
  };
  const auto binary = [&](int32_t op, flowk_dtype dtype) {
    return flowk_binary(op, x, nullptr, dtype, x, nullptr, dtype, out, nullptr, dtype, 0, nullptr, nullptr);
  };
  CHECK(text_of(unary, FLOWK_UNARY_ABS, FLOWK_BOOL) == "x_dtype = bool, must be an integer or a float for abs");
  CHECK(text_of(unary, FLOWK_UNARY_EXP, FLOWK_INT8) == "x_dtype = int8, must be a float for exp");
  CHECK(text_of(binary, FLOWK_BINARY_MINIMUM, FLOWK_COMPLEX64) ==
        "x_dtype = complex64, must be bool, an integer or a float for minimum");
  CHECK(text_of(binary, FLOWK_BINARY_BITWISE_OR, FLOWK_FLOAT16) ==
        "x_dtype = float16, must be bool or an integer for bitwise_or");
}

TEST(a_struct_may_have_the_size_of_any_released_version) {
  const std::initializer_list<size_t> released_bytes = {96, 104, 120};
  for (const size_t bytes : released_bytes)
    CHECK(flowk::api::check_struct_bytes("mask->struct_bytes", bytes, released_bytes).ok());
  for (const size_t bytes : {size_t{0}, size_t{95}, size_t{100}, size_t{128}, SIZE_MAX}) {
    CHECK(flowk::api::check_struct_bytes("mask->struct_bytes", bytes, released_bytes).code() ==
          FLOWK_STATUS_INVALID_ARGUMENT);
    CHECK(error_has("must be 120"));
  }
}

TEST(more_elements_than_a_grid_has_blocks_for_are_refused_by_name) {
  // Addresses that nothing has: the calls are refused before they are read.
  const auto at = [](int part) { return reinterpret_cast<void*>(uintptr_t(part) << 57); };
  constexpr int64_t most = int64_t{1} << 54, columns = 1024;
  const int64_t shape[1] = {most}, rows[2] = {most / columns, columns};
  const int32_t axes[1] = {0};
  constexpr flowk_dtype f32 = FLOWK_FLOAT32;
  char text[64] = "before";
  const auto is_refused = [&](flowk_status status, const char* part) {
    return status == FLOWK_STATUS_SIZE_OVERFLOW && error_has(part) && error_has("blocks, must be <= 2147483647") &&
           std::strcmp(text, "before") == 0;
  };
  CHECK(is_refused(flowk_permute(at(1), nullptr, at(2), nullptr, 1, shape, axes, f32, nullptr), "dst has too many"));
  CHECK(is_refused(flowk_permute_explain(at(1), nullptr, at(2), nullptr, 1, shape, axes, f32, text, sizeof text),
                   "dst has too many"));
  CHECK(
      is_refused(flowk_permute_convert(at(1), nullptr, f32, at(2), nullptr, FLOWK_FLOAT16, 1, shape, axes, 1, nullptr),
                 "dst has"));
  for (const int32_t op : {FLOWK_UNARY_COPY, FLOWK_UNARY_NEGATIVE})
    CHECK(is_refused(flowk_unary(op, at(1), nullptr, f32, at(2), nullptr, f32, 1, shape, 0, 0, nullptr), "out has"));
  CHECK(is_refused(flowk_masked_softmax(at(1), nullptr, f32, at(2), nullptr, f32, 2, rows, 1, nullptr, 0, nullptr),
                   "y has too many"));
  CHECK(is_refused(flowk_masked_softmax_backward(at(1), nullptr, at(2), nullptr, f32, at(3), nullptr, f32, 2, rows, 1,
                                                 nullptr, 0, nullptr),
                   "dx has too many"));
  CHECK(is_refused(flowk_prelu(at(1), at(2), at(3), 1, most, 1, f32, f32, nullptr), "y has too many"));
  CHECK(is_refused(flowk_prelu_backward(at(1), at(2), at(3), at(4), nullptr, 1, most, 1, f32, f32, nullptr, 0, nullptr),
                   "dx has too many"));
  // No elements, and dalpha to be set to zeros.
  for (const int64_t channels : {most, int64_t{1} << 58})
    CHECK(is_refused(
        flowk_prelu_backward(nullptr, nullptr, nullptr, nullptr, at(1), 0, channels, 1, f32, f32, nullptr, 0, nullptr),
        "dalpha has too many"));
}

// AddressSanitizer reports the difference of pointers into two allocations, which C++ leaves undefined.
TEST(one_launch_takes_pairs_in_allocations_of_their_own) {
  struct alignas(128) Line {  // one launch takes pairs that have the same place in a line
    float elements[6];
  };
  const int64_t shape[2] = {2, 3};
  const int32_t axes[2] = {1, 0};
  const auto x = std::make_unique<Line>(Line{0, 1, 2, 3, 4, 5}), x1 = std::make_unique<Line>(Line{6, 7, 8, 9, 10, 11});
  const auto y = std::make_unique<Line>(), y1 = std::make_unique<Line>();
  const void* const srcs[2] = {x.get(), x1.get()};
  void* const dsts[2] = {y.get(), y1.get()};
  CHECK(flowk_permute_many(2, srcs, nullptr, FLOWK_FLOAT32, dsts, nullptr, FLOWK_FLOAT32, 2, shape, axes, 1, nullptr) ==
        FLOWK_STATUS_SUCCESS);
  CHECK(y->elements[1] == 3 && y->elements[4] == 2 && y1->elements[1] == 9 && y1->elements[4] == 8);
}

TEST(the_strides_of_an_empty_tensor_are_not_read) {
  const int64_t strides[2] = {INT64_MIN, 7}, shape[2] = {0, 3};
  const int32_t axes[2] = {1, 0};
  constexpr flowk_dtype f32 = FLOWK_FLOAT32;
  CHECK(flowk_permute(nullptr, strides, nullptr, strides, 2, shape, axes, f32, nullptr) == FLOWK_STATUS_SUCCESS);
  CHECK(flowk_unary(FLOWK_UNARY_NEGATIVE, nullptr, strides, f32, nullptr, strides, f32, 2, shape, 0, 0, nullptr) ==
        FLOWK_STATUS_SUCCESS);
  flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT;
  mask.dense = &mask;
  mask.dense_strides = strides;
  CHECK(flowk_masked_softmax(nullptr, strides, f32, nullptr, strides, f32, 2, shape, 1, &mask, 0, nullptr) ==
        FLOWK_STATUS_SUCCESS);
}

TEST(the_initialiser_of_a_mask_gives_a_mask_of_nothing) {
  flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT;
  const float x[2] = {3, 3};
  const int64_t shape[1] = {2};
  float y[2] = {};
  CHECK(flowk_masked_softmax(x, nullptr, FLOWK_FLOAT32, y, nullptr, FLOWK_FLOAT32, 1, shape, 1, &mask, 0, nullptr) ==
        FLOWK_STATUS_SUCCESS);
  CHECK(y[0] == 0.5f && y[1] == 0.5f);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
