# SPDX-License-Identifier: Apache-2.0
"""softmax_merge of pyflowk.jax, and its primitive: y1, lse1, y2, lse2 -> y, lse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._operators.softmax_arguments import MERGED, check_merge
from . import primitives
from .jax_types import array
from .primitives import batch_size, batched_at, bind, custom_call, is_zero, zero_of


def softmax_merge(arrays: Sequence[Any]) -> tuple[jax.Array, jax.Array]:
    operands = list(map(array, arrays, MERGED))
    check_merge(*((one.shape, one.dtype) for one in operands))
    if operands[0].shape[-1] == 0:
        raise ValueError(f"y1 has shape {operands[0].shape}, must have >= 1 columns")
    y, lse = bind(softmax_merge_p, *operands)
    return y, lse


def _results(y1: Any, lse1: Any, y2: Any, lse2: Any) -> list[Any]:
    return [y1.update(weak_type=False), lse1.update(weak_type=False)]


softmax_merge_p = custom_call("softmax_merge", _results, dict, multiple_results=True)


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    results = bind(primitive, *primals)
    if all(map(is_zero, tangents)):
        return results, [zero_of(one) for one in results]
    y1, lse1, y2, lse2 = primals
    wide = lse1.dtype
    masked1, masked2 = jnp.isneginf(lse1), jnp.isneginf(lse2)
    distance = jnp.where(masked1 & masked2, 0, lse1 - lse2)
    first = jnp.where(masked1, 0, jax.nn.sigmoid(distance))
    second = jnp.where(masked2, 0, jax.nn.sigmoid(-distance))
    ty1, tlse1, ty2, tlse2 = (
        jnp.zeros(one.shape, wide) if is_zero(t) else t.astype(wide) for t, one in zip(tangents, primals)
    )
    apart = jnp.where(masked1[..., None], 0, y1.astype(wide)) - jnp.where(masked2[..., None], 0, y2.astype(wide))
    ty = first[..., None] * ty1 + second[..., None] * ty2 + (first * second * (tlse1 - tlse2))[..., None] * apart
    return results, [ty.astype(y1.dtype), first * tlse1 + second * tlse2]


def _batch(primitive: Any, operands: Any, dimensions: Any) -> tuple[Any, Any]:
    size = batch_size(operands, dimensions)
    return bind(primitive, *(batched_at(one, d, 0, size) for one, d in zip(operands, dimensions))), [0, 0]


primitives.jvp(_jvp, softmax_merge_p)
primitives.batch(_batch, softmax_merge_p)
