// SPDX-License-Identifier: Apache-2.0
#include "permute/plan/shape_log.h"

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <unordered_set>

#include "core/text_file.h"

namespace flowk::permute {
namespace {

constexpr const char* variable = "FLOWK_LOG_SHAPES";
constexpr const char* cannot_be_written = "cannot be written";

struct ShapeLog {
  File file{nullptr, std::fclose};
  std::unordered_set<std::string> lines;  // of the file
  std::unordered_set<uint64_t> problems;  // hashes of their keys
};

std::mutex log_guard;
ShapeLog shape_log;

// Null if the variable is not set.
const char* log_path() {
  static const char* const path = std::getenv(variable);
  return path != nullptr && *path != '\0' ? path : nullptr;
}

std::string joined(const int64_t* numbers, int count, char separator) {
  std::string text;
  for (int d = 0; d < count; ++d) text += (d > 0 ? std::string(1, separator) : "") + std::to_string(numbers[d]);
  return text;
}

// The shortest decimal number that is read as `number`, with a point in every locale. std::to_chars() would link its
// tables, of 136 KB, into the library.
std::string shortest_decimal(double number) {
  char digits[32];
  for (int precision = 15; precision <= 17; ++precision) {
    std::snprintf(digits, sizeof(digits), "%.*g", precision, number);
    if (std::strtod(digits, nullptr) == number) break;
  }
  std::string text = digits;
  const std::string point = std::localeconv()->decimal_point;
  if (const size_t place = text.find(point); place != std::string::npos)
    text.erase(place, point.size()).insert(place, 1, '.');
  return text;
}

// A moved element has no type: one of its size stands for all.
const char* type_of_size(int32_t element_bytes) {
  constexpr const char* names[] = {"uint8", "float16", "float32", "float64", "complex128"};  // by log2
  return names[__builtin_ctz(static_cast<unsigned>(element_bytes))];
}

// " src=STRIDES+ELEMENTS": the strides of an array that is not contiguous, and how many elements its first one is past
// a multiple of 128 bytes. The text is empty for a contiguous array that begins at such a multiple.
std::string place_of(const char* name, const void* pointer, int32_t element_bytes, int rank, const int64_t* extents,
                     const int64_t* strides) {
  int64_t contiguous[max_rank];
  contiguous_strides(rank, extents, contiguous);
  bool is_contiguous = true;
  for (int d = 0; d < rank; ++d) is_contiguous &= extents[d] == 1 || strides[d] == contiguous[d];
  const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) % line_bytes) / element_bytes;
  if (is_contiguous && offset == 0) return {};
  return std::string(" ") + name + '=' + (is_contiguous ? "" : joined(strides, rank, ',')) +
         (offset == 0 ? "" : '+' + std::to_string(offset));
}

// "float16 32x512x16x64 0,2,1,3", or "uint8>float16 ... SCALE" with a scale, and what place_of() adds. The dimensions
// of src are written in the order of their strides.
std::string line_of(const PermuteRequest& request) {
  const IterationSpace& shape = request.shape;
  const int rank = shape.rank;
  int dims[max_rank];  // of dst, in the order of src
  std::iota(dims, dims + rank, 0);
  std::stable_sort(dims, dims + rank, [&](int a, int b) {
    const int64_t *strides = shape.strides[src_operand], *extents = shape.extents;
    const int64_t a_stride = std::abs(strides[a]), b_stride = std::abs(strides[b]);
    return a_stride != b_stride ? a_stride > b_stride : extents[a] > extents[b];
  });
  int64_t axes[max_rank], extents[max_rank], src_strides[max_rank];
  for (int d = 0; d < rank; ++d) {
    axes[dims[d]] = d;
    extents[d] = shape.extents[dims[d]];
    src_strides[d] = shape.strides[src_operand][dims[d]];
  }
  const auto& conversion = request.conversion;
  const int32_t dst_bytes = conversion ? dtype_info(conversion->dst_dtype).element_bytes : request.element_bytes;
  std::string line =
      conversion ? std::string(dtype_info(conversion->src_dtype).name) + '>' + dtype_info(conversion->dst_dtype).name
                 : type_of_size(request.element_bytes);
  line += ' ' + joined(extents, rank, 'x') + ' ' + joined(axes, rank, ',');
  if (conversion && conversion->double_scale != 1) line += ' ' + shortest_decimal(conversion->double_scale);
  line += place_of("src", request.src, request.element_bytes, rank, extents, src_strides);
  return line + place_of("out", request.dst, dst_bytes, rank, shape.extents, shape.strides[dst_operand]);
}

}  // namespace

Status open_shape_log() {
  const char* path = log_path();
  if (path == nullptr) return {};
  const std::lock_guard lock(log_guard);
  if (shape_log.file != nullptr) return {};
  shape_log.file = open_file(path, "a");
  if (shape_log.file == nullptr) return file_failure(variable, path, cannot_be_written);
  if (const File old = open_file(path, "r"); old != nullptr)
    for (std::string line; next_line(old.get(), &line);) shape_log.lines.insert(line);
  return {};
}

Status log_shape(const PermuteRequest& request, const PlanKey& key) {
  if (log_path() == nullptr) return {};
  // Complex numbers may lie at half of their size, where no array begins.
  if (reinterpret_cast<uintptr_t>(request.src) % static_cast<uint32_t>(request.element_bytes) != 0) return {};
  const std::string line = line_of(request);
  const std::lock_guard lock(log_guard);
  if (!shape_log.problems.insert(key.hash).second || !shape_log.lines.insert(line).second) return {};
  if (write_text(shape_log.file.get(), line + '\n')) return {};
  return file_failure(variable, log_path(), cannot_be_written);
}

}  // namespace flowk::permute
