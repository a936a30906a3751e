# SPDX-License-Identifier: Apache-2.0
"""Registers operators of torch.ops.flowk: kernels, shapes without data, and their rules under torch's transforms.

Each operator has one torch.autograd.Function. It is entered from two dispatch keys: from Autograd for tensors that
require grad and dual tensors, and from FuncTorchDynamicLayerFrontMode for the transforms of torch.func, which know
what to do with such a Function but not with an operator's Autograd kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from .._native.operator_table import OF_MEMORY, OPERATORS
from . import autocast, gate, kernels

below_autograd: Any = gate.private("torch._C", "_AutoDispatchBelowAutograd")
# Without it every call of torch.ops.flowk.NAME is the dispatcher's.
num_function_modes: Any = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
is_grad_enabled = torch.is_grad_enabled
LIBRARY = torch.library.Library("flowk", "FRAGMENT")
NAMES: list[str] = []
# The Function of each operator, on the operator's arguments; the dispatcher's call; and the call under autocast.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
DISPATCHED: dict[str, Callable[..., Any]] = {}
UNDER_AUTOCAST: dict[str, Callable[..., Any]] = {}
_KEYS = ("CPU", "CUDA")
# The types of arguments of a plain call.
are_plain = frozenset(
    {Tensor, torch.nn.Parameter, float, int, bool, str, list, tuple, torch.dtype, type(None)}
).issuperset


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


class _Operator(type(torch.ops.aten.relu)):  # type: ignore[misc]
    """torch.ops.flowk.NAME, which calls pyflowk's function where all arguments are plain. That asks whether torch must
    see the call, and takes 2 us less than the dispatcher with an Autograd kernel in Python. What it refuses the
    dispatcher may take: lazily conjugated tensors, those on meta, and those of torch's vmap before torch.func."""

    function: Callable[..., Any]

    def __call__(self, /, *arguments: Any, **options: Any) -> Any:
        given = (*arguments, *options.values()) if options else arguments
        if not num_function_modes() and are_plain(map(type, given)):
            try:
                return self.function(*arguments, **options)
            except (TypeError, ValueError, RuntimeError):
                pass
        return super().__call__(*arguments, **options)


# A parameter's type in the schema, by its annotation in Python.
_TYPES = {
    **dict.fromkeys(("Array", "ArrayT"), "Tensor"),
    "Array | None": "Tensor?",
    "int | None": "int?",
    "DTypeLike | None": "ScalarType?",
}


def register_operator(name: str, fake: Callable[..., Any], rules: Rules, result: str = "Tensor") -> None:
    """Registers an operator of the table, with the parameters of its function in Python, which is its kernel."""
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
    register(f"{name}({', '.join(declared)}) -> {result}", function, fake, rules, function)


def register(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    rules: Rules,
    function: Callable[..., Any] | None = None,
) -> None:
    """Defines an operator by its schema. `kernel` runs on tensors' memory; `fake` makes an empty result. An operator of
    one result also gets the overload `out`, as which `kernel` takes an `out` that it writes. `function` is pyflowk's
    that does the same with the same arguments, faster."""
    name = schema.partition("(")[0]
    NAMES.append(name)
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    packet = getattr(torch.ops.flowk, name)
    operator = packet.default
    if function is not None:
        packet.__class__, packet.function = _Operator, function
    dispatched = DISPATCHED[name] = _with_errors(getattr(operator, "_op", operator))
    parameters = schema[len(name) + 1 : schema.rindex(") ->")]
    names, complete = _completed(parameters)
    rules.names = tuple(names)
    number = len(names)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            # The dispatcher takes several us to call a kernel in Python. It may take what that refuses.
            if not is_in_c and not gate.is_watched() and are_plain(map(type, arguments)):
                try:
                    return on_memory(*arguments[:split], **dict(zip(keywords, arguments[split:])))
                except (TypeError, ValueError, RuntimeError):
                    pass
            with below_autograd():
                return call(*arguments)

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
            return rules.vmap(call, info.batch_size, in_dims, arguments)

    Function.__name__ = Function.__qualname__ = name
    split = parameters.partition("*")[0].count(", ") if "*" in parameters else number
    keywords = names[split:]

    def call(*arguments: Any) -> Any:
        if not keywords:
            return dispatched(*arguments)
        return dispatched(*arguments[:split], **dict(zip(keywords, arguments[split:])))

    # Function.apply() reads the signature of forward() at every call, which takes 9 us, and without transforms of
    # torch.func then calls this.
    apply = super(torch.autograd.Function, Function).apply

    def by_function(*arguments: Any, **options: Any) -> Any:
        if len(arguments) != number:
            arguments = complete(*arguments, **options)
        return Function.apply(*arguments) if gate.has_transforms() else apply(*arguments)

    def under_autograd(*arguments: Any, **options: Any) -> Any:
        if gate.is_forward_mode():
            return by_function(*arguments, **options)
        if is_grad_enabled():
            for one in (*arguments, *options.values()) if options else arguments:
                if isinstance(one, Tensor) and one.requires_grad:
                    return by_function(*arguments, **options)
        with below_autograd():
            return dispatched(*arguments, **options)

    on_plain = function or kernel

    def on_memory(*arguments: Any, **options: Any) -> Any:
        outer, gate.in_kernel.now = gate.in_kernel.now, True
        try:
            if not is_grad_enabled():
                return on_plain(*arguments, **options)
            with torch.no_grad():
                return on_plain(*arguments, **options)
        finally:
            gate.in_kernel.now = outer

    def from_c(*arguments: Any, **options: Any) -> Any:
        try:
            return on_memory(*arguments, **options)
        except Exception as error:
            kernels.keep_error(error)
            raise RuntimeError(str(error)) from None

    in_c = [kernels.register(name, key) for key in _KEYS]
    is_in_c = any(in_c)
    if is_in_c:  # which take most calls, and give the others to flowk::_NAME
        LIBRARY.define(f"_{schema}")
    for key, has_kernel in zip(_KEYS, in_c):
        LIBRARY.impl(f"_{name}" if has_kernel else name, from_c if has_kernel else on_memory, key)
    torch.library.register_fake(f"flowk::{name}", fake, lib=LIBRARY)
    LIBRARY.impl(name, under_autograd, "Autograd")
    autocast.register(LIBRARY, name, dispatched)
    LIBRARY.impl(name, by_function, "FuncTorchDynamicLayerFrontMode")
    FUNCTIONS[name] = by_function
    UNDER_AUTOCAST[name] = autocast.without_dispatcher(name, under_autograd, dispatched)
    if schema.endswith("-> Tensor"):
        star = "" if "*" in parameters else "*, "
        register_composite(f"{name}.out({parameters}, {star}Tensor(a!) out) -> Tensor(a!)", kernel)


def _with_errors(dispatched: Callable[..., Any]) -> Callable[..., Any]:
    """The dispatcher's call, with the errors of kernels in Python that kernels in C called."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return dispatched(*arguments, **options)
        except RuntimeError as error:
            original = kernels.original_of(error)
            if original is error:
                raise
            raise original from None

    return call


def entry(name: str) -> Callable[..., Any]:
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


def _completed(parameters: str) -> tuple[list[str], Callable[..., tuple[Any, ...]]]:
    """The names of a schema's parameters, and a function of the parameters that returns all arguments: torch calls
    kernels without the arguments at the end that have their defaults."""
    in_python = [one.rpartition(" ")[2] for one in parameters.split(", ")]
    names = [one.partition("=")[0] for one in in_python if one != "*"]
    return names, eval(f"lambda {', '.join(in_python)}: ({', '.join(names)},)")
