/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the elementwise operators: one per row of flowk/elementwise_ops.h. They take tensors of one type,
 * which the operation computes in. Other calls take the way through Python: types that are promoted, integers that are
 * computed as floats, parameters beside integers, bad shapes.
 */
#include <string.h>

#include "torch_shim.h"

enum { max_operands = 3, bool_type = 1, integer_type = 2, float_type = 4 };
enum { B = bool_type, I = integer_type, F = float_type, BI = B | I, IF = I | F, BIF = B | I | F };
enum { SAME, BOOL, ANY };

typedef struct {
  const char *name;
  int num_operands, op, takes, result, num_parameters;
  bool has_condition; /* the first operand is of type bool */
} Operator;

typedef struct {
  int64_t rank;
  int64_t shape[FLOWK_MAX_RANK];
  int64_t strides[1 + max_operands][FLOWK_MAX_RANK]; /* of the result, of the operands */
} Layout;

/* The name of a row's operator. */
static const char *name_of(const char *row) {
  return strcmp(row, "copy") == 0  ? "cast"
         : strcmp(row, "min") == 0 ? "minimum"
         : strcmp(row, "max") == 0 ? "maximum"
                                   : row;
}

static int kind_of(flowk_dtype dtype) {
  if (dtype == FLOWK_BOOL) return bool_type;
  if (dtype >= FLOWK_INT8 && dtype <= FLOWK_UINT64) return integer_type;
  return dtype >= FLOWK_FLOAT16 && dtype <= FLOWK_FLOAT8_E5M2 ? float_type : 0;
}

static bool takes(const Operator *op, const View *x) {
  const int kind = kind_of(x[op->num_operands - 1].dtype);
  if ((op->takes & kind) == 0) return false;
  if (kind != float_type && op->num_parameters > 0) return false;
  if (kind == integer_type && op->num_operands == 2 && op->op == FLOWK_BINARY_DIV) return false; /* floats in PyTorch */
  for (int i = 0; i < op->num_operands; ++i) {
    const flowk_dtype wanted = op->has_condition && i == 0 ? FLOWK_BOOL : x[op->num_operands - 1].dtype;
    if (x[i].dtype != wanted || x[i].rank > FLOWK_MAX_RANK) return false;
    if (x[i].device_type != x[0].device_type || x[i].device_index != x[0].device_index) return false;
  }
  return has_library(&x[0]);
}

/* The shape to which the operands broadcast, and their strides over it; false where they do not. */
static bool broadcast(const Operator *op, const View *x, Layout *layout) {
  layout->rank = 0;
  for (int i = 0; i < op->num_operands; ++i) {
    if (x[i].rank > layout->rank) layout->rank = x[i].rank;
  }
  for (int64_t d = 0; d < layout->rank; ++d) {
    layout->shape[d] = 1;
    for (int i = 0; i < op->num_operands; ++i) {
      const int64_t own = d - (layout->rank - x[i].rank);
      const int64_t extent = own < 0 ? 1 : x[i].shape[own];
      if (extent == 1) continue;
      if (layout->shape[d] != 1 && layout->shape[d] != extent) return false;
      layout->shape[d] = extent;
    }
    for (int i = 0; i < op->num_operands; ++i) {
      const int64_t own = d - (layout->rank - x[i].rank);
      layout->strides[1 + i][d] = own < 0 || x[i].shape[own] != layout->shape[d] ? 0 : x[i].strides[own];
    }
  }
  return true;
}

/* Which of two dimensions is the outer one in memory: the first operand that moves along both decides. -1: none does.
 */
static int64_t outer_of(const Layout *layout, int num_operands, int64_t first, int64_t second) {
  if (layout->shape[first] <= 1 || layout->shape[second] <= 1) return -1;
  for (int i = 1; i <= num_operands; ++i) {
    const int64_t a = layout->strides[i][first], b = layout->strides[i][second];
    if (a != 0 && b != 0 && a != b) return a > b ? first : second;
  }
  return -1;
}

/* The strides of a new result, whose dimensions are in memory in the operands' order: layout.py's memory_order(). */
static void place_result(Layout *layout, int num_operands) {
  int64_t order[FLOWK_MAX_RANK];
  for (int64_t d = 0; d < layout->rank; ++d) {
    int64_t place = d;
    for (int64_t i = d - 1; i >= 0; --i) {
      const int64_t outer = outer_of(layout, num_operands, order[i], d);
      if (outer == d) place = i;
      if (outer != d && outer != -1) break;
    }
    memmove(order + place + 1, order + place, (size_t)(d - place) * sizeof order[0]);
    order[place] = d;
  }
  int64_t stride = 1;
  for (int64_t i = layout->rank - 1; i >= 0; --i) {
    layout->strides[0][order[i]] = stride;
    stride *= layout->shape[order[i]] > 1 ? layout->shape[order[i]] : 1;
  }
}

static double parameter(const Operator *op, const uint64_t *stack, int index) {
  double value = 0;
  if (index < op->num_parameters) memcpy(&value, &stack[op->num_operands + index], sizeof value);
  return value;
}

static void run(const Operator *op, uint64_t *stack, flowk_dtype result_dtype) {
  View x[max_operands];
  Layout layout;
  for (int i = 0; i < op->num_operands; ++i) x[i] = view_of(stack[i]);
  if (!takes(op, x) || (op->result == ANY && kind_of(result_dtype) == 0) || !broadcast(op, x, &layout)) {
    call_python(name_of(op->name), stack);
    return;
  }
  place_result(&layout, op->num_operands);
  const flowk_dtype own = x[op->num_operands - 1].dtype;
  const flowk_dtype dtype = op->result == SAME ? own : op->result == BOOL ? FLOWK_BOOL : result_dtype;
  const double a = parameter(op, stack, 0), b = parameter(op, stack, 1);
  Place place = enter(&x[0]);
  Tensor result = new_tensor(&x[0], layout.rank, layout.shape, layout.strides[0], dtype);
  flowk_status status = FLOWK_STATUS_SUCCESS;
  if (result != NULL) {
    const View out = view_of((uint64_t)(uintptr_t)result);
    const int32_t rank = (int32_t)layout.rank;
    if (op->num_operands == 1) {
      status = place.flowk->flowk_unary((flowk_unary_op)op->op, x[0].data, layout.strides[1], x[0].dtype, out.data,
                                        layout.strides[0], dtype, rank, layout.shape, a, b, place.stream);
    } else if (op->num_operands == 2) {
      status = place.flowk->flowk_binary((flowk_binary_op)op->op, x[0].data, layout.strides[1], x[0].dtype, x[1].data,
                                         layout.strides[2], x[1].dtype, out.data, layout.strides[0], dtype, rank,
                                         layout.shape, place.stream);
    } else {
      status = place.flowk->flowk_ternary((flowk_ternary_op)op->op, x[0].data, layout.strides[1], x[0].dtype, x[1].data,
                                          layout.strides[2], x[1].dtype, x[2].data, layout.strides[3], x[2].dtype,
                                          out.data, layout.strides[0], dtype, rank, layout.shape, a, place.stream);
    }
  }
  leave(place, status, name_of(op->name), x, op->num_operands, result, stack);
}

/* One kernel per operator, because PyTorch hands a kernel nothing that says whose it is. */
#define KERNEL(num_operands, PREFIX, NAME, lower, takes, result, num_parameters)                                \
  static void run_##PREFIX##_##lower(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {           \
    (void)num_results;                                                                                          \
    static const Operator op = {#lower,                                                                         \
                                num_operands,                                                                   \
                                FLOWK_##PREFIX##_##NAME,                                                        \
                                takes,                                                                          \
                                result,                                                                         \
                                num_parameters,                                                                 \
                                num_operands == 3 && (int)FLOWK_TERNARY_WHERE == (int)FLOWK_##PREFIX##_##NAME}; \
    run(&op, stack, result == ANY ? flowk_dtype_of(stack[num_arguments - 1]) : (flowk_dtype)0);                 \
  }
#define UNARY(NAME, value, lower, takes, result, count, formula) KERNEL(1, UNARY, NAME, lower, takes, result, count)
#define BINARY(NAME, value, lower, takes, result, count, formula) KERNEL(2, BINARY, NAME, lower, takes, result, count)
#define TERNARY(NAME, value, lower, takes, result, count, formula) KERNEL(3, TERNARY, NAME, lower, takes, result, count)
FLOWK_UNARY_OPS(UNARY)
FLOWK_BINARY_OPS(BINARY)
FLOWK_TERNARY_OPS(TERNARY)

static const struct {
  const char *name;
  Kernel kernel;
} kernels[] = {
#define UNARY_ROW(NAME, value, lower, takes, result, count, formula) {#lower, run_UNARY_##lower},
#define BINARY_ROW(NAME, value, lower, takes, result, count, formula) {#lower, run_BINARY_##lower},
#define TERNARY_ROW(NAME, value, lower, takes, result, count, formula) {#lower, run_TERNARY_##lower},
    FLOWK_UNARY_OPS(UNARY_ROW) FLOWK_BINARY_OPS(BINARY_ROW) FLOWK_TERNARY_OPS(TERNARY_ROW)};

Kernel find_elementwise_kernel(const char *name) {
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
    if (strcmp(name_of(kernels[i].name), name) == 0) return kernels[i].kernel;
  }
  return NULL;
}
