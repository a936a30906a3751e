# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: the function's result, on addresses; errors by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from library_under_test import HostArrays

import pyflowk
from pyflowk._calls import call_path
from pyflowk._calls import prepare as _prepare
from pyflowk._explain import _OPERATORS

X = np.arange(1, 25, dtype=np.float32).reshape(4, 6) / 8
MASK, LENGTHS = X > 1.5, np.array([1, 2, 6, 0], np.int32)
ALPHA, ROW = np.linspace(0.1, 0.6, 6, dtype=np.float32), X[0] - 0.5
NUMBERS = (2.0, 0.5)
# The arguments of a call of every function that is not on operands alone, and the names of its arrays.
TARGETS, LSE = np.zeros(X.shape[:-1], np.int64), np.ones(X.shape[:-1], np.float32)
OF_SEVERAL_RESULTS = {"prelu_backward", "permute_many", "cross_entropy", "cross_entropy_merge", "softmax_merge"}
OF_SEVERAL_RESULTS |= {"masked_softmax_backward_dbias"}
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("permute", (X, (1, 0)), {}, "x out"),
    ("permute", (X, (1, 0)), {"dtype": "float16", "scale": 0.5}, "x out"),
    ("batch_transpose", (X,), {}, "x out"),
    ("cast", (X, "int32"), {}, "x out"),
    ("leaky_relu", (X, 0.1), {}, "x out"),
    ("elu", (X,), {}, "x out"),
    ("gelu", (X, "tanh"), {}, "x out"),
    ("gelu_backward", (X, X), {}, "dy x out"),
    ("leaky_relu_backward", (X, X, 0.1), {}, "dy x out"),
    ("elu_backward", (X, X, 0.1), {}, "dy x out"),
    ("clip", (X, 1.0, 2.0), {}, "x out"),
    ("clip", (X, ROW, None), {}, "x min out"),
    ("scale", (X, *NUMBERS), {}, "x out"),
    ("multiply", (X, 1.5), {}, "x out"),
    ("subtract", (1, X), {}, "y out"),
    ("trunc_divide", (X.astype(np.int32), X.astype(np.int32)), {}, "x y out"),
    ("add_multiply", (X, X, X, 0.5), {}, "x y z out"),
    ("prelu", (X, ALPHA), {}, "x alpha out"),
    ("softmax", (X,), {}, "x out"),
    ("log_softmax", (X,), {}, "x out"),
    ("masked_softmax", (X,), {"causal": True}, "x out"),
    ("masked_softmax", (X, MASK), {"lengths": LENGTHS, "bias": ROW, "log": True}, "x mask lengths bias out"),
    ("masked_softmax", (X,), {"bias": ROW}, "x bias out"),
    ("masked_softmax_backward", (X, X), {"scale": 0.5}, "dy y out"),
    ("masked_softmax_backward", (X, X), {"lengths": LENGTHS}, "dy y lengths out"),
    ("masked_softmax_backward", (X, X), {"dlse": LSE}, "dy y dlse out"),
    ("masked_softmax", (X,), {"sinks": LSE, "row_scale": LSE, "softcap": 2.0}, "x sinks row_scale out"),
    ("masked_softmax_backward", (X, X), {"scores": X, "softcap": 2.0}, "dy y scores out"),
    ("cross_entropy_backward", (X, TARGETS, LSE, LSE), {}, "logits targets lse dloss out"),
    ("cross_entropy_partials", (X, TARGETS, 0, 9), {"scale": 0.5}, "logits targets out"),
    ("transpose", (X,), {}, "x out"),
    ("swapaxes", (X, 0, 1), {}, "x out"),
    ("moveaxis", (X, 0, -1), {}, "x out"),
]
for _name in _OPERATORS:
    if _name not in {name for name, *_ in CALLS} | OF_SEVERAL_RESULTS:
        _names = list(inspect.signature(getattr(pyflowk, _name)).parameters)[:-2]
        _first = {"where": MASK}.get(_name, X)
        _arrays = [_first, X, X][: len(_names)]
        if _name.startswith("bitwise") or _name.endswith("_shift"):
            _arrays = [array.astype(np.int32) for array in _arrays]
        CALLS.append((_name, tuple(_arrays), {}, " ".join([*_names, "out"])))


@pytest.fixture(params=["in C", "in Python"], autouse=True)
def prepared_where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test runs without the program cache too."""
    if request.param == "in Python":
        monkeypatch.setattr(call_path, "program_cache", lambda: None)
    elif call_path.program_cache() is None:
        pytest.skip("no program cache")
    yield


def on_library(arrays: HostArrays, one: Any) -> Any:
    return arrays.put(one) if isinstance(one, np.ndarray) else one


@pytest.mark.parametrize(("name", "arguments", "options", "names"), CALLS)
def test_a_prepared_call_gives_the_function_s_result(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any], names: str, arrays: HostArrays
) -> None:
    function = getattr(pyflowk, name)
    given = [on_library(arrays, one) for one in arguments]
    named = {key: on_library(arrays, one) for key, one in options.items()}
    expected = function(*given, **named)
    out = arrays.put(np.zeros_like(arrays.fetch(expected)))
    run = pyflowk.prepare(function, *given, **named)
    passed = inspect.signature(function).bind(*given, **named, out=out).arguments
    addresses = [arrays.pointer(passed[one]) for one in names.split()]
    assert run(*addresses, 0) is None
    np.testing.assert_array_equal(arrays.fetch(out), arrays.fetch(expected))


def test_every_operator_is_prepared() -> None:
    assert {name for name, *_ in CALLS} == set(_OPERATORS) - OF_SEVERAL_RESULTS


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("rows", [4, 50000])
def test_both_gradients_of_prelu_are_prepared(needs: tuple[bool, bool], rows: int, arrays: HostArrays) -> None:
    dy, x = (np.random.default_rng(i).standard_normal((rows, 6)).astype(np.float32) for i in range(2))
    dy, x, alpha = arrays.put(dy), arrays.put(x), arrays.put(ALPHA)
    options = dict(zip(("need_dx", "need_dalpha"), needs))
    expected = pyflowk.prelu_backward(dy, x, alpha, **options)
    num_bytes = pyflowk.prelu_backward_workspace_bytes(x, alpha) if needs[1] else 0
    results = [arrays.put(np.zeros_like(arrays.fetch(one))) for one in expected if one is not None]
    memory = [arrays.put(np.zeros(num_bytes, np.uint8))] if num_bytes else []
    run = pyflowk.prepare("prelu_backward", dy, x, alpha, **options)
    run(*(arrays.pointer(one) for one in (dy, x, alpha, *results, *memory)), 0)
    for result, one in zip(results, [one for one in expected if one is not None]):
        np.testing.assert_array_equal(arrays.fetch(result), arrays.fetch(one))


@pytest.mark.parametrize("rows", [4, 400])
@pytest.mark.parametrize("need_dx", [True, False])
def test_the_gradients_of_x_and_a_bias_are_prepared(need_dx: bool, rows: int, arrays: HostArrays) -> None:
    dy, y, bias = arrays.put(np.tile(X, (rows // 4, 1))), arrays.put(np.tile(X, (rows // 4, 1))), arrays.put(ROW)
    options: dict[str, Any] = {"need_dx": need_dx, "scale": 0.5, "causal": True}
    expected = pyflowk.masked_softmax_backward_dbias(dy, y, bias, **options)
    num_bytes = pyflowk.masked_softmax_backward_dbias_workspace_bytes(y, bias)
    results = [arrays.put(np.zeros_like(arrays.fetch(one))) for one in expected if one is not None]
    memory = [arrays.put(np.zeros(num_bytes, np.uint8))] if num_bytes else []
    run = pyflowk.prepare("masked_softmax_backward_dbias", dy, y, bias, **options)
    names = [name for name in inspect.signature(run).parameters if name != "stream"]
    named = {"dy": dy, "y": y, "bias": bias, "dx_out": results[0], "dbias_out": results[-1]}
    named |= {"workspace": memory[0]} if memory else {}
    run(*(arrays.pointer(named[name]) for name in names), 0)
    for result, one in zip(results, [one for one in expected if one is not None]):
        np.testing.assert_array_equal(arrays.fetch(result), arrays.fetch(one))


def test_the_text_names_the_addresses(arrays: HostArrays) -> None:
    run = pyflowk.prepare("masked_softmax", arrays.put(X), bias=arrays.put(ROW))
    assert list(inspect.signature(run).parameters) == ["x", "bias", "out", "stream"]
    assert "flowk_masked_softmax" in str(run.__doc__)


def test_errors_name_the_address(arrays: HostArrays) -> None:
    x, out = arrays.put(X), arrays.put(np.zeros((6, 4), np.float32))
    run = pyflowk.prepare(pyflowk.permute, x, (1, 0), out=out)
    source, target = arrays.pointer(x), arrays.pointer(out)
    with pytest.raises(TypeError, match=r"run takes 3 ints \(x, out, stream\), not 2"):
        run(source, target)
    with pytest.raises(TypeError, match="stream is None, must be an integer"):
        run(source, target, None)
    with pytest.raises(ValueError, match=r"out = -1, must be in 0 ... 2\*\*64 - 1"):
        run(source, -1, 0)
    with pytest.raises(pyflowk.FlowkValueError, match=r"x = 0x.*, must be a multiple of 4 .*MISALIGNED_POINTER"):
        run(source + 1, target, 0)
    with pytest.raises(pyflowk.FlowkValueError, match=r"out = NULL.*NULL_POINTER"):
        run(source, 0, 0)
    with pytest.raises(pyflowk.FlowkValueError, match=r"out .* overlaps x .*OVERLAP"):
        run(source, source, 0)
    assert not arrays.fetch(out).any()


def test_what_is_not_one_call_is_refused(arrays: HostArrays) -> None:
    x = arrays.put(X)
    with pytest.raises(ValueError, match="masked_softmax of these arrays is not one call of the library"):
        turned = arrays.view(x, 0, (6, 4), (4, 24), "f4") if arrays.device is not None else X.T
        pyflowk.prepare("masked_softmax", turned, causal=True)
    with pytest.raises(ValueError, match="add of these arrays is not one call"):
        pyflowk.prepare("add", x, arrays.put(X.astype(np.int32)))
    alpha = arrays.put(np.ones(1, np.float32))
    with pytest.raises(ValueError, match="or nothing is to be computed"):
        pyflowk.prepare(pyflowk.prelu_backward, x, x, alpha, need_dx=False, need_dalpha=False)
    with pytest.raises(ValueError, match="op = 'empty', must be a function of pyflowk"):
        pyflowk.prepare("empty", x)
    with pytest.raises(TypeError, match="prepare takes no stream"):
        pyflowk.prepare("relu", x, stream=0)
    with pytest.raises(ValueError, match="out has shape"):
        pyflowk.prepare("permute", x, (1, 0), out=x)


def test_threads_run_one_prepared_call(arrays: HostArrays) -> None:
    x, mask = arrays.put(X), arrays.put(MASK)
    run = pyflowk.prepare(pyflowk.masked_softmax, x, mask)
    expected = arrays.fetch(pyflowk.masked_softmax(x, mask))
    outs = [arrays.put(np.zeros_like(X)) for _ in range(4)]

    def work(out: Any) -> None:
        for _ in range(100):
            run(arrays.pointer(x), arrays.pointer(mask), arrays.pointer(out), 0)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(arrays.fetch(out), expected)


def test_a_prepared_call_keeps_what_it_needs(arrays: HostArrays) -> None:
    x, out = arrays.put(X), arrays.put(np.zeros_like(X))
    for _ in range(100):
        run = _prepare.prepare("multiply", x, 1.5)
        del run
    run = pyflowk.prepare("multiply", x, 1.5)
    run(arrays.pointer(x), arrays.pointer(out), 0)
    np.testing.assert_array_equal(arrays.fetch(out), X * 1.5)
