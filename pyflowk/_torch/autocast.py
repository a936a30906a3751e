# SPDX-License-Identifier: Apache-2.0
"""The operators under torch.autocast: an operator has the rule of the PyTorch operator of the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    **dict.fromkeys(("softmax", "log_softmax", "masked_softmax", "masked_softmax_with_lse"), RESULT),
    "prelu": LOWER,
}
RULES = {"cuda": _ON_CUDA, "cpu": {"prelu": LOWER}}
OPERATORS = frozenset((*_ON_CUDA, "softmax_along"))
_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def register(
    library: Any, name: str, names: Sequence[str], kernel: Callable[..., Any], dispatched: Callable[..., Any]
) -> None:
    """Registers the rules of an operator with arguments called `names`. `dispatched` is the dispatcher's call, with all
    arguments by position; `kernel` makes a kernel of such a function."""
    for device, rules in RULES.items():
        if name in rules:
            library.impl(name, kernel(_kernel(device, rules[name], names, dispatched)), _KEYS[device])


def _kernel(device: str, rule: str, names: Sequence[str], dispatched: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        converted = _converted(device, rule, names, arguments)
        with torch.autocast(device, enabled=False):
            return dispatched(*converted)

    return call


def without_dispatcher(
    name: str, names: Sequence[str], under_autograd: Callable[..., Any], dispatched: Callable[..., Any]
) -> Callable[..., Any]:
    """The operator's call if autocast is the only reason for one: the dispatcher takes 10 us to call _kernel() and then
    its kernel for autograd. `under_autograd` is the call without autocast."""
    dtype_index = names.index("dtype") if "dtype" in names else None

    def call(*arguments: Any) -> Any:
        if dtype_index is not None and arguments[dtype_index] is not None:  # no rule changes a type that is given
            return under_autograd(*arguments)
        devices = {one.device.type for one in arguments if isinstance(one, Tensor)}
        if len(devices) > 1:
            return dispatched(*arguments)
        (device,) = devices
        rule = RULES[device].get(name)
        if rule is None or not torch.is_autocast_enabled(device):
            return under_autograd(*arguments)
        return under_autograd(*_converted(device, rule, names, arguments))

    return call


def _converted(device: str, rule: str, names: Sequence[str], arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments as the autocast rule of their operator converts them."""
    converted = list(arguments)
    if rule == RESULT:
        index = names.index("dtype")
        if arguments[index] is None and _is_converted(device, arguments[0]):
            converted[index] = torch.float32
        return converted
    dtype = torch.float32 if rule == FLOAT32 else torch.get_autocast_dtype(device)
    for index, one in enumerate(arguments):
        if isinstance(one, Tensor) and one.dtype is not dtype and _is_converted(device, one):
            converted[index] = one.to(dtype)
    return converted


def _is_converted(device: str, x: Tensor) -> bool:
    return x.is_floating_point() and x.dtype is not torch.float64 and x.device.type == device
