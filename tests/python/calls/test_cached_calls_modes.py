# SPDX-License-Identifier: Apache-2.0
"""A later call runs in C with out, under autograd and under autocast too, and gives what a call in Python gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from call_cases import CASES, DEVICE, CallCase, tensor  # noqa: E402

import pyflowk  # noqa: E402
from pyflowk import _pipeline  # noqa: E402
from pyflowk._calls import call_path  # noqa: E402

pytestmark = pytest.mark.skipif(call_path.program_cache() is None, reason="no program cache")


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def num_binds(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the third call is bound in Python."""
    for _ in range(2):
        call()
    bound = []
    bind = _pipeline.bind
    with monkeypatch.context() as patch:
        patch.setattr(_pipeline, "bind", lambda *arguments: bound.append(arguments) or bind(*arguments))
        call()
    return len(bound)


MODES = ["grad", "autocast", "grad autocast", "out autocast"]
# cross_entropy_partials has no gradient: test_torch_cross_entropy.py has the error.
CALLS = [
    (case, mode)
    for case in CASES
    for mode in MODES
    if case.is_cacheable and not (case.function is pyflowk.cross_entropy_partials and "grad" in mode)
]


def in_python(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_path, "is_compiling", lambda: True)
        return call()


def gradients(result: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    if not result.requires_grad:
        return []
    weights = torch.arange(result.numel(), device=DEVICE).reshape(result.shape) % 5 + 1
    return list(torch.autograd.grad((result * weights).float().sum(), leaves, allow_unused=True))


@pytest.mark.parametrize("is_forgotten", [True, False])
@pytest.mark.parametrize(("case", "mode"), CALLS, ids=repr)
def test_a_later_call_runs_in_c(case: CallCase, mode: str, is_forgotten: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_forgotten:  # a call without autograd and autocast comes first if not
        call_path.program_cache().forget()
    else:
        case.function(*case.arguments, **case.options)
    copies = [one.detach().clone() if is_float(one) else one for one in case.arguments]
    leaves = [one.requires_grad_() for one in copies if is_float(one) and "grad" in mode]
    arguments = tuple(copies) if leaves else case.arguments
    options = dict(case.options)
    if "out" in mode:
        options["out"] = torch.empty_like(case.function(*arguments, **options))

    def call() -> Any:
        return case.function(*arguments, **options)

    with torch.autocast(DEVICE, torch.bfloat16) if "autocast" in mode else contextlib.nullcontext():
        expected = in_python(call)
        expected = expected.clone() if "out" in mode else expected
        assert num_binds(call, monkeypatch) == 0
        result = call()
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert result.requires_grad == expected.requires_grad
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    for own, reference in zip(gradients(result, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(own, reference, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "minimum", "maximum", "atan2", "hypot"])
def test_a_number_under_autograd_is_a_tensor_without_dimensions(name: str, dtype: torch.dtype) -> None:
    function, x = getattr(pyflowk, name), tensor(3, 4).to(dtype).requires_grad_()
    for number in (1.3, 4.2, 4.2, 2.0):
        as_tensor = torch.tensor(number, dtype=torch.promote_types(dtype, torch.float32), device=DEVICE)
        for operands in (lambda number: (x, number), lambda number: (number, x)):
            result, expected = function(*operands(number)), function(*operands(as_tensor))
            assert result.dtype == expected.dtype == dtype
            torch.testing.assert_close(result, expected)
            (own,), (reference,) = gradients(result, [x]), gradients(expected, [x])
            torch.testing.assert_close(own, reference)


def test_other_numbers_have_the_same_plan_under_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    x, numbers = tensor(3, 4).requires_grad_(), iter([0.5, 0.25, 2.0, 3.0, 4.0])
    assert num_binds(lambda: pyflowk.clip(x, 0.0, next(numbers)), monkeypatch) == 0
    torch.testing.assert_close(pyflowk.clip(x, 1.0, next(numbers)), x.clamp(1.0, 3.0))
    torch.testing.assert_close(pyflowk.scale(x, 2.0, next(numbers)), x * 2 + 4)
