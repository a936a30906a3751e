# SPDX-License-Identifier: Apache-2.0
"""The plan of a call of flowk_permute_many() on arrays: read once, run with any pointers."""

from __future__ import annotations

from ctypes import c_double, c_int32
from typing import Any

from .._arrays.adapters.base import After, Geometry
from .._arrays.registry import array_adapter
from .._arrays.stream import stream_handle
from .._native import library as native
from .._native.errors import different_devices
from .._pipeline import Bound, Operation, Request
from .._program import INPUTS, OUTPUTS, Arg, Program, Step
from .permute_arguments import _checked_axes, permute_request

MANY = Operation(("xs",), lambda *_: None, num_results=None)  # planned as each of the arrays


def bind_many(
    arrays: list[Any], order: tuple[int, ...], dtype: Any, scale: Any, outs: list[Any] | None, stream: Any
) -> Bound:
    """bind() of a call on these arrays; without `outs` for new ones."""
    x, count = arrays[0], len(arrays)
    source = array_adapter(x, "xs[0]")
    if stream is not None:
        handle = stream_handle(stream)
    elif outs is None or source.follows_current_stream:
        handle = source.stream_of(x)
    else:
        handle = array_adapter(outs[0], "out[0]").stream_of(outs[0])
    afters: list[After] = []
    geometry, device, pointers = _read(arrays, "xs", handle, afters)
    _checked_axes(order, len(geometry[0]), "xs[0]")
    one = permute_request(x, order, dtype, scale)
    out_geometry: Geometry | None = None
    outputs: tuple[int | None, ...] = (None,) * count
    if outs is not None:
        out_geometry, out_device, written = _read(outs, "out", handle, afters)
        outputs = tuple(written)
        if out_device != device:
            raise different_devices("xs[0]", device, "out[0]", out_device)
    program = one.operation.plan(geometry, (out_geometry,), one.options)
    assert program is not None
    request, library = Request(MANY, tuple(arrays)), native.for_device(device, "xs[0]")
    many, given = _of_many(program, count, one.values), tuple(outs or outputs)
    return Bound(request, many, library, source, x, device, handle, tuple(pointers), given, outputs, afters)


def _of_many(program: Program, count: int, values: tuple[float, ...]) -> Program:
    """The Program of flowk_permute_many() from one array's."""
    (step,) = program.steps
    if step.function == "flowk_permute":
        _, src_strides, _, dst_strides, *extents, src_code = step.args
        dst_code, scale = src_code, c_double(1)
    else:
        _, src_strides, src_code, _, dst_strides, dst_code, *extents, _ = step.args
        scale = c_double(values[0])
    srcs, dsts = (Arg(INPUTS, count), src_strides, src_code), (Arg(OUTPUTS, count), dst_strides, dst_code)
    many = Step.of("flowk_permute_many", (c_int32(count), *srcs, *dsts, *extents, scale), ("xs",))
    return program._replace(steps=(many,), results=program.results * count)


def _read(arrays: list[Any], name: str, handle: int, afters: list[After]) -> tuple[Geometry, Any, list[int]]:
    """The geometry and the device that all arrays have, and their pointers."""
    pointers: list[int] = []
    first: Any = ()
    place: Any = None
    for i, array in enumerate(arrays):
        one = f"{name}[{i}]"
        adapter = array_adapter(array, one)
        read = adapter.read_out if name == "out" else adapter.read
        pointer, shape, strides, dtype, device, after = read(array, one, handle)
        geometry = (tuple(shape), tuple(strides), dtype)
        if i == 0:
            first, place = geometry, device
        if device != place:
            raise different_devices(f"{name}[0]", place, one, device)
        for what, value, wanted in zip(("shape", "strides", "dtype"), geometry, first):
            if value != wanted:
                raise ValueError(f"{one} has {what} {value}, must be {wanted} as {name}[0] has")
        pointers.append(pointer)
        if after is not None:
            afters.append(after)
    return first, place, pointers
