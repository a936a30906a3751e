# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules for a DeviceArray: DLManagedTensor, and from DLPack 1.0 DLManagedTensorVersioned."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

CPU, CUDA = 1, 2  # DLDeviceType

_TYPE_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_TYPE_CODES_BY_NAME = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_NAMES = (b"dltensor", b"dltensor_versioned")
_python = ctypes.PyDLL(None)
_capsule_is_valid = _python.PyCapsule_IsValid
_capsule_is_valid.restype = c_int
_capsule_is_valid.argtypes = [ctypes.py_object, c_char_p]
_capsule_pointer = _python.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, c_char_p]

# A dtype of the same size for elements that NumPy's capsules may not know. The memory is not read.
_STAND_INS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class _Exported:
    """What NumPy's array of the memory stands on: it keeps the owner alive, and the strides."""

    def __init__(self, owner: object, strides: object, interface: dict[str, object]) -> None:
        self.owner, self.strides, self.__array_interface__ = owner, strides, interface


def dlpack_type(dtype: np.dtype) -> tuple[int, int]:
    """(DLDataTypeCode, bits) of a dtype; BufferError if DLPack has no such type."""
    code = _TYPE_CODES_BY_NAME.get(dtype.name, _TYPE_CODES.get(dtype.kind) if dtype.isnative else None)
    if code is None:
        raise BufferError(f"DLPack has no type for dtype {dtype}")
    return code, dtype.itemsize * 8


def make_capsule(
    owner: object,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype,
    device: tuple[int, int],
    *,
    versioned: bool,
) -> Any:
    """A capsule of the tensor at `pointer`, strides in elements, that keeps `owner` alive until its deleter runs.
    Before NumPy 2.1 it is not versioned.

    NumPy makes the capsule, as of an array in host memory, and its fields are overwritten. The destructor and the
    deleter are NumPy's, in C: they run with an exception pending, from any thread, and after the interpreter's end.
    Functions of Python cannot.
    """
    code, bits = dlpack_type(dtype)
    rank, itemsize = len(shape), dtype.itemsize
    in_elements = (c_int64 * max(rank, 1))(*strides)
    interface = {
        "version": 3,
        "shape": tuple(shape),
        "typestr": np.dtype(_STAND_INS[itemsize]).str,
        "data": (pointer or ctypes.addressof(in_elements), False),  # NumPy takes no array at address 0
        "strides": tuple(stride * itemsize for stride in strides),
    }
    array = np.asarray(_Exported(owner, in_elements, interface))
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned and _MAKES_VERSIONED else array.__dlpack__()
    is_versioned = bool(_capsule_is_valid(capsule, _NAMES[1]))
    address = _capsule_pointer(capsule, _NAMES[is_versioned])
    tensor = (_ManagedVersioned if is_versioned else _Managed).from_address(address).tensor
    tensor.data, tensor.byte_offset = pointer, 0
    tensor.device_type, tensor.device_id = device
    tensor.code, tensor.bits = code, bits
    tensor.strides = ctypes.addressof(in_elements)  # NumPy's may be NULL
    return capsule


def exchange_api(array_type: type) -> int | None:
    """The address of the table of C functions of an array's type, as DLPack 1 has it; None if there is none."""
    capsule = getattr(array_type, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    address = _capsule_pointer(capsule, b"dlpack_exchange_api")
    major = c_uint32.from_address(address).value
    reads_tensors = c_void_p.from_address(address + 16 + 3 * ctypes.sizeof(c_void_p)).value
    return address if major == 1 and reads_tensors else None


_MAKES_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
