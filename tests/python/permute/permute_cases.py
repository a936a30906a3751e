# SPDX-License-Identifier: Apache-2.0
"""The cases of permute: the table that C++ and bench read too, and sweeps. A row says why it is there.

A layout says how an array lies in memory: LAYOUTS names the ones that the table uses, layout() makes any.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from source_tree import ROOT

# One for each element size. Only complex64 and complex128 may lie at half their size, and they do in some rows.
DTYPES = ("uint8", "uint16", "uint32", "complex64", "complex128")


class PermuteCase(NamedTuple):
    """out[i[axes[0]], ...] = x[i[0], ...]; `src` and `dst` name layouts, `*_lead_bytes` moves the base."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    why: str
    src: str = "contiguous"
    dst: str = "contiguous"
    src_lead_bytes: int = 0
    dst_lead_bytes: int = 0
    src_strides: tuple[int, ...] = ()  # in elements, instead of `src`; the same of `dst`
    dst_strides: tuple[int, ...] = ()

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Those of src and of dst."""
        out_shape = tuple(self.shape[axis] for axis in self.axes)
        return (
            strided(self.shape, self.src_strides) if self.src_strides else LAYOUTS[self.src](self.shape),
            strided(out_shape, self.dst_strides) if self.dst_strides else LAYOUTS[self.dst](out_shape),
        )

    @property
    def id(self) -> str:
        lay = "" if (self.src, self.dst) == ("contiguous", "contiguous") else f"-{self.src}-{self.dst}"
        lay += "".join(f"-{stride}" for stride in self.src_strides + self.dst_strides)
        lead = f"+{self.src_lead_bytes}+{self.dst_lead_bytes}" if self.src_lead_bytes or self.dst_lead_bytes else ""
        name = f"{'x'.join(map(str, self.shape))}-{''.join(map(str, self.axes))}-{self.dtype}{lay}{lead}"
        return name if len(name) < 60 else f"rank{len(self.shape)}-{self.dtype}{lay}{lead}"


class Layout(NamedTuple):
    """Strides in elements, the element with all indices 0, and how many elements the memory holds."""

    strides: tuple[int, ...]
    first: int
    size: int


def strided(shape: Sequence[int], strides: tuple[int, ...]) -> Layout:
    """The layout of these strides."""
    reaches = [stride * (extent - 1) for stride, extent in zip(strides, shape)]
    return Layout(strides, -sum(min(reach, 0) for reach in reaches), 1 + sum(map(abs, reaches)))


def layout(
    shape: Sequence[int],
    *,
    order: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    backward: Collection[int] = (),
    repeated: Collection[int] = (),
) -> Layout:
    """How `shape` lies in memory.

    order     the dimensions from the outermost to the innermost; None: 0, 1, 2 ...
    steps     for each dimension, how far apart its neighbours are, in units of all that lies inside it
    pads      for each dimension, elements left free after it
    backward  dimensions that run from the highest address to the lowest
    repeated  dimensions of stride 0: every index shows the same elements
    """
    strides = [0] * len(shape)
    first, reach = 0, 1
    for dimension in reversed(order if order is not None else range(len(shape))):
        if dimension in repeated:
            continue
        stride = reach * (steps[dimension] if steps else 1)
        reach = stride * max(shape[dimension], 1) + (pads[dimension] if pads else 0)
        if dimension in backward:
            first += stride * max(shape[dimension] - 1, 0)
        strides[dimension] = -stride if dimension in backward else stride
    return Layout(tuple(strides), first, reach)


# What the table's layout names mean, for a shape.
LAYOUTS = {
    "contiguous": lambda shape: layout(shape),
    "fortran": lambda shape: layout(shape, order=range(len(shape))[::-1]),
    "padded": lambda shape: layout(shape, pads=[d + 1 for d in range(len(shape))]),
    "every_other": lambda shape: layout(shape, steps=[1] * (len(shape) - 1) + [2]),
    "outer_every_third": lambda shape: layout(shape, steps=[3] + [1] * (len(shape) - 1)),
    "reversed": lambda shape: layout(shape, backward=range(len(shape))),
    "alternating": lambda shape: layout(shape, pads=[1] * len(shape), backward=range(0, len(shape), 2)),
    "first_repeated": lambda shape: layout(shape, repeated=[0]),
    "last_repeated": lambda shape: layout(shape, repeated=[len(shape) - 1]),
    "all_repeated": lambda shape: layout(shape, repeated=range(len(shape))),
}
SRC_LAYOUTS = tuple(LAYOUTS)
DST_LAYOUTS = tuple(name for name in LAYOUTS if "repeated" not in name)

# Extents next to the edges of tiles of 16, 32, 64 and 128, and of packs; thin ones; 0.
EDGES = (
    *((31, 33), (32, 32), (33, 31), (15, 17), (16, 16), (17, 15), (63, 65), (64, 64), (65, 63)),
    *((127, 129), (128, 128), (129, 127), (3, 1000), (1000, 3), (7, 257), (257, 7), (1, 300), (300, 1), (2, 2)),
    *((0, 5), (5, 0), (1, 1)),
)


def _edges() -> Iterator[PermuteCase]:
    for (rows, cols), dtype in itertools.product(EDGES, DTYPES):
        yield PermuteCase((rows, cols), (1, 0), dtype, "a 2-D transpose beside the edge of a tile or a pack")
    for (rows, cols), dtype in itertools.product(EDGES[:6], DTYPES):
        yield PermuteCase((3, rows, cols), (0, 2, 1), dtype, "a batch of transposes")
        yield PermuteCase((rows, cols, 3), (1, 0, 2), dtype, "a transpose of short rows that move whole")
        yield PermuteCase((rows, 3, cols), (2, 1, 0), dtype, "a thin dimension between the contiguous ones")


def _rows() -> Iterator[PermuteCase]:
    for cols, dtype in itertools.product((1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 130), DTYPES):
        yield PermuteCase((5, 7, cols), (1, 0, 2), dtype, "rows moved whole, of every alignment of row bytes")
    for size, dtype in itertools.product((1, 2, 3, 15, 16, 17, 255, 256, 257, 4099), DTYPES):
        yield PermuteCase((size,), (0,), dtype, "a plain copy with a tail")


def _thin() -> Iterator[PermuteCase]:
    for thin, dtype in itertools.product((2, 3, 7, 15, 16, 17), DTYPES):
        yield PermuteCase((2, 9, 11, thin), (0, 3, 1, 2), dtype, "NHWC to NCHW: a thin last dimension")
        yield PermuteCase((2, thin, 9, 11), (0, 2, 3, 1), dtype, "NCHW to NHWC: a thin last dimension of the output")
        yield PermuteCase((thin, 13, thin, 13), (3, 2, 1, 0), dtype, "thin dimensions on both sides")
        yield PermuteCase((2, 3, thin, 4, thin, 2), (0, 1, 3, 5, 2, 4), dtype, "patchify: six dimensions, all thin")


def _unaligned() -> Iterator[PermuteCase]:
    why = "a base pointer that only the element type aligns"
    leads = {"uint8": (1, 2, 3, 5, 8, 15), "uint16": (2, 6), "uint32": (4, 12), "complex64": (4, 8), "complex128": (8,)}
    for dtype, leads_of_type in leads.items():
        for lead, (shape, axes) in itertools.product(
            leads_of_type,
            (((67, 65), (1, 0)), ((64, 64), (1, 0)), ((1003,), (0,)), ((5, 6, 32), (1, 0, 2)), ((8, 4, 64), (2, 1, 0))),
        ):
            yield PermuteCase(shape, axes, dtype, why, src_lead_bytes=lead)
            yield PermuteCase(shape, axes, dtype, why, dst_lead_bytes=lead)
            yield PermuteCase(shape, axes, dtype, why, src_lead_bytes=lead, dst_lead_bytes=lead)


def _views() -> Iterator[PermuteCase]:
    dtypes = itertools.cycle(DTYPES)
    for src, dst in itertools.product(SRC_LAYOUTS, DST_LAYOUTS):
        for axes in itertools.permutations(range(3)):
            yield PermuteCase((5, 33, 18), axes, next(dtypes), "a view in, a slice out", src, dst)
    for src, dst in itertools.product(SRC_LAYOUTS, DST_LAYOUTS):
        yield PermuteCase((37,), (0,), next(dtypes), "a view in, a slice out, of one dimension", src, dst)
    for dtype in DTYPES:
        yield PermuteCase((40, 70), (1, 0), dtype, "reversed views on both sides", "reversed", "reversed")
        yield PermuteCase((6, 64), (0, 1), dtype, "a copy of rows out of a padded array", "padded", "contiguous")
        yield PermuteCase((6, 64), (0, 1), dtype, "a copy of rows into a padded array", "contiguous", "padded")


def _ranks() -> Iterator[PermuteCase]:
    yield PermuteCase((2,) * 20, tuple(range(20))[::-1], "uint8", "rank 20, a bit reversal of the index")
    yield PermuteCase((2,) * 17, tuple(range(17))[::-1], "uint32", "rank 17, a bit reversal of the index")
    yield PermuteCase((2,) * 12, tuple(range(12))[::-1], "complex128", "more dimensions than threads can share")
    yield PermuteCase((1,) * 32, tuple(range(32))[::-1], "uint16", "the largest rank, one element")
    yield PermuteCase(
        (2, 1) * 6 + (1,) * 20, tuple(range(32))[::-1], "complex64", "the largest rank, most extents of 1"
    )
    yield PermuteCase((1023, 1025), (1, 0), "uint32", "many blocks, odd extents")
    yield PermuteCase((4, 300, 301), (2, 1, 0), "uint8", "many blocks of one-byte elements, odd extents")
    yield PermuteCase((3, 0, 4), (2, 0, 1), "uint32", "no elements")
    for dtype in DTYPES:
        yield PermuteCase((), (), dtype, "rank 0: one element")


def _table() -> Iterator[tuple[PermuteCase, str, bool]]:
    """Every row of the table, the mechanism that it names, and whether it is for every type."""
    dtype_of_size = {np.dtype(dtype).itemsize: dtype for dtype in DTYPES}
    for row in json.loads((ROOT / "tests/cases/permute_cases.json").read_text()):
        mechanism, every_type = row.pop("mechanism"), row.pop("every_type", False)
        dtype = dtype_of_size[row.pop("element_bytes")]
        tuples = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        yield PermuteCase(dtype=dtype, **tuples), mechanism, every_type


def of_size(case: PermuteCase, dtype: str) -> PermuteCase:
    """A case of bytes with elements of another type, with the same number of elements before the first."""
    num_bytes = np.dtype(dtype).itemsize
    leads = {"src_lead_bytes": case.src_lead_bytes * num_bytes, "dst_lead_bytes": case.dst_lead_bytes * num_bytes}
    return case._replace(dtype=dtype, **leads)


TABLE = tuple(_table())
MECHANISMS = {mechanism for _, mechanism, _ in TABLE}
# Cases of bytes that are for every type, with conversion and without, and those that are for one.
EVERY_TYPE_CASES = tuple(case for case, _, every_type in TABLE if every_type)
ONE_TYPE_CASES = tuple(case for case, _, every_type in TABLE if not every_type)
TABLE_CASES = ONE_TYPE_CASES + tuple(of_size(case, dtype) for case in EVERY_TYPE_CASES for dtype in DTYPES)
CASES = TABLE_CASES + tuple(itertools.chain(_edges(), _rows(), _thin(), _unaligned(), _views(), _ranks()))


def index_valued(shape: Sequence[int], dtype: str) -> np.ndarray:
    """A contiguous array whose bits tell where each element comes from, as far as they can hold it."""
    size = int(np.prod(shape, dtype=np.int64))
    # A multiple of the golden ratio's bits, not the index: of it one byte repeats after 256, and tiles are that wide.
    index = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    num_bytes = np.dtype(dtype).itemsize
    halves = np.stack([index >> np.uint64(32), ~index], axis=-1) if num_bytes == 16 else index >> np.uint64(7)
    bits = np.ascontiguousarray(halves if num_bytes >= 8 else halves.astype(f"u{num_bytes}"))
    return bits.view(np.uint8).view(dtype).reshape(shape)
