# SPDX-License-Identifier: Apache-2.0
"""One case of the campaign: a call of a C function, its tensors in one arena of random bytes, and what must hold after
it: every byte outside the outputs' elements is as before, and the outputs are right."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pyflowk._native import abi
from pyflowk._native.abi import Status

RED_ZONE_BYTES = 64  # of random bytes between tensors, at least
ALIGNMENT_BYTES = 64  # of the address that a tensor's lead counts from
# The types in the order of flowk_dtype.
_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_FLOATS = ["float16", ml_dtypes.bfloat16, "float32", "float64", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
DTYPE_CODES = {
    np.dtype(kind): code for code, kind in enumerate(["bool", *_INTEGERS, *_FLOATS, "complex64", "complex128"], start=1)
}


@dataclasses.dataclass(eq=False)
class Tensor:
    """An array in the arena; `strides` in elements. `lead_bytes` moves its lowest element from an aligned address.
    `values` fills it; None: it keeps the arena's random bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lead_bytes: int = 0
    values: Callable[[tuple[int, ...]], np.ndarray] | None = None
    alias_of: Tensor | None = None  # lies where that one does, with the same strides
    offset: int = -1  # in the arena, of the element with all indices 0

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    def reach(self) -> tuple[int, int]:
        """The lowest and the highest element, counted from the one with all indices 0."""
        reaches = [stride * (extent - 1) for stride, extent in zip(self.strides, self.shape) if extent > 1]
        return sum(min(reach, 0) for reach in reaches), sum(max(reach, 0) for reach in reaches)

    def view(self, memory: np.ndarray) -> np.ndarray:
        # The stride of an extent of 1 may be any number.
        strides = [
            stride * self.dtype.itemsize if extent > 1 else 0 for stride, extent in zip(self.strides, self.shape)
        ]
        offset = 0 if self.is_empty else self.offset
        return np.ndarray(self.shape, self.dtype, memory, offset, strides)


@dataclasses.dataclass(eq=False)
class At:
    """The address of a tensor, moved by some bytes."""

    tensor: Tensor
    bytes: int = 0


class Int32s(tuple):
    """An array of int32 in host memory; other tuples are arrays of int64."""


Outputs = dict[str, np.ndarray]


@dataclasses.dataclass(eq=False)
class Case:
    """A call of a C function, and its check.

    `arguments` are the function's by name, without the stream. For a Tensor or At its address is passed, for a tuple
    the address of an array of integers, for a NumPy scalar the address of such an element, for a dict a
    flowk_softmax_mask, for a struct its address.

    `check(inputs, outputs)` gets the tensors by their names in `tensors`, as they were before the call and as they are
    after it. `scratch` are outputs that may have any value.
    """

    function: str
    arguments: dict[str, Any]
    tensors: dict[str, Tensor]
    outputs: tuple[str, ...]
    check: Callable[[Outputs, Outputs], None]
    scratch: tuple[str, ...] = ()

    def describe(self) -> str:
        lines = [self.function]
        for name, value in self.arguments.items():
            lines.append(f"  {name} = {self._shown(value)}")
        return "\n".join(lines)

    def _shown(self, value: Any) -> str:
        if isinstance(value, At):
            return f"{self._shown(value.tensor)} + {value.bytes} bytes"
        if isinstance(value, Tensor):
            name = next((name for name, tensor in self.tensors.items() if tensor is value), "?")
            return f"{name}: {value.dtype} {value.shape} strides {value.strides} at byte {value.offset}"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {self._shown(one)}" for name, one in value.items()) + "}"
        if isinstance(value, ctypes.Structure):
            return self._shown({name: getattr(value, name) for name, _ in value._fields_})
        return repr(value)


class Arena:
    """The bytes of a case's tensors, in host memory as they are before the call, and where the library reaches them."""

    def __init__(self, arrays: Any, tensors: Sequence[Tensor], rng: np.random.Generator) -> None:
        self._arrays = arrays
        end = 0
        for tensor in tensors:
            if tensor.is_empty or tensor.offset >= 0:
                continue
            if tensor.alias_of is not None:
                tensor.offset = tensor.alias_of.offset
                continue
            low, high = tensor.reach()
            end += RED_ZONE_BYTES + -end % ALIGNMENT_BYTES + tensor.lead_bytes
            tensor.offset = end - low * tensor.dtype.itemsize
            end += (high - low + 1) * tensor.dtype.itemsize
        placed = [tensor.offset + (tensor.reach()[1] + 1) * tensor.dtype.itemsize for tensor in tensors]
        self.bytes = np.frombuffer(rng.bytes(max([end, *placed]) + RED_ZONE_BYTES), np.uint8).copy()
        for tensor in tensors:
            if tensor.values is not None and not tensor.is_empty:
                tensor.view(self.bytes)[...] = tensor.values(tensor.shape)
        if arrays.device is None:
            room = np.empty(self.bytes.size + ALIGNMENT_BYTES, np.uint8)
            start = -room.ctypes.data % ALIGNMENT_BYTES
            self.memory = room[start : start + self.bytes.size]
            self.memory[...] = self.bytes
        else:
            self.memory = arrays.put(self.bytes)
        self.address = arrays.pointer(self.memory)

    def fetch(self) -> np.ndarray:
        return np.array(self._arrays.fetch(self.memory))


class Arguments:
    """The C arguments of a case in an arena, and what keeps the host arrays among them alive."""

    def __init__(self, case: Case, arena: Arena) -> None:
        self._keep: list[Any] = []
        self._arena = arena
        self.values = [self._value(value) for value in case.arguments.values()]

    def _value(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            value = At(value)
        if isinstance(value, At):
            return self._arena.address + value.tensor.offset + value.bytes
        if isinstance(value, tuple):
            array = ((ctypes.c_int32 if isinstance(value, Int32s) else ctypes.c_int64) * max(len(value), 1))(*value)
            self._keep.append(array)
            return ctypes.addressof(array)
        if isinstance(value, np.generic):
            array = np.array([value])
            self._keep.append(array)
            return array.ctypes.data
        if isinstance(value, ctypes.Structure):
            self._keep.append(value)
            return ctypes.addressof(value)
        if isinstance(value, dict):
            struct = abi.SoftmaxMask(struct_bytes=ctypes.sizeof(abi.SoftmaxMask))
            for name, member in value.items():
                setattr(struct, name, self._value(member))
            self._keep.append(struct)
            return ctypes.addressof(struct)
        return value


def start_case(arrays: Any, library: Any, case: Case, rng: np.random.Generator, stream: int | None = None) -> Arena:
    """The call succeeds: its work is on the stream, in the arena."""
    arena = Arena(arrays, list(case.tensors.values()), rng)
    call_library(library, case, arena, stream)
    return arena


def call_library(library: Any, case: Case, arena: Arena, stream: int | None) -> None:
    arguments = Arguments(case, arena)  # keeps the memory alive that the values point to
    status = getattr(library, case.function)(*arguments.values, stream)
    assert status == Status.SUCCESS, library.flowk_last_error().decode()


def run_case(arrays: Any, library: Any, case: Case, rng: np.random.Generator) -> None:
    """The call succeeds, its outputs are right, and no other byte of the arena has changed."""
    check_memory(case, start_case(arrays, library, case, rng))


def check_memory(case: Case, arena: Arena, with_values: bool = True) -> None:
    after = arena.fetch()
    before = {name: np.array(tensor.view(arena.bytes)) for name, tensor in case.tensors.items()}
    actual = {name: np.array(case.tensors[name].view(after)) for name in case.outputs}
    for name in (*case.outputs, *case.scratch):
        case.tensors[name].view(after)[...] = before[name]
    changed = np.flatnonzero(after != arena.bytes)
    assert changed.size == 0, f"{changed.size} bytes outside the outputs changed, the first at {changed[:8]}"
    if with_values:
        case.check(before, actual)
