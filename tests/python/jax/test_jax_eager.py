# SPDX-License-Identifier: Apache-2.0
"""Calls of pyflowk.jax outside of jit: one program per function, static values, types and shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_arrays import assert_same, flowk_jax, jax, jnp, x64

from pyflowk._jax import eager

X = jnp.asarray(np.random.default_rng(5).normal(size=(3, 4)), jnp.float32)
ROW = jnp.asarray([0.5, -0.25, 2.0, 0.0])
CALLS: dict[str, Callable[[Any], Any]] = {
    "relu": flowk_jax.relu,
    "add": lambda x: flowk_jax.add(x, ROW),
    "clip": lambda x: flowk_jax.clip(x, -0.5, 1),
    "cast": lambda x: flowk_jax.cast(x, "float16"),
    "permute": lambda x: flowk_jax.permute(x, (1, 0), dtype=jnp.bfloat16, scale=2.0),
    "batch_transpose": flowk_jax.batch_transpose,
    "prelu": lambda x: flowk_jax.prelu(x, ROW),
    "prelu_backward": lambda x: flowk_jax.prelu_backward(x, x, ROW, need_dx=False),
    "log_softmax": flowk_jax.log_softmax,
    "masked_softmax": lambda x: flowk_jax.masked_softmax(x, x > 0, bias=x, causal=True, window=2),
    "masked_softmax_backward": lambda x: flowk_jax.masked_softmax_backward(x, x, scale=0.5),
}


@pytest.fixture(autouse=True)
def no_programs() -> None:
    eager._programs.clear()


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_runs_the_program_of_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jax.jit(CALLS[name])(X)
    first = CALLS[name](X)
    num_programs = len(eager._programs)
    assert num_programs == 1
    monkeypatch.setattr(eager, "_compiled", None)
    for found in (first, CALLS[name](X)):
        jax.tree.map(assert_same, found, expected)
    CALLS[name](jnp.asarray(np.ones((5, 4)), jnp.float16))
    assert len(eager._programs) == num_programs


def test_static_values_are_told_apart_to_the_bit() -> None:
    minus = jnp.asarray([-1.0])
    for _ in range(2):
        for slope in (0.0, -0.0, 2, 2.0, True):
            found = float(flowk_jax.leaky_relu(minus, slope)[0])
            assert (found, math.copysign(1, found)) == (-slope, math.copysign(1, -float(slope)))
        assert np.isnan(flowk_jax.leaky_relu(minus, float("nan"))[0])
    assert len(eager._programs) == 5  # one for each slope: 2 and 2.0 are the same, and True is 1.0
    integers = jnp.asarray([-3, 3])
    for _ in range(2):
        for lo, hi, dtype in ((0, 2, "int32"), (0.0, 2.0, "float32"), (False, 2, "int32"), (0, 2.0, "float32")):
            found = flowk_jax.clip(integers, lo, hi)
            assert found.dtype == dtype
            assert found.tolist() == [0, 2]


def test_numbers_beside_arrays_make_no_program() -> None:
    for value in (1, 1.0, True, -0.0, float("nan"), 2**-30):
        assert_same(flowk_jax.add(X, value), jnp.add(X, value))
    assert_same(flowk_jax.multiply(jnp.asarray([1, 2]), 1.5), jnp.asarray([1.5, 3.0]))
    assert not eager._programs


def test_weak_types_stay_weak_and_x64_may_be_toggled() -> None:
    weak, half = jnp.asarray(1.5), jnp.asarray([1.0], jnp.float16)
    weak = weak if weak.weak_type else jnp.add(1.5, 0.0)
    strong = jnp.float32(1.5)
    for _ in range(2):
        assert flowk_jax.negative(weak).weak_type == weak.weak_type
        assert flowk_jax.add(half, weak).dtype == "float16"
        assert flowk_jax.add(half, strong).dtype == "float32"
        integers = jnp.asarray([4, 9], jnp.int32)
        with x64():
            wide = jnp.asarray([1.0 + 2**-40])
            assert flowk_jax.sqrt(jnp.asarray([4, 9])).dtype == jnp.sqrt(jnp.asarray([4, 9])).dtype == "float64"
            assert flowk_jax.multiply(wide, wide)[0] == (1.0 + 2**-40) ** 2
            assert flowk_jax.cast(integers, "float64").dtype == "float64"
        with x64(False):
            assert flowk_jax.sqrt(integers).dtype == "float32"


def test_devices() -> None:
    devices = jax.devices()
    if len(devices) < 2:
        pytest.skip("one device")
    there = jax.device_put(X, devices[1])
    for _ in range(2):
        assert flowk_jax.relu(there).devices() == {devices[1]}
        assert flowk_jax.add(there, jnp.ones(4)).devices() == {devices[1]}
        with pytest.raises(ValueError, match="incompatible devices"):
            flowk_jax.add(there, jax.device_put(X, devices[2 % len(devices)]))
        with jax.default_device(devices[1]):
            assert flowk_jax.relu(jnp.ones(3)).devices() == {devices[1]}
        assert flowk_jax.relu(jnp.ones(3)).devices() == {devices[0]}


def test_disable_jit() -> None:
    expected = [call(X) for call in CALLS.values()]
    eager._programs.clear()
    with jax.disable_jit():
        found = [call(X) for call in CALLS.values()]
    jax.tree.map(assert_same, found, expected)
    assert not eager._programs


def test_static_values_without_a_key() -> None:
    for axes in ([1, 0], np.array([1, 0]), (np.int64(1), 0), range(1, -1, -1), iter((1, 0)), jnp.asarray([1, 0])):
        assert_same(flowk_jax.permute(X, axes), X.T)
    for slope in (jnp.asarray(0.5), np.float32(0.5)):
        assert_same(flowk_jax.leaky_relu(X, slope), flowk_jax.leaky_relu(X, 0.5))
    assert_same(flowk_jax.permute(X, (1, 0), scale=jnp.asarray(2.0)), X.T * 2)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: flowk_jax.add(X, jnp.ones(3)), ValueError, "y"),
        (lambda: flowk_jax.bitwise_and(X, X), TypeError, "bitwise_and takes bool and integers, not float32"),
        (lambda: flowk_jax.permute(X, (0, 0)), ValueError, "axes"),
        (lambda: flowk_jax.permute(X, "ab"), TypeError, "axes is 'ab', must be integers"),
        (lambda: flowk_jax.permute(X, (1, 0), scale=float("inf")), ValueError, "scale = inf, must be finite"),
        (lambda: flowk_jax.softmax(None), TypeError, "x is None, must be an array of JAX or NumPy"),
        (lambda: flowk_jax.masked_softmax(X, window=-1), ValueError, "window = -1"),
        (lambda: flowk_jax.masked_softmax(X, ROW), TypeError, "mask"),
        (lambda: flowk_jax.prelu(X, jnp.ones(3)), ValueError, r"alpha has shape \(3,\)"),
    ],
)
def test_errors_are_raised_by_every_call(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    texts = set()
    for _ in range(2):
        with pytest.raises(error, match=text) as raised:
            call()
        texts.add(str(raised.value))
    with jax.disable_jit(), pytest.raises(error) as raised:
        call()
    assert texts == {str(raised.value)}


def test_a_trace_has_no_inner_programs() -> None:
    eager._programs.clear()

    def loss(x: Any) -> Any:
        return (flowk_jax.relu(x) * flowk_jax.add(X, ROW)).sum()  # of constants: the second

    text = str(jax.make_jaxpr(loss)(X))
    assert "flowk_unary" in text
    assert "flowk_binary" in text
    # Nor "pjit[". JAX 0.11 and newer keep an inline program in the trace, and inline it as they lower that.
    assert "jit[" not in text or jax.__version_info__ >= (0, 11)
    assert_same(jax.grad(loss)(X), jnp.where(X > 0, X + ROW, 0))
    assert_same(jax.vmap(lambda x: flowk_jax.add(x, ROW))(X), X + ROW)


def test_the_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "_MAX_PROGRAMS", 3)
    for slope in np.linspace(0, 1, 8).tolist():
        assert_same(flowk_jax.leaky_relu(X, slope), jnp.where(X > 0, X, jnp.float32(slope) * X))
        assert len(eager._programs) <= 3
