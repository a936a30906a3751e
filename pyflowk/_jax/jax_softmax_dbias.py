# SPDX-License-Identifier: Apache-2.0
"""masked_softmax_backward_dbias of pyflowk.jax. jax.grad() takes its primitive for the bias of masked_softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from .._arguments import boolean
from .jax_softmax import backward_dbias_p, results_of


def masked_softmax_backward_dbias(
    arrays: Sequence[Any], *, need_dx: bool, **options: Any
) -> tuple[jax.Array | None, jax.Array]:
    wants_dx = boolean(need_dx, "need_dx")
    dx, dbias = results_of(backward_dbias_p, ("dy", "y", "bias", "dlse", "lengths"), arrays, **options)
    return (dx if wants_dx else None), dbias
