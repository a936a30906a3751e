# SPDX-License-Identifier: Apache-2.0
"""Tensors of a bench: memory with random contents that the host knows, strided views of it, samples of its elements.

An input repeats a block of random elements. Their number is a prime, so that no power of two is a period. The host
computes each element from its offset, so that only results are copied from the GPU.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .._arrays.dtypes import dtype_name, dtype_named, numpy_dtype
from .._native.abi import DType
from .._native.c_types import TensorPointer

Array = np.ndarray[Any, Any]
BLOCK_ELEMENTS = 4194319  # a prime
POISON = 0xA5
TYPES = {
    "bool": DType.BOOL, "i8": DType.INT8, "i16": DType.INT16, "i32": DType.INT32, "i64": DType.INT64,
    "u8": DType.UINT8, "u16": DType.UINT16, "u32": DType.UINT32, "u64": DType.UINT64,
    "f16": DType.FLOAT16, "bf16": DType.BFLOAT16, "f32": DType.FLOAT32, "f64": DType.FLOAT64,
    "e4m3": DType.FLOAT8_E4M3, "e5m2": DType.FLOAT8_E5M2, "c64": DType.COMPLEX64, "c128": DType.COMPLEX128,
}  # fmt: skip
BYTES = {"bool": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "f16": 2, "bf16": 2,
         "f32": 4, "f64": 8, "e4m3": 1, "e5m2": 1, "c64": 8, "c128": 16}  # fmt: skip
NAMES = {kind: dtype_name(code) for kind, code in TYPES.items()}
KINDS = {code: kind for kind, code in TYPES.items()}
FLOATS = {"f16", "bf16", "f32", "f64", "e4m3", "e5m2"}


def limits(kind: str) -> tuple[float, float, float]:
    """eps, the least normal number and the largest of a float type."""
    dtype = numpy_dtype(NAMES[kind])
    info: Any = np.finfo(dtype) if dtype.isbuiltin == 1 else import_module("ml_dtypes").finfo(dtype)
    return float(info.eps), float(info.smallest_normal), float(info.max)


class CaseError(ValueError):
    """Which word of a case on the command line is wrong."""


def form_of(work: Any) -> str:
    """How a case is written; `work` is an operator's module."""
    return (work.case_of_words.__doc__ or "").rstrip(".").replace("`", "")


def case_of(words: str, work: Any, op: str) -> dict[str, Any]:
    """The case of `op` on the command line, as the operator's module `work` has it; ValueError if it is none."""
    try:
        return work.case_of_words(words_of(words))  # type: ignore[no-any-return]
    except (ValueError, KeyError) as error:
        reason = f" ({error})" if isinstance(error, CaseError) else ""
        raise ValueError(f"{words!r} is no case; {op} takes {form_of(work)}{reason}") from error


def words_of(case: str) -> list[str]:
    """The words of a case on the command line, with f16 for float16, and so on for every type."""

    def short(found: re.Match[str]) -> str:
        code = dtype_named(found[0])
        return found[0] if code is None else KINDS[code]

    return re.sub(r"[A-Za-z_]\w*", short, case).split()


def checked_kinds(*kinds: str, among: Collection[str] = TYPES) -> tuple[str, ...]:
    """The types of a case on the command line; ValueError for others."""
    for kind in kinds:
        if kind not in among:
            raise CaseError(f"type = {kind!r}, must be one of {', '.join(among)}")
    return kinds


def extents_of(word: str) -> tuple[int, ...]:
    """The shape of a case on the command line: 3x5x7."""
    if not re.fullmatch(r"\d+(x\d+)*", word):
        raise CaseError(f"shape = {word!r}, must be integers with x between them")
    return tuple(int(extent) for extent in word.split("x"))


def longs(numbers: Iterable[int]) -> Any:
    """An array of int64_t, of one element at least."""
    values = list(numbers)
    return (ctypes.c_int64 * max(len(values), 1))(*values)


@functools.cache
def block(kind: str, contents: str, seed: int = 0) -> Array:
    """Random elements of a type: "bits" (every NaN payload too), "normal" (deviation 2), "wide" (3), "ordinary" (within
    the range of every type, for conversions), "unit" (1), or the share of ones of a bool."""
    generator = np.random.default_rng(seed)
    dtype = numpy_dtype(NAMES[kind])
    if contents[0] == "0":
        return (generator.random(BLOCK_ELEMENTS, np.float32) < float(contents)).view(dtype)
    if contents == "ordinary" and kind not in FLOATS:
        bounds = np.iinfo(dtype)
        return generator.integers(max(bounds.min, -1000), min(bounds.max, 1000) + 1, BLOCK_ELEMENTS).astype(dtype)
    if contents == "bits" or kind not in FLOATS:
        high = 2 if kind == "bool" else 256
        return generator.integers(0, high, BLOCK_ELEMENTS * dtype.itemsize, dtype=np.uint8).view(dtype)
    deviation = {"normal": 2, "wide": 3, "ordinary": 8, "unit": 1}[contents]
    return (generator.standard_normal(BLOCK_ELEMENTS, np.float32) * np.float32(deviation)).astype(dtype)


def layout(
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    pads: dict[int, int] | None = None,
    steps: dict[int, int] | None = None,
    flips: Collection[int] = (),
    strides: Sequence[int] | None = None,
    lead: int = 0,
) -> tuple[list[int], int, int]:
    """The strides, the offset of the element with all indices 0, and the number of elements of the memory.

    `order` lists the dimensions from the outermost to the innermost. `pads` leaves elements free after a dimension,
    `steps` is the distance of its indices, `flips` reverses it. `lead` elements come before the first. Given `strides`
    replace all that; then the first element lies `lead` elements past a multiple of 128.
    """
    if strides is not None:
        if len(strides) != len(shape):
            raise ValueError(f"{len(strides)} strides of {len(shape)} dimensions")
        below, above = (
            sum(abs(stride) * (extent - 1) for extent, stride in zip(shape, strides) if (stride < 0) == is_below)
            for is_below in (True, False)
        )
        first = -(-below // 128) * 128 + lead
        return list(strides), first, first + above + 1
    strides, first, reach = [0] * len(shape), lead, 1
    for d in reversed(order if order is not None else range(len(shape))):
        stride = reach * (steps or {}).get(d, 1)
        reach = stride * (shape[d] + (pads or {}).get(d, 0))
        strides[d] = -stride if d in flips else stride
        first += stride * (shape[d] - 1) if d in flips else 0
    return strides, first, reach + lead


class Tensor:
    """A strided view of memory of its own; strides in elements."""

    def __init__(
        self, machine: Any, kind: str, shape: Sequence[int], contents: str | None = None, seed: int = 0, **where: Any
    ) -> None:
        self.machine, self.kind, self.shape, self.contents, self.seed = machine, kind, tuple(shape), contents, seed
        self.strides, self.first, self.num_elements = layout(shape, **where)
        self.itemsize, self.code = BYTES[kind], TYPES[kind]
        self.num_bytes = self.num_elements * self.itemsize
        self.memory = machine.allocate(max(self.num_bytes, 16))
        if contents is not None:
            self._fill(block(kind, contents, seed))

    def _fill(self, values: Array) -> None:
        done = min(values.nbytes, self.num_bytes)
        self.machine.upload(self.memory.ptr, values[: done // self.itemsize])
        while done < self.num_bytes:  # a whole number of blocks each time, so that the period stays
            more = min(done, self.num_bytes - done)
            self.machine.copy(self.memory.ptr + done, self.memory.ptr, more)
            done += more

    def again(self) -> Tensor:
        """Memory of the same layout and contents."""
        other = self.reshaped(self.shape, self.strides)
        other.memory = self.machine.allocate(max(self.num_bytes, 16))
        if self.contents is not None:
            self.machine.copy(other.memory.ptr, self.memory.ptr, self.num_bytes)
        return other

    @classmethod
    def of(cls, machine: Any, kind: str, values: Array) -> Tensor:
        """A tensor with these values."""
        tensor = cls(machine, kind, values.shape)
        tensor.contents = "given"
        machine.upload(tensor.memory.ptr, np.ascontiguousarray(values))
        return tensor

    def is_contiguous(self) -> bool:
        """Whether the array is contiguous in C order."""
        return list(self.strides) == layout(self.shape)[0]

    @property
    def ptr(self) -> int:
        return int(self.memory.ptr) + self.first * self.itemsize

    def reshaped(self, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Another view of the same memory."""
        other = Tensor.__new__(Tensor)
        other.__dict__.update(self.__dict__, shape=tuple(shape), strides=list(strides))
        return other

    def arguments(self) -> tuple[Any, Any, int]:
        """Pointer, strides, type: as the C functions take them."""
        return TensorPointer(self.ptr), longs(self.strides), int(self.code)

    def broadcast_strides(self) -> list[int]:
        """The strides, 0 along dimensions of extent 1."""
        return [0 if extent == 1 else stride for extent, stride in zip(self.shape, self.strides)]

    def poison(self, byte: int = POISON) -> None:
        self.machine.fill(self.memory.ptr, byte, self.num_bytes)

    def offsets(self, index: Sequence[Array]) -> Array:
        """The offsets in memory of the elements at a multi-index of arrays that broadcast."""
        total: Any = np.int64(self.first)
        for indices, stride in zip(index, self.broadcast_strides()):
            total = total + indices * np.int64(stride)
        return np.asarray(total)

    def known(self, index: Sequence[Array]) -> Array:
        """The elements of an input at a multi-index, computed from the block."""
        assert self.contents is not None
        values: Array = block(self.kind, self.contents, self.seed)[self.offsets(index) % BLOCK_ELEMENTS]
        return values

    def fetch(self) -> Array:
        """All elements of the memory, 1-D."""
        self.machine.synchronize()
        host: Array = self.machine.download(self.memory.ptr, self.num_bytes)
        return host.view(numpy_dtype(NAMES[self.kind]))


def sample(shape: Sequence[int], count: int = 1 << 16) -> list[Array]:
    """The multi-index of up to `count` elements: the first and last, and random ones."""
    total = math.prod(shape)
    if total <= count:
        offsets = np.arange(total)
    else:
        edge = count // 8
        drawn = np.random.default_rng(5).integers(0, total, count - 2 * edge)
        offsets = np.concatenate([np.arange(edge), np.arange(total - edge, total), drawn])
    return list(np.unravel_index(offsets, tuple(shape)))
