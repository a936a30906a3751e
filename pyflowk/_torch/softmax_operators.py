# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and masked_softmax as operators of torch.ops.flowk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from .._operators.softmax_arguments import order_in_memory
from .registration import CALLS, PARAMETERS, Rules, all_arguments, keep, register_operator


def register_all() -> None:
    register_operator("softmax", _empty_softmax, _Softmax(log=False))
    register_operator("log_softmax", _empty_softmax, _Softmax(log=True))
    register_operator("masked_softmax", _empty_softmax, _MaskedSoftmax())
    register_operator(
        *("masked_softmax", _empty_with_lse, _WithLse(), "(Tensor, Tensor)"),
        suffix="_with_lse",
        fixed={"return_lse": True},
    )
    register_operator("masked_softmax_backward", _empty_backward, _Backward())


def _empty_softmax(x: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty((x,), any(one is not None for one in others) or _is_masked(**options), dtype)


def _empty_backward(dy: Tensor, y: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty((dy, y), any(one is not None for one in others) or _is_masked(**options), dtype)


def _is_masked(
    lengths: Any = None, causal: bool = False, window: int | None = None, bias: Any = None, **options: Any
) -> bool:
    return lengths is not None or causal or window is not None or bias is not None


def _empty(arrays: tuple[Tensor, ...], is_masked: bool, dtype: torch.dtype | None) -> Tensor:
    """A new result: in memory as the first array if the last dimension of all of them is strided and nothing is
    masked, as pyflowk's softmax makes it."""
    x = arrays[0]
    order = tuple(range(x.dim()))
    is_strided = x.dim() > 0 and all(one.stride(-1) != 1 for one in arrays)
    if is_strided and not is_masked and x.shape[-1] > 1 and 0 not in x.shape:
        order = order_in_memory(x.stride())
    in_memory = x.new_empty([x.shape[d] for d in order], dtype=dtype or x.dtype)
    return in_memory.permute([order.index(d) for d in range(x.dim())])


def _empty_with_lse(x: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=dtype or x.dtype), x.new_empty(x.shape[:-1], dtype=_wide(x.dtype))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


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

    @functools.cached_property
    def _options(self) -> tuple[Any, ...]:
        """The arguments of masked_softmax_backward between y and the dtype."""
        return all_arguments("masked_softmax_backward", (), {"log": self.log})[2:-1]

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        y = ctx.saved_tensors[0]
        return CALLS.masked_softmax_backward(gradients[0], y, *self._options, ctx.x_dtype), None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        y, t = ctx.saved_tensors[0], tangents[0]
        return None if t is None else _projected(y, t, log=self.log).to(y.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(arguments[0].movedim(in_dims[0], 0), *arguments[1:]), 0


def _option_names() -> tuple[str, ...]:
    """The arguments of masked_softmax_backward between lengths and the dtype. masked_softmax has them too."""
    return tuple(PARAMETERS["masked_softmax_backward"])[4:-1]


class _MaskedSoftmax(Rules):
    @functools.cached_property
    def _options_of(self) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        return itemgetter(*map(self.names.index, _option_names()))

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, result, arguments[2])
        ctx.x_dtype, ctx.options = arguments[0].dtype, self._options_of(arguments)

    def backward(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (y, lengths), needs, bias = ctx.saved_tensors, ctx.needs_input_grad, self.names.index("bias")
        found: list[Tensor | None] = [None] * len(needs)
        dy, dlse = (*gradients, None)[:2]
        if dy is None:
            if dlse is None:
                return tuple(found)
            dy = torch.zeros_like(y)
        if needs[0]:
            found[0] = CALLS.masked_softmax_backward(dy, y, dlse, lengths, *ctx.options, ctx.x_dtype)
        if needs[bias]:  # in float32 before it is summed
            unscaled = dict(zip(_option_names(), ctx.options)) | {"scale": 1.0}
            found[bias] = CALLS.masked_softmax_backward(dy, y, dlse, lengths, *unscaled.values(), _wide(ctx.x_dtype))
        return tuple(found)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        y, options = ctx.saved_tensors[0], dict(zip(_option_names(), ctx.options))
        t = self._moved(options, tangents)
        return None if t is None else _projected(y, t.expand(y.shape), log=options["log"]).to(y.dtype)

    def _moved(self, options: dict[str, Any], tangents: tuple[Tensor | None, ...]) -> Tensor | None:
        """The tangent of z."""
        of_x, of_bias = tangents[0], tangents[self.names.index("bias")]
        t = 0 if of_x is None else options["scale"] * of_x
        t = t if of_bias is None else t + of_bias
        return t if isinstance(t, Tensor) else None

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        given, dims = dict(zip(self.names, arguments)), dict(zip(self.names, in_dims))
        x, lengths = _batched(given["x"], dims["x"], size), _batched_lengths(given["lengths"], dims["lengths"], size)
        is_row = x.dim() == 2
        if is_row:  # one row of a matrix each, or `causal` would see one matrix
            x, lengths = x.unsqueeze(1), lengths if lengths is None else lengths.reshape(-1, 1)
        given |= {"x": x, "lengths": lengths}
        for name in ("mask", "bias"):
            if given[name] is not None and dims[name] is not None:
                given[name] = _under(_batched(given[name], dims[name], size), x.dim())
        results = operator(*given.values())
        if isinstance(results, Tensor):
            return results.squeeze(1) if is_row else results, 0
        return tuple(one.squeeze(1) if is_row else one for one in results), (0, 0)


class _WithLse(_MaskedSoftmax):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        super().save(ctx, arguments, result[0])
        ctx.set_materialize_grads(False)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        y, options = ctx.saved_tensors[0], dict(zip(_option_names(), ctx.options))
        t = self._moved(options, tangents)
        if t is None:
            return None, None
        wide = _wide(ctx.x_dtype)
        p = (torch.exp(y) if options["log"] else y).to(wide)
        return super().jvp(ctx, *tangents), torch.where(p == 0, 0, p * t.to(wide)).sum(-1)


class _Backward(Rules):
    """Its own gradients are made of torch's operators, which have gradients of any order; y is 0, or -infinity, in
    masked-out columns."""

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        given = dict(zip(self.names, arguments))
        keep(ctx, given["dy"], given["y"], given["dlse"])
        ctx.scale, ctx.log = given["scale"], given["log"]
        ctx.dtype = result.dtype

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dy, y, dlse = ctx.saved_tensors
        g, others = ctx.scale * gradients[0], [None] * (len(self.names) - 3)
        if not ctx.log:
            pulled = (y * g).sum(-1, keepdim=True)
            of_y = g * (dy - (y * dy).sum(-1, keepdim=True) + _per_row(dlse)) - dy * pulled
            of_dy = _projected(y, g, log=False)
        else:
            unmasked = y != -torch.inf
            g, p = torch.where(unmasked, g, 0), torch.exp(y)
            pulled = (p * g).sum(-1, keepdim=True)
            of_y = -p * g * (torch.where(unmasked, dy, 0).sum(-1, keepdim=True) - _per_row(dlse))
            of_dy = torch.where(unmasked, g - pulled, 0)
        of_dlse = None if dlse is None else pulled.squeeze(-1).to(dlse.dtype)
        return of_dy.to(dy.dtype), of_y.to(y.dtype), of_dlse, *others

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        (dy, y, dlse), (t_dy, t_y, t_dlse) = ctx.saved_tensors, tangents[:3]
        t_dy = torch.zeros_like(dy) if t_dy is None else t_dy
        t_y = torch.zeros_like(y) if t_y is None else t_y
        if not ctx.log:
            inner = (y * dy).sum(-1, keepdim=True) - _per_row(dlse)
            moved = (t_y * dy + y * t_dy).sum(-1, keepdim=True) - _per_row(t_dlse)
            tangent: Tensor = ctx.scale * (t_y * (dy - inner) + y * (t_dy - moved))
            return tangent.to(ctx.dtype)
        unmasked = y != -torch.inf
        p, dy, t_dy = torch.exp(y), torch.where(unmasked, dy, 0), torch.where(unmasked, t_dy, 0)
        t_p = p * torch.where(unmasked, t_y, 0)
        total, moved = dy.sum(-1, keepdim=True) - _per_row(dlse), t_dy.sum(-1, keepdim=True) - _per_row(t_dlse)
        tangent = ctx.scale * torch.where(unmasked, t_dy - t_p * total - p * moved, 0)
        return tangent.to(ctx.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        dy, y, dlse, lengths, *rest = arguments
        dy, y = _batched(dy, in_dims[0], size), _batched(y, in_dims[1], size)
        dlse = None if dlse is None else _batched(dlse, in_dims[2], size)
        lengths = _batched_lengths(lengths, in_dims[3], size)
        if dy.dim() == 2:
            dlse, lengths = (None if one is None else one.reshape(-1, 1) for one in (dlse, lengths))
            return operator(dy.unsqueeze(1), y.unsqueeze(1), dlse, lengths, *rest).squeeze(1), 0
        return operator(dy, y, dlse, lengths, *rest), 0


def _per_row(x: Tensor | None) -> Tensor | float:
    return 0.0 if x is None else x.unsqueeze(-1)


def _batched(x: Tensor, dim: int | None, size: int) -> Tensor:
    """x with its batch dimension first; if it has none, x is repeated."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _batched_lengths(lengths: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """As _batched(), with a batch of 1 if they have none."""
    return None if lengths is None else _batched(lengths, dim, 1 if dim is None else size)


def _under(x: Tensor, rank: int) -> Tensor:
    """x, batched, with dimensions of 1 after the first up to `rank`."""
    return x.reshape(x.shape[0], *[1] * (rank - x.dim()), *x.shape[1:])
