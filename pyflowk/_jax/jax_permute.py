# SPDX-License-Identifier: Apache-2.0
"""permute and batch_transpose of pyflowk.jax, and the primitives of flowk_permute() and flowk_permute_convert()."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from .._arguments import shown
from .._arrays.dtypes import ALL_TYPES, listed, type_of_elements, wrong_dtype
from .._elementwise.promotion import FLOATS
from .._native.abi import DType
from .._operators.permute_arguments import _checked_axes, _converted_type, _last_two_swapped, axes_tuple
from .._typing import DTypeLike
from . import primitives
from .jax_types import array, static_number, wanted_type
from .primitives import bind, custom_call, first_dimension, is_zero, zero_of


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
    wanted = x.dtype if dtype is None else wanted_type(dtype, ALL_TYPES)
    if not axes:  # XLA's calls carry no empty list
        return _permute(x.reshape((1,)), (0,), dtype, scale).reshape(())
    if wanted == x.dtype and factor == 1:
        if type_of_elements(x.dtype) is None:
            raise wrong_dtype("x", x.dtype, listed(ALL_TYPES))
        out: jax.Array = bind(permute_p, x, axes=tuple(axes))
        return out
    _converted_type(x.dtype, type_of_elements(wanted))
    out = bind(permute_convert_p, x, axes=tuple(axes), dtype=wanted, scale=factor)
    return out


# ---- primitives -----------------------------------------------------------------------------------------------------


def _abstract(x: Any, *, axes: tuple[int, ...]) -> Any:
    return x.update(shape=tuple(x.shape[axis] for axis in axes))


def _abstract_convert(x: Any, *, axes: tuple[int, ...], dtype: np.dtype[Any], scale: float) -> Any:
    return x.update(shape=tuple(x.shape[axis] for axis in axes), dtype=dtype, weak_type=False)


def _attributes(axes: tuple[int, ...]) -> dict[str, Any]:
    return {"axes": np.array(axes, np.int32)}


def _convert_attributes(axes: tuple[int, ...], dtype: np.dtype[Any], scale: float) -> dict[str, Any]:
    return {**_attributes(axes), "scale": np.float64(scale)}


permute_p = custom_call("permute", _abstract, _attributes)
permute_convert_p = custom_call("permute_convert", _abstract_convert, _convert_attributes)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(axes))


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
    out = bind(primitive, *primals, **parameters)
    if is_zero(tangents[0]) or not _has_tangents(out):
        return out, zero_of(out)
    return out, bind(primitive, *tangents, **parameters)


def _has_tangents(x: Any) -> bool:
    code = type_of_elements(x.dtype)
    return code in FLOATS or code in (DType.COMPLEX64, DType.COMPLEX128)


def _transposed(cotangent: Any, x: Any, *, axes: tuple[int, ...]) -> list[Any]:
    return [bind(permute_p, cotangent, axes=_inverse(axes))]


def _transposed_convert(
    cotangent: Any, x: Any, *, axes: tuple[int, ...], dtype: np.dtype[Any], scale: float
) -> list[Any]:
    return [bind(permute_convert_p, cotangent, axes=_inverse(axes), dtype=np.dtype(x.dtype), scale=scale)]


def _batch(primitive: Any, operands: Sequence[Any], dimensions: Sequence[Any], *, axes: Any, **parameters: Any) -> Any:
    batch = first_dimension(dimensions)
    moved = (batch, *(axis + (axis >= batch) for axis in axes))
    return bind(primitive, *operands, axes=moved, **parameters), 0


for _primitive, _rule in ((permute_p, _transposed), (permute_convert_p, _transposed_convert)):
    primitives.jvp(_primitive, functools.partial(_jvp, _primitive))
    primitives.transpose(_primitive, _rule)
    primitives.batch(_primitive, functools.partial(_batch, _primitive))
