# SPDX-License-Identifier: Apache-2.0
"""flowk.h in ctypes: its enums and, as one table, the prototype of every function. tests/test_abi.py holds it to it."""

from __future__ import annotations

import ctypes
from enum import IntEnum

# FLOWK_VERSION and FLOWK_MAX_RANK of the header that this file mirrors.
VERSION = 100
MAX_RANK = 32


class Status(IntEnum):
    """`flowk_status`: what a call came to."""

    SUCCESS = 0
    INVALID_ARGUMENT = 1
    NULL_POINTER = 2
    MISALIGNED_POINTER = 3
    UNSUPPORTED_DTYPE = 4
    OVERLAP = 5
    SIZE_OVERFLOW = 6
    NO_DEVICE = 7
    CUDA_ERROR = 8
    INTERNAL_ERROR = 9


class DType(IntEnum):
    """`flowk_dtype`: the element type of a tensor."""

    BOOL = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    UINT16 = 7
    UINT32 = 8
    UINT64 = 9
    FLOAT16 = 10
    BFLOAT16 = 11
    FLOAT32 = 12
    FLOAT64 = 13
    FLOAT8_E4M3 = 14
    FLOAT8_E5M2 = 15
    COMPLEX64 = 16
    COMPLEX128 = 17


class TensorPointer(ctypes.c_void_p):
    """`void *` or `const void *`: an address as int, or None."""


class Int64Pointer(ctypes.c_void_p):
    """`const int64_t *`: as c_void_p, because an address as int converts in a third of a POINTER's time."""


class Int32Pointer(ctypes.c_void_p):
    """`const int32_t *`."""


class StreamHandle(ctypes.c_void_p):
    """`flowk_stream`: a cudaStream_t as int."""


class SoftmaxMaskPointer(ctypes.c_void_p):
    """`const flowk_softmax_mask *`: the address of a SoftmaxMask, or None."""


class SoftmaxMask(ctypes.Structure):
    """`flowk_softmax_mask`: which columns a softmax keeps, and what it adds to them."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("dense", ctypes.c_void_p),
        ("dense_strides", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("lengths_strides", ctypes.c_void_p),
        ("lengths_dtype", ctypes.c_int),
        ("lengths_from_right", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("causal_offset", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("bias_strides", ctypes.c_void_p),
        ("bias_dtype", ctypes.c_int),
    ]


_status = _dtype = ctypes.c_int
_permute = [
    TensorPointer,  # src
    Int64Pointer,  # src_strides
    TensorPointer,  # dst
    Int64Pointer,  # dst_strides
    ctypes.c_int32,  # rank
    Int64Pointer,  # shape
    Int32Pointer,  # axes
    _dtype,
]
_batch_transpose = [TensorPointer, TensorPointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _dtype]
_strided = [TensorPointer, Int64Pointer]
# What the softmax functions have in common: rank, shape, scale, mask, log_softmax.
_softmax = [ctypes.c_int32, Int64Pointer, ctypes.c_double, SoftmaxMaskPointer, ctypes.c_int32]
_masked_softmax = [*_strided, _dtype, *_strided, _dtype, *_softmax]  # x, y
_masked_softmax_backward = [*_strided, *_strided, _dtype, *_strided, _dtype, *_softmax]  # dy, y, dx
_text = [ctypes.c_char_p, ctypes.c_size_t]

# name: (restype, argtypes)
FUNCTIONS: dict[str, tuple[type, list[type]]] = {
    "flowk_status_string": (ctypes.c_char_p, [_status]),
    "flowk_last_error": (ctypes.c_char_p, []),
    "flowk_version": (ctypes.c_int32, []),
    "flowk_build_info": (ctypes.c_char_p, []),
    "flowk_dtype_bytes": (ctypes.c_size_t, [_dtype]),
    "flowk_dtype_alignment_bytes": (ctypes.c_size_t, [_dtype]),
    "flowk_batch_transpose": (_status, [*_batch_transpose, StreamHandle]),
    "flowk_batch_transpose_explain": (_status, [*_batch_transpose, *_text]),
    "flowk_permute": (_status, [*_permute, StreamHandle]),
    "flowk_permute_explain": (_status, [*_permute, *_text]),
    "flowk_masked_softmax": (_status, [*_masked_softmax, StreamHandle]),
    "flowk_masked_softmax_explain": (_status, [*_masked_softmax, *_text]),
    "flowk_masked_softmax_backward": (_status, [*_masked_softmax_backward, StreamHandle]),
    "flowk_masked_softmax_backward_explain": (_status, [*_masked_softmax_backward, *_text]),
}


def declare(library: ctypes.CDLL) -> None:
    """Sets restype and argtypes of every function of the table; AttributeError when `library` lacks one."""
    for name, (restype, argtypes) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = restype
        function.argtypes = argtypes
