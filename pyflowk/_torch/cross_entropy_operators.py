# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and its gradient as operators of torch.ops.flowk."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._operators.cross_entropy_arguments import Options
from .._operators.row_derivatives import CrossEntropyTerms
from .registration import CALLS, FormulaRules, Rules, batched, keep, register_operator, row_type


def register_all() -> None:
    register_operator("cross_entropy", _results, _CrossEntropy(), "(Tensor, Tensor, Tensor)")
    register_operator("cross_entropy_backward", _gradient, _Backward())


def _results(logits: Tensor, targets: Tensor, *, entropy: bool = False, **options: Any) -> tuple[Tensor, ...]:
    shapes = (targets.shape, targets.shape, targets.shape if entropy else (0,))
    return tuple(logits.new_empty(shape, dtype=row_type(logits.dtype)) for shape in shapes)


def _gradient(logits: Tensor, *others: Any, **options: Any) -> Tensor:
    return logits.new_empty(logits.shape)


def _terms(logits: Tensor, targets: Tensor, lse: Tensor, options: tuple[Any, ...]) -> CrossEntropyTerms:
    given = Options(*options)
    columns = torch.arange(given.vocab_start, given.vocab_start + logits.shape[-1], device=logits.device)
    return CrossEntropyTerms(torch, columns, logits.to(lse.dtype), targets, lse, given)


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
        terms = _terms(logits, targets, lse, ctx.options)
        found = terms.tangents(tangents[0].to(lse.dtype), [entropy] if ctx.needs_entropy else [])
        return tuple(found) if ctx.needs_entropy else (*found, None)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        results = operator(*_all_batched(size, in_dims, arguments))
        return results, (0, 0, 0 if arguments[-1] else None)


class _Backward(FormulaRules):
    num_tensors = 7
    constants = ("targets",)

    def formula(self, ctx: Any, *tensors: Any) -> Tensor:
        logits, targets, lse, *gradients, entropy, dentropy = tensors
        zero = torch.zeros_like(lse)
        dloss, dlse = (zero if one is None else one for one in gradients)
        of_entropy = [] if entropy is None or dentropy is None else [(entropy, dentropy)]
        return _terms(logits, targets, lse, ctx.options).gradient(dloss, dlse, of_entropy).to(logits.dtype)  # type: ignore[no-any-return]

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(*_all_batched(size, in_dims, arguments)), 0


def _all_batched(size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments with the batch as the first dimension of each tensor."""
    return [
        batched(one, dim, size) if isinstance(one, Tensor) else one
        for one, dim in zip(arguments, (*in_dims, *[None] * len(arguments)))
    ]
