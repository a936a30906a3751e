# SPDX-License-Identifier: Apache-2.0
"""One or more calls of every operator of torch.ops.flowk, in float64, away from points without a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from pyflowk._torch.operators import NAMES  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Call(NamedTuple):
    """A call; `differentiable` are the places, or names, of the tensors that have gradients."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    differentiable: tuple[int | str, ...]

    @property
    def operator(self) -> Any:
        return getattr(torch.ops.flowk, self.name).default

    @property
    def places(self) -> dict[int | str, Any]:
        return {**dict(enumerate(self.arguments)), **self.options}

    def with_tensors(self, places: Sequence[int | str], *tensors: Any) -> Any:
        """The result of the call with these tensors in these places."""
        new = {**self.places, **dict(zip(places, tensors, strict=True))}
        arguments = [new[place] for place in range(len(self.arguments))]
        return self.operator(*arguments, **{name: new[name] for name in self.options})

    def function(self) -> tuple[Any, tuple[Any, ...]]:
        """(A function of the differentiable tensors, these, requiring grad)."""
        tensors = tuple(self.places[place].detach().clone().requires_grad_() for place in self.differentiable)

        def call(*given: Any) -> Any:
            result = self.with_tensors(self.differentiable, *given)
            # The differences of infinities are no numbers.
            if not self.options.get("log"):
                return result
            of_log = result if isinstance(result, tuple) else (result,)
            filled = tuple(one.masked_fill(one == -torch.inf, 0) for one in of_log)
            return filled if isinstance(result, tuple) else filled[0]

        return call, tensors


def numbers(*shape: int, device: str = "cpu", positive: bool = False, dtype: Any = torch.float64) -> Any:
    """Different numbers in 0.1 ... 2, of both signs, none near another or near 0."""
    count = int(torch.Size(shape).numel())
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    values = 0.1 + 1.9 * (torch.randperm(count, generator=generator) + 0.5) / max(count, 1)
    signs = 1 if positive else 1 - 2 * torch.randint(0, 2, (count,), generator=generator)
    return (values * signs).to(dtype).reshape(shape).to(device)


_UNARY = (
    *("abs", "negative", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
    *("relu", "isinf", "isfinite", "signbit", "sign", "trunc", "exp2", "expm1", "log1p", "log2", "log10", "erf"),
    *("leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "softplus", "floor", "ceil", "round", "isnan", "logical_not"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
)
_POSITIVE = {"sqrt", "rsqrt", "log", "log1p", "log2", "log10", "acosh"}
# Operations on part of the numbers: (a, b) for a * x + b.
_INTO_DOMAIN = {**dict.fromkeys(("asin", "acos", "atanh", "tan"), (0.45, 0.0)), "acosh": (1.0, 1.0)}
_BINARY = (
    *("add", "subtract", "multiply", "divide", "pow", "minimum", "maximum", "equal", "not_equal", "less"),
    *("less_equal", "greater", "greater_equal", "relu_backward", "gelu_backward", "gelu_tanh_backward"),
    *("silu_backward", "sigmoid_backward", "tanh_backward", "softplus_backward", "silu_mul", "copysign"),
    *("logical_and", "logical_or", "logical_xor", "floor_divide", "remainder", "atan2", "hypot", "logaddexp"),
)
_OF_INTEGERS = (
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "trunc_divide"),
)
_WITHOUT = {
    *("isnan", "isinf", "isfinite", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
}


def calls(device: str = "cpu") -> list[Call]:
    found: list[Call] = []

    def add(name: str, *arguments: Any, **options: Any) -> None:
        places = {**dict(enumerate(arguments)), **options}
        which = tuple(p for p, one in places.items() if isinstance(one, torch.Tensor) and one.is_floating_point())
        found.append(Call(name, arguments, options, () if name in _WITHOUT else which))

    def n(*shape: int, positive: bool = False) -> Any:
        return numbers(*shape, device=device, positive=positive)

    for name in _UNARY:
        a, b = _INTO_DOMAIN.get(name, (1.0, 0.0))
        add(name, a * n(3, 4, positive=name in _POSITIVE) + b)
    for name in _BINARY:
        add(name, n(2, 3, positive=True), n(3, positive=name == "pow"))
        add(name, n(2, 1, positive=True).mT, n(3, 1, positive=True))
    integers = torch.arange(6, device=device).reshape(2, 3)
    for name in _OF_INTEGERS:
        add(name, integers, integers[0] + 1)
    add("bitwise_invert", integers)
    add("clip", n(3, 4), -0.7, 1.1)
    add("scale", n(3, 4).mT, 1.5, -2.0)
    add("fma", n(2, 3), n(3), n(2, 1))
    add("where", integers % 2 == 0, n(3), n(2, 1))
    add("leaky_relu_backward", n(2, 3), n(3), n(2, 1))
    add("elu_backward", n(2, 3), n(3), n(2, 1))
    add("clip_by", n(2, 3), -n(3, positive=True) - 0.03, n(2, 1, positive=True) + 0.03)
    add("lerp", n(2, 3), n(3), n(2, 1))
    add("add_multiply", n(2, 3), n(3), n(2, 1), 0.5)
    add("permute", n(2, 3, 4), [2, 0, -2])
    add("permute", n(2, 3).float(), [1, 0], dtype=torch.float64, scale=0.5)
    add("batch_transpose", n(2, 3, 4))
    add("cast", n(3, 4), torch.float64)
    add("prelu", n(2, 3, 4), n(3))
    add("prelu", n(2, 3, 4).movedim(1, 2), n(1), 2)
    add("prelu", n(5), n(5), 0)
    add("prelu_backward", n(2, 3, 4), n(2, 3, 4).flip(0), n(3))
    for name in ("softmax", "log_softmax"):
        add(name, n(2, 3, 5))
    mask = torch.zeros(2, 1, 5, dtype=torch.bool, device=device)
    mask[0, 0, 1:3] = True
    lengths = torch.tensor([4, 3], device=device)
    for log in (False, True):
        add("masked_softmax", n(2, 3, 5), mask, lengths=lengths, scale=-1.5, log=log)
        add("masked_softmax", n(2, 3, 5), causal=True, window=2, bias=n(3, 5), log=log)
        add("masked_softmax", n(5), lengths=lengths[0], log=log, batch_invariant=True)
        y = torch.softmax(n(2, 3, 5), -1)
        y = y.log() if log else y
        add("masked_softmax_backward", n(2, 3, 5), y, scale=2.0, log=log)
        add("masked_softmax_backward", n(2, 3, 5), y, dlse=n(2, 3), log=log, batch_invariant=True)
        add("masked_softmax_backward_dbias", n(2, 3, 5), y, n(3, 5), scale=2.0, log=log)
        add("masked_softmax_backward_dbias", n(2, 3, 5), y, n(2, 1, 5), dlse=n(2, 3), log=log)
        add("masked_softmax_with_lse", n(2, 3, 5), mask, lengths=lengths, scale=-1.5, log=log)
        add("masked_softmax_with_lse", n(5), bias=n(5), log=log)
        terms = {"sinks": n(3), "row_scale": n(2, 1) + 2, "softcap": 2.0, "log": log}
        add("masked_softmax", n(2, 3, 5), mask, scale=-1.5, **terms)
        add("masked_softmax", n(2, 3, 5), bias=n(2, 1, 5), **terms)
        add("masked_softmax", n(5), sinks=n()[()], log=log)
        add("masked_softmax_with_lse", n(2, 3, 5), lengths=lengths, bias=n(5), **terms)
        row_lse = n(2, 3) + 2
        gradient = {**terms, "scores": n(2, 3, 5), "lse": row_lse, "scale": 0.7}
        add("masked_softmax_backward", n(2, 3, 5), y, **{**gradient, "sinks": None, "lse": None}, dlse=n(2, 3))
        add("masked_softmax_backward_with_dsinks", n(2, 3, 5), y, **gradient)
    add("softmax_merge", n(2, 3, 5), n(2, 3), n(2, 3, 5), n(2, 3))
    targets = torch.tensor([[4, -100, 0], [1, 2, 0]], device=device)
    lse, entropy = n(2, 3, 5).logsumexp(-1), n(2, 3)
    smooth = {"label_smoothing": 0.1, "z_loss": 0.05}
    add("cross_entropy", n(2, 3, 5), targets, entropy=True)
    add("cross_entropy", n(2, 3, 5).mT.contiguous().mT, targets, scale=-0.7, softcap=3.0, entropy=True, **smooth)
    add("cross_entropy_backward", n(2, 3, 5), targets, lse, n(2, 3), **smooth)
    add("cross_entropy_backward", n(2, 3, 5), targets, lse, dlse=n(2, 3), entropy=entropy, dentropy=n(2, 3))
    assert {one.name for one in found} == set(NAMES), {one.name for one in found} ^ set(NAMES)
    return found


def label(call: Call) -> str:
    return "-".join([call.name, *(key for key, value in call.options.items() if value is not False)])
