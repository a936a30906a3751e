# SPDX-License-Identifier: Apache-2.0
"""batch_invariant: a row has the same bits alone and among others, at any place, address and distance of rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import pytest
from library_under_test import TEST_LIBRARY
from softmax_cases import DTYPES

import pyflowk

COLUMNS = [1, 3, 8, 16, 31, 64, 77, 128, 250, 333, 512, 1000, 1025, 4096, 5003, 8192]
LONG = [40000, 50257, 131072, 200003]
ROWS = 5
LEADS = (0, 1, 2, 5, 8)
GAPS = (0, 1, 8)
PARTS = (slice(0, ROWS), slice(0, 1), slice(2, 3), slice(1, 4))


def masks_of(rng: np.random.Generator, columns: int, dtype: str) -> dict[str, dict[str, Any]]:
    shape = (ROWS, columns)
    dense, bias = rng.random(shape) < 0.3, rng.standard_normal(shape).astype(dtype)
    lengths = rng.integers(0, columns + 1, ROWS)
    sinks = rng.standard_normal(ROWS).astype("float64" if dtype == "float64" else "float32")
    return {
        "none": {"scale": -0.7},
        "dense": {"mask": dense},
        "lengths": {"lengths": lengths, "log": True},
        "from the right": {"lengths": lengths, "lengths_from_right": True},
        "bias": {"bias": bias},
        "wide bias": {"bias": bias.astype("float64" if dtype == "float64" else "float32"), "mask": dense},
        "all": {"mask": dense, "bias": bias, "lengths": lengths, "sinks": sinks, "softcap": 3.0},
    }


def apart(arrays: Any, values: np.ndarray, lead: int, gap: int) -> Any:
    """The values in memory `lead` elements past an aligned address, with `gap` elements between the rows."""
    rows, columns = values.shape
    flat = np.zeros(lead + rows * (columns + gap), values.dtype)
    flat[lead:].reshape(rows, columns + gap)[:, :columns] = values
    size = values.itemsize
    strides = (size * (columns + gap), size)
    return arrays.view(arrays.put(flat.view(np.uint8)), lead * size, values.shape, strides, values.dtype)


def rows_of(given: dict[str, Any], part: slice) -> dict[str, Any]:
    return {name: one[part] if isinstance(one, np.ndarray) else one for name, one in given.items()}


def put(arrays: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays.put(one) if isinstance(one, np.ndarray) else one for name, one in given.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", masks_of(np.random.default_rng(0), 4, "float32"))
def test_a_row_has_the_same_bits_at_every_place(arrays: Any, dtype: str, mask: str) -> None:
    check(arrays, dtype, mask, COLUMNS)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("mask", ["none", "dense", "all"])
def test_so_has_a_row_of_a_cluster(arrays: Any, dtype: str, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWK_SIMT_CAPABILITY", "90")
    check(arrays, dtype, mask, LONG if TEST_LIBRARY == "cuda" else LONG[:2])


def check(arrays: Any, dtype: str, mask: str, columns_of: list[int]) -> None:
    for columns in columns_of:
        rng = np.random.default_rng(columns)
        given = masks_of(rng, columns, dtype)[mask]
        x, dy = (3 * rng.standard_normal((2, ROWS, columns))).astype(dtype)
        options = {"batch_invariant": True, "return_lse": True}
        y, lse = map(arrays.fetch, pyflowk.masked_softmax(arrays.put(x), **put(arrays, given), **options))
        backward = {name: one for name, one in given.items() if name not in ("mask", "bias", "sinks")}
        backward |= {"scores": x} if "softcap" in given else {}
        backward["dlse"] = lse
        dx = gradient(arrays, dy, y, backward)
        places = [(lead, gap, part) for lead in LEADS for gap in GAPS for part in PARTS]
        for lead, gap, part in places if columns < 1000 else places[columns % 7 :: 7]:
            moved, out = apart(arrays, x[part], lead, gap), apart(arrays, np.zeros_like(x[part]), lead // 2, gap)
            other, other_lse = pyflowk.masked_softmax(moved, **put(arrays, rows_of(given, part)), out=out, **options)
            where = (columns, lead, gap, part)
            assert arrays.fetch(other).tobytes() == y[part].tobytes(), where
            assert arrays.fetch(other_lse).tobytes() == lse[part].tobytes(), where
            of_part = rows_of(backward, part)
            assert gradient(arrays, dy, y, of_part, lead, gap, part).tobytes() == dx[part].tobytes(), where


def gradient(
    arrays: Any,
    dy: np.ndarray,
    y: np.ndarray,
    given: dict[str, Any],
    lead: int = 0,
    gap: int = 0,
    part: slice = PARTS[0],
) -> np.ndarray:
    moved, of_y = apart(arrays, dy[part], lead, gap), apart(arrays, y[part], (lead + 3) % 8, gap)
    options = put(arrays, given)
    dx: np.ndarray = arrays.fetch(pyflowk.masked_softmax_backward(moved, of_y, **options, batch_invariant=True))
    return dx


def test_the_plan_says_so(arrays: Any) -> None:
    x = arrays.put(np.zeros((3, 77), np.float16))
    text = str(pyflowk.explain(pyflowk.masked_softmax, x, batch_invariant=True))
    assert "row_in_registers" in text and "batch-invariant" in text and "of any alignment" in text


def test_it_is_a_flag(arrays: Any) -> None:
    with pytest.raises(TypeError, match="batch_invariant"):
        pyflowk.masked_softmax(arrays.put(np.zeros((3, 4))), batch_invariant=1)
