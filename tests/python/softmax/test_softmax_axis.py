# SPDX-License-Identifier: Apache-2.0
"""softmax over any dimension, by NumPy's and PyTorch's names; names that mean something else here are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyflowk

X = np.random.default_rng(3).normal(size=(3, 4, 5, 6)).astype(np.float32)


def expected(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", range(-4, 4))
def test_every_dimension_of_every_layout(arrays: Any, axis: int) -> None:
    exact = expected(X, axis)
    x = arrays.put(X)
    for result in (pyflowk.softmax(x, axis), pyflowk.softmax(x, axis=axis), pyflowk.softmax(x, dim=axis)):
        assert result.shape == X.shape
        np.testing.assert_allclose(arrays.fetch(result), exact, rtol=1e-5)
    np.testing.assert_allclose(arrays.fetch(pyflowk.log_softmax(x, axis)), np.log(exact), atol=1e-5)
    # x with this dimension innermost, which is read in place; and a C-contiguous and a strided out.
    order = [d for d in range(4) if d != axis % 4] + [axis % 4]
    turned = arrays.put(np.ascontiguousarray(X.transpose(order)).reshape(-1).view(np.uint8))
    strides = [4] * 4
    for outer, inner in reversed(list(itertools.pairwise(order))):
        strides[outer] = strides[inner] * X.shape[inner]
    view = arrays.view(turned, 0, X.shape, strides, np.float32)
    np.testing.assert_allclose(arrays.fetch(pyflowk.softmax(view, axis)), exact, rtol=1e-5)
    copies = pyflowk.explain(pyflowk.softmax, view, axis)
    assert "contiguous copies" not in copies
    out = arrays.put(np.zeros_like(X))
    assert pyflowk.softmax(x, axis, out=out) is out
    np.testing.assert_allclose(arrays.fetch(out), exact, rtol=1e-5)
    assert pyflowk.softmax(view, axis, out=view) is view
    np.testing.assert_allclose(arrays.fetch(view), exact, rtol=1e-5)
    half = pyflowk.softmax(x, axis, dtype="float16")
    assert str(half.dtype) == "float16"
    np.testing.assert_allclose(arrays.fetch(half).astype(np.float64), exact, atol=1e-3)


@pytest.mark.parametrize("shape", [(200, 2), (7, 1000, 3), (1, 40, 49), (3, 5000, 8)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_logarithms_of_large_scores(arrays: Any, shape: tuple[int, ...], dtype: str) -> None:
    """A thread sums the exponentials of its part of a row relative to the part's largest score, times the scale and
    rounded. Sums of several parts are merged by these rounded numbers."""
    axis = len(shape) - 2
    x = (-3000 + 2 * np.random.default_rng(7).integers(0, 6, shape)).astype(dtype)
    z = -2 * x.astype(np.longdouble)
    z -= z.max(axis=axis, keepdims=True)
    exact = (z - np.log(np.exp(z).sum(axis=axis, keepdims=True))).astype(np.float64)
    swapped = x.swapaxes(axis, -1)
    view = arrays.view(arrays.put(x.reshape(-1).view(np.uint8)), 0, swapped.shape, swapped.strides, x.dtype)
    y = arrays.fetch(pyflowk.masked_softmax(view, scale=-2, log=True)).swapaxes(axis, -1)
    half_a_unit = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64) / 2
    assert (np.abs(y.astype(np.float64) - exact) <= half_a_unit + 2e-6 * np.abs(exact)).all()


def test_a_new_result_lies_as_x_does(host_library: None) -> None:
    for axis in range(4):
        assert pyflowk.softmax(X, axis).strides == X.strides
    turned = X.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    assert pyflowk.softmax(turned, 1).strides == turned.strides
    assert pyflowk.softmax(turned, 2).strides == turned.strides
    assert pyflowk.softmax(turned[::2, :, 1:], 2).strides == turned[:2, :, 1:].copy(order="K").strides
    dx = pyflowk.masked_softmax_backward(X.swapaxes(1, 3), pyflowk.softmax(X, 1).swapaxes(1, 3))
    assert dx.strides == X.swapaxes(1, 3).strides


@pytest.mark.parametrize("shape", [(2, 5, 8, 8), (3, 77, 7, 7), (2, 600, 4)])
def test_channels_take_one_pass(arrays: Any, shape: tuple[int, ...]) -> None:
    x = arrays.put(np.random.default_rng(4).normal(size=shape).astype(np.float32))
    assert pyflowk.explain(pyflowk.softmax, x, 1).startswith("strided_rows: ")
    assert pyflowk.explain(pyflowk.softmax, x, 1).endswith("verdict: fast\n")


@pytest.mark.parametrize("scale", [1e-38, -1e-37, 1e-30, 1.0, -5e3, 1e9])
@pytest.mark.parametrize("log", [False, True])
def test_scores_of_any_size_lie_apart(arrays: Any, scale: float, log: bool) -> None:
    x = np.array([[3e38, -3e38, 2e38, 0], [1, 2, 3, 4], [-3e38, -2e38, -3e38, -1e38], [0, 1e-3, 0, -1e-3]], np.float32)
    exact = (scale * x.astype(np.float64)) - (scale * x.astype(np.float64)).max(-1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    apart = arrays.put(np.ascontiguousarray(x.T))
    y = pyflowk.masked_softmax(arrays.view(apart, 0, (4, 4), (4, 16), np.float32), scale=scale, log=log)
    with np.errstate(over="ignore"):
        expected = (exact if log else np.exp(exact)).astype(np.float32)
    np.testing.assert_allclose(arrays.fetch(y), expected, rtol=2e-6, atol=2e-6)


def test_wrong_axes_are_named(arrays: Any) -> None:
    x = arrays.put(X)
    for call, error, text in (
        (lambda: pyflowk.softmax(x, 4), ValueError, "axis = 4, x has 4 dimensions: must be in -4 ... 3"),
        (lambda: pyflowk.softmax(x, dim=-5), ValueError, "dim = -5, x has 4 dimensions: must be in -4 ... 3"),
        (lambda: pyflowk.softmax(x, 1.0), TypeError, "axis is 1.0, must be an integer"),
        (lambda: pyflowk.softmax(x, dim="1"), TypeError, "dim is '1', must be an integer"),
        (lambda: pyflowk.softmax(x, 1, dim=1), TypeError, "axis and dim name the same thing"),
        (lambda: pyflowk.softmax(x, 0, out=arrays.put(X[0])), ValueError, r"out has shape \(4, 5, 6\), must be \(3,"),
        (lambda: pyflowk.softmax(x, 0, out=arrays.put(X[:2])), ValueError, "out has shape"),
        (lambda: pyflowk.softmax(2.0, 0), TypeError, "x is a float, must be an array"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_names_of_other_libraries_say_what_is_meant_here(arrays: Any) -> None:
    x = arrays.put(X)
    for name, text in {
        "attn_mask": "pass mask, where True means masked out .~attn_mask for PyTorch's.",
        "is_causal": "pass causal=True, whose diagonal ends in the last column",
        "key_padding_mask": "pass mask of shape .b, 1, 1, k.",
        "side": "lengths_from_right=True counts them from the right",
        "padding_side": "lengths_from_right=True if the padding is on the left",
        "where": "pass mask, where True means masked out",
        "axis": "the last dimension: permute x",
        "foo": "has no parameter foo: help",
    }.items():
        with pytest.raises(TypeError, match=text):
            pyflowk.masked_softmax(x, **{name: None})


def test_is_causal_of_pytorch_is_the_causal_offset_that_the_message_gives(arrays: Any) -> None:
    x = np.zeros((7, 4), np.float32)
    result = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), causal=True, causal_offset=7 - 4))
    np.testing.assert_array_equal(result != 0, np.tri(7, 4, dtype=bool))


def test_lengths_may_be_a_list_or_an_int(arrays: Any) -> None:
    x = arrays.put(X)
    for given in (2, [1, 5, 0], 3, (4, 0, 6), 2, [[2], [3], [4]]):
        as_array = arrays.put(
            np.broadcast_to(np.asarray(given), (3,) if np.ndim(given) == 0 else np.shape(given)).copy()
        )
        y = pyflowk.masked_softmax(x, lengths=as_array)
        expected = arrays.fetch(y)
        for _ in range(2):
            np.testing.assert_array_equal(arrays.fetch(pyflowk.masked_softmax(x, lengths=given)), expected)
            dx = pyflowk.masked_softmax_backward(x, y, lengths=given)
            np.testing.assert_array_equal(
                arrays.fetch(dx), arrays.fetch(pyflowk.masked_softmax_backward(x, y, lengths=as_array))
            )
