# SPDX-License-Identifier: Apache-2.0
"""The functions of pyflowk.jax that are permutes by other descriptions of the axes, and `positive`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax
from jax.typing import ArrayLike

from .._arrays.dtypes import number_type
from .._operators.permute_arguments import moved_axes, swapped_axes
from .._typing import DTypeLike
from .jax_functions import permute
from .jax_types import array

__all__ = ["moveaxis", "permute_many", "positive", "swapaxes", "transpose"]


def transpose(
    x: ArrayLike, axes: Iterable[int] | None = None, *, dtype: DTypeLike | None = None, scale: float = 1.0
) -> jax.Array:
    """`permute`; without axes the dimensions are reversed: as `pyflowk.transpose`."""
    x = array(x, "x")
    return permute(x, range(x.ndim)[::-1] if axes is None else axes, dtype=dtype, scale=scale)


def swapaxes(x: ArrayLike, axis1: int, axis2: int, *, dtype: DTypeLike | None = None, scale: float = 1.0) -> jax.Array:
    """Swap two dimensions of an array: as `pyflowk.swapaxes`."""
    x = array(x, "x")
    return permute(x, swapped_axes(x.ndim, axis1, axis2), dtype=dtype, scale=scale)


def moveaxis(
    x: ArrayLike,
    source: int | Iterable[int],
    destination: int | Iterable[int],
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
) -> jax.Array:
    """Move dimensions to other places; the others stay in order: as `pyflowk.moveaxis`."""
    x = array(x, "x")
    return permute(x, moved_axes(x.ndim, source, destination), dtype=dtype, scale=scale)


def permute_many(
    xs: Sequence[ArrayLike], axes: Iterable[int], *, dtype: DTypeLike | None = None, scale: float = 1.0
) -> list[jax.Array]:
    """``[permute(x, axes) for x in xs]``: as `pyflowk.permute_many`, with a launch for each array."""
    order = tuple(axes)
    return [permute(x, order, dtype=dtype, scale=scale) for x in xs]


def positive(x: ArrayLike) -> jax.Array:
    """``out = x``, for every element: as `pyflowk.positive`. JAX's arrays never change, so it is x itself."""
    x = array(x, "x")
    number_type(x.dtype, "x")
    return x
