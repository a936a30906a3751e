# SPDX-License-Identifier: Apache-2.0
"""Operands and element types of the functions of pyflowk.jax: jax.numpy's rules."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._arguments import shown
from .._arrays.dtypes import NUMBER_TYPES, dtype_like, named_type
from .._native.abi import MAX_RANK, DType
from . import jax_names as names

_FLOAT32 = np.dtype(np.float32)
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
NUMBERS = (bool, int, float)  # of Python; operand() leaves no other instance


def array(x: Any, name: str) -> Array:
    """The operand as JAX's array; TypeError if it is no array."""
    if isinstance(x, (np.ndarray, np.generic)):
        x = jnp.asarray(x)
    if not isinstance(x, Array):
        raise TypeError(f"{name} is {shown(x)}, must be an array of JAX or NumPy")
    if x.ndim > MAX_RANK:
        raise ValueError(f"{name} has {x.ndim} dimensions, must have <= {MAX_RANK}")
    return x


def operand(x: Any, name: str) -> Array | bool | int | float:
    """As array(); a Python number stays a number."""
    if isinstance(x, NUMBERS) and not isinstance(x, np.generic):
        return x if type(x) in NUMBERS else int(x) if isinstance(x, int) else float(x)  # the last two of a subclass
    if isinstance(x, (Array, np.ndarray, np.generic)):
        return array(x, name)
    raise TypeError(f"{name} is {shown(x)}, must be an array of JAX or NumPy, or a number")


def require_static(value: Any, name: str) -> None:
    """TypeError if jax.jit traces the value, or a part of it."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    if names.Tracer is not None and any(isinstance(part, names.Tracer) for part in parts):
        raise TypeError(
            f"{name} is traced, must be known when the function is compiled: name its argument in static_argnames of "
            "jax.jit"
        )


def static_number(value: Any, name: str) -> float:
    """A number that is part of the compiled program."""
    require_static(value, name)
    if isinstance(value, (Array, np.ndarray, np.generic)) and np.ndim(value) == 0:
        value = value.item()
    if not isinstance(value, NUMBERS):
        raise TypeError(f"{name} is {shown(value)}, must be a number")
    return float(value)


def numpy_type(code: DType) -> np.dtype[Any]:
    """NumPy's dtype of type `code`."""
    dtype: np.dtype[Any] = dtype_like(code, _FLOAT32)
    return dtype


def requested_type(dtype: Any, allowed: Iterable[DType] = NUMBER_TYPES) -> np.dtype[Any]:
    """The dtype that a caller asks for. As everywhere in JAX, 64 bits are 32 without jax_enable_x64, with a warning."""
    requested = numpy_type(named_type(dtype, tuple(allowed)))
    if requested.itemsize < 8:
        return requested
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found: np.dtype[Any] = jnp.zeros((), requested).dtype
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=_frames_to_caller())
    return found


def _frames_to_caller() -> int:
    """The stacklevel, for the calling function, of the first frame outside of pyflowk and JAX."""
    inside, frame, level = (_PACKAGE, os.path.dirname(jax.__file__)), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    return level


@functools.lru_cache(maxsize=64)
def _float_of(dtype: np.dtype[Any], x64: bool) -> np.dtype[Any]:
    float_type: np.dtype[Any] = jax.eval_shape(jnp.sqrt, jax.ShapeDtypeStruct((), dtype)).dtype
    return float_type


def float_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which jax.numpy computes a function that only floats have, sqrt for example."""
    config: Any = jax.config
    return _float_of(dtype, config.jax_enable_x64)
