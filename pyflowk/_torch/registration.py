# SPDX-License-Identifier: Apache-2.0
"""Registers operators of torch.ops.flowk: kernels, shapes without data, and their rules under torch's transforms.

Each operator has one torch.autograd.Function. It is entered from two dispatch keys: from Autograd for tensors that
require grad and dual tensors, and from FuncTorchDynamicLayerFrontMode for the transforms of torch.func, which know
what to do with such a Function but not with an operator's Autograd kernel.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from .._calls.call_path import CallPath, path_of
from .._native.operator_table import OF_MEMORY, OPERATORS
from . import autocast, gate

below_autograd: Any = gate.private("torch._C", "_AutoDispatchBelowAutograd")
is_grad_enabled = torch.is_grad_enabled
LIBRARY = torch.library.Library("flowk", "FRAGMENT")
NAMES: list[str] = []
# Each operator's calls, on its arguments: of its Function, if a gradient may be asked for, by the dispatcher, and under
# autocast.
FUNCTIONS: dict[str, Callable[..., Tensor]] = {}
UNDER_AUTOGRAD: dict[str, Callable[..., Tensor]] = {}
DISPATCHED: dict[str, Callable[..., Tensor]] = {}
UNDER_AUTOCAST: dict[str, Callable[..., Tensor]] = {}


class Rules:
    """What an operator does under transforms. `arguments` are all of them, in the schema's order: `names`."""

    names: tuple[str, ...]

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        """Keeps what backward() and jvp() need, as Function.setup_context does."""

    def backward(self, ctx: Any, *gradients: Tensor) -> Sequence[Tensor | None] | dict[str, Tensor | None]:
        """The gradients of the first arguments, or by the names of arguments; the others have none."""
        return ()

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        """The tangent of the result."""

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """(The result of all calls, its batch dimensions)."""
        raise NotImplementedError


def keep(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    if gate.is_forward_mode() or gate.has_transforms():
        ctx.save_for_forward(*tensors)


# A parameter's type in the schema, by its annotation in Python.
_TYPES = {
    **dict.fromkeys(("Array", "ArrayT"), "Tensor"),
    "Array | None": "Tensor?",
    "int | None": "int?",
    "DTypeLike | None": "ScalarType?",
}


def register_operator(name: str, fake: Callable[..., Any], rules: Rules, result: str = "Tensor") -> None:
    """Registers an operator of the table, with the parameters of its function in Python."""
    operator = OPERATORS[name]
    types = {**_TYPES, **(operator.torch or {})}
    function = getattr(import_module(f"pyflowk.{operator.module}"), name)
    declared = []
    for parameter in inspect.signature(function).parameters.values():
        declared_type = types.get(parameter.name, types.get(parameter.annotation, parameter.annotation))
        is_own = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not is_own or declared_type is None or parameter.name in OF_MEMORY:
            continue
        if parameter.kind == parameter.KEYWORD_ONLY and "*" not in declared:
            declared.append("*")
        default = f'"{parameter.default}"' if isinstance(parameter.default, str) else parameter.default
        declared.append(f"{declared_type} {parameter.name}" + ("" if default is parameter.empty else f"={default}"))
    register(f"{name}({', '.join(declared)}) -> {result}", fake, rules, function)


def register(schema: str, fake: Callable[..., Any], rules: Rules, function: Callable[..., Any] | CallPath) -> None:
    """Defines an operator by its schema: the call of pyflowk's `function`, or of a CallPath. The function's other
    parameters have their defaults. `fake` makes an empty result. An operator of one result also gets the overload
    `out`."""
    name = schema.partition("(")[0]
    NAMES.append(name)
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = getattr(torch.ops.flowk, name).default
    dispatched = DISPATCHED[name] = getattr(operator, "_op", operator)
    parameters = schema[len(name) + 1 : schema.rindex(") ->")]
    in_python = [one.rpartition(" ")[2] for one in parameters.split(", ")]
    names = [one.partition("=")[0] for one in in_python if one != "*"]
    rules.names = tuple(names)
    number = len(names)
    split = in_python.index("*") if "*" in in_python else number
    keywords = names[split:]
    # torch calls kernels without the arguments at the end that have their defaults.
    complete = eval(f"lambda {', '.join(in_python)}: ({', '.join(names)},)")
    road, defaults = function, {}
    if not isinstance(road, CallPath):
        others, road = inspect.signature(road).parameters, path_of(road)
        defaults = {key: () if one.kind == one.VAR_POSITIONAL else one.default for key, one in others.items()}

    def kernel(call: Callable[..., Any], in_python: Sequence[str] = in_python, last: str = "None") -> Any:
        """`call`, which takes the road's arguments, as a function of the operator's."""
        values = [one if one in names else repr(defaults[one]) for one in road.names]
        outs = [last] + ["None"] * (len(road.outs) - 1)
        return eval(f"lambda {', '.join(in_python)}: call({', '.join((*values, *outs))}, None)", {"call": call})

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            return run_all(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            rules.save(ctx, inputs, output)
            if isinstance(output, Tensor) and not (output.is_floating_point() or output.is_complex()):
                ctx.mark_non_differentiable(output)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            own = rules.backward(ctx, *gradients)
            if isinstance(own, dict):
                return tuple(map(own.get, names))
            return (*own, *[None] * (number - len(own)))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return rules.jvp(ctx, *tangents)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
            return rules.vmap(functools.partial(call, dispatched), info.batch_size, in_dims, arguments)

    Function.__name__ = Function.__qualname__ = name

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments[:split], **dict(zip(keywords, arguments[split:])))

    in_memory = gate.below_all(road.call_and_register)

    def below(*given: Any) -> Any:
        """What the fast path does not take: in Python, or the dispatcher's for what it alone knows, such as tensors on
        meta."""
        is_seen = not gate.is_whole or gate.is_watched()
        if not is_seen and all(gate.is_plain_memory(one) for one in given if isinstance(one, Tensor)):
            return in_memory(*given)
        values = dict(zip(road.names, given))
        with below_autograd():
            return call(dispatched, *(values[name] for name in names))

    on_memory_or_below = road.kernel(gate.below_all, below)
    run, run_all = kernel(on_memory_or_below), kernel(on_memory_or_below, names)

    # Function.apply() reads the signature of forward() at every call, which takes 9 us, and without transforms of
    # torch.func then calls this.
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Function).apply
    apply_transformed: Callable[..., Tensor] = Function.apply

    def by_function(*arguments: Any, **options: Any) -> Any:
        if len(arguments) != number:
            arguments = complete(*arguments, **options)
        return apply_transformed(*arguments) if gate.has_transforms() else apply(*arguments)

    def under_autograd(*arguments: Any, **options: Any) -> Any:
        if gate.is_forward_mode():
            return by_function(*arguments, **options)
        if is_grad_enabled():
            for one in (*arguments, *options.values()) if options else arguments:
                if isinstance(one, Tensor) and one.requires_grad:
                    return by_function(*arguments, **options)
        return run(*arguments, **options)

    on_memory = kernel(road.kernel(gate.below_all))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, on_memory, key)
    torch.library.register_fake(f"flowk::{name}", fake, lib=LIBRARY)
    LIBRARY.impl(name, under_autograd, "Autograd")
    autocast.register(LIBRARY, name, dispatched)
    LIBRARY.impl(name, by_function, "FuncTorchDynamicLayerFrontMode")
    FUNCTIONS[name], UNDER_AUTOGRAD[name] = by_function, under_autograd
    UNDER_AUTOCAST[name] = autocast.without_dispatcher(name, under_autograd, dispatched)
    if schema.endswith("-> Tensor"):
        star = [] if "*" in in_python else ["*"]
        register_composite(
            f"{name}.out({', '.join((parameters, *star, 'Tensor(a!) out'))}) -> Tensor(a!)",
            kernel(road.cached_call, [*in_python, *star, "out"], last="out"),
        )


def entry(name: str) -> Callable[..., Tensor]:
    """What a call that needs operator `name` calls: the dispatcher where it is needed for more than autograd and
    autocast."""
    if gate.is_compiling():
        return getattr(torch.ops.flowk, name)  # type: ignore[no-any-return]
    if not gate.is_intercepted():
        return FUNCTIONS[name]
    return DISPATCHED[name] if gate.is_watched() or not gate.is_whole else UNDER_AUTOCAST[name]


def register_composite(schema: str, function: Callable[..., Any]) -> None:
    """Defines an operator that is a call of pyflowk's, or made of other operators."""
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode"):
        LIBRARY.impl(schema.partition("(")[0], function, key)
