# SPDX-License-Identifier: Apache-2.0
"""Registers operators of torch.ops.flowk: kernels, shapes without data, and their rules under torch's transforms.

Each operator has one torch.autograd.Function. It is entered from two dispatch keys: from Autograd for tensors that
require grad and dual tensors, and from FuncTorchDynamicLayerFrontMode for the transforms of torch.func, which know
what to do with such a Function but not with an operator's Autograd kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import gate, kernels

below_autograd: Any = torch._C._AutoDispatchBelowAutograd
is_grad_enabled = torch.is_grad_enabled
LIBRARY = torch.library.Library("flowk", "FRAGMENT")
NAMES: list[str] = []
# The Function of each operator, on the operator's arguments.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
_KEYS = ("CPU", "CUDA")


class Rules:
    """What an operator does under transforms. `arguments` are all of them, in the schema's order."""

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        """Keeps what backward() and jvp() need, as Function.setup_context does."""

    def backward(self, ctx: Any, *gradients: Tensor) -> Sequence[Tensor | None]:
        """The gradients of the first arguments; the others have none."""
        return ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        """The tangent of the result."""

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """(The result of all calls, its batch dimensions)."""
        raise NotImplementedError


def keep(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def register(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any], rules: Rules) -> None:
    """Defines an operator by its schema. `kernel` runs on tensors' memory; `fake` makes an empty result. An operator of
    one result also gets the overload `out`, as which `kernel` takes an `out` that it writes."""
    name = schema.partition("(")[0]
    NAMES.append(name)
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.flowk, name).default
    complete = _completed(operator._schema)
    number = len(operator._schema.arguments)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            with below_autograd():
                return call(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            rules.save(ctx, inputs, output)
            if isinstance(output, Tensor) and not (output.is_floating_point() or output.is_complex()):
                ctx.mark_non_differentiable(output)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            own = tuple(rules.backward(ctx, *gradients))
            return (*own, *[None] * (number - len(own)))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return rules.jvp(ctx, *tangents)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
            return rules.vmap(call, info.batch_size, in_dims, arguments)

    Function.__name__ = Function.__qualname__ = name
    split = sum(not argument.kwarg_only for argument in operator._schema.arguments)
    keywords = [argument.name for argument in operator._schema.arguments[split:]]

    def call(*arguments: Any) -> Any:
        if not keywords:
            return operator(*arguments)
        return operator(*arguments[:split], **dict(zip(keywords, arguments[split:])))

    # Function.apply() reads the signature of forward() at every call, which takes 9 us, and without transforms of
    # torch.func then calls this.
    apply = super(torch.autograd.Function, Function).apply

    def by_function(*arguments: Any, **options: Any) -> Any:
        if len(arguments) != number:
            arguments = complete(*arguments, **options)
        return Function.apply(*arguments) if gate.has_transforms() else apply(*arguments)

    def autograd(*arguments: Any, **options: Any) -> Any:
        if forward_ad._current_level >= 0:
            return by_function(*arguments, **options)
        if is_grad_enabled():
            for one in (*arguments, *options.values()) if options else arguments:
                if isinstance(one, Tensor) and one.requires_grad:
                    return by_function(*arguments, **options)
        with below_autograd():
            return operator(*arguments, **options)

    def on_memory(*arguments: Any, **options: Any) -> Any:
        outer, gate.in_kernel.now = gate.in_kernel.now, True
        try:
            with torch.no_grad():
                return kernel(*arguments, **options)
        finally:
            gate.in_kernel.now = outer

    in_c = [kernels.register(name, key) for key in _KEYS]
    if any(in_c):  # which take most calls, and give the others to flowk::_NAME
        LIBRARY.define(f"_{schema}")
    for key, has_kernel in zip(_KEYS, in_c):
        LIBRARY.impl(f"_{name}" if has_kernel else name, on_memory, key)
    torch.library.register_fake(f"flowk::{name}", fake, lib=LIBRARY)
    LIBRARY.impl(name, autograd, "Autograd")
    LIBRARY.impl(name, by_function, "FuncTorchDynamicLayerFrontMode")
    FUNCTIONS[name] = by_function
    if schema.endswith("-> Tensor"):
        parameters = schema[len(name) + 1 : schema.rindex(")")]
        star = "" if "*" in parameters else "*, "
        register_composite(f"{name}.out({parameters}, {star}Tensor(a!) out) -> Tensor(a!)", kernel)


def entry(name: str) -> Callable[..., Any]:
    """What a call that needs operator `name` calls: the Function where autograd alone is the reason."""
    return getattr(torch.ops.flowk, name) if gate.is_intercepted() else FUNCTIONS[name]


def register_composite(schema: str, function: Callable[..., Any]) -> None:
    """Defines an operator that is a call of pyflowk's, or made of other operators."""
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode"):
        LIBRARY.impl(schema.partition("(")[0], function, key)


def _completed(schema: Any) -> Callable[..., tuple[Any, ...]]:
    """A function of the schema's parameters that returns them all; torch calls kernels without those at defaults."""
    parameters, defaults = [], {}
    for argument in schema.arguments:
        if argument.kwarg_only and "*" not in parameters:
            parameters.append("*")
        has_default = argument.has_default_value()
        if has_default:
            defaults[f"_{argument.name}"] = argument.default_value
        parameters.append(argument.name + (f"=_{argument.name}" if has_default else ""))
    names = "".join(f"{argument.name}, " for argument in schema.arguments)
    return eval(f"lambda {', '.join(parameters)}: ({names})", defaults)  # type: ignore[no-any-return]
