# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and its gradient as operators of torch.ops.flowk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .registration import CALLS, Rules, keep, register_operator


def register_all() -> None:
    register_operator("cross_entropy", _results, _CrossEntropy(), "(Tensor, Tensor, Tensor)")
    register_operator("cross_entropy_backward", _gradient, _Backward())


def _results(logits: Tensor, targets: Tensor, *, entropy: bool = False, **options: Any) -> tuple[Tensor, ...]:
    shapes = (targets.shape, targets.shape, targets.shape if entropy else (0,))
    return tuple(logits.new_empty(shape, dtype=_wide(logits)) for shape in shapes)


def _gradient(logits: Tensor, *others: Any, **options: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


class _Terms:
    """What the formulas of a call have in common: the parameters, and where its targets are."""

    def __init__(self, logits: Tensor, targets: Tensor, *options: Any) -> None:
        self.scale, self.softcap, self.label_smoothing, self.z_loss, ignore_index, start, size = options
        self.size = start + logits.shape[-1] if size is None else size
        columns = torch.arange(start, start + logits.shape[-1], device=logits.device)
        self.is_target = columns == targets.unsqueeze(-1)
        self.is_ignored = targets == ignore_index
        self.is_invalid = ((targets < 0) | (targets >= self.size)) & ~self.is_ignored

    def scores(self, logits: Tensor) -> tuple[Tensor, Tensor | float]:
        """z, and its derivative."""
        z = self.scale * logits.to(_wide(logits))
        if not self.softcap:
            return z, self.scale
        capped = self.softcap * torch.tanh(z / self.softcap)
        is_finite = z != -torch.inf
        slope = self.scale * (1 - (capped / self.softcap) ** 2)
        return torch.where(is_finite, capped, z), torch.where(is_finite, slope, 0)

    def per_row(self, value: Tensor, *, of_loss: bool = False) -> Tensor:
        value = torch.where(self.is_ignored, 0, value)
        return torch.where(self.is_invalid, torch.nan, value) if of_loss else value

    def weighted(self, p: Tensor, z: Tensor, lse: Tensor, entropy: Tensor) -> Tensor:
        """The derivative of -entropy."""
        return torch.where(p == 0, 0, p * (z - lse.unsqueeze(-1) + entropy.unsqueeze(-1)))

    def gradient(self, logits: Tensor, lse: Tensor, entropy: Tensor | None, *gradients: Tensor | None) -> Tensor:
        """flowk_cross_entropy_backward() of `gradients`, dloss, dlse and dentropy."""
        zero = torch.zeros_like(lse)
        dloss, dlse, dentropy = [zero if one is None else one for one in gradients]
        z, slope = self.scores(logits)
        lse = torch.where(lse == -torch.inf, 0, lse)
        p = torch.exp(z - lse.unsqueeze(-1))
        dz = p * (dloss * (1 + 2 * self.z_loss * lse) + dlse).unsqueeze(-1)
        dz = dz - (self.is_target * (1 - self.label_smoothing) + self.label_smoothing / self.size) * dloss.unsqueeze(-1)
        if gradients[2] is not None and entropy is not None:
            dz = dz - self.weighted(p, z, lse, entropy) * dentropy.unsqueeze(-1)
        dz = torch.where(self.is_invalid.unsqueeze(-1), torch.nan, dz * slope)
        return torch.where(self.is_ignored.unsqueeze(-1), 0, dz).to(logits.dtype)


class _CrossEntropy(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: tuple[Tensor, ...]) -> None:
        logits, targets, *numbers, ctx.needs_entropy = arguments
        keep(ctx, logits, targets, *result[1:])
        ctx.options = (*numbers, 0, None)
        ctx.set_materialize_grads(False)
        if not ctx.needs_entropy:
            ctx.mark_non_differentiable(result[2])

    def backward(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, targets, lse, entropy = ctx.saved_tensors
        dloss, dlse, dentropy = gradients
        none = (None,) * (len(self.names) - 1)
        if dloss is None and dlse is None and dentropy is None:
            return None, *none
        of_entropy = (entropy, dentropy) if dentropy is not None and ctx.needs_entropy else (None, None)
        return CALLS.cross_entropy_backward(logits, targets, lse, dloss, dlse, *of_entropy, *ctx.options), *none

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, targets, lse, entropy = ctx.saved_tensors
        if tangents[0] is None:
            return None, None, None
        terms = _Terms(logits, targets, *ctx.options)
        z, slope = terms.scores(logits)
        t = tangents[0].to(z.dtype) * slope
        finite_lse = torch.where(lse == -torch.inf, 0, lse)
        p = torch.exp(z - finite_lse.unsqueeze(-1))
        t_lse = (p * t).sum(-1)
        t_target = torch.where(terms.is_target, t, 0).sum(-1)
        smooth = terms.label_smoothing
        t_loss = (1 + 2 * terms.z_loss * finite_lse) * t_lse - (1 - smooth) * t_target - smooth * t.mean(-1)
        t_entropy = None
        if ctx.needs_entropy:
            t_entropy = terms.per_row(-(terms.weighted(p, z, finite_lse, entropy) * t).sum(-1))
        return terms.per_row(t_loss, of_loss=True), terms.per_row(t_lse), t_entropy

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        results = operator(*_batched(size, in_dims, arguments))
        return results, (0, 0, 0 if arguments[-1] else None)


class _Backward(Rules):
    """The gradient operator. Its derivatives are taken of its formula in torch's operators, to any order."""

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, *arguments[:7])
        ctx.options = arguments[7:]

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        function, places, given = _as_function(ctx)
        found: list[Tensor | None] = [None] * len(self.names)
        for place, one in zip(places, torch.func.vjp(function, *given)[1](gradients[0])):
            found[place] = one
        return tuple(found)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor:
        function, places, given = _as_function(ctx)
        moved = tuple(
            torch.zeros_like(one) if (t := tangents[place]) is None else t for place, one in zip(places, given)
        )
        result, pull = torch.func.vjp(function, *given)[:2]
        return torch.func.vjp(pull, torch.zeros_like(result))[1](moved)[0]  # type: ignore[no-any-return]

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(*_batched(size, in_dims, arguments)), 0


_TARGETS = 1  # place among cross_entropy_backward's parameters


def _as_function(ctx: Any) -> tuple[Callable[..., Tensor], list[int], list[Tensor]]:
    """The formula as a function of the tensors that have derivatives, the places of these, and they themselves."""
    tensors = ctx.saved_tensors
    places = [place for place, one in enumerate(tensors) if one is not None and place != _TARGETS]

    def function(*moving: Tensor) -> Tensor:
        at: dict[int, Tensor] = dict(zip(places, moving))
        terms = _Terms(at[0], tensors[_TARGETS], *ctx.options)
        return terms.gradient(at[0], at[2], at.get(5), at.get(3), at.get(4), at.get(6))

    return function, places, [tensors[place] for place in places]


def _batched(size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments with the batch as the first dimension of each tensor."""
    return [
        one if not isinstance(one, Tensor) else one.expand(size, *one.shape) if dim is None else one.movedim(dim, 0)
        for one, dim in zip(arguments, (*in_dims, *[None] * len(arguments)))
    ]
