# SPDX-License-Identifier: Apache-2.0
"""Permute: shapes and axes of permute_workload.json, and random ones that are drawn from a seed."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays.dtypes import numpy_dtype
from .case_sets import Case, CaseSet, CaseSets
from .measure import log_uniform
from .tensors import BYTES, NAMES, Array, CaseError, Tensor, checked_kinds, extents_of
from .work import Work, by, geometry, permute_arguments

_LIBRARIES = "torch,cupy,cutensor"
RESULT_SETS = {
    "practice": _LIBRARIES, "ttc-f64": _LIBRARIES, "ttc-f32": _LIBRARIES, "ttc-f16": _LIBRARIES,
    "random:7:100": _LIBRARIES, "convert": "torch", "images:7": "torch", "views": "torch,cutensor",
    "rows:7": "torch", "keys:7": "torch", "byte_images:7": "torch",
}  # fmt: skip
RANDOM_TYPES = ["u8", "f16", "bf16", "f32", "f64", "c128"]
COLUMNS = ("name", "shape", "axes", "kind")  # of a row of permute_workload.json; its sets with more of them:
MORE_COLUMNS = {"convert": ("out_kind", "scale"), "views": ("src_layout", "out_layout")}
SMALL = ((1, 32, 8, 64), (1, 128, 12, 64), (1, 512, 16, 64), (1, 1024, 32, 64), (1, 1024, 32, 128))
# Channels, height, width.
IMAGES = (
    (1, 28, 28), (3, 32, 32), (3, 224, 224), (1, 256, 256), (3, 299, 299), (4, 299, 299), (3, 384, 384), (4, 512, 512),
    (3, 640, 640), (3, 1080, 1080), (4, 720, 1080), (8, 128, 128), (16, 64, 64), (32, 112, 112), (64, 56, 56),
    (96, 28, 28),
)  # fmt: skip
IMAGES_ELEMENTS = 1 << 26
ROW_TYPES = ("u8", "f16", "f32", "f64", "f32>f16", "f16>f32", "u8>f16", "f16>u8", "u8>f32", "f32>u8")
KEYS = (77, 100, 125, 197, 257, 333, 577, 1001, 1277, 1500)
PLANES = (7, 14, 28, 56, 112, 224, 640)


def case_of_words(words: list[str]) -> dict[str, Any]:
    """`f16 32x512x16x64 0,2,1,3`, or `u8>f16 256x224x224x3 0,3,1,2 [SCALE]` [src=[STRIDES][+LEAD]] [out=...]."""
    layouts = {f"{end}_layout": _given_layout(text) for end, equals, text in map(_parts_of, words) if equals}
    types, shape, axes, *scale = (word for word in words if "=" not in word)
    kind, _, out_kind = types.partition(">")
    checked_kinds(kind, out_kind or kind)
    extents = extents_of(shape)
    if sorted(axes.split(",")) != sorted(map(str, range(len(extents)))):
        raise CaseError(f"axes = {axes!r}, must name each of 0 ... {len(extents) - 1} once")
    row = ("case", list(extents), [int(word) for word in axes.split(",")], kind)
    converted = {"out_kind": out_kind, "scale": float(scale[0]) if scale else 1.0} if out_kind else {}
    return dict(zip(COLUMNS, row)) | converted | layouts


def _parts_of(word: str) -> tuple[str, str, str]:
    end, equals, text = word.partition("=")
    if equals and end not in ("src", "out"):
        raise CaseError(f"{word!r} must begin with src= or out=")
    return end, equals, text


def _given_layout(text: str) -> str:
    """`64,1+32` as layout_of() takes it: strides in elements, and the elements before the first."""
    strides, _, lead = text.partition("+")
    return " ".join(f"{name} {value}" for name, value in (("strides", strides), ("lead", lead)) if value)


def stored_cases(name: str, **same: Any) -> list[Case]:
    """The rows of permute_workload.json, each in each of its types, with `same` in each case."""
    rows = json.loads((Path(__file__).parent / "permute_workload.json").read_text())[name]
    cases = [dict(zip((*COLUMNS, *MORE_COLUMNS.get(name, ())), row)) | same for row in rows]
    return [case | {"kind": kind} for case in cases for kind in case["kind"].split(",")]


def random_cases(seed: int = 0, count: int = 40, types: Sequence[str] = RANDOM_TYPES) -> list[Case]:
    """Ranks 2 to 7, every element size of `types`, odd and even extents, 12 to 320 MB moved."""
    draw = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        kind = draw.choice(types)
        rank = draw.randint(2, 7)
        elements = draw.uniform(12e6, 320e6) / 2 / BYTES[kind]
        weights = [draw.expovariate(1) + 0.15 for _ in range(rank)]
        shape = [max(2, round(elements ** (w / sum(weights)))) for w in weights]
        if draw.random() < 0.5:
            shape = [max(2, s // 8 * 8) if s >= 8 else s for s in shape]
        axes = draw.sample(range(rank), rank)
        if axes != list(range(rank)) and 12e6 <= 2 * BYTES[kind] * math.prod(shape) <= 320e6:
            cases.append({"name": f"random{len(cases)}", "shape": shape, "axes": axes, "kind": kind})
    return cases


def image_cases(seed: int = 0, count: int = 12) -> Iterator[Case]:
    """Bytes to floats and planes, and back; floats of 1 and 4 channels to 16 bits. Images of IMAGES, and `count` drawn
    ones."""
    draw = random.Random(seed)
    drawn = [(log_uniform(draw, 1, 96), log_uniform(draw, 28, 1080), log_uniform(draw, 28, 1080)) for _ in range(count)]

    def case(image: tuple[int, ...], to_planes: bool, kind: str, out_kind: str, scale: float) -> Case:
        c, h, w = image
        n = max(1, IMAGES_ELEMENTS // (c * h * w))
        shape, axes = ([n, h, w, c], [0, 3, 1, 2]) if to_planes else ([n, c, h, w], [0, 2, 3, 1])
        types = {"kind": kind, "out_kind": out_kind, "scale": scale, "part": f"{kind}>{out_kind}"}
        return {"name": "image", "shape": shape, "axes": axes, **types}

    for image in (*IMAGES, *drawn):
        yield from (case(image, True, "u8", out_kind, 1 / 255) for out_kind in ("f16", "f32"))
        yield case(image, False, "f16", "u8", 8.0)
    for c in (1, 4):
        for plane in dict.fromkeys(shape[1:] for shape in (*IMAGES, *drawn)):
            yield case((c, *plane), False, "f32", "f16", 1.0)


def row_cases(seed: int = 0, count: int = 8) -> Iterator[Case]:
    """Rows that change places: `count` of each of ROW_TYPES, of 48 to 4,096 bytes, two of three not whole vectors."""
    draw = random.Random(seed)
    for types in ROW_TYPES:
        kind, _, out_kind = types.partition(">")
        size = max(BYTES[kind], BYTES[out_kind or kind])
        converted = {"out_kind": out_kind} if out_kind else {}
        for i in range(count):
            elements = log_uniform(draw, 48, 4096) // size + 1
            if i % 3 == 0:
                elements = -(-elements // 16) * 16
            rows = (1 << 26) // (elements * size)
            heads = log_uniform(draw, 2, 128)
            one = {"name": "rows", "kind": kind, **converted}
            if i % 2 == 0:
                yield one | {"shape": [heads, rows // heads, elements], "axes": [1, 0, 2]}
            else:
                yield one | {"shape": [8, rows // heads // 8 + 1, heads, elements], "axes": [0, 2, 1, 3]}


def key_cases(seed: int = 0, count: int = 10) -> Iterator[Case]:
    """Keys of attention, transposed: KEYS, and `count` drawn numbers of keys."""
    draw = random.Random(seed)
    for n in (*KEYS, *(log_uniform(draw, 64, 2048) for _ in range(count))):
        for d in (64, 80, 128):
            shape = [(1 << 25) // (12 * n * d) + 1, 12, n, d]
            yield {"name": "keys", "shape": shape, "axes": [0, 1, 3, 2], "kind": "f16"}


def byte_image_cases(seed: int = 0, count: int = 90) -> Iterator[Case]:
    """Bytes from planes to pixels and back: half of the images are squares of PLANES, the others of any extents."""
    draw = random.Random(seed)
    for i in range(count):
        c, h, w = log_uniform(draw, 3, 1280), log_uniform(draw, 7, 640), log_uniform(draw, 7, 640)
        if i % 2 == 0:
            h = w = draw.choice(PLANES)
        n = (1 << 26) // (c * h * w) + 1
        to_pixels = {"shape": [n, c, h, w], "axes": [0, 2, 3, 1], "part": "to NHWC"}
        to_planes = {"shape": [n, h, w, c], "axes": [0, 3, 1, 2], "part": "to NCHW"}
        for layout in (to_pixels, to_planes):
            yield {"name": "bytes", "kind": "u8", **layout}


def small_cases() -> list[Case]:
    """Heads of attention, of which at most 8 MB are moved."""
    sizes = [(2 * math.prod(shape) * BYTES[kind], shape, kind) for kind in ("f16", "f32") for shape in SMALL]
    return [
        {"name": f"small{num_bytes >> 10}K", "shape": list(shape), "axes": axes, "kind": kind}
        for num_bytes, shape, kind in sizes
        for axes in ([0, 2, 1, 3], [0, 2, 3, 1])
        if num_bytes <= 8 << 20
    ]


def _stored(text: str, name: str, **same: Any) -> CaseSet:
    return CaseSet(text, functools.partial(stored_cases, name, **same))


SETS = CaseSets(
    practice=_stored("attention, images, patches, odd shapes", "practice"),
    **{f"ttc-{kind}": _stored("the TTC-57 benchmark", "ttc", kind=kind) for kind in ("f16", "f32", "f64")},
    seeds=_stored("(0,1,2)->(1,0,2) and ->(0,2,1), 16 to 128 MB", "seeds"),
    small=CaseSet("heads of attention to 8 MB", small_cases),
    random=CaseSet("ranks 2 to 7, every element size, 12 to 320 MB", random_cases, "[:SEED[:COUNT[:TYPE]]]"),
    convert=_stored("to another type, scaled on the way", "convert"),
    images=CaseSet(
        "between bytes and floats, NHWC and NCHW, 1 to 96 channels, 28 to 1080 pixels",
        image_cases,
        "[:SEED[:COUNT]]",
    ),
    views=_stored("strided sources and results", "views"),
    rows=CaseSet("rows of 48 to 4,096 bytes that change places, moved and converted", row_cases, "[:SEED[:COUNT]]"),
    keys=CaseSet("keys of attention, (b, h, n, d) to (b, h, d, n)", key_cases, "[:SEED[:COUNT]]"),
    byte_images=CaseSet(
        "images of bytes, NCHW to NHWC and back, 3 to 1,280 channels", byte_image_cases, "[:SEED[:COUNT]]"
    ),
)


class PermuteWork(Work):
    """out[i] = x[axes of i]. With `out_kind` elements are converted and scaled; with layouts both are strided views."""

    op = "permute"

    def __init__(
        self,
        machine: Any,
        name: str,
        shape: list[int],
        axes: list[int],
        kind: str,
        out_kind: str = "",
        scale: float = 1.0,
        src_layout: str = "",
        out_layout: str = "",
        part: str = "",
        num_sets: int | None = None,
    ) -> None:
        self.part = part
        self.kind, self.types = name, f"{kind}>{out_kind}" if out_kind else kind
        self.shape_text = f"{by(shape)} {by(axes, ',')}"
        self.note = " ".join(f"{end} {text}" for end, text in (("in", src_layout), ("out", out_layout)) if text)
        self.axes, self.scale, self.converts = list(axes), scale, bool(out_kind)
        self.function = "permute_convert" if out_kind else "permute"
        self.read_bytes = math.prod(shape) * BYTES[kind]
        self.written_bytes = math.prod(shape) * BYTES[out_kind or kind]
        super().__init__(machine, self.moved_bytes, num_sets)
        x = Tensor(machine, kind, shape, "ordinary" if out_kind else "bits", **layout_of(src_layout))
        out = Tensor(machine, out_kind or kind, [shape[axis] for axis in axes], **layout_of(out_layout))
        self.rotate([x], out)

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        (x,), out = self.operands[i], self.outs[i]
        if not self.converts:
            return permute_arguments(x, self.axes, out)
        return *x.arguments(), *out.arguments(), *geometry(x.shape, self.axes), ctypes.c_double(self.scale)

    def expected(self, index: list[Array]) -> Array:
        (x,) = self.operands[0]
        values = x.known([index[self.axes.index(dimension)] for dimension in range(len(index))])
        if not self.converts:
            return values
        out = numpy_dtype(NAMES[self.outs[0].kind])
        if self.scale != 1:
            values = values.astype(np.float64 if "f64" in (x.kind, self.outs[0].kind) else np.float32)
            values = values * values.dtype.type(self.scale)
        if out.kind in "iu":
            bounds = np.iinfo(out)
            values = np.trunc(values.astype(np.float64)).clip(bounds.min, bounds.max)
        return values.astype(out)

    def formula(self, torch: Any) -> Callable[..., Any]:
        axes, scale = self.axes, self.scale
        if any(stride < 0 for tensor in (*self.operands[0], self.outs[0]) for stride in tensor.strides):
            raise NotImplementedError("negative strides")

        def write(x: Any, out: Any) -> None:
            out.copy_(x.permute(axes) * scale if scale != 1 else x.permute(axes))

        return write

    def rival_operands(self, i: int) -> list[Tensor]:
        return [*self.operands[i], self.outs[i]]


def layout_of(text: str) -> dict[str, Any]:
    """The arguments of tensors.layout() in words: `order 0:1,1:0 pads 1:64`, `steps 0:2`, `flips 0,1`, `strides 64,1`,
    `lead 3`."""
    words = text.split()
    found: dict[str, Any] = {}
    for name, numbers in zip(words[::2], words[1::2]):
        if name in ("strides", "lead"):
            values = [int(number) for number in numbers.split(",")]
            found[name] = values if name == "strides" else values[0]
            continue
        pairs = [number.partition(":") for number in numbers.split(",")]
        by_dimension = {int(dimension): int(value or 0) for dimension, _, value in pairs}
        found[name] = list(by_dimension.values()) if name == "order" else by_dimension
    return found
