# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax, masked_softmax and masked_softmax_backward of pyflowk.jax, as jax_functions.py calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._arguments import boolean, shown
from .._arrays.dtypes import FLOAT_TYPES, coefficient_types, float_type, listed, softmax_results, wrong_dtype
from .._native.abi import DType
from .._operators.softmax_arguments import broadcasts, checked_options
from .._typing import DTypeLike
from .jax_types import array, static_number, wanted_type
from .primitives import ExactFloat, bind
from .softmax_primitives import HAS_BIAS, HAS_LENGTHS, HAS_MASK, Options, backward_p, softmax_p


def masked_softmax(arrays: Sequence[Any], *static: Any) -> Any:
    """`static` are side, causal, causal_offset, window, scale, log and dtype."""
    *selection, scale, log, dtype = static
    checked = checked_options(*selection, None)
    x, mask, lengths, bias = arrays
    x = array(x, "x")
    shape = _shape(x, "x")
    code = float_type(x.dtype, "x")
    row = shape[-1:]
    operands, given = [_of_rank(x, shape)], 0
    if mask is not None:
        mask = array(mask, "mask")
        if str(mask.dtype) not in ("bool", "uint8"):
            raise wrong_dtype("mask", mask.dtype, "bool or uint8")
        operands.append(_over_rows(mask, "mask", x.shape, row))
        given |= HAS_MASK
    if lengths is not None:
        operands.append(_over_leading(lengths, x.shape))
        given |= HAS_LENGTHS
    if bias is not None:
        bias = array(bias, "bias")
        if float_type(bias.dtype, "bias") not in coefficient_types(code):
            raise wrong_dtype("bias", bias.dtype, f"{listed(coefficient_types(code))} beside x of {x.dtype}")
        operands.append(_over_rows(bias, "bias", x.shape, row))
        given |= HAS_BIAS
    options = _options(given, checked, scale, log, code)
    out = bind(softmax_p, *operands, options=options, dtype=_out_type(x, "x", code, dtype))
    return out if out.shape == x.shape else out.reshape(x.shape)


def masked_softmax_backward(arrays: Sequence[Any], *static: Any) -> Any:
    *selection, scale, log, dtype = static
    checked = checked_options(*selection, None)
    dy, y, lengths = arrays
    dy, y = array(dy, "dy"), array(y, "y")
    shape = _shape(dy, "dy")
    code = float_type(dy.dtype, "dy")
    if y.shape != dy.shape:
        raise ValueError(f"y has shape {y.shape}, must be {dy.shape} as dy")
    if y.dtype != dy.dtype:
        raise TypeError(f"y has dtype {y.dtype}, must be {dy.dtype} as dy")
    operands, given = [_of_rank(dy, shape), _of_rank(y, shape)], 0
    if lengths is not None:
        operands.append(_over_leading(lengths, dy.shape))
        given |= HAS_LENGTHS
    options = _options(given, checked, scale, log, code)
    out = bind(backward_p, *operands, options=options, dtype=_out_type(dy, "dy", code, dtype))
    return out if out.shape == dy.shape else out.reshape(dy.shape)


def softmax(arrays: Sequence[Any], dtype: Any, log: bool = False) -> Any:
    return masked_softmax((*arrays, None, None, None), "left", False, 0, None, 1.0, log, dtype)


def log_softmax(arrays: Sequence[Any], dtype: Any) -> Any:
    return softmax(arrays, dtype, log=True)


def _shape(x: jax.Array, name: str) -> tuple[int, ...]:
    """The shape that the primitive sees: at least (q, k)."""
    if not x.ndim:
        raise ValueError(f"{name} has no dimensions, must have >= 1")
    return x.shape if x.ndim > 1 else (1, *x.shape)


def _of_rank(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return x if x.ndim == len(shape) else x.reshape(shape)


def _over_rows(one: jax.Array, name: str, shape: tuple[int, ...], row: tuple[int, ...]) -> jax.Array:
    """A mask or a bias with the rank of the primitive's x. The last extent is x's: rows are read in place."""
    if not broadcasts(one.shape, shape):
        raise ValueError(f"{name} has shape {one.shape}, must broadcast to {shape}")
    extents = (1,) * (max(len(shape), 2) - one.ndim) + one.shape
    one = one if one.shape == extents else one.reshape(extents)
    return one if extents[-1:] == row else jnp.broadcast_to(one, (*extents[:-1], *row))


def _over_leading(given: Any, shape: tuple[int, ...]) -> jax.Array:
    """The lengths, with one dimension for each of the primitive's x but the last."""
    lengths: jax.Array = array(given, "lengths")
    if str(lengths.dtype) not in ("int32", "int64"):
        raise wrong_dtype("lengths", lengths.dtype, "int32 or int64")
    if lengths.ndim >= len(shape) or not all(own in (1, extent) for own, extent in zip(lengths.shape, shape)):
        raise ValueError(
            f"lengths has shape {lengths.shape}, must have the first dimensions of {shape[:-1]}, or 1 in place of any"
        )
    return lengths.reshape(lengths.shape + (1,) * (max(len(shape) - 1, 1) - lengths.ndim))


def _options(given: int, checked: tuple[Any, ...], scale: Any, log: Any, code: DType) -> Options:
    factor = static_number(scale, "scale")
    largest = float("inf") if code == DType.FLOAT64 else 2.0**126
    if not (abs(factor) <= largest and abs(factor) != float("inf")):
        raise ValueError(
            f"scale = {shown(scale)}, must be finite{'' if code == DType.FLOAT64 else ', |scale| <= 2**126'}"
        )
    return Options(given, checked[:4], ExactFloat(factor), boolean(log, "log"))


def _out_type(x: jax.Array, name: str, code: DType, dtype: DTypeLike | None) -> Any:
    if dtype is None:
        return x.dtype
    wanted = wanted_type(dtype, FLOAT_TYPES)
    own = float_type(wanted, "dtype")
    outputs = softmax_results(code)
    if own not in outputs:
        raise TypeError(f"dtype = {wanted}, must be {listed(outputs)} beside {name} of {x.dtype}")
    return wanted
