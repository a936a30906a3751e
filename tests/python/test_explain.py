# SPDX-License-Identifier: Apache-2.0
"""The verdict of explain(), and what explain() takes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import pyflowk

SCORES = np.ones((4, 8, 64, 64), np.float32)
LONG_ROWS = np.ones((4, 40000), np.float32)
COPIED = "extra pass: {} is copied because the kernel needs contiguous rows"
CONVERTED = "extra pass: {} is converted to float64: pass operands of one type"
CASES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "a tile": (pyflowk.permute, (SCORES, (0, 1, 3, 2)), "fast"),
    "rows": (pyflowk.softmax, (SCORES,), "fast"),
    "bytes": (
        pyflowk.permute, (np.ones((640, 777), np.uint8), (1, 0)),
        "slow because rows of single bytes .*: pad the last dimension to a multiple of 16",
    ),
    "a slice": (
        pyflowk.permute, (SCORES[..., ::2], (0, 2, 1, 3)), "slow because no dimension .* stride 1: copy the slice once"
    ),
    "rows whose columns lie apart": (pyflowk.softmax, (SCORES.swapaxes(1, 3),), "fast"),
    "a copy": (pyflowk.masked_softmax, (SCORES.swapaxes(1, 3), np.zeros((64, 8), bool)), COPIED.format("x")),
    "types": (pyflowk.add, (SCORES, SCORES.astype(int)), f"{CONVERTED.format('x')}; {CONVERTED.format('y')}"),
    "elements": (
        pyflowk.add, (SCORES[..., ::2], SCORES[..., :32]), "slow because the last dimension .*: pass a contiguous one"
    ),
    "a gradient that holds its rows": (pyflowk.masked_softmax_backward_dbias, (SCORES, SCORES, SCORES[:1]), "fast"),
    "a gradient that loads its rows twice": (
        pyflowk.masked_softmax_backward_dbias, (LONG_ROWS, LONG_ROWS, LONG_ROWS[:1]),
        "slow because dy and y are loaded twice: .*",
    ),
    "cut packs": (pyflowk.relu, (SCORES.ravel()[1:4001],), "slow because an operand, or a row of it, .*: align it"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_last_line_is_the_verdict(name: str) -> None:
    function, arguments, expected = CASES[name]
    *_, last = pyflowk.explain(function, *arguments).splitlines()
    with pytest.raises(AssertionError, match=f"^verdict: {expected}$"):
        raise AssertionError(last)


def test_a_call_without_elements_has_no_verdict() -> None:
    assert pyflowk.explain(pyflowk.relu, np.ones((0, 3))) == "nothing to do: there are no elements\n"


def test_functions_of_jax_are_explained() -> None:
    pytest.importorskip("jax")
    of_jax = importlib.import_module("pyflowk.jax")
    expected = pyflowk.explain(pyflowk.permute, SCORES, (0, 2, 1, 3))
    assert pyflowk.explain(of_jax.permute, SCORES, (0, 2, 1, 3)) == expected


def torch_modules() -> dict[str, Any]:
    """A call for explain() by PyTorch's name, and the same call of a function of pyflowk."""
    torch = pytest.importorskip("torch")
    of_torch = importlib.import_module("pyflowk.torch")
    functional, operators = of_torch.functional, torch.ops.flowk
    x, lengths = torch.ones(4, 8, 64), torch.full((4, 8), 9)
    moved, targets = x.movedim(1, -1), torch.zeros(4, 8, dtype=torch.int64)
    alpha = torch.full((8,), 0.25)

    class Derived(of_torch.ReLU):
        pass

    return {
        "GELU": ((of_torch.GELU(), x), (pyflowk.gelu, x)),
        "GELU tanh": ((of_torch.GELU("tanh"), x), (pyflowk.gelu, x, "tanh")),
        "ReLU": ((of_torch.ReLU(inplace=True), x), (pyflowk.relu, x)),
        "a class of its own": ((Derived(), x[:, 1:]), (pyflowk.relu, x[:, 1:])),
        "LeakyReLU": ((of_torch.LeakyReLU(0.2), x), (pyflowk.leaky_relu, x, 0.2)),
        "ELU": ((of_torch.ELU(), x), (pyflowk.elu, x)),
        "SiLU": ((of_torch.SiLU(), x), (pyflowk.silu, x)),
        "Sigmoid": ((of_torch.Sigmoid(), x), (pyflowk.sigmoid, x)),
        "PReLU": ((of_torch.PReLU(8), x), (pyflowk.prelu, x, alpha)),
        "Softmax": ((of_torch.Softmax(1), x), (pyflowk.softmax, moved)),
        "LogSoftmax": ((of_torch.LogSoftmax(-1), x), (pyflowk.log_softmax, x)),
        "MaskedSoftmax": (
            (of_torch.MaskedSoftmax(causal=True, scale=0.5), x, {"lengths": lengths}),
            (pyflowk.masked_softmax, x, {"lengths": lengths, "causal": True, "scale": 0.5}),
        ),
        "CrossEntropyLoss": (
            (of_torch.CrossEntropyLoss(label_smoothing=0.1), x.mT, targets),
            (pyflowk.cross_entropy, x, targets, {"label_smoothing": 0.1}),
        ),
        "a function": ((functional.gelu, x, "tanh"), (pyflowk.gelu, x, "tanh")),
        "a function along another dimension": ((functional.softmax, x, {"dim": 1}), (pyflowk.softmax, moved)),
        "an operator": ((operators.relu, x), (pyflowk.relu, x)),
        "an overload": ((operators.relu.default, x), (pyflowk.relu, x)),
        "an operator of another name": ((operators.gelu_tanh, x), (pyflowk.gelu, x, "tanh")),
        "an operator with options": (
            (operators.masked_softmax, x, {"causal": True, "out": x}),
            (pyflowk.masked_softmax, x, {"causal": True, "out": x}),
        ),
        "NumPy's array": ((operators.relu, SCORES), (pyflowk.relu, SCORES)),
    }


def explained(call: tuple[Any, ...]) -> str:
    *arguments, last = call
    return pyflowk.explain(*arguments, **last) if isinstance(last, dict) else pyflowk.explain(*call)


def test_what_pyflowk_has_for_torch_is_explained_as_the_function_that_it_calls() -> None:
    for name, (of_torch, of_pyflowk) in torch_modules().items():
        assert explained(of_torch) == explained(of_pyflowk), name


def test_explain_runs_no_part_of_a_module() -> None:
    torch = pytest.importorskip("torch")
    of_torch = importlib.import_module("pyflowk.torch")
    x = torch.full((4, 8), -1.0)
    pyflowk.explain(of_torch.ReLU(inplace=True), x)
    assert (x == -1).all()
    trained = torch.full((4, 8), -1.0, requires_grad=True)
    pyflowk.explain(of_torch.CrossEntropyLoss(in_place=True), trained, torch.zeros(4, dtype=torch.int64))
    assert (trained == -1).all()


def test_what_calls_no_operator_is_refused() -> None:
    torch = pytest.importorskip("torch")
    operators = importlib.import_module("pyflowk.torch") and torch.ops.flowk
    for op in (torch.nn.GELU(), torch.nn.functional.gelu, torch.ops.aten.relu):
        with pytest.raises(ValueError, match="must be a function of pyflowk"):
            pyflowk.explain(op, torch.ones(3))
    with pytest.raises(RuntimeError, match="expected at most 1 argument"):
        pyflowk.explain(operators.relu, torch.ones(3), 1)
