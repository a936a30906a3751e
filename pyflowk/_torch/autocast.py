# SPDX-License-Identifier: Apache-2.0
"""The operators under torch.autocast: an operator has the rule of the PyTorch operator of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# The operators, and what they do on CUDA devices and on the CPU: FLOAT32 converts the operands, RESULT makes the result
# float32, LOWER converts the operands to autocast's type.
FLOAT32, RESULT, LOWER = "float32", "result", "lower"
_ON_CUDA = {
    **dict.fromkeys(
        ("rsqrt", "reciprocal", "exp", "expm1", "log", "log1p", "log2", "log10", "softplus", "tan"), FLOAT32
    ),
    **dict.fromkeys(("asin", "acos", "sinh", "cosh", "pow", "square"), FLOAT32),
    **dict.fromkeys(("softmax", "log_softmax", "masked_softmax"), RESULT),
    "prelu": LOWER,
}
RULES = {"cuda": _ON_CUDA, "cpu": {"prelu": LOWER}}
OPERATORS = frozenset(_ON_CUDA)
_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def register(library: Any, name: str, dispatched: Callable[..., Any]) -> None:
    """Registers the rules of an operator; `dispatched` is the dispatcher's call of it."""
    for device, rules in RULES.items():
        if name in rules:
            library.impl(name, _kernel(device, rules[name], dispatched), _KEYS[device])


def _kernel(device: str, rule: str, dispatched: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*arguments: Any, **options: Any) -> Any:
        arguments = _converted(device, rule, arguments, options)
        with torch.autocast(device, enabled=False):
            return dispatched(*arguments, **options)

    return kernel


def without_dispatcher(
    name: str, under_autograd: Callable[..., Any], dispatched: Callable[..., Any]
) -> Callable[..., Any]:
    """The operator's call where autocast is the only reason for one: the dispatcher takes 10 us to call _kernel() and
    then `under_autograd`, which are in Python."""

    def call(*arguments: Any, **options: Any) -> Any:
        devices = {one.device.type for one in (*arguments, *options.values()) if isinstance(one, Tensor)}
        device = devices.pop()
        if devices or not torch.is_autocast_enabled(device):
            return dispatched(*arguments, **options)
        if name in RULES.get(device, {}):
            arguments = _converted(device, RULES[device][name], arguments, options)
        torch.set_autocast_enabled(device, False)
        try:
            return under_autograd(*arguments, **options)
        finally:
            torch.set_autocast_enabled(device, True)

    return call


def _converted(device: str, rule: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments by the rule, which may set an option."""

    def is_converted(one: Any) -> bool:
        is_float = isinstance(one, Tensor) and one.is_floating_point() and one.dtype is not torch.float64
        return is_float and one.device.type == device

    if rule == RESULT:
        if is_converted(arguments[0]) and options.get("dtype") is None:
            options["dtype"] = torch.float32
        return arguments
    dtype = torch.float32 if rule == FLOAT32 else torch.get_autocast_dtype(device)
    return tuple(one.to(dtype) if is_converted(one) else one for one in arguments)
