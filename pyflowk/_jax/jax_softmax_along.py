# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax of JAX's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from .._typing import DTypeLike
from .jax_softmax import results_of, softmax_p


def softmax(arrays: Sequence[Any], dtype: DTypeLike | None) -> jax.Array:
    return results_of(softmax_p, ("x",), arrays, dtype=dtype)[0]


def log_softmax(arrays: Sequence[Any], dtype: DTypeLike | None) -> jax.Array:
    return results_of(softmax_p, ("x",), arrays, dtype=dtype, log=True)[0]
