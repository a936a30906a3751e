# SPDX-License-Identifier: Apache-2.0
"""The tables from which generate.py makes the elementwise functions' names, aliases and texts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Parameter(NamedTuple):
    """A parameter with a text of its own: "type = default" in the signature, and NumPy's word for the type."""

    declared: str
    kind: str
    text: str


class Function(NamedTuple):
    """A function that is not called as its operation, or has other operands than x, y and z, or parameters.

    operation   the row that has its types, and its kernel unless there is a `request`
    formula     in its operands
    words       operands and parameters, as CallPath takes them
    about       the end of its text's first sentence
    request     it is a function of _elementwise/requests.py, which chooses the operation
    note        what the text of JAX's function adds
    """

    operation: str
    formula: str
    words: str
    parameters: Mapping[str, Parameter] = MappingProxyType({})
    about: str = ""
    request: bool = False
    note: str = ""


_WEAK = "A Python number or NumPy scalar, which affects the type of the result as in `multiply`"
_OF_ELEMENT = "or one for each element, broadcast with x."
_APPROXIMATED = '{"none", "tanh"}, optional'
_BOUND = Parameter(
    "Array | Numbers | None = None",
    "array or number, optional",
    "The bounds: numbers, or arrays that are broadcast with x. None: no bound on that side; one is needed.",
)
FUNCTIONS = {
    "cast": Function(
        *("COPY", "x", "x dtype="),
        {
            "dtype": Parameter(
                "DTypeLike | None = None",
                "dtype-like, optional",
                "Of the result: a dtype of NumPy or torch, its name, or a pyflowk.DType. By default out's.",
            )
        },
        about=", converted to `dtype`",
        request=True,
        note=", converted to `dtype`",
    ),
    "positive": Function("COPY", "x", "x"),
    "leaky_relu": Function(
        *("LEAKY_RELU", "x > 0 ? x : slope * x", "x slope~"),
        {"slope": Parameter("Number = 0.01", "number, optional", f"{_WEAK}.")},
        note="; slope is a number",
    ),
    "elu": Function(
        *("ELU", "x > 0 ? x : alpha * (e^x - 1)", "x alpha~"),
        {"alpha": Parameter("Number = 1.0", "number, optional", f"{_WEAK}.")},
        note="; alpha is a number",
    ),
    "gelu": Function(
        *("GELU", "x * (1 + erf(x / sqrt(2))) / 2", "x approximate="),
        {
            "approximate": Parameter(
                'str = "none"',
                _APPROXIMATED,
                '"tanh": ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``.',
            )
        },
        about=" (Hendrycks and Gimpel, 2016)",
        request=True,
        note='; approximate may be "tanh"',
    ),
    "clip": Function(
        *("CLIP", "min(max(x, min), max)", "x min max"),
        {"min": _BOUND, "max": _BOUND},
        request=True,
        note="; the bounds are numbers, arrays or None",
    ),
    "scale": Function(
        *("SCALE", "a * x + b", "x a~ b~"),
        {
            name: Parameter(declared, kind, "Numbers, which affect the type of the result as in `multiply` and `add`.")
            for name, declared, kind in (("a", "Number", "number"), ("b", "Number = 0", "number"))
        },
        request=True,
        note="; a and b are numbers or arrays",
    ),
    "relu_backward": Function("RELU_BACKWARD", "dy * relu'(x)", "dy x"),
    "gelu_backward": Function(
        *("GELU_BACKWARD", "dy * gelu'(x)", "dy x approximate="),
        {"approximate": Parameter('str = "none"', _APPROXIMATED, "As given to `gelu`.")},
        about=": the gradient of `gelu` with respect to x",
        request=True,
        note="; approximate as given to `gelu`",
    ),
    "silu_backward": Function("SILU_BACKWARD", "dy * silu'(x)", "dy x"),
    "sigmoid_backward": Function("SIGMOID_BACKWARD", "dy * y * (1 - y)", "dy y"),
    "tanh_backward": Function("TANH_BACKWARD", "dy * (1 - y * y)", "dy y"),
    "softplus_backward": Function("SOFTPLUS_BACKWARD", "dy / (1 + e^-x)", "dy x"),
    "where": Function("WHERE", "condition ? x : y", "condition x y"),
    "lerp": Function("LERP", "x + weight * (y - x)", "x y weight"),
    "leaky_relu_backward": Function(
        *("LEAKY_RELU_BACKWARD", "x > 0 ? dy : slope * dy", "dy x slope"),
        {
            "slope": Parameter(
                "Array | Number = 0.01", "number or array, optional", f"As given to `leaky_relu`; {_OF_ELEMENT}"
            )
        },
        about=": the gradient of `leaky_relu` with respect to x",
    ),
    "elu_backward": Function(
        *("ELU_BACKWARD", "x > 0 ? dy : alpha * e^x * dy", "dy x alpha"),
        {"alpha": Parameter("Array | Number = 1.0", "number or array, optional", f"As given to `elu`; {_OF_ELEMENT}")},
        about=": the gradient of `elu` with respect to x",
    ),
    "add_multiply": Function(
        *("ADD_MULTIPLY", "x + a * y * z", "x y z a~"),
        {"a": Parameter("Number = 1", "number, optional", f"{_WEAK}; with integers within +-2^53.")},
        note="; a is a number",
    ),
}
# The operations that other functions choose.
WITHOUT_FUNCTION = {"GELU_TANH", "GELU_TANH_BACKWARD", "CLIP_BY"}
# Functions and operations have the names of the array API standard, if it has one. The names that NumPy, PyTorch and
# other parts of the standard have for the same functions:
ALIASES = {
    "abs": ("absolute",),
    "acos": ("arccos",),
    "acosh": ("arccosh",),
    "asin": ("arcsin",),
    "asinh": ("arcsinh",),
    "atan": ("arctan",),
    "atan2": ("arctan2",),
    "atanh": ("arctanh",),
    "batch_transpose": ("matrix_transpose",),
    "bitwise_invert": ("bitwise_not", "invert"),
    "bitwise_left_shift": ("left_shift",),
    "bitwise_right_shift": ("right_shift",),
    "cast": ("astype",),
    "clip": ("clamp",),
    "divide": ("div", "true_divide"),
    "moveaxis": ("movedim",),
    "multiply": ("mul",),
    "negative": ("neg",),
    "permute": ("permute_dims",),
    "pow": ("power",),
    "remainder": ("mod",),
    "subtract": ("sub",),
    "swapaxes": ("swapdims",),
}
NOTES = {
    "SIGMOID_BACKWARD": "y is what `sigmoid` returned.",
    "TANH_BACKWARD": "y is what `tanh` returned.",
    "POW": "Integers are powers modulo 2^bits; y < 0 gives 1 / x^-y rounded toward zero; NumPy raises.",
    "REMAINDER": "The result has the sign of y, as Python's %. Integers modulo 0 are 0.",
    "TRUNC_DIVIDE": "Integers divided by 0 give 0.",
    "FLOOR_DIVIDE": "As Python's //; integers divided by 0 give 0.",
    "BITWISE_LEFT_SHIFT": "0 if y < 0 or y is at least the type's number of bits.",
    "BITWISE_RIGHT_SHIFT": "If y < 0 or y is at least the type's number of bits: -1 for x < 0, else 0.",
    "SIGN": "NaN gives NaN.",
    "RECIPROCAL": "Integers give floats; NumPy divides integers.",
    "DIVIDE": "`trunc_divide` and `floor_divide` divide integers in integers.",
}
# What the text of add has after its formula and types; the other functions refer to it.
TEXT_OF_ADD = """
    Parameters
    ----------
    x, y : array or number
        At least one array, with any strides, or one NumPy scalar: scalars alone give a scalar, as in NumPy. Shapes are
        broadcast and types promoted as in NumPy; for torch tensors types are promoted as in PyTorch. By NumPy's rules a
        Python number takes the arrays' type, except that a float with integers gives float64. A number is rounded to
        float32 only if the arrays' type is a float of 8 or 16 bits (in comparisons: to the arrays' type). A NumPy
        scalar has its own type, and so does a host array of rank 0 with arrays on a GPU. Two different float8 types
        give float16. A float8 type with bfloat16 gives bfloat16; with float16, float8_e4m3 gives float16 and
        float8_e5m2 gives float32. With NumPy arrays, lists are taken too.
    out : array, optional
        Where to write: any strides, of the result's type, or any float of at most 32 bits if the result is one. It
        may be an operand itself and must not overlap one otherwise. By default a new array of the first array's
        kind, its dimensions in memory in the operands' order (NumPy's "K"): channels last stays channels last. If the
        operands' orders differ, the first operand that moves along both of two dimensions decides.
    stream : int or stream object, optional
        Where to enqueue the work: as in `permute`.

    Returns
    -------
    array
        `out`. On a GPU the work may still be running.

    Raises
    ------
    TypeError, ValueError
        Types or shapes that do not fit, arrays on different devices, an argument that is neither array nor number.
    OverflowError
        An int that the arrays' type, or float64, does not hold. Comparisons with integers answer for any int.
    FlowkError, FlowkValueError
        Any other status of the library, with its text.

    Notes
    -----
    NumPy's arrays run on libflowk_simt, an executor of the kernels on the CPU: it checks results, it is not for speed.
"""
