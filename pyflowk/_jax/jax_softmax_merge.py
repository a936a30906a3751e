# SPDX-License-Identifier: Apache-2.0
"""softmax_merge of pyflowk.jax, and its primitive: y1, lse1, y2, lse2 -> y, lse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._operators.row_derivatives import MergeTerms
from .._operators.softmax_arguments import MERGED, check_merge
from . import primitives
from .jax_types import array
from .primitives import XP, batch_size, batched_at, bind, custom_call, is_zero, zero_of


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
    t = (jnp.zeros(one.shape, wide) if is_zero(t) else t.astype(wide) for t, one in zip(tangents, primals))
    ty, tlse = MergeTerms(XP, y1.astype(wide), lse1, y2.astype(wide), lse2).tangents(*t)
    return results, [ty.astype(y1.dtype), tlse]


def _batch(primitive: Any, operands: Any, dimensions: Any) -> tuple[Any, Any]:
    size = batch_size(operands, dimensions)
    return bind(primitive, *(batched_at(one, d, 0, size) for one, d in zip(operands, dimensions))), [0, 0]


primitives.jvp(_jvp, softmax_merge_p)
primitives.batch(_batch, softmax_merge_p)
