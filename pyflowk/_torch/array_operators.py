# SPDX-License-Identifier: Apache-2.0
"""permute, batch_transpose, cast and prelu as operators of torch.ops.flowk."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._arguments import axis_of, count_of
from .._elementwise import functions
from .registration import CALLS, FormulaRules, Rules, batched, keep, register, register_operator


def register_all() -> None:
    register_operator(
        "permute",
        lambda x, axes, *, dtype=None, scale=1.0: x.new_empty(
            [x.shape[axis] for axis in _checked(axes, x.dim())], dtype=dtype or x.dtype
        ),
        _Permute(),
    )
    register_operator(
        "batch_transpose",
        lambda x, *, dtype=None, scale=1.0: x.new_empty(
            (*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype=dtype or x.dtype
        ),
        _BatchTranspose(),
    )
    register(
        "cast(Tensor x, ScalarType dtype) -> Tensor",
        lambda x, dtype: torch.empty_like(x, dtype=dtype),
        _Cast(),
        functions.cast,
    )
    register_operator(
        "prelu",
        lambda x, alpha, channel_axis=1: _like_in_memory(x),
        _Prelu(),
    )
    register_operator(
        "prelu_backward",
        lambda dy, x, alpha, channel_axis=1: (_like_in_memory(x), alpha.new_empty(alpha.shape)),
        _PreluBackward(),
        "(Tensor, Tensor)",
    )


def _checked(axes: Sequence[int], rank: int) -> Sequence[int]:
    if sorted(axis % rank if rank else axis for axis in axes) != list(range(rank)):
        raise ValueError(f"axes = {list(axes)}, must name each of x's {count_of(rank, 'dimension')} once")
    return axes


def _like_in_memory(x: Tensor) -> Tensor:
    """An empty tensor in x's memory order if x is dense, in C order if not."""
    like = torch.empty_like(x)  # which has x's strides only if x is dense
    return like if like.stride() == x.stride() else x.new_empty(x.shape)


class _Permute(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        x, axes, *others = arguments
        ctx.call = (x.dtype, tuple(axes), *others)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_dtype, axes, _, scale = ctx.call
        return CALLS.permute(gradients[0], _inverse(axes), x_dtype, scale), None, None, None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return CALLS.permute(tangents[0], *ctx.call[1:])  # type: ignore[no-any-return]

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        x, axes, *rest = arguments
        rank = x.dim() - 1
        return operator(x.movedim(in_dims[0], 0), [0, *(axis % rank + 1 for axis in axes)], *rest), 0


@functools.cache
def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda position: axes[position] % len(axes)))


class _BatchTranspose(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        ctx.call = (arguments[0].dtype, *arguments[1:])

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_dtype, _, scale = ctx.call
        return CALLS.batch_transpose(gradients[0], x_dtype, scale), None, None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return CALLS.batch_transpose(tangents[0], *ctx.call[1:])  # type: ignore[no-any-return]

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(arguments[0].movedim(in_dims[0], 0), *arguments[1:]), 0


class _Cast(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        ctx.dtypes = arguments[0].dtype, result.dtype

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return CALLS.cast(gradients[0], ctx.dtypes[0]), None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        return CALLS.cast(tangents[0], ctx.dtypes[1])  # type: ignore[no-any-return]

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(*arguments), in_dims[0]


def _along(alpha: Tensor, x: Tensor, channel_axis: int) -> Tensor:
    """alpha as a view that broadcasts to x."""
    if alpha.numel() == 1:
        return alpha.reshape(())
    return alpha.reshape([-1 if axis == channel_axis % x.dim() else 1 for axis in range(x.dim())])


class _Prelu(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, *arguments[:2])
        ctx.axis = arguments[2]

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *CALLS.prelu_backward(gradients[0], *ctx.saved_tensors, ctx.axis), None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, alpha = ctx.saved_tensors
        zero = torch.zeros_like(x)
        dx, dalpha = (zero if one is None else one for one in tangents[:2])
        slope = _along(alpha, x, ctx.axis)
        negative = slope * dx + (0 if tangents[1] is None else _along(dalpha, x, ctx.axis) * x)
        return torch.where(x > 0, dx, negative).to(x.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        *tensors, axis = arguments
        if in_dims[1] is None:
            x, alpha = tensors[0].movedim(in_dims[0], 0), tensors[1]
            return operator(x, alpha, 0 if alpha.numel() == 1 else axis_of(axis, "channel_axis", x.dim() - 1) + 1), 0
        x, alpha = (batched(one, d, size) for one, d in zip(tensors, in_dims))
        channels = _BatchedChannels(alpha, axis, x.dim() - 1)
        return channels.apart(operator(channels.merged(x), alpha.flatten(), 0)), 0


class _PreluBackward(FormulaRules):
    num_tensors = 3

    def formula(self, ctx: Any, dy: Tensor, x: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        slope, positive = _along(alpha, x, ctx.options[0]), x > 0
        dx = torch.where(positive, dy, slope * dy)
        dalpha = torch.where(positive, 0, dy * x).sum_to_size(slope.shape).reshape(alpha.shape)
        return dx.to(x.dtype), dalpha.to(alpha.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        *tensors, axis = arguments
        dy, x, alpha = (batched(one, d, size) for one, d in zip(tensors, in_dims))
        channels = _BatchedChannels(alpha, axis, x.dim() - 1)
        dx, dalpha = operator(channels.merged(dy), channels.merged(x), alpha.flatten(), 0)
        return (channels.apart(dx), dalpha.reshape(alpha.shape)), (0, 0)


class _BatchedChannels:
    """Batched calls as one: the batch and the channels become one dimension, the first, with an alpha for each index.
    `alpha` has the batch; `axis` and `rank` are of one call's x."""

    def __init__(self, alpha: Tensor, axis: int, rank: int) -> None:
        size = alpha.shape[0]
        is_one = alpha.numel() == size
        self._sizes = (size, 1 if is_one else alpha.shape[1])
        self._channel_dim = None if is_one else axis_of(axis, "channel_axis", rank) + 1

    def merged(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(1) if self._channel_dim is None else x.movedim(self._channel_dim, 1)).flatten(0, 1)

    def apart(self, result: Tensor) -> Tensor:
        batched: Tensor = result.unflatten(0, self._sizes)
        return batched.squeeze(1) if self._channel_dim is None else batched.movedim(1, self._channel_dim)
