# SPDX-License-Identifier: Apache-2.0
"""The elementwise operators of torch.ops.flowk: one per row of flowk/elementwise_ops.h, named as its function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .._arrays.dtypes import dtype_like, number_type
from .._calls.call_path import CallPath, path_of
from .._elementwise import functions
from .._elementwise.call import Elementwise
from .._elementwise.promotion import number_as
from .._elementwise.resolution import Op, Resolution
from .._native.abi import DType
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from .._pipeline import Request
from . import gate
from .derivatives import DERIVATIVES, Formula
from .registration import Rules, call_operator, keep, register, register_composite
from .torch_promotion import ZeroDim, default_dtype, resolve_marked

# The operands of operations that no function is called as; the others have their function's names.
_OPERANDS: dict[Op, tuple[str, ...]] = {
    UnaryOp.GELU_TANH: ("x",),
    BinaryOp.GELU_TANH_BACKWARD: ("dy", "x"),
    TernaryOp.CLIP_BY: ("x", "lo", "hi"),
}
_strides_of_result = gate.private("torch._prims_common", "compute_elementwise_output_strides")
OPERATION_OF: dict[str, Op] = {}  # by operator
_PARAMETERS: dict[Op, str] = {
    UnaryOp.LEAKY_RELU: "float slope=0.01",
    UnaryOp.ELU: "float alpha=1.0",
    UnaryOp.CLIP: "float lo, float hi",
    UnaryOp.SCALE: "float a, float b=0.0",
    TernaryOp.ADD_MULTIPLY: "float a=1.0",
}


def register_all() -> None:
    for op in OPERATIONS:
        if op != UnaryOp.COPY:
            _register(op)


def _register(op: Op) -> None:
    arity = 1 if isinstance(op, UnaryOp) else 2 if isinstance(op, BinaryOp) else 3
    name = op.name.lower()
    function = getattr(functions, name, None)
    operands = path_of(function).names[:arity] if function else _OPERANDS[op]
    declared = [f"Tensor {operand}" for operand in operands] + ([_PARAMETERS[op]] if op in _PARAMETERS else [])
    parameters = tuple(one.split()[1].partition("=")[0] for one in _PARAMETERS.get(op, "").split(", ") if one)
    operation = Elementwise(op, operands, parameters=parameters)
    OPERATION_OF[name] = op

    def request(*given: Any) -> Request:
        return Request(operation, given[:arity], None, given[arity:])

    def fake(*arguments: Any) -> Tensor:
        return _empty(resolution_of(op, arguments[:arity]), arguments[:arity])

    rules = _Pointwise(op, DERIVATIVES.get(name, (None,) * arity), operands, parameters)
    if function is None or parameters:
        function = CallPath(" ".join((*operands, *(f"{one}~" for one in parameters))), request)
    register(f"{name}({', '.join(declared)}) -> Tensor", fake, rules, function)
    if arity == 2:
        register_composite(
            f"{name}.Scalar(Tensor {operands[0]}, Scalar {operands[1]}) -> Tensor",
            lambda *given: with_numbers(operation, given, (), ()),
        )


def resolution_of(op: Op, operands: Sequence[Tensor], ranks: Sequence[int] | None = None) -> Resolution:
    """The types of an operation on tensors; `ranks` replaces theirs."""
    codes = [number_type(one.dtype, "an operand") for one in operands]
    ranks = ranks or [one.dim() for one in operands]
    kinds = tuple(_kind(code, not rank) for code, rank in zip(codes, ranks))
    return resolve_marked(op, kinds, (), ("x", "y", "z"), default_dtype())


def with_numbers(operation: Elementwise, inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> Tensor:
    """The result for operands, or `values` of parameters with the types `options`, that are numbers."""
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    is_scalar = all(one.dim() == 0 for one in tensors)
    kinds = tuple(
        (one.dtype, one.dim() == 0) if isinstance(one, Tensor) else getattr(one, "dtype", type(one)) for one in inputs
    )
    arguments = []
    for one, (dtype, number_dtype) in zip(inputs, _dtypes(operation.operator, operation.names, kinds, options)):
        if not isinstance(one, Tensor):
            # A tensor without dimensions is as weak as a number.
            device = tensors[0].device if gate.is_intercepted() else "cpu"
            one = torch.full((), one, dtype=number_dtype, device=device)
        else:
            one = one if one.dtype == dtype else call_operator("cast", (one, dtype))
            one = one.reshape(1) if is_scalar else one
        arguments.append(one)
    result = call_operator(operation.operator, (*arguments, *map(float, values)))
    return result.reshape(()) if is_scalar else result


def _find_dtypes(
    operator: str, names: tuple[str, ...], kinds: tuple[Any, ...], parameters: tuple[DType | type, ...]
) -> tuple[tuple[torch.dtype, torch.dtype], ...]:
    """Per operand the type that it must have, and the type in which a number is passed. A kind is (a tensor's dtype,
    whether it has no dimensions), a NumPy scalar's dtype, or a number's type."""
    op = OPERATION_OF[operator]
    codes = tuple(
        _kind(number_type(kind[0], name), kind[1])
        if isinstance(kind, tuple)
        else kind
        if isinstance(kind, type)
        else ZeroDim(number_type(kind, name))
        for kind, name in zip(kinds, names)
    )
    types = resolve_marked(op, codes, parameters, names, default_dtype()).operand_types
    return tuple((dtype_like(code, torch.float32), dtype_like(number_as(code), torch.float32)) for code in types)


# Its arguments are constants too. Otherwise a compiled function would check all tables that are read there.
_dtypes: Callable[..., tuple[tuple[torch.dtype, torch.dtype], ...]]
_dtypes = torch.compiler.assume_constant_result(_find_dtypes)


def _kind(code: DType, has_no_dimensions: bool) -> DType | ZeroDim:
    return ZeroDim(code) if has_no_dimensions else code


def _empty(resolution: Resolution, operands: Sequence[Tensor]) -> Tensor:
    """An empty result. Its dimensions have the operands' order in memory."""
    placed = [one for one in operands if one.dim() or one.device.type != "cpu"] or list(operands)
    shape = torch.broadcast_shapes(*(one.shape for one in operands))
    strides = _strides_of_result(*(one.expand(shape) for one in placed))
    dtype = dtype_like(resolution.result, operands[0].dtype)
    return torch.empty_strided(shape, strides, dtype=dtype, device=placed[0].device)


class _Pointwise(Rules):
    """The tangent is the sum of the operands' partial derivatives times their tangents; the gradients are the same
    products."""

    def __init__(
        self,
        op: Op,
        formulas: tuple[Formula | None, ...],
        operands: tuple[str, ...],
        parameters: tuple[str, ...],
    ) -> None:
        self.op, self.formulas, self.operands = op, formulas, operands
        self.names = (*operands, *parameters)
        self.needs = [() if one is None else one.__code__.co_varnames[1 : one.__code__.co_argcount] for one in formulas]

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        count = len(self.operands)
        is_forward = gate.has_transforms() or gate.is_forward_mode()
        if is_forward:
            ctx.result_dtype, ctx.result_shape, ctx.result_device = result.dtype, result.shape, result.device
        indices = self._indices_to_keep(ctx.needs_input_grad[:count], is_forward)
        kept = [result if index == count else arguments[index] for index in indices]
        numbers = {}
        if count > 1:  # at least one operand is a tensor
            numbers = {index: one for index, one in zip(indices, kept) if not isinstance(one, Tensor)}
        ctx.call = indices, numbers, arguments[count:]
        keep(ctx, *[None if index in numbers else one for index, one in zip(indices, kept)] if numbers else kept)

    @functools.cache  # noqa: B019
    def _indices_to_keep(self, needed: tuple[bool, ...], forward: bool) -> tuple[int, ...]:
        """The indices of the operands that the partial derivatives name; the result comes after them."""
        needed = needed if any(needed) and not forward else (True,) * len(needed)
        names = {name for need, is_needed in zip(self.needs, needed) if is_needed for name in need}
        return tuple(index for index, name in enumerate((*self.operands, "out")) if name in names)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if len(self.operands) == 1:  # the only formula takes all saved tensors
            formula, parameters = self.formulas[0], ctx.call[-1]
            return formula and formula(gradients[0], *ctx.saved_tensors, *parameters), *[None] * len(parameters)
        known = self._known(ctx)
        return tuple(
            self._times_partial(index, gradients[0], known) if needed and index < len(self.formulas) else None
            for index, needed in enumerate(ctx.needs_input_grad)
        )

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        known = self._known(ctx)
        products = [
            None if tangent is None else self._times_partial(index, tangent, known)
            for index, tangent in enumerate(tangents[: len(self.operands)])
        ]
        parts = [one for one in products if one is not None]
        if not parts:
            return None
        # A single part may have the shape, and the device, of an operand that is broadcast.
        tangent = functools.reduce(torch.add, parts).expand(ctx.result_shape)
        return tangent.to(dtype=ctx.result_dtype, device=ctx.result_device)

    def _known(self, ctx: Any) -> dict[str, Any]:
        indices, numbers, parameters = ctx.call
        names = (*self.operands, "out")
        known = {names[index]: one for index, one in zip(indices, ctx.saved_tensors)}
        for index, number in numbers.items():  # a tensor without dimensions is as weak as a number
            known[names[index]] = torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)
        return {**known, **dict(zip(self.names[len(self.operands) :], parameters))} if parameters else known

    def _times_partial(self, index: int, g: Tensor, known: dict[str, Any]) -> Tensor | None:
        formula = self.formulas[index]
        return formula and formula(g, **{name: known[name] for name in self.needs[index]})

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        count = len(self.operands)
        ranks = [one.dim() - (dim is not None) for one, dim in zip(arguments, in_dims[:count])]
        resolution = resolution_of(self.op, arguments[:count], ranks)
        batched = []
        for one, dim, own, code in zip(arguments, in_dims, ranks, resolution.operand_types):
            if dim is not None:
                one = one.movedim(dim, 0)
                one = one.reshape(size, *[1] * (max(ranks) - own), *one.shape[1:])
                one = one if own else one.to(dtype_like(code, one.dtype))  # it has dimensions now, and is not weak
            batched.append(one)
        return operator(*batched, *arguments[count:]), 0
