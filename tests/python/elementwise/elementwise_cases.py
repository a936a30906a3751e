# SPDX-License-Identifier: Apache-2.0
"""What the elementwise functions must give: a reference of every row of pyflowk's OPERATIONS in NumPy, and how near to
it a result must be. The functions that tests call are CALLS; a row of the table is reached by one of them at least.

Floats are computed here in float64, float64 in longdouble, and rounded once; integers in their own type, modulo 2^bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import pyflowk
from pyflowk._arrays.dtypes import dtype_name, number_type, numpy_dtype
from pyflowk._elementwise.promotion import FLOATS, INTEGERS
from pyflowk._elementwise.resolution import Op
from pyflowk._native.abi import DType
from pyflowk._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp


def numpy_type(code: DType) -> np.dtype:
    """NumPy's or ml_dtypes' dtype of a type of flowk.h."""
    return numpy_dtype(dtype_name(code))


DTYPES = tuple(numpy_type(code) for code in DType if code < DType.COMPLEX64)
FLOAT_DTYPES = tuple(dtype for dtype in DTYPES if number_type(dtype, "x") in FLOATS)
INTEGER_DTYPES = tuple(dtype for dtype in DTYPES if number_type(dtype, "x") in INTEGERS)
BOOL = np.dtype(bool)
FLOAT8 = tuple(dtype for dtype in FLOAT_DTYPES if dtype.itemsize == 1)


class Call(NamedTuple):
    """A call of a function of pyflowk that comes to one row: `arguments` follow the operands."""

    function: str
    op: Op
    arguments: tuple[Any, ...] = ()
    parameters: tuple[float, ...] = ()

    @property
    def id(self) -> str:
        return self.function + "".join(f"-{argument}" for argument in self.arguments)

    @property
    def num_operands(self) -> int:
        return 1 if isinstance(self.op, UnaryOp) else 2 if isinstance(self.op, BinaryOp) else 3

    def __call__(self, *operands: Any, out: Any = None) -> Any:
        return getattr(pyflowk, self.function)(*operands, *self.arguments, out=out)


_WITH_ARGUMENTS = (
    Call("leaky_relu", UnaryOp.LEAKY_RELU, (0.25,), (0.25,)),
    Call("elu", UnaryOp.ELU, (1.5,), (1.5,)),
    Call("gelu", UnaryOp.GELU_TANH, ("tanh",)),
    Call("gelu_backward", BinaryOp.GELU_TANH_BACKWARD, ("tanh",)),
    Call("clip", UnaryOp.CLIP, (1, 5), (1, 5)),
    Call("scale", UnaryOp.SCALE, (3, 2), (3, 2)),
    Call("add_multiply", TernaryOp.ADD_MULTIPLY, (2,), (2,)),
)
# Every row but COPY, which has tests of its own.
CALLS = _WITH_ARGUMENTS + tuple(
    Call("clip" if op == TernaryOp.CLIP_BY else op.name.lower(), op)
    for op in OPERATIONS
    if op != UnaryOp.COPY and op not in {call.op for call in _WITH_ARGUMENTS}
)

# ---- formulas -------------------------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _normal_cdf(x: Any) -> Any:
    # erfc takes a float64. What that leaves out of the argument is worth up to x * x units, and comes by the slope.
    exact = -np.asarray(x) / np.sqrt(np.longdouble(2))
    near = exact.astype(np.float64)
    slope = -2 / math.sqrt(math.pi) * np.exp(-(np.minimum(np.abs(near), 40.0) ** 2))
    return 0.5 * (_erfc(near) + slope * (exact - near))


def _at_limits(formula: Callable[[Any], Any], x: Any, below: Any, above: Any) -> Any:
    """formula(x), but for the limits at -inf and +inf."""
    inner = formula(np.where(np.isinf(x), 0.0, x))
    return np.where(x == np.inf, above, np.where(x == -np.inf, below, inner))


def _tanh_argument(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _gelu(x: Any) -> Any:
    return _at_limits(lambda x: x * _normal_cdf(x), x, 0.0, x)


def _gelu_tanh(x: Any) -> Any:
    return _at_limits(lambda x: x * _sigmoid(2 * _tanh_argument(x)), x, 0.0, x)


def _silu(x: Any) -> Any:
    return _at_limits(lambda x: x * _sigmoid(x), x, 0.0, x)


def _gelu_slope(x: Any) -> Any:
    return _at_limits(lambda x: _normal_cdf(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), x, 0.0, 1.0)


def _gelu_tanh_slope(x: Any) -> Any:
    def slope(x: Any) -> Any:
        x = np.clip(x, -50, 50)  # past them 0 and 1
        s, other = _sigmoid(2 * _tanh_argument(x)), _sigmoid(-2 * _tanh_argument(x))
        return s + x * s * other * 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)

    return _at_limits(slope, x, 0.0, 1.0)


def _silu_slope(x: Any) -> Any:
    return _at_limits(lambda x: _sigmoid(x) + x * _sigmoid(x) * _sigmoid(-x), x, 0.0, 1.0)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _power(x: Any, y: Any) -> Any:
    if x.dtype not in INTEGER_DTYPES:
        return np.power(x, y)
    inverse = np.where(x == 1, 1, np.where(x + 1 == 0, 1 - 2 * (y % 2), 0))
    return np.where(y < 0, inverse, np.power(x, np.where(y < 0, 0, y))).astype(x.dtype)


FORMULAS: dict[Op, Callable[..., Any]] = {
    UnaryOp.ABS: np.abs,
    UnaryOp.NEGATIVE: np.negative,
    UnaryOp.SQUARE: np.square,
    UnaryOp.SQRT: np.sqrt,
    UnaryOp.RSQRT: lambda x: 1 / np.sqrt(x),
    UnaryOp.RECIPROCAL: lambda x: 1 / x,
    UnaryOp.EXP: np.exp,
    UnaryOp.LOG: np.log,
    UnaryOp.SIN: np.sin,
    UnaryOp.COS: np.cos,
    UnaryOp.TANH: np.tanh,
    UnaryOp.SIGMOID: _sigmoid,
    UnaryOp.RELU: lambda x: np.maximum(x, x.dtype.type(0)),
    UnaryOp.LEAKY_RELU: lambda x, a: np.where(x > 0, x, a * x),
    UnaryOp.ELU: lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
    UnaryOp.GELU: _gelu,
    UnaryOp.GELU_TANH: _gelu_tanh,
    UnaryOp.SILU: _silu,
    UnaryOp.SOFTPLUS: _softplus,
    UnaryOp.FLOOR: np.floor,
    UnaryOp.CEIL: np.ceil,
    UnaryOp.ROUND: np.rint,
    UnaryOp.CLIP: lambda x, a, b: np.minimum(np.maximum(x, x.dtype.type(a)), x.dtype.type(b)),
    UnaryOp.SCALE: lambda x, a, b: x.dtype.type(a) * x + x.dtype.type(b),
    UnaryOp.ISNAN: np.isnan,
    UnaryOp.LOGICAL_NOT: lambda x: x == 0,
    UnaryOp.ISINF: np.isinf,
    UnaryOp.ISFINITE: np.isfinite,
    UnaryOp.SIGNBIT: np.signbit,
    UnaryOp.SIGN: np.sign,
    UnaryOp.TRUNC: np.trunc,
    UnaryOp.EXP2: np.exp2,
    UnaryOp.EXPM1: np.expm1,
    UnaryOp.LOG1P: np.log1p,
    UnaryOp.LOG2: np.log2,
    UnaryOp.LOG10: np.log10,
    UnaryOp.ERF: _erf,
    UnaryOp.TAN: np.tan,
    UnaryOp.ASIN: np.arcsin,
    UnaryOp.ACOS: np.arccos,
    UnaryOp.ATAN: np.arctan,
    UnaryOp.SINH: np.sinh,
    UnaryOp.COSH: np.cosh,
    UnaryOp.ASINH: np.arcsinh,
    UnaryOp.ACOSH: np.arccosh,
    UnaryOp.ATANH: np.arctanh,
    UnaryOp.BITWISE_INVERT: np.invert,
    BinaryOp.ADD: np.add,
    BinaryOp.SUBTRACT: np.subtract,
    BinaryOp.MULTIPLY: np.multiply,
    BinaryOp.DIVIDE: np.divide,
    BinaryOp.TRUNC_DIVIDE: lambda x, y: np.where(y == 0, 0, np.trunc(x.astype(np.longdouble) / y)).astype(x.dtype),
    BinaryOp.POW: _power,
    BinaryOp.MINIMUM: np.minimum,
    BinaryOp.MAXIMUM: np.maximum,
    BinaryOp.EQUAL: np.equal,
    BinaryOp.NOT_EQUAL: np.not_equal,
    BinaryOp.LESS: np.less,
    BinaryOp.LESS_EQUAL: np.less_equal,
    BinaryOp.GREATER: np.greater,
    BinaryOp.GREATER_EQUAL: np.greater_equal,
    BinaryOp.BITWISE_AND: np.bitwise_and,
    BinaryOp.BITWISE_OR: np.bitwise_or,
    BinaryOp.BITWISE_XOR: np.bitwise_xor,
    BinaryOp.LOGICAL_AND: np.logical_and,
    BinaryOp.LOGICAL_OR: np.logical_or,
    BinaryOp.LOGICAL_XOR: np.logical_xor,
    BinaryOp.FLOOR_DIVIDE: np.floor_divide,
    BinaryOp.REMAINDER: np.remainder,
    BinaryOp.ATAN2: np.arctan2,
    BinaryOp.HYPOT: np.hypot,
    BinaryOp.LOGADDEXP: np.logaddexp,
    BinaryOp.COPYSIGN: np.copysign,
    BinaryOp.BITWISE_LEFT_SHIFT: np.left_shift,
    BinaryOp.BITWISE_RIGHT_SHIFT: np.right_shift,
    BinaryOp.RELU_BACKWARD: lambda x, y: np.where(y > 0, x, 0.0),
    BinaryOp.GELU_BACKWARD: lambda x, y: x * _gelu_slope(y),
    BinaryOp.GELU_TANH_BACKWARD: lambda x, y: x * _gelu_tanh_slope(y),
    BinaryOp.SILU_BACKWARD: lambda x, y: x * _silu_slope(y),
    BinaryOp.SIGMOID_BACKWARD: lambda x, y: x * (y * (1 - y)),
    BinaryOp.TANH_BACKWARD: lambda x, y: x * ((1 - y) * (1 + y)),  # 1 - y * y would lose digits near 1
    BinaryOp.SOFTPLUS_BACKWARD: lambda x, y: x * _sigmoid(y),
    BinaryOp.SILU_MUL: lambda x, y: _silu(x) * y,
    TernaryOp.FMA: lambda x, y, z: x * y + z,
    TernaryOp.WHERE: lambda x, y, z: np.where(x, y, z),
    TernaryOp.CLIP_BY: lambda x, y, z: np.minimum(np.maximum(x, y), z),
    TernaryOp.LERP: lambda x, y, z: x + z * (y - x),
    TernaryOp.ADD_MULTIPLY: lambda x, y, z, a: x + x.dtype.type(a) * y * z,
    TernaryOp.LEAKY_RELU_BACKWARD: lambda x, y, z: np.where(y > 0, x, z * x),
    TernaryOp.ELU_BACKWARD: lambda x, y, z: np.where(y > 0, x, x * np.exp(np.minimum(y, 0.0)) * z),
}

# ---- accuracy -------------------------------------------------------------------------------------------------------

# float32 and float64 results: units in the last place of the formula, which are the bounds of the CUDA math
# library for the functions in it, and half a unit a step around them. Rows not here are rounded once: half a unit.
_ULPS: dict[Op, float] = {
    **{op: 2.5 for op in (UnaryOp.EXP, UnaryOp.LOG, UnaryOp.SIN, UnaryOp.COS, UnaryOp.TANH, UnaryOp.RSQRT)},
    **{op: 5.0 for op in (UnaryOp.SIGMOID, UnaryOp.ELU, UnaryOp.SOFTPLUS, BinaryOp.POW)},
    **{op: 8.0 for op in (UnaryOp.SILU, BinaryOp.SILU_MUL, UnaryOp.GELU)},
    **{op: 2.5 for op in (UnaryOp.EXP2, UnaryOp.EXPM1, UnaryOp.LOG1P, UnaryOp.LOG2, UnaryOp.LOG10)},
    **{op: 2.5 for op in (UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATAN, UnaryOp.COSH, BinaryOp.FLOOR_DIVIDE)},
    **{op: 3.5 for op in (UnaryOp.ERF, UnaryOp.SINH, UnaryOp.ASINH, UnaryOp.ATANH, BinaryOp.ATAN2, BinaryOp.HYPOT)},
    **{op: 4.5 for op in (UnaryOp.TAN, UnaryOp.ACOSH)},
    UnaryOp.LEAKY_RELU: 1.0,
    # A step rounds by half a unit of its own result, which is up to one unit of the last.
    BinaryOp.SIGMOID_BACKWARD: 3.0,
    BinaryOp.TANH_BACKWARD: 2.0,
    **{op: 8.0 for op in (BinaryOp.SOFTPLUS_BACKWARD, TernaryOp.ELU_BACKWARD)},
    TernaryOp.ADD_MULTIPLY: 1.0,
    TernaryOp.LERP: 1.0,
}
# Where a formula loses digits of its own: what the error of one step, half a unit, is multiplied by, in the result.
_LOSSES: dict[Op, Callable[..., Any]] = {
    UnaryOp.SIGMOID: lambda x: np.abs(x) * _sigmoid(x),
    UnaryOp.SILU: lambda x: np.abs(x * _silu(x)),
    UnaryOp.GELU: lambda x: np.abs(x * x * _gelu(x)),
    UnaryOp.GELU_TANH: lambda x: (8 + 8 * np.abs(_tanh_argument(x))) * np.abs(_gelu_tanh(x)),
    UnaryOp.SOFTPLUS: lambda x: np.abs(x) * _softplus(x),
    UnaryOp.EXP: lambda x: 0 * x,
    BinaryOp.SILU_MUL: lambda x, y: np.abs(x * _silu(x) * y),
    BinaryOp.SILU_BACKWARD: lambda x, y: (
        np.abs(x) * (8 + 4 * np.abs(y)) * (1 + np.abs(y)) * _sigmoid(-np.abs(y)) + 8 * np.abs(x)
    ),
    BinaryOp.GELU_BACKWARD: lambda x, y: (
        np.abs(x) * 16 * (1 + y * y) * np.exp(-np.minimum(y * y, 80) / 4) + 8 * np.abs(x)
    ),
    BinaryOp.GELU_TANH_BACKWARD: lambda x, y: np.abs(x) * 64,
    BinaryOp.LOGADDEXP: lambda x, y: 4 + np.abs(np.logaddexp(x, y)),
    TernaryOp.LERP: lambda x, y, z: np.abs(x) + np.abs(z) * (np.abs(x) + np.abs(y)),
    TernaryOp.ADD_MULTIPLY: lambda x, y, z, a: np.abs(a * y * z) * 2,
}
# The product that the reference rounds before it adds: for float32 to float64, for float64 to 64 bits.
_PRODUCTS: dict[Op, Callable[..., Any]] = {
    TernaryOp.FMA: lambda x, y, z: np.abs(x * y),
    UnaryOp.SCALE: lambda x, a, b: np.abs(a * x),
}


def spacing(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The distance between the neighbours of `dtype` at these float64 values: the unit in the last place."""
    info = ml_dtypes.finfo(dtype)
    finite = np.isfinite(values) & (values != 0)
    exponents = np.where(finite, np.frexp(np.where(finite, values, 1.0))[1] - 1, info.minexp)
    return np.ldexp(1.0, np.maximum(exponents, info.minexp) - info.nmant)


def tolerance(
    call: Call, exact: np.ndarray, operands: list[np.ndarray], compute: np.dtype, out: np.dtype
) -> np.ndarray:
    """How far a result may be from the exact one: half a unit of `out` by rounding, and what was lost in `compute`."""
    wide = np.dtype(np.float64 if compute == np.float64 else np.float32)
    lost = _ULPS.get(call.op, 0.5) * spacing(exact, wide)
    losses = _LOSSES.get(call.op) or _PRODUCTS.get(call.op)
    if losses:
        info = ml_dtypes.finfo(wide)
        with np.errstate(all="ignore"):
            loss = losses(*operands, *call.parameters)
            if call.op in _PRODUCTS:
                loss = loss * (2.0**-11 if wide == np.float64 else 2.0**-28)
        loss = np.where(np.isfinite(loss), loss, 0.0)
        lost = lost + loss * float(info.eps) + 64 * float(info.smallest_subnormal)
    if out.itemsize >= 4:
        return lost
    # The hardware's approximations, if they are within one unit of the correctly rounded result.
    return lost + 1.5 * spacing(exact, out)


# ---- types ----------------------------------------------------------------------------------------------------------


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 or longdouble values as `dtype`, a float: to the nearest, ties to even, once; past the largest value
    infinity, in float8 the largest."""
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        quantum = np.ldexp(values.dtype.type(1), np.maximum(np.frexp(values)[1] - 1, info.minexp) - info.nmant)
        nearest = np.copysign(np.rint(values / quantum) * quantum, values)
        past = float(info.max) if dtype in FLOAT8 else np.inf
        nearest = np.where(np.abs(nearest) > float(info.max), np.copysign(values.dtype.type(past), values), nearest)
        nearest = np.where(np.isfinite(values), nearest, np.where(np.isinf(values), np.copysign(past, values), values))
        nearest = np.where(values == 0, values, nearest)
        return nearest.astype(np.float64).astype(dtype)


def converted(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The values that cast() must give."""
    if dtype == values.dtype:
        return values
    if dtype == BOOL:
        return values != 0
    from_float = values.dtype in FLOAT_DTYPES
    if dtype in FLOAT_DTYPES:
        return rounded(values.astype(np.float64 if from_float else np.longdouble), dtype)
    if not from_float:
        return values.astype(dtype)
    info, wide = np.iinfo(dtype), np.trunc(values.astype(np.longdouble))
    bounded = np.clip(np.nan_to_num(wide, nan=0.0, posinf=2.0**70, neginf=-(2.0**70)), info.min, info.max)
    return bounded.astype(dtype)


def reference(call: Call, operands: list[np.ndarray], compute: np.dtype) -> np.ndarray:
    """The formula of operands that have their type already: in float64 for floats, longdouble for float64, in `compute`
    for others."""
    with np.errstate(all="ignore"):
        if compute in FLOAT_DTYPES:
            kind = np.longdouble if compute == np.float64 else np.float64
            wide = [operand if operand.dtype == BOOL else operand.astype(kind) for operand in operands]
            return FORMULAS[call.op](*wide, *call.parameters)
        return FORMULAS[call.op](*operands, *call.parameters)


def values_for(call: Call, index: int, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Operand `index`: values in the formula's domain, of which few results overflow."""
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGER_DTYPES:
        # Small numbers with finite powers and float16 sums; any numbers at half of the indices.
        small = rng.integers(0 if dtype.kind == "u" else -9, 10, shape)
        if call.op in (BinaryOp.POW, UnaryOp.LOG, UnaryOp.SQRT, UnaryOp.RSQRT, UnaryOp.RECIPROCAL, BinaryOp.DIVIDE):
            return np.abs(small).astype(dtype) + dtype.type(1)
        info = np.iinfo(dtype)
        if dtype.itemsize <= 2 or OPERATIONS[call.op].takes == "F":
            return small.astype(dtype)
        large = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.integers(0, 2, shape) == 1, large, small.astype(dtype))
    values = rng.normal(0, 3, shape)
    if call.op in (UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATANH, UnaryOp.LOG1P):
        values = np.tanh(values)
    elif call.op == UnaryOp.ACOSH:
        values = 1 + np.abs(values)
    if call.op in (UnaryOp.LOG, UnaryOp.LOG2, UnaryOp.LOG10, UnaryOp.SQRT, UnaryOp.RSQRT) or (
        call.op == BinaryOp.POW and index == 0
    ):
        values = np.abs(values) + 0.0625
    if (call.op, index) in ((UnaryOp.RECIPROCAL, 0), (BinaryOp.DIVIDE, 1)):
        values = np.copysign(np.abs(values) + 0.0625, values)
    return rounded(np.asarray(values, np.float64), dtype)
