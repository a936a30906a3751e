# SPDX-License-Identifier: Apache-2.0
"""Comparisons of tensors with tensors of no dimensions, NumPy scalars and numbers: rounded to the type that all come
to, as PyTorch rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyflowk  # noqa: E402

COMPARISONS = {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
VALUES = [0.1, 1 / 3, 2.0, 0.0, 1e-30, 1e30, float("nan")]


def narrow(dtype: Any) -> Any:
    return torch.tensor([-1.0, 0.0, 0.1, 1 / 3, 2.0, float("inf"), float("nan")]).to(dtype)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("of_scalar", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_tensor_without_dimensions_is_rounded(name: str, dtype: Any, of_scalar: Any) -> None:
    ours, theirs, x = getattr(pyflowk, name), COMPARISONS[name], narrow(dtype)
    for value in VALUES:
        scalar = torch.tensor(value, dtype=of_scalar)
        for pair in ((x, scalar), (scalar, x), (x[2], scalar)):
            for _ in range(3):
                assert torch.equal(ours(*pair), theirs(*pair)), (pair, ours(*pair))
    watched = narrow(dtype).requires_grad_()
    assert torch.equal(ours(watched, scalar), theirs(watched, scalar))


@pytest.mark.parametrize("name", [name for name in COMPARISONS if not name.startswith("logical")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("scalar_type", [np.float16, np.float32, np.float64, float])
def test_a_scalar_is_rounded(name: str, dtype: Any, scalar_type: type) -> None:
    ours, theirs, x = getattr(pyflowk, name), COMPARISONS[name], narrow(dtype)
    for value in VALUES[:5]:
        expected = theirs(x, torch.tensor(float(scalar_type(value)), dtype=torch.float64))
        for _ in range(3):
            assert torch.equal(ours(x, scalar_type(value)), expected), value
        batched = torch.func.vmap(lambda row, value=value: ours(row, scalar_type(value)))(x[None])
        assert torch.equal(batched, expected[None]), value


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_rows_of_a_vmap_are_rounded(dtype: Any) -> None:
    x = narrow(dtype)
    scalars = torch.tensor(VALUES)
    for ours, theirs in ((pyflowk.equal, torch.eq), (pyflowk.less, torch.lt), (pyflowk.not_equal, torch.ne)):
        rows = torch.stack([theirs(x, scalar) for scalar in scalars])
        assert torch.equal(torch.func.vmap(ours, (None, 0))(x, scalars), rows)
        assert torch.equal(torch.func.vmap(ours, (0, None))(x[None], scalars[0]), rows[:1])


def test_values_that_are_computed_are_not_rounded() -> None:
    half = torch.tensor([1.0, 3.0], dtype=torch.float16)
    assert pyflowk.fma(half, torch.tensor(0.1), half).tolist() == (half.float() * 0.1 + half.float()).half().tolist()


def test_a_scalar_is_as_weak_under_autograd() -> None:
    half = torch.ones(2, dtype=torch.float16)
    for scalar in (np.float32(0.5), np.float64(0.5), 0.5):
        assert pyflowk.add(half, scalar).dtype == torch.float16
        assert pyflowk.add(half.clone().requires_grad_(), scalar).dtype == torch.float16


def test_numpy_compares_in_the_type_of_its_scalar() -> None:
    x = np.array([0.1, 0.5], np.float16)
    for scalar in (np.float32(0.1), np.float64(0.1), np.float16(0.1)):
        np.testing.assert_array_equal(pyflowk.equal(x, scalar), np.equal(x, scalar))
        np.testing.assert_array_equal(pyflowk.less(x, np.asarray(scalar)), np.less(x, np.asarray(scalar)))
