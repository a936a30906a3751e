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
from .._elementwise.promotion import FLOATS, INTEGERS, LARGEST_PARAMETER, MIXED_FLOATS, number_bytes, parameter_value
from .._elementwise.resolution import COMPARISONS, TO_BOOL, computed_as, within_bounds
from .._native.abi import DType
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from .._pipeline import Request
from .._typing import DTypeLike
from . import eager, primitives
from .formulas import CONSTANT, FORMULAS, GRADIENTS, OF_RESULT, Op
from .jax_types import NUMBERS, array, float_of, numpy_type, operand, requested_type, static_number
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
) -> jax.Array:
    """`op` of operands that have the types and the rank that it needs."""
    out: jax.Array = bind(_PRIMITIVES[len(operands) - 1], *operands, op=op, dtype=dtype, weak=weak, a=a, b=b)
    return out


# ---- derivatives and vmap -------------------------------------------------------------------------------------------


def _formula(*operands: Any, op: Op, dtype: np.dtype[Any], weak: bool, a: float, b: float) -> Any:
    """In float32, or in float64 if that is a type of the call, as the library computes."""
    dtypes = [jnp.result_type(x) for x in operands]
    compute = jnp.float64 if np.dtype(np.float64) in (dtype, *dtypes) else jnp.float32
    values = [x if x_dtype == _BOOL else jnp.asarray(x).astype(compute) for x, x_dtype in zip(operands, dtypes)]
    numbers = (float(a), float(b))[: OPERATIONS[op].num_parameters]
    return FORMULAS[op](*values, *numbers).astype(dtype)


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], *, op: Op, **parameters: Any) -> Any:
    out = bind(primitive, *primals, op=op, **parameters)
    dtype = parameters["dtype"]
    if all(map(is_zero, tangents)) or op in CONSTANT or type_of_elements(dtype) not in FLOATS:
        return out, zero_of(out)
    if op in GRADIENTS:
        numbers = [np.full((1,) * out.ndim, parameters["a"], dtype)] * OPERATIONS[op].num_parameters
        at = out if op in OF_RESULT else primals[0]
        return out, elementwise(GRADIENTS[op], tangents[0], at, *numbers, dtype=dtype)
    return out, tangents_of(functools.partial(_formula, op=op, **parameters), primals, tangents)


def _transposed_gradient(
    primitive: Any, cotangent: jax.Array, dy: jax.Array, *others: jax.Array, op: Op, **parameters: Any
) -> list[jax.Array]:
    return [sum_to(elementwise(op, cotangent, *others, dtype=np.dtype(dy.dtype)), dy.shape)]


def _batch(primitive: Any, operands: Sequence[Any], dimensions: Sequence[Any], **parameters: Any) -> Any:
    target = first_dimension(dimensions)
    moved = [batched_at(x, dimension, target) for x, dimension in zip(operands, dimensions)]
    return bind(primitive, *moved, **parameters), target


primitives.jvp(_jvp, *_PRIMITIVES)
primitives.batch(_batch, *_PRIMITIVES)
primitives.transpose(_transposed_gradient, binary_p, ternary_p)  # only gradients are called with tangents


# ---- from a function to its primitive -------------------------------------------------------------------------------


def apply(
    op: Op,
    names: tuple[str, ...],
    operands: tuple[Any, ...],
    parameters: tuple[Any, ...] = (),
) -> jax.Array:
    """The result of a function. `operands` are arrays or Python numbers. `parameters` are Python numbers, which
    take part in the promotion. `names` are the names of the operands and the parameters."""
    return eager.call(_apply, operands, op=op, names=names, parameters=parameters)


def apply_request(request: Request) -> jax.Array:
    """The result of a call of pyflowk's function, on JAX's arrays."""
    operation: Any = request.operation
    return apply(operation.op, (*operation.names, *operation.parameters), request.inputs, request.values)


def parameter(op: Op, value: Any, name: str) -> float:
    """A parameter of a function, which is part of the compiled program: an int stays one if the operation takes it."""
    is_exact = type(value) is int and abs(value) <= LARGEST_PARAMETER and "I" in OPERATIONS[op].takes
    return value if is_exact else static_number(value, name)


def cast_to(arrays: Sequence[Any], dtype: DTypeLike) -> jax.Array:
    x = array(arrays[0], "x")
    number_type(x.dtype, "x")
    return elementwise(UnaryOp.COPY, x, dtype=requested_type(dtype))


def _apply(
    given: Sequence[Any],
    op: Op,
    names: tuple[str, ...],
    parameters: tuple[Any, ...],
) -> jax.Array:
    operands = [operand(x, name) for x, name in zip(given, names)]
    arrays = [(name, x) for name, x in zip(names, operands) if not isinstance(x, NUMBERS)]
    for name, x in arrays:
        number_type(x.dtype, name)
    promoted = operands[op == TernaryOp.WHERE :]  # without a condition
    common, weak = jax.dtypes.result_type(*promoted, *parameters, return_weak_type_flag=True)
    op, compute = _computation(op, common, float_of(common))
    op, operands = _in_bounds(op, operands, compute)
    needed = _needed(op, operands, compute)
    shape = broadcast_shape([(name, x.shape) for name, x in arrays])
    ready = [_as_operand(x, dtype, len(shape), name) for x, dtype, name in zip(operands, needed, names)]
    is_bool = OPERATIONS[op].result == "BOOL"
    code = _code_of(compute)
    values = [parameter_value(value, code, name) for value, name in zip(parameters, names[len(operands) :])]
    a, b = (*values, 0.0, 0.0)[:2] if OPERATIONS[op].num_parameters else (0.0, 0.0)
    return elementwise(op, *ready, dtype=_BOOL if is_bool else compute, weak=weak and not is_bool, a=a, b=b)


def _as_operand(x: Any, dtype: np.dtype[Any], rank: int, name: str) -> jax.Array | np.ndarray[Any, Any]:
    """An array or a number as the primitive takes it."""
    if isinstance(x, NUMBERS):
        number_bytes(x, _code_of(dtype), name)  # for its errors
        return np.full((1,) * rank, x, dtype)
    x = x if x.dtype == dtype else x.astype(dtype)
    reshaped: jax.Array = x if x.ndim == rank else x.reshape((1,) * (rank - x.ndim) + x.shape)
    return reshaped


@functools.lru_cache(maxsize=64)
def _code_of(dtype: np.dtype[Any]) -> DType:
    """flowk's type for a dtype of numbers."""
    return number_type(dtype, "x")


@functools.lru_cache(maxsize=1024)
def _computation(op: Op, common: np.dtype[Any], float_type: np.dtype[Any]) -> tuple[Op, np.dtype[Any]]:
    """The operation that computes `op` on operands of type `common`, and the type that it computes in; `float_type` is
    the type for operations that only floats have."""
    computation = computed_as(op, _code_of(common), _code_of(float_type))
    if computation is None:
        words = {"B": "bool", "I": "integers", "F": "floats"}
        raise TypeError(
            f"{op.name.lower()} takes {' and '.join(words[letter] for letter in OPERATIONS[op].takes)}, not {common}, "
            "which its operands come to"
        )
    return computation[0], numpy_type(computation[1])


def _in_bounds(op: Op, operands: list[Any], compute: np.dtype[Any]) -> tuple[Op, list[Any]]:
    """If a comparison has an integer array and a number that its type does not hold: a comparison with the same answer,
    with a number that the type holds."""
    code = type_of_elements(compute)
    if op in COMPARISONS and code in INTEGERS:
        for index, x in enumerate(operands):
            if isinstance(x, int) and not isinstance(operands[1 - index], NUMBERS):
                op, operands[index] = within_bounds(BinaryOp(op), x, index, DType(code))
    return op, operands


def _needed(op: Op, operands: Sequence[Any], compute: np.dtype[Any]) -> list[np.dtype[Any]]:
    """The type that each operand must have."""
    if op in TO_BOOL and type_of_elements(compute) in FLOATS:
        codes = [None if isinstance(x, NUMBERS) else type_of_elements(x.dtype) for x in operands]
        if INTEGERS.issuperset(codes):  # int64 with uint64, which the library compares exactly
            return [np.dtype(np.uint64 if code >= DType.UINT8 else np.int64) for code in codes if code is not None]
    mixes = type_of_elements(compute) in MIXED_FLOATS
    needed = []
    for index, x in enumerate(operands):
        dtype = None if isinstance(x, NUMBERS) else x.dtype
        if op == TernaryOp.WHERE and index == 0:
            needed.append(_BOOL)
        elif dtype is not None and (op == UnaryOp.COPY or (mixes and type_of_elements(dtype) in MIXED_FLOATS)):
            needed.append(dtype)
        else:
            needed.append(compute)
    return needed
