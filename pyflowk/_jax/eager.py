# SPDX-License-Identifier: Apache-2.0
"""Calls outside of jit: a function of concrete arrays is one compiled program, checks and promotion included."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from .jax_types import require_static
from .primitives import is_traced

Result = TypeVar("Result")
_MAX_PROGRAMS = 4096
_HASHED = {bool, int, str, type(None), UnaryOp, BinaryOp, TernaryOp}
_CONCRETE: set[type] = {type(None)}  # and the types of arrays that are not tracers, as they are seen
_bits_of = struct.Struct("d").pack
_programs: dict[tuple[Any, ...], Callable[..., Any]] = {}


def call(function: Callable[..., Result], arrays: Sequence[Any], **static: Any) -> Result:
    """function(arrays, **static); an array may be None.

    There is one program per function and `static`; JAX compiles it for each combination of shapes and types. If an
    operand is a number or traced, or a static value has no key, the function itself is called.
    """
    for x in arrays:
        if type(x) not in _CONCRETE:
            if not isinstance(x, jax.Array) or is_traced(x):
                return _call_itself(function, arrays, static)
            _CONCRETE.add(type(x))
    try:
        key = (function, *map(_key, static.values()))
    except TypeError:
        return _call_itself(function, arrays, static)
    config: Any = jax.config
    if config.jax_disable_jit:
        return function(arrays, **static)
    program = _programs.get(key)
    if program is None:
        if len(_programs) >= _MAX_PROGRAMS:
            _programs.clear()
        program = _programs[key] = _compiled(function, static)
    result: Result = program(*arrays)
    return result


def _call_itself(function: Callable[..., Result], arrays: Sequence[Any], static: dict[str, Any]) -> Result:
    for name, value in static.items():
        require_static(value, name)
    return function(arrays, **static)


def _compiled(function: Callable[..., Any], static: dict[str, Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        return function(arrays, **static)

    run.__name__ = f"flowk_{function.__name__.lstrip('_')}"
    return jax.jit(run, inline=True)  # in a trace that these arrays are constants of: as the function itself


def _key(value: Any) -> tuple[Any, ...]:
    """Equal for one value of one type: 2, 2.0 and True differ, and 0.0 and -0.0."""
    kind = type(value)
    if kind in _HASHED:
        return kind, value
    if kind is tuple:
        return tuple(map(_key, value))
    if kind is float:
        return kind, _bits_of(value)
    if isinstance(value, (type, np.dtype)):
        return kind, value
    raise TypeError
