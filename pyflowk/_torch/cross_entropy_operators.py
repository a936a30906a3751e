# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and its gradient as operators of torch.ops.flowk."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registration import CALLS, FormulaRules, Rules, batched, keep, register_operator, row_type


def register_all() -> None:
    register_operator("cross_entropy", _results, _CrossEntropy(), "(Tensor, Tensor, Tensor)")
    register_operator("cross_entropy_backward", _gradient, _Backward())


def _results(logits: Tensor, targets: Tensor, *, entropy: bool = False, **options: Any) -> tuple[Tensor, ...]:
    shapes = (targets.shape, targets.shape, targets.shape if entropy else (0,))
    return tuple(logits.new_empty(shape, dtype=row_type(logits.dtype)) for shape in shapes)


def _gradient(logits: Tensor, *others: Any, **options: Any) -> Tensor:
    return logits.new_empty(logits.shape)


class _Terms:
    """What the formulas have in common: z of the logits, its derivative, p = exp(z - lse), and where the targets
    are."""

    def __init__(self, logits: Tensor, targets: Tensor, lse: Tensor, options: tuple[Any, ...]) -> None:
        scale, softcap, self.label_smoothing, z_loss, ignore_index, start, size = options
        self.size = start + logits.shape[-1] if size is None else size
        columns = torch.arange(start, start + logits.shape[-1], device=logits.device)
        self.is_target = columns == targets.unsqueeze(-1)
        self.is_ignored = targets == ignore_index
        self.is_invalid = ((targets < 0) | (targets >= self.size)) & ~self.is_ignored
        self.z, self.slope = scale * logits.to(row_type(logits.dtype)), scale
        if softcap:
            is_finite = self.z != -torch.inf
            capped = softcap * torch.tanh(self.z / softcap)
            self.slope = torch.where(is_finite, scale * (1 - (capped / softcap) ** 2), 0)
            self.z = torch.where(is_finite, capped, self.z)
        self.lse = torch.where(lse == -torch.inf, 0, lse)
        self.p = torch.exp(self.z - self.lse.unsqueeze(-1))
        self.loss_by_lse = 1 + 2 * z_loss * self.lse  # the derivative

    def entropy_by_z(self, entropy: Tensor) -> Tensor:
        """The derivative of the entropy with respect to z."""
        difference = self.z - self.lse.unsqueeze(-1) + entropy.unsqueeze(-1)
        return torch.where(self.p == 0, 0, -self.p * difference)


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
        terms = _Terms(logits, targets, lse, ctx.options)
        smooth = terms.label_smoothing
        t = tangents[0].to(terms.z.dtype) * terms.slope
        t_lse = (terms.p * t).sum(-1)
        t_target = torch.where(terms.is_target, t, 0).sum(-1)
        t_loss = terms.loss_by_lse * t_lse - (1 - smooth) * t_target - smooth * t.mean(-1)
        t_loss = torch.where(terms.is_invalid, torch.nan, t_loss)
        t_entropy = (terms.entropy_by_z(entropy) * t).sum(-1) if ctx.needs_entropy else None
        return tuple(
            None if one is None else torch.where(terms.is_ignored, 0, one) for one in (t_loss, t_lse, t_entropy)
        )

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        results = operator(*_all_batched(size, in_dims, arguments))
        return results, (0, 0, 0 if arguments[-1] else None)


class _Backward(FormulaRules):
    num_tensors = 7
    constants = ("targets",)

    def formula(self, ctx: Any, *tensors: Any) -> Tensor:
        logits, targets, lse, *gradients, entropy, dentropy = tensors
        terms = _Terms(logits, targets, lse, ctx.options)
        smooth, zero = terms.label_smoothing, torch.zeros_like(lse)
        dloss, dlse = (zero if one is None else one for one in gradients)
        dz = terms.p * (dloss * terms.loss_by_lse + dlse).unsqueeze(-1)
        dz = dz - (terms.is_target * (1 - smooth) + smooth / terms.size) * dloss.unsqueeze(-1)
        if dentropy is not None and entropy is not None:
            dz = dz + terms.entropy_by_z(entropy) * dentropy.unsqueeze(-1)
        dz = torch.where(terms.is_invalid.unsqueeze(-1), torch.nan, dz * terms.slope)
        return torch.where(terms.is_ignored.unsqueeze(-1), 0, dz).to(logits.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(*_all_batched(size, in_dims, arguments)), 0


def _all_batched(size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments with the batch as the first dimension of each tensor."""
    return [
        batched(one, dim, size) if isinstance(one, Tensor) else one
        for one, dim in zip(arguments, (*in_dims, *[None] * len(arguments)))
    ]
