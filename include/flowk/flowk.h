/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flowk: permute and batch transpose on raw device pointers, at the speed of a plain copy.
 *
 * This header is the manual. Read the conventions first: they hold for every function, and a function's own comment
 * states only what it adds, in this order: what it computes, shapes and units, pointers, sizes of zero, statuses,
 * numerics.
 *
 *   1. Conventions            4. Batch transpose
 *   2. Status and version     5. Permute
 *   3. Element types          6. Masked softmax
 *
 * CONVENTIONS
 *
 * Two libraries export these functions. `libflowk` runs on an NVIDIA GPU and takes device pointers; `libflowk_simt`
 * runs the same kernels on the CPU and takes host pointers.
 *
 * Units. Sizes, extents and strides are int64_t. Strides count elements, not bytes, and may be negative: a pointer
 * names the element with all indices 0, which is the lowest address only if no stride is negative. NULL strides mean
 * C order (last dimension contiguous). Only names that end in `_bytes` count bytes.
 *
 * Pointers. `src`, `dst` and every other tensor pointer is a device pointer (libflowk) or a host pointer
 * (libflowk_simt), aligned as flowk_dtype_alignment_bytes() says; more alignment is used where it is found, never
 * needed. Shapes, strides and axes are host pointers, read before the function returns. A pointer to memory that the
 * GPU cannot read is not detected: the kernel faults.
 *
 * Stream. A launch function enqueues its work on `stream` and returns: it never synchronises, never allocates or frees
 * device memory, never touches the default stream unless `stream` is NULL, and so may be captured in a CUDA graph.
 * The current device must be the stream's. libflowk_simt has done the work when it returns, and ignores `stream`.
 *
 * Zero sizes. A tensor with an extent of 0 is success and nothing is done; its pointers may be NULL.
 *
 * Errors. Every function that can fail returns flowk_status, and writes nothing to its output when it fails on a bad
 * argument. flowk_last_error() then names the parameter, its value and the bound.
 *
 * Threads. Every function may be called from any thread, on any stream, at any time.
 */
#ifndef FLOWK_FLOWK_H
#define FLOWK_FLOWK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define FLOWK_API
#else
#define FLOWK_API __attribute__((visibility("default")))
#endif

#define FLOWK_VERSION_MAJOR 0
#define FLOWK_VERSION_MINOR 1
#define FLOWK_VERSION_PATCH 0
/* 10000 * major + 100 * minor + patch: compare with flowk_version() to find a header that is not the library's. */
#define FLOWK_VERSION (10000 * FLOWK_VERSION_MAJOR + 100 * FLOWK_VERSION_MINOR + FLOWK_VERSION_PATCH)

/* The largest rank that any function takes. */
#define FLOWK_MAX_RANK 32

/* A cudaStream_t or CUstream, as it is; NULL is the default stream. */
typedef struct CUstream_st *flowk_stream;

/* ------------------------------------------------------------------------------------------------------------------
 * STATUS AND VERSION
 * ---------------------------------------------------------------------------------------------------------------- */

/* What a call came to. Values are never renumbered. */
typedef enum flowk_status {
  /* The work is enqueued (libflowk) or done (libflowk_simt). */
  FLOWK_STATUS_SUCCESS = 0,
  /* A value is outside its bounds: a rank, an extent, an axis, a stride. */
  FLOWK_STATUS_INVALID_ARGUMENT = 1,
  /* A pointer that is needed is NULL. */
  FLOWK_STATUS_NULL_POINTER = 2,
  /* A tensor pointer is not aligned for its element type. */
  FLOWK_STATUS_MISALIGNED_POINTER = 3,
  /* The element type is not one that the function takes. */
  FLOWK_STATUS_UNSUPPORTED_DTYPE = 4,
  /* Output elements share memory with each other, or with an input that they must not touch. */
  FLOWK_STATUS_OVERLAP = 5,
  /* A size in bytes, or an offset that the strides reach, does not fit in int64_t. */
  FLOWK_STATUS_SIZE_OVERFLOW = 6,
  /* libflowk found no CUDA driver, or no GPU that it was built for. */
  FLOWK_STATUS_NO_DEVICE = 7,
  /* The CUDA runtime refused the launch, or reports an error of earlier work. */
  FLOWK_STATUS_CUDA_ERROR = 8,
  /* A fault in flowk itself: please report it with the text of flowk_last_error(). */
  FLOWK_STATUS_INTERNAL_ERROR = 9
} flowk_status;

/* The name of a status, "FLOWK_STATUS_OVERLAP" for example; "unknown flowk_status" for any other value. */
FLOWK_API const char *flowk_status_string(flowk_status status);

/* What went wrong in this thread's last failed call, with the parameter, its value and the bound; "" when no call has
 * failed. Valid until this thread's next flowk call. */
FLOWK_API const char *flowk_last_error(void);

/* FLOWK_VERSION of the library that was loaded. */
FLOWK_API int32_t flowk_version(void);

/* How the library was built, as `key=value` words: backend (cuda or simt), archs, toolkit, compiler. */
FLOWK_API const char *flowk_build_info(void);

/* ------------------------------------------------------------------------------------------------------------------
 * ELEMENT TYPES
 * ---------------------------------------------------------------------------------------------------------------- */

typedef enum flowk_dtype {
  FLOWK_BOOL = 1, /* one byte, 0 or 1 */
  FLOWK_INT8 = 2,
  FLOWK_INT16 = 3,
  FLOWK_INT32 = 4,
  FLOWK_INT64 = 5,
  FLOWK_UINT8 = 6,
  FLOWK_UINT16 = 7,
  FLOWK_UINT32 = 8,
  FLOWK_UINT64 = 9,
  FLOWK_FLOAT16 = 10,  /* IEEE binary16 */
  FLOWK_BFLOAT16 = 11, /* the upper half of binary32 */
  FLOWK_FLOAT32 = 12,
  FLOWK_FLOAT64 = 13,
  FLOWK_FLOAT8_E4M3 = 14, /* OCP E4M3: finite, NaN but no infinity */
  FLOWK_FLOAT8_E5M2 = 15, /* OCP E5M2 */
  FLOWK_COMPLEX64 = 16,   /* two float32 */
  FLOWK_COMPLEX128 = 17   /* two float64 */
} flowk_dtype;

/* Bytes of one element: 1, 2, 4, 8 or 16; 0 if `dtype` is none of the above. */
FLOWK_API size_t flowk_dtype_bytes(flowk_dtype dtype);

/* What a pointer to `dtype` must be a multiple of: its size, half its size for the complex types; 0 as above. */
FLOWK_API size_t flowk_dtype_alignment_bytes(flowk_dtype dtype);

/* ------------------------------------------------------------------------------------------------------------------
 * BATCH TRANSPOSE
 * ---------------------------------------------------------------------------------------------------------------- */

/*
 * dst[b, c, r] = src[b, r, c]
 *
 * Shapes: src is (batch, rows, cols), dst is (batch, cols, rows), both contiguous in C order.
 * Pointers: dst must not overlap src.
 * Statuses: INVALID_ARGUMENT (an extent < 0), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP,
 *   SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: elements are moved bit for bit.
 */
FLOWK_API flowk_status flowk_batch_transpose(const void *src, void *dst, int64_t batch, int64_t rows, int64_t cols,
                                             flowk_dtype dtype, flowk_stream stream);

/*
 * Writes the plan of the same call to flowk_batch_transpose() as text: which kernel, with what tile, and why. Nothing
 * is launched, `src` and `dst` are not read, only their alignment is.
 *
 * `text` receives at most `text_bytes` bytes, always ended by a NUL where text_bytes > 0; a longer text is cut.
 * Statuses: those of the call itself, and NULL_POINTER for `text`.
 */
FLOWK_API flowk_status flowk_batch_transpose_explain(const void *src, void *dst, int64_t batch, int64_t rows,
                                                     int64_t cols, flowk_dtype dtype, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * PERMUTE
 * ---------------------------------------------------------------------------------------------------------------- */

/*
 * dst[i[axes[0]], ..., i[axes[rank-1]]] = src[i[0], ..., i[rank-1]]   for every index i of src
 *
 * Shapes: `shape` holds the `rank` extents of src; dst has extents shape[axes[0]], shape[axes[1]], ... `axes` holds
 *   every integer of 0 ... rank-1 once; 0 <= rank <= FLOWK_MAX_RANK; rank 0 is one element.
 *   `src_strides` has one stride for each dimension of src, `dst_strides` one for each dimension of dst.
 * Pointers: a stride of 0 in src repeats an element. In dst no two elements may share memory, and the strides of its
 *   extents > 1, taken by size, must each step over all that the smaller ones reach. dst must not overlap src;
 *   interleaved slices of one buffer do not overlap as long as no element is in both.
 * Statuses: INVALID_ARGUMENT (rank, an extent < 0, axes), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE,
 *   OVERLAP, SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: elements are moved bit for bit: NaN payloads, denormals and -0.0 too.
 */
FLOWK_API flowk_status flowk_permute(const void *src, const int64_t *src_strides, void *dst, const int64_t *dst_strides,
                                     int32_t rank, const int64_t *shape, const int32_t *axes, flowk_dtype dtype,
                                     flowk_stream stream);

/* The plan of the same call to flowk_permute() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_permute_explain(const void *src, const int64_t *src_strides, void *dst,
                                             const int64_t *dst_strides, int32_t rank, const int64_t *shape,
                                             const int32_t *axes, flowk_dtype dtype, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * MASKED SOFTMAX
 * ---------------------------------------------------------------------------------------------------------------- */

/*
 * Which columns of which rows a softmax keeps, and what it adds to them: zero the struct, set `struct_bytes` and what
 * is wanted. A part left zero masks nothing; parts work together, and a column is kept if each of them keeps it.
 *
 * The tensor has `rank` dimensions; its last one, of k columns, is the row. Row i is the index of the dimension before
 * the last, of q rows (of a tensor of rank 1: i = 0, q = 1). A part broadcasts over a leading dimension by a stride of
 * 0. All pointers are tensor pointers as of the conventions, but strides, which are host pointers.
 */
typedef struct flowk_softmax_mask {
  size_t struct_bytes; /* sizeof(flowk_softmax_mask): what was compiled, so that later versions may add members */

  /* One byte an element of the tensor, bool or uint8: a column with a nonzero byte is masked. NULL: none. `rank`
   * strides, the last of them 1 (whatever it is where k = 1); NULL: C order of the whole shape. */
  const void *dense;
  const int64_t *dense_strides;

  /* How many columns of a row are kept, int32 or int64: its first ones, or its last where lengths_from_right is 1. A
   * length below 0 counts as 0 and one above k as k: device memory cannot be checked. NULL: none. `rank` - 1 strides,
   * of the leading dimensions; NULL: C order of those. */
  const void *lengths;
  const int64_t *lengths_strides;
  flowk_dtype lengths_dtype;
  int32_t lengths_from_right; /* 0 or 1 */

  /* With d = i + (k - q) + causal_offset, the last row's diagonal ending in the last column where the offset is 0:
   * causal = 1 keeps the columns j <= d. A window > 0 keeps those of j > d - window and, where causal is 0, of
   * j < d + window as well. Numbers past +-2^62 are refused. */
  int32_t causal; /* 0 or 1 */
  int64_t causal_offset;
  int64_t window; /* 0: none */

  /* Added to scale * x: a tensor of x's element type, or float32 where x is float16 or bfloat16. NULL: none. `rank`
   * strides as of `dense`. */
  const void *bias;
  const int64_t *bias_strides;
  flowk_dtype bias_dtype;
} flowk_softmax_mask;

/*
 * z[..., j] = scale * x[..., j] + bias[..., j]
 * y[..., j] = exp(z[..., j]) / sum over kept i of exp(z[..., i])   for a kept column j, 0 for a masked one
 *
 * and with log_softmax = 1
 *
 * y[..., j] = z[..., j] - log(sum over kept i of exp(z[..., i]))   for a kept column j, -infinity for a masked one
 *
 * Shapes: x and y have the `rank` extents of `shape`, 1 <= rank <= FLOWK_MAX_RANK; the softmax runs over the last one.
 *   `x_strides` and `y_strides` have `rank` strides, the last of them 1 (whatever it is where that extent is 1).
 *   The last extent is at most 2^30. `scale` is finite, of any sign (with 0, an infinite x still counts as infinite);
 *   `log_softmax` is 0 or 1; `mask` NULL keeps every column.
 * Element types: float16, bfloat16, float32 or float64. y has x's, or one of the two is float32 and the other float16
 *   or bfloat16.
 * Pointers: y may be x itself (same pointer, strides and type), and must not overlap x otherwise, nor a tensor of
 *   `mask`. No two elements of y may share memory, as of flowk_permute(). `mask` and its strides are host memory, read
 *   before the function returns.
 * Cost: columns that lengths, causal and window mask are not read, neither x nor dense nor bias there (but for what
 *   lies in a kept column's 16 bytes); they are only written.
 * Statuses: INVALID_ARGUMENT (rank, an extent < 0, a last stride, scale, a flag, a member of mask), NULL_POINTER,
 *   MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP, SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: computed in float32 (float64 for float64) and rounded once to y's type; a row's largest z is subtracted
 *   before the exponential, so that no finite input overflows. A masked column is 0 (-infinity) whatever x, bias and
 *   the rest of the row hold. A row without a kept column is all 0 (-infinity), and so is a row whose kept z are all
 *   -infinity; a kept z of -infinity beside others gives 0 (-infinity). A NaN or a +infinity among the kept z of a row
 *   gives NaN in all its kept columns. The same call gives the same bits on the same device.
 */
FLOWK_API flowk_status flowk_masked_softmax(const void *x, const int64_t *x_strides, flowk_dtype x_dtype, void *y,
                                            const int64_t *y_strides, flowk_dtype y_dtype, int32_t rank,
                                            const int64_t *shape, double scale, const flowk_softmax_mask *mask,
                                            int32_t log_softmax, flowk_stream stream);

/* The plan of the same call to flowk_masked_softmax() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_masked_softmax_explain(const void *x, const int64_t *x_strides, flowk_dtype x_dtype,
                                                    void *y, const int64_t *y_strides, flowk_dtype y_dtype,
                                                    int32_t rank, const int64_t *shape, double scale,
                                                    const flowk_softmax_mask *mask, int32_t log_softmax, char *text,
                                                    size_t text_bytes);

/*
 * The gradient of flowk_masked_softmax() with respect to x, from its output y and the gradient dy of y:
 *
 * dx[..., j] = scale * y[..., j] * (dy[..., j] - sum over i of y[..., i] * dy[..., i])
 *
 * and with log_softmax = 1, where a column of y = -infinity is a masked one: dx = 0, left out of the sum
 *
 * dx[..., j] = scale * (dy[..., j] - exp(y[..., j]) * sum over i of dy[..., i])
 *
 * The gradient of a bias that has the tensor's whole shape is dx / scale.
 *
 * Shapes: dy, y and dx have the `rank` extents of `shape`, strides as of flowk_masked_softmax().
 *   `mask` may be what the forward call took. Only its lengths, causal and window are used, to leave masked columns
 *   unread and write 0 there; dense and bias are not looked at, because y has their effect in it. NULL is right too.
 * Element types: as of flowk_masked_softmax(), dy and y of one type (there y's), dx of another (there x's).
 * Pointers: dx may be dy itself or y itself (same pointer, strides and type), and must not overlap them otherwise, nor
 *   the lengths. No two elements of dx may share memory.
 * Statuses: as of flowk_masked_softmax().
 * Numerics: computed in float32 (float64 for float64) and rounded once to dx's type. A row without a kept column, all
 *   0 (-infinity) in y, has a gradient of 0. A NaN or an infinity in dy or y goes where the formula takes it.
 */
FLOWK_API flowk_status flowk_masked_softmax_backward(const void *dy, const int64_t *dy_strides, const void *y,
                                                     const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
                                                     const int64_t *dx_strides, flowk_dtype dx_dtype, int32_t rank,
                                                     const int64_t *shape, double scale, const flowk_softmax_mask *mask,
                                                     int32_t log_softmax, flowk_stream stream);

/* The plan of the same call to flowk_masked_softmax_backward() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_masked_softmax_backward_explain(const void *dy, const int64_t *dy_strides, const void *y,
                                                             const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
                                                             const int64_t *dx_strides, flowk_dtype dx_dtype,
                                                             int32_t rank, const int64_t *shape, double scale,
                                                             const flowk_softmax_mask *mask, int32_t log_softmax,
                                                             char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* FLOWK_FLOWK_H */
