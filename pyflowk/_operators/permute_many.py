# SPDX-License-Identifier: Apache-2.0
"""permute_many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import addressof, c_double, c_int32, c_void_p
from typing import TYPE_CHECKING, Any

from .._arrays.kinds import After, Signature, find_array_kind
from .._arrays.stream import stream_handle
from .._native import library as native
from .._native.errors import different_devices, error_of
from .._pipeline import UNALLOCATED, Listener, new_array, plan_text
from .permute_arguments import axes_tuple, choose

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Stream

_FUNCTION = "flowk_permute_many"


def permute_many(
    xs: Sequence[ArrayT],
    axes: Iterable[int],
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Sequence[Array] | None = None,
    stream: Stream | None = None,
) -> list[ArrayT]:
    """Reorder the dimensions of many arrays at once: ``[permute(x, axes) for x in xs]`` in one launch for every 16.

    On a GPU the blocks of a launch take the tiles of all arrays in turn. Small arrays cost one launch in place of many,
    and writes to other GPUs' memory overlap with writes to this one's.

    Parameters
    ----------
    xs : sequence of arrays
        At most 1,024, of the kinds that `permute` takes, all of the same shape, strides, dtype and device.
    axes, dtype, scale, stream : optional
        As in `permute`.
    out : sequence of arrays, optional
        Where to write, one per array of `xs`, all of the same strides. None may share memory with another or with an
        array of `xs`. By default new C-contiguous arrays.

    Returns
    -------
    list of arrays
        Those of `out`, or the new ones.

    Raises
    ------
    FlowkValueError, FlowkError, ValueError, TypeError
        As in `permute`; ValueError also where the arrays differ, or `out` has another number of them.
    """
    order = axes_tuple(axes)
    arrays, outs = _listed(xs, "xs"), None if out is None else _listed(out, "out")
    if outs is not None and len(outs) != len(arrays):
        raise ValueError(f"out has {len(outs)} arrays, must have {len(arrays)} as xs has")
    if not arrays:
        return []
    x = arrays[0]
    source = find_array_kind(x, "xs[0]")
    target = None if outs is None else find_array_kind(outs[0], "out[0]")
    explains = stream.__class__ is Listener
    if stream is not None and not explains:
        handle = stream_handle(stream)
    else:
        handle = source.stream_of(x) if target is None or source.follows_current_stream else target.stream_of(outs[0])
    afters: list[After] = []
    signature, device, pointers = _read(arrays, "xs", handle, afters)
    out_signature: Signature | None = None
    out_pointers = [UNALLOCATED + (i << 46) for i in range(len(arrays))]
    operation, options, values = choose(x, order, dtype, scale)
    if outs is not None:
        out_signature, out_device, out_pointers = _read(outs, "out", handle, afters)
        if out_device != device:
            raise different_devices("xs[0]", device, "out[0]", out_device)
    function, arguments, out_shape, out_dtype, _, _ = operation.plan(signature, out_signature, options)
    library = native.for_device(device, "xs[0]")
    results = outs
    if results is None and not explains:
        made = [new_array(source, x, out_shape, out_dtype, None, device, handle) for _ in arrays]
        results, out_pointers = [array for array, _ in made], [pointer for _, pointer in made]
    c_pointers = [(c_void_p * len(arrays))(*each) for each in (pointers, out_pointers)]
    srcs, dsts = (addressof(each) for each in c_pointers)
    one = arguments((srcs,), dsts, values, handle)
    if function == "flowk_permute":
        _, src_strides, _, dst_strides, rank, shape, c_axes, code, _ = one
        types, factor = (code, code), c_double(1)
    else:
        _, src_strides, src_code, _, dst_strides, dst_code, rank, shape, c_axes, factor, _ = one
        types = (src_code, dst_code)
    many = (
        *(c_int32(len(arrays)), srcs, src_strides, types[0], dsts, dst_strides, types[1]),
        *(rank, shape, c_axes, factor),
    )
    if explains:
        return plan_text(library, _FUNCTION, many)  # type: ignore[return-value]
    status = getattr(library, _FUNCTION)(*many, handle)
    if status:
        failure = error_of(library, status)
        failure.name_parameters(_FUNCTION, ("xs",))
        raise failure
    for after in afters:
        after(handle)
    return results if outs is not None else [source.result(x, result) for result in results]


def _listed(arrays: Any, name: str) -> list[Any]:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name} is a {type(arrays).__name__}, must be a list or tuple of arrays")
    return list(arrays)


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
    return (*first,), place, pointers  # type: ignore[return-value]
