# SPDX-License-Identifier: Apache-2.0
"""What the operators check of their arrays alike, and what they ask the library before a call."""

from __future__ import annotations

from ctypes import addressof, c_size_t
from math import prod
from typing import Any

from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    dtype_name,
    float_type,
    has_contiguous_rows,
    is_contiguous,
    listed,
    type_of_elements,
    wrong_dtype,
)
from .._native.abi import DType
from .._native.errors import error_of


def result_type(code: DType) -> DType:
    """The type of a result with one value per row, from arrays of type `code`: what it is computed in."""
    return DType.FLOAT64 if code == DType.FLOAT64 else DType.FLOAT32


def check_type(name: str, dtype: Any, allowed: tuple[DType, ...]) -> None:
    """TypeError if an array is of another type."""
    if type_of_elements(dtype) not in allowed:
        raise wrong_dtype(name, dtype, listed(allowed))


def check_like(
    name: str, array: tuple[Any, Any], like: tuple[tuple[int, ...], Any], code: DType, first: str = ""
) -> None:
    """ValueError or TypeError if an array has another shape or dtype than `like`, which is of type `code`: both are
    (shape, dtype). `first` is the parameter that has that shape and dtype."""
    (shape, dtype), (like_shape, like_dtype) = array, like
    as_first = f" as {first}" if first else ""
    if tuple(shape) != like_shape:
        raise ValueError(f"{name} has shape {tuple(shape)}, must be {like_shape}{as_first}")
    if float_type(dtype, name) != code:
        raise TypeError(f"{name} has dtype {dtype}, must be {like_dtype}{as_first}")


def check_per_row(name: str, shape: tuple[int, ...], dtype: Any, rows: tuple[int, ...], code: DType) -> None:
    """ValueError or TypeError if an array is not one of `code` with an element per row."""
    if tuple(shape) != rows:
        raise ValueError(f"{name} has shape {tuple(shape)}, must be {rows}")
    if type_of_elements(dtype) != code:
        raise wrong_dtype(name, dtype, dtype_name(code))


def check_row_out(name: str, out: Geometry | None, rows: tuple[int, ...], code: DType) -> None:
    """check_per_row() of an array that the caller gives to be written, which must be contiguous."""
    if out is not None:
        check_per_row(name, out[0], out[2], rows, code)
        if not is_contiguous(out, name):
            raise ValueError(f"{name} has strides of {tuple(out[1])}, must be contiguous")


def copied_inputs(
    names: tuple[str, ...], signatures: tuple[Signature, ...], rows: int = 0
) -> dict[int, tuple[str, Geometry]]:
    """The inputs that on_copies() is to copy: those that are not contiguous. Input `rows` needs contiguous rows only;
    -1: there is no such input."""
    copied: dict[int, tuple[str, Geometry]] = {}
    for index, (name, signature) in enumerate(zip(names, signatures)):
        if isinstance(signature, tuple) and 0 not in signature[0]:
            shape, strides, dtype = signature
            if not (has_contiguous_rows if index == rows else is_contiguous)(signature, name):
                copied[index] = (name, (tuple(shape), tuple(strides), dtype))
    return copied


def workspace_bytes(library: Any, function: str, names: tuple[str, ...], *sizes: Any) -> int:
    """The bytes of workspace that a C function needs for C values `sizes`; `names` are its arrays, for errors."""
    num_bytes = c_size_t()
    status = getattr(library, f"{function}_workspace_bytes")(*sizes, addressof(num_bytes))
    if status:
        error = error_of(library, status)
        error.name_parameters(function, names)
        raise error
    return num_bytes.value


def bytes_of_workspace(workspace: Geometry) -> int:
    """The bytes of a workspace that the caller gives, which must be contiguous."""
    require_bytes("workspace", workspace)
    if not is_contiguous(workspace, "workspace"):
        raise ValueError(f"workspace has strides of {tuple(workspace[1])}, must be contiguous")
    return prod(workspace[0]) * int(workspace[2].itemsize)


def require_bytes(name: str, geometry: Geometry) -> None:
    """TypeError if the elements of an array are Python objects."""
    if getattr(geometry[2], "hasobject", False):
        raise TypeError(f"{name} has dtype {geometry[2]}: its elements are Python objects, must be plain bytes")
