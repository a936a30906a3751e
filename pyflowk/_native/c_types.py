# SPDX-License-Identifier: Apache-2.0
"""The types of flowk.h's parameters in ctypes, and the base of its enums: what the generated abi.py is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import CDLL, c_void_p
from enum import IntEnum
from typing import Any, Protocol


class HashedEnum(IntEnum):
    """Enum's own hash is written in Python and takes ten times as long. It is inherited, because the Dynamo of PyTorch
    2.11 hashes no object with a hash in its own class."""

    __hash__ = int.__hash__


# All pointers are c_void_p: an address as int converts in a third of a POINTER's time.


class TensorPointer(c_void_p):
    """`void *` or `const void *`: an address as int, or None."""


class Int64Pointer(c_void_p):
    """`const int64_t *`."""


class Int32Pointer(c_void_p):
    """`const int32_t *`."""


class SizePointer(c_void_p):
    """`size_t *`."""


class StreamHandle(c_void_p):
    """`flowk_stream`: a cudaStream_t as int."""


class SoftmaxMaskPointer(c_void_p):
    """`const flowk_softmax_mask *`: the address of a SoftmaxMask, or None."""


class CrossEntropyOptionsPointer(c_void_p):
    """`const flowk_cross_entropy_options *`: the address of a CrossEntropyOptions, or None."""


class Array(c_void_p):
    """`T *` or `const T *` of any other kind: an address as int."""


class Library(Protocol):
    """A library's C functions, by their names."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


def declare(library: CDLL, functions: Mapping[str, tuple[type, list[type]]]) -> None:
    """Sets restype and argtypes of every function of the table; AttributeError if `library` lacks one."""
    for name, (restype, argtypes) in functions.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes
