# SPDX-License-Identifier: Apache-2.0
"""Calls on copies: C-contiguous temporaries in place of arrays whose layouts a C function does not take.

Each copy is one flowk_permute on the call's stream. Temporaries are freed in the stream's order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from ctypes import addressof, c_int32, c_int64
from typing import Any, NamedTuple

import numpy as np

from ._arrays.device_array import empty
from ._arrays.dtypes import contiguous_strides, dtype_like, element_strides, element_type
from ._arrays.kinds import Geometry, Signature
from ._native.abi import DType, Int32Pointer, Int64Pointer
from ._native.errors import error_of
from ._pipeline import UNALLOCATED, Call, Listener, Plan, Readings, Recorder, new_array, plan_text


def on_copies(
    plan: Callable[[tuple[Signature, ...], Geometry | None, Any], Plan],
    signatures: tuple[Signature, ...],
    out: Geometry | None,
    options: Any,
    copied: dict[int, tuple[str, Geometry]],
    out_name: str | None,
) -> Plan:
    """The Plan of a call on copies. `copied` are the numbers, names and geometries of the inputs to copy, as views of
    the shapes that the copies get. Unless `out_name` is None, an output of that name is written through a copy too."""
    inputs = list(signatures)
    moves: dict[int | None, _Move] = {}
    for number, (name, geometry) in copied.items():
        moves[number], inputs[number] = _Move.of(geometry, name)
    if out is not None and out_name is not None:
        _check_no_repeats(out, out_name)
        moves[None], out = _Move.of(out, out_name)
    inner = plan(tuple(inputs), out, options)
    return inner._replace(steps=functools.partial(_run, inner, tuple(inputs), out, moves))


def in_c_order(geometry: Geometry, name: str) -> Geometry:
    """The geometry of a C-contiguous array of the same shape and dtype."""
    shape, _, dtype = geometry
    itemsize = element_type(dtype, name)[1] if isinstance(dtype, np.dtype) else 1
    return tuple(shape), contiguous_strides(shape, itemsize), dtype


class _Move(NamedTuple):
    """A copy between an array and C-contiguous memory."""

    name: str
    num_bytes: int
    strides: Int64Pointer  # of the array
    contiguous: Int64Pointer
    rest: tuple[Any, ...]  # rank, shape, axes and type
    keep_alive: Any

    @classmethod
    def of(cls, geometry: Geometry, name: str) -> tuple[_Move, Geometry]:
        """The copy of an array, and its geometry."""
        shape, strides, dtype = geometry
        rank, num_elements = len(shape), math.prod(shape)
        longs = c_int64 * max(rank, 1)
        code, element_bytes = element_type(dtype, name)
        own, packed = element_strides(dtype, shape, strides, name), contiguous_strides(shape, 1)
        arrays = longs(*own), longs(*packed), longs(*shape), (c_int32 * max(rank, 1))(*range(rank))
        pointers = [Int64Pointer(addressof(array)) for array in arrays[:3]]
        rest = (c_int32(rank), pointers[2], Int32Pointer(addressof(arrays[3])), code)
        move = cls(name, num_elements * element_bytes, pointers[0], pointers[1], rest, arrays)
        return move, in_c_order(geometry, name)

    def read(self, library: Any, array: int, copy: int, stream: int) -> None:
        self._check(library, library.flowk_permute(array, self.strides, copy, self.contiguous, *self.rest, stream))

    def write(self, library: Any, copy: int, array: int, stream: int) -> None:
        self._check(library, library.flowk_permute(copy, self.contiguous, array, self.strides, *self.rest, stream))

    def _check(self, library: Any, status: int) -> None:
        if status:
            error = error_of(library, status)
            error.name_parameters(
                "flowk_permute", (), {"src": self.name, "dst": self.name, "rank": f"{self.name}.ndim"}
            )
            raise error


def _run(
    inner: Plan,
    signatures: tuple[Signature, ...],
    out: Geometry | None,
    moves: dict[int | None, _Move],
    read: Readings,
    made: Call,
) -> Any:
    """The steps of a Plan: copies, calls on the copies, and copies the output back."""
    library, handle, explains = read.library, read.stream, made.stream.__class__ is Listener
    if made.stream.__class__ is Recorder:
        return None
    pointers, out_pointer = list(read.pointers), read.out_pointer
    memory: list[Any] = []
    for number, move in moves.items():
        pointer = UNALLOCATED + (len(memory) + 1 << 53)
        array = None
        if not explains:
            array, pointer = temporary(read.source, read.x, move.num_bytes, read.device, handle)
        memory.append(array)
        if number is None:
            out_pointer = pointer
            continue
        if not explains:
            move.read(library, pointers[number], pointer, handle)
        pointers[number] = pointer
    on_copies = read._replace(
        pointers=tuple(pointers), signatures=signatures, out_pointer=out_pointer, out_signature=out, afters=[]
    )
    result = made.out
    if inner.steps is not None:
        result = inner.steps(on_copies, made)
    elif explains:
        result = plan_text(library, inner.function, inner.arguments(pointers, out_pointer, made.values, None)[:-1])
    else:
        if result is None:
            result, out_pointer = new_array(
                *(read.source, read.x, inner.out_shape, inner.out_dtype, inner.order, read.device, handle)
            )
            result = read.source.result(read.x, result)
        _raise(library, getattr(library, inner.function)(*inner.arguments(pointers, out_pointer, made.values, handle)))
    if explains:
        names = [made.operation.out_name if number is None else made.operation.names[number] for number in moves]
        return f"on contiguous copies of {', '.join(names)}, by flowk_permute; then\n{result}"
    if None in moves:
        moves[None].write(library, out_pointer, read.out_pointer, handle)
    del memory  # freed in the stream's order, after the work
    for after in read.afters:
        after(handle)
    return result


def temporary(kind: Any, x: Any, num_bytes: int, device: int | None, stream: int) -> tuple[Any, int]:
    """(memory of at least that many bytes, its address, a multiple of 16). Dropped once the work is enqueued, it is
    used again in the order of `stream`."""
    if device is None:
        memory = np.empty(num_bytes + 15, np.uint8)
        return memory, (memory.ctypes.data + 15) // 16 * 16
    if kind.follows_current_stream:  # from the framework's own pool
        array, pointer = kind.empty(x, ((num_bytes + 3) // 4,), dtype_like(DType.FLOAT32, x.dtype), device, stream)
        return array, pointer
    array = empty(num_bytes, np.uint8, device=device, stream=stream)
    return array, array.ptr


def _check_no_repeats(geometry: Geometry, name: str) -> None:
    """ValueError where two elements may share memory, by flowk_permute's rule."""
    shape, strides, _ = geometry
    reach = 0
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride <= reach or stride == 0:
            raise ValueError(f"{name} has strides of {tuple(strides)}: no two of its elements may share memory")
        reach += stride * (extent - 1)


def _raise(library: Any, status: int) -> None:
    if status:
        raise error_of(library, status)
