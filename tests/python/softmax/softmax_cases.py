# SPDX-License-Identifier: Apache-2.0
"""The cases of softmax: the table that C++ and bench read too, and masks of any shape. A case says why it is there."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DTYPES = ("float16", "bfloat16", "float32", "float64")


class SoftmaxCase(NamedTuple):
    """One call of masked_softmax on x of `shape`, and of masked_softmax_backward with the same masks.

    `mask`, `lengths` and `bias` are shapes; None: not given. `bias_dtype` and `out_dtype` None: as x. `padded`: there
    are gaps between the rows of x and of out. `strided`: in memory, columns are the second dimension, or the first of
    two. `*_lead` moves a base by that many elements. `values` says what x has:
    "normal", "wide" (up to 1e4), "negative" (all far below 0, so that exp(x) is 0) or "special" (also NaN and
    infinities). `lse`: with the log-sum-exp, and backward with its gradient.
    """

    shape: tuple[int, ...]
    dtype: str
    why: str
    mask: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    lengths_from_right: bool = False
    causal: bool = False
    causal_offset: int = 0
    window: int | None = None
    bias: tuple[int, ...] | None = None
    bias_dtype: str | None = None
    scale: float = 1.0
    out_dtype: str | None = None
    log: bool = False
    lse: bool = False
    batch_invariant: bool = False
    padded: bool = False
    strided: bool = False
    x_lead: int = 0
    out_lead: int = 0
    mask_lead: int = 0
    bias_lead: int = 0
    lengths_dtype: str = "int32"
    mask_dtype: str = "bool"
    softcap: float = 0.0
    values: str = "normal"

    @property
    def id(self) -> str:
        words = ["x".join(map(str, self.shape)), self.dtype]
        default = SoftmaxCase((), "", "")
        for name in self._fields[3:]:
            value = getattr(self, name)
            if value != getattr(default, name):
                shown = "x".join(map(str, value)) if isinstance(value, tuple) else value
                words.append(name if value is True else f"{name}_{shown}")
        return "-".join(words)

    @property
    def y_dtype(self) -> str:
        return self.out_dtype or self.dtype

    def options(self) -> dict[str, Any]:
        """The keyword arguments that forward and backward share."""
        names = ("lengths_from_right", "causal", "causal_offset", "window", "scale", "log", "batch_invariant")
        return {name: getattr(self, name) for name in names}


# ---- the table ------------------------------------------------------------------------------------------------------


class TableCase(NamedTuple):
    """A case of tests/cases/softmax_cases.json: one call, of masked_softmax or of masked_softmax_backward."""

    case: SoftmaxCase
    backward: bool
    gpu: bool  # for clusters; too long for the executor
    mechanism: str  # that an H200 takes; "": not said


def _cases_of(row: dict[str, Any]) -> Iterator[TableCase]:
    """A row with `lse` is each of its cases without and with the log-sum-exp, which other kernels may take."""
    products = itertools.product(
        row["dtypes"],
        row["shapes"],
        row.get("leads", [0]),
        row.get("directions", ["forward"]),
        (False, True) if "lse" in row else (False,),
    )
    from_right = row.get("lengths") == "right"
    for dtype, shape, lead, direction, lse in products:
        *_, heads, _, _ = (1, 1, *shape)
        case = SoftmaxCase(
            tuple(shape),
            dtype,
            row["why"],
            mask=(*shape[:-3], *[1] * (len(shape) > 2), *shape[-2:]) if "mask" in row else None,
            lengths=tuple(shape[:-1]) if "lengths" in row else None,
            lengths_from_right=from_right,
            lengths_dtype="int64" if from_right else "int32",
            causal=row.get("causal", False),
            window=row.get("window"),
            bias=(1, heads, *shape[-2:])[-len(shape) :] if "bias" in row else None,
            scale=row.get("scale", 1.0),
            out_dtype=row.get("out_dtype"),
            log=row.get("log", False),
            lse=lse,
            batch_invariant=row.get("batch_invariant", False),
            strided=row.get("strided", False),
            values="special" if "special" in row else "normal",
            x_lead=lead,
            out_lead=lead,
            mask_lead=lead,
        )
        yield TableCase(case, direction == "backward", "gpu" in row, row.get("mechanism", ""))


_ROWS = json.loads((Path(__file__).parents[2] / "cases/softmax_cases.json").read_text())
TABLE = tuple(itertools.chain.from_iterable(map(_cases_of, _ROWS)))


# ---- masks of any shape, and what C++ has no tensors for ------------------------------------------------------------


def _long() -> Iterator[SoftmaxCase]:
    yield SoftmaxCase((4, 2**19), "float32", "split rows, one of them all -infinity", values="special", padded=True)


# The keywords of each mask, for shape (b, h, q, k).
MASKS: dict[str, Any] = {
    "mask": lambda b, h, q, k: {"mask": (b, 1, q, k)},
    "lengths": lambda b, h, q, k: {"lengths": (b, 1, q)},
    "right": lambda b, h, q, k: {"lengths": (b, 1, q), "lengths_from_right": True},
    "causal": lambda b, h, q, k: {"causal": True},
    "window": lambda b, h, q, k: {"causal": True, "window": max(1, k // 3)},
    "bias": lambda b, h, q, k: {"bias": (1, h, q, k)},
}
# Masks of keys, which the rows of a head share.
KEY_MASKS: dict[str, Any] = {
    "key_mask": lambda b, h, q, k: {"mask": (b, 1, 1, k)},
    "key_bias": lambda b, h, q, k: {"bias": (b, 1, 1, k)},
}


def _masked() -> Iterator[SoftmaxCase]:
    why = "each mask alone, on every kind of row"
    cols_of_a_type = {
        "float16": (1, 7, 31, 32, 33, 77, 100, 128, 500, 1000, 1024, 1025, 4096, 5003),
        "bfloat16": (3, 8, 64, 77, 512, 1001, 2048),
        "float32": (2, 7, 32, 33, 77, 100, 128, 500, 1024, 1025, 4097),
        "float64": (5, 32, 65, 100, 256, 1000, 1025),
    }
    for dtype, all_cols in cols_of_a_type.items():
        for cols, (name, keywords) in itertools.product(all_cols, (MASKS | KEY_MASKS).items()):
            shape = (2, 3, 4, cols) if cols <= 128 else (2, 2, 2, cols)
            yield SoftmaxCase(shape, dtype, why, **keywords(*shape), log=name == "mask" and cols % 2 == 0)
    for name, dtype, cols in zip(MASKS, itertools.cycle(("float16", "float32", "bfloat16")), (16384, 16387) * 3):
        shape = (1, 2, 1, cols)
        yield SoftmaxCase(shape, dtype, "each mask on a row past a block's registers", **MASKS[name](*shape))
    shape = (1, 1, 1, 2**17)
    keywords = MASKS["mask"](*shape) | MASKS["lengths"](*shape)
    yield SoftmaxCase(shape, "float16", "masks on a row past a block's shared memory", **keywords)
    shape = (1, 1, 2, 2**19)
    keywords = MASKS["mask"](*shape) | MASKS["right"](*shape)
    yield SoftmaxCase(shape, "float32", "masks on a split row", **keywords)


def _any_length() -> Iterator[SoftmaxCase]:
    why = "whole vectors, and fewer of them than threads and blocks can hold"
    for dtype, cols in itertools.product(DTYPES[:3], (40, 344, 392, 592, 1536, 3080, 12296)):
        shape = (1, 2, 3, cols)
        yield SoftmaxCase((40, cols), dtype, why, log=cols == 344)
        yield SoftmaxCase(shape, dtype, why, mask=(1, 1, 3, cols), log=cols == 592)
        yield SoftmaxCase(shape, dtype, why, bias=shape, scale=-0.5)
        yield SoftmaxCase(shape, dtype, why, bias=(1, 1, 3, cols), mask=(1, 2, 1, cols), values="special")
    for dtype, cols in zip(itertools.cycle(DTYPES[:3]), (20480, 40968, 49152, 98312, 151936)):
        shape = (1, 1, 2, cols)
        why = "a row of a cluster with different numbers of vectors per block"
        yield SoftmaxCase(shape, dtype, why)
        yield SoftmaxCase(shape, dtype, why, mask=shape, values="special")
        yield SoftmaxCase(shape, dtype, why, bias=shape, log=True)


def _together() -> Iterator[SoftmaxCase]:
    dtypes = itertools.cycle(DTYPES)
    every_cols = itertools.cycle((7, 33, 64, 77, 100, 300, 513, 1025))
    for count in (2, 3, 4, 5):
        for names in itertools.combinations(MASKS, count):
            if {"lengths", "right"} <= set(names) or {"causal", "window"} <= set(names):
                continue
            shape = (2, 3, 5, next(every_cols))
            keywords: dict[str, Any] = {}
            for name in names:
                keywords |= MASKS[name](*shape)
            log = count == 3
            yield SoftmaxCase(shape, next(dtypes), f"together: {', '.join(names)}", scale=0.25, log=log, **keywords)


def _broadcasts() -> Iterator[SoftmaxCase]:
    b, h, q, k = shape = (2, 3, 4, 40)
    dtypes = itertools.cycle(DTYPES)
    for pattern in itertools.product((0, 1), repeat=3):
        lead = tuple(extent if whole else 1 for extent, whole in zip((b, h, q), pattern))
        yield SoftmaxCase(shape, next(dtypes), "a mask broadcast by zero strides", mask=(*lead, k))
        yield SoftmaxCase(shape, next(dtypes), "a bias broadcast by zero strides", bias=(*lead, k))
        yield SoftmaxCase(shape, next(dtypes), "lengths broadcast by zero strides", lengths=lead)
    for lead in ((), (q,), (h, q), (h, 1)):
        yield SoftmaxCase(
            shape, next(dtypes), "a mask and a bias of fewer dimensions", mask=(*lead, k), bias=(*lead, k)
        )
    for lead in ((), (b,), (b, h), (b, 1)):
        yield SoftmaxCase(shape, next(dtypes), "lengths of the first dimensions", lengths=lead, lengths_dtype="int64")
    for cols in (40, 500):
        yield SoftmaxCase(
            (3, 2, 2, 3, cols), "float16", "five dimensions", mask=(3, 1, 2, 1, cols), bias=(2, 1, 3, cols)
        )
    yield SoftmaxCase((70, cols), "float32", "one mask row for all rows", mask=(cols,), lengths=(70,))
    yield SoftmaxCase((1, 2, 1, 3, 1, 16), "float16", "extents of 1 between", mask=(3, 1, 16), lengths=(1, 2, 1, 3, 1))


def _causal() -> Iterator[SoftmaxCase]:
    for (q, k), dtype in zip(
        ((5, 5), (5, 3), (3, 5), (1, 9), (9, 2), (33, 31), (31, 33), (40, 100), (12, 600)), itertools.cycle(DTYPES)
    ):
        shape = (2, q, k)
        yield SoftmaxCase(shape, dtype, "causal, the last row sees all columns", causal=True)
        # Row 0 sees column 0, the first rows see nothing, no row sees anything, all see all.
        for offset in sorted({q - k, q - k - 2, -k - 1, k + 3} - {0}):
            yield SoftmaxCase(shape, dtype, "causal, shifted", causal=True, causal_offset=offset)
        for window in sorted({1, 2, 7, k, 10**6}):
            yield SoftmaxCase(shape, dtype, "a sliding window", causal=True, window=window)
            yield SoftmaxCase(shape, dtype, "a band", window=window, causal_offset=q - k)
    yield SoftmaxCase((2, 9, 1), "float16", "causal on one column", causal=True)
    for offset in (2**62, -(2**62)):
        yield SoftmaxCase((4, 33), "float32", "the largest offset", causal=True, causal_offset=offset)
        yield SoftmaxCase((4, 33), "float32", "the largest of both", causal=True, causal_offset=offset, window=2**62)
        yield SoftmaxCase((4, 33), "float32", "the largest of both, a band", causal_offset=offset, window=2**62)
        yield SoftmaxCase((4, 33), "float32", "a window far away", causal_offset=offset, window=5)
        yield SoftmaxCase((33,), "float32", "a window far away of one row", causal_offset=offset, window=5)
        yield SoftmaxCase((33, 4), "float32", "bounds past 64 bits", causal_offset=offset, window=2**62)
    for dtype, cols in itertools.product(DTYPES, (64, 77, 1024, 3000)):
        shape = (2, 6, cols)
        yield SoftmaxCase(shape, dtype, "a narrow band far inside", window=3, causal_offset=-cols // 2, scale=0.5)
        together = {"mask": shape, "lengths": (2, 1), "lengths_from_right": True, "window": 20, "causal": True}
        yield SoftmaxCase(shape, dtype, "a band that lengths cut", **together, causal_offset=-cols // 3)


def _places() -> Iterator[SoftmaxCase]:
    for dtype, cols in itertools.product(DTYPES, (24, 77, 200, 1024)):
        shape = (3, 2, cols)
        everything = {"mask": (3, 1, cols), "bias": (2, cols), "scale": 0.5}
        yield SoftmaxCase(shape, dtype, "gaps between rows", padded=True, **everything)
        for lead in (1, 2, 3, 5, 8):
            yield SoftmaxCase(shape, dtype, "x's base is aligned to one element only", x_lead=lead)
            yield SoftmaxCase(shape, dtype, "out's base is aligned to one element only", out_lead=lead)
            yield SoftmaxCase(shape, dtype, "both bases shifted", x_lead=lead, out_lead=lead, mask=(3, 1, cols))
            leads = {"mask_lead": 2 * lead - 1, "bias_lead": lead}
            yield SoftmaxCase(shape, dtype, "mask and bias shifted", **leads, **everything)
    for dtype, cols, lead in itertools.product(DTYPES[:3], (1501, 2000), range(4)):
        bias = {"bias": (2, cols), "bias_lead": lead}
        yield SoftmaxCase((3, 2, cols), dtype, "a bias at any place that rows share", scale=-0.5, **bias)
    for dtype in DTYPES[:3]:
        shape = (2, 2, 3003)
        yield SoftmaxCase(
            shape, dtype, "a long row, all shifted", **dict(x_lead=1, out_lead=3, mask_lead=5), mask=shape
        )


def _types() -> Iterator[SoftmaxCase]:
    for cols in (16, 77, 256, 1000, 4096):
        shape = (2, 3, cols)
        for dtype, out_dtype in (("float32", "float16"), ("float32", "bfloat16"), ("float16", "float32")):
            yield SoftmaxCase(shape, dtype, "another output type", out_dtype=out_dtype, scale=0.125, mask=(3, cols))
        yield SoftmaxCase(shape, "bfloat16", "another output type", out_dtype="float32", lengths=(2, 3))
        yield SoftmaxCase(shape, "float32", "another output type, log", out_dtype="float16", log=True)
        yield SoftmaxCase(shape, "float16", "a float32 bias", bias=(3, cols), bias_dtype="float32")
        yield SoftmaxCase(shape, "bfloat16", "a float32 bias", bias=shape, bias_dtype="float32", mask=(3, cols))
        yield SoftmaxCase(shape, "float16", "mask bytes of any value", mask=shape, mask_dtype="uint8")
        yield SoftmaxCase(
            shape, "float32", "64-bit lengths", lengths=(2, 3), lengths_dtype="int64", lengths_from_right=True
        )


def _values() -> Iterator[SoftmaxCase]:
    for dtype, cols in itertools.product(DTYPES, (3, 33, 64, 100, 1024, 1500)):
        shape = (2, 12, cols)
        for log in (False, True):
            yield SoftmaxCase(shape, dtype, "inputs to +-1e4", values="wide", log=log, scale=0.5)
            yield SoftmaxCase(shape, dtype, "NaN and infinities", values="special", log=log)
            yield SoftmaxCase(shape, dtype, "NaN and infinities under a mask", values="special", log=log, mask=shape)
        yield SoftmaxCase(shape, dtype, "NaN and infinities, bias", values="special", bias=shape, lengths=(2, 1))
        yield SoftmaxCase(shape, dtype, "wide inputs and a bias", values="wide", bias=(12, cols), mask=shape)
        yield SoftmaxCase(shape, dtype, "a negative scale", scale=-2.0, values="wide", causal=True)
        yield SoftmaxCase(shape, dtype, "a scale of 0", scale=0.0, lengths=(2, 12))
    for dtype, cols in itertools.product(DTYPES, (31, 64, 256, 1000, 2048, 4096, 8193)):
        # Some warps have no unmasked column; in the others the largest score is far below 0.
        shape = (2, 4, cols)
        why = "scores far below 0 beside masked columns"
        for log in (False, True):
            yield SoftmaxCase(shape, dtype, why, values="negative", lengths=(2, 4), log=log)
            yield SoftmaxCase(shape, dtype, why, values="negative", window=5, causal_offset=-cols // 2, log=log)
        yield SoftmaxCase(shape, dtype, why, values="negative", mask=(4, cols), lengths=(2, 1), lengths_from_right=True)
        yield SoftmaxCase(shape, dtype, why, values="negative", bias=(4, cols), lengths=(2, 1))


def _empty() -> Iterator[SoftmaxCase]:
    for shape in ((0,), (3, 0), (0, 5), (2, 0, 4), (2, 3, 0)):
        yield SoftmaxCase(shape, "float32", "no elements", mask=shape, lengths=shape[:-1], causal=True)


MASK_CASES = tuple(
    case._replace(lse=number % 2 == 1 and case.shape[-1] > 0)  # every second one
    for number, case in enumerate(
        itertools.chain(
            _long(),
            _masked(),
            _any_length(),
            _together(),
            _broadcasts(),
            _causal(),
            _places(),
            _types(),
            _values(),
            _empty(),
        )
    )
)
