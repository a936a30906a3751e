# SPDX-License-Identifier: Apache-2.0
"""The tables from which generate.py makes the elementwise functions' names, aliases and texts."""

from __future__ import annotations

# The operands' names if they differ from x, y, z.
OPERANDS = {
    "RELU_BACKWARD": ("dy", "x"),
    "SILU_BACKWARD": ("dy", "x"),
    "SIGMOID_BACKWARD": ("dy", "y"),
    "TANH_BACKWARD": ("dy", "y"),
    "SOFTPLUS_BACKWARD": ("dy", "x"),
    "WHERE": ("condition", "x", "y"),
    "LERP": ("x", "y", "weight"),
}
# Formulas in these operands.
FORMULAS = {
    "RELU_BACKWARD": "dy * relu'(x)",
    "SILU_BACKWARD": "dy * silu'(x)",
    "SIGMOID_BACKWARD": "dy * y * (1 - y)",
    "TANH_BACKWARD": "dy * (1 - y * y)",
    "SOFTPLUS_BACKWARD": "dy / (1 + e^-x)",
    "WHERE": "condition ? x : y",
    "LERP": "x + weight * (y - x)",
}
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
# The functions of with_parameters.py, and operations without a function.
BY_HAND = {
    *("COPY", "LEAKY_RELU", "ELU", "GELU", "GELU_TANH", "CLIP", "SCALE"),
    *("GELU_BACKWARD", "GELU_TANH_BACKWARD", "CLIP_BY", "ADD_MULTIPLY", "LEAKY_RELU_BACKWARD", "ELU_BACKWARD"),
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
