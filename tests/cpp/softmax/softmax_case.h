// SPDX-License-Identifier: Apache-2.0
// A test case: softmax over (batch, heads, rows, columns), its tensors in heap blocks of their exact size, the request
// that the C ABI would make, and the comparison with float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/convert.cuh"
#include "core/dtype.h"
#include "softmax/softmax.h"

// A row of tests/cases/softmax_cases.json: one case of each type, shape, lead and direction.
struct SoftmaxRow {
  const char* why;
  std::vector<flowk_dtype> dtypes;
  std::vector<std::vector<int64_t>> shapes;  // (batch, heads, rows, columns) or the last of these
  const char* mechanism = "";                // that an H200 takes for each; "": not said
  bool strided = false;                      // in memory, x, out and y are (batch, columns, heads, rows)
  std::string lengths = "";                  // "left" or "right": one length per row
  bool mask = false;                         // dense: (batch, 1, rows, columns)
  bool causal = false;                       // j <= row + columns - rows
  int64_t window = 0;                        // with causal
  bool bias = false;                         // (1, heads, rows, columns), of the input's type
  bool log = false;
  bool lse = false;  // also the log-sum-exp, or its gradient
  bool batch_invariant = false;
  double scale = 1;
  std::vector<int64_t> leads = {0};    // elements from a multiple of 16 bytes to x, out and y
  flowk_dtype out_dtype = FLOWK_BOOL;  // BOOL: as x
  std::vector<std::string> directions = {"forward"};
  bool special = false;       // rows with a NaN or an infinity; not with `log` or backward
  bool every_config = false;  // to be run by every config that holds the row
  bool gpu = false;           // for clusters; too long for the executor
};

struct SoftmaxCase : SoftmaxRow {
  flowk_dtype dtype;
  int64_t batch, heads, rows, columns, lead;
  bool backward, from_right;
};

inline const std::vector<SoftmaxRow> softmax_rows = {
#include "softmax_cases.inc"
};

// A row with `lse` is each of its cases without and with the log-sum-exp, which other kernels may take.
inline std::vector<SoftmaxCase> cases_of(const SoftmaxRow& row) {
  std::vector<SoftmaxCase> cases;
  for (const flowk_dtype dtype : row.dtypes)
    for (std::vector<int64_t> shape : row.shapes) {
      shape.insert(shape.begin(), 4 - shape.size(), 1);
      for (const int64_t lead : row.leads)
        for (const std::string& direction : row.directions)
          for (int lse = 0; lse <= static_cast<int>(row.lse); ++lse) {
            cases.push_back({row, dtype, shape[0], shape[1], shape[2], shape[3], lead, direction == "backward",
                             row.lengths == "right"});
            cases.back().lse = lse == 1;
          }
    }
  return cases;
}

// Memory that ends where the tensor does, `lead` elements past a multiple of 16.
class CaseTensor {
 public:
  CaseTensor(flowk_dtype dtype, int64_t elements, int64_t lead = 0)
      : dtype_(dtype), elements_(elements), bytes_(flowk::softmax::dtype_info(dtype).element_bytes), lead_(lead) {
    memory_ = static_cast<unsigned char*>(std::malloc(static_cast<size_t>((elements + lead) * bytes_)));
    std::memset(memory_, 0x7e, static_cast<size_t>((elements + lead) * bytes_));
  }
  CaseTensor(const CaseTensor&) = delete;
  CaseTensor& operator=(const CaseTensor&) = delete;
  ~CaseTensor() { std::free(memory_); }

  void* data() const { return memory_ + lead_ * bytes_; }
  int64_t elements() const { return elements_; }
  double get(int64_t i) const {
    switch (dtype_) {
      case FLOWK_FLOAT16: return flowk::softmax::widen(static_cast<flowk::softmax::Float16*>(data())[i]);
      case FLOWK_BFLOAT16: return flowk::softmax::widen(static_cast<flowk::softmax::BFloat16*>(data())[i]);
      case FLOWK_FLOAT32: return static_cast<float*>(data())[i];
      case FLOWK_FLOAT64: return static_cast<double*>(data())[i];
      case FLOWK_INT32: return static_cast<int32_t*>(data())[i];
      case FLOWK_INT64: return static_cast<double>(static_cast<int64_t*>(data())[i]);
      default: return static_cast<unsigned char*>(data())[i];
    }
  }
  void set(int64_t i, double value) {
    switch (dtype_) {
      case FLOWK_FLOAT16:
        static_cast<flowk::softmax::Float16*>(data())[i] = flowk::softmax::convert<flowk::softmax::Float16>(value);
        break;
      case FLOWK_BFLOAT16:
        static_cast<flowk::softmax::BFloat16*>(data())[i] = flowk::softmax::convert<flowk::softmax::BFloat16>(value);
        break;
      case FLOWK_FLOAT32: static_cast<float*>(data())[i] = static_cast<float>(value); break;
      case FLOWK_FLOAT64: static_cast<double*>(data())[i] = value; break;
      case FLOWK_INT32: static_cast<int32_t*>(data())[i] = static_cast<int32_t>(value); break;
      case FLOWK_INT64: static_cast<int64_t*>(data())[i] = static_cast<int64_t>(value); break;
      default: static_cast<unsigned char*>(data())[i] = static_cast<unsigned char>(value); break;
    }
  }

 private:
  flowk_dtype dtype_;
  int64_t elements_, bytes_, lead_;
  unsigned char* memory_ = nullptr;
};

inline double case_random(uint64_t seed) {  // -1 ... 1
  seed = (seed + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>(seed >> 11) * 0x1p-52 - 1;
}

class CaseRun {
 public:
  explicit CaseRun(const SoftmaxCase& row)
      : row_(row),
        num_rows_(row.batch * row.heads * row.rows),
        out_dtype_(row.out_dtype == FLOWK_BOOL ? row.dtype : row.out_dtype),
        row_step_(row.strided ? 1 : row.columns),
        column_step_(row.strided ? row.heads * row.rows : 1),
        x_(row.dtype, num_rows_ * row.columns, row.lead),
        out_(out_dtype_, num_rows_ * row.columns, row.lead),
        y_(row.dtype, row.backward ? num_rows_ * row.columns : 1, row.lead),
        dense_(FLOWK_BOOL, row.mask ? row.batch * row.rows * row.columns : 1),
        lengths_(row.from_right ? FLOWK_INT64 : FLOWK_INT32, num_rows_),
        lse_(row.dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32, num_rows_),
        bias_(row.dtype, row.bias ? row.heads * row.rows * row.columns : 1) {
    for (int64_t i = 0; i < x_.elements(); ++i) x_.set(i, 4 * case_random(static_cast<uint64_t>(i)));
    if (row.special) make_special();
    for (int64_t i = 0; i < dense_.elements(); ++i)
      dense_.set(i, case_random(static_cast<uint64_t>(7 * i)) > 0.2 ? 3 : 0);
    for (int64_t i = 0; i < bias_.elements(); ++i) bias_.set(i, 2 * case_random(static_cast<uint64_t>(11 * i)));
    for (int64_t i = 0; i < num_rows_; ++i) lse_.set(i, 2 * case_random(static_cast<uint64_t>(13 * i)));
    // One length is larger than the number of columns, one is negative.
    for (int64_t i = 0; i < num_rows_; ++i)
      lengths_.set(i, i == 1   ? static_cast<double>(row.columns + 5)
                      : i == 2 ? -3.0
                               : std::floor((case_random(static_cast<uint64_t>(i)) + 1) / 2 *
                                            static_cast<double>(row.columns + 1)));
    if (row.backward)
      for (int64_t r = 0; r < num_rows_; ++r) {
        double sum = 0;
        for (int64_t j = 0; j < row.columns; ++j) sum += keeps(r, j) ? std::exp(x_.get(at(r, j))) : 0;
        for (int64_t j = 0; j < row.columns; ++j) {
          const double p = keeps(r, j) ? std::exp(x_.get(at(r, j))) / sum : 0;
          y_.set(at(r, j), row.log ? std::log(p) : p);
        }
      }
  }

  flowk::softmax::SoftmaxRequest request() const {
    using namespace flowk::softmax;
    SoftmaxRequest request;
    request.backward = row_.backward;
    request.log_softmax = row_.log;
    request.batch_invariant = row_.batch_invariant;
    request.in_dtype = request.bias_dtype = row_.dtype;
    request.out_dtype = out_dtype_;
    request.rank = 3;
    request.columns = row_.columns;
    request.scale = row_.scale;
    const int64_t extents[3] = {row_.batch, row_.heads, row_.rows};
    const int64_t bytes = dtype_info(row_.dtype).element_bytes, out_bytes = dtype_info(out_dtype_).element_bytes;
    const auto put = [&](SoftmaxOperand operand, const void* pointer, int64_t element_bytes, bool over_batch,
                         bool over_heads, int64_t row_elements) {
      request.pointers[operand] = pointer;
      int64_t stride = row_elements * element_bytes;
      const bool used[3] = {over_batch, over_heads, true};
      for (int d = 2; d >= 0; --d) {
        request.strides[operand][d] = used[d] ? stride : 0;
        if (used[d]) stride *= extents[d];
      }
    };
    const auto put_rows = [&](SoftmaxOperand operand, const void* pointer, int64_t element_bytes) {
      put(operand, pointer, element_bytes, true, true, row_step_);
      request.strides[operand][0] = extents[1] * extents[2] * row_.columns * element_bytes;
      request.column_strides[operand] = column_step_ * element_bytes;
    };
    request.has_strided_columns = column_step_ != 1 && row_.columns != 1;
    for (int d = 0; d < 3; ++d) {
      request.extents[d] = extents[d];
      for (auto& strides : request.strides) strides[d] = 0;
    }
    put_rows(softmax_x, x_.data(), bytes);
    put_rows(softmax_out, out_.data(), out_bytes);
    if (row_.backward) put_rows(softmax_bias_or_y, y_.data(), bytes);
    if (row_.bias) put(softmax_bias_or_y, bias_.data(), bytes, false, true, row_.columns);
    if (row_.lse) put(softmax_lse, lse_.data(), row_.dtype == FLOWK_FLOAT64 ? 8 : 4, true, true, 1);
    if (row_.mask) put(softmax_dense, dense_.data(), 1, true, false, row_.columns);
    if (!row_.lengths.empty()) {
      request.lengths_from_right = row_.from_right;
      request.lengths_bytes = request.lengths_from_right ? 8 : 4;
      put(softmax_lengths, lengths_.data(), request.lengths_bytes, true, true, 1);
    }
    if (row_.causal) {
      const int64_t diagonal = row_.columns - row_.rows;
      request.has_diagonal = true;
      request.diagonal_begin = row_.window > 0 ? diagonal - row_.window + 1 : -(int64_t{1} << 61);
      request.diagonal_end = diagonal + 1;
      request.strides[softmax_row][2] = 1;
    }
    return request;
  }

  // The error is at most 2 units in the last place of the row's largest value, plus one rounding.
  bool is_right() const {
    // A gradient is a difference of up to 4 terms; a score with a bias is rounded and can be as large as 10.
    const double terms = row_.backward ? 4 : row_.bias ? 10 : 1;
    const double unit = terms * (row_.dtype == FLOWK_FLOAT64 ? 0x1p-50 : 0x1p-22);
    const double rounding = out_dtype_ == FLOWK_FLOAT16 ? 0x1p-11 : out_dtype_ == FLOWK_BFLOAT16 ? 0x1p-8 : 0x1p-24;
    const double smallest = out_dtype_ == FLOWK_FLOAT16 ? 0x1p-25 : 0;  // half of a subnormal's step
    std::vector<double> exact(static_cast<size_t>(row_.columns));
    for (int64_t r = 0; r < num_rows_; ++r) {
      double largest = 0, lse = 0;
      compute_row(r, &exact, &lse);
      if (row_.lse && !row_.backward) {
        const double got = lse_.get(r);
        if (std::isnan(lse)   ? !std::isnan(got)
            : std::isinf(lse) ? got != lse
                              : !(std::fabs(got - lse) <= unit * std::max(std::fabs(lse), 2.0))) {
          std::printf("row %lld: a log-sum-exp of %.9g, must be %.9g\n", static_cast<long long>(r), got, lse);
          return false;
        }
      }
      for (const double value : exact)
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      for (int64_t j = 0; j < row_.columns; ++j) {
        const double want = exact[static_cast<size_t>(j)], got = out_.get(at(r, j));
        if (std::isnan(want) ? std::isnan(got)
            : std::isinf(want)
                ? got == want
                : std::fabs(got - want) <= unit * std::max(largest, row_.backward || row_.log ? 1.0 : 0.0) +
                                               rounding * std::fabs(want) + smallest)
          continue;
        std::printf("row %lld column %lld: %.9g, must be %.9g\n", static_cast<long long>(r), static_cast<long long>(j),
                    got, want);
        return false;
      }
    }
    return true;
  }

  void poison() {
    const double value = row_.special ? -3 : std::numeric_limits<double>::quiet_NaN();
    for (int64_t i = 0; i < out_.elements(); ++i) out_.set(i, value);
    for (int64_t i = 0; i < num_rows_ && !row_.backward; ++i) lse_.set(i, -1234);
  }

 private:
  // The element of x, out and y.
  int64_t at(int64_t r, int64_t j) const {
    const int64_t batch_rows = row_.heads * row_.rows, batch = r / batch_rows;
    return batch * batch_rows * row_.columns + r % batch_rows * row_step_ + j * column_step_;
  }

  // Row r % 5: 0 all -infinity except one column; 1 a NaN, else -infinity; 2 +infinity, else -infinity; 3 all
  // -infinity; 4 a NaN among finite scores.
  void make_special() {
    constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    const double value_of[] = {1, nan, infinity, -infinity, nan};
    for (int64_t r = 0; r < num_rows_; ++r) {
      for (int64_t j = 0; j < row_.columns && r % 5 < 4; ++j) x_.set(at(r, j), -infinity);
      x_.set(at(r, r % 5 == 1 ? 0 : row_.columns - 1), value_of[r % 5]);
    }
  }

  bool keeps(int64_t r, int64_t j) const {
    const int64_t row = r % row_.rows, batch = r / row_.rows / row_.heads;
    if (row_.mask && dense_.get((batch * row_.rows + row) * row_.columns + j) != 0) return false;
    if (!row_.lengths.empty()) {
      const double length = lengths_.get(r);
      if (row_.from_right ? static_cast<double>(row_.columns - j) > length : static_cast<double>(j) >= length)
        return false;
    }
    const int64_t diagonal = row + row_.columns - row_.rows;
    return !row_.causal || (j <= diagonal && (row_.window == 0 || j > diagonal - row_.window));
  }

  void compute_row(int64_t r, std::vector<double>* result, double* lse) const {
    std::vector<double>& values = *result;
    const int64_t k = row_.columns;
    const auto in_row = [](int64_t j) { return static_cast<size_t>(j); };
    if (row_.backward) {
      double sum = row_.lse ? -lse_.get(r) : 0;
      for (int64_t j = 0; j < k; ++j) {
        if (!keeps(r, j)) continue;
        sum += (row_.log ? 1 : y_.get(at(r, j))) * x_.get(at(r, j));
      }
      for (int64_t j = 0; j < k; ++j) {
        const double y = y_.get(at(r, j)), dy = x_.get(at(r, j));
        values[in_row(j)] = !keeps(r, j) ? 0
                            : row_.log   ? row_.scale * (dy - std::exp(y) * sum)
                                         : row_.scale * y * (dy - sum);
      }
      return;
    }
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double largest = -infinity, sum = 0;
    bool is_nan = false;
    for (int64_t j = 0; j < k; ++j) {
      double z = row_.scale * x_.get(at(r, j));
      if (row_.bias) z += bias_.get(r % (row_.heads * row_.rows) * k + j);
      values[in_row(j)] = z;
      if (!keeps(r, j)) continue;
      is_nan |= std::isnan(z) || z == infinity;
      largest = std::max(largest, z);
    }
    *lse = is_nan ? std::nan("") : largest;
    if (is_nan || (largest == -infinity && !row_.log)) {
      for (int64_t j = 0; j < k; ++j) values[in_row(j)] = is_nan && keeps(r, j) ? std::nan("") : 0;
      return;
    }
    for (int64_t j = 0; j < k; ++j) sum += keeps(r, j) ? std::exp(values[in_row(j)] - largest) : 0;
    if (largest > -infinity) *lse += std::log(sum);
    for (int64_t j = 0; j < k; ++j) {
      const double z = values[in_row(j)] - largest;
      values[in_row(j)] = !keeps(r, j) ? (row_.log ? -std::numeric_limits<double>::infinity() : 0)
                          : row_.log   ? z - std::log(sum)
                                       : std::exp(z) / sum;
    }
  }

  SoftmaxCase row_;
  int64_t num_rows_;
  flowk_dtype out_dtype_;
  int64_t row_step_, column_step_;  // elements of x, out and y from row to row of a batch, and from column to column
  CaseTensor x_, out_, y_, dense_, lengths_, lse_, bias_;
};
