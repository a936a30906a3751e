# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_prelu and flowk_prelu_backward."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import chance, contiguous, generator, given_pointer, shape, tensor
from permute_campaign import assert_same
from prelu_cases import DTYPES, dalpha_bound, data_of

Values = Callable[[tuple[int, ...]], np.ndarray]


def values_of(r: random.Random, dtype: np.dtype, finite: bool = False) -> Values:
    """Normal numbers with zeros of both signs; now and then infinities and NaN too."""
    rng, special = generator(r), not finite and chance(r, 20)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        some = rng.standard_normal(shape)
        kind = rng.integers(0, 20, shape)
        some = np.where(kind == 0, 0.0, np.where(kind == 1, -0.0, some))
        if special:
            some = np.where(kind == 2, np.nan, np.where(kind == 3, np.inf, np.where(kind == 4, -np.inf, some)))
        return some.astype(dtype)

    return values


def _sizes(r: random.Random, room: int) -> tuple[int, int, int]:
    if room or chance(r, 30):  # any product: long planes, many channels
        return (1, 1, 1, *shape(r, max_rank=3, room=room))[-3:]
    extents = [
        r.choice((1, 2, 3, 7, 8, 16, 33, 64)),
        r.choice((1, 3, 4, 5, 8, 24, 64, 200)),
        r.choice((1, 3, 8, 49, 64)),
    ]
    return tuple(extents)


def _types(r: random.Random) -> tuple[np.dtype, np.dtype]:
    dtype = r.choice(tuple(DTYPES.values()))
    return dtype, np.dtype(np.float32) if dtype.itemsize == 2 and chance(r, 30) else dtype


def _tensor(r: random.Random, dtype: np.dtype, extents: tuple[int, ...], values: Values | None = None) -> Tensor:
    return tensor(r, dtype, extents, contiguous(extents), values)


def _common(sizes: tuple[int, int, int], dtype: np.dtype, alpha_dtype: np.dtype) -> dict[str, Any]:
    codes = {"dtype": DTYPE_CODES[dtype], "alpha_dtype": DTYPE_CODES[alpha_dtype]}
    return dict(zip(("outer", "channels", "inner"), sizes)) | codes


def prelu_case(r: random.Random, room: int = 0) -> Case:
    sizes, (dtype, alpha_dtype) = _sizes(r, room), _types(r)
    x = _tensor(r, dtype, sizes, values_of(r, dtype))
    alpha = _tensor(r, alpha_dtype, sizes[1:2], values_of(r, alpha_dtype))
    y = x if chance(r, 25) else _tensor(r, dtype, sizes)

    def check(before: Outputs, after: Outputs) -> None:
        if 0 not in sizes:
            assert_same(after["y"], data_of(before["x"], before["x"], before["alpha"], 1).y)

    empty = 0 in sizes
    arguments = {name: given_pointer(r, one, empty) for name, one in (("x", x), ("alpha", alpha), ("y", y))}
    tensors = {"x": x, "alpha": alpha, "y": y}
    return Case("flowk_prelu", arguments | _common(sizes, dtype, alpha_dtype), tensors, ("y",), check)


def prelu_backward_case(r: random.Random, library: Any, room: int = 0) -> Case:
    sizes, (dtype, alpha_dtype) = _sizes(r, room), _types(r)
    dy, x = (_tensor(r, dtype, sizes, values_of(r, dtype, finite=True)) for _ in range(2))
    alpha = _tensor(r, alpha_dtype, sizes[1:2], values_of(r, alpha_dtype, finite=True))
    dx = r.choice((None, dy, x, *[_tensor(r, dtype, sizes)] * 3))
    dalpha = _tensor(r, alpha_dtype, sizes[1:2]) if dx is None or chance(r, 70) else None
    empty = 0 in sizes
    common = _common(sizes, dtype, alpha_dtype)
    needed = ctypes.c_size_t(0)
    query = library.flowk_prelu_backward_workspace_bytes
    assert query(*common.values(), ctypes.addressof(needed)) == 0, library.flowk_last_error()
    num_bytes = needed.value + (r.randrange(100) if not room and chance(r, 30) else 0)
    workspace = Tensor(np.dtype(np.uint8), (num_bytes,), (1,), 16 * r.randrange(4)) if num_bytes else None
    is_left_out = workspace is not None and (dalpha is None or needed.value == 0) and chance(r, 50)
    tensors = {"dy": dy, "x": x, "alpha": alpha}
    tensors |= {name: one for name, one in (("dx", dx), ("dalpha", dalpha), ("workspace", workspace)) if one}

    def check(before: Outputs, after: Outputs) -> None:
        if empty:
            assert "dalpha" not in after or not after["dalpha"].any()
            return
        data = data_of(before["x"], before["dy"], before["alpha"], 1)
        if "dx" in after:
            assert_same(after["dx"], data.dx)
        if "dalpha" in after:
            error = np.abs(after["dalpha"].astype(np.float64) - data.dalpha)
            assert (error <= dalpha_bound(data)).all(), (error.max(), after["dalpha"], data.dalpha)

    pointers = {name: given_pointer(r, one, empty) for name, one in (("dy", dy), ("x", x), ("alpha", alpha))}
    arguments = {
        **pointers,
        "dx": dx,
        "dalpha": dalpha,
        **common,
        "workspace": None if is_left_out else workspace,
        "workspace_bytes": 0 if workspace is None or is_left_out else num_bytes,
    }
    outputs = tuple(name for name in ("dx", "dalpha") if name in tensors)
    scratch = ("workspace",) if workspace else ()
    return Case("flowk_prelu_backward", arguments, tensors, outputs, check, scratch)
