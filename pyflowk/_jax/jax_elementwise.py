# SPDX-License-Identifier: Apache-2.0
"""The primitives of flowk_unary(), flowk_binary() and flowk_ternary(), and the path from a function to them.

Operands have one rank; an extent of 1 is repeated. They have one type, or are floats of at most 32 bits in any mix,
which the kernels read as they are. Parameters: the operation, the type of the result and whether it is weak, a and b.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays.dtypes import number_type, type_of_elements
from .._elementwise.layout import broadcast_shape
from .._elementwise.promotion import FLOATS, INTEGERS, MIXED_FLOATS, number_bytes, parameter_value
from .._elementwise.resolution import COMPARISONS, TO_BOOL, computed_as, within_bounds
from .._native.abi import DType
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from . import eager, primitives
from .formulas import CONSTANT, FORMULAS, GRADIENTS, Op
from .jax_types import NUMBERS, float_of, numpy_type, operand
from .primitives import batched_at, bind, custom_call, first_dimension, is_zero, sum_to, tangents_of, zero_of

_BOOL = np.dtype(np.bool_)


def _abstract(*avals: Any, op: Op, dtype: np.dtype[Any], weak: bool, a: float, b: float) -> Any:
    shape = _broadcast([aval.shape for aval in avals])
    like = next((aval for aval in avals if aval.shape == shape), avals[0])
    return like.update(shape=shape, dtype=dtype, weak_type=weak)


def _broadcast(shapes: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The shape of operands of one rank that are known to fit."""
    return tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(*shapes, strict=True))


def _attributes(op: Op, dtype: np.dtype[Any], weak: bool, a: float, b: float) -> dict[str, Any]:
    return {"op": np.int64(op.value), "a": np.float64(a), "b": np.float64(b)}


unary_p, binary_p, ternary_p = (custom_call(name, _abstract, _attributes) for name in ("unary", "binary", "ternary"))
_PRIMITIVES = (unary_p, binary_p, ternary_p)


def elementwise(
    op: Op, *operands: Any, dtype: np.dtype[Any], weak: bool = False, a: float = 0.0, b: float = 0.0
) -> Any:
    """`op` of operands that have the types and the rank that it needs."""
    return bind(_PRIMITIVES[len(operands) - 1], *operands, op=op, dtype=dtype, weak=weak, a=a, b=b)


# ---- derivatives and vmap -------------------------------------------------------------------------------------------


def _formula(*operands: Any, op: Op, dtype: np.dtype[Any], weak: bool, a: float, b: float) -> Any:
    """In float32, or float64 where that is a type of the call, as the library computes."""
    compute = jnp.float64 if any(jnp.dtype(one) == jnp.float64 for one in (dtype, *_types(operands))) else jnp.float32
    values = [one if _type(one) == _BOOL else jnp.asarray(one).astype(compute) for one in operands]
    numbers = (float(a), float(b))[: OPERATIONS[op].num_parameters]
    return FORMULAS[op](*values, *numbers).astype(dtype)


def _type(x: Any) -> np.dtype[Any]:
    return jnp.result_type(x)


def _types(operands: Sequence[Any]) -> list[np.dtype[Any]]:
    return [_type(one) for one in operands]


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], *, op: Op, **parameters: Any) -> Any:
    out = bind(primitive, *primals, op=op, **parameters)
    dtype = parameters["dtype"]
    if all(map(is_zero, tangents)) or op in CONSTANT or type_of_elements(dtype) not in FLOATS:
        return out, zero_of(out)
    if op in GRADIENTS:
        return out, elementwise(GRADIENTS[op], tangents[0], primals[0], dtype=dtype)
    return out, tangents_of(functools.partial(_formula, op=op, **parameters), primals, tangents)


def _transposed_gradient(
    cotangent: Any, dy: Any, x: Any, *, op: Op, dtype: np.dtype[Any], weak: bool, a: float, b: float
) -> list[Any]:
    return [sum_to(elementwise(op, cotangent, x, dtype=np.dtype(dy.dtype)), dy.shape)]


def _batch(primitive: Any, operands: Sequence[Any], dimensions: Sequence[Any], **parameters: Any) -> Any:
    wanted = first_dimension(dimensions)
    moved = [batched_at(one, dimension, wanted) for one, dimension in zip(operands, dimensions)]
    return bind(primitive, *moved, **parameters), wanted


for _primitive in _PRIMITIVES:
    primitives.jvp(_primitive, functools.partial(_jvp, _primitive))
    primitives.batch(_primitive, functools.partial(_batch, _primitive))
primitives.transpose(binary_p, _transposed_gradient)  # only gradients are called with tangents


# ---- from a function to its primitive -------------------------------------------------------------------------------


def apply(
    op: Op,
    names: tuple[str, ...],
    given: tuple[Any, ...],
    parameters: tuple[tuple[str, float], ...] = (),
    *,
    exact_integers: bool = False,
) -> jax.Array:
    """What a function returns. `given` are arrays or Python numbers, called `names` in errors; `parameters` are Python
    numbers with their names, which take part in the promotion."""
    out: jax.Array = eager.call(_apply, given, op=op, names=names, parameters=parameters, exact_integers=exact_integers)
    return out


def _apply(
    given: Sequence[Any],
    op: Op,
    names: tuple[str, ...],
    parameters: tuple[tuple[str, float], ...],
    exact_integers: bool,
) -> jax.Array:
    operands = [operand(x, name) for x, name in zip(given, names, strict=True)]
    arrays = [(name, one) for name, one in zip(names, operands) if not isinstance(one, NUMBERS)]
    for name, one in arrays:
        number_type(one.dtype, name)
    promoted = operands[op == TernaryOp.WHERE :]  # without a condition
    numbers = [value for _, value in parameters]
    common, weak = jax.dtypes.result_type(*promoted, *numbers, return_weak_type_flag=True)
    op, compute = _computation(op, common, exact_integers)
    op, operands = _in_bounds(op, operands, compute)
    needed = _needed(op, operands, compute)
    shape = broadcast_shape([(name, one.shape) for name, one in arrays])
    ready = []
    for one, wanted, name in zip(operands, needed, names):
        if isinstance(one, NUMBERS):
            number_bytes(one, _code_of(wanted), name)  # for its errors
            ready.append(np.full((1,) * len(shape), one, wanted))
            continue
        if one.dtype != wanted:
            one = one.astype(wanted)
        ready.append(one if one.ndim == len(shape) else one.reshape((1,) * (len(shape) - one.ndim) + one.shape))
    is_bool = OPERATIONS[op].result == "BOOL"
    values = [parameter_value(value, _code_of(compute), name) for name, value in parameters]
    a, b = (*values, 0.0, 0.0)[:2] if OPERATIONS[op].num_parameters else (0.0, 0.0)
    return elementwise(op, *ready, dtype=_BOOL if is_bool else compute, weak=weak and not is_bool, a=a, b=b)


def _code_of(dtype: np.dtype[Any]) -> DType:
    """flowk's type for a dtype of numbers."""
    return DType(type_of_elements(dtype))


def _computation(op: Op, common: np.dtype[Any], exact_integers: bool) -> tuple[Op, np.dtype[Any]]:
    """The operation that computes `op` on operands of type `common`, and the type that it computes in."""
    found = computed_as(op, _code_of(common), exact_integers, _code_of(float_of(common)))
    if found is None:
        words = {"B": "bool", "I": "integers", "F": "floats"}
        raise TypeError(
            f"{op.name.lower()} takes {' and '.join(words[letter] for letter in OPERATIONS[op].takes)}, not {common}, "
            "which its operands come to"
        )
    return found[0], numpy_type(found[1])


def _in_bounds(op: Op, operands: list[Any], compute: np.dtype[Any]) -> tuple[Op, list[Any]]:
    """The comparison of an integer array with a number that its type does not hold, as one with a number that it
    does."""
    code = type_of_elements(compute)
    if op in COMPARISONS and code in INTEGERS:
        for index, one in enumerate(operands):
            if isinstance(one, int) and not isinstance(operands[1 - index], NUMBERS):
                op, operands[index] = within_bounds(BinaryOp(op), one, index, DType(code))
    return op, operands


def _needed(op: Op, operands: Sequence[Any], compute: np.dtype[Any]) -> list[np.dtype[Any]]:
    """The type that each operand must have."""
    if op in TO_BOOL and type_of_elements(compute) in FLOATS:
        codes = [None if isinstance(one, NUMBERS) else type_of_elements(one.dtype) for one in operands]
        if INTEGERS.issuperset(codes):  # int64 with uint64, which the library compares exactly
            return [np.dtype(np.uint64 if code >= DType.UINT8 else np.int64) for code in codes if code is not None]
    mixes = type_of_elements(compute) in MIXED_FLOATS
    needed = []
    for index, one in enumerate(operands):
        own = None if isinstance(one, NUMBERS) else one.dtype
        if op == TernaryOp.WHERE and index == 0:
            needed.append(_BOOL)
        elif own is not None and (op == UnaryOp.COPY or (mixes and type_of_elements(own) in MIXED_FLOATS)):
            needed.append(own)
        else:
            needed.append(compute)
    return needed
