/* SPDX-License-Identifier: Apache-2.0 */
/* flowk.h is C11, and a C program that is linked to either library gets what the header says. */
#include <flowk/flowk.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

/* What a good call comes to here, found in main(). */
typedef enum machine {
  runs_on_host, /* libflowk_simt */
  needs_device, /* libflowk, and there is a GPU: this program has no device memory, so it only plans */
  has_no_device /* libflowk without a GPU */
} machine;
static machine here;

static bool error_has(const char *part) { return strstr(flowk_last_error(), part) != NULL; }

static bool info_has(const char *word) { return strstr(flowk_build_info(), word) != NULL; }

/* ---- what needs no tensor */

static void nothing_has_failed_yet(void) { CHECK(strcmp(flowk_last_error(), "") == 0); }

static void version_is_the_header_s(void) {
  CHECK(flowk_version() == FLOWK_VERSION);
  CHECK(FLOWK_VERSION == 10000 * FLOWK_VERSION_MAJOR + 100 * FLOWK_VERSION_MINOR + FLOWK_VERSION_PATCH);
}

static void build_info_names_one_backend(void) { CHECK(info_has("backend=simt") != info_has("backend=cuda")); }

static void status_strings_are_the_enumerators(void) {
  static const char *const names[] = {"FLOWK_STATUS_SUCCESS",           "FLOWK_STATUS_INVALID_ARGUMENT",
                                      "FLOWK_STATUS_NULL_POINTER",      "FLOWK_STATUS_MISALIGNED_POINTER",
                                      "FLOWK_STATUS_UNSUPPORTED_DTYPE", "FLOWK_STATUS_OVERLAP",
                                      "FLOWK_STATUS_SIZE_OVERFLOW",     "FLOWK_STATUS_NO_DEVICE",
                                      "FLOWK_STATUS_CUDA_ERROR",        "FLOWK_STATUS_INTERNAL_ERROR"};
  for (int status = 0; status < 10; ++status) CHECK(strcmp(flowk_status_string(status), names[status]) == 0);
  CHECK(strcmp(flowk_status_string(10), "unknown flowk_status") == 0);
  CHECK(strcmp(flowk_status_string(-1), "unknown flowk_status") == 0);
}

static void dtypes_have_their_sizes_and_alignments(void) {
  static const struct {
    flowk_dtype dtype;
    size_t bytes, alignment_bytes;
  } rows[] = {{FLOWK_BOOL, 1, 1},
              {FLOWK_INT8, 1, 1},
              {FLOWK_INT16, 2, 2},
              {FLOWK_INT32, 4, 4},
              {FLOWK_INT64, 8, 8},
              {FLOWK_UINT8, 1, 1},
              {FLOWK_UINT16, 2, 2},
              {FLOWK_UINT32, 4, 4},
              {FLOWK_UINT64, 8, 8},
              {FLOWK_FLOAT16, 2, 2},
              {FLOWK_BFLOAT16, 2, 2},
              {FLOWK_FLOAT32, 4, 4},
              {FLOWK_FLOAT64, 8, 8},
              {FLOWK_FLOAT8_E4M3, 1, 1},
              {FLOWK_FLOAT8_E5M2, 1, 1},
              {FLOWK_COMPLEX64, 8, 4},
              {FLOWK_COMPLEX128, 16, 8},
              {0, 0, 0},
              {18, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    CHECK(flowk_dtype_bytes(rows[i].dtype) == rows[i].bytes);
    CHECK(flowk_dtype_alignment_bytes(rows[i].dtype) == rows[i].alignment_bytes);
  }
}

/* ---- bad calls */

/* A good permute of a (2, 3) float tensor, for each test to spoil. */
typedef struct call {
  const void *src;
  const int64_t *src_strides;
  void *dst;
  const int64_t *dst_strides;
  int32_t rank;
  const int64_t *shape;
  const int32_t *axes;
  flowk_dtype dtype;
} call;

static float src[64];
static float dst[64];
static const int64_t shape_2_3[2] = {2, 3};
static const int32_t axes_1_0[2] = {1, 0};

static call good_call(void) {
  const call good = {src, NULL, dst, NULL, 2, shape_2_3, axes_1_0, FLOWK_FLOAT32};
  return good;
}

static void fill(void) {
  for (int i = 0; i < 64; ++i) {
    src[i] = (float)i;
    dst[i] = -1.0f;
  }
}

static bool dst_is_untouched(void) {
  for (int i = 0; i < 64; ++i)
    if (dst[i] != -1.0f) return false;
  return true;
}

/* Is this what flowk_permute() and flowk_permute_explain() say, with the text's parts, and nothing is written? */
static bool fails(call c, flowk_status expected, const char *part, const char *bound) {
  char text[8] = "before";
  fill();
  const flowk_status status =
      flowk_permute(c.src, c.src_strides, c.dst, c.dst_strides, c.rank, c.shape, c.axes, c.dtype, NULL);
  if (status != expected || !error_has(part) || !error_has(bound)) {
    printf("flowk_permute: %s, \"%s\"\n", flowk_status_string(status), flowk_last_error());
    return false;
  }
  const flowk_status explained = flowk_permute_explain(c.src, c.src_strides, c.dst, c.dst_strides, c.rank, c.shape,
                                                       c.axes, c.dtype, text, sizeof text);
  return explained == expected && error_has(part) && error_has(bound) && strcmp(text, "before") == 0 &&
         dst_is_untouched();
}

static void invalid_arguments_are_named(void) {
  call c = good_call();
  c.rank = -1;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "rank = -1", "0 ... 32"));
  c.rank = FLOWK_MAX_RANK + 1;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "rank = 33", "0 ... 32"));

  const int64_t negative[2] = {2, -3};
  c = good_call();
  c.shape = negative;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "shape[1] = -3", ">= 0"));
  const int64_t empty_and_negative[2] = {0, -3};
  c.shape = empty_and_negative;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "shape[1] = -3", ">= 0"));

  const int32_t twice[2] = {1, 1}, too_large[2] = {0, 2}, too_small[2] = {-1, 0};
  c = good_call();
  c.axes = twice;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "axes[1] = 1", "0 ... 1"));
  c.axes = too_large;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "axes[1] = 2", "0 ... 1"));
  c.axes = too_small;
  CHECK(fails(c, FLOWK_STATUS_INVALID_ARGUMENT, "axes[0] = -1", "0 ... 1"));
}

static void null_pointers_are_named(void) {
  call c = good_call();
  c.src = NULL;
  CHECK(fails(c, FLOWK_STATUS_NULL_POINTER, "src = NULL", "must not"));
  c = good_call();
  c.dst = NULL;
  CHECK(fails(c, FLOWK_STATUS_NULL_POINTER, "dst = NULL", "must not"));
  c = good_call();
  c.shape = NULL;
  CHECK(fails(c, FLOWK_STATUS_NULL_POINTER, "shape = NULL", "rank = 2"));
  c = good_call();
  c.axes = NULL;
  CHECK(fails(c, FLOWK_STATUS_NULL_POINTER, "axes = NULL", "rank = 2"));
  CHECK(flowk_permute_explain(src, NULL, dst, NULL, 2, shape_2_3, axes_1_0, FLOWK_FLOAT32, NULL, 10) ==
        FLOWK_STATUS_NULL_POINTER);
  CHECK(error_has("text = NULL"));
}

static void misaligned_pointers_are_named(void) {
  call c = good_call();
  c.src = (const char *)src + 2;
  CHECK(fails(c, FLOWK_STATUS_MISALIGNED_POINTER, "src = ", "multiple of 4 for float32"));
  c = good_call();
  c.dst = (char *)dst + 1;
  CHECK(fails(c, FLOWK_STATUS_MISALIGNED_POINTER, "dst = ", "multiple of 4 for float32"));
  c.dst = (char *)dst + 2;
  c.dtype = FLOWK_COMPLEX64; /* half its size is enough, a quarter is not */
  CHECK(fails(c, FLOWK_STATUS_MISALIGNED_POINTER, "dst = ", "multiple of 4 for complex64"));
}

static void unsupported_dtypes_are_named(void) {
  call c = good_call();
  c.dtype = 0;
  CHECK(fails(c, FLOWK_STATUS_UNSUPPORTED_DTYPE, "dtype = 0", "1 ... 17"));
  c.dtype = 18;
  CHECK(fails(c, FLOWK_STATUS_UNSUPPORTED_DTYPE, "dtype = 18", "1 ... 17"));
}

static void overlaps_are_named(void) {
  call c = good_call();
  c.src = dst;
  CHECK(fails(c, FLOWK_STATUS_OVERLAP, "src", "dst"));
  c.src = dst + 5; /* the last element alone */
  CHECK(fails(c, FLOWK_STATUS_OVERLAP, "src", "dst"));
  const int64_t repeats[2] = {0, 1}, collides[2] = {1, 1};
  c = good_call();
  c.dst_strides = repeats;
  CHECK(fails(c, FLOWK_STATUS_OVERLAP, "dst: stride 0 of dimension 0", "must step over"));
  c.dst_strides = collides;
  CHECK(fails(c, FLOWK_STATUS_OVERLAP, "dst: stride 1", "must step over"));
}

static void sizes_past_int64_are_named(void) {
  const int64_t many[2] = {INT64_C(1) << 31, INT64_C(1) << 31}, far[2] = {INT64_MAX, 1}, far_back[2] = {INT64_MIN, 1};
  call c = good_call();
  c.shape = many;
  CHECK(fails(c, FLOWK_STATUS_SIZE_OVERFLOW, "src", "2^63 - 1"));
  c = good_call();
  c.src_strides = far;
  CHECK(fails(c, FLOWK_STATUS_SIZE_OVERFLOW, "src: extent 2 with stride 9223372036854775807", "2^63 - 1"));
  c.src_strides = far_back;
  CHECK(fails(c, FLOWK_STATUS_SIZE_OVERFLOW, "src: extent 2 with stride -9223372036854775808", "2^63 - 1"));
  c = good_call();
  c.dst_strides = far;
  CHECK(fails(c, FLOWK_STATUS_SIZE_OVERFLOW, "dst", "2^63 - 1"));
  const int64_t out_of_memory[2] = {INT64_MAX / 16, 1};
  c.dst_strides = out_of_memory;
  CHECK(fails(c, FLOWK_STATUS_SIZE_OVERFLOW, "dst", "2^60"));
}

/* flowk_batch_transpose() and its _explain, on (batch, rows, cols). */
static bool batch_fails(const void *from, void *to, int64_t batch, int64_t rows, int64_t cols, flowk_dtype dtype,
                        flowk_status expected, const char *part) {
  char text[8] = "before";
  fill();
  if (flowk_batch_transpose(from, to, batch, rows, cols, dtype, NULL) != expected || !error_has(part)) return false;
  return flowk_batch_transpose_explain(from, to, batch, rows, cols, dtype, text, sizeof text) == expected &&
         error_has(part) && strcmp(text, "before") == 0 && dst_is_untouched();
}

static void batch_transpose_refuses_what_permute_refuses_by_its_own_names(void) {
  CHECK(batch_fails(src, dst, -1, 2, 3, FLOWK_FLOAT32, FLOWK_STATUS_INVALID_ARGUMENT, "batch = -1, must be >= 0"));
  CHECK(batch_fails(src, dst, 1, -2, 3, FLOWK_FLOAT32, FLOWK_STATUS_INVALID_ARGUMENT, "rows = -2, must be >= 0"));
  CHECK(batch_fails(src, dst, 1, 2, -3, FLOWK_FLOAT32, FLOWK_STATUS_INVALID_ARGUMENT, "cols = -3, must be >= 0"));
  CHECK(batch_fails(NULL, dst, 1, 2, 3, FLOWK_FLOAT32, FLOWK_STATUS_NULL_POINTER, "src = NULL"));
  CHECK(batch_fails(src, NULL, 1, 2, 3, FLOWK_FLOAT32, FLOWK_STATUS_NULL_POINTER, "dst = NULL"));
  CHECK(batch_fails(src, (char *)dst + 2, 1, 2, 3, FLOWK_FLOAT32, FLOWK_STATUS_MISALIGNED_POINTER, "dst = "));
  CHECK(batch_fails(src, dst, 1, 2, 3, 99, FLOWK_STATUS_UNSUPPORTED_DTYPE, "dtype = 99"));
  CHECK(batch_fails(dst + 1, dst, 1, 2, 3, FLOWK_FLOAT32, FLOWK_STATUS_OVERLAP, "src"));
  CHECK(
      batch_fails(src, dst, INT64_C(1) << 30, INT64_C(1) << 30, 2, FLOWK_FLOAT32, FLOWK_STATUS_SIZE_OVERFLOW, "2^63"));
  CHECK(flowk_batch_transpose_explain(src, dst, 1, 2, 3, FLOWK_FLOAT32, NULL, 0) == FLOWK_STATUS_NULL_POINTER);
}

/* ---- good calls */

static void zero_sizes_succeed_without_pointers(void) {
  const int64_t empty[2] = {0, 3};
  char text[64];
  CHECK(flowk_permute(NULL, NULL, NULL, NULL, 2, empty, axes_1_0, FLOWK_FLOAT32, NULL) == FLOWK_STATUS_SUCCESS);
  CHECK(flowk_permute_explain(NULL, NULL, NULL, NULL, 2, empty, axes_1_0, FLOWK_FLOAT32, text, sizeof text) ==
        FLOWK_STATUS_SUCCESS);
  CHECK(strlen(text) > 0 && strlen(text) < sizeof text - 1);
  CHECK(flowk_batch_transpose(NULL, NULL, 0, 3, 4, FLOWK_INT8, NULL) == FLOWK_STATUS_SUCCESS);
  CHECK(flowk_batch_transpose(NULL, NULL, 2, 0, 4, FLOWK_INT8, NULL) == FLOWK_STATUS_SUCCESS);
  CHECK(flowk_batch_transpose_explain(NULL, NULL, 2, 3, 0, FLOWK_INT8, text, 4) == FLOWK_STATUS_SUCCESS);
  CHECK(strlen(text) == 3);
}

static void permute_moves_every_element(void) {
  fill();
  const flowk_status status = flowk_permute(src, NULL, dst, NULL, 2, shape_2_3, axes_1_0, FLOWK_FLOAT32, NULL);
  if (here == has_no_device) {
    CHECK(status == FLOWK_STATUS_NO_DEVICE && strlen(flowk_last_error()) > 0 && dst_is_untouched());
    return;
  }
  CHECK(status == FLOWK_STATUS_SUCCESS);
  for (int row = 0; row < 2; ++row)
    for (int col = 0; col < 3; ++col) CHECK(dst[col * 2 + row] == src[row * 3 + col]);
  for (int i = 6; i < 64; ++i) CHECK(dst[i] == -1.0f);

  /* Rank 0 is one element; a negative stride walks back from the pointer; a stride of 0 repeats. */
  fill();
  CHECK(flowk_permute(src + 7, NULL, dst, NULL, 0, NULL, NULL, FLOWK_FLOAT32, NULL) == FLOWK_STATUS_SUCCESS);
  CHECK(dst[0] == 7.0f && dst[1] == -1.0f);
  const int64_t src_strides[2] = {0, -1}, dst_strides[2] = {10, 1};
  CHECK(flowk_permute(src + 2, src_strides, dst, dst_strides, 2, shape_2_3, axes_1_0, FLOWK_FLOAT32, NULL) ==
        FLOWK_STATUS_SUCCESS);
  for (int row = 0; row < 2; ++row)
    for (int col = 0; col < 3; ++col) CHECK(dst[col * 10 + row] == (float)(2 - col));
}

static void batch_transpose_moves_every_element(void) {
  fill();
  const flowk_status status = flowk_batch_transpose(src, dst, 3, 4, 5, FLOWK_FLOAT32, NULL);
  if (here == has_no_device) {
    CHECK(status == FLOWK_STATUS_NO_DEVICE && dst_is_untouched());
    return;
  }
  CHECK(status == FLOWK_STATUS_SUCCESS);
  for (int b = 0; b < 3; ++b)
    for (int row = 0; row < 4; ++row)
      for (int col = 0; col < 5; ++col) CHECK(dst[b * 20 + col * 4 + row] == src[b * 20 + row * 5 + col]);
  for (int i = 60; i < 64; ++i) CHECK(dst[i] == -1.0f);
}

static void explain_writes_the_plan_and_cuts_it_to_the_buffer(void) {
  char whole[2048], batch[2048], cut[2048];
  const call c = good_call();
  fill();
  const flowk_status status =
      flowk_permute_explain(c.src, NULL, c.dst, NULL, c.rank, c.shape, c.axes, c.dtype, whole, sizeof whole);
  if (here == has_no_device) {
    CHECK(status == FLOWK_STATUS_NO_DEVICE);
    return;
  }
  CHECK(status == FLOWK_STATUS_SUCCESS);
  const size_t length = strlen(whole);
  CHECK(length > 40 && length < sizeof whole - 1 && strstr(whole, " threads, ") != NULL);
  for (size_t text_bytes = 0; text_bytes <= length + 1; ++text_bytes) {
    memset(cut, '#', sizeof cut);
    CHECK(flowk_permute_explain(c.src, NULL, c.dst, NULL, c.rank, c.shape, c.axes, c.dtype, cut, text_bytes) ==
          FLOWK_STATUS_SUCCESS);
    CHECK(text_bytes == 0 || (strlen(cut) == text_bytes - 1 && strncmp(cut, whole, text_bytes - 1) == 0));
    CHECK(cut[text_bytes] == '#');
  }
  /* A batch transpose is the permute (0, 2, 1). */
  CHECK(flowk_batch_transpose_explain(src, dst, 1, 2, 3, FLOWK_FLOAT32, batch, sizeof batch) == FLOWK_STATUS_SUCCESS);
  CHECK(strcmp(batch, whole) == 0);
  CHECK(dst_is_untouched());
}

static machine find_machine(void) {
  char text[64];
  const flowk_status status =
      flowk_permute_explain(src, NULL, dst, NULL, 2, shape_2_3, axes_1_0, FLOWK_FLOAT32, text, sizeof text);
  if (info_has("backend=simt")) return runs_on_host;
  return status == FLOWK_STATUS_NO_DEVICE ? has_no_device : needs_device;
}

int main(void) {
  nothing_has_failed_yet();
  here = find_machine();
  version_is_the_header_s();
  build_info_names_one_backend();
  status_strings_are_the_enumerators();
  dtypes_have_their_sizes_and_alignments();
  invalid_arguments_are_named();
  null_pointers_are_named();
  misaligned_pointers_are_named();
  unsupported_dtypes_are_named();
  overlaps_are_named();
  sizes_past_int64_are_named();
  batch_transpose_refuses_what_permute_refuses_by_its_own_names();
  zero_sizes_succeed_without_pointers();
  if (here != needs_device) permute_moves_every_element();
  if (here != needs_device) batch_transpose_moves_every_element();
  explain_writes_the_plan_and_cuts_it_to_the_buffer();
  printf("%s: %d checks failed\n", flowk_build_info(), num_failed_checks);
  return num_failed_checks == 0 ? 0 : 1;
}
