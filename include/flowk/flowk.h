/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flowk: permute, batch transpose and PReLU on raw device pointers, at the speed of a plain copy.
 *
 * This header is the manual. Read the conventions first: they hold for every function, and a function's own comment
 * states only what it adds, in this order: what it computes, shapes and units, pointers, sizes of zero, statuses,
 * numerics.
 *
 *   1. Conventions            4. Batch transpose
 *   2. Status and version     5. Permute
 *   3. Element types          6. PReLU
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
 * PRELU
 * ---------------------------------------------------------------------------------------------------------------- */

/*
 * y[o, c, i] = x[o, c, i] > 0 ? x[o, c, i] : alpha[c] * x[o, c, i]
 *
 * Shapes: x and y are (outer, channels, inner), contiguous in C order, alpha is (channels). So NCHW is (N, C, H * W),
 *   NHWC is (N * H * W, C, 1), (N, C) is (N, C, 1), and one alpha for all elements is (1, 1, their number).
 * Pointers: y may be x, and else must not overlap it; y must not overlap alpha.
 * Statuses: INVALID_ARGUMENT (an extent < 0), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP,
 *   SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: `dtype` is FLOAT16, BFLOAT16, FLOAT32 or FLOAT64; `alpha_dtype` is the same, or FLOAT32 beside a 16-bit
 *   dtype. Zeros and NaN take the alpha side: alpha * 0.0 has the sign of the product, NaN stays NaN. Products are
 *   those of float32, of float64 for FLOAT64, rounded to `dtype` to nearest even.
 */
FLOWK_API flowk_status flowk_prelu(const void *x, const void *alpha, void *y, int64_t outer, int64_t channels,
                                   int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, flowk_stream stream);

/* The plan of the same call to flowk_prelu() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_prelu_explain(const void *x, const void *alpha, void *y, int64_t outer, int64_t channels,
                                           int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, char *text,
                                           size_t text_bytes);

/*
 * Bytes of the workspace of flowk_prelu_backward() for these sizes and types on the current device, wherever its
 * pointers lie; 0 where it needs none. For tensors of 64 MB and more at most 1% of the bytes of dy, x and dx, unless
 * outer * inner is less than 1000; a few MB otherwise.
 *
 * Statuses: those of flowk_prelu_backward() for sizes and types, and NULL_POINTER for `workspace_bytes`.
 */
FLOWK_API flowk_status flowk_prelu_backward_workspace_bytes(int64_t outer, int64_t channels, int64_t inner,
                                                            flowk_dtype dtype, flowk_dtype alpha_dtype,
                                                            size_t *workspace_bytes);

/*
 * dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
 * dalpha[c] = sum over o and i of (x[o, c, i] > 0 ? 0 : dy[o, c, i] * x[o, c, i])
 *
 * Shapes: dy, x and dx are (outer, channels, inner), alpha and dalpha (channels), all contiguous, as in flowk_prelu().
 * Pointers: dx or dalpha may be NULL and is then not computed. dx may be dy or x; apart from that no output may overlap
 *   an input, the workspace or the other output. `workspace` holds at least
 *   flowk_prelu_backward_workspace_bytes() bytes and is a multiple of 16; it needs no initial value, has none
 *   afterwards, and serves one call at a time. It may be NULL where those bytes are 0, or dalpha is NULL.
 * Sizes of 0: with outer or inner 0 dalpha is set to zeros.
 * Statuses: those of flowk_prelu(); INVALID_ARGUMENT for `workspace_bytes` that are too few, NULL_POINTER where dx and
 *   dalpha are both NULL.
 * Numerics: types as in flowk_prelu(), dalpha's type is alpha's. Terms of dalpha are computed and added up in float32,
 *   in float64 for FLOAT64, level by level in an order that sizes, types, alignment and the device fix: equal calls
 *   give equal bits. An element with x > 0 adds nothing, whatever its dy.
 */
FLOWK_API flowk_status flowk_prelu_backward(const void *dy, const void *x, const void *alpha, void *dx, void *dalpha,
                                            int64_t outer, int64_t channels, int64_t inner, flowk_dtype dtype,
                                            flowk_dtype alpha_dtype, void *workspace, size_t workspace_bytes,
                                            flowk_stream stream);

/* The plan of the same call to flowk_prelu_backward() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_prelu_backward_explain(const void *dy, const void *x, const void *alpha, void *dx,
                                                    void *dalpha, int64_t outer, int64_t channels, int64_t inner,
                                                    flowk_dtype dtype, flowk_dtype alpha_dtype, char *text,
                                                    size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* FLOWK_FLOWK_H */
