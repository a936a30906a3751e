# SPDX-License-Identifier: Apache-2.0
"""Softmax in float64 or wider: the inputs of a case, the expected result, and how exact a result must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
from softmax_cases import SoftmaxCase

# ---- inputs ---------------------------------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """The host arrays of a case; None: not given."""

    x: np.ndarray
    mask: np.ndarray | None
    lengths: np.ndarray | None
    bias: np.ndarray | None
    sinks: np.ndarray | None = None  # with row_scale: of x's shape without the last dimension
    row_scale: np.ndarray | None = None


def inputs_of(case: SoftmaxCase) -> Inputs:
    """The inputs of a case, the same at every call."""
    rng = np.random.default_rng(len(case.id) + sum(case.shape))
    mask = lengths = bias = None
    if case.mask is not None:
        # Some rows are all ones: they have no unmasked column.
        bytes_ = rng.integers(0, 2, case.mask, dtype=np.uint8)
        if bytes_.size:
            rows = bytes_.reshape(-1, case.mask[-1])
            rows[1::5] = 1
            rows[3::7] = 0
        values = rng.integers(1, 256, case.mask, dtype=np.uint8) if case.mask_dtype == "uint8" else np.uint8(1)
        mask = (bytes_ * values).astype(case.mask_dtype)
    if case.lengths is not None:
        cols = case.shape[-1]
        lengths = np.asarray(rng.integers(0, cols + 1, case.lengths)).astype(case.lengths_dtype)
        edges = (cols, 0, cols + 5, 1, -3, cols - 1, np.iinfo(case.lengths_dtype).max, np.iinfo(case.lengths_dtype).min)
        flat = lengths.reshape(-1)
        flat[::2] = np.resize(np.array(edges).astype(case.lengths_dtype), flat[::2].size)
        lengths = flat.reshape(case.lengths)
    if case.bias is not None:
        bias = np.asarray(rng.normal(0, 2, case.bias)).astype(case.bias_dtype or case.dtype)
        flat = bias.reshape(-1)
        flat[::11] = -np.inf
    return Inputs(x_values(case, rng), mask, lengths, bias)


def zeros_of(case: SoftmaxCase) -> Inputs:
    """As inputs_of(case), all zeros: for a plan, which does not depend on values."""
    dtypes = (case.dtype, case.mask_dtype, case.lengths_dtype, case.bias_dtype or case.dtype)
    shapes = (case.shape, case.mask, case.lengths, case.bias)
    return Inputs(*(None if shape is None else np.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes)))


def x_values(case: SoftmaxCase, rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(0, 1, case.shape) * 3
    if case.values == "wide":
        x = rng.uniform(-1e4, 1e4, case.shape)
        x[..., ::3] = np.round(x[..., ::3] / 5000) * 5000  # some rows have several largest values
    if case.values == "negative":
        x = rng.uniform(-3000, -2990, case.shape)
    if case.values == "special" and x.size:
        rows = x.reshape(-1, case.shape[-1])
        some = rng.integers(0, 3, rows.shape) == 0
        for first, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
            rows[first::8] = np.where(some[first::8], value, rows[first::8])
        rows[3::8] = -np.inf
        rows[4::8] = np.inf
        rows[5::8] = np.where(some[5::8], np.nan, -np.inf)
        rows[6::8] = np.where(some[6::8], np.inf, -np.inf)
    return x.astype(case.dtype)


# ---- the reference --------------------------------------------------------------------------------------------------


def unmasked(case: SoftmaxCase, inputs: Inputs) -> np.ndarray:
    """Which columns are unmasked: bool, of x's shape."""
    cols = case.shape[-1]
    rows = case.shape[-2] if len(case.shape) > 1 else 1
    column = np.arange(cols)
    keep = np.ones(case.shape, bool)
    if inputs.mask is not None:
        keep &= inputs.mask == 0
    if inputs.lengths is not None:
        # Lengths name x's first dimensions: (b,) is one length for all heads and rows of a batch.
        shape = inputs.lengths.shape + (1,) * (len(case.shape) - inputs.lengths.ndim)
        length = inputs.lengths.reshape(shape).clip(0, cols).astype(np.int64)
        keep &= column >= cols - length if case.lengths_from_right else column < length
    if case.causal or case.window is not None:
        matrix = keep if keep.ndim > 1 else keep[None]
        for row in range(rows):
            first, end = columns_of_row(case, row)
            matrix[..., row, :first] = False
            matrix[..., row, end:] = False
    return keep


def columns_of_row(case: SoftmaxCase, row: int) -> tuple[int, int]:
    """The interval [first, end) of columns that causal and window leave of a row."""
    cols = case.shape[-1]
    diagonal = row + cols - (case.shape[-2] if len(case.shape) > 1 else 1) + case.causal_offset
    first, end = 0, cols
    if case.window is not None:
        first = diagonal - case.window + 1
        end = diagonal + case.window
    if case.causal:
        end = diagonal + 1
    return min(max(first, 0), cols), min(max(end, 0), cols)


def largest(values: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The largest unmasked value of each row; NaN if one is NaN, -inf if all columns are masked out."""
    return np.max(np.where(keep, values, -np.inf), axis=-1, keepdims=True, initial=-np.inf)


class Reference(NamedTuple):
    """The result in a wider type, and the largest error per element before rounding to the result's type."""

    values: np.ndarray
    bound: np.ndarray


class Precision(NamedTuple):
    """The type that flowk computes in: its epsilon, and the largest error of a result in units in the last place of the
    row's largest result. The reference computes in `wide`."""

    epsilon: float
    units: int
    narrow: type
    wide: type


FLOAT64 = Precision(2.0**-52, 8, np.float64, np.longdouble)
FLOAT32 = Precision(2.0**-23, 2, np.float32, np.float64)
# float32 with the GPU's approximate exponential; 16-bit results cannot show its error of 2 units in the last place.
SIXTEEN_BIT = Precision(2.0**-23, 8, np.float32, np.float64)


def precision_of(dtype: str) -> Precision:
    return {"float64": FLOAT64, "float32": FLOAT32}.get(dtype, SIXTEEN_BIT)


def softmax64(x: np.ndarray) -> np.ndarray:
    """Softmax of rows of finite float64 numbers without a mask."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def is_large_matrix(shape: Sequence[int]) -> bool:
    """Whether the reference is computed row by row: of such a matrix it is three times as fast, because NumPy's
    temporaries stay in the CPU's caches."""
    return len(shape) == 2 and shape[0] > 1 and shape[1] >= 2**17


def scores_of(case: SoftmaxCase, inputs: Inputs, wide: type) -> tuple[np.ndarray, np.ndarray]:
    """z, and a size: z is exact to epsilon times that."""
    scaled = case.scale * inputs.x.astype(wide)
    if inputs.row_scale is not None:
        scaled = scaled * inputs.row_scale[..., None].astype(wide)
    if case.softcap:
        scaled = case.softcap * np.tanh(scaled / case.softcap)
    bias = 0.0 if inputs.bias is None else inputs.bias.astype(wide)
    return scaled + bias, np.abs(scaled) + np.abs(bias) + 4 * case.softcap


def sinks_of(inputs: Inputs, wide: type) -> np.ndarray:
    return np.array(-np.inf) if inputs.sinks is None else inputs.sinks[..., None].astype(wide)


@np.errstate(all="ignore")
def softmax_reference(case: SoftmaxCase, inputs: Inputs) -> Reference:
    """y = softmax of the unmasked columns of scale * x + bias; with a softcap, a scale per row and sinks.

    bound: units in the last place of the row's largest y. A bias, or a scale that is not a power of 2, adds the
    relative rounding of scale * x + bias. The logarithm adds the rounding of the value. A sink adds its own rounding,
    and results below 2^-125 may be 0.
    """
    has_masks = case.causal or case.window is not None or any(values is not None for values in inputs[1:])
    if is_large_matrix(case.shape) and not has_masks:
        row_case = case._replace(shape=(1, case.shape[1]))
        rows = [softmax_reference(row_case, inputs._replace(x=row[None])) for row in inputs.x]
        return Reference(*map(np.concatenate, zip(*rows)))
    eps, units, narrow, wide = precision_of(case.dtype)
    keep = unmasked(case, inputs)
    logits, size = scores_of(case, inputs, wide)
    top, sinks = largest(logits, keep), sinks_of(inputs, wide)
    nothing, reference = top == -np.inf, np.maximum(top, sinks)
    reference = np.where(reference == -np.inf, 0, reference)
    shifted = np.where(keep, logits, -np.inf) - reference
    total = np.sum(np.exp(shifted), axis=-1, keepdims=True) + np.exp(sinks - reference)
    normal = shifted - np.log(total)
    rounding, tiny = np.zeros_like(top), 0.0
    has_terms = inputs.bias is not None or inputs.row_scale is not None or inputs.sinks is not None or case.softcap
    if inputs.sinks is not None:
        size, units, tiny = size + np.where(np.isfinite(sinks), np.abs(sinks), 0), units + 4, 2.0**-125
    if has_terms or np.frexp(case.scale)[0] not in (0.5, -0.5, 0):
        rounding = eps * largest(size, keep & np.isfinite(size)).clip(min=0)
    if case.log:
        values = np.where(keep & ~nothing, normal, -np.inf)
        bound = units * eps * (2 + np.abs(np.where(np.isfinite(values), values, 0))) + 2 * rounding
    else:
        values = np.where(keep & ~nothing, np.exp(normal), 0)
        top_value = largest(values, np.isfinite(values)).clip(min=0)
        bound = units * np.spacing(top_value.astype(narrow)) + 2 * rounding * top_value + tiny + 0 * values
        bound = np.where(np.isfinite(bound), bound, 0)
    return Reference(values, bound)


@np.errstate(all="ignore")
def lse_reference(case: SoftmaxCase, inputs: Inputs) -> Reference:
    """lse = log of the sum of exp(scale * x + bias) over the unmasked columns.

    bound: the rounding of the result and of scale * x + bias, and of a logarithm.
    """
    eps, units, _, wide = precision_of(case.dtype)
    keep = unmasked(case, inputs)
    logits, size = scores_of(case, inputs, wide)
    sinks = sinks_of(inputs, wide)
    top = np.maximum(largest(logits, keep), sinks)
    reference = np.where(top == -np.inf, 0, top)
    total = np.sum(np.exp(np.where(keep, logits, -np.inf) - reference), axis=-1, keepdims=True)
    values = (reference + np.log(total + np.exp(sinks - reference)))[..., 0]
    size = size + np.where(np.isfinite(sinks), np.abs(sinks), 0)
    size = largest(size, keep & np.isfinite(size)).clip(min=0)[..., 0]
    bound = eps * (units + 2 * size + np.abs(values))
    return Reference(values, np.where(np.isfinite(bound), bound, 0))


@np.errstate(all="ignore")
def backward_reference(
    case: SoftmaxCase, keep: np.ndarray, dy: np.ndarray, y: np.ndarray, dlse: np.ndarray | None = None
) -> Reference:
    """dx = scale * y * (dy - sum(y * dy) + dlse); with log scale * (dy - exp(y) * (sum(dy) - dlse)).

    dx is 0 where masked out, and with log also where y is -infinity. bound: 2 * units * epsilon * the terms' size.
    """
    if is_large_matrix(y.shape):
        per_row = (keep, dy, y) if dlse is None else (keep, dy, y, dlse)
        rows = [backward_reference(case, *(row[None] for row in of_row)) for of_row in zip(*per_row)]
        return Reference(*map(np.concatenate, zip(*rows)))
    eps, units, narrow, wide = precision_of(y.dtype.name)
    gradient, result = dy.astype(wide), y.astype(wide)
    if case.log:
        keep = keep & (result != -np.inf)
    probability = np.where(keep, np.exp(result) if case.log else result, 0)
    gradient = np.where(keep, gradient, 0)
    weight = np.where(keep, 1, 0) if case.log else probability
    total = np.sum(weight * gradient, axis=-1, keepdims=True)
    size = np.sum(np.abs(weight * gradient), axis=-1, keepdims=True)
    if dlse is not None:
        total = total - dlse[..., None].astype(wide)
        size = size + np.abs(dlse[..., None])
    if case.log:
        values = gradient - probability * total
        exponent = np.abs(np.where(probability > 0, result, 0))
        terms = np.abs(gradient) + probability * (size + np.abs(total) * exponent)
    else:
        values = probability * (gradient - total)
        terms = probability * (np.abs(gradient) + size)
    values = np.where(keep, case.scale * values, 0)
    denormal = 32 * np.finfo(narrow).tiny  # products below the smallest normal number may become 0
    return Reference(values, np.where(keep, 2 * units * eps * abs(case.scale) * terms + denormal, 0))


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The nearest numbers of `dtype`, in float64. NumPy takes 100 ns to convert to a float16 below the smallest normal
    number, and long rows have many: adding and subtracting 1.5 * 2^52 times float16's last place rounds faster.
    """
    if dtype != np.float16 or values.dtype != np.float64:
        return values.astype(dtype).astype(np.float64)
    near = values.clip(-(2.0**17), 2.0**17)
    power = (near.view(np.uint64) & np.uint64(0x7FF << 52)).view(np.float64)
    shift = power.clip(min=2.0**-14) * (1.5 * 2.0**42)
    near = (near + shift) - shift
    return np.where(np.abs(near) > 65504, near * np.inf, near)


@np.errstate(all="ignore")
def is_within(actual: np.ndarray, reference: Reference) -> np.ndarray:
    """For each element, whether it is the rounding of a value within the reference's bound. NaN matches NaN.

    Rounding is monotone: such an element lies between the roundings of both bounds.
    """
    if is_large_matrix(actual.shape):
        return np.stack([is_within(row, Reference(*of_row)) for row, *of_row in zip(actual, *reference)])
    low, high = (rounded(reference.values + sign * reference.bound, actual.dtype) for sign in (-1, 1))
    got = actual.astype(np.float64)
    return ((low <= got) & (got <= high)) | (np.isnan(got) & np.isnan(reference.values))


def assert_within(actual: np.ndarray, reference: Reference) -> None:
    """Asserts is_within() for every element."""
    right = is_within(actual, reference)
    if not right.all():
        wrong = np.argwhere(~right)
        shown = [
            f"{tuple(map(int, index))}: {float(actual[tuple(index)])!r} instead of {reference.values[tuple(index)]!r} "
            f"+- {reference.bound[tuple(index)]:.3g}"
            for index in wrong[:6]
        ]
        count = f"{len(wrong)} of {actual.size} elements of {actual.dtype}"
        raise AssertionError(f"{count} are wrong:\n  " + "\n  ".join(shown))


def row_strides(shape: Sequence[int], itemsize: int, pad: int, strided: bool = False) -> tuple[int, ...]:
    """Strides in bytes of C order, with `pad` elements free after each run of the innermost dimension. `strided`: the
    columns are the second dimension in memory, or the first of two."""
    strides, reach = [itemsize] * len(shape), itemsize
    order = list(range(len(shape)))
    if strided:
        order.insert(len(shape) > 2, order.pop())
    for number, dimension in enumerate(reversed(order)):
        strides[dimension] = reach
        reach *= max(shape[dimension], 1)
        reach += pad * itemsize if number == 0 else 0
    return tuple(strides)
