# SPDX-License-Identifier: Apache-2.0
"""DeviceArray's views, operators and creation functions against NumPy's, on a GPU; what needs none runs without."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays.device_array import DeviceArray

gpu = pytest.mark.gpu
X = np.random.default_rng(2).integers(-50, 50, (4, 5, 6)).astype(np.float32)


def unallocated(host: np.ndarray) -> DeviceArray:
    """A DeviceArray with the geometry of `host` and no memory."""
    return DeviceArray(None, 1 << 40, host.shape, host.strides, host.dtype, 0, 1)


# ---- geometry and protocols, without memory ------------------------------------------------------------------------


def test_views_have_numpy_s_geometry_and_share_memory() -> None:
    a = unallocated(X)
    for view, expected in (
        (a[1:, ::-2, None], X[1:, ::-2, None]),
        (a[..., 3], X[..., 3]),
        (a[-1], X[-1]),
        (a.T, X.T),
        (a.mT, X.transpose(0, 2, 1)),
        (a.transpose(2, 0, 1), X.transpose(2, 0, 1)),
        (a.transpose((-1, 0, 1)), X.transpose(2, 0, 1)),
        (a.reshape(20, -1), X.reshape(20, 6)),
        (a.reshape((2, 2, 5, 6)), X.reshape(2, 2, 5, 6)),
        (a[:1].squeeze(), X[:1].squeeze()),
        (a[None, :, None].squeeze(0), X[:, None]),
    ):
        assert type(view) is DeviceArray
        assert (view.shape, view.dtype, view.stream) == (expected.shape, expected.dtype, 1)
        kept = [d for d in range(expected.ndim) if expected.shape[d] != 1]
        assert [view.strides[d] for d in kept] == [expected.strides[d] for d in kept]
        offset = expected.__array_interface__["data"][0] - X.__array_interface__["data"][0]
        assert view.ptr - a.ptr == offset
    assert len(a) == 4
    assert [row.ptr - a.ptr for row in a] == [0, 120, 240, 360]


def test_what_numpy_s_arrays_refuse_is_refused() -> None:
    a, one = unallocated(X), unallocated(X[0, 0, 0:1].reshape(()))
    for call, error, text in (
        (lambda: hash(a), TypeError, "unhashable"),
        (lambda: bool(a), ValueError, "truth value of an array of 120 elements is ambiguous"),
        (lambda: bool(a[:0]), ValueError, "array of 0 elements is ambiguous"),
        (lambda: float(a), ValueError, "120 elements, must have 1"),
        (lambda: len(one), TypeError, "without dimensions has no len"),
        (lambda: iter(one), TypeError, "without dimensions has no len"),
        (lambda: range(one), TypeError, "integers without dimensions"),
        (lambda: one.mT, ValueError, "0 dimensions has no last two"),
        (lambda: a.transpose(0, 1), ValueError, r"axes = \(0, 1\), must name each of the array's 3 dimensions once"),
        (lambda: a.squeeze(0), ValueError, "dimension 0 has extent 4, must be 1"),
        (lambda: a.reshape(7, -1), ValueError, "the array has 120 elements"),
        (lambda: a[[0, 1]], TypeError, "must be integers, slices, None or Ellipsis"),
        (lambda: a[a], TypeError, "must be integers, slices, None or Ellipsis"),
        (lambda: a[4], IndexError, "index 4 of dimension 0"),
        (lambda: a + "s", TypeError, "unsupported operand"),
        (lambda: a < [1], TypeError, "not supported between"),
    ):
        with pytest.raises(error, match=text):
            call()
    assert (a == "s") is False
    assert (a != None) is True  # noqa: E711


def test_an_assignment_of_what_is_there_already_writes_nothing() -> None:
    a = unallocated(X)
    a[1] = a[1]  # as a[1] += b does at its end; the memory is nowhere
    a[:, ::2] = a[:, ::2]


def test_numpy_is_told_to_call_to_numpy() -> None:
    a = unallocated(X)
    for call in (np.asarray, np.array, lambda a: np.stack([a, a]), lambda a: np.dot(a, a)):
        with pytest.raises(TypeError, match=r"in GPU memory: call its to_numpy\(\)"):
            call(a)
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.exp(a)


# ---- with memory ---------------------------------------------------------------------------------------------------


@gpu
def test_views_hold_numpy_s_values() -> None:
    a = pyflowk.asarray(X)
    for view, expected in (
        (a[1:, ::-2, None], X[1:, ::-2, None]),
        (a.T[::-1, 2], X.T[::-1, 2]),
        (a.T.reshape(-1), X.T.reshape(-1)),
        (a[::2].copy(), X[::2]),
        (a[:, :, 1].astype("int16"), X[:, :, 1].astype(np.int16)),
        (a.mT.astype(np.float32), X.transpose(0, 2, 1)),
    ):
        np.testing.assert_array_equal(view.to_numpy(), expected)
    assert a[1, 2, 3].item() == X[1, 2, 3]
    assert float(a[1, 2, 3]) == X[1, 2, 3]
    assert bool(a[:1, :1, :1] == a[0, 0, 0])
    assert [1, 2, 3][pyflowk.asarray(np.int32(2))] == 3


@gpu
def test_views_outlive_their_array() -> None:
    view = pyflowk.asarray(X)[1:]
    others = [pyflowk.full(X.shape, 9.0, np.float32) for _ in range(8)]
    np.testing.assert_array_equal(view.to_numpy(), X[1:])
    assert len(others) == 8


@gpu
def test_elements_are_written_through_views() -> None:
    a, host = pyflowk.asarray(X), X.copy()
    steps: list[tuple[Any, Any]] = [
        ((slice(None), 1), 7),
        ((0, slice(None, None, -2)), -1.5),
        (Ellipsis, X[::-1].copy()),
        ((slice(None), slice(None), 0), np.arange(5, dtype=np.int32)),
        ((2,), 3),
    ]
    for index, value in steps:
        a[index] = value
        host[index] = value
        np.testing.assert_array_equal(a.to_numpy(), host)
    a[1] += 2
    host[1] += 2
    a[0] = a[3]
    host[0] = host[3]
    a[1:] = a[:-1]
    host[1:] = host[:-1].copy()
    np.testing.assert_array_equal(a.to_numpy(), host)


@gpu
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_operators_are_numpy_s(dtype: Any) -> None:
    x, y = X.astype(dtype), np.where(X[::-1] == 0, 3, X[::-1]).astype(dtype)
    a, b = pyflowk.asarray(x), pyflowk.asarray(y)
    two = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
    two += [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
    if dtype == np.int32:
        two += [operator.and_, operator.or_, operator.xor, operator.rshift]
        np.testing.assert_array_equal((~a).to_numpy(), ~x)
    for operate in two:
        for got, expected in (
            (operate(a, b), operate(x, y)),
            (operate(a, 3), operate(x, 3)),
            (operate(3, b), operate(3, y)),
            (operate(np.int32(3), b), operate(np.int32(3), y)),
        ):
            assert type(got) is DeviceArray
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got.to_numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal((-a).to_numpy(), -x)
    np.testing.assert_array_equal(abs(a).to_numpy(), abs(x))
    same = a
    a += b
    assert a is same
    np.testing.assert_array_equal(a.to_numpy(), x + y)
    np.testing.assert_array_equal((a[:, :1] * b.T[:, :1].T).to_numpy(), (x + y)[:, :1] * y.T[:, :1].T)


@gpu
@pytest.mark.parametrize("dtype", ["bool", "i1", "f2", "f4", "f8", "u8", "c8", "c16"])
def test_creation_functions_are_numpy_s(dtype: str) -> None:
    for shape in ((), (3,), (4, 0), (5, 7)):
        for got, expected in (
            (pyflowk.zeros(shape, dtype), np.zeros(shape, dtype)),
            (pyflowk.ones(shape, dtype), np.ones(shape, dtype)),
            (pyflowk.full(shape, 1, dtype), np.full(shape, 1, dtype)),
        ):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got.to_numpy(), expected)
        like = pyflowk.empty_like(np.zeros(shape, dtype))
        assert (like.shape, like.dtype) == (shape, np.dtype(dtype))
    assert pyflowk.full(2, 3.5).dtype == np.float64
    with pytest.raises(OverflowError):
        pyflowk.full(2, 300, "int8")


@gpu
def test_from_dlpack_shares_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4).T
    a = pyflowk.from_dlpack(tensor)
    assert (a.shape, a.strides, a.ptr) == ((4, 3), (4, 16), tensor.data_ptr())
    np.testing.assert_array_equal((a + 1).to_numpy(), tensor.cpu().numpy() + 1)
    a.fill(5)
    assert pyflowk.asarray(a) is a
    torch.cuda.synchronize()
    assert bool((tensor == 5).all())
    with pytest.raises(TypeError, match=r"must be an array on a GPU: asarray\(\) copies"):
        pyflowk.from_dlpack(torch.zeros(3))
