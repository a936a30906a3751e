# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_softmax_merge."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import chance, contiguous, generator, tensor
from softmax_campaign import MIDDLE, SHORT
from softmax_cases import DTYPES
from test_softmax_merge import EPS, reference


def softmax_merge_case(r: random.Random, room: int = 0) -> Case:
    name = r.choice(DTYPES)
    dtype, wide = np.dtype(name), np.dtype("float64" if name == "float64" else "float32")
    columns = r.choice(r.choice((SHORT, MIDDLE)))
    columns = min(columns, room) if room else columns
    rows = r.randrange(0, 1 + max(1, min(60, (room or 6000) // columns)))
    rng, size = generator(r), r.choice((1, 40))

    def of_y(shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(3 * rng.standard_normal(shape)).astype(dtype)

    def of_lse(shape: tuple[int, ...]) -> np.ndarray:
        special = rng.choice([-np.inf, np.nan, np.inf, 0.0], shape)
        return np.where(rng.integers(0, 6, shape) == 0, special, size * rng.standard_normal(shape)).astype(wide)

    def new(element: np.dtype, shape: tuple[int, ...], values: Any = None) -> Tensor:
        return tensor(r, element, shape, contiguous(shape), values)

    tensors = {f"y{i}": new(dtype, (rows, columns), of_y) for i in (1, 2)}
    tensors |= {f"lse{i}": new(wide, (rows,), of_lse) for i in (1, 2)}
    tensors["y"] = tensors[r.choice(("y1", "y2"))] if chance(r, 30) else new(dtype, (rows, columns))
    tensors["lse"] = new(wide, (rows,))

    def check(before: Outputs, after: Outputs) -> None:
        if rows == 0:
            return
        y, lse = reference(*(before[one] for one in ("y1", "lse1", "y2", "lse2")))
        unit = EPS[wide.name]
        bound = EPS[name] / 2 * np.abs(y) + 120 * unit + (2.0**-25 if name == "float16" else 0)
        found = after["y"].astype(np.longdouble)
        assert (np.isnan(found) == np.isnan(y)).all()
        assert (np.abs(found - y)[~np.isnan(y)] <= bound[~np.isnan(y)]).all()
        np.testing.assert_allclose(
            *(after["lse"].astype(np.float64), lse.astype(np.float64)), rtol=4 * unit, atol=4 * unit
        )

    names = ("y1", "lse1", "y2", "lse2", "y", "lse")
    arguments = {one: tensors[one] for one in names}
    arguments |= {"rows": rows, "columns": columns, "dtype": DTYPE_CODES[dtype]}
    return Case("flowk_softmax_merge", arguments, tensors, ("y", "lse"), check)
