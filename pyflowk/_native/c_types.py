# SPDX-License-Identifier: Apache-2.0
"""The types of flowk.h's parameters in ctypes, and the base of its enums: what the generated abi.py is made of."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL, addressof, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import Any, Protocol, TypeVar

P = TypeVar("P", bound="Pointer")


class HashedEnum(IntEnum):
    """Enum's own hash is written in Python and takes ten times as long. It is inherited, because the Dynamo of PyTorch
    2.11 hashes no object with a hash in its own class."""

    __hash__ = int.__hash__


class Pointer(c_void_p):
    """An address as int, or None. All pointers are c_void_p: an int converts in a third of a POINTER's time, and a C
    value in half of an int's."""

    @classmethod
    def to(cls: type[P], target: Any) -> P:
        """The address of an object of ctypes, which it keeps alive."""
        pointer = cls(addressof(target))
        pointer.target = target  # type: ignore[attr-defined]
        return pointer


class TensorPointer(Pointer):
    """`void *` or `const void *`: an address as int, or None."""


class Int64Pointer(Pointer):
    """`const int64_t *`."""


class Int32Pointer(Pointer):
    """`const int32_t *`."""


class SizePointer(Pointer):
    """`size_t *`."""


class StreamHandle(c_void_p):
    """`flowk_stream`: a cudaStream_t as int."""


class SoftmaxMaskPointer(Pointer):
    """`const flowk_softmax_mask *`: the address of a SoftmaxMask, or None."""


class CrossEntropyOptionsPointer(Pointer):
    """`const flowk_cross_entropy_options *`: the address of a CrossEntropyOptions, or None."""


class Array(Pointer):
    """`T *` or `const T *` of any other kind: an address as int."""


def int64s(numbers: Sequence[int]) -> Int64Pointer:
    """The address of an array of these numbers."""
    return Int64Pointer.to(_array_type(c_int64, len(numbers) or 1)(*numbers))


def int32s(numbers: Sequence[int]) -> Int32Pointer:
    """The address of an array of these numbers."""
    return Int32Pointer.to(_array_type(c_int32, len(numbers) or 1)(*numbers))


# ctypes forgets a type that no array has, and making one takes longer than all else in a plan.
_array_type: Callable[[Any, int], Any] = functools.lru_cache(maxsize=64)(operator.mul)


class Library(Protocol):
    """A library's C functions, by their names."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


def declare(library: CDLL, functions: Mapping[str, tuple[type, list[type]]]) -> None:
    """Sets restype and argtypes of every function of the table; AttributeError if `library` lacks one."""
    for name, (restype, argtypes) in functions.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes
