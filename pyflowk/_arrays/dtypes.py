# SPDX-License-Identifier: Apache-2.0
"""Element types: from the dtypes of NumPy, ml_dtypes and torch to flowk.h's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from .._arguments import shown
from .._native.abi import DType
from .frameworks import ADAPTERS, cached

if TYPE_CHECKING:
    from .adapters.base import Geometry

D = TypeVar("D")


class ElementDType(Protocol):
    """A dtype of NumPy, or of a framework that has its own."""

    @property
    def itemsize(self) -> int: ...
    def __hash__(self) -> int: ...


# The names in NumPy, ml_dtypes and torch.
_NAMES = {code: code.name.lower() for code in DType} | {DType.FLOAT8_E4M3: "float8_e4m3fn"}
_BY_NAME = {name: code for code, name in _NAMES.items()}
# For moves of any other type (datetime64, other byte orders, small structs), which need only the element's size.
_BY_BYTES = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64, 16: DType.COMPLEX128}
# The names of dtypes start with one of these if their arrays hold more than elements, such as torch.qint8.
_OPAQUE = ("q", "bits")
# All types, those that functions compute in, and what softmax and PReLU compute in.
ALL_TYPES = tuple(DType)
NUMBER_TYPES = tuple(code for code in DType if code < DType.COMPLEX64)
FLOAT_TYPES = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)


def numpy_dtype(dtype: Any, name: str = "dtype") -> np.dtype[Any]:
    """np.dtype(dtype) of the argument `name`; names of ml_dtypes ("bfloat16", "float8_e5m2") work if that package
    is installed.

    TypeError if there is no such type, ImportError for flowk's own types of ml_dtypes without that package.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except (TypeError, ValueError, SyntaxError, OverflowError) as error:
        try:
            ml_dtypes: Any = import_module("ml_dtypes")
        except Exception:  # a broken package raises more than ImportError
            if isinstance(dtype, str) and dtype in _BY_NAME:
                raise ImportError(
                    f"{name} = {dtype!r}: NumPy has this type from ml_dtypes (pip install ml_dtypes)"
                ) from error
        else:
            scalar = getattr(ml_dtypes, dtype, None) if isinstance(dtype, str) else None
            if isinstance(scalar, type) and not np.dtype(scalar).hasobject:
                return np.dtype(scalar)
        raise TypeError(f"{name} = {shown(dtype)}, must be a type of NumPy or ml_dtypes") from error


def dtype_name(code: DType) -> str:
    """The name of a type in NumPy, ml_dtypes and torch."""
    return _NAMES[code]


def dtype_named(name: str) -> DType | None:
    """The type called `name`; None if there is none."""
    return _BY_NAME.get({"float8_e4m3": "float8_e4m3fn", "float": "float64", "int": "int64"}.get(name, name))


@functools.lru_cache(maxsize=256)
def number_type(dtype: ElementDType, name: str, allowed: str = "bool, integers or floats") -> DType:
    """flowk's type for the numbers of `dtype`, which is NumPy's or torch's.

    TypeError, which names the parameter `name` and what is `allowed`, if flowk does not compute with that type.
    """
    code = type_of_elements(dtype)
    if code is None or code >= DType.COMPLEX64:
        raise wrong_dtype(name, dtype, f"{allowed} of at most 64 bits" if "float" in str(dtype) else allowed)
    return code


@functools.lru_cache(maxsize=256)
def float_type(dtype: ElementDType, name: str) -> DType:
    """number_type() for functions that compute in float16, bfloat16, float32 or float64."""
    code = type_of_elements(dtype)
    if code not in FLOAT_TYPES:
        raise wrong_dtype(name, dtype, listed(FLOAT_TYPES))
    return code


def coefficient_types(code: DType) -> tuple[DType, ...]:
    """Allowed types of alpha or bias: x's, which is `code`, and float32 for 16-bit x."""
    return (code, DType.FLOAT32) if code in (DType.FLOAT16, DType.BFLOAT16) else (code,)


def softmax_results(code: DType) -> tuple[DType, ...]:
    """Allowed types of a softmax of x of type `code`."""
    return tuple(one for one in FLOAT_TYPES if one in coefficient_types(code) or code in coefficient_types(one))


def wrong_dtype(name: str, dtype: object, allowed: str) -> TypeError:
    """The exception for an array `name` of type `dtype`: what is allowed, and what to do if only the byte order is
    wrong."""
    text = f"{name} has dtype {dtype}, must be {allowed}"
    if isinstance(dtype, np.dtype) and not dtype.isnative and dtype.name in _BY_NAME:
        text += f": NumPy's {name}.astype({dtype.name!r}) has this machine's byte order"
    return TypeError(text)


def listed(codes: Iterable[DType]) -> str:
    """The names of types, in an error."""
    *others, last = (_NAMES[code] for code in codes)
    return f"{', '.join(others)} or {last}" if others else last


def named_type(dtype: object, allowed: Sequence[DType] = NUMBER_TYPES) -> DType:
    """flowk's type that a caller asks for in the parameter `dtype`: a name, a DType, a dtype or scalar type of NumPy or
    ml_dtypes, or a dtype of torch. TypeError if it is not one of `allowed`."""
    try:
        code = None if isinstance(dtype, np.generic) else _named_type(dtype)
    except (TypeError, ValueError):  # an argument that cannot be hashed, a list for example, is none of these
        code = None
    if code is None or code not in allowed:
        raise TypeError(f"dtype = {shown(dtype)}, must name one of {', '.join(_NAMES[one] for one in allowed)}")
    return code


# The cache tells types apart too: a DType equals its number, and a number names no type.
@cached(256)
def _named_type(dtype: object) -> DType | None:
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    return type_of_elements(dtype if _is_framework_dtype(dtype) else numpy_dtype(dtype))


def _is_framework_dtype(dtype: object) -> bool:
    """Whether this is a dtype of a framework that has its own, and not an argument of np.dtype()."""
    return type(dtype).__module__ in ADAPTERS and hasattr(dtype, "itemsize")


@cached(256)
def type_of_elements(dtype: object) -> DType | None:
    """flowk's type with the name of a dtype of NumPy or a framework; None if there is none."""
    native = not isinstance(dtype, np.dtype) or dtype.isnative
    return _BY_NAME.get(str(dtype).rpartition(".")[2]) if native else None


def dtype_like(code: DType, dtype: D) -> D:
    """The dtype of type `code` in the framework of `dtype`: NumPy, or a module that has its dtypes by name."""
    if not isinstance(dtype, np.dtype):
        result: D = getattr(sys.modules[type(dtype).__module__], _NAMES[code])
        return result
    return dtype if dtype.name == _NAMES[code] else cast(D, numpy_dtype(_NAMES[code]))


@functools.lru_cache(maxsize=256)
def element_type(dtype: ElementDType, name: str) -> tuple[DType, int]:
    """(The flowk type as which an element of `dtype` is moved, its bytes); `dtype` is NumPy's or torch's.

    TypeError, which names the parameter `name`, if the elements are not 1, 2, 4, 8 or 16 plain bytes.
    """
    if getattr(dtype, "hasobject", False):
        raise TypeError(f"{name} has dtype {dtype}: its elements are Python objects, must be plain bytes")
    if not isinstance(dtype, np.dtype) and str(dtype).rpartition(".")[2].startswith(_OPAQUE):
        raise TypeError(f"{name} has dtype {dtype}: its tensors hold more than elements, must be plain bytes")
    num_bytes = dtype.itemsize
    code = type_of_elements(dtype) or _BY_BYTES.get(num_bytes)
    if code is None:
        raise TypeError(f"{name} has dtype {dtype} of {num_bytes} bytes, must be of 1, 2, 4, 8 or 16 bytes")
    return code, num_bytes


def element_strides(
    dtype: ElementDType, shape: tuple[int, ...], strides: tuple[int, ...], name: str
) -> tuple[int, ...]:
    """Strides in elements: torch counts elements; NumPy, and arrays with its dtypes, count bytes.

    ValueError if a stride is not a multiple of the element, as in a view of one field of a struct.
    """
    if not isinstance(dtype, np.dtype):
        return strides
    num_bytes = dtype.itemsize
    for extent, stride in zip(shape, strides, strict=True):
        if stride % num_bytes and extent > 1:
            raise ValueError(
                f"{name} has strides of {strides} bytes, each must be a multiple of its element's {num_bytes} bytes"
            )
    return tuple([stride // num_bytes for stride in strides])


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of C order, in units of 1 / `itemsize` elements: bytes, or elements if `itemsize` is 1."""
    strides = [itemsize] * len(shape)
    for dimension in range(len(shape) - 1, 0, -1):
        strides[dimension - 1] = strides[dimension] * max(shape[dimension], 1)
    return tuple(strides)


def strides_in_order(shape: tuple[int, ...], order: tuple[int, ...] | None, itemsize: int = 1) -> tuple[int, ...]:
    """Strides of a new array whose dimensions have this order in memory; units as in contiguous_strides()."""
    if order is None:
        return contiguous_strides(shape, itemsize)
    by_dimension = dict(zip(order, contiguous_strides(tuple(shape[d] for d in order), itemsize)))
    return tuple(by_dimension[d] for d in range(len(shape)))


def have_same_strides(shape: tuple[int, ...], strides: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether both reach the same elements. The stride of an extent of 1 does not matter, nor any of an empty array."""
    return 0 in shape or all(a == b or extent == 1 for a, b, extent in zip(strides, others, shape, strict=True))


def is_contiguous(geometry: Geometry, name: str) -> bool:
    """Whether the array in parameter `name` is in C order without gaps."""
    shape, strides, dtype = geometry
    return have_same_strides(shape, element_strides(dtype, shape, strides, name), contiguous_strides(shape, 1))


def has_contiguous_rows(geometry: Geometry, name: str) -> bool:
    """Whether the elements of the last dimension are neighbours."""
    shape, strides, dtype = geometry
    return not shape or shape[-1] <= 1 or element_strides(dtype, shape[-1:], strides[-1:], name) == (1,)
