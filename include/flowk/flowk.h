/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * flowk: permute, batch transpose, elementwise operations, PReLU, masked softmax and cross-entropy on raw device
 * pointers, at the speed of a plain copy.
 *
 * This header is the manual. The conventions come first and hold for every function. A function's own comment states
 * only what it adds to them, in this order: what it computes, shapes and units, pointers, sizes of zero, statuses,
 * numerics.
 *
 *   1. Conventions            4. Batch transpose
 *   2. Status and version     5. Permute
 *   3. Element types          6. Permute with conversion
 *                             7. Many permutes
 *                             8. Measured plans
 *                             9. Elementwise, functors
 *                            10. PReLU
 *                            11. Masked softmax
 *                            12. Cross-entropy
 *
 * CONVENTIONS
 *
 * Two libraries export these functions. `libflowk` runs on an NVIDIA GPU and takes device pointers; `libflowk_simt`
 * runs the same kernels on the CPU and takes host pointers. There the environment variable FLOWK_SIMT_THREAD_ORDER,
 * `forward` (the default) or `reverse`, is the order in which a block's threads start: a test that runs in both finds
 * a missing barrier. Any other value is INVALID_ARGUMENT.
 *
 * Units. Sizes, extents and strides are int64_t. Strides count elements, not bytes, and may be negative. A pointer is
 * the address of the element with all indices 0; this is the lowest address only if no stride is negative. NULL strides
 * mean C order (the last dimension is contiguous). Only names that end in `_bytes` count bytes.
 *
 * Pointers. `src`, `dst` and every other tensor pointer is a device pointer (libflowk) or a host pointer
 * (libflowk_simt), aligned to flowk_dtype_alignment_bytes(). A larger alignment is never required; the library uses it
 * where it finds it. Shapes, strides and axes are host pointers; they are read before the function returns. A pointer
 * to memory that the GPU cannot read is not detected: the kernel faults.
 *
 * Stream. A launch function enqueues its work on `stream` and returns. It does not synchronise, does not allocate or
 * free device memory, and does not use the default stream unless `stream` is NULL, so it can be captured in a CUDA
 * graph; flowk_permute_tune() alone waits for its stream. The current device must be the stream's device. libflowk_simt
 * ignores `stream` and has done the work when it returns.
 *
 * Kernels behind a call. On GPUs of compute capability 9.0 and newer most kernels use programmatic dependent launch.
 * They touch tensors only after all earlier work on the stream has ended, and end after it. But they let the stream's
 * next kernel start at once, even while kernels before the flowk call still run. This concerns a kernel of your own
 * only if it is launched with cudaLaunchAttributeProgrammaticStreamSerialization. It must then call
 * cudaGridDependencySynchronize() (griddepcontrol.wait) before it touches memory that any earlier work on the stream
 * uses, not the flowk call alone. When that returns, all earlier work has ended and its results can be read.
 *
 * Zero sizes. If an extent is 0, the call succeeds and does nothing. The tensor's pointers may then be NULL and its
 * strides are not read; types and other values are checked as in any call.
 *
 * Errors. Every function that can fail returns flowk_status. A call that fails on a bad argument writes nothing to its
 * output, and flowk_last_error() names the parameter, its value and the bound. No function lets a C++ exception out.
 *
 * Threads. Every function may be called from any thread, on any stream, at any time.
 */
#ifndef FLOWK_FLOWK_H
#define FLOWK_FLOWK_H

#include <stddef.h>
#include <stdint.h>

#include "flowk/elementwise_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define FLOWK_API
#else
#define FLOWK_API __attribute__((visibility("default")))
#endif

#define FLOWK_VERSION_MAJOR 0 /**< of FLOWK_VERSION */
#define FLOWK_VERSION_MINOR 1 /**< of FLOWK_VERSION */
#define FLOWK_VERSION_PATCH 0 /**< of FLOWK_VERSION */
/** 10000 * major + 100 * minor + patch: compare with flowk_version() to find a header that is not the library's. */
#define FLOWK_VERSION (10000 * FLOWK_VERSION_MAJOR + 100 * FLOWK_VERSION_MINOR + FLOWK_VERSION_PATCH)

/** The largest rank that any function takes. */
#define FLOWK_MAX_RANK 32

/** The same type as cudaStream_t and CUstream. NULL is the default stream. */
typedef struct CUstream_st *flowk_stream;

/* The type of the constants of an int32_t type. In C they are int. C++ and bindgen, which is clang, would choose an
 * unsigned type, because no constant is negative. */
#if defined(__cplusplus) || defined(__clang__)
#define FLOWK_INT32_CONSTANTS_ : int32_t
#else
#define FLOWK_INT32_CONSTANTS_
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * STATUS AND VERSION
 * ---------------------------------------------------------------------------------------------------------------- */

/** The result of a call: one of the constants below. Values are never renumbered. */
typedef int32_t flowk_status;
__extension__ enum FLOWK_INT32_CONSTANTS_ {
  /** The work is enqueued (libflowk) or done (libflowk_simt). */
  FLOWK_STATUS_SUCCESS = 0,
  /** A value is outside its bounds: a rank, an extent, an axis, a stride. */
  FLOWK_STATUS_INVALID_ARGUMENT = 1,
  /** A required pointer is NULL. */
  FLOWK_STATUS_NULL_POINTER = 2,
  /** A tensor pointer is not aligned for its element type. */
  FLOWK_STATUS_MISALIGNED_POINTER = 3,
  /** The function does not take this element type. */
  FLOWK_STATUS_UNSUPPORTED_DTYPE = 4,
  /** Output elements share memory with each other, or with an input that must not overlap the output. */
  FLOWK_STATUS_OVERLAP = 5,
  /** A size in bytes, or an offset that the strides reach, does not fit int64_t; or an output needs more than 2^31 - 1
   * blocks of threads. */
  FLOWK_STATUS_SIZE_OVERFLOW = 6,
  /** libflowk found no CUDA driver, or no GPU that it has code for. */
  FLOWK_STATUS_NO_DEVICE = 7,
  /** The CUDA runtime refused the launch, or reports an error of earlier work. */
  FLOWK_STATUS_CUDA_ERROR = 8,
  /** A fault in flowk itself: please report it with the text of flowk_last_error(). */
  FLOWK_STATUS_INTERNAL_ERROR = 9
};

/** The name of a status, "FLOWK_STATUS_OVERLAP" for example; "unknown flowk_status" for any other value. */
FLOWK_API const char *flowk_status_string(flowk_status status);

/** Describes this thread's last failed call: the parameter, its value and the bound. "" if no call has failed. Valid
 * until this thread's next flowk call. */
FLOWK_API const char *flowk_last_error(void);

/** FLOWK_VERSION of the loaded library. */
FLOWK_API int32_t flowk_version(void);

/** How the library was built, as `key=value` words: backend (cuda or simt), archs, toolkit, compiler. */
FLOWK_API const char *flowk_build_info(void);

/* ------------------------------------------------------------------------------------------------------------------
 * ELEMENT TYPES
 * ---------------------------------------------------------------------------------------------------------------- */

/** The element type of a tensor: one of the constants below. Values are never renumbered. */
typedef int32_t flowk_dtype;
__extension__ enum FLOWK_INT32_CONSTANTS_ {
  FLOWK_BOOL = 1,         /**< one byte, 0 or 1 */
  FLOWK_INT8 = 2,         /**< signed, 8 bits */
  FLOWK_INT16 = 3,        /**< signed, 16 bits */
  FLOWK_INT32 = 4,        /**< signed, 32 bits */
  FLOWK_INT64 = 5,        /**< signed, 64 bits */
  FLOWK_UINT8 = 6,        /**< unsigned, 8 bits */
  FLOWK_UINT16 = 7,       /**< unsigned, 16 bits */
  FLOWK_UINT32 = 8,       /**< unsigned, 32 bits */
  FLOWK_UINT64 = 9,       /**< unsigned, 64 bits */
  FLOWK_FLOAT16 = 10,     /**< IEEE binary16 */
  FLOWK_BFLOAT16 = 11,    /**< the upper half of binary32 */
  FLOWK_FLOAT32 = 12,     /**< IEEE binary32 */
  FLOWK_FLOAT64 = 13,     /**< IEEE binary64 */
  FLOWK_FLOAT8_E4M3 = 14, /**< OCP E4M3: finite, NaN but no infinity */
  FLOWK_FLOAT8_E5M2 = 15, /**< OCP E5M2 */
  FLOWK_COMPLEX64 = 16,   /**< two float32 */
  FLOWK_COMPLEX128 = 17   /**< two float64 */
};

/** The name of a type, "float32" for example; "unknown flowk_dtype" for any other value. */
FLOWK_API const char *flowk_dtype_string(flowk_dtype dtype);

/** Bytes per element: 1, 2, 4, 8 or 16. 0 if `dtype` is not a flowk_dtype. */
FLOWK_API size_t flowk_dtype_bytes(flowk_dtype dtype);

/** The alignment that a pointer to `dtype` must have: the element's size, or half of it for the complex types. 0 if
 * `dtype` is not a flowk_dtype. */
FLOWK_API size_t flowk_dtype_alignment_bytes(flowk_dtype dtype);

/* ------------------------------------------------------------------------------------------------------------------
 * BATCH TRANSPOSE
 * ---------------------------------------------------------------------------------------------------------------- */

/**
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

/**
 * Writes the plan of the same call to flowk_batch_transpose() as text: the kernel, its tile, and why they were chosen.
 * A call that is slower than a copy has a line for each cause, "slow because ...", with what to change. Launches
 * nothing. Of `src` and `dst` only the addresses are used; the memory is not read.
 *
 * `text` receives at most `text_bytes` bytes, including the final NUL, which is always written if text_bytes > 0. A
 * longer text is cut.
 * Statuses: those of the call itself, and NULL_POINTER for `text`.
 */
FLOWK_API flowk_status flowk_batch_transpose_explain(const void *src, void *dst, int64_t batch, int64_t rows,
                                                     int64_t cols, flowk_dtype dtype, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * PERMUTE
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * dst[i[axes[0]], ..., i[axes[rank-1]]] = src[i[0], ..., i[rank-1]]   for every index i of src
 *
 * Shapes: `shape` holds the `rank` extents of src; dst has extents shape[axes[0]], shape[axes[1]], ... `axes` is a
 *   permutation of 0 ... rank-1; 0 <= rank <= FLOWK_MAX_RANK; rank 0 is one element.
 *   `src_strides` has one stride per dimension of src, `dst_strides` one per dimension of dst.
 * Pointers: a stride of 0 in src repeats an element. No two elements of dst may share memory: with the dimensions of
 *   dst of extent > 1 in the order of |stride|, smallest first, each must satisfy
 *     |stride[d]| > sum over the dimensions e before it of |stride[e]| * (extent[e] - 1).
 *   dst must not overlap src. Interleaved slices of one buffer do not overlap if no element is in both.
 * Statuses: INVALID_ARGUMENT (rank, an extent < 0, axes), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE,
 *   OVERLAP, SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: elements are moved bit for bit: NaN payloads, denormals and -0.0 too.
 */
FLOWK_API flowk_status flowk_permute(const void *src, const int64_t *src_strides, void *dst, const int64_t *dst_strides,
                                     int32_t rank, const int64_t *shape, const int32_t *axes, flowk_dtype dtype,
                                     flowk_stream stream);

/** The plan of the same call to flowk_permute() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_permute_explain(const void *src, const int64_t *src_strides, void *dst,
                                             const int64_t *dst_strides, int32_t rank, const int64_t *shape,
                                             const int32_t *axes, flowk_dtype dtype, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * PERMUTE WITH CONVERSION
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * dst[i[axes[0]], ..., i[axes[rank-1]]] = (dst_dtype)(scale * src[i[0], ..., i[rank-1]])   for every index i of src
 *
 * A permute that also converts the elements to another type and scales them, in one pass over memory.
 *
 * Types: any two of bool, the integers of 8, 16 and 32 bits, and the real floats. If the call only moves bits (equal
 *   types, or integers of the same size, and a scale of 1), it is the same as flowk_permute() and takes every type.
 * Shapes, strides: as flowk_permute(). Each tensor's strides count elements of its own type.
 * Pointers: as flowk_permute(). dst must not overlap src, and dst == src is not allowed either.
 * Statuses: those of flowk_permute(); UNSUPPORTED_DTYPE also if a complex type or an integer of 64 bits would be
 *   converted; INVALID_ARGUMENT if the scale is not finite in the product's type.
 * Numerics: the product is computed in float32, or in float64 if either type is float64, int32 or uint32. The scale is
 *   rounded to that type first, and the product is rounded once more to dst_dtype. With a scale of 1 the result is the
 *   conversion alone.
 *   To a float: rounds to nearest, ties to even. A value past the largest one becomes infinity, and in float8 the
 *     largest finite value. Denormals are kept. A NaN stays a NaN; its payload may change.
 *   To an integer, from a float or with a scale: rounds toward zero, clamps to the type's bounds; NaN gives 0.
 *   To an integer, from an integer or bool, unscaled: modulo 2^bits, as in C.
 *   To bool: true if the product is not 0 or is NaN. From bool: 0 or 1.
 */
FLOWK_API flowk_status flowk_permute_convert(const void *src, const int64_t *src_strides, flowk_dtype src_dtype,
                                             void *dst, const int64_t *dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                             const int64_t *shape, const int32_t *axes, double scale,
                                             flowk_stream stream);

/** The plan of the same call to flowk_permute_convert() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_permute_convert_explain(const void *src, const int64_t *src_strides, flowk_dtype src_dtype,
                                                     void *dst, const int64_t *dst_strides, flowk_dtype dst_dtype,
                                                     int32_t rank, const int64_t *shape, const int32_t *axes,
                                                     double scale, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * MANY PERMUTES
 * ---------------------------------------------------------------------------------------------------------------- */

/** Pairs of tensors that a call of flowk_permute_many() takes, at most. */
#define FLOWK_MAX_PAIRS 1024

/**
 * For every n in [0, count): dst[i[axes[0]], ..., i[axes[rank-1]]] = (dst_dtype)(scale * src[i[0], ..., i[rank-1]])
 * with src = srcs[n] and dst = dsts[n]
 *
 * The same permute of `count` pairs of tensors, which have their shape, strides and types in common: the heads of
 * queries, keys and values; the parameters of an optimizer; the parts of a tensor that other GPUs own, whose memory
 * may be a peer's. Up to 16 pairs whose dsts have the same address modulo 128 share one launch. Its blocks take the
 * tiles of all pairs in turn, so that a write to a peer and one to local memory overlap.
 *
 * Shapes, strides, types: as flowk_permute_convert(), for every pair. count is at most FLOWK_MAX_PAIRS; 0 is success
 *   and does nothing.
 * Pointers: `srcs` and `dsts` are arrays of `count` device pointers in host memory, which is read before the call
 *   returns. A dst must not overlap any src or another dst. Sources may overlap each other.
 * Statuses: those of flowk_permute_convert(); INVALID_ARGUMENT also for count.
 * Numerics: as flowk_permute_convert(); if the types are equal and the scale is 1, elements are moved bit for bit.
 */
FLOWK_API flowk_status flowk_permute_many(int32_t count, const void *const *srcs, const int64_t *src_strides,
                                          flowk_dtype src_dtype, void *const *dsts, const int64_t *dst_strides,
                                          flowk_dtype dst_dtype, int32_t rank, const int64_t *shape,
                                          const int32_t *axes, double scale, flowk_stream stream);

/** The plans of the same call to flowk_permute_many() as text, one per launch; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_permute_many_explain(int32_t count, const void *const *srcs, const int64_t *src_strides,
                                                  flowk_dtype src_dtype, void *const *dsts, const int64_t *dst_strides,
                                                  flowk_dtype dst_dtype, int32_t rank, const int64_t *shape,
                                                  const int32_t *axes, double scale, char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * MEASURED PLANS
 *
 * A permute's plan is chosen by a model of the time that each tile takes. All plans write the same bits, so a program
 * may have them measured once, and keep the fastest ones in a file. The library measures only if it is asked to.
 *
 * If the environment variable FLOWK_LOG_SHAPES names a file, a line is appended to it for each permute, with or without
 * conversion, that a process calls or explains and that has several plans: `float16 32x512x16x64 0,2,1,3`. `python -m
 * pyflowk tune --from-log FILE` measures the plans of such a file. No line comes twice. A call fails with
 * INVALID_ARGUMENT if the file cannot be written.
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * Does the permute of flowk_permute_convert() by several plans, and remembers the fastest for later calls.
 *
 * The trials are the model's own plan and the `max_trials` - 1 other plans of least predicted time. Each runs some
 * hundred microseconds at a time, in turn with the others, and its time is the median of 5. 8 to 16 trials are usually
 * enough. A remembered plan is used in this process on this kind of GPU, by calls with the same shapes, strides, types
 * and addresses modulo 128 of flowk_permute(), flowk_batch_transpose(), flowk_permute_convert() and
 * flowk_permute_many(). A call that has only one plan, such as a plain copy, is timed and not remembered.
 *
 * Shapes, strides, pointers, types: as flowk_permute_convert(). dst has the result when the call returns. If src and
 *   dst fit in the L2 cache, the trials find their data in the cache.
 * Results: `modelled_us` receives the time of the model's plan in microseconds, `measured_us` the time of the fastest
 *   plan. They are host pointers and may be NULL. If an extent is 0 both are 0.
 * Stream: unlike the other functions this one waits until the stream has done all its work. It allocates no device
 *   memory.
 * Statuses: those of flowk_permute_convert(); INVALID_ARGUMENT also for max_trials outside 1 ... 4096 and for a stream
 *   that captures a CUDA graph.
 */
FLOWK_API flowk_status flowk_permute_tune(const void *src, const int64_t *src_strides, flowk_dtype src_dtype, void *dst,
                                          const int64_t *dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                          const int64_t *shape, const int32_t *axes, double scale, int32_t max_trials,
                                          double *modelled_us, double *measured_us, flowk_stream stream);

/**
 * Writes all remembered plans to a text file, one per line. What the file had before is lost.
 *
 * Statuses: NULL_POINTER, INVALID_ARGUMENT (a path that cannot be written).
 */
FLOWK_API flowk_status flowk_plans_save(const char *path);

/**
 * Remembers the plans of a file that flowk_plans_save() has written, for the current device's kind of GPU.
 *
 * A plan of another GPU or another version of the library is ignored. `num_loaded` and `num_ignored` receive how many
 * plans were taken and ignored; they may be NULL. If the environment variable FLOWK_PLANS names a file, the first call
 * of a permute loads it, and fails as this function does.
 * Statuses: NULL_POINTER, NO_DEVICE, INVALID_ARGUMENT (a file that cannot be read, or has a line that
 *   flowk_plans_save() does not write; then no plan is taken).
 */
FLOWK_API flowk_status flowk_plans_load(const char *path, int32_t *num_loaded, int32_t *num_ignored);

/* ------------------------------------------------------------------------------------------------------------------
 * ELEMENTWISE
 * ---------------------------------------------------------------------------------------------------------------- */

/** An operation of flowk_unary(): FLOWK_UNARY_RELU, ... There is a constant for each row of flowk/elementwise_ops.h,
 * which has the formulas. */
typedef int32_t flowk_unary_op;
/** An operation of flowk_binary(): FLOWK_BINARY_ADD, ... */
typedef int32_t flowk_binary_op;
/** An operation of flowk_ternary(): FLOWK_TERNARY_FMA, ... */
typedef int32_t flowk_ternary_op;
#define FLOWK_UNARY_CONSTANT_(NAME, value, name, takes, result, num_parameters, formula) FLOWK_UNARY_##NAME = value,
#define FLOWK_BINARY_CONSTANT_(NAME, value, name, takes, result, num_parameters, formula) FLOWK_BINARY_##NAME = value,
#define FLOWK_TERNARY_CONSTANT_(NAME, value, name, takes, result, num_parameters, formula) FLOWK_TERNARY_##NAME = value,
__extension__ enum FLOWK_INT32_CONSTANTS_ { FLOWK_UNARY_OPS(FLOWK_UNARY_CONSTANT_) };
__extension__ enum FLOWK_INT32_CONSTANTS_ { FLOWK_BINARY_OPS(FLOWK_BINARY_CONSTANT_) };
__extension__ enum FLOWK_INT32_CONSTANTS_ { FLOWK_TERNARY_OPS(FLOWK_TERNARY_CONSTANT_) };

#define FLOWK_COUNT_ONE_(NAME, value, name, takes, result, num_parameters, formula) +1
__extension__ enum FLOWK_INT32_CONSTANTS_ {
  /** How many unary operations there are. Their values are 1 ... FLOWK_NUM_UNARY_OPS. */
  FLOWK_NUM_UNARY_OPS = 0 FLOWK_UNARY_OPS(FLOWK_COUNT_ONE_),
  /** How many binary operations there are. */
  FLOWK_NUM_BINARY_OPS = 0 FLOWK_BINARY_OPS(FLOWK_COUNT_ONE_),
  /** How many ternary operations there are. */
  FLOWK_NUM_TERNARY_OPS = 0 FLOWK_TERNARY_OPS(FLOWK_COUNT_ONE_)
};

/** The name of an operation, for example "relu". NULL if `op` is not an operation; 0 is not one. */
FLOWK_API const char *flowk_unary_op_name(flowk_unary_op op);
/** As flowk_unary_op_name(). */
FLOWK_API const char *flowk_binary_op_name(flowk_binary_op op);
/** As flowk_unary_op_name(). */
FLOWK_API const char *flowk_ternary_op_name(flowk_ternary_op op);

/** The formula of an operation as text. NULL if `op` is not an operation. */
FLOWK_API const char *flowk_unary_op_formula(flowk_unary_op op);
/** As flowk_unary_op_formula(). */
FLOWK_API const char *flowk_binary_op_formula(flowk_binary_op op);
/** As flowk_unary_op_formula(). */
FLOWK_API const char *flowk_ternary_op_formula(flowk_ternary_op op);

/** How many parameters the operation uses: 0, 1 (a) or 2 (a and b). 0 if `op` is not an operation. */
FLOWK_API int32_t flowk_unary_op_num_parameters(flowk_unary_op op);
/** As flowk_unary_op_num_parameters(). */
FLOWK_API int32_t flowk_ternary_op_num_parameters(flowk_ternary_op op);

/** The default result type of the operation for inputs of type `dtype`: bool for a comparison, `dtype` for most others.
 * 0 if the operation does not take `dtype`, or `op` is not an operation. */
FLOWK_API flowk_dtype flowk_unary_op_result(flowk_unary_op op, flowk_dtype dtype);
/** As flowk_unary_op_result(). */
FLOWK_API flowk_dtype flowk_binary_op_result(flowk_binary_op op, flowk_dtype dtype);
/** As flowk_unary_op_result(). For FLOWK_TERNARY_WHERE `dtype` is y's. */
FLOWK_API flowk_dtype flowk_ternary_op_result(flowk_ternary_op op, flowk_dtype dtype);

/** A flag for the dtype of an input, as in FLOWK_FLOAT32 | FLOWK_HOST_SCALAR: the pointer is then to one element in
 * host memory, which is read before the function returns and is the value of the whole tensor. Its strides are
 * ignored. */
#define FLOWK_HOST_SCALAR 256

/**
 * out[i] = op(x[i])                 for every index i of `shape`
 *
 * Shapes: `shape` holds the `rank` extents of out, 0 <= rank <= FLOWK_MAX_RANK; rank 0 is one element. An input that is
 *   broadcast has a stride of 0 where its own extent is 1 and out's is not. NULL strides mean C order of `shape`.
 * Types: flowk/elementwise_ops.h lists the types of x and the type of out for each operation. SAME there means: out has
 *   x's type; if x is a float of 8, 16 or 32 bits, out may be any such float. Copy converts between all types except
 *   the complex ones.
 * Parameters: operations with parameters read `a`, or `a` and `b`: leaky_relu (a: the slope), elu (a: alpha), clip
 *   (a: the least value, b: the largest), scale (a * x + b). For integers they are converted as by copy from float64.
 * Pointers: out may be x itself: the same pointer, strides and element size. Otherwise out must not overlap x. No two
 *   elements of out may share memory, and its strides must satisfy flowk_permute()'s rule.
 * Statuses: INVALID_ARGUMENT (op, rank, an extent < 0), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP,
 *   SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics, of all three functions:
 * - Floats of 8, 16 and 32 bits are computed in float32, float64 in float64, and rounded once to out's type, to
 *   nearest, ties to even. A value past the type's largest one becomes infinity, and in float8 the largest finite
 *   value. Denormals are kept.
 * - Results of 8 and 16 bits are within 1 ulp of the correctly rounded result of the formula. Near the zeros of the
 *   gradients of gelu and silu the bound is 2^-18 * |x| instead, near those of logaddexp 2^-21.
 * - Results of float32 and float64 are within the CUDA math library's bounds for the functions in the formula.
 *   floor_divide is within 2 units in the last place of the floor of the exact quotient; remainder is rounded once. An
 *   exponential multiplies the rounding error of its argument. With eps the type's epsilon, the error is at most
 *     silu, silu_mul  (8 + |x|) * eps * |result|
 *     gelu            (8 + 2 x^2) * eps * |result|
 *     gelu_tanh       (8 + 8 |2 sqrt(2 / pi) (x + 0.044715 x^3)|) * eps * |result|
 *     gelu_tanh_backward  64 * eps * |x|
 *     lerp            eps * (|x| + |z| (|x| + |y|))
 *     logaddexp       eps * (4 + |result|)
 *   and half the least denormal more. lerp and add_multiply overflow only if their result does.
 * - A NaN operand gives NaN, in minimum, maximum, relu and clip too; pow(x, 0) and pow(1, y) are 1. Exceptions:
 *   comparisons, where NaN is unequal to everything; copies to integers (0) and to bool (true); isnan (true); isinf and
 *   isfinite (false); the logical operations, to which NaN is true; relu_backward (0 if y is NaN); leaky_relu_backward
 *   (z * x if y is NaN); z of elu_backward and leaky_relu_backward where y > 0; hypot of an infinity (infinity);
 *   copysign of a NaN y; the operand that `where` does not select. The sign of a NaN is either. clip with a > b gives
 *   b.
 * - Infinity gives the limit if the formula has one: silu, gelu, sigmoid and softplus of -inf are 0, the gradients
 *   of gelu and silu are x at y = +inf and 0 at -inf. 0 * inf is NaN, as in silu_mul(-inf, inf).
 * - Integers are computed in their own type, modulo 2^bits, in fma and add_multiply too: negative and abs of the least
 *   value give the least value. trunc_divide rounds toward zero, floor_divide down, and remainder has the sign of y;
 *   for y = 0 all three are 0; the least value / -1 is the least value. divide takes floats. pow with y < 0 is 1 / x^-y
 *   rounded toward zero, and 0 for x = 0. A shift by the number of bits of the type, or by y < 0, shifts all bits out:
 *   0, or -1 where x < 0 is shifted right.
 * - Of floats floor_divide and remainder are Python's // and %, with x / 0 infinite or NaN.
 * - Copy: a float to an integer rounds toward zero and clamps to the type's bounds, NaN gives 0; an integer wraps to a
 *   narrower one; to bool is x != 0; to a float rounds once. A copy to the same type moves bits.
 * - Bool counts as 0 and 1: minimum is and, maximum is or.
 */
FLOWK_API flowk_status flowk_unary(flowk_unary_op op, const void *x, const int64_t *x_strides, flowk_dtype x_dtype,
                                   void *out, const int64_t *out_strides, flowk_dtype out_dtype, int32_t rank,
                                   const int64_t *shape, double a, double b, flowk_stream stream);

/**
 * out[i] = op(x[i], y[i])           for every index i of `shape`
 *
 * Types: x and y have the same type, or both are floats of 8, 16 or 32 bits, in any mix. Operations whose result is
 *   bool also take int64 with uint64, and are exact. For other operations out follows the rule of SAME in
 *   flowk_unary().
 * Shapes, pointers (out may be x or y itself), statuses and numerics: as flowk_unary().
 */
FLOWK_API flowk_status flowk_binary(flowk_binary_op op, const void *x, const int64_t *x_strides, flowk_dtype x_dtype,
                                    const void *y, const int64_t *y_strides, flowk_dtype y_dtype, void *out,
                                    const int64_t *out_strides, flowk_dtype out_dtype, int32_t rank,
                                    const int64_t *shape, flowk_stream stream);

/**
 * out[i] = op(x[i], y[i], z[i])     for every index i of `shape`
 *
 * Types: as flowk_binary(), for x, y and z. In FLOWK_TERNARY_WHERE x is bool, and the rule is for y and z. add_multiply
 *   reads `a`.
 * Shapes, pointers (out may be x, y or z itself), statuses and numerics: as flowk_unary().
 */
FLOWK_API flowk_status flowk_ternary(flowk_ternary_op op, const void *x, const int64_t *x_strides, flowk_dtype x_dtype,
                                     const void *y, const int64_t *y_strides, flowk_dtype y_dtype, const void *z,
                                     const int64_t *z_strides, flowk_dtype z_dtype, void *out,
                                     const int64_t *out_strides, flowk_dtype out_dtype, int32_t rank,
                                     const int64_t *shape, double a, flowk_stream stream);

/** The plan of the same call to flowk_unary() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_unary_explain(flowk_unary_op op, const void *x, const int64_t *x_strides,
                                           flowk_dtype x_dtype, void *out, const int64_t *out_strides,
                                           flowk_dtype out_dtype, int32_t rank, const int64_t *shape, double a,
                                           double b, char *text, size_t text_bytes);
/** The plan of the same call to flowk_binary() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_binary_explain(flowk_binary_op op, const void *x, const int64_t *x_strides,
                                            flowk_dtype x_dtype, const void *y, const int64_t *y_strides,
                                            flowk_dtype y_dtype, void *out, const int64_t *out_strides,
                                            flowk_dtype out_dtype, int32_t rank, const int64_t *shape, char *text,
                                            size_t text_bytes);
/** The plan of the same call to flowk_ternary() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_ternary_explain(flowk_ternary_op op, const void *x, const int64_t *x_strides,
                                             flowk_dtype x_dtype, const void *y, const int64_t *y_strides,
                                             flowk_dtype y_dtype, const void *z, const int64_t *z_strides,
                                             flowk_dtype z_dtype, void *out, const int64_t *out_strides,
                                             flowk_dtype out_dtype, int32_t rank, const int64_t *shape, double a,
                                             char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * FUNCTORS
 * ---------------------------------------------------------------------------------------------------------------- */

/** The bytes that a flowk_functor_launch has for a kernel's parameters. */
#define FLOWK_FUNCTOR_PARAMS_BYTES 2048
/** The version of their layout, in flowk_functor_launch::params_version. */
#define FLOWK_FUNCTOR_PARAMS_VERSION 4

/**
 * The launch of a kernel of flowk/detail/elementwise_kernel.cuh that the caller compiles at run time, with NVRTC, for a
 * functor of its own. pyflowk.ElementwiseKernel does so. With nvcc use flowk/elementwise.cuh instead.
 */
typedef struct flowk_functor_launch {
  size_t struct_bytes;    /**< sizeof(flowk_functor_launch): set by the caller */
  int32_t params_version; /**< flowk::detail::elementwise_params_version of the headers that the kernel is compiled
                             with, FLOWK_FUNCTOR_PARAMS_VERSION of these: set by the caller */
  int32_t num_parts;      /**< the number of launches of the whole call; 0 if there is no element */
  int32_t kernel;         /**< flowk::detail::elementwise_...: 0 contiguous, 1 strided, 2 broadcast, 3 aligned_tiles,
                             4 shifted_tiles, 5 broadcast_rows */
  int32_t pack_elements;  /**< the kernel's first template argument */
  int32_t num_threads;    /**< per block */
  int32_t shared_bytes;   /**< per block, dynamic */
  int64_t num_blocks;     /**< in one dimension */
  size_t params_bytes;    /**< the bytes of `params` that the kernel takes */
  unsigned char params[FLOWK_FUNCTOR_PARAMS_BYTES]; /**< the kernel's first parameter; the second is the factory */
} flowk_functor_launch;

/**
 * out[i] = functor(x[i], ...)       for every index i of `shape`
 *
 * Writes part `part` of this call's launches to `launch`. Launches nothing. Part 0 always exists: its num_parts says
 * how many there are.
 *
 * Shapes: `pointers`, `strides` and `dtypes` have `num_operands` entries, 2 to 4, out first; the rest as flowk_unary().
 * Types: any except the complex ones, in any mix.
 * Pointers: as flowk_unary(). `launch` holds the tensors' addresses and is valid only for them.
 * Statuses: those of flowk_unary(), and INVALID_ARGUMENT for num_operands, part, launch->struct_bytes and
 *   launch->params_version: the headers that the kernel is compiled with must be those of the loaded library.
 */
FLOWK_API flowk_status flowk_functor_plan(const void *const *pointers, const int64_t *const *strides,
                                          const flowk_dtype *dtypes, int32_t num_operands, int32_t rank,
                                          const int64_t *shape, int32_t part, flowk_functor_launch *launch);

/* ------------------------------------------------------------------------------------------------------------------
 * PRELU
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * y[o, c, i] = x[o, c, i] > 0 ? x[o, c, i] : alpha[c] * x[o, c, i]
 *
 * Shapes: x and y are (outer, channels, inner), contiguous in C order; alpha is (channels). NCHW is (N, C, H * W), NHWC
 *   is (N * H * W, C, 1), (N, C) is (N, C, 1), and one alpha for all elements is (1, 1, number of elements).
 * Pointers: y may be x; otherwise it must not overlap x. y must not overlap alpha.
 * Statuses: INVALID_ARGUMENT (an extent < 0), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP,
 *   SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: `dtype` is FLOAT16, BFLOAT16, FLOAT32 or FLOAT64; `alpha_dtype` is the same, or FLOAT32 with a 16-bit
 *   dtype. Zeros and NaN are multiplied by alpha: alpha * 0.0 has the sign of the product, NaN stays NaN. A product is
 *   rounded once to `dtype`, to nearest even; with a 16-bit dtype and a FLOAT32 alpha it is rounded to float32 first.
 */
FLOWK_API flowk_status flowk_prelu(const void *x, const void *alpha, void *y, int64_t outer, int64_t channels,
                                   int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, flowk_stream stream);

/** The plan of the same call to flowk_prelu() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_prelu_explain(const void *x, const void *alpha, void *y, int64_t outer, int64_t channels,
                                           int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, char *text,
                                           size_t text_bytes);

/**
 * The size of the workspace that flowk_prelu_backward() needs for these sizes and types on the current device, for any
 * pointers; 0 if it needs none. It is at most one sum per element of x, of 4 bytes, or 8 for FLOAT64, and rounded up to
 * a multiple of 16. If inner >= 256 or outer >= 4096 it is at most 2.5% of the bytes of dy, x and dx.
 *
 * Statuses: those of flowk_prelu_backward() for sizes and types, and NULL_POINTER for `workspace_bytes`.
 */
FLOWK_API flowk_status flowk_prelu_backward_workspace_bytes(int64_t outer, int64_t channels, int64_t inner,
                                                            flowk_dtype dtype, flowk_dtype alpha_dtype,
                                                            size_t *workspace_bytes);

/**
 * dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
 * dalpha[c] = sum over o and i of (x[o, c, i] > 0 ? 0 : dy[o, c, i] * x[o, c, i])
 *
 * Shapes: dy, x and dx are (outer, channels, inner), alpha and dalpha (channels), all contiguous, as in flowk_prelu().
 * Pointers: dx or dalpha may be NULL and is then not computed. dx may be dy or x; otherwise no output may overlap an
 *   input, the workspace or the other output. `workspace` is a multiple of 16 and has at least
 *   flowk_prelu_backward_workspace_bytes() bytes. It needs no initial value, its contents are undefined afterwards, and
 *   only one call at a time may use it. It may be NULL if that size is 0 or dalpha is NULL.
 * Sizes of 0: if outer or inner is 0, dalpha is set to zeros.
 * Statuses: those of flowk_prelu(); INVALID_ARGUMENT if `workspace_bytes` is too small, NULL_POINTER if dx and dalpha
 *   are both NULL.
 * Numerics: types as in flowk_prelu(); dalpha has alpha's type. The terms of dalpha are computed and summed in float32,
 *   or in float64 for FLOAT64, in a tree whose order depends only on sizes, types, alignment, the device and whether dx
 *   is dy or x: equal calls give equal bits. An element with x > 0 adds nothing, even if its dy is NaN or infinity.
 */
FLOWK_API flowk_status flowk_prelu_backward(const void *dy, const void *x, const void *alpha, void *dx, void *dalpha,
                                            int64_t outer, int64_t channels, int64_t inner, flowk_dtype dtype,
                                            flowk_dtype alpha_dtype, void *workspace, size_t workspace_bytes,
                                            flowk_stream stream);

/** The plan of the same call to flowk_prelu_backward() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_prelu_backward_explain(const void *dy, const void *x, const void *alpha, void *dx,
                                                    void *dalpha, int64_t outer, int64_t channels, int64_t inner,
                                                    flowk_dtype dtype, flowk_dtype alpha_dtype, char *text,
                                                    size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * MASKED SOFTMAX
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * The mask and the bias of a softmax, and what else its rows have. Begin with FLOWK_SOFTMAX_MASK_INIT, in which all
 * parts are zero, then set the ones that are needed. A part that is zero masks nothing. A column is unmasked if no part
 * masks it.
 *
 * The tensor has `rank` dimensions. Its last dimension, of k columns, is the row. The dimension before it has q rows,
 * and i is the row's index in it (rank 1: q = 1, i = 0). A part broadcasts over a leading dimension by a stride of 0.
 * All pointers are tensor pointers, except the strides, which are host pointers.
 */
typedef struct flowk_softmax_mask {
  /** sizeof(flowk_softmax_mask). A later version may add members at the end; it still accepts the size of every
   * released version and takes the missing members as zero. Any other size is INVALID_ARGUMENT. */
  size_t struct_bytes;

  /** One byte per element of the tensor, bool or uint8: a nonzero byte masks its column. NULL: not used. */
  const void *dense;
  /** `rank` strides, the last of them 1 (ignored if k = 1). NULL: C order of the whole shape. */
  const int64_t *dense_strides;

  /** The number of unmasked columns per row: the first ones of the row, or the last ones if lengths_from_right is 1.
   * The values are in device memory and cannot be checked: one below 0 counts as 0, one above k as k. NULL: not used.
   */
  const void *lengths;
  /** `rank` - 1 strides, for the leading dimensions. NULL: in C order. */
  const int64_t *lengths_strides;
  flowk_dtype lengths_dtype;  /**< int32 or int64 */
  int32_t lengths_from_right; /**< 0 or 1 */

  /** With d = i + (k - q) + causal_offset (offset 0: the diagonal ends in the last column of the last row):
   *   causal = 1               masks the columns j > d
   *   window > 0               masks the columns j <= d - window
   *   window > 0, causal = 0   masks the columns j >= d + window too
   * `causal` is 0 or 1. Values outside +-2^62 are INVALID_ARGUMENT. */
  int32_t causal;
  int64_t causal_offset; /**< see `causal` */
  int64_t window;        /**< see `causal`; 0: not used */

  /** Added to scale * x: a tensor of x's element type, or float32 if x is float16 or bfloat16. NULL: not used. */
  const void *bias;
  const int64_t *bias_strides; /**< as dense_strides */
  flowk_dtype bias_dtype;      /**< of `bias` */

  /** Of flowk_masked_softmax(), which writes it: lse[...] = log(sum over unmasked i of exp(z[..., i])), -infinity if
   * there is none; without a bias that is the largest z plus a logarithm, infinite if it is too large for its type. One
   * float32 per row, or float64 if x is float64: contiguous, with the leading extents of the shape. There are less than
   * 2^31 rows, of at least one column, and it overlaps no other tensor. NULL: not wanted. */
  void *lse;
  /** Of flowk_masked_softmax_backward(): the gradient of lse, as `lse`. NULL: zeros. */
  const void *dlse;

  /** A logit per row that has no column: it takes part in the row's sum and in lse only (attention sinks). A float32
   * number per row, or float64 if x is float64. A call with sinks, row_scale or softcap has less than 2^31 rows. NULL:
   * no sinks. */
  const void *sinks;
  /** `rank` - 1 strides, for the leading dimensions, less than 2^31 over the extent in size; one logit per head has
   * strides of 0 but for the heads. NULL: in C order. */
  const int64_t *sinks_strides;

  /** Numbers in device memory that multiply `scale`, of the element type of `sinks`, one per row; with strides of 0 one
   * for all rows. A captured graph reads them at each launch. NULL: ones. */
  const void *row_scale;
  const int64_t *row_scale_strides; /**< as sinks_strides */

  /** c > 0: z = c * tanh(scale * row_scale * x / c) + bias, with c in 2^-126 ... 2^126, for float64 in 2^-1022 ...
   * 2^1022. 0: no softcap. */
  double softcap;

  /** Of flowk_masked_softmax_backward(), which writes it: each row's part of the gradient of its sink, as `lse`. The
   * gradient of a sink is the sum over the rows that have it, which the caller adds up. It needs `sinks`, and `lse` as
   * the forward call wrote it. NULL: not wanted. */
  void *dsinks;

  /** Of flowk_masked_softmax_backward() with a softcap: the forward call's x, of y's element type. NULL: not given. */
  const void *x;
  const int64_t *x_strides; /**< as dense_strides */

  /** 1: the bits of a row's results depend on the row, the number of its columns, the types, and the other members of
   * the mask alone: not on the number of rows, the row's place among them, or addresses and strides, if the columns are
   * neighbours. 0: see flowk_masked_softmax(). Forward and backward. */
  int32_t batch_invariant;
} flowk_softmax_mask;

/* clang-format off */
/** flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT; sets struct_bytes, and all other members to zero. */
#define FLOWK_SOFTMAX_MASK_INIT \
  {sizeof(flowk_softmax_mask), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, NULL, \
   NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0}
/* clang-format on */

/**
 * z[..., j] = scale * x[..., j] + bias[..., j]
 * y[..., j] = exp(z[..., j]) / sum over unmasked i of exp(z[..., i])   for an unmasked column j, 0 for a masked one
 *
 * With row_scale, softcap and sinks in `mask` the scale is scale * row_scale, the product has a softcap, and exp(sink)
 * is added to the sum.
 *
 * and with log_softmax = 1
 *
 * y[..., j] = z[..., j] - log(sum over unmasked i of exp(z[..., i]))   for an unmasked column j, -infinity for a
 * masked one
 *
 * Shapes: x and y have the `rank` extents of `shape`, 1 <= rank <= FLOWK_MAX_RANK; the softmax runs over the last one.
 *   `x_strides` and `y_strides` have `rank` strides. Beside a mask the last of them are 1 (ignored if that extent is
 *   1). With mask == NULL they may be any: the softmax over the channels of NCHW has the shape {n, h, w, c} and the
 *   strides {c h w, w, 1, h w}. The last extent is at most 2^30.
 * Scalars: `scale` is finite, of either sign, and |scale| <= 2^126 unless x is float64; with a scale of 0 an infinite x
 *   gives NaN if there is a bias, row_scale or softcap, and otherwise counts as infinite. If only the row_scale of a
 *   row is 0, an infinite x gives NaN or counts as infinite. `log_softmax` is 0 or 1. `mask` NULL: no column is masked.
 * Element types: float16, bfloat16, float32 or float64. y has x's type, or one of the two is float32 and the other
 *   float16 or bfloat16.
 * Pointers: y may be x itself (same pointer, strides and type); otherwise it must not overlap x. It must not overlap a
 *   tensor of `mask`. No two elements of y may share memory: flowk_permute()'s rule. `mask` and its strides are host
 *   memory and are read before the function returns.
 * Cost: columns that lengths, causal or window mask are written and not read, in x, dense and bias. Exceptions: columns
 *   that share an aligned 16-byte vector with an unmasked one, and all columns of rows of up to 1,280 columns.
 * Statuses: INVALID_ARGUMENT (rank, an extent < 0, a last stride, scale, a flag, a member of mask), NULL_POINTER,
 *   MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP, SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: computed in float32 (float64 for float64) and rounded once to y's type. Without a bias no finite input
 *   overflows: z may be past the type's largest number, and y is right. With a bias, z has the type of the computation,
 *   and is infinite where it is too large for it; with row_scale it may be. With a softcap c, c * tanh() of a 16-bit x is
 *   exact to c * 2^-22, and an infinite x gives c or -c. exp(z - largest z) is 0 below 2^-126 unless x is float64, so that
 *   a y below about 2^-125 may be 0. With log_softmax read -infinity for 0:
 *   - a masked column is 0, for any values of x, bias and the rest of the row;
 *   - a row with no unmasked column, or whose unmasked z are all -infinity, is all 0, and its lse is the sink or
 *     -infinity;
 *   - an unmasked z of -infinity beside others gives 0;
 *   - one unmasked column, of finite z, is exactly 1 (log_softmax: 0, but within 2^-21 of it for float16);
 *   - a NaN or +infinity among the unmasked z of a row gives NaN in all its unmasked columns.
 *   The same call gives the same bits on the same device, if the tensors have the same addresses modulo 128: the
 *   order of a row's sum depends on them, and on the number of rows. With batch_invariant in `mask` it depends on
 *   neither, and the bits are the same on all GPUs of one architecture. Rows that are not whole aligned vectors of 16
 *   bytes are then slower, and so are conversions and rows that do not fit the registers of a cluster.
 */
FLOWK_API flowk_status flowk_masked_softmax(const void *x, const int64_t *x_strides, flowk_dtype x_dtype, void *y,
                                            const int64_t *y_strides, flowk_dtype y_dtype, int32_t rank,
                                            const int64_t *shape, double scale, const flowk_softmax_mask *mask,
                                            int32_t log_softmax, flowk_stream stream);

/** The plan of the same call to flowk_masked_softmax() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_masked_softmax_explain(const void *x, const int64_t *x_strides, flowk_dtype x_dtype,
                                                    void *y, const int64_t *y_strides, flowk_dtype y_dtype,
                                                    int32_t rank, const int64_t *shape, double scale,
                                                    const flowk_softmax_mask *mask, int32_t log_softmax, char *text,
                                                    size_t text_bytes);

/**
 * The gradient of flowk_masked_softmax() with respect to x, from its output y and the gradients dy of y and dlse of
 * lse:
 *
 * dx[..., j] = scale * y[..., j] * (dy[..., j] - sum over i of y[..., i] * dy[..., i] + dlse)
 *
 * and with log_softmax = 1, where a column with y = -infinity is masked (dx = 0, not in the sum)
 *
 * dx[..., j] = scale * (dy[..., j] - exp(y[..., j]) * (sum over i of dy[..., i] - dlse))
 *
 * With row_scale and a softcap c, scale is scale * row_scale * (1 - tanh(scale * row_scale * x / c)^2). The gradient of
 * a sink is the sum over its rows of -exp(sink - lse) * (sum over i of y[..., i] * dy[..., i] - dlse), with log_softmax
 * of -exp(sink - lse) * (sum over i of dy[..., i] - dlse).
 *
 * The gradient of a bias that has the tensor's whole shape is the dx of a call with scale = 1, without row_scale and
 * softcap; flowk_masked_softmax_backward_dbias() makes that of a bias that rows share.
 *
 * Shapes: dy, y and dx have the `rank` extents of `shape`; strides and scale as in flowk_masked_softmax().
 *   `mask` may be the forward call's, with dlse, dsinks and x. The columns that lengths, causal and window mask get 0,
 *   and are not read but for the exceptions of flowk_masked_softmax(); without these three the result is the same.
 *   dense and bias, and sinks and lse without dsinks, are ignored, because y already contains their effect.
 * Element types: as in flowk_masked_softmax(). dy and y have the forward call's y type, dx has its x type.
 * Pointers: dx may be dy itself or y itself (same pointer, strides and type); otherwise it must not overlap them. It
 *   must not overlap a tensor of `mask`, nor must dsinks another tensor. No two elements of dx may share memory.
 *   Statuses: as in flowk_masked_softmax().
 * Numerics: computed in float32 (float64 for float64) and rounded once to dx's type. A row with no unmasked column, all
 *   0 (-infinity) in y, has a gradient of 0. A NaN or an infinity in dy or y propagates by the formula. The bits are
 *   those of the same call, as in flowk_masked_softmax().
 */
FLOWK_API flowk_status flowk_masked_softmax_backward(const void *dy, const int64_t *dy_strides, const void *y,
                                                     const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
                                                     const int64_t *dx_strides, flowk_dtype dx_dtype, int32_t rank,
                                                     const int64_t *shape, double scale, const flowk_softmax_mask *mask,
                                                     int32_t log_softmax, flowk_stream stream);

/** The plan of the same call to flowk_masked_softmax_backward() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_masked_softmax_backward_explain(const void *dy, const int64_t *dy_strides, const void *y,
                                                             const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
                                                             const int64_t *dx_strides, flowk_dtype dx_dtype,
                                                             int32_t rank, const int64_t *shape, double scale,
                                                             const flowk_softmax_mask *mask, int32_t log_softmax,
                                                             char *text, size_t text_bytes);

/**
 * The size of the workspace that flowk_masked_softmax_backward_dbias() needs for this shape, the dimensions in which
 * `dbias_strides` are 0, and y_dtype on the current device, for any pointers; 0 if it needs none. It is at most a fifth
 * of the bytes of dy and y, unless about one and a half rows of float32, of float64 for FLOAT64, are larger than a
 * block's shared memory.
 *
 * Statuses: those of flowk_masked_softmax_backward_dbias() for the shape and y_dtype, and NULL_POINTER for
 *   `workspace_bytes`.
 */
FLOWK_API flowk_status flowk_masked_softmax_backward_dbias_workspace_bytes(int32_t rank, const int64_t *shape,
                                                                           const int64_t *dbias_strides,
                                                                           flowk_dtype y_dtype,
                                                                           size_t *workspace_bytes);

/**
 * The gradient of flowk_masked_softmax() with respect to a bias that rows share, and dx of
 * flowk_masked_softmax_backward() in the same pass:
 *
 * dz[..., j] = y[..., j] * (dy[..., j] - sum over i of y[..., i] * dy[..., i] + dlse)
 * dbias[..., j] = sum of dz[..., j] over the dimensions in which the stride of dbias is 0
 * dx[..., j] = scale * dz[..., j]
 *
 * and with log_softmax = 1 dz as dx of flowk_masked_softmax_backward() with a scale of 1.
 *
 * Shapes: as in flowk_masked_softmax_backward(). The last strides of dy, y, dx and dbias are 1 (ignored if that extent
 *   is 1). dbias_strides are those of the bias: `rank` strides, 0 in the dimensions over which it is shared; NULL is C
 *   order of the whole shape, in which no row is shared. An extent of 1 is never shared. With row_scale or a softcap in
 *   `mask` dx is NULL; then both are ignored.
 * Element types: as in flowk_masked_softmax_backward(); dbias has y's type, or one of the two is float32 and the other
 *   float16 or bfloat16.
 * Pointers: dx may be NULL and is then not computed. Its rules are those of flowk_masked_softmax_backward(). dbias
 *   overlaps no other tensor, and no two of its elements that are not shared may share memory. `workspace` is a
 *   multiple of 16, overlaps no tensor, and has at least flowk_masked_softmax_backward_dbias_workspace_bytes() bytes.
 *   It needs no initial value, its contents are undefined afterwards, and only one call at a time may use it. It may be
 *   NULL if that size is 0.
 * Sizes of 0: if an extent over which the bias is shared is 0, and none of the others is, dbias is set to zeros.
 * Statuses: those of flowk_masked_softmax_backward(); INVALID_ARGUMENT if `workspace_bytes` is too small, or for dx
 *   with row_scale or a softcap.
 * Numerics: computed and summed in float32 (float64 for float64); each result is rounded once. The order in which rows
 *   are added depends on the shape, the dimensions in which the bias is shared, and y_dtype alone, and the order of a
 *   row's sum on these and on the row's address modulo 16; with batch_invariant in `mask` not on the address, and rows
 *   are loaded twice. The bits are the same on all GPUs of one architecture. Masked columns add nothing, for any values
 *   of dy and y. A NaN or an infinity propagates by the formula.
 */
FLOWK_API flowk_status flowk_masked_softmax_backward_dbias(
    const void *dy, const int64_t *dy_strides, const void *y, const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
    const int64_t *dx_strides, flowk_dtype dx_dtype, void *dbias, const int64_t *dbias_strides, flowk_dtype dbias_dtype,
    int32_t rank, const int64_t *shape, double scale, const flowk_softmax_mask *mask, int32_t log_softmax,
    void *workspace, size_t workspace_bytes, flowk_stream stream);

/** The plan of the same call to flowk_masked_softmax_backward_dbias() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_masked_softmax_backward_dbias_explain(
    const void *dy, const int64_t *dy_strides, const void *y, const int64_t *y_strides, flowk_dtype y_dtype, void *dx,
    const int64_t *dx_strides, flowk_dtype dx_dtype, void *dbias, const int64_t *dbias_strides, flowk_dtype dbias_dtype,
    int32_t rank, const int64_t *shape, double scale, const flowk_softmax_mask *mask, int32_t log_softmax, char *text,
    size_t text_bytes);

/**
 * Merges the softmax over two sets of columns into the softmax over both, such as attention over two parts of the keys.
 *
 * lse = log(exp(lse1) + exp(lse2))
 * y[..., j] = exp(lse1 - lse) * y1[..., j] + exp(lse2 - lse) * y2[..., j]
 *
 * Shapes: y1, y2 and y are (rows, columns), columns >= 1; lse1, lse2 and lse are (rows); all are contiguous.
 * Types: y1, y2 and y are of `dtype`: float16, bfloat16, float32 or float64. lse1, lse2 and lse are float32, or
 *   float64 if `dtype` is float64.
 * Pointers: y may be y1 or y2; otherwise no output may overlap an input or the other output.
 * Statuses: INVALID_ARGUMENT (rows, columns), NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP,
 *   SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: computed in float32 (float64 for float64) and rounded once. If lse1 or lse2 is -infinity, its set has no
 *   unmasked column: y and lse are exactly those of the other set. If both are, y is 0 and lse is -infinity. A NaN or
 *   +infinity in an lse gives NaN. The bits of a row depend on its values alone.
 */
FLOWK_API flowk_status flowk_softmax_merge(const void *y1, const void *lse1, const void *y2, const void *lse2, void *y,
                                           void *lse, int64_t rows, int64_t columns, flowk_dtype dtype,
                                           flowk_stream stream);

/** The plan of the same call to flowk_softmax_merge() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_softmax_merge_explain(const void *y1, const void *lse1, const void *y2, const void *lse2,
                                                   void *y, void *lse, int64_t rows, int64_t columns, flowk_dtype dtype,
                                                   char *text, size_t text_bytes);

/* ------------------------------------------------------------------------------------------------------------------
 * CROSS-ENTROPY
 * ---------------------------------------------------------------------------------------------------------------- */

/**
 * The numbers of a cross-entropy. Begin with FLOWK_CROSS_ENTROPY_OPTIONS_INIT, then set the ones that are needed. NULL
 * instead of the struct is the same as FLOWK_CROSS_ENTROPY_OPTIONS_INIT.
 */
typedef struct flowk_cross_entropy_options {
  /** sizeof(flowk_cross_entropy_options). A later version may add members at the end; it still accepts the size of
   * every released version and takes the missing members as zero. Any other size is INVALID_ARGUMENT. */
  size_t struct_bytes;
  /** See flowk_cross_entropy(). Finite, of either sign, and |scale| <= 2^126 unless the logits are float64. */
  double scale;
  /** See flowk_cross_entropy(). 0: not used; otherwise finite, and at least |scale| * 2^-100. */
  double softcap;
  double label_smoothing; /**< See flowk_cross_entropy(); in 0 ... 1. */
  double z_loss;          /**< See flowk_cross_entropy(); finite, >= 0. */
  /** Rows with this target are ignored. */
  int64_t ignore_index;
  /** If the logits are a shard of a larger vocabulary: their first column in it. */
  int64_t vocab_start;
  /** The columns of the whole vocabulary, which targets count in. 0: vocab_start + the logits' columns. */
  int64_t vocab_size;
} flowk_cross_entropy_options;

/** flowk_cross_entropy_options options = FLOWK_CROSS_ENTROPY_OPTIONS_INIT; scale 1, ignore_index -100, the others 0. */
#define FLOWK_CROSS_ENTROPY_OPTIONS_INIT {sizeof(flowk_cross_entropy_options), 1.0, 0.0, 0.0, 0.0, -100, 0, 0}

/** The values per row of the partials of flowk_cross_entropy(). */
#define FLOWK_CROSS_ENTROPY_PARTIAL_VALUES 5

/**
 * The size of the workspace that flowk_cross_entropy() needs for logits of this shape and type; 0 if it needs none. It
 * depends on nothing else, and is at most 0.5 % of the bytes of the logits.
 *
 * Statuses: those of flowk_cross_entropy() for shape and type, and NULL_POINTER for `workspace_bytes`.
 */
FLOWK_API flowk_status flowk_cross_entropy_workspace_bytes(int32_t rank, const int64_t *shape, flowk_dtype dtype,
                                                           size_t *workspace_bytes);

/**
 * With x a row of logits, t its target, V its columns:
 *
 * z[j] = scale * x[j], and with a softcap z[j] = softcap * tanh(scale * x[j] / softcap)
 * lse = log(sum over j of exp(z[j]))
 * loss = (1 - label_smoothing) * (lse - z[t]) + label_smoothing * (lse - sum over j of z[j] / V) + z_loss * lse^2
 * entropy = lse - sum over j of p[j] * z[j],   p[j] = exp(z[j] - lse)
 *
 * -loss is the log-probability of the target if label_smoothing and z_loss are 0.
 *
 * Shapes: logits have the `rank` extents of `shape`, 1 <= rank <= FLOWK_MAX_RANK; the last one, at most 2^30, is the
 *   row. `logits_strides` has `rank` strides, the last of them 1 (ignored if that extent is 1). targets, loss, lse and
 *   entropy have the extents before the last one, partials these and FLOWK_CROSS_ENTROPY_PARTIAL_VALUES; all of them
 *   are contiguous in C order.
 * Shards: if a vocabulary is split by columns, each shard computes `partials` from its own logits, with vocab_start and
 *   vocab_size, and flowk_cross_entropy_merge() makes the results from the partials of all shards. With m the
 *   largest z[j] of the shard, a row of partials is: m, sum of exp(z[j] - m), sum of exp(z[j] - m) * (z[j] - m), sum of
 *   z[j], and z[t], or 0 if t is not in the shard.
 * Types: the logits are float16, bfloat16, float32 or float64, the targets int32 or int64. The outputs are float32, or
 *   float64 with float64 logits.
 * Pointers: an output may be NULL and is then not computed, but not all of them. With partials the others must be NULL;
 *   without it the logits must be the whole vocabulary. No output may overlap an input, the workspace or another
 *   output. `workspace` is a multiple of 16 and has at least flowk_cross_entropy_workspace_bytes() bytes. It needs no
 *   initial value, its contents are undefined afterwards, and only one call at a time may use it. It may be NULL if
 *   that size is 0. `options` is host memory and is read before the function returns.
 * Cost: one read of the logits. A row of more than 2 KB with target ignore_index is read by half at most.
 * Statuses: INVALID_ARGUMENT (rank, an extent < 0, the last stride, a member of options, workspace_bytes),
 *   NULL_POINTER, MISALIGNED_POINTER, UNSUPPORTED_DTYPE, OVERLAP, SIZE_OVERFLOW, NO_DEVICE, CUDA_ERROR.
 * Numerics: computed in float32 (float64 for float64); no z may overflow it.
 *   - a row whose target is ignore_index has zeros, whatever its logits are;
 *   - targets are in device memory and cannot be checked: any other target outside 0 ... V - 1 gives a loss of NaN, and
 *     the lse and the entropy of the row. No memory outside the logits is read;
 *   - z is -infinity if scale * x is, also with a softcap; such a column has p = 0;
 *   - a row whose z are all -infinity has an lse of -infinity, a loss of +infinity and an entropy of 0;
 *   - a z[t] of -infinity beside others gives a loss of +infinity; so does, with label_smoothing, any z of -infinity;
 *   - a NaN or +infinity among a row's z gives NaN.
 *   A row's results depend on its values, its columns, types and options alone: they have the same bits for any number
 *   of rows, place among them, address and strides, on GPUs of one architecture.
 */
FLOWK_API flowk_status flowk_cross_entropy(const void *logits, const int64_t *logits_strides, flowk_dtype dtype,
                                           const void *targets, flowk_dtype targets_dtype, void *loss, void *lse,
                                           void *entropy, void *partials, int32_t rank, const int64_t *shape,
                                           const flowk_cross_entropy_options *options, void *workspace,
                                           size_t workspace_bytes, flowk_stream stream);

/** The plan of the same call to flowk_cross_entropy() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_cross_entropy_explain(const void *logits, const int64_t *logits_strides, flowk_dtype dtype,
                                                   const void *targets, flowk_dtype targets_dtype, void *loss,
                                                   void *lse, void *entropy, void *partials, int32_t rank,
                                                   const int64_t *shape, const flowk_cross_entropy_options *options,
                                                   char *text, size_t text_bytes);

/**
 * loss, lse and entropy of flowk_cross_entropy() from the partials of all shards of the vocabulary.
 *
 * Shapes: `partials` is (num_shards, rows, FLOWK_CROSS_ENTROPY_PARTIAL_VALUES), num_shards >= 1; targets, loss, lse and
 *   entropy are (rows); all are contiguous.
 * Types: `dtype`, float32 or float64, is the type of the partials and the results.
 * Options: vocab_size >= 1; label_smoothing, z_loss and ignore_index are used.
 * Pointers, statuses and numerics: as flowk_cross_entropy(). The bits depend on the order of the shards and on where
 * the vocabulary is cut.
 */
FLOWK_API flowk_status flowk_cross_entropy_merge(const void *partials, int64_t num_shards, const void *targets,
                                                 flowk_dtype targets_dtype, void *loss, void *lse, void *entropy,
                                                 int64_t rows, flowk_dtype dtype,
                                                 const flowk_cross_entropy_options *options, flowk_stream stream);

/** The plan of the same call to flowk_cross_entropy_merge() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_cross_entropy_merge_explain(const void *partials, int64_t num_shards, const void *targets,
                                                         flowk_dtype targets_dtype, void *loss, void *lse,
                                                         void *entropy, int64_t rows, flowk_dtype dtype,
                                                         const flowk_cross_entropy_options *options, char *text,
                                                         size_t text_bytes);

/**
 * The gradient of flowk_cross_entropy() with respect to the logits, from the gradients of its results:
 *
 * dz[j] = dloss * (p[j] * (1 + 2 * z_loss * lse) - (j == t ? 1 - label_smoothing : 0) - label_smoothing / V)
 *       + dlse * p[j] - dentropy * p[j] * (z[j] - lse + entropy)
 * dlogits[j] = dz[j] * scale, and with a softcap times 1 - (z[j] / softcap)^2
 *
 * Shapes: logits and dlogits have the `rank` extents of `shape`, strides as in flowk_cross_entropy(); the others have
 *   the extents before the last one, contiguous. The logits may be a shard of the vocabulary; lse and entropy are then
 *   the results for the whole vocabulary.
 * Types: dlogits has the logits' type; lse, entropy, dloss, dlse and dentropy have the loss's type.
 * Pointers: dloss, dlse or dentropy may be NULL and counts as 0, but not all of them. entropy is used with dentropy
 *   alone. dlogits may be logits itself (same pointer and strides); the logits are gone then, and the gradient can be
 *   computed once only. Otherwise dlogits must not overlap an input. No two elements of dlogits may share memory:
 *   flowk_permute()'s rule.
 * Cost: one read of the logits, one write of dlogits; of an ignored row half is read at most.
 * Statuses: as flowk_cross_entropy().
 * Numerics: computed in float32 (float64 for float64) and rounded once. An ignored row has a gradient of 0, whatever
 *   the other values of the row are; a row whose target is outside the vocabulary has NaN. A column with z = -infinity
 *   has p = 0. A NaN or an infinity in another input propagates by the formula. The bits of an element depend on the
 *   values of its row and on the options alone.
 */
FLOWK_API flowk_status flowk_cross_entropy_backward(const void *logits, const int64_t *logits_strides,
                                                    flowk_dtype dtype, const void *targets, flowk_dtype targets_dtype,
                                                    const void *lse, const void *entropy, const void *dloss,
                                                    const void *dlse, const void *dentropy, void *dlogits,
                                                    const int64_t *dlogits_strides, int32_t rank, const int64_t *shape,
                                                    const flowk_cross_entropy_options *options, flowk_stream stream);

/** The plan of the same call to flowk_cross_entropy_backward() as text; as flowk_batch_transpose_explain(). */
FLOWK_API flowk_status flowk_cross_entropy_backward_explain(
    const void *logits, const int64_t *logits_strides, flowk_dtype dtype, const void *targets,
    flowk_dtype targets_dtype, const void *lse, const void *entropy, const void *dloss, const void *dlse,
    const void *dentropy, void *dlogits, const int64_t *dlogits_strides, int32_t rank, const int64_t *shape,
    const flowk_cross_entropy_options *options, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif /* FLOWK_FLOWK_H */
