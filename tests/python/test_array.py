# SPDX-License-Identifier: Apache-2.0
"""Which arrays pyflowk takes and returns: on the host: kinds, dtypes, protocols, streams."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays import dlpack as _dlpack
from pyflowk._arrays.dtypes import element_type, numpy_dtype
from pyflowk._arrays.stream import stream_handle

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


# ---- NumPy ----------------------------------------------------------------------------------------------------------

NUMPY_DTYPES = [
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"),
    *("M8[ns]", "m8[s]", "S1", "S8", "U1", "V2", "V16", ">f4", ">i8", ">c8", np.dtype([("a", "i4"), ("b", "f4")])),
]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.usefixtures("host_library")
def test_any_numpy_dtype_of_a_size_that_flowk_moves_keeps_its_bits(dtype: Any) -> None:
    num_bytes = np.dtype(dtype).itemsize
    bits = np.random.default_rng(1).integers(0, 256, 6 * 5 * num_bytes, dtype=np.uint8)
    x = (bits % 2 if dtype == "?" else bits).view(dtype).reshape(6, 5)
    for call in (lambda: pyflowk.permute(x, (1, 0)), lambda: pyflowk.permute(x, (1, 0), out=np.empty((5, 6), dtype))):
        result = call()
        assert result.dtype == x.dtype
        assert result.tobytes() == np.ascontiguousarray(x.T).tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4"])
@pytest.mark.usefixtures("host_library")
def test_dtypes_of_ml_dtypes_keep_their_bits(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    assert numpy_dtype(name) == dtype
    x = np.arange(30 * dtype.itemsize, dtype=np.uint8).view(dtype).reshape(5, 6)
    result = pyflowk.permute(x, (1, 0))
    assert result.dtype == dtype
    assert result.tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_dtypes_have_their_own_code_where_flowk_has_one() -> None:
    for name, code in (("bool", 1), ("int16", 3), ("float16", 10), ("float32", 12), ("complex128", 17)):
        assert element_type(np.dtype(name), "x") == (code, np.dtype(name).itemsize)
    for name, code in ((">f4", 8), ("M8[s]", 9), ("V16", 17), ("S1", 6)):
        assert element_type(np.dtype(name), "x")[0] == code
    if pytest.importorskip("ml_dtypes"):
        for name, code in (("bfloat16", 11), ("float8_e4m3fn", 14), ("float8_e5m2", 15), ("float8_e4m3b11fnuz", 6)):
            assert element_type(numpy_dtype(name), "x")[0] == code


@pytest.mark.usefixtures("host_library")
def test_numpy_views_of_every_form_are_read_where_they_are() -> None:
    base = np.arange(4 * 6 * 8).reshape(4, 6, 8)
    for x in (
        *(base[::-1], base[:, ::2], base[1:3, :, 3], base[..., ::-3], base.T, base[:, None], base[2, 3, 4, ...]),
        *(base[:0], np.broadcast_to(base, (3, 4, 6, 8)), np.broadcast_to(np.int16(7), (5, 3))),
    ):
        axes = range(x.ndim)[::-1]
        result = pyflowk.permute(x, axes)
        assert type(result) is np.ndarray
        assert result.flags.c_contiguous
        np.testing.assert_array_equal(result, np.transpose(x, axes))


@pytest.mark.usefixtures("host_library")
def test_a_subclass_of_ndarray_gives_a_plain_array() -> None:
    class Tagged(np.ndarray):
        pass

    result = pyflowk.permute(MATRIX.view(Tagged), (1, 0))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, MATRIX.T)


@pytest.mark.usefixtures("host_library")
def test_extents_of_1_may_have_any_strides() -> None:
    x = np.ndarray((1, 3), np.int32, np.arange(3, dtype=np.int32), strides=(7, 4))
    np.testing.assert_array_equal(pyflowk.permute(x, (1, 0)), [[0], [1], [2]])


# ---- other kinds, on the host ---------------------------------------------------------------------------------------


class Producer:
    """A host array that speaks DLPack only, through pyflowk's own capsules."""

    def __init__(self, array: np.ndarray, *, versioned: bool) -> None:
        self.array = array
        self._versioned = versioned

    def __dlpack__(self, **options: Any) -> Any:
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        place = (_dlpack.CPU, 0)
        return _dlpack.make_capsule(
            *(self.array, self.array.ctypes.data, self.array.shape, strides, self.array.dtype, place),
            versioned=self._versioned,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CPU, 0)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.usefixtures("host_library")
def test_a_dlpack_array_on_the_host_is_taken_and_numpy_returned(versioned: bool) -> None:
    result = pyflowk.permute(Producer(MATRIX[::-1, 1:], versioned=versioned), (1, 0))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, MATRIX[::-1, 1:].T)


@pytest.mark.usefixtures("host_library")
def test_a_dlpack_array_on_the_host_may_be_out() -> None:
    out = np.zeros((4, 3), np.float32)
    producer = Producer(out, versioned=True)
    assert pyflowk.permute(MATRIX, (1, 0), out=producer) is producer
    np.testing.assert_array_equal(out, MATRIX.T)


class Owner:
    """Of memory: what a capsule keeps alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def capsule(self, *, versioned: bool, dtype: Any = None, device: tuple[int, int] = (_dlpack.CPU, 0)) -> Any:
        array = self.array
        strides = tuple(stride // array.itemsize for stride in array.strides)
        dtype = array.dtype if dtype is None else np.dtype(dtype)
        return _dlpack.make_capsule(self, array.ctypes.data, array.shape, strides, dtype, device, versioned=versioned)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_keeps_its_memory_until_its_consumer_is_done(versioned: bool) -> None:
    owner = Owner(MATRIX.copy())
    owned = weakref.ref(owner)
    unconsumed = owner.capsule(versioned=versioned)
    del owner
    gc.collect()
    assert owned() is not None
    del unconsumed
    assert owned() is None

    owner = Owner(MATRIX.copy())
    owned = weakref.ref(owner)
    view = np.from_dlpack(Producer(owner.array, versioned=versioned))[1:]
    capsules = [owner.capsule(versioned=versioned)]
    consumed = np.from_dlpack(SimpleNamespace(__dlpack__=lambda **_: capsules.pop(), __dlpack_device__=lambda: (1, 0)))
    del owner
    gc.collect()
    assert owned() is not None
    np.testing.assert_array_equal(view, MATRIX[1:])
    np.testing.assert_array_equal(consumed, MATRIX)
    del consumed
    gc.collect()
    assert owned() is None


@pytest.mark.parametrize("versioned", [False, True])
def test_a_capsule_that_dies_in_an_exception_leaves_it(versioned: bool, capfd: pytest.CaptureFixture[str]) -> None:
    owner = Owner(MATRIX.copy())
    owned = weakref.ref(owner)
    not_callable: Any = []
    with pytest.raises(TypeError, match="'list' object is not callable"):
        not_callable(owner.capsule(versioned=versioned))
    with pytest.raises(ZeroDivisionError):
        list(map(lambda capsule, divisor: 1 / divisor, [owner.capsule(versioned=versioned)], [0]))
    del owner
    gc.collect()
    assert owned() is None
    assert "ignored" not in capfd.readouterr().err


def test_a_capsule_has_the_tensor_s_fields() -> None:
    torch = pytest.importorskip("torch")
    for dtype, of_torch in ((None, torch.float32), ("bfloat16", torch.bfloat16), ("bool", torch.bool)):
        host = MATRIX if dtype is None else np.zeros((3, 4), np.uint16 if dtype == "bfloat16" else np.uint8)
        named = None if dtype is None else numpy_dtype(dtype)
        for array in (host, host.T, host[:, 1:], host[:0], host[1, 2]):
            array = np.asarray(array)
            for versioned in (False, True):
                tensor = torch.utils.dlpack.from_dlpack(Owner(array).capsule(versioned=versioned, dtype=named))
                assert (tensor.dtype, tuple(tensor.shape)) == (of_torch, array.shape)
                assert tensor.stride() == tuple(stride // array.itemsize for stride in array.strides)
                assert tensor.data_ptr() == array.ctypes.data or array.size == 0


def test_a_capsule_may_outlive_the_interpreter() -> None:
    program = """
import ctypes, numpy as np
from pyflowk._arrays import dlpack
memory = np.ones((2, 3), np.float32)
capsule = dlpack.make_capsule(memory, memory.ctypes.data, (2, 3), (3, 1), memory.dtype, (1, 0), versioned=False)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
managed = get(capsule, b"dltensor")
ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
used = ctypes.c_char_p(b"used_dltensor")
ctypes.pythonapi.PyCapsule_SetName(capsule, used)
deleter = ctypes.c_void_p.from_address(managed + ctypes.sizeof(dlpack._Tensor) + 8).value
# As a C library that deletes its tensors when the process ends, after the interpreter.
at_exit = ctypes.CDLL(None).__cxa_atexit
at_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
assert at_exit(deleter, managed, None) == 0
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_dlpack_has_no_type_for_some_dtypes() -> None:
    for dtype in ("M8[s]", "V16", ">f4", "S4"):
        with pytest.raises(BufferError, match="DLPack has no type"):
            _dlpack.dlpack_type(np.dtype(dtype))
    assert _dlpack.dlpack_type(np.dtype("complex64")) == (5, 64)
    assert _dlpack.dlpack_type(np.dtype("bool")) == (6, 8)


# ---- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_may_be_an_int_or_any_stream_object() -> None:
    class CudaCore:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 77)

    numba = SimpleNamespace(handle=SimpleNamespace(value=77))
    numba_default = SimpleNamespace(handle=SimpleNamespace(value=None))
    for stream in (77, CudaCore(), SimpleNamespace(cuda_stream=77), SimpleNamespace(ptr=77), numba):
        assert stream_handle(stream) == 77
    assert stream_handle(numba_default) == 0
