# SPDX-License-Identifier: Apache-2.0
"""Registers operators of torch.ops.flowk: kernels, shapes without data, and their rules under torch's transforms.

Each operator has one torch.autograd.Function. Its forward() is the cached call of calls.c. If autograd alone watches,
calls.c applies it to the arguments of a public function, without the dispatcher. The dispatcher enters it by two keys:
Autograd, for tensors that require grad and dual tensors, and FuncTorchDynamicLayerFrontMode, for the transforms of
torch.func, which know what to do with such a Function but not with an operator's Autograd kernel.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .._calls.call_path import ASK_AUTOCAST, ASK_AUTOGRAD, ASK_WATCHERS, CallPath, path_of
from .._native.operator_table import OF_MEMORY, OPERATORS
from .._pipeline import Request
from . import autocast, gate, inductor

below_autograd: Any = gate.private("torch._C", "_AutoDispatchBelowAutograd")
is_grad_enabled = torch.is_grad_enabled
LIBRARY = torch.library.Library("flowk", "FRAGMENT")
NAMES: list[str] = []
PARAMETERS: dict[str, dict[str, Any]] = {}  # the defaults of an operator's, by name in the order of its schema
PATHS: dict[str, CallPath] = {}  # an operator's, with the same parameters
# The calls of each operator. The dispatcher's take arguments as the schema says; all others take all arguments by
# position.
DISPATCHED: dict[str, Callable[..., Tensor]] = {}
FUNCTIONS: dict[str, Callable[..., Tensor]] = {}  # by its autograd.Function: if a gradient may be asked for
UNDER_AUTOGRAD: dict[str, Callable[..., Tensor]] = {}  # the same, if nothing but autograd watches
UNDER_AUTOCAST: dict[str, Callable[..., Tensor]] = {}  # of operators that have a rule of autocast
CALLS = SimpleNamespace()  # by its name: the fastest that is right


class Rules:
    """What an operator does under transforms. `arguments` are all of them, in the schema's order: `names`."""

    names: tuple[str, ...]

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        """Keeps what backward() and jvp() need, as Function.setup_context does."""

    def backward(self, ctx: Any, *gradients: Tensor) -> Any:
        """The gradients of all arguments. The autograd engine sums a gradient to its argument's shape and converts it
        to the argument's type."""

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        """The tangent of the result."""

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """(The result of all calls, its batch dimensions)."""
        raise NotImplementedError


def keep(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    if gate.is_forward_mode() or gate.has_transforms():
        ctx.save_for_forward(*tensors)


class FormulaRules(Rules):
    """The derivatives, of any order, are those of a formula in torch's operators. `constants` are the names of the
    tensors that have none."""

    num_tensors: int  # the first arguments; the others are ctx.options
    constants: tuple[str, ...] = ()

    def formula(self, ctx: Any, *tensors: Any) -> Any:
        """The result, or a tuple of the results, for these instead of the saved tensors."""
        raise NotImplementedError

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        keep(ctx, *arguments[: self.num_tensors])
        ctx.options = arguments[self.num_tensors :]

    def _as_function(self, ctx: Any) -> tuple[Callable[..., Any], list[int], tuple[Tensor, ...]]:
        """The formula as a function of the tensors that have a derivative, their indices, and these tensors."""
        saved = ctx.saved_tensors
        indices = [i for i, one in enumerate(saved) if one is not None and self.names[i] not in self.constants]

        def function(*given: Tensor) -> Any:
            tensors = list(saved)
            for index, one in zip(indices, given):
                tensors[index] = one
            return self.formula(ctx, *tensors)

        return function, indices, tuple(saved[index] for index in indices)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        function, indices, given = self._as_function(ctx)
        pull: Any = torch.func.vjp(function, *given)[1]
        found: list[Tensor | None] = [None] * len(self.names)
        for index, one in zip(indices, pull(gradients if len(gradients) > 1 else gradients[0])):
            found[index] = one
        return tuple(found)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        function, indices, given = self._as_function(ctx)
        all_tangents = ((tangents[index], one) for index, one in zip(indices, given))
        moved = tuple(torch.zeros_like(one) if t is None else t for t, one in all_tangents)
        # By two pullbacks: torch has no forward mode inside forward mode.
        result, pull = torch.func.vjp(function, *given)[:2]
        zeros = tuple(map(torch.zeros_like, result)) if isinstance(result, tuple) else torch.zeros_like(result)
        return torch.func.vjp(pull, zeros)[1](moved)[0]


def batched(x: Tensor, dim: int | None, size: int) -> Tensor:
    """x with its batch dimension first; if it has none, x is repeated."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def row_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the numbers per row, such as a log-sum-exp."""
    return torch.float64 if dtype == torch.float64 else torch.float32


# A parameter's type in the schema, by its annotation in Python.
_TYPES = {
    **dict.fromkeys(("Array", "ArrayT"), "Tensor"),
    "Array | None": "Tensor?",
    "int | None": "int?",
    "DTypeLike | None": "ScalarType?",
}


def register_operator(
    name: str,
    fake: Callable[..., Any],
    rules: Rules,
    result: str = "Tensor",
    suffix: str = "",
    fixed: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Registers an operator of the table, with the parameters of its function in Python; with `fixed` values of others
    its name has a suffix."""
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
    register(f"{name}{suffix}({', '.join(declared)}) -> {result}", fake, rules, function, fixed)


def register(
    schema: str,
    fake: Callable[..., Any],
    rules: Rules,
    function: Callable[..., Any] | CallPath,
    fixed: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Defines an operator by its schema: the call of pyflowk's `function`, or of a CallPath. The function's other
    parameters have the values in `fixed`, or their defaults. `fake` makes an empty result. An operator of one result
    also gets the overload `out`."""
    name = schema.partition("(")[0]
    NAMES.append(name)
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    operator = getattr(torch.ops.flowk, name).default
    by_schema = DISPATCHED[name] = getattr(operator, "_op", operator)
    parameters = schema[len(name) + 1 : schema.rindex(") ->")]
    in_python = [one.rpartition(" ")[2] for one in parameters.split(", ")]
    named = [one.partition("=")[::2] for one in in_python if one != "*"]
    PARAMETERS[name] = {parameter: ast.literal_eval(default or "None") for parameter, default in named}
    names = rules.names = tuple(PARAMETERS[name])
    split = in_python.index("*") if "*" in in_python else len(names)
    path = PATHS[name] = _path(name, names, function, fixed)

    def dispatched(*arguments: Any) -> Any:
        return by_schema(*arguments[:split], **dict(zip(names[split:], arguments[split:])))

    def kernel(call: Callable[..., Any], in_python: Sequence[str] = in_python, last: str = "") -> Any:
        """`call`, which takes all arguments by position, for the dispatcher, which leaves out those at the end that
        have their defaults."""
        return eval(f"lambda {', '.join(in_python)}: call({', '.join(names)}{last})", {"call": call})

    class Function(torch.autograd.Function):
        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
            return rules.vmap(dispatched, info.batch_size, in_dims, arguments)

    Function.__name__ = Function.__qualname__ = name

    in_memory, miss = gate.below_all()(path.call_and_register), gate.below_all()(path.miss)

    def below(*arguments: Any) -> Any:
        """A call that the fast path does not take. It runs in Python; the dispatcher takes what it alone knows, such as
        tensors on meta."""
        is_seen = not gate.is_whole or gate.is_watched()
        if not is_seen and all(gate.is_plain_memory(one) for one in arguments if isinstance(one, Tensor)):
            return in_memory(*arguments)
        with below_autograd():
            return dispatched(*arguments)

    forward = path.kernel(below, miss, ASK_WATCHERS)
    methods: dict[str, Any] = {
        "forward": forward,
        "setup_context": rules.save,
        "backward": rules.backward,
        "jvp": rules.jvp,
    }
    for method, rule in methods.items():
        setattr(Function, method, staticmethod(rule))

    # Function.apply() reads the signature of forward() at every call, which takes 9 us, and without transforms of
    # torch.func then calls this.
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Function).apply
    apply_transformed: Callable[..., Tensor] = Function.apply

    def by_function(*arguments: Any) -> Any:
        return apply_transformed(*arguments) if gate.has_transforms() else apply(*arguments)

    def under_autograd(*arguments: Any) -> Any:
        if gate.is_forward_mode():
            return by_function(*arguments)
        if is_grad_enabled():
            for one in arguments:
                if isinstance(one, Tensor) and one.requires_grad:
                    return by_function(*arguments)
        return forward(*arguments)

    cached_under_autograd = path.kernel(under_autograd, miss, ASK_WATCHERS | ASK_AUTOGRAD)
    path.as_operator(cached_under_autograd, apply)
    under_autocast = None
    if name in autocast.OPERATORS:
        under_autocast = UNDER_AUTOCAST[name] = autocast.without_dispatcher(name, names, under_autograd, dispatched)
    call = path.kernel(dispatched, path.miss, ASK_WATCHERS | ASK_AUTOGRAD | ASK_AUTOCAST)
    for one in (path.cached_call, call):
        path.as_operator(one, apply, under_autocast)
    FUNCTIONS[name], UNDER_AUTOGRAD[name] = by_function, apply
    setattr(CALLS, name, call)

    def traced(*arguments: Any, **options: Any) -> Any:
        inductor.lower_operators()
        return fake(*arguments, **options)

    on_memory = kernel(path.kernel(in_memory, miss, 0))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, on_memory, key)
    inductor.add_operator(operator, on_memory)
    torch.library.register_fake(f"flowk::{name}", traced, lib=LIBRARY)
    LIBRARY.impl(name, kernel(cached_under_autograd), "Autograd")
    autocast.register(LIBRARY, name, names, kernel, dispatched)
    LIBRARY.impl(name, kernel(by_function), "FuncTorchDynamicLayerFrontMode")
    if schema.endswith("-> Tensor"):
        star = [] if "*" in in_python else ["*"]
        register_composite(
            f"{name}.out({', '.join((parameters, *star, 'Tensor(a!) out'))}) -> Tensor(a!)",
            kernel(path.cached_call, [*in_python, *star, "out"], last=", out"),
        )


def _path(
    name: str, names: tuple[str, ...], function: Callable[..., Any] | CallPath, fixed: Mapping[str, Any]
) -> CallPath:
    """A CallPath with the parameters of the operator; if the function has the same ones, the function's own."""
    if isinstance(function, CallPath):
        return function
    path: CallPath = path_of(function)
    if path.names == names:
        return path
    wanted = (*path.names, *(path.outs if path.takes_outs else ()))
    defaults = {
        key: () if one.kind == one.VAR_POSITIONAL else one.default
        for key, one in inspect.signature(function).parameters.items()
    }

    def request(*given: Any) -> Request:
        named = {**defaults, **fixed, **dict(zip(names, given))}
        return path.request(*map(named.__getitem__, wanted))

    marks = {"a": "", "n": "#", "o": "=", "v": "~"}
    roles = dict(zip(path.names, path.roles))
    request.__name__ = name
    return CallPath(" ".join(f"{one}{marks[roles[one]]}" for one in names), request, path.outs)


def all_arguments(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of an operator in the order of its schema."""
    return *arguments, *list((PARAMETERS[name] | options).values())[len(arguments) :]


def call_operator(name: str, arguments: Sequence[Any], options: dict[str, Any] = {}) -> Tensor:  # noqa: B006
    """Calls an operator with all its arguments, `options` by keyword: by the dispatcher if it is needed for more than
    autograd and autocast."""
    if gate.is_compiling():
        return getattr(torch.ops.flowk, name)(*arguments, **options)  # type: ignore[no-any-return]
    if gate.is_watched() or not gate.is_whole:
        return DISPATCHED[name](*arguments, **options)
    table = UNDER_AUTOCAST if gate.is_intercepted(name) else FUNCTIONS
    return table[name](*all_arguments(name, arguments, options))


def register_composite(schema: str, function: Callable[..., Any]) -> None:
    """Defines an operator that is a call of pyflowk's, or made of other operators."""
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CompositeImplicitAutograd", "FuncTorchDynamicLayerFrontMode"):
        LIBRARY.impl(schema.partition("(")[0], function, key)
