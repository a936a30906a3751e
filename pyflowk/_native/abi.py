# SPDX-License-Identifier: Apache-2.0
"""flowk.h in ctypes: its enums, its structs and one table of prototypes. tests/python/test_abi.py compares the two."""

from __future__ import annotations

import ctypes
from enum import IntEnum

# FLOWK_VERSION and FLOWK_MAX_RANK of the header that this file mirrors.
VERSION = 100
MAX_RANK = 32
# FLOWK_NUMBER: a flag in an input's dtype.
NUMBER = 256
# FLOWK_FUNCTOR_PARAMS_VERSION: of the kernels' parameters in FunctorLaunch.
FUNCTOR_PARAMS_VERSION = 1


class Status(IntEnum):
    """`flowk_status`: the outcome of a call."""

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


class _Hashed(IntEnum):
    """Enum's own hash is written in Python and takes ten times as long. It is inherited, because the Dynamo of PyTorch
    2.11 hashes no object whose own class has one."""

    __hash__ = int.__hash__


class DType(_Hashed):
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


class SizePointer(ctypes.c_void_p):
    """`size_t *`."""


class StreamHandle(ctypes.c_void_p):
    """`flowk_stream`: a cudaStream_t as int."""


class Array(ctypes.c_void_p):
    """`T *` or `const T *` of any other kind: an address as int."""


class FunctorLaunch(ctypes.Structure):
    """`flowk_functor_launch`."""

    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("params_version", ctypes.c_int32),
        ("num_parts", ctypes.c_int32),
        ("kernel", ctypes.c_int32),
        ("pack_elements", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int32),
        ("num_blocks", ctypes.c_int64),
        ("params_bytes", ctypes.c_size_t),
        ("params", ctypes.c_ubyte * 2048),
    )


class SoftmaxMaskPointer(ctypes.c_void_p):
    """`const flowk_softmax_mask *`: the address of a SoftmaxMask, or None."""


class SoftmaxMask(ctypes.Structure):
    """`flowk_softmax_mask`: which columns a softmax masks out, and the bias."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("dense", ctypes.c_void_p),
        ("dense_strides", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("lengths_strides", ctypes.c_void_p),
        ("lengths_dtype", ctypes.c_int32),
        ("lengths_from_right", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("causal_offset", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("bias_strides", ctypes.c_void_p),
        ("bias_dtype", ctypes.c_int32),
    ]


_status = _dtype = ctypes.c_int32
_text = [ctypes.c_char_p, ctypes.c_size_t]
_strided = [TensorPointer, Int64Pointer]  # pointer, strides
_tensor = [*_strided, _dtype]
_extents = [ctypes.c_int32, Int64Pointer]  # rank, shape
_permute = [*_strided * 2, *_extents, Int32Pointer, _dtype]  # src, dst; axes
_permute_convert = [*_tensor * 2, *_extents, Int32Pointer, ctypes.c_double]  # src, dst; axes, scale
_permute_many = [ctypes.c_int32, *[Array, Int64Pointer, _dtype] * 2, *_extents, Int32Pointer, ctypes.c_double]
_batch_transpose = [TensorPointer, TensorPointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _dtype]
_sizes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, _dtype, _dtype]  # outer, channels, inner, types of x, alpha
_prelu = [*[TensorPointer] * 3, *_sizes]  # x, alpha, y
_prelu_backward = [*[TensorPointer] * 5, *_sizes]  # dy, x, alpha, dx, dalpha
_softmax = [*_extents, ctypes.c_double, SoftmaxMaskPointer, ctypes.c_int32]  # scale, mask, log_softmax
_masked_softmax = [*_tensor * 2, *_softmax]  # x, y
_masked_softmax_backward = [*_strided, *_tensor * 2, *_softmax]  # dy, y, dx
_op = ctypes.c_int32
_unary = [_op, *_tensor * 2, *_extents, ctypes.c_double, ctypes.c_double]  # x, out; a, b
_binary = [_op, *_tensor * 3, *_extents]  # x, y, out
_ternary = [_op, *_tensor * 4, *_extents, ctypes.c_double]  # x, y, z, out; a

# name: (restype, argtypes)
FUNCTIONS: dict[str, tuple[type, list[type]]] = {
    "flowk_status_string": (ctypes.c_char_p, [_status]),
    "flowk_last_error": (ctypes.c_char_p, []),
    "flowk_version": (ctypes.c_int32, []),
    "flowk_build_info": (ctypes.c_char_p, []),
    "flowk_dtype_string": (ctypes.c_char_p, [_dtype]),
    "flowk_dtype_bytes": (ctypes.c_size_t, [_dtype]),
    "flowk_dtype_alignment_bytes": (ctypes.c_size_t, [_dtype]),
    "flowk_batch_transpose": (_status, [*_batch_transpose, StreamHandle]),
    "flowk_batch_transpose_explain": (_status, [*_batch_transpose, *_text]),
    "flowk_permute": (_status, [*_permute, StreamHandle]),
    "flowk_permute_explain": (_status, [*_permute, *_text]),
    "flowk_permute_convert": (_status, [*_permute_convert, StreamHandle]),
    "flowk_permute_convert_explain": (_status, [*_permute_convert, *_text]),
    "flowk_permute_many": (_status, [*_permute_many, StreamHandle]),
    "flowk_permute_many_explain": (_status, [*_permute_many, *_text]),
    "flowk_unary_op_name": (ctypes.c_char_p, [_op]),
    "flowk_binary_op_name": (ctypes.c_char_p, [_op]),
    "flowk_ternary_op_name": (ctypes.c_char_p, [_op]),
    "flowk_unary_op_formula": (ctypes.c_char_p, [_op]),
    "flowk_binary_op_formula": (ctypes.c_char_p, [_op]),
    "flowk_ternary_op_formula": (ctypes.c_char_p, [_op]),
    "flowk_unary_op_num_parameters": (ctypes.c_int32, [_op]),
    "flowk_ternary_op_num_parameters": (ctypes.c_int32, [_op]),
    "flowk_unary_op_result": (ctypes.c_int32, [_op, _dtype]),
    "flowk_binary_op_result": (ctypes.c_int32, [_op, _dtype]),
    "flowk_ternary_op_result": (ctypes.c_int32, [_op, _dtype]),
    "flowk_unary": (_status, [*_unary, StreamHandle]),
    "flowk_binary": (_status, [*_binary, StreamHandle]),
    "flowk_ternary": (_status, [*_ternary, StreamHandle]),
    "flowk_unary_explain": (_status, [*_unary, *_text]),
    "flowk_binary_explain": (_status, [*_binary, *_text]),
    "flowk_ternary_explain": (_status, [*_ternary, *_text]),
    "flowk_functor_plan": (_status, [Array, Array, Array, ctypes.c_int32, *_extents, ctypes.c_int32, Array]),
    "flowk_prelu": (_status, [*_prelu, StreamHandle]),
    "flowk_prelu_explain": (_status, [*_prelu, *_text]),
    "flowk_prelu_backward_workspace_bytes": (_status, [*_sizes, SizePointer]),
    "flowk_prelu_backward": (_status, [*_prelu_backward, TensorPointer, ctypes.c_size_t, StreamHandle]),
    "flowk_prelu_backward_explain": (_status, [*_prelu_backward, *_text]),
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
