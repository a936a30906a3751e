# SPDX-License-Identifier: Apache-2.0
"""The plan of a call of flowk_permute_many() on arrays: read once, run with any pointers."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_double, c_void_p
from typing import Any, NamedTuple

from .._arrays.kinds import After, Signature, find_array_kind
from .._native import library as native
from .._native.errors import different_devices, error_of
from .._pipeline import UNALLOCATED, plan_text
from .permute_arguments import _checked_axes, choose

_FUNCTION = "flowk_permute_many"


class ManyPlan(NamedTuple):
    """A call of flowk_permute_many() but for the pointers and the stream."""

    library: Any
    num_pairs: int
    src: tuple[Any, Any]  # strides and type, as C values
    dst: tuple[Any, Any]
    rest: tuple[Any, ...]  # rank, shape, axes, scale
    keep_alive: Any
    src_pointers: list[int]
    out_pointers: list[int]
    out_shape: tuple[int, ...]
    out_dtype: Any
    device: int | None
    afters: list[After]

    def run(self, src_pointers: Sequence[int], out_pointers: Sequence[int], stream: int) -> None:
        """Enqueues the call; FlowkError where the library refuses it."""
        srcs, dsts = ((c_void_p * self.num_pairs)(*pointers) for pointers in (src_pointers, out_pointers))
        status = self.library.flowk_permute_many(
            self.num_pairs, addressof(srcs), *self.src, addressof(dsts), *self.dst, *self.rest, stream
        )
        if status:
            failure = error_of(self.library, status)
            failure.name_parameters(_FUNCTION, ("xs",))
            raise failure

    def text(self) -> str:
        """The plan in words."""
        srcs, dsts = ((c_void_p * self.num_pairs)(*pointers) for pointers in (self.src_pointers, self.out_pointers))
        arguments = (self.num_pairs, addressof(srcs), *self.src, addressof(dsts), *self.dst, *self.rest)
        return plan_text(self.library, _FUNCTION, arguments)


def plan_many(
    arrays: list[Any], order: tuple[int, ...], dtype: Any, scale: Any, outs: list[Any] | None, stream: int
) -> ManyPlan:
    """The plan of a call on these arrays; without `outs` its output pointers are only planned for."""
    afters: list[After] = []
    signature, device, pointers = _read(arrays, "xs", stream, afters)
    _checked_axes(order, len(signature[0]), "xs[0]")
    out_signature: Signature | None = None
    out_pointers = [UNALLOCATED + (i << 46) for i in range(len(arrays))]
    operation, options, values = choose(arrays[0], order, dtype, scale)
    if outs is not None:
        out_signature, out_device, out_pointers = _read(outs, "out", stream, afters)
        if out_device != device:
            raise different_devices("xs[0]", device, "out[0]", out_device)
    function, arguments, out_shape, out_dtype, _, _ = operation.plan(signature, out_signature, options)
    one = arguments((0,), 0, values, None)
    if function == "flowk_permute":
        _, src_strides, _, dst_strides, rank, shape, axes, code, _ = one
        src, dst, factor = (src_strides, code), (dst_strides, code), c_double(1)
    else:
        _, src_strides, src_code, _, dst_strides, dst_code, rank, shape, axes, factor, _ = one
        src, dst = (src_strides, src_code), (dst_strides, dst_code)
    return ManyPlan(
        *(native.for_device(device, "xs[0]"), len(arrays), src, dst, (rank, shape, axes, factor), arguments),
        *(pointers, out_pointers, out_shape, out_dtype, device, afters),
    )


def _read(
    arrays: list[Any], name: str, handle: int, afters: list[After]
) -> tuple[tuple[Any, Any, Any], Any, list[int]]:
    """The geometry and the device that all arrays have, and their pointers."""
    pointers: list[int] = []
    first: tuple[Any, ...] = ()
    place: Any = None
    for i, array in enumerate(arrays):
        one = f"{name}[{i}]"
        kind = find_array_kind(array, one)
        pointer, shape, strides, dtype, device, after = (kind.read_out if name == "out" else kind.read)(
            array, one, handle
        )
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
    return (*first,), place, pointers
