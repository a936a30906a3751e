# SPDX-License-Identifier: Apache-2.0
"""permute by the names and forms of NumPy, the array API, PyTorch and einops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyflowk

X = np.arange(2 * 3 * 4 * 5, dtype=np.int32).reshape(2, 3, 4, 5)


def test_every_form_of_the_axes_gives_the_same(arrays: Any) -> None:
    x = arrays.put(X)
    for order in itertools.permutations(range(4)):
        expected = X.transpose(order)
        pattern = "b h q k -> " + " ".join("bhqk"[axis] for axis in order)
        forms = (order, list(order), np.array(order), iter(order), pattern, pattern.replace(" -> ", "->"))
        for axes in forms:
            np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(x, axes)), expected)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(x, *order)), expected)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(x, *(a - 4 for a in order))), expected)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute_dims(x, order)), expected)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.transpose(x, order)), expected)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.transpose(x)), X.transpose())
    np.testing.assert_array_equal(arrays.fetch(pyflowk.matrix_transpose(x)), np.swapaxes(X, -1, -2))
    half = pyflowk.transpose(x, dtype="float16", scale=0.5)
    np.testing.assert_array_equal(arrays.fetch(half), X.transpose().astype(np.float16) / 2)
    one = arrays.put(X[0, 0, 0])
    np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(one, 0)), X[0, 0, 0])
    assert pyflowk.transpose(arrays.put(np.array(3))).shape == ()


def test_ellipsis_of_a_pattern_is_what_has_no_name(arrays: Any) -> None:
    x = arrays.put(X)
    for pattern, order in {
        "... q k -> ... k q": (0, 1, 3, 2),
        "b ... -> ... b": (1, 2, 3, 0),
        "... -> ...": (0, 1, 2, 3),
        "b h q k ... -> ... k h q b": (3, 1, 2, 0),
    }.items():
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(x, pattern)), X.transpose(order))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("b h (q k) -> b q k h", "groups dimensions: permute only reorders them; reshape"),
        ("a b c d -> a b c", "each name must stand once on both sides"),
        ("a a c d -> a c d a", "each name must stand once on both sides"),
        ("a b c e -> a b c d", "each name must stand once on both sides"),
        ("a b c -> c b a", "names 3 dimensions, x has 4"),
        ("a b c d e ... -> a b c d e ...", "names 5 dimensions, x has 4"),
        ("a 1 c d -> a c d 1", "'1' is no name of a dimension"),
        ("0213", "must be integers or a pattern such as 'b q k -> b k q'"),
        ("a b c d", "must be integers or a pattern"),
        ("a b -> c d -> e", "must be integers or a pattern"),
    ],
)
def test_a_pattern_that_is_no_permutation_is_refused(arrays: Any, pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        pyflowk.permute(arrays.put(X), pattern)


def test_swapaxes_and_moveaxis_are_numpy_s(arrays: Any) -> None:
    x = arrays.put(X)
    for first, second in itertools.product(range(-4, 4), repeat=2):
        swapped, moved = np.swapaxes(X, first, second), np.moveaxis(X, first, second)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.swapaxes(x, first, second)), swapped)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.moveaxis(x, first, second)), moved)
    for axes, places in itertools.product(itertools.permutations(range(4), 2), repeat=2):
        moved = np.moveaxis(X, axes, places)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.movedim(x, axes, places)), moved)
    out = arrays.put(np.zeros((5, 3, 4, 2), np.int32))
    assert pyflowk.swapdims(x, 0, 3, out=out) is out
    np.testing.assert_array_equal(arrays.fetch(out), np.swapaxes(X, 0, 3))


def test_axes_that_are_not_x_s_are_named(arrays: Any) -> None:
    x = arrays.put(X)
    for call, error, text in (
        (lambda: pyflowk.swapaxes(x, 4, 0), ValueError, "axis1 = 4, x has 4 dimensions: must be in -4 ... 3"),
        (lambda: pyflowk.swapaxes(x, 0, 1.0), TypeError, "axis2 is 1.0, must be an integer"),
        (lambda: pyflowk.moveaxis(x, (0, -4), (0, 1)), ValueError, r"source = \(0, -4\), but it must name each"),
        (lambda: pyflowk.moveaxis(x, (0, 1), 0), ValueError, "source has 2 entries and destination has 1"),
        (lambda: pyflowk.transpose([[1]]), TypeError, "x is a list, must be a NumPy array"),
        (lambda: pyflowk.permute(x, 0, 1, 2), ValueError, "axes has 3 entries, x has 4 dimensions"),
        (lambda: pyflowk.permute(x, (0, 1), 2, 3), TypeError, "axes is .* must be integers"),
        (lambda: pyflowk.permute(x, "b h q k -> b h k q", 1), TypeError, "axes is .* must be integers"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_a_dtype_without_a_name_in_flowk_may_be_named() -> None:
    for dtype in ("M8[D]", ">f4"):
        x = np.zeros((2, 3), dtype)
        result = pyflowk.permute(x, (1, 0), dtype=dtype)
        assert result.dtype == np.dtype(dtype) and result.shape == (3, 2)
    with pytest.raises(TypeError, match="must name one of bool"):
        pyflowk.permute(x, (1, 0), dtype="garbage")
