# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and masked_softmax as operators of torch.ops.flowk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._operators import softmax as softmax_operator
from .derivatives import flowk
from .registration import Rules, keep, register

_MASKED = 'str side="left", bool causal=False, SymInt causal_offset=0, SymInt? window=None'
_SCALED = "float scale=1.0, bool log=False, ScalarType? dtype=None"


def register_all() -> None:
    for name, log in (("softmax", False), ("log_softmax", True)):
        kernel = getattr(softmax_operator, name)
        schema = f"{name}(Tensor x, *, ScalarType? dtype=None) -> Tensor"
        register(schema, kernel, _empty_like, _Softmax(log), kernel)
    register(
        f"masked_softmax(Tensor x, Tensor? mask=None, *, Tensor? lengths=None, {_MASKED}, Tensor? bias=None, {_SCALED})"
        " -> Tensor",
        softmax_operator.masked_softmax,
        _empty_like,
        _MaskedSoftmax(),
        softmax_operator.masked_softmax,
    )
    register(
        f"masked_softmax_backward(Tensor dy, Tensor y, *, Tensor? lengths=None, {_MASKED}, {_SCALED}) -> Tensor",
        softmax_operator.masked_softmax_backward,
        _empty_like,
        _Backward(),
        softmax_operator.masked_softmax_backward,
    )


def _empty_like(x: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=dtype or x.dtype)


def _projected(y: Tensor, t: Tensor, *, log: bool) -> Tensor:
    """The derivative of softmax, or its logarithm, with value y along t; 0 in masked-out columns."""
    if not log:
        return y * (t - (y * t).sum(-1, keepdim=True))
    unmasked = y != -torch.inf
    return torch.where(unmasked, t - (torch.exp(y) * torch.where(unmasked, t, 0)).sum(-1, keepdim=True), 0)


class _Softmax(Rules):
    def __init__(self, log: bool) -> None:
        self.log = log

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, result)
        ctx.x_dtype = arguments[0].dtype

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor]:
        return (flowk.masked_softmax_backward(gradients[0], ctx.saved_tensors[0], log=self.log, dtype=ctx.x_dtype),)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        y, t = ctx.saved_tensors[0], tangents[0]
        return None if t is None else _projected(y, t, log=self.log).to(y.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(arguments[0].movedim(in_dims[0], 0), *arguments[1:]), 0


class _MaskedSoftmax(Rules):
    """Arguments: x, mask, lengths, side, causal, causal_offset, window, bias, scale, log, dtype."""

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        x, _, lengths, *ctx.masked, bias, ctx.scale, ctx.log, _ = arguments
        keep(ctx, result, lengths)
        ctx.x_dtype = x.dtype
        ctx.bias = None if bias is None else (bias.shape, bias.dtype)

    def backward(self, ctx: Any, *gradients: Tensor) -> list[Tensor | None]:
        y, lengths = ctx.saved_tensors
        side, causal, causal_offset, window = ctx.masked

        def backward(scale: float, dtype: torch.dtype) -> Tensor:
            return flowk.masked_softmax_backward(
                gradients[0],
                y,
                **dict(lengths=lengths, side=side, causal=causal, causal_offset=causal_offset, window=window),
                **dict(scale=scale, log=ctx.log, dtype=dtype),
            )

        of_x = backward(ctx.scale, ctx.x_dtype) if ctx.needs_input_grad[0] else None
        if ctx.bias is None or not ctx.needs_input_grad[7]:
            return [of_x]
        shape, dtype = ctx.bias
        # In float32 before it is summed.
        of_bias = backward(1.0, torch.float64 if ctx.x_dtype == torch.float64 else torch.float32)
        return [of_x, *[None] * 6, of_bias.sum_to_size(shape).to(dtype)]

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        y = ctx.saved_tensors[0]
        of_x, of_bias = tangents[0], tangents[7]
        t = 0 if of_x is None else ctx.scale * of_x
        t = t if of_bias is None else t + of_bias
        return _projected(y, t.expand(y.shape), log=ctx.log).to(y.dtype) if isinstance(t, Tensor) else None

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        x, mask, lengths, *masked, bias, scale, log, dtype = arguments
        x = _batched(x, in_dims[0], size)
        lengths = lengths if lengths is None else _batched(lengths, in_dims[2], 1 if in_dims[2] is None else size)
        is_row = x.dim() == 2
        if is_row:  # one row of a matrix each, or `causal` would see one matrix
            x, lengths = x.unsqueeze(1), lengths if lengths is None else lengths.reshape(-1, 1)
        mask, bias = (
            one if one is None or dim is None else _under(_batched(one, dim, size), x.dim())
            for one, dim in ((mask, in_dims[1]), (bias, in_dims[7]))
        )
        result = operator(x, mask, lengths, *masked, bias, scale, log, dtype)
        return result.squeeze(1) if is_row else result, 0


class _Backward(Rules):
    """Arguments: dy, y, lengths, side, causal, causal_offset, window, scale, log, dtype. Its own gradients are made of
    torch's operators, which have gradients of any order; y is 0, or -infinity, in masked-out columns."""

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, *arguments[:2])
        ctx.scale, ctx.log = arguments[7:9]
        ctx.dtype = result.dtype

    def backward(self, ctx: Any, *gradients: Tensor) -> Sequence[Tensor | None]:
        dy, y = ctx.saved_tensors
        g = ctx.scale * gradients[0]
        if not ctx.log:
            return _projected(y, g, log=False).to(dy.dtype), (
                g * (dy - (y * dy).sum(-1, keepdim=True)) - dy * (y * g).sum(-1, keepdim=True)
            ).to(y.dtype)
        unmasked = y != -torch.inf
        g, p = torch.where(unmasked, g, 0), torch.exp(y)
        total = torch.where(unmasked, dy, 0).sum(-1, keepdim=True)
        of_dy = torch.where(unmasked, g - (p * g).sum(-1, keepdim=True), 0)
        return of_dy.to(dy.dtype), (-p * g * total).to(y.dtype)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        (dy, y), (t_dy, t_y) = ctx.saved_tensors, tangents[:2]
        t_dy = torch.zeros_like(dy) if t_dy is None else t_dy
        t_y = torch.zeros_like(y) if t_y is None else t_y
        if not ctx.log:
            inner = (y * dy).sum(-1, keepdim=True)
            moved = (t_y * dy + y * t_dy).sum(-1, keepdim=True)
            return (ctx.scale * (t_y * (dy - inner) + y * (t_dy - moved))).to(ctx.dtype)
        unmasked = y != -torch.inf
        p, dy, t_dy = torch.exp(y), torch.where(unmasked, dy, 0), torch.where(unmasked, t_dy, 0)
        t_p = p * torch.where(unmasked, t_y, 0)
        result = t_dy - t_p * dy.sum(-1, keepdim=True) - p * t_dy.sum(-1, keepdim=True)
        return (ctx.scale * result).to(ctx.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        dy, y, lengths, *rest = arguments
        dy, y = _batched(dy, in_dims[0], size), _batched(y, in_dims[1], size)
        lengths = lengths if lengths is None else _batched(lengths, in_dims[2], 1 if in_dims[2] is None else size)
        if dy.dim() == 2:
            lengths = lengths if lengths is None else lengths.reshape(-1, 1)
            return operator(dy.unsqueeze(1), y.unsqueeze(1), lengths, *rest).squeeze(1), 0
        return operator(dy, y, lengths, *rest), 0


def _batched(x: Tensor, dim: int | None, size: int) -> Tensor:
    """x with its batch dimension first; repeated where it has none."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _under(x: Tensor, rank: int) -> Tensor:
    """x, batched, with dimensions of 1 after the first up to `rank`."""
    return x.reshape(x.shape[0], *[1] * (rank - x.dim()), *x.shape[1:])
