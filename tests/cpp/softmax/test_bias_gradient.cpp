// SPDX-License-Identifier: Apache-2.0
// The gradient of a shared bias: what its plan depends on, and its kernels against a plain loop in double, in memory
// that ends where the tensors do, so that AddressSanitizer sees the first byte too many.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check.h"
#include "devices.h"
#include "softmax/softmax_bias_gradient.h"
#include "softmax_case.h"
#include "thread_order.h"

namespace {

using namespace flowk::softmax;

// 48 KB of shared memory: rows of more columns than that have their sums in the workspace.
const Device small = {.shared_bytes_per_multiprocessor = 49152, .shared_bytes_per_block = 49152};

// The rows have the extents (outer, groups, inner); the bias is (1, groups, 1, columns).
struct BiasCase {
  flowk_dtype dtype, dbias_dtype;
  int64_t outer, groups, inner, columns;
  int64_t lead = 0;  // elements from a multiple of 16 bytes
  bool log = false, has_dx = true, has_lengths = false, has_dlse = false, is_invariant = false;
  flowk_dtype dx_dtype = FLOWK_BOOL;  // BOOL: as y
  Device device = h200;
};

BiasGradientSizes sizes_of(const BiasCase& one) {
  return {one.groups, one.outer * one.inner, one.columns, one.dtype, one.inner > 1 ? 1 : one.groups};
}

BiasGradientRequest request_of(const BiasCase& one) {
  BiasGradientRequest request;
  SoftmaxRequest& softmax = request.softmax;
  softmax.backward = true;
  softmax.log_softmax = one.log;
  softmax.in_dtype = one.dtype;
  softmax.out_dtype = one.dx_dtype == FLOWK_BOOL ? one.dtype : one.dx_dtype;
  softmax.rank = 3;
  softmax.columns = one.columns;
  softmax.scale = 0.5;
  request.dbias_dtype = one.dbias_dtype;
  const int64_t extents[3] = {one.outer, one.groups, one.inner};
  std::copy_n(extents, 3, softmax.extents);
  for (auto& strides : softmax.strides) std::fill_n(strides, 3, int64_t{0});
  const auto put = [&](SoftmaxOperand operand, int64_t row_bytes) {
    for (int d = 2; d >= 0; row_bytes *= extents[d--]) softmax.strides[operand][d] = extents[d] == 1 ? 0 : row_bytes;
  };
  const int64_t bytes = dtype_info(one.dtype).element_bytes;
  put(softmax_x, one.columns * bytes);
  put(softmax_bias_or_y, one.columns * bytes);
  if (one.has_dx) put(softmax_out, one.columns * dtype_info(softmax.out_dtype).element_bytes);
  if (one.has_lengths) put(softmax_lengths, 4);
  if (one.has_dlse) put(softmax_lse, std::max<int64_t>(bytes, 4));
  softmax.lengths_bytes = one.has_lengths ? 4 : 0;
  softmax.batch_invariant = one.is_invariant;
  request.sizes = sizes_of(one);
  if (one.groups > 1) softmax.strides[softmax_dense][1] = one.columns * dtype_info(one.dbias_dtype).element_bytes;
  return request;
}

int64_t workspace_bytes_of(const BiasCase& one) { return bias_gradient_workspace_bytes(sizes_of(one), one.device); }

// Results as bytes, for comparisons of bits.
struct Results {
  std::vector<unsigned char> dx, dbias;
  bool operator==(const Results&) const = default;
};

Results run_case(const BiasCase& one) {
  BiasGradientRequest request = request_of(one);
  SoftmaxRequest& softmax = request.softmax;
  const int64_t rows = one.outer * one.groups * one.inner, columns = one.columns, elements = rows * columns;
  const CaseTensor dy(one.dtype, elements, one.lead), y(one.dtype, elements, one.lead);
  const CaseTensor dx(softmax.out_dtype, one.has_dx ? elements : 1, one.lead);
  const CaseTensor dbias(one.dbias_dtype, one.groups * columns, one.lead);
  const CaseTensor lengths(FLOWK_INT32, rows), dlse(one.dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32, rows);
  const CaseTensor workspace(FLOWK_UINT8, workspace_bytes_of(one));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CaseTensor &dy_ = const_cast<CaseTensor&>(dy), &y_ = const_cast<CaseTensor&>(y);
  CaseTensor &lengths_ = const_cast<CaseTensor&>(lengths), &dlse_ = const_cast<CaseTensor&>(dlse);
  std::vector<double> sums(static_cast<size_t>(one.groups * columns)), dz(static_cast<size_t>(columns));
  std::vector<double> want_dx(static_cast<size_t>(elements));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t length = !one.has_lengths ? columns : (r * 7) % (columns + 1);
    lengths_.set(r, static_cast<double>(length));
    dlse_.set(r, case_random(static_cast<uint64_t>(3 * r + 1)));
    double sum = one.has_dlse ? -dlse.get(r) : 0;
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = r * columns + j;
      const double p = (case_random(static_cast<uint64_t>(2 * at)) + 1.001) / static_cast<double>(columns);
      const bool is_masked = j % 5 == 4;  // by a dense mask of the forward call
      dy_.set(at, case_random(static_cast<uint64_t>(2 * at + 1)));
      y_.set(at, one.log ? (is_masked ? -infinity : std::log(p)) : is_masked ? 0 : p);
      if (j >= length)  // is not read
        dy_.set(at, std::numeric_limits<double>::quiet_NaN());
      else if (!one.log)
        sum += y.get(at) * dy.get(at);
      else if (!is_masked)
        sum += dy.get(at);
    }
    for (int64_t j = 0; j < length; ++j) {
      const double of_dy = dy.get(r * columns + j), of_y = y.get(r * columns + j);
      const double one_dz = !one.log ? of_y * (of_dy - sum) : std::isinf(of_y) ? 0 : of_dy - std::exp(of_y) * sum;
      want_dx[static_cast<size_t>(r * columns + j)] = 0.5 * one_dz;
      sums[static_cast<size_t>(r / one.inner % one.groups * columns + j)] += one_dz;
    }
  }
  softmax.pointers[softmax_x] = dy.data();
  softmax.pointers[softmax_bias_or_y] = y.data();
  softmax.pointers[softmax_out] = one.has_dx ? dx.data() : nullptr;
  softmax.pointers[softmax_lengths] = one.has_lengths ? lengths.data() : nullptr;
  softmax.pointers[softmax_lse] = one.has_dlse ? dlse.data() : nullptr;
  request.dbias = dbias.data();
  request.workspace = workspace.data();
  BiasGradientPlan plan;
  plan_bias_gradient(request, one.device, &plan);
  draw_thread_order();
  CHECK(run_bias_gradient(plan, nullptr).ok());

  const auto rounding_of = [](flowk_dtype dtype) {
    return dtype == FLOWK_FLOAT16 ? 0x1p-11 : dtype == FLOWK_BFLOAT16 ? 0x1p-8 : 0x1p-24;
  };
  const double unit = one.dtype == FLOWK_FLOAT64 ? 0x1p-48 : 0x1p-20, members = static_cast<double>(rows / one.groups);
  const auto check_close = [&](const CaseTensor& got, const std::vector<double>& want, flowk_dtype dtype, double most) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(want.size()); ++i) {
      const double exact = want[static_cast<size_t>(i)];
      const double bound = most + rounding_of(dtype) * std::fabs(exact) + (dtype == FLOWK_FLOAT16 ? 0x1p-25 : 0);
      wrong += !(std::fabs(got.get(i) - exact) <= bound);
    }
    CHECK(wrong == 0);
    if (wrong != 0)
      std::printf("  %lld wrong: type %d, (%lld, %lld, %lld, %lld), lead %lld\n", static_cast<long long>(wrong),
                  static_cast<int>(one.dtype), static_cast<long long>(one.outer), static_cast<long long>(one.groups),
                  static_cast<long long>(one.inner), static_cast<long long>(columns), static_cast<long long>(one.lead));
  };
  check_close(dbias, sums, one.dbias_dtype, unit * members);
  if (one.has_dx) check_close(dx, want_dx, softmax.out_dtype, unit);
  const auto bytes_of = [](const CaseTensor& tensor, flowk_dtype dtype) {
    const auto* const first = static_cast<const unsigned char*>(tensor.data());
    return std::vector<unsigned char>(first, first + tensor.elements() * dtype_info(dtype).element_bytes);
  };
  return {bytes_of(dx, softmax.out_dtype), bytes_of(dbias, one.dbias_dtype)};
}

}  // namespace

TEST(gradients_are_right_and_invariant_bits_do_not_depend_on_addresses_or_thread_orders) {
  // A row has one thread or a whole block. Its vectors are held, or loaded twice, and some rows are shorter than two
  // vectors. The sums are in registers, in shared memory or in the workspace. The members of a chunk start at the same
  // element of a vector, or at different ones. A group has one chunk, or several in one block or in several blocks.
  const int64_t shapes[][4] = {{3, 2, 2, 1},    {5, 4, 1, 5},    {2, 3, 4, 24},   {40, 3, 1, 49},  {9, 1, 8, 64},
                               {2, 1, 3, 77},   {17, 1, 2, 520}, {2, 2, 1, 4104}, {2, 1, 2, 4101}, {1, 3, 1, 33},
                               {900, 1, 3, 20}, {600, 5, 1, 9},  {24, 3, 1, 131}, {5, 3, 1, 2051}, {18, 3, 1, 257}};
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_BFLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
    for (const auto& [outer, groups, inner, columns] : shapes) {
      const BiasCase first = {dtype, dtype == FLOWK_FLOAT64 ? dtype : FLOWK_FLOAT32, outer, groups, inner, columns};
      Results results;
      for (const bool is_invariant : {false, true}) {
        BiasCase one = first;
        one.is_invariant = is_invariant;
        results = run_case(one);
        CHECK(run_case(one) == results);
        one.lead = 1;
        CHECK(run_case(one) == results || !is_invariant);
        one.device = small;
        CHECK(run_case(one) == results || !is_invariant);
        one.has_dx = false;
        CHECK(run_case(one).dbias == results.dbias || !is_invariant);
      }
      BiasCase one = first;
      one.lead = 1;
      one.has_lengths = one.has_dlse = true;
      one.dbias_dtype = dtype;
      run_case(one);
      one.lead = 0;
      one.log = true;
      run_case(one);
    }
}

TEST(types_are_converted) {
  for (const int64_t columns : {32, 35}) {
    run_case({.dtype = FLOWK_FLOAT32,
              .dbias_dtype = FLOWK_BFLOAT16,
              .outer = 3,
              .groups = 2,
              .inner = 2,
              .columns = columns,
              .dx_dtype = FLOWK_FLOAT16});
    run_case({.dtype = FLOWK_BFLOAT16,
              .dbias_dtype = FLOWK_FLOAT32,
              .outer = 20,
              .groups = 2,
              .inner = 2,
              .columns = columns,
              .dx_dtype = FLOWK_FLOAT32});
  }
}

TEST(the_order_of_the_sums_depends_on_sizes_and_type_alone) {
  for (const int64_t columns : {8, 49, 512, 4096, 50257})
    for (const int64_t groups : {1, 12, 5000}) {
      const BiasCase one = {FLOWK_FLOAT16, FLOWK_FLOAT16, 64, groups, 2, columns};
      BiasGradientRequest request = request_of(one);
      BiasGradientPlan plan, other;
      plan_bias_gradient(request, h200, &plan);
      request.softmax.pointers[softmax_x] = reinterpret_cast<const void*>(uintptr_t{2});
      request.softmax.pointers[softmax_out] = nullptr;
      request.dbias = reinterpret_cast<void*>(uintptr_t{2});
      plan_bias_gradient(request, small, &other);
      const auto chunks = [](const BiasGradientPlan& of) {
        return of.gradient.chunk_blocks * of.gradient.block_chunks;
      };
      CHECK(plan.gradient.by_vectors && !other.gradient.by_vectors && plan.gradient.has_edges == (columns % 8 != 0));
      CHECK(chunks(plan) == chunks(other) && plan.gradient.members == 128);
      CHECK(plan.gradient.block_chunks == other.gradient.block_chunks);
      CHECK(plan.params.lanes_per_row == other.params.lanes_per_row && plan.launch.uses_pdl && !other.launch.uses_pdl);
      CHECK(chunks(plan) == 1 || plan.gradient.members / chunks(plan) >= (plan.gradient.chunk_blocks > 1 ? 8 : 4));
      CHECK(plan.gradient.chunk_blocks == 1 || plan.launch.num_blocks <= 1024);
      CHECK((plan.sum_launch.num_blocks > 0) == (plan.gradient.chunk_blocks > 1));
      // What the header says of the size, in bytes of dy and y.
      if (columns < 28000) CHECK(5 * workspace_bytes_of(one) <= 128 * groups * columns * 4 + 5 * 128);
      CHECK(plan.launch.shared_bytes <= h200.shared_bytes_per_block && other.launch.shared_bytes <= 49152);
    }
}

TEST(rows_and_sums_are_in_registers_if_a_block_holds_the_row) {
  const auto plan_of = [](const BiasCase& one) {
    BiasGradientPlan plan;
    plan_bias_gradient(request_of(one), h200, &plan);
    return plan.gradient;
  };
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_BFLOAT16, FLOWK_FLOAT32})
    for (const int64_t columns : {49, 64, 1500, 4096}) {
      BiasCase one = {dtype, FLOWK_FLOAT32, 64, 24, 1, columns};
      CHECK(plan_of(one).in_registers);
      one.lead = 1;
      CHECK(plan_of(one).in_registers || columns % 8 == 0);
      one.lead = 0;
      one.log = true;
      CHECK(!plan_of(one).in_registers);
      one.log = false;
      one.is_invariant = true;
      CHECK(!plan_of(one).in_registers);
    }
  CHECK(!plan_of({FLOWK_FLOAT16, FLOWK_FLOAT16, 64, 24, 1, 16392}).in_registers);
  CHECK(!plan_of({FLOWK_FLOAT64, FLOWK_FLOAT64, 64, 24, 1, 64}).in_registers);
}

TEST(members_of_a_chunk_start_at_one_element_of_a_vector_where_a_block_has_enough_chunks) {
  const auto has_one_phase = [](int64_t outer, int64_t groups, int64_t inner, int64_t columns) {
    const BiasCase one = {FLOWK_FLOAT16, FLOWK_FLOAT16, outer, groups, inner, columns};
    BiasGradientPlan plan;
    plan_bias_gradient(request_of(one), h200, &plan);
    return plan.gradient.has_one_phase;
  };
  CHECK(has_one_phase(256, 3 * 49, 1, 49));      // 7203 elements from member to member, and 8 chunks
  CHECK(has_one_phase(16, 8 * 197, 1, 197));     // whole vectors from member to member
  CHECK(has_one_phase(1, 64, 12 * 257, 257));    // neighbours
  CHECK(!has_one_phase(18, 3 * 257, 1, 257));    // too few members for 8 chunks
  CHECK(!has_one_phase(64, 3 * 2051, 1, 2051));  // a row per block
  CHECK(!has_one_phase(64, 12, 257, 257));       // members in two dimensions
}

TEST(a_bias_that_no_row_has_gets_zeros) {
  const BiasCase one = {FLOWK_FLOAT32, FLOWK_FLOAT32, 1, 3, 1, 40};
  BiasGradientRequest request = request_of(one);
  request.sizes.members = 0;
  const CaseTensor dbias(FLOWK_FLOAT32, 120);
  request.dbias = dbias.data();
  BiasGradientPlan plan;
  plan_bias_gradient(request, h200, &plan);
  CHECK(plan.launch.num_blocks == 0 && run_bias_gradient(plan, nullptr).ok());
  for (int64_t i = 0; i < 120; ++i) CHECK(dbias.get(i) == 0);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
