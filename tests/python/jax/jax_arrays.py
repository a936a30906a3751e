# SPDX-License-Identifier: Apache-2.0
"""What the tests of pyflowk.jax share. They run on JAX's default device: JAX_PLATFORMS=cpu or cuda chooses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", "0.6")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402, F401

import pyflowk.jax as flowk_jax  # noqa: E402, F401

ON_GPU = jax.default_backend() == "gpu"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
DTYPES = ("bool", *INTEGERS, *FLOATS)


def x64(on: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Types of 64 bits, inside the block."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    experimental = __import__("jax.experimental", fromlist=["enable_x64"])
    return experimental.enable_x64(on)


def values(dtype: str, shape: tuple[int, ...] = (3, 7), seed: int = 0) -> np.ndarray:
    """Numbers of both signs, small enough that products of 8-bit floats are finite."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
    return rng.uniform(-3, 3, shape).astype(jnp.dtype(dtype))


def assert_same(ours: Any, expected: Any) -> None:
    """Type, shape and every bit."""
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.dtype == expected.dtype
    assert ours.shape == expected.shape
    assert ours.tobytes() == np.ascontiguousarray(expected).tobytes()


def assert_close(ours: Any, expected: Any, tolerance: float | None = None) -> None:
    """To a few units in the last place of the type, unless a tolerance is given."""
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.dtype == expected.dtype
    if tolerance is None:
        tolerance = 16 * float(jnp.finfo(ours.dtype).eps) if jnp.issubdtype(ours.dtype, jnp.floating) else 0
    kind = complex if ours.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(ours.astype(kind), expected.astype(kind), rtol=tolerance, atol=tolerance)


def refuses(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=text):
        call()
