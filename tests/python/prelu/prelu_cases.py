# SPDX-License-Identifier: Apache-2.0
"""The cases of PReLU: the table that C++ and bench read too, and arrays of any rank. A row says why it is there."""

from __future__ import annotations

import json
from typing import NamedTuple

import ml_dtypes
import numpy as np
from source_tree import ROOT

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
CODES = {"float16": 10, "bfloat16": 11, "float32": 12, "float64": 13}


class PreluCase(NamedTuple):
    """x of `shape`, dimensions in memory in `order` (outermost first); `leads` are elements past 16 aligned bytes."""

    shape: tuple[int, ...]
    channel_axis: int
    dtype: str
    why: str
    alpha_dtype: str = ""
    one_alpha: bool = False
    order: tuple[int, ...] = ()
    leads: tuple[int, int, int] = (0, 0, 0)  # of x, dy and the output

    @property
    def id(self) -> str:
        marks = [f"alpha_{self.alpha_dtype}" * bool(self.alpha_dtype), "one_alpha" * self.one_alpha]
        marks += ["order_" + "".join(map(str, self.order)) if self.order else ""]
        marks += ["leads_" + "".join(map(str, self.leads)) if any(self.leads) else ""]
        return "-".join(["x".join(map(str, self.shape)), f"axis{self.channel_axis}", self.dtype, *filter(None, marks)])


def _rows() -> list[PreluCase]:
    rows = []
    for dtype in DTYPES:
        rows += [
            PreluCase((3, 5, 8, 8), 1, dtype, "NCHW: planes of whole vectors"),
            PreluCase((6, 16, 7, 7), 1, dtype, "NCHW: 7x7"),
            PreluCase((2, 5, 57, 57), 1, dtype, "NCHW: planes of an odd size, longer than a block"),
            PreluCase((20, 8, 3, 3), 1, dtype, "NCHW: planes of about one vector"),
            PreluCase((5, 6, 7, 64), -1, dtype, "NHWC: rows of whole vectors"),
            PreluCase((9, 11, 5, 3), 3, dtype, "NHWC: 3 channels"),
            PreluCase((2, 7, 6, 5), 1, dtype, "channels last in memory", order=(0, 2, 3, 1)),
            PreluCase((4, 3, 5), 2, dtype, "channels outermost in memory", order=(2, 1, 0)),
            PreluCase((97, 100), 1, dtype, "(N, C)"),
            PreluCase((2, 2048), 1, dtype, "(N, C), more columns than rows"),
            PreluCase((1000,), 0, dtype, "(C,)"),
            PreluCase((13, 77), 0, dtype, "channels first"),
            PreluCase((31, 33), 1, dtype, "one alpha for all elements", one_alpha=True),
            PreluCase((40000,), 0, dtype, "one alpha for many elements", one_alpha=True),
            PreluCase((), 0, dtype, "one element, no dimensions", one_alpha=True),
            PreluCase((3, 5, 8, 8), 1, dtype, "misaligned alike", leads=(1, 1, 1)),
            PreluCase((3, 5, 9, 9), 1, dtype, "only x misaligned", leads=(1, 0, 0)),
            PreluCase((30, 5), 1, dtype, "only dy misaligned", leads=(0, 1, 0)),
            PreluCase((30, 24), 1, dtype, "only the output misaligned", leads=(0, 0, 1)),
        ]
    for dtype in ("float16", "bfloat16"):
        rows += [
            PreluCase((3, 5, 9, 9), 1, dtype, "float32 alphas", "float32"),
            PreluCase((60, 24), 1, dtype, "float32 alphas in a row", "float32"),
            PreluCase((3, 4, 40), 1, dtype, "each misaligned by itself", leads=(3, 5, 7)),
        ]
    return rows


def _table() -> list[PreluCase]:
    """(outer, channels, inner) of every row with elements; one of every type in each."""
    rows = []
    for row in TABLE:
        shape = (row["outer"], row["channels"], row["inner"])
        leads = tuple(row.get(name, 0) for name in ("x_lead", "dy_lead", "out_lead"))
        if all(shape):
            for dtype in DTYPES if "every_type" in row else [row["dtype"]]:
                rows.append(PreluCase(shape, 1, dtype, row["why"], leads=leads))
    return rows


TABLE = json.loads((ROOT / "tests/cases/prelu_cases.json").read_text())
CASES = (*_table(), *_rows())
EMPTY_SHAPES = ((0, 5, 3), (3, 0, 4), (3, 5, 0))


class Data(NamedTuple):
    """Inputs in memory order, and the expected results."""

    x: np.ndarray
    dy: np.ndarray
    alpha: np.ndarray
    y: np.ndarray
    dx: np.ndarray
    dalpha: np.ndarray  # float64
    magnitude: np.ndarray  # sum of the magnitudes of dalpha's terms


def make_data(case: PreluCase, seed: int = 0) -> Data:
    generator = np.random.default_rng(seed)
    dtype, alpha_dtype = DTYPES[case.dtype], DTYPES[case.alpha_dtype or case.dtype]
    x, dy = (generator.standard_normal(case.shape).astype(dtype) for _ in range(2))
    zeros = generator.integers(0, 10, case.shape)
    x = np.where(zeros == 0, dtype.type(0.0), np.where(zeros == 1, dtype.type(-0.0), x)).astype(dtype)
    channels = 1 if case.one_alpha else case.shape[case.channel_axis]
    alpha = generator.standard_normal(channels).astype(alpha_dtype)
    return data_of(x, dy, alpha, case.channel_axis)


def data_of(x: np.ndarray, dy: np.ndarray, alpha: np.ndarray, channel_axis: int) -> Data:
    """What flowk.h says, in NumPy: products in float32, in float64 for float64; sums in float64."""
    wide = np.float64 if x.dtype == np.float64 else np.float32
    axis = channel_axis % x.ndim if x.ndim else 0
    shape = [alpha.size if d == axis and alpha.size > 1 else 1 for d in range(x.ndim)]
    alphas = alpha.astype(wide).reshape(shape)
    wide_x, wide_dy = x.astype(wide), dy.astype(wide)
    with np.errstate(all="ignore"):
        y = np.where(wide_x > 0, wide_x, alphas * wide_x).astype(x.dtype)
        dx = np.where(wide_x > 0, wide_dy, alphas * wide_dy).astype(x.dtype)
        terms = np.where(wide_x > 0, 0.0, wide_x.astype(np.float64) * wide_dy.astype(np.float64))
        others = tuple(d for d in range(x.ndim) if d != axis) if alpha.size > 1 else None
        dalpha, magnitude = terms.sum(others).reshape(alpha.shape), np.abs(terms).sum(others).reshape(alpha.shape)
    return Data(x, dy, alpha, y, dx, dalpha, magnitude)


def dalpha_bound(data: Data) -> np.ndarray:
    """What dalpha may be off: the sum's rounding, then that to alpha's dtype."""
    eps = float(ml_dtypes.finfo(data.alpha.dtype).eps)
    tiny = float(ml_dtypes.finfo(data.alpha.dtype).smallest_subnormal)
    sum_error = 1e-14 if data.x.dtype == np.float64 else 1e-6
    return sum_error * data.magnitude + eps * np.abs(data.dalpha) + tiny
