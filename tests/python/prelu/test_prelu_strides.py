# SPDX-License-Identifier: Apache-2.0
"""PReLU and its gradients of arrays of any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflowk

SHAPE = (2, 3, 4, 5)
# Offset in elements and strides in elements of views of 400 elements: a slice, every other column, a dimension
# reversed, one repeated, C order, channels last.
VIEWS = {
    "slice": (0, (100, 30, 6, 1)),
    "every other": (1, (160, 40, 10, 2)),
    "reversed": (359, (-160, -40, -10, -2)),
    "repeated": (0, (0, 20, 5, 1)),
    "C order": (0, (60, 20, 5, 1)),
    "channels last": (0, (60, 1, 15, 3)),
}


def view_of(arrays: Any, name: str, dtype: str, seed: int) -> tuple[Any, np.ndarray, Any]:
    """(A view of drawn memory, its values, the memory)."""
    offset, strides = VIEWS[name]
    itemsize = np.dtype(dtype).itemsize
    host = np.random.default_rng(seed).normal(0, 1, 400).astype(dtype)
    byte_strides = tuple(stride * itemsize for stride in strides)
    values = np.ndarray(SHAPE, host.dtype, host, offset * itemsize, byte_strides).copy()
    memory = arrays.put(host.view(np.uint8))
    return arrays.view(memory, offset * itemsize, SHAPE, byte_strides, host.dtype), values, memory


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("other", VIEWS)
def test_any_strides_are_taken(arrays: Any, dtype: str, name: str, other: str) -> None:
    x, values, _ = view_of(arrays, name, dtype, 1)
    dy, dy_values, _ = view_of(arrays, other, dtype, 2)
    for alpha_shape in ((3,), (1,)):
        alpha = arrays.put(np.random.default_rng(3).normal(0, 1, alpha_shape).astype(dtype))
        whole, dy_whole = arrays.put(values), arrays.put(dy_values)
        y = pyflowk.prelu(x, alpha)
        assert type(y) is type(pyflowk.prelu(whole, alpha))
        np.testing.assert_array_equal(arrays.fetch(y), arrays.fetch(pyflowk.prelu(whole, alpha)))
        dx, dalpha = pyflowk.prelu_backward(dy, x, alpha)
        expected_dx, expected_dalpha = pyflowk.prelu_backward(dy_whole, whole, alpha)
        np.testing.assert_array_equal(arrays.fetch(dx), arrays.fetch(expected_dx))
        np.testing.assert_allclose(
            arrays.fetch(dalpha).astype(float), arrays.fetch(expected_dalpha).astype(float), rtol=4e-3, atol=4e-3
        )
        assert pyflowk.prelu_backward_workspace_bytes(x, alpha) >= 0


@pytest.mark.parametrize(("offset", "stride"), [(0, 2), (2, -1), (0, 0)], ids=["every other", "reversed", "repeated"])
@pytest.mark.parametrize("name", ["C order", "channels last", "slice"])
@pytest.mark.parametrize(("dtype", "alpha_dtype"), [("float16", "float32"), ("float64", "float64")])
def test_an_alpha_of_any_stride_is_taken(
    arrays: Any, dtype: str, alpha_dtype: str, name: str, offset: int, stride: int
) -> None:
    x, _, _ = view_of(arrays, name, dtype, 1)
    host = np.array([0.25, -2.0, 3.0, 0.5, 7.0], alpha_dtype)
    item, picked = host.itemsize, [offset + stride * i for i in range(3)]
    alpha = arrays.view(arrays.put(host.view(np.uint8)), offset * item, (3,), (stride * item,), alpha_dtype)
    whole = arrays.put(host[picked])
    np.testing.assert_array_equal(arrays.fetch(pyflowk.prelu(x, alpha)), arrays.fetch(pyflowk.prelu(x, whole)))
    dalpha_out = arrays.put(np.zeros(3, alpha_dtype))
    results = pyflowk.prelu_backward(x, x, alpha, dalpha_out=dalpha_out)
    assert results[1] is dalpha_out
    for result, expected in zip(results, pyflowk.prelu_backward(x, x, whole)):
        np.testing.assert_array_equal(arrays.fetch(result), arrays.fetch(expected))
    assert pyflowk.prelu_backward_workspace_bytes(x, alpha) == pyflowk.prelu_backward_workspace_bytes(x, whole)
    assert "alpha" in pyflowk.explain(pyflowk.prelu, x, alpha).partition("by flowk_permute")[0]


def test_an_alpha_of_any_stride_is_taken_beside_an_empty_x(arrays: Any) -> None:
    alpha = arrays.view(arrays.put(np.ones(24, np.uint8)), 0, (3,), (8,), "float32")
    x = arrays.put(np.zeros((0, 3, 4), np.float32))
    assert pyflowk.prelu(x, alpha).shape == (0, 3, 4)
    dalpha_out = arrays.put(np.ones(3, np.float32))
    pyflowk.prelu_backward(x, x, alpha, dalpha_out=dalpha_out)
    assert (arrays.fetch(dalpha_out) == 0).all()


@pytest.mark.parametrize("name", VIEWS.keys() - {"repeated"})
@pytest.mark.parametrize("in_place", [False, True])
def test_an_out_of_any_strides_is_written_and_nothing_beside_it(arrays: Any, name: str, in_place: bool) -> None:
    alpha = arrays.put(np.array([0.5, -1, 2], np.float32))
    out, values, memory = view_of(arrays, name, "float32", 1)
    x = out if in_place else arrays.put(values)
    expected_memory = arrays.fetch(memory).copy().view(np.float32)
    offset, strides = VIEWS[name]
    wanted = arrays.fetch(pyflowk.prelu(arrays.put(values), alpha))
    np.ndarray(SHAPE, np.float32, expected_memory, offset * 4, tuple(4 * stride for stride in strides))[...] = wanted
    assert pyflowk.prelu(x, alpha, out=out) is out
    np.testing.assert_array_equal(arrays.fetch(memory).view(np.float32), expected_memory)
    dx, _, _ = view_of(arrays, name, "float32", 4)
    assert pyflowk.prelu_backward(arrays.put(values), arrays.put(values), alpha, dx_out=dx)[0] is dx
    expected = pyflowk.prelu_backward(arrays.put(values), arrays.put(values), alpha)[0]
    np.testing.assert_array_equal(arrays.fetch(dx), arrays.fetch(expected))


def test_an_out_that_repeats_elements_is_refused(arrays: Any) -> None:
    alpha = arrays.put(np.ones(3, np.float32))
    out, values, memory = view_of(arrays, "repeated", "float32", 1)
    before = arrays.fetch(memory).copy()
    with pytest.raises(ValueError, match=r"out has strides of .*: no two of its elements may share memory"):
        pyflowk.prelu(arrays.put(values), alpha, out=out)
    with pytest.raises(ValueError, match="dx_out has strides of"):
        pyflowk.prelu_backward(arrays.put(values), arrays.put(values), alpha, dx_out=out)
    np.testing.assert_array_equal(arrays.fetch(memory), before)


def test_the_plan_of_strided_arrays_names_the_copies(arrays: Any) -> None:
    x, _, _ = view_of(arrays, "slice", "float32", 1)
    alpha = arrays.put(np.ones(3, np.float32))
    assert pyflowk.explain(pyflowk.prelu, x, alpha).startswith("on contiguous copies of x, by flowk_permute; then\n")
    text = pyflowk.explain(pyflowk.prelu_backward, x, x, alpha, dx_out=x)
    assert text.startswith("on contiguous copies of x, dy, dx_out, by flowk_permute; then\n")


def test_the_workspace_is_enough_whatever_the_layouts() -> None:
    """If dy is not laid out as x, the call runs on copies in C order, which may need more."""
    for shape, order in (((2, 512, 3, 3), (0, 2, 3, 1)), ((64, 3, 64, 64), (0, 2, 3, 1))):
        x = np.ones([shape[d] for d in order], np.float32).transpose(np.argsort(order))
        dy, alpha = np.ones(shape, np.float32), np.ones(shape[1], np.float32)
        num_bytes = pyflowk.prelu_backward_workspace_bytes(x, alpha)
        room = np.zeros(num_bytes + 16, np.uint8)
        start = -room.ctypes.data % 16
        for one in (dy, x):
            dx, dalpha = pyflowk.prelu_backward(one, x, alpha, workspace=room[start : start + num_bytes])
            assert np.array_equal(dx, dy) and not dalpha.any()


def test_an_error_of_a_copy_names_its_array() -> None:
    memory = np.zeros(200, np.uint8)
    odd = memory[1:193].view(np.float32).reshape(6, 8)[:, ::2]
    whole = np.zeros((6, 4), np.float32)
    for call, name in (
        (lambda: pyflowk.softmax(odd), "x"),
        (lambda: pyflowk.softmax(whole, out=odd), "out"),
        (lambda: pyflowk.masked_softmax(whole, bias=odd), "bias"),
        (lambda: pyflowk.prelu(odd, np.float32([0.5])), "x"),
    ):
        with pytest.raises(pyflowk.FlowkValueError, match=f"^{name} = 0x.*, must be a multiple of 4"):
            call()
    deep = np.zeros((1,) * 31 + (2, 4), np.float32)[..., ::2]
    with pytest.raises(pyflowk.FlowkValueError, match=r"x.ndim = 33, must be in 0 \.\.\. 32"):
        pyflowk.prelu(deep, np.float32([0.5]))
