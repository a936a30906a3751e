# SPDX-License-Identifier: Apache-2.0
"""softmax_merge as an operator of torch.ops.flowk. Its derivatives are formulas in torch's operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registration import Rules, batched, keep, register_operator


def register_all() -> None:
    register_operator("softmax_merge", _results, _Merge(), "(Tensor, Tensor)")


def _results(y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> tuple[Tensor, Tensor]:
    return y1.new_empty(y1.shape), lse1.new_empty(lse1.shape)


class _Terms:
    """The weights of both halves, and their rows in lse's type, 0 where all is masked out."""

    def __init__(self, y1: Tensor, lse1: Tensor, y2: Tensor, lse2: Tensor) -> None:
        masked1, masked2 = lse1 == -torch.inf, lse2 == -torch.inf
        distance = torch.where(masked1 & masked2, 0, lse1 - lse2)
        self.first = torch.where(masked1, 0, torch.sigmoid(distance))
        self.second = torch.where(masked2, 0, torch.sigmoid(-distance))
        self.y1 = torch.where(masked1.unsqueeze(-1), 0, y1.to(lse1.dtype))
        self.y2 = torch.where(masked2.unsqueeze(-1), 0, y2.to(lse1.dtype))


class _Merge(Rules):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        keep(ctx, *arguments)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        terms, (dy, dlse) = _Terms(*ctx.saved_tensors), gradients
        dy = dy.to(dlse.dtype)
        moved = terms.first * terms.second * (dy * (terms.y1 - terms.y2)).sum(-1)
        halves = ((terms.first, terms.first * dlse + moved), (terms.second, terms.second * dlse - moved))
        dtype = ctx.saved_tensors[0].dtype
        return tuple(one for weight, of_lse in halves for one in ((weight.unsqueeze(-1) * dy).to(dtype), of_lse))

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, Tensor]:
        terms = _Terms(*ctx.saved_tensors)
        given = [torch.zeros_like(one) if t is None else t for t, one in zip(tangents, ctx.saved_tensors)]
        ty1, tlse1, ty2, tlse2 = (one.to(terms.first.dtype) for one in given)
        ty = terms.first.unsqueeze(-1) * ty1 + terms.second.unsqueeze(-1) * ty2
        ty = ty + (terms.first * terms.second * (tlse1 - tlse2)).unsqueeze(-1) * (terms.y1 - terms.y2)
        return ty.to(ctx.saved_tensors[0].dtype), terms.first * tlse1 + terms.second * tlse2

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        moved = [batched(one, dim, size) for one, dim in zip(arguments, in_dims)]
        return operator(*moved), (0, 0)
