# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules for a DeviceArray, by ctypes: DLManagedTensor, and from DLPack 1.0 DLManagedTensorVersioned."""

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


_python = ctypes.PyDLL(None)
_new_capsule = _python.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
_capsule_is_valid = _python.PyCapsule_IsValid
_capsule_is_valid.restype = c_int
_capsule_is_valid.argtypes = [c_void_p, c_char_p]
_capsule_pointer = _python.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [c_void_p, c_char_p]

# A capsule keeps the address of its name: these two live as long as the process.
_NAMES = (b"dltensor", b"dltensor_versioned")

# address of the managed tensor -> (the struct, its shape and strides, the owner of the memory)
_exported: dict[int, tuple[Any, ...]] = {}


def _delete_exported(managed: int) -> None:
    _exported.pop(managed, None)


def _delete_capsule(capsule: int) -> None:
    # Runs when a capsule dies. A consumer has renamed it ("used_dltensor") and calls the deleter itself. The capsule
    # comes as an address: a py_object would take a reference to an object that is being freed.
    for name in _NAMES:
        if _capsule_is_valid(capsule, name):
            _exported.pop(_capsule_pointer(capsule, name), None)


_delete = ctypes.CFUNCTYPE(None, c_void_p)(_delete_exported)
_delete_unconsumed = ctypes.CFUNCTYPE(None, c_void_p)(_delete_capsule)


def dlpack_type(dtype: np.dtype) -> tuple[int, int]:
    """(DLDataTypeCode, bits) of a dtype; BufferError where DLPack has no such type."""
    code = _TYPE_CODES_BY_NAME.get(dtype.name, _TYPE_CODES.get(dtype.kind) if dtype.isnative else None)
    if code is None:
        raise BufferError(f"DLPack has no type for dtype {dtype}")
    return code, dtype.itemsize * 8


def make_capsule(
    owner: Any,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype,
    device: tuple[int, int],
    *,
    versioned: bool,
) -> Any:
    """A capsule of the tensor at `pointer`, strides in elements, that keeps `owner` alive until its deleter runs."""
    code, bits = dlpack_type(dtype)
    rank = len(shape)
    sizes = (c_int64 * (2 * rank or 1))(*shape, *strides)
    address = ctypes.addressof(sizes)
    managed = _ManagedVersioned(major=1, minor=0) if versioned else _Managed()
    managed.deleter = ctypes.cast(_delete, c_void_p)
    managed.tensor = _Tensor(pointer, *device, rank, code, bits, 1, address, address + 8 * rank, 0)
    _exported[ctypes.addressof(managed)] = (managed, sizes, owner)
    return _new_capsule(ctypes.addressof(managed), _NAMES[versioned], ctypes.cast(_delete_unconsumed, c_void_p))
