# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions. Those of operands alone come from one table; those with parameters stand below it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._abi import BinaryOp, DType, TernaryOp, UnaryOp
from ._dtypes import number_type, numpy_dtype
from ._elementwise_call import LARGEST_PARAMETER, call
from ._elementwise_direct import call_binary, call_unary
from ._elementwise_layout import Request
from ._elementwise_ops import IN_FLOAT64, OF_BOOL, OF_INTEGERS, OPERATIONS, Op
from ._explain import EXPLAINERS, Listener

# Every function of this module, by its name.
FUNCTIONS: dict[str, Callable[..., Any]] = {}

# ---- documentation --------------------------------------------------------------------------------------------------

_TEXT = """`out = {formula}`, for every element.

{operands}  {what}, with any strides:
        NumPy's, or on one GPU torch's, CuPy's, DeviceArrays, whatever has DLPack or `__cuda_array_interface__`.
        Types: {types}.
{rules}out     an array to write, with any strides; it may be an operand itself and must not overlap one otherwise.
        {out_rule}
        None: a new C-contiguous array.
stream  where to enqueue the work: as in permute()

Returns `out`. Raises TypeError or ValueError for types or shapes that do not fit, arrays on different devices, or
what is no array; OverflowError for an int that the arrays' type does not hold; else FlowkError with the library's text.
"""
_SEVERAL_RULES = """\
        Shapes are broadcast and types promoted by NumPy's rules: a Python number takes the type of the arrays, but
        a float beside integers makes float64.
"""


def _types_text(op: Op) -> str:
    takes = OPERATIONS[op].takes
    words = {"B": "bool", "I": "integers", "F": "floats"}
    if op in IN_FLOAT64:
        return "floats; integers and bool are computed in float64"
    if op in OF_INTEGERS:
        return "floats; integers and bool stay as they are"
    if takes == "F":
        return "floats; integers and bool are computed in the float that NumPy computes them in"
    text = ", ".join(words[letter] for letter in takes)
    return text + f", bool ({'or' if OF_BOOL[op] == BinaryOp.MAX else 'and'})" if op in OF_BOOL else text


def _public(op: Op, name: str = "", *, formula: str = "", rules: str = "") -> Callable[..., Any]:
    """Names and documents the decorated function, and enters it in FUNCTIONS and in explain()'s table."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if name:
            function.__name__ = function.__qualname__ = name
        row = OPERATIONS[op]
        num_operands = next(n for n, kind in enumerate((UnaryOp, BinaryOp, TernaryOp), 1) if isinstance(op, kind))
        operands = function.__code__.co_varnames[:num_operands]
        function.__doc__ = _TEXT.format(
            formula=formula or row.formula,
            operands=", ".join(operands).ljust(6),
            what="an array" if num_operands == 1 else "arrays, or numbers beside one",
            types=_types_text(op),
            rules=("" if num_operands == 1 else _SEVERAL_RULES) + rules,
            out_rule={
                "SAME": "Its type is the result's, or any float of at most 32 bits if that is one.",
                "BOOL": "Its type is bool.",
                "ANY": "Its type is `dtype`.",
            }[row.result],
        )
        FUNCTIONS[function.__name__] = function
        EXPLAINERS[function.__name__] = functools.partial(function, stream=Listener())
        return function

    return decorate


# ---- operands alone -------------------------------------------------------------------------------------------------


def _unary(name: str, op: UnaryOp) -> Callable[..., Any]:
    request = Request(op, ("x",))

    @_public(op, name)
    def function(x: Any, *, out: Any = None, stream: Any = None) -> Any:
        return call_unary(request, x, out, stream)

    return function


def _binary(name: str, op: BinaryOp) -> Callable[..., Any]:
    request = Request(op, ("x", "y"))

    @_public(op, name)
    def function(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
        return call_binary(request, x, y, out, stream)

    return function


def _gradient(name: str, op: BinaryOp) -> Callable[..., Any]:
    request = Request(op, ("dy", "x"))

    @_public(op, name, formula=f"dy * {name.removesuffix('_grad')}'(x)")
    def function(dy: Any, x: Any, *, out: Any = None, stream: Any = None) -> Any:
        return call_binary(request, dy, x, out, stream)

    return function


abs = _unary("abs", UnaryOp.ABS)
neg = _unary("neg", UnaryOp.NEG)
square = _unary("square", UnaryOp.SQUARE)
sqrt = _unary("sqrt", UnaryOp.SQRT)
rsqrt = _unary("rsqrt", UnaryOp.RSQRT)
reciprocal = _unary("reciprocal", UnaryOp.RECIPROCAL)
exp = _unary("exp", UnaryOp.EXP)
log = _unary("log", UnaryOp.LOG)
sin = _unary("sin", UnaryOp.SIN)
cos = _unary("cos", UnaryOp.COS)
tanh = _unary("tanh", UnaryOp.TANH)
sigmoid = _unary("sigmoid", UnaryOp.SIGMOID)
relu = _unary("relu", UnaryOp.RELU)
silu = _unary("silu", UnaryOp.SILU)
softplus = _unary("softplus", UnaryOp.SOFTPLUS)
floor = _unary("floor", UnaryOp.FLOOR)
ceil = _unary("ceil", UnaryOp.CEIL)
round = _unary("round", UnaryOp.ROUND)
is_nan = _unary("is_nan", UnaryOp.IS_NAN)
logical_not = _unary("logical_not", UnaryOp.LOGICAL_NOT)

add = _binary("add", BinaryOp.ADD)
sub = _binary("sub", BinaryOp.SUB)
mul = _binary("mul", BinaryOp.MUL)
div = _binary("div", BinaryOp.DIV)
pow = _binary("pow", BinaryOp.POW)
minimum = _binary("minimum", BinaryOp.MIN)
maximum = _binary("maximum", BinaryOp.MAX)
equal = _binary("equal", BinaryOp.EQUAL)
not_equal = _binary("not_equal", BinaryOp.NOT_EQUAL)
less = _binary("less", BinaryOp.LESS)
less_equal = _binary("less_equal", BinaryOp.LESS_EQUAL)
greater = _binary("greater", BinaryOp.GREATER)
greater_equal = _binary("greater_equal", BinaryOp.GREATER_EQUAL)
bitwise_and = _binary("bitwise_and", BinaryOp.BITWISE_AND)
bitwise_or = _binary("bitwise_or", BinaryOp.BITWISE_OR)
bitwise_xor = _binary("bitwise_xor", BinaryOp.BITWISE_XOR)
silu_mul = _binary("silu_mul", BinaryOp.SILU_MUL)
relu_grad = _gradient("relu_grad", BinaryOp.RELU_GRAD)
silu_grad = _gradient("silu_grad", BinaryOp.SILU_GRAD)

# ---- conversion -----------------------------------------------------------------------------------------------------

_CAST_TO_OUT = Request(UnaryOp.COPY, ("x",))


@_public(
    UnaryOp.COPY,
    formula="x, converted to `dtype`",
    rules="dtype   a dtype of NumPy or torch, its name, or a pyflowk.DType; None: out's\n",
)
def cast(x: Any, dtype: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    if dtype is None:
        if out is None:
            raise TypeError("cast takes a dtype, or an out that has one")
        return call_unary(_CAST_TO_OUT, x, out, stream)
    return call_unary(_cast_request(dtype), x, out, stream)


@functools.lru_cache(maxsize=256)
def _cast_request(dtype: Any) -> Request:
    if isinstance(dtype, DType):
        code = dtype
    elif str(dtype).startswith("torch."):
        code = number_type(dtype, "the result")
    else:
        code = number_type(numpy_dtype(dtype), "the result")
    return Request(UnaryOp.COPY, ("x",), result=code)


# ---- parameters -----------------------------------------------------------------------------------------------------

_LEAKY_RELU = Request(UnaryOp.LEAKY_RELU, ("x",))
_ELU = Request(UnaryOp.ELU, ("x",))
_CLAMP = Request(UnaryOp.CLAMP, ("x",))
_CLAMP_BY = Request(TernaryOp.CLAMP_BY, ("x", "lo", "hi"))
_AT_LEAST = Request(BinaryOp.MAX, ("x", "lo"))
_AT_MOST = Request(BinaryOp.MIN, ("x", "hi"))
_SCALE = Request(UnaryOp.SCALE, ("x",))
_SCALE_BY = Request(TernaryOp.FMA, ("x", "a", "b"))
_ADD_MULTIPLY = Request(TernaryOp.ADD_MULTIPLY, ("x", "y", "z"))
_TRUNC_DIV = Request(BinaryOp.DIV, ("x", "y"), exact_integers=True)
_GELU = {"none": Request(UnaryOp.GELU, ("x",)), "tanh": Request(UnaryOp.GELU_TANH, ("x",))}
_GELU_GRAD = {
    "none": Request(BinaryOp.GELU_GRAD, ("dy", "x")),
    "tanh": Request(BinaryOp.GELU_TANH_GRAD, ("dy", "x")),
}


def _are_parameters(*numbers: Any) -> bool:
    """Whether the library takes these as the parameters of a formula, exactly."""
    return all(
        isinstance(number, (int, float))
        and (isinstance(number, float) or -LARGEST_PARAMETER <= number <= LARGEST_PARAMETER)
        for number in numbers
    )


@_public(UnaryOp.LEAKY_RELU, formula="x > 0 ? x : slope * x", rules="slope   a Python number\n")
def leaky_relu(x: Any, slope: float = 0.01, *, out: Any = None, stream: Any = None) -> Any:
    return call(_LEAKY_RELU, (x,), out, stream, (float(slope),))


@_public(UnaryOp.ELU, formula="x > 0 ? x : alpha * (e^x - 1)", rules="alpha   a Python number\n")
def elu(x: Any, alpha: float = 1.0, *, out: Any = None, stream: Any = None) -> Any:
    return call(_ELU, (x,), out, stream, (float(alpha),))


@_public(UnaryOp.GELU, rules='approximate  "none", or "tanh" for the form of gelu by tanh\n')
def gelu(x: Any, approximate: str = "none", *, out: Any = None, stream: Any = None) -> Any:
    return call_unary(_approximated(_GELU, approximate), x, out, stream)


@_public(BinaryOp.GELU_GRAD, formula="dy * gelu'(x)", rules="approximate  as in gelu()\n")
def gelu_grad(dy: Any, x: Any, approximate: str = "none", *, out: Any = None, stream: Any = None) -> Any:
    return call_binary(_approximated(_GELU_GRAD, approximate), dy, x, out, stream)


def _approximated(requests: dict[str, Request], approximate: str) -> Request:
    if approximate not in requests:
        raise ValueError(f"approximate = {approximate!r}, must be 'none' or 'tanh'")
    return requests[approximate]


@_public(
    UnaryOp.CLAMP,
    formula="min(max(x, lo), hi)",
    rules="lo, hi  the bounds: Python numbers, or arrays that are broadcast with x; None: no bound on that side\n",
)
def clamp(x: Any, lo: Any = None, hi: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    if lo is None and hi is None:
        raise TypeError("clamp takes lo, hi or both")
    if hi is None:
        return call(_AT_LEAST, (x, lo), out, stream)
    if lo is None:
        return call(_AT_MOST, (x, hi), out, stream)
    if _are_parameters(lo, hi):
        return call(_CLAMP, (x,), out, stream, (lo, hi))
    return call(_CLAMP_BY, (x, lo, hi), out, stream)


@_public(UnaryOp.SCALE, rules="a, b    Python numbers, which count in the type of the result as in mul() and add()\n")
def scale(x: Any, a: float, b: float = 0, *, out: Any = None, stream: Any = None) -> Any:
    if _are_parameters(a, b):
        return call(_SCALE, (x,), out, stream, (a, b))
    return call(_SCALE_BY, (x, a, b), out, stream)


@_public(BinaryOp.DIV, formula="x / y, rounded toward zero for integers (0 where y is 0), as div() for floats")
def trunc_div(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    return call(_TRUNC_DIV, (x, y), out, stream)


# ---- three operands -------------------------------------------------------------------------------------------------

_FMA = Request(TernaryOp.FMA, ("x", "y", "z"))
_WHERE = Request(TernaryOp.WHERE, ("condition", "x", "y"))
_LERP = Request(TernaryOp.LERP, ("x", "y", "weight"))


@_public(TernaryOp.FMA)
def fma(x: Any, y: Any, z: Any, *, out: Any = None, stream: Any = None) -> Any:
    return call(_FMA, (x, y, z), out, stream)


@_public(TernaryOp.WHERE, formula="condition ? x : y")
def where(condition: Any, x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    return call(_WHERE, (condition, x, y), out, stream)


@_public(TernaryOp.LERP, formula="x + weight * (y - x)")
def lerp(x: Any, y: Any, weight: Any, *, out: Any = None, stream: Any = None) -> Any:
    return call(_LERP, (x, y, weight), out, stream)


@_public(TernaryOp.ADD_MULTIPLY, rules="a       a Python number\n")
def add_multiply(x: Any, y: Any, z: Any, a: float = 1, *, out: Any = None, stream: Any = None) -> Any:
    return call(_ADD_MULTIPLY, (x, y, z), out, stream, (a,))
