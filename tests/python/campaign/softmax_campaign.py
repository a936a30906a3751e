# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_masked_softmax and flowk_masked_softmax_backward, with every part of a mask."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import (
    any_strides,
    chance,
    contiguous,
    generator,
    given_pointer,
    given_strides,
    separate_strides,
    shape,
    tensor,
)
from softmax_cases import DTYPES, SoftmaxCase
from softmax_reference import (
    Inputs,
    Reference,
    assert_within,
    backward_reference,
    lse_reference,
    precision_of,
    softmax_reference,
    unmasked,
    x_values,
)

# Columns of every kind of row: as many as a vector, a warp and a block hold, one more and one fewer, odd numbers.
SHORT = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 77, 100, 127, 128, 129)
MIDDLE = (200, 255, 256, 257, 500, 511, 512, 513, 1000, 1001, 1023, 1024, 1025)
LONG = (2047, 2048, 2049, 4096, 4097, 5003, 8192, 8193)
LONGEST = (32768, 50257, 100003, 131072)
ROUND = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SCALES = (1.0, 1.0, 0.125, 0.3, -2.0, 0.0)
FAR = (2**62, -(2**62), 2**40, -(2**33))


def _extents(r: random.Random, room: int) -> tuple[int, ...]:
    columns = r.choice(r.choice((SHORT, SHORT, SHORT, MIDDLE, MIDDLE, LONG, ROUND, ROUND)) if chance(r, 97) else (0,))
    if chance(r, 2):
        columns = r.choice(LONGEST)
    if room:
        columns = min(columns, r.choice((1, 2, 5, room)))
    room = max(1, min(r.choice((6, 60, 200)), (room or 6000) // max(columns, 1)))
    return (*shape(r, max_rank=31, room=room), columns)


def row_strides(r: random.Random, extents: tuple[int, ...], is_output: bool = False) -> tuple[int, ...]:
    """Strides; the last one is 1, or any if it has no effect."""
    last = 1 if extents[-1] != 1 or chance(r, 50) else r.choice((0, 5, -3, 2**40))
    if chance(r, 55):
        return (*contiguous(extents)[:-1], last)
    strides = separate_strides if is_output else any_strides
    return (*strides(r, extents[:-1], max(extents[-1], 1)), last)


def _broadcast_strides(r: random.Random, extents: tuple[int, ...]) -> tuple[int, ...]:
    strides = row_strides(r, extents)
    return tuple(0 if chance(r, 35) else stride for stride in strides[:-1]) + strides[-1:]


def types_of(r: random.Random) -> tuple[np.dtype, np.dtype]:
    """Of x and y."""
    x = y = r.choice(DTYPES)
    if chance(r, 20) and x != "float64":
        y = r.choice(("float16", "bfloat16")) if x == "float32" else "float32"
    return np.dtype(x), np.dtype(y)


def options_of(r: random.Random, extents: tuple[int, ...], x: np.dtype, y: np.dtype) -> SoftmaxCase:
    """The arguments of a call that are no tensors."""
    has_diagonal = chance(r, 45)
    causal, has_window = has_diagonal and chance(r, 60), has_diagonal and chance(r, 60)
    offset = r.choice(FAR) if chance(r, 5) else r.randrange(-extents[-1] - 2, extents[-1] + 3)
    window = (r.choice(FAR[::2]) if chance(r, 5) else r.randrange(1, extents[-1] + 9)) if has_window else None
    return SoftmaxCase(
        extents,
        x.name,
        "",
        lengths_from_right=r.choice((False, True)),
        causal=causal,
        causal_offset=offset if has_diagonal else 0,
        window=window,
        scale=r.choice(SCALES),
        out_dtype=y.name,
        log=chance(r, 35),
        batch_invariant=chance(r, 12),
        values=r.choice(("normal", "normal", "wide", "negative", "special")),
    )


def x_of(r: random.Random, case: SoftmaxCase) -> Tensor:
    rng = generator(r)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return x_values(case._replace(shape=shape), rng)

    return tensor(r, np.dtype(case.dtype), case.shape, row_strides(r, case.shape), values)


def lengths_of(r: random.Random, case: SoftmaxCase) -> Tensor:
    rng, columns, dtype = generator(r), case.shape[-1], np.dtype(r.choice(("int32", "int64")))
    info = np.iinfo(dtype)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        edges = np.array((columns, 0, columns + 5, 1, -3, columns - 1, info.max, info.min), dtype)
        return np.where(rng.integers(0, 3, shape) == 0, rng.choice(edges, shape), rng.integers(0, columns + 1, shape))

    leading = case.shape[:-1]
    strides = any_strides(r, leading)
    if chance(r, 30):
        strides = tuple(0 if chance(r, 60) else stride for stride in strides)
    return tensor(r, dtype, leading, strides, values)


def row_numbers_of(r: random.Random, case: SoftmaxCase, low: float, high: float) -> Tensor:
    """Sinks, or a scale per row."""
    rng, dtype = generator(r), row_dtype(case)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return rng.uniform(low, high, shape).astype(dtype)

    strides = any_strides(r, case.shape[:-1])
    if chance(r, 40):
        strides = tuple(0 if chance(r, 60) else stride for stride in strides)
    return tensor(r, dtype, case.shape[:-1], strides, values)


def row_dtype(case: SoftmaxCase) -> np.dtype:
    return np.dtype("float64" if case.dtype == "float64" else "float32")


def dense_of(r: random.Random, case: SoftmaxCase) -> Tensor:
    rng, masked = generator(r), r.choice((0.0, 0.1, 0.5, 0.95, 1.0))

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return np.where(rng.random(shape) < masked, rng.integers(1, 256, shape), 0).astype(np.uint8)

    return tensor(r, np.dtype(np.uint8), case.shape, _broadcast_strides(r, case.shape), values)


def bias_of(r: random.Random, case: SoftmaxCase) -> Tensor:
    rng = generator(r)
    dtype = np.dtype("float32" if case.dtype in ("float16", "bfloat16") and chance(r, 30) else case.dtype)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        some = rng.normal(0, 2, shape)
        return np.where(rng.integers(0, 11, shape) == 0, -np.inf, some).astype(dtype)

    return tensor(r, dtype, case.shape, _broadcast_strides(r, case.shape), values)


def _mask(r: random.Random, case: SoftmaxCase, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """The struct's members."""
    mask: dict[str, Any] = {}
    for name in ("dense", "lengths", "bias"):
        if name in tensors:
            one = tensors[name]
            mask |= {name: one, f"{name}_strides": given_strides(r, one)}
            if name != "dense":
                mask[f"{name}_dtype"] = DTYPE_CODES[one.dtype]
    for name in ("sinks", "row_scale"):
        if name in tensors:
            mask |= {name: tensors[name], f"{name}_strides": given_strides(r, tensors[name])}
    if "x" in tensors and case.softcap and "dx" in tensors:
        mask |= {"x": tensors["x"], "x_strides": given_strides(r, tensors["x"])}
    mask |= {name: tensors[name] for name in ("lse", "dlse", "dsinks") if name in tensors}
    mask |= {"softcap": case.softcap} if case.softcap else {}
    mask |= {"causal": int(case.causal), "causal_offset": case.causal_offset, "window": case.window or 0}
    mask["lengths_from_right"], mask["batch_invariant"] = int(case.lengths_from_right), int(case.batch_invariant)
    return None if not any(mask.values()) and chance(r, 80) else mask


def _lay_apart(r: random.Random, inputs: Sequence[Tensor], output: Tensor) -> None:
    """Without a mask the columns may have any strides."""
    output.strides = separate_strides(r, output.shape)
    for one in inputs:
        if one is not output:
            one.strides = any_strides(r, one.shape)


def _row_values(r: random.Random, case: SoftmaxCase, scale: float | None = None) -> Tensor:
    """A number per row: an output, or random numbers of this size."""
    dtype, rng = row_dtype(case), generator(r)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(scale * rng.standard_normal(shape)).astype(dtype)

    leading = case.shape[:-1]
    return tensor(r, dtype, leading, contiguous(leading), None if scale is None else values)


def _inputs(x: np.ndarray, before: Outputs) -> Inputs:
    return Inputs(x, *(before.get(name) for name in ("dense", "lengths", "bias", "sinks", "row_scale")))


def has_plain_scores(case: SoftmaxCase, inputs: Inputs) -> bool:
    """Whether an infinite x stays infinite with a scale of 0."""
    return inputs.bias is None and inputs.row_scale is None and not case.softcap


def reference_of(case: SoftmaxCase, inputs: Inputs) -> Reference:
    if case.scale == 0 and has_plain_scores(case, inputs):  # infinities stay what they are
        finite_as_0 = np.where(np.isfinite(inputs.x.astype(np.float64)), inputs.x.dtype.type(0), inputs.x)
        return softmax_reference(case._replace(scale=1.0), inputs._replace(x=finite_as_0))
    return softmax_reference(case, inputs)


def lse_of(case: SoftmaxCase, inputs: Inputs) -> Reference:
    if case.scale == 0 and has_plain_scores(case, inputs):
        finite_as_0 = np.where(np.isfinite(inputs.x.astype(np.float64)), inputs.x.dtype.type(0), inputs.x)
        return lse_reference(case._replace(scale=1.0), inputs._replace(x=finite_as_0))
    return lse_reference(case, inputs)


def softmax_case(r: random.Random, room: int = 0) -> Case:
    extents = _extents(r, room)
    x_dtype, y_dtype = types_of(r)
    case = options_of(r, extents, x_dtype, y_dtype)
    x = x_of(r, case)
    y = tensor(r, y_dtype, extents, row_strides(r, extents, is_output=True))
    tensors = {"x": x, "y": y}
    if x_dtype == y_dtype and chance(r, 25):
        x.strides = y.strides
        tensors["y"] = y = x
    for name, make, percent in (("dense", dense_of, 30), ("lengths", lengths_of, 30), ("bias", bias_of, 25)):
        if chance(r, percent):
            tensors[name] = make(r, case)
    if extents[-1] > 0 and chance(r, 40):
        tensors["lse"] = _row_values(r, case)
    if chance(r, 25):
        size = r.choice((3, 300))
        tensors["sinks"] = row_numbers_of(r, case, -size, size)
    if chance(r, 15):
        tensors["row_scale"] = row_numbers_of(r, case, 0.25, 2)
    if chance(r, 15):
        case = case._replace(softcap=r.choice((0.5, 3.0, 50.0)))

    mask = _mask(r, case, tensors)
    if mask is None and chance(r, 60):
        _lay_apart(r, (x,), y)

    def check(before: Outputs, after: Outputs) -> None:
        if 0 in extents:
            return
        inputs = _inputs(before["x"], before)
        assert_within(after["y"], reference_of(case, inputs))
        assert (after["y"][~unmasked(case, inputs)] == (-np.inf if case.log else 0)).all()
        if "lse" in tensors:
            assert_within(after["lse"], lse_of(case, inputs))

    arguments = {
        "x": given_pointer(r, x, x.is_empty),
        "x_strides": given_strides(r, x),
        "x_dtype": DTYPE_CODES[x_dtype],
        "y": given_pointer(r, y, y.is_empty),
        "y_strides": given_strides(r, y),
        "y_dtype": DTYPE_CODES[y_dtype],
        **_rest(r, case, mask),
    }
    outputs = ("y", "lse") if "lse" in tensors else ("y",)
    return Case("flowk_masked_softmax", arguments, tensors, outputs, check)


def _rest(r: random.Random, case: SoftmaxCase, mask: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "rank": len(case.shape),
        "shape": case.shape,
        "scale": case.scale,
        "mask": mask,
        "log_softmax": int(case.log),
    }


def softmax_backward_case(r: random.Random, room: int = 0) -> Case:
    return gradient_case(r, room)[1]


def gradient_case(r: random.Random, room: int) -> tuple[SoftmaxCase, Case]:
    extents = _extents(r, room)
    dx_dtype, y_dtype = types_of(r)
    case = options_of(r, extents, dx_dtype, y_dtype)._replace(values=r.choice(("normal", "wide", "negative")))
    of_y = case._replace(dtype=y_dtype.name)
    rng, has_nan = generator(r), chance(r, 15)
    tensors: dict[str, Tensor] = {}
    if chance(r, 35):
        tensors["lengths"] = lengths_of(r, case)
    if chance(r, 35):
        tensors["dlse"] = _row_values(r, case, 1.0)

    def values_of_y(shape: tuple[int, ...]) -> np.ndarray:
        # Of the call without lengths: what they mask is not read.
        x = x_values(case, rng)
        dense = (rng.random(shape) < r_dense).astype(np.uint8)
        return reference_of(case, Inputs(x, dense, None, None)).values.astype(y_dtype)

    def values_of_dy(shape: tuple[int, ...]) -> np.ndarray:
        some = rng.normal(0, 1, shape)
        if has_nan:
            some = np.where(rng.integers(0, 4 * shape[-1], shape) == 0, np.nan, some)
        return some.astype(y_dtype)

    r_dense = r.choice((0.0, 0.3, 1.0))
    dy = tensor(r, y_dtype, extents, row_strides(r, extents), values_of_dy)
    y = tensor(r, y_dtype, extents, row_strides(r, extents, is_output=True), values_of_y)
    dx = tensor(r, dx_dtype, extents, row_strides(r, extents, is_output=True))
    if dx_dtype == y_dtype and chance(r, 35):
        taken = r.choice((dy, y))
        taken.strides = dx.strides
        dx = taken
    tensors |= {"dy": dy, "y": y, "dx": dx}
    if chance(r, 15):
        tensors["row_scale"] = row_numbers_of(r, case, 0.25, 2)
    if chance(r, 15):
        case = case._replace(softcap=r.choice((0.5, 3.0, 50.0)))
        tensors["x"] = tensor(
            r, y_dtype, extents, row_strides(r, extents), lambda shape: rng.normal(0, 3, shape).astype(y_dtype)
        )
    if extents[-1] > 0 and chance(r, 25):
        tensors["sinks"], tensors["lse"] = row_numbers_of(r, of_y, -3, 3), _row_values(r, of_y, 2.0)
        tensors["dsinks"] = _row_values(r, of_y)
    mask = _mask(r, case, {name: one for name, one in tensors.items() if name not in ("dy", "y")})
    if mask is None and chance(r, 60):
        _lay_apart(r, (dy, y), dx)

    def check(before: Outputs, after: Outputs) -> None:
        if 0 in extents:
            return
        keep = unmasked(case, Inputs(before["dy"], None, before.get("lengths"), None))
        of_z = backward_reference(case._replace(scale=1.0), keep, before["dy"], before["y"], before.get("dlse"))
        assert_within(after["dx"], _of_x(case, of_z, before))
        assert (after["dx"][~keep] == 0).all()
        if "dsinks" in tensors:
            assert_within(after["dsinks"], _of_sinks(case, keep, before))

    arguments = {
        "dy": given_pointer(r, dy, dy.is_empty),
        "dy_strides": given_strides(r, dy),
        "y": given_pointer(r, y, y.is_empty),
        "y_strides": given_strides(r, y),
        "y_dtype": DTYPE_CODES[y_dtype],
        "dx": given_pointer(r, dx, dx.is_empty),
        "dx_strides": given_strides(r, dx),
        "dx_dtype": DTYPE_CODES[dx_dtype],
        **_rest(r, case, mask),
    }
    outputs = ("dx", "dsinks") if "dsinks" in tensors else ("dx",)
    return case, Case("flowk_masked_softmax_backward", arguments, tensors, outputs, check)


@np.errstate(all="ignore")
def _of_x(case: SoftmaxCase, of_z: Reference, before: Outputs) -> Reference:
    """The gradient of x from that of z."""
    epsilon, _, narrow, wide = precision_of(before["y"].dtype.name)
    factor = np.array(case.scale, wide)
    if "row_scale" in before:
        factor = factor * before["row_scale"][..., None].astype(wide)
    slope = factor
    if case.softcap:
        slope = factor * (1 - np.tanh(factor * before["x"].astype(wide) / case.softcap) ** 2)
    values = np.where(of_z.values == 0, 0, slope * of_z.values)
    bound = np.abs(factor) * (of_z.bound + (16 if case.softcap else 4) * epsilon * np.abs(of_z.values))
    return Reference(values, np.where(np.isfinite(bound), bound + 32 * np.finfo(narrow).tiny, 0))


@np.errstate(all="ignore")
def _of_sinks(case: SoftmaxCase, keep: np.ndarray, before: Outputs) -> Reference:
    """Each row's part of the gradient of its sink."""
    epsilon, units, narrow, wide = precision_of(before["y"].dtype.name)
    dy, y = before["dy"].astype(wide), before["y"].astype(wide)
    if case.log:
        keep = keep & (y != -np.inf)
    terms = np.where(keep, dy if case.log else dy * y, 0)
    dlse = before["dlse"].astype(wide) if "dlse" in before else 0
    exponents = before["sinks"].astype(wide) - before["lse"].astype(wide)
    values = -np.exp(exponents) * (terms.sum(-1) - dlse)
    size = np.exp(exponents) * (np.abs(terms).sum(-1) + np.abs(dlse)) * (2 + np.abs(exponents))
    bound = 2 * units * epsilon * size + 32 * np.finfo(narrow).tiny
    return Reference(values, np.where(np.isfinite(bound), bound, 0))
