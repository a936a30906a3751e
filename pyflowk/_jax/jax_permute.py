# SPDX-License-Identifier: Apache-2.0
"""permute and batch_transpose of pyflowk.jax, and the primitives of flowk_permute() and flowk_permute_convert()."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import shown
from .._arrays.dtypes import ALL_TYPES, listed, type_of_elements, wrong_dtype
from .._operators.permute_arguments import _checked_axes, _converted_type, _last_two_swapped, axes_tuple
from .._typing import DTypeLike
from . import primitives
from .jax_types import array, requested_type, static_number
from .primitives import Attributes, bind, custom_call, first_dimension, is_zero, zero_of


def permute(arrays: Sequence[Any], axes: Iterable[int], dtype: DTypeLike | None, scale: float) -> jax.Array:
    order, x = axes_tuple(axes), array(arrays[0], "x")
    return _permute(x, _checked_axes(order, x.ndim), dtype, scale)


def batch_transpose(arrays: Sequence[Any], dtype: DTypeLike | None, scale: float) -> jax.Array:
    x = array(arrays[0], "x")
    return _permute(x, _last_two_swapped(x.ndim), dtype, scale)


def _permute(x: jax.Array, axes: Sequence[int], dtype: DTypeLike | None, scale: float) -> jax.Array:
    factor = static_number(scale, "scale")
    if not np.isfinite(factor):
        raise ValueError(f"scale = {shown(scale)}, must be finite")
    out_dtype = x.dtype if dtype is None else requested_type(dtype, ALL_TYPES)
    if not axes:  # XLA's calls carry no empty list
        return _permute(x.reshape((1,)), (0,), dtype, scale).reshape(())
    if out_dtype == x.dtype and factor == 1:
        if type_of_elements(x.dtype) is None:
            raise wrong_dtype("x", x.dtype, listed(ALL_TYPES))
        out: jax.Array = bind(permute_p, x, axes=tuple(axes))
        return out
    _converted_type(x.dtype, type_of_elements(out_dtype))
    out = bind(permute_convert_p, x, axes=tuple(axes), dtype=out_dtype, scale=factor)
    return out


# ---- primitives -----------------------------------------------------------------------------------------------------


def _abstract(x: Any, *, axes: tuple[int, ...], dtype: np.dtype[Any] | None = None, scale: float = 1.0) -> Any:
    permuted = x.update(shape=tuple(x.shape[axis] for axis in axes))
    return permuted if dtype is None else permuted.update(dtype=dtype, weak_type=False)


def _attributes(axes: tuple[int, ...]) -> Attributes:
    return {"axes": np.array(axes, np.int32)}


def _convert_attributes(axes: tuple[int, ...], dtype: np.dtype[Any], scale: float) -> Attributes:
    return {**_attributes(axes), "scale": np.float64(scale)}


permute_p = custom_call("permute", _abstract, _attributes)
permute_convert_p = custom_call("permute_convert", _abstract, _convert_attributes)


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
    out = bind(primitive, *primals, **parameters)
    if is_zero(tangents[0]) or not jnp.issubdtype(out.dtype, jnp.inexact):
        return out, zero_of(out)
    return out, bind(primitive, *tangents, **parameters)


def _transposed(primitive: Any, cotangent: jax.Array, x: Any, *, axes: tuple[int, ...], **parameters: Any) -> list[Any]:
    if "dtype" in parameters:
        parameters["dtype"] = np.dtype(x.dtype)
    return [bind(primitive, cotangent, axes=tuple(map(int, np.argsort(axes))), **parameters)]


def _batch(primitive: Any, operands: Sequence[Any], dimensions: Sequence[Any], *, axes: Any, **parameters: Any) -> Any:
    batch = first_dimension(dimensions)
    moved = (batch, *(axis + (axis >= batch) for axis in axes))
    return bind(primitive, *operands, axes=moved, **parameters), 0


primitives.jvp(_jvp, permute_p, permute_convert_p)
primitives.transpose(_transposed, permute_p, permute_convert_p)
primitives.batch(_batch, permute_p, permute_convert_p)
