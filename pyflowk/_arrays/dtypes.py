# SPDX-License-Identifier: Apache-2.0
"""Element types: from the dtypes of NumPy, ml_dtypes and torch to flowk.h's."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from .._native.abi import DType

# The names in NumPy, ml_dtypes and torch.
_NAMES = {code: code.name.lower() for code in DType} | {DType.FLOAT8_E4M3: "float8_e4m3fn"}
_BY_NAME = {name: code for code, name in _NAMES.items()}
# For moves of any other type (datetime64, other byte orders, small structs), which need only the element's size.
_BY_BYTES = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64, 16: DType.COMPLEX128}


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """np.dtype(dtype); names of ml_dtypes ("bfloat16", "float8_e5m2") work where that package is installed."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        import ml_dtypes

        if not hasattr(ml_dtypes, str(dtype)):
            raise TypeError(f"dtype = {dtype!r}, must be a type of NumPy or ml_dtypes") from error
        found = np.dtype(getattr(ml_dtypes, dtype))
    return found


def dtype_name(code: DType) -> str:
    """The name of a type in NumPy, ml_dtypes and torch."""
    return _NAMES[code]


def dtype_named(name: str) -> DType | None:
    """The type of that name; None where there is none."""
    return _BY_NAME.get({"float8_e4m3": "float8_e4m3fn", "float": "float64", "int": "int64"}.get(name, name))


@functools.lru_cache(maxsize=256)
def number_type(dtype: Any, name: str) -> DType:
    """flowk's type for the numbers of `dtype`, which is NumPy's or torch's.

    TypeError, which names the parameter `name`, where flowk computes with no such type.
    """
    native = not isinstance(dtype, np.dtype) or dtype.isnative
    code = _BY_NAME.get(str(dtype).removeprefix("torch.")) if native else None
    if code is None or code >= DType.COMPLEX64:
        raise TypeError(
            f"{name} has dtype {dtype}, must be bool, an integer, or a float of flowk.h in this machine's byte order"
        )
    return code


@functools.lru_cache(maxsize=256)
def named_type(dtype: Any) -> DType:
    """flowk's type for the numbers that a caller asks for: a name, a DType, a dtype or scalar type of NumPy or
    ml_dtypes, or a dtype of torch. TypeError where flowk computes with no such type."""
    if isinstance(dtype, DType):
        dtype = _NAMES[dtype]
    is_named = type(dtype).__module__ == "torch" or (isinstance(dtype, str) and dtype in _BY_NAME)
    return number_type(dtype if is_named else numpy_dtype(dtype), "the result")


def dtype_like(code: DType, dtype: Any) -> Any:
    """The dtype of type `code` in the framework whose `dtype` this is: NumPy (all but torch) or torch."""
    if isinstance(dtype, np.dtype):
        return dtype if dtype.name == _NAMES[code] else numpy_dtype(_NAMES[code])
    return getattr(sys.modules["torch"], _NAMES[code])


@functools.lru_cache(maxsize=256)
def element_type(dtype: Any, name: str) -> tuple[DType, int]:
    """(The flowk type as which an element of `dtype` is moved, its bytes); `dtype` is NumPy's or torch's.

    TypeError, which names the parameter `name`, where the elements are not 1, 2, 4, 8 or 16 plain bytes.
    """
    if getattr(dtype, "hasobject", False):
        raise TypeError(f"{name} has dtype {dtype}: its elements are Python objects, must be plain bytes")
    num_bytes = dtype.itemsize
    native = not isinstance(dtype, np.dtype) or dtype.isnative
    code = _BY_NAME.get(str(dtype).removeprefix("torch.")) if native else None
    code = code or _BY_BYTES.get(num_bytes)
    if code is None:
        raise TypeError(f"{name} has dtype {dtype} of {num_bytes} bytes, must be of 1, 2, 4, 8 or 16 bytes")
    return code, num_bytes


def element_strides(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Strides in elements: torch counts in them, NumPy and all that carry its dtypes count bytes.

    ValueError where a stride is not a multiple of the element, as in a view of one field of a struct.
    """
    if not isinstance(dtype, np.dtype):
        return strides
    num_bytes = dtype.itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride % num_bytes and extent > 1:
            raise ValueError(
                f"{name} has strides of {strides} bytes, each must be a multiple of its element's {num_bytes} bytes"
            )
    return tuple(stride // num_bytes for stride in strides)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of C order, in units of 1 / `itemsize` elements: bytes, or elements where `itemsize` is 1."""
    strides = [itemsize] * len(shape)
    for dimension in range(len(shape) - 1, 0, -1):
        strides[dimension - 1] = strides[dimension] * max(shape[dimension], 1)
    return tuple(strides)
