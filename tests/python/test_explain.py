# SPDX-License-Identifier: Apache-2.0
"""The verdict of explain(), and what explain() takes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import pyflowk

SCORES = np.ones((4, 8, 64, 64), np.float32)
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
    "a copy": (pyflowk.softmax, (SCORES.swapaxes(1, 3),), COPIED.format("x")),
    "types": (pyflowk.add, (SCORES, SCORES.astype(int)), f"{CONVERTED.format('x')}; {CONVERTED.format('y')}"),
    "elements": (
        pyflowk.add, (SCORES[..., ::2], SCORES[..., :32]), "slow because the last dimension .*: pass a contiguous one"
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


def test_operators_of_torch_are_explained() -> None:
    torch = pytest.importorskip("torch")
    importlib.import_module("pyflowk.torch")
    expected = pyflowk.explain(pyflowk.relu, SCORES)
    for operator in (torch.ops.flowk.relu, torch.ops.flowk.relu.default):
        assert pyflowk.explain(operator, SCORES) == expected
