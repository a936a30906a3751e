# SPDX-License-Identifier: Apache-2.0
"""The geometry of a DeviceArray's views against NumPy's, over drawn arrays, indices and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyflowk._arrays import views

MEMORY = np.arange(4000, dtype=np.int32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@st.composite
def some_array(draw: st.DrawFn) -> np.ndarray:
    """A view of MEMORY with strides of any sign, and 0."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    array = MEMORY[: np.prod(shape, dtype=int)].reshape(shape)
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    for axis, extent in enumerate(array.shape):
        step = draw(st.sampled_from([1, 1, 2, -1, -2, 0]))
        if step:
            array = array[(slice(None),) * axis + (slice(None, None, step),)]
        elif extent == 1:
            wide = (*array.shape[:axis], 3, *array.shape[axis + 1 :])
            array = np.broadcast_to(array, wide)
    return array


PLACES = st.none() | st.integers(-6, 6)
ENTRIES = st.one_of(
    st.integers(-5, 4),
    st.builds(slice, PLACES, PLACES, st.none() | st.sampled_from([1, 2, 3, -1, -2, -7])),
    st.none(),
    st.just(Ellipsis),
    st.integers(-3, 2).map(np.int64),
)


@settings(max_examples=600, deadline=None)
@given(some_array(), st.lists(ENTRIES, max_size=6), st.booleans())
def test_an_index_gives_numpy_s_view(array: np.ndarray, entries: list[Any], is_alone: bool) -> None:
    index: Any = entries[0] if is_alone and len(entries) == 1 else tuple(entries)
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            views.indexed(array.shape, array.strides, index)
        return
    offset, shape, strides = views.indexed(array.shape, array.strides, index)
    assert shape == np.shape(expected)
    if isinstance(expected, np.ndarray) and expected.size:
        kept = [d for d in range(expected.ndim) if shape[d] != 1]
        assert [strides[d] for d in kept] == [expected.strides[d] for d in kept]
        assert address(array) + offset == address(expected)
    elif np.size(expected):
        assert np.ndarray((), np.int32, MEMORY, address(array) - address(MEMORY) + offset) == expected


@pytest.mark.parametrize(
    "index", [True, np.True_, 1.0, "a", [0, 1], np.array([0]), (0, [1]), slice("a"), np.eye(2) > 0]
)
def test_indices_of_arrays_and_bool_are_refused(index: Any) -> None:
    with pytest.raises(TypeError, match=r"must be integers, slices, None or Ellipsis|must have integers or None"):
        views.indexed((2, 3), (12, 4), index)


@settings(max_examples=600, deadline=None)
@given(some_array(), st.data())
def test_a_reshape_is_a_view_where_numpy_s_is(array: np.ndarray, data: st.DataObject) -> None:
    rest, new = array.size, []
    while rest > 1 and len(new) < 4:
        factor = data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        new.append(factor)
        rest //= factor
    new.append(rest)
    shape = tuple(data.draw(st.permutations(new)))
    given_shape = list(shape)
    if array.size and data.draw(st.booleans()):
        given_shape[data.draw(st.integers(0, len(shape) - 1))] = -1
    assert views.wanted_shape(array.size, given_shape) == shape
    strides = views.reshaped_strides(array.shape, array.strides, shape, array.itemsize)
    expected = array.reshape(shape)
    is_view = np.shares_memory(expected, array) if array.size else True
    assert (strides is not None) == is_view
    if strides is not None and array.size:
        same = np.lib.stride_tricks.as_strided(array, shape, strides)
        np.testing.assert_array_equal(same, expected)


def test_shapes_that_do_not_fit_are_named() -> None:
    for shape, text in (
        ((5, 2), r"shape = \(5, 2\), the array has 12 elements"),
        ((-1, 5), r"shape = \(-1, 5\), the array has 12"),
        ((-1, 0), "the array has 12"),
        ((-1, -1), "one may be -1"),
        ((-2, 6), "each extent must be >= 0"),
    ):
        with pytest.raises(ValueError, match=text):
            views.wanted_shape(12, shape)
    with pytest.raises(TypeError, match=r"shape is .* must be integers"):
        views.wanted_shape(12, (3.0, 4))


@settings(max_examples=200, deadline=None)
@given(some_array(), st.none() | st.integers(-5, 4) | st.lists(st.integers(-4, 3), max_size=2, unique=True).map(tuple))
def test_squeeze_is_numpy_s(array: np.ndarray, axis: Any) -> None:
    array = np.atleast_1d(array)  # NumPy takes axes of arrays of rank 0, which have none
    try:
        expected = np.squeeze(array, axis)
    except ValueError:
        if isinstance(axis, tuple) and len({a % max(array.ndim, 1) for a in axis}) < len(axis):
            return  # NumPy refuses the same dimension twice
        with pytest.raises(ValueError, match="axis = "):
            views.squeezed(array.shape, array.strides, axis)
        return
    assert views.squeezed(array.shape, array.strides, axis) == (expected.shape, expected.strides)


@settings(max_examples=200, deadline=None)
@given(some_array(), st.lists(st.integers(0, 4), max_size=5).map(tuple))
def test_broadcasting_is_numpy_s(array: np.ndarray, target: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_to(array, target)
    except ValueError:
        with pytest.raises(ValueError, match="does not broadcast"):
            views.broadcast_strides(array.shape, array.strides, target)
        return
    strides = views.broadcast_strides(array.shape, array.strides, target)
    assert [s for s, n in zip(strides, target) if n > 1] == [s for s, n in zip(expected.strides, target) if n > 1]
