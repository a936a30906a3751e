# SPDX-License-Identifier: Apache-2.0
"""The values of softmax: row sums, gradients by finite differences, NaN and infinities, comparison with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from softmax_cases import DTYPES
from softmax_reference import softmax64

import pyflowk


@pytest.mark.parametrize("cols", [1, 2, 33, 64, 100, 1024, 5003])
def test_rows_of_float32_sum_to_1(arrays: Any, cols: int) -> None:
    x = np.random.default_rng(cols).normal(0, 4, (20, cols)).astype(np.float32)
    y = arrays.fetch(pyflowk.softmax(arrays.put(x)))
    np.testing.assert_allclose(y.sum(axis=-1, dtype=np.float64), 1, rtol=0, atol=1e-7)
    np.testing.assert_allclose(y, softmax64(x.astype(np.float64)), rtol=0, atol=2 * np.spacing(y.max(axis=-1)).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 3, 8, 33, 64, 130, 256, 300, 1024, 5003])
def test_a_row_with_one_unmasked_column_is_exactly_1(arrays: Any, dtype: str, cols: int) -> None:
    rng = np.random.default_rng(cols)
    rows = 400 if cols <= 256 else 40
    x = (rng.normal(0, 1, (rows, cols)) * 10.0 ** rng.integers(-3, 4, (rows, 1))).astype(dtype)
    x[0] = 5
    column = rng.integers(0, cols, rows)
    unmasked = np.arange(cols) == column[:, np.newaxis]
    bias = np.where(unmasked, 0, -np.inf).astype(dtype)
    for scale in (1.0, 0.125, -3.7):
        for log, expected in ((False, unmasked.astype(dtype)), (True, bias)):
            for options in ({"mask": arrays.put(~unmasked)}, {"bias": arrays.put(bias)}):
                y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), scale=scale, log=log, **options))
                allowed = 2.0**-21 if log and dtype == "float16" else 0
                np.testing.assert_allclose(y.astype(float), expected.astype(float), rtol=0, atol=allowed)
    lengths = arrays.put(np.ones(rows, np.int32))
    y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), lengths=lengths, scale=0.3))
    assert (y[:, 0] == 1).all()
    causal = arrays.fetch(pyflowk.masked_softmax(arrays.put(x[:cols]), causal=True))
    assert len(x) < cols or causal[0, 0] == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_finite_inputs_do_not_overflow(arrays: Any, dtype: str) -> None:
    for largest, scale in ((1e30, 1.0), (1e30, 1e-30), (1e30, -1e-30), (1e30, 100.0), (1e-30, 1e30), (1e-38, 1.0)):
        x = np.random.default_rng(1).uniform(-largest, largest, (4, 300)).astype(dtype)
        y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), scale=scale)).astype(np.float64)
        np.testing.assert_allclose(y, softmax64(x.astype(np.float64) * scale), rtol=1e-2 if "b" in dtype else 1e-5)


@pytest.mark.parametrize("cols", [3, 8, 33, 64, 300, 5000])
def test_float16_of_a_huge_scale_does_not_overflow(arrays: Any, cols: int) -> None:
    x = np.full((2, cols), -65504, np.float16)
    x[0, 1], x[1, :2] = 65504, 65504
    y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), scale=1e35)).astype(np.float64)
    np.testing.assert_array_equal(y, (x > 0) / np.array([[1.0], [2.0]]))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("cols", [1, 3, 8, 33, 130])
def test_the_gradient_is_that_of_finite_differences(arrays: Any, cols: int, log: bool) -> None:
    rng = np.random.default_rng(cols)
    shape, step, scale = (3, cols), 1e-5, 0.7
    x, dy = rng.normal(0, 1, shape), rng.normal(0, 1, shape)
    mask = rng.integers(0, 3, shape) == 0
    mask[1] = True  # a row without an unmasked column
    dy[mask] = 0  # log has -infinity there
    options = {"scale": scale, "log": log, "lengths": arrays.put(np.array([cols, cols, cols // 2], np.int32))}

    def loss(values: np.ndarray) -> np.ndarray:
        y = arrays.fetch(pyflowk.masked_softmax(arrays.put(values), arrays.put(mask), **options))
        return np.where(np.isfinite(y), y, 0) * dy

    y = pyflowk.masked_softmax(arrays.put(x), arrays.put(mask), **options)
    dx = arrays.fetch(pyflowk.masked_softmax_backward(arrays.put(dy), y, **options))
    expected = np.empty(shape)
    for column in range(cols):
        moved = np.zeros(shape)
        moved[:, column] = step
        expected[:, column] = (loss(x + moved) - loss(x - moved)).sum(axis=-1) / (2 * step)
    np.testing.assert_allclose(dx, expected, rtol=0, atol=1e-8)
    assert (dx[1] == 0).all()


def test_nan_and_infinities_are_as_documented(arrays: Any) -> None:
    nan, inf = np.nan, np.inf
    rows: list[tuple[list[float], list[int], list[float], list[float]]] = [
        # x, masked, softmax, log_softmax
        ([nan, 1, 2], [0, 0, 0], [nan] * 3, [nan] * 3),
        ([nan, -inf, -inf], [0, 0, 0], [nan] * 3, [nan] * 3),
        ([inf, 1, -inf], [0, 0, 0], [nan] * 3, [nan] * 3),
        ([inf, inf, 0], [0, 0, 0], [nan] * 3, [nan] * 3),
        ([inf, nan, -inf], [1, 1, 1], [0] * 3, [-inf] * 3),
        ([-inf, -inf, -inf], [0, 0, 0], [0] * 3, [-inf] * 3),
        ([-inf, 5, -inf], [0, 1, 0], [0] * 3, [-inf] * 3),
        ([-inf, 5, 5], [0, 0, 0], [0, 0.5, 0.5], [-inf, -np.log(2), -np.log(2)]),
        ([nan, 5, 5], [1, 0, 0], [0, 0.5, 0.5], [-inf, -np.log(2), -np.log(2)]),
        ([inf, 5, 5], [1, 0, 0], [0, 0.5, 0.5], [-inf, -np.log(2), -np.log(2)]),
        ([5, nan, 5], [1, 0, 0], [0, nan, nan], [-inf, nan, nan]),
    ]
    x, mask, expected, expected_log = (np.array(column) for column in zip(*rows))
    for dtype, repeats in (("float32", 1), ("float16", 1), ("float64", 1), ("float32", 400), ("bfloat16", 2000)):
        # The row repeated, all masked out except the first copy: the same values in a longer row.
        wide = np.tile(x, repeats).astype(dtype)
        masked = np.concatenate([mask, np.ones((len(rows), 3 * (repeats - 1)), int)], axis=1).astype(np.uint8)
        for log, values, nothing in ((False, expected, 0), (True, expected_log, -inf)):
            y = arrays.fetch(pyflowk.masked_softmax(arrays.put(wide), arrays.put(masked), log=log)).astype(float)
            np.testing.assert_allclose(y[:, :3], values, rtol=1e-2 if dtype == "bfloat16" else 1e-3)
            assert (y[:, 3:] == nothing).all()


def test_nan_and_infinities_of_the_gradient_follow_the_formula(arrays: Any) -> None:
    y = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0], [1, 0, 0]], np.float32)
    dy = np.array([[np.nan, 1, 1], [1, 1, 1], [1, 2, 3], [np.inf, 0, 0]], np.float32)
    dx = arrays.fetch(pyflowk.masked_softmax_backward(arrays.put(dy), arrays.put(y)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(dx, y * (dy - (y * dy).sum(axis=-1, keepdims=True)))


# ---- PyTorch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [33, 128, 1000, 2048])
def test_values_and_gradients_are_pytorchs(arrays: Any, dtype: str, cols: int) -> None:
    torch = pytest.importorskip("torch")
    device = "cpu" if arrays.device is None else "cuda"
    generator = torch.Generator(device).manual_seed(1)
    shape, scale = (2, 3, 7, cols), 0.125
    x = (torch.randn(shape, generator=generator, device=device) * 8).to(getattr(torch, dtype)).requires_grad_()
    mask = torch.rand((2, 1, 7, cols), generator=generator, device=device) < 0.3
    dy = torch.randn(shape, generator=generator, device=device).to(x.dtype)
    for log in (False, True):
        masked = (x.double() * scale).masked_fill(mask, -torch.inf)
        expected = (torch.log_softmax if log else torch.softmax)(masked, dim=-1)
        y = pyflowk.masked_softmax(x.detach(), mask, scale=scale, log=log)
        assert (y.dtype, y.device) == (x.dtype, x.device)
        tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
        torch.testing.assert_close(y.double(), expected.detach(), rtol=tolerance, atol=tolerance)
        incoming = dy.masked_fill(mask, 0)
        (gradient,) = torch.autograd.grad(expected, x, incoming.double())
        dx = pyflowk.masked_softmax_backward(incoming, y, scale=scale, log=log)
        atol = tolerance * (4 * cols**0.5 if log else 4)  # y was rounded; with log that is multiplied by the sum of dy
        torch.testing.assert_close(dx.double(), gradient.double(), rtol=4 * tolerance, atol=atol)


def test_results_are_as_exact_as_pytorchs(arrays: Any) -> None:
    torch = pytest.importorskip("torch")
    device = "cpu" if arrays.device is None else "cuda"
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for cols, spread in ((64, 3.0), (1000, 3.0), (4096, 50.0), (300, 1e4)):
            x = (torch.randn(64, cols, generator=torch.Generator().manual_seed(cols)) * spread).to(dtype)
            exact = torch.softmax(x.double(), dim=-1)
            x = x.to(device)
            theirs = (torch.softmax(x, dim=-1).cpu().double() - exact).abs().max()
            ours = (pyflowk.softmax(x).cpu().double() - exact).abs().max()
            # Both are rounded once to 16 bits; in float32 two roundings of the largest value may be between them.
            allowed = theirs + (2 * 2.0**-23 * exact.max() if dtype == torch.float32 else 0)
            assert ours <= allowed * 1.01, (dtype, cols, spread)
