# SPDX-License-Identifier: Apache-2.0
"""cross_entropy of pyflowk.jax: values, derivatives of both modes, vmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import pyflowk  # noqa: E402
import pyflowk.jax as flowk_jax  # noqa: E402

NUMBERS: dict[str, Any] = {"scale": 0.7, "softcap": 3.0, "label_smoothing": 0.1, "z_loss": 0.05}
TARGETS = np.array([1, -100, 8], np.int32)
X = 2 * np.random.default_rng(0).standard_normal((3, 9)).astype(np.float32)


@pytest.mark.parametrize("columns", [9, 30001])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("numbers", [{}, NUMBERS])
def test_results_are_pyflowk_s(numbers: dict[str, Any], dtype: str, columns: int) -> None:
    x = jnp.asarray(np.random.default_rng(1).standard_normal((3, columns)), dtype)
    own = jax.jit(lambda x: flowk_jax.cross_entropy(x, TARGETS, entropy=True, **numbers))(x)
    targets = jnp.asarray(TARGETS)
    expected = pyflowk.cross_entropy(x, targets, entropy=True, **numbers)
    assert len(flowk_jax.cross_entropy(x, TARGETS)) == 2
    for one, other in zip(own, expected):
        np.testing.assert_array_equal(one, other)
    d = jnp.ones(3, np.float32)
    for given in ({}, {"dlse": d, "entropy": expected[2], "dentropy": 2 * d}):
        arrays = (x, targets, expected[1], d)
        np.testing.assert_array_equal(
            np.asarray(flowk_jax.cross_entropy_backward(*arrays, **given, **numbers)).view(np.uint8),
            np.asarray(pyflowk.cross_entropy_backward(*arrays, **given, **numbers)).view(np.uint8),
        )


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("numbers", [{}, NUMBERS])
def test_derivatives(numbers: dict[str, Any], entropy: bool) -> None:
    def function(x: Any) -> Any:
        return flowk_jax.cross_entropy(x, TARGETS, entropy=entropy, **numbers)

    check_grads(jax.jit(function), (X,), 2, atol=2e-2, rtol=2e-2, eps=1e-2)
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x: function(x)[0].sum()))(X))
    assert "flowk_cross_entropy_backward" in jaxpr and "flowk_cross_entropy_tangent" not in jaxpr


def test_vmap_is_a_loop() -> None:
    stacked = jnp.stack([X, 2 * X])

    def both(x: Any, targets: Any) -> Any:
        loss, lse = flowk_jax.cross_entropy(x, targets)
        _, tangent = jax.jvp(lambda x: flowk_jax.cross_entropy(x, targets)[1], (x,), (x,))
        return loss, lse, tangent, jax.grad(lambda x: flowk_jax.cross_entropy(x, targets)[0].sum())(x)

    own = jax.vmap(both, (0, None))(stacked, TARGETS)
    for one, *parts in zip(own, *(both(x, TARGETS) for x in stacked)):
        np.testing.assert_allclose(one, jnp.stack(parts), rtol=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"targets has shape \(2,\)"):
        flowk_jax.cross_entropy(X, TARGETS[:2])
    with pytest.raises(TypeError, match="scale is traced"):
        jax.jit(lambda scale: flowk_jax.cross_entropy(X, TARGETS, scale=scale))(2.0)
    with pytest.raises(TypeError, match="dloss, dlse and dentropy are None"):
        flowk_jax.cross_entropy_backward(X, TARGETS, X[:, 0])
