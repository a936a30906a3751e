# SPDX-License-Identifier: Apache-2.0
"""The arguments of the softmax functions in C, except pointers, from shapes, strides and dtypes, checked."""

from __future__ import annotations

import functools
from ctypes import addressof, c_int, c_int32, c_int64, sizeof
from typing import Any, NamedTuple

from .._arguments import boolean, integer_in, shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    FLOAT_TYPES,
    coefficient_types,
    contiguous_strides,
    dtype_like,
    dtype_name,
    element_strides,
    float_type,
    listed,
    named_type,
    softmax_results,
    type_of_elements,
    wrong_dtype,
)
from .._native.abi import DType, SoftmaxMask
from .._native.c_types import Int64Pointer, SoftmaxMaskPointer
from .._pipeline import no_array

_BYTES = (DType.BOOL, DType.UINT8)
_INTEGERS = (DType.INT32, DType.INT64)


# Parameters of other libraries' attention and softmax functions, and what is meant here.
_OTHER_NAMES = {
    "attn_mask": "pass mask, where True means masked out (~attn_mask for PyTorch's), or bias for one that is added",
    "is_causal": "pass causal=True, whose diagonal ends in the last column; PyTorch's starts in the first: "
    "causal_offset=q - k gives that",
    "key_padding_mask": "pass mask of shape (b, 1, 1, k), where True means masked out",
    "where": "pass mask, where True means masked out: the opposite of where",
    "axis": "masked_softmax sums over the last dimension: permute x before it",
    "dim": "masked_softmax sums over the last dimension: permute x before it",
}


def other_name(name: str) -> TypeError:
    """The exception for a parameter that masked_softmax does not have."""
    return TypeError(
        f"masked_softmax has no parameter {name}: {_OTHER_NAMES.get(name, 'help(pyflowk.masked_softmax) lists them')}"
    )


class Arguments(NamedTuple):
    """C values, which pass in half the time of an int. Their addresses are valid as long as `keep_alive` lives."""

    first_strides: Int64Pointer
    second_strides: Int64Pointer | None
    code: c_int  # of x, or of dy and y
    written: tuple[Any, ...]  # strides and type of the output, rank, shape
    mask: SoftmaxMask  # without its arrays' pointers
    mask_pointer: SoftmaxMaskPointer | None  # None: nothing is masked out, nothing added
    out_like: tuple[tuple[int, ...], Any]  # shape and dtype of a new output
    keep_alive: list[Any]


def arguments_of(
    name: str,
    first: Signature,
    second: Signature,
    operands: tuple[Signature, ...],
    out: Geometry | None,
    options: tuple[Any, ...],
) -> Arguments:
    """`first` is x or dy, called `name`; `second` is None or y. `operands` are mask, lengths and bias; `options` are
    checked_options().

    Raises ValueError or TypeError for what the library cannot see or would name otherwise.
    """
    mask, lengths, bias = operands
    side, causal, causal_offset, window, dtype = options
    for one, called in ((first, name), (second, "y"), (mask, "mask"), (lengths, "lengths"), (bias, "bias")):
        is_needed = called == name or (called == "y" and name == "dy")
        if (one is not None or is_needed) and not isinstance(one, tuple):
            raise no_array(called, one)
    shape = tuple(first[0])
    if not shape:
        raise ValueError(f"{name} has no dimensions, must have >= 1")
    code = float_type(first[2], name)
    if second is not None:
        _check_same(second, "y", shape, first[2], code, f" as {name}")
    out_dtype = first[2] if dtype is None else dtype_like(dtype, first[2])
    out_code = code if dtype is None else dtype
    if out is not None:
        if dtype is not None:
            _check_same(out, "out", shape, out_dtype, out_code)
        elif tuple(out[0]) != shape:
            raise ValueError(f"out has shape {tuple(out[0])}, must be {shape}")
        out_code = float_type(out[2], "out")
    outputs = softmax_results(code)
    if out_code not in outputs:
        given = f"dtype = {dtype_name(out_code)}" if out is None else f"out has dtype {out[2]}"
        raise TypeError(f"{given}, must be {listed(outputs)} beside {name} of {first[2]}")
    keep_alive: list[Any] = []

    def address_of(numbers: tuple[int, ...]) -> int:
        keep_alive.append((c_int64 * max(len(numbers), 1))(*numbers))
        return addressof(keep_alive[-1])

    def strides_of(geometry: Geometry, name: str) -> Int64Pointer:
        return Int64Pointer(address_of(element_strides(geometry[2], geometry[0], geometry[1], name)))

    struct = _mask_without_arrays(side, causal, causal_offset, window)
    if mask is not None:
        _code_of(mask[2], "mask", _BYTES)
        struct.dense_strides = address_of(_broadcast(mask, "mask", shape))
    if lengths is not None:
        struct.lengths_dtype = _code_of(lengths[2], "lengths", _INTEGERS)
        struct.lengths_strides = address_of(_broadcast_lengths(lengths, shape))
    if bias is not None:
        struct.bias_dtype = float_type(bias[2], "bias")
        if struct.bias_dtype not in coefficient_types(code):
            raise wrong_dtype("bias", bias[2], f"{listed(coefficient_types(code))} beside {name} of {first[2]}")
        struct.bias_strides = address_of(_broadcast(bias, "bias", shape))
    out_strides = Int64Pointer(address_of(contiguous_strides(shape, 1))) if out is None else strides_of(out, "out")
    keep_alive.append(struct)
    return Arguments(
        first_strides=strides_of(first, name),
        second_strides=None if second is None else strides_of(second, "y"),
        code=c_int(code),
        written=(out_strides, c_int(out_code), c_int32(len(shape)), Int64Pointer(address_of(shape))),
        mask=struct,
        mask_pointer=SoftmaxMaskPointer(addressof(struct)) if struct.causal or struct.window else None,
        out_like=(shape, out_dtype),
        keep_alive=keep_alive,
    )


# By type too: 2.0 is equal to 2, and True to 1, which are refused.
@functools.lru_cache(maxsize=4096, typed=True)
def _checked(side: Any, causal: Any, causal_offset: Any, window: Any, dtype: Any) -> tuple[Any, ...]:
    if not isinstance(side, str) or side not in ("left", "right"):
        raise ValueError(f"side = {shown(side)}, must be 'left' or 'right'")
    return (
        side,
        boolean(causal, "causal"),
        integer_in(causal_offset, "causal_offset", -(2**62), 2**62, "2**62"),
        None if window is None else integer_in(window, "window", 1, 2**62, "2**62"),
        None if dtype is None else named_type(dtype, FLOAT_TYPES),
    )


def checked_options(*options: Any) -> tuple[Any, ...]:
    """side, causal, causal_offset, window and dtype as they are given, as the values of equal plans."""
    try:
        return _checked(*options)
    except (TypeError, ValueError):  # where one cannot be hashed: the error that names it
        return _checked.__wrapped__(*options)


def _mask_without_arrays(side: str, causal: bool, causal_offset: int, window: int | None) -> SoftmaxMask:
    struct = SoftmaxMask(struct_bytes=sizeof(SoftmaxMask), lengths_from_right=side == "right", causal=causal)
    struct.causal_offset, struct.window = causal_offset, window or 0
    return struct


def _code_of(dtype: Any, name: str, allowed: tuple[DType, ...]) -> DType:
    code = type_of_elements(dtype)
    if code not in allowed:
        raise wrong_dtype(name, dtype, listed(allowed))
    return code


def _check_same(
    geometry: Geometry, name: str, shape: tuple[int, ...], dtype: Any, code: DType, of_what: str = ""
) -> None:
    if tuple(geometry[0]) != shape:
        raise ValueError(f"{name} has shape {tuple(geometry[0])}, must be {shape}{of_what}")
    if float_type(geometry[2], name) != code:
        raise TypeError(f"{name} has dtype {geometry[2]}, must be {dtype}{of_what}")


def copied_inputs(names: tuple[str, ...], signatures: tuple[Signature, ...]) -> dict[int, tuple[str, Geometry]]:
    """The inputs whose rows are not contiguous, as on_copies() takes them. Those that broadcast over the row are views
    that repeat their last elements; a copy has no other repeated dimension. The first input is x or dy."""
    shape = tuple(signatures[0][0]) if isinstance(signatures[0], tuple) else ()
    copied: dict[int, tuple[str, Geometry]] = {}
    if not shape or 0 in shape:
        return copied
    for number, (name, signature) in enumerate(zip(names, signatures)):
        if not isinstance(signature, tuple) or name == "lengths":
            continue
        extents, strides, dtype = tuple(signature[0]), tuple(signature[1]), signature[2]
        if name in ("mask", "bias") and broadcasts(extents, shape):
            extents = tuple(1 if stride == 0 else extent for extent, stride in zip(extents[:-1], strides))
            extents, strides = (*extents, shape[-1]), strides if signature[0][-1:] == shape[-1:] else (*strides[:-1], 0)
        elif extents != shape:
            continue
        if not has_contiguous_rows((extents, strides, dtype), name):
            copied[number] = (name, (extents, strides, dtype))
    return copied


def has_contiguous_rows(geometry: Geometry, name: str) -> bool:
    """Does flowk_masked_softmax take the strides of such an array?"""
    shape, strides, dtype = geometry
    return not shape or shape[-1] <= 1 or element_strides(dtype, shape[-1:], strides[-1:], name) == (1,)


def broadcasts(extents: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    missing = len(shape) - len(extents)
    return missing >= 0 and all(own in (1, all_) for own, all_ in zip(extents, shape[missing:]))


def _broadcast(geometry: Geometry, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over `shape`: dimensions stand under its last ones, 0 where an extent of 1 is repeated."""
    extents, _, dtype = geometry
    strides = element_strides(dtype, geometry[0], geometry[1], name)
    missing = len(shape) - len(extents)
    if not broadcasts(extents, shape):
        raise ValueError(f"{name} has shape {tuple(extents)}, must broadcast to {shape}")
    return (0,) * missing + tuple(0 if own == 1 else stride for own, stride in zip(extents, strides))


def _broadcast_lengths(geometry: Geometry, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over shape[:-1]: dimensions stand under its first ones, 0 where an extent of 1 is repeated."""
    extents, _, dtype = geometry
    strides = element_strides(dtype, geometry[0], geometry[1], "lengths")
    missing = len(shape) - 1 - len(extents)
    if missing < 0 or not all(own in (1, all_) for own, all_ in zip(extents, shape)):
        raise ValueError(
            f"lengths has shape {tuple(extents)}, must have the first dimensions of {shape[:-1]}, or 1 in place of any"
        )
    return tuple(0 if own == 1 else stride for own, stride in zip(extents, strides)) + (0,) * missing
