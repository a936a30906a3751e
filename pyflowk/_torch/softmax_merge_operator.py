# SPDX-License-Identifier: Apache-2.0
"""softmax_merge as an operator of torch.ops.flowk. Its derivatives are formulas in torch's operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._operators.row_derivatives import MergeTerms
from .registration import Rules, batched, keep, register_operator


def register_all() -> None:
    register_operator("softmax_merge", _results, _Merge(), "(Tensor, Tensor)")


def _results(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> tuple[Tensor, Tensor]:
    return y1.new_empty(y1.shape), lse1.new_empty(lse1.shape)


def _terms(ctx: Any) -> MergeTerms:
    y1, lse1, y2, lse2 = ctx.saved_tensors
    return MergeTerms(torch, y1.to(lse1.dtype), lse1, y2.to(lse1.dtype), lse2)


class _Merge(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        keep(ctx, *arguments)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        terms, (dy, dlse) = _terms(ctx), gradients
        dy = dy.to(dlse.dtype)
        moved = terms.first * terms.second * (dy * terms.apart).sum(-1)
        halves = ((terms.first, terms.first * dlse + moved), (terms.second, terms.second * dlse - moved))
        dtype = ctx.saved_tensors[0].dtype
        return tuple(one for weight, of_lse in halves for one in ((weight.unsqueeze(-1) * dy).to(dtype), of_lse))

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, Tensor]:
        given = [torch.zeros_like(one) if t is None else t for t, one in zip(tangents, ctx.saved_tensors)]
        dtype, wide = (one.dtype for one in ctx.saved_tensors[:2])
        ty, tlse = _terms(ctx).tangents(*(one.to(wide) for one in given))
        return ty.to(dtype), tlse

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        moved = [batched(one, dim, size) for one, dim in zip(arguments, in_dims)]
        return operator(*moved), (0, 0)
