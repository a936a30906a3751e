# SPDX-License-Identifier: Apache-2.0
"""The plans of the elementwise functions.

The C library computes with operands of one type, except that floats of at most 32 bits mix. Operands of other types are
converted first, each by a call of its own into an array of the type that they need.
"""

from __future__ import annotations

import functools
from ctypes import c_double, c_int, c_int32
from typing import Any, NamedTuple

import numpy as np

from .._arrays.dtypes import contiguous_strides, dtype_like, dtype_name, number_type
from .._arrays.kinds import PROTOCOL, Geometry, Signature
from .._arrays.stream import hold_until_done
from .._native import driver
from .._native import library as native
from .._native.abi import NUMBER, DType, Int64Pointer
from .._native.operations import OPERATIONS, UnaryOp
from .._pipeline import UNALLOCATED, Listener, Operation, Plan, Readings, call, no_array, plan_text
from .layout import place_operands
from .promotion import INTEGERS, number_as, number_bytes
from .resolution import Op, resolve, takes_out

# The library takes parameters as float64, which holds every integer up to this one.
LARGEST_PARAMETER = 2**53
_NO_PARAMETER = c_double(0)


class Elementwise(Operation):
    """An operation on operands that are called `names`.

    result          the type of the result, for COPY; None: what the operands' types give
    exact_integers  as in resolve()
    Its options are the types of the parameters a and b of its formula, its values the parameters themselves.
    """

    __slots__ = ("exact_integers", "op", "result")

    def __init__(
        self, op: Op, names: tuple[str, ...], result: DType | None = None, *, exact_integers: bool = False
    ) -> None:
        super().__init__(names, self._plan)
        self.op = op
        self.result = result
        self.exact_integers = exact_integers

    def _plan(self, operands: tuple[Signature, ...], out: Geometry | None, parameters: tuple[type, ...] | None) -> Plan:
        """ValueError where shapes do not broadcast, TypeError where types do not fit."""
        names = self.names
        arrays = [index for index, operand in enumerate(operands) if isinstance(operand, tuple)]
        for operand, name in zip(operands, names):
            if operand is None:
                raise no_array(name, operand, "array or a number")
        kinds = tuple(
            number_type(operand[2], name) if isinstance(operand, tuple) else operand
            for operand, name in zip(operands, names, strict=True)
        )
        op, needed, result = resolve(self.op, kinds, parameters or (), exact_integers=self.exact_integers)
        result = result if self.result is None else self.result
        out_type = result
        if out is not None:
            out_type = number_type(out[2], "out")
            fits = takes_out(op, result, out_type) if self.result is None else out_type == result
            if not fits:
                raise TypeError(f"out has dtype {out[2]}, must be {dtype_name(result)}")
        out_shape, shape_address, addresses, keep = place_operands(names, operands, out)
        out_dtype = dtype_like(out_type, operands[arrays[0]][2]) if out is None else out[2]
        types = [c_int(code if index in arrays else number_as(code) | NUMBER) for index, code in enumerate(needed)]
        strides = [_pointer(address) for address in addresses]
        written = (strides[0], c_int(out_type), c_int32(len(out_shape)), _pointer(shape_address))
        layout = _Layout(
            c_int(op.value), tuple(zip(strides[1:], types)), written, _numbers(operands, needed), out_type, keep
        )
        conversions = tuple((index, needed[index]) for index in arrays if kinds[index] != needed[index])
        steps = None
        if conversions:
            may_reuse = OPERATIONS[op].result == "SAME"
            steps = functools.partial(_convert_first, conversions, out_type if may_reuse else None, out_shape)
        function, arguments = _FUNCTIONS[len(operands) - 1]
        return Plan(function, functools.partial(arguments, layout), out_shape, out_dtype, None, steps)


class _Layout(NamedTuple):
    """C values, which pass in half the time of an int; `keep` keeps alive what they point to."""

    op: c_int
    operands: tuple[tuple[Int64Pointer | None, c_int], ...]  # strides (None is C order) and type
    written: tuple[Any, ...]  # strides and type of out, rank, shape
    numbers: tuple[tuple[int, DType], ...]  # the operands that are numbers, and the types that they are rounded to
    out_type: DType
    keep: Any


def _numbers(operands: tuple[Signature, ...], needed: tuple[DType, ...]) -> tuple[tuple[int, DType], ...]:
    return tuple((i, needed[i]) for i, operand in enumerate(operands) if not isinstance(operand, tuple))


def _pointer(address: int | None) -> Int64Pointer | None:
    return None if address is None else Int64Pointer(address)


# ---- C arguments ----------------------------------------------------------------------------------------------------


def _unary_arguments(layout: _Layout, pointers: list[Any], out: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    op, ((x_strides, x_type),), written, _, out_type, _ = layout
    if not values:
        return (op, pointers[0], x_strides, x_type, out, *written, _NO_PARAMETER, _NO_PARAMETER)
    a, b = _checked(values[0], out_type), _checked(values[1], out_type) if len(values) > 1 else _NO_PARAMETER
    return (op, pointers[0], x_strides, x_type, out, *written, a, b)


def _binary_arguments(layout: _Layout, pointers: list[Any], out: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    op, ((x_strides, x_type), (y_strides, y_type)), written, numbers, _, _ = layout
    for index, code in numbers:
        pointers[index] = _number_bytes(pointers[index], code)
    return (op, pointers[0], x_strides, x_type, pointers[1], y_strides, y_type, out, *written)


def _ternary_arguments(layout: _Layout, pointers: list[Any], out: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    op, ((x_strides, x_type), (y_strides, y_type), (z_strides, z_type)), written, numbers, out_type, _ = layout
    for index, code in numbers:
        pointers[index] = _number_bytes(pointers[index], code)
    x, y, z = pointers
    a = _checked(values[0], out_type) if values else _NO_PARAMETER
    return (op, x, x_strides, x_type, y, y_strides, y_type, z, z_strides, z_type, out, *written, a)


_FUNCTIONS = (
    ("flowk_unary", _unary_arguments),
    ("flowk_binary", _binary_arguments),
    ("flowk_ternary", _ternary_arguments),
)


def types_of(*parameters: Any) -> tuple[type, ...]:
    """The options of a call with these parameters."""
    return tuple(map(_type_of, parameters))


def _type_of(parameter: Any) -> type:
    if not isinstance(parameter, (int, float)):
        raise TypeError(f"a parameter is a {type(parameter).__name__}, must be a number")
    return float if isinstance(parameter, float) else int


def _number_bytes(number: Any, code: DType) -> bytes:
    """A number, rounded to type `code`, as number_bytes() writes it."""
    if isinstance(number, np.generic):
        number = number.item() if number.dtype.kind in "biu" else float(number)
    return number_bytes(number, code)


def _checked(parameter: float, code: DType) -> float:
    """A parameter of a result of type `code`; OverflowError, as in NumPy 2, where an integer type does not hold it."""
    if code in INTEGERS:
        number_bytes(parameter, code)
        if abs(parameter) > LARGEST_PARAMETER:
            raise OverflowError(f"Python integer {parameter} is past 2**53, the largest parameter")
    return parameter


# ---- operands that are converted first ------------------------------------------------------------------------------


@functools.cache
def conversion(name: str, code: DType) -> Elementwise:
    """The conversion of the operand that its function calls `name`."""
    return Elementwise(UnaryOp.COPY, (name,), code)


def _convert_first(
    conversions: tuple[tuple[int, DType], ...],
    reused_type: DType | None,
    out_shape: tuple[int, ...],
    operation: Elementwise,
    inputs: tuple[Any, ...],
    out: Any,
    stream: Any,
    parameters: tuple[type, ...] | None,
    values: tuple[Any, ...],
    readings: Readings,
) -> Any:
    """The steps of a Plan: converts operands, then calls `operation` on arrays that need no conversion. The result may
    take a converted operand's place where that has the type `reused_type`."""
    if stream.__class__ is Listener:
        return _explain_converted(conversions, operation, inputs, parameters, values, readings)
    converted, target = list(inputs), out
    for index, code in conversions:
        array = call(conversion(operation.names[index], code), inputs[index : index + 1], None, readings.stream)
        converted[index] = array
        # Of the result's kind: JAX's arrays may not be written.
        is_writable = inputs[index] is readings.x and readings.source is not PROTOCOL
        if out is None and is_writable and code == reused_type and tuple(readings.signatures[index][0]) == out_shape:
            target = array
    result = call(operation, tuple(converted), target, readings.stream, parameters, values)
    if readings.device is not None:
        with driver.current(readings.device):
            hold_until_done(readings.stream, converted)
    return result


def _explain_converted(
    conversions: tuple[tuple[int, DType], ...],
    operation: Elementwise,
    inputs: tuple[Any, ...],
    parameters: tuple[type, ...] | None,
    values: tuple[Any, ...],
    readings: Readings,
) -> str:
    texts, pointers, signatures = [], readings.pointers, list(readings.signatures)
    for index, code in conversions:
        name = operation.names[index]
        shape, _, dtype = signatures[index]
        texts.append(f"{name} is converted to {dtype_name(code)} first:")
        texts.append(call(conversion(name, code), inputs[index : index + 1], None, Listener()))
        strides = contiguous_strides(shape, dtype_like(code, dtype).itemsize if isinstance(dtype, np.dtype) else 1)
        signatures[index] = (shape, strides, dtype_like(code, dtype))
        pointers[index] = UNALLOCATED + (index + 1 << 55)
    plan = operation.plan(tuple(signatures), readings.out_signature, parameters)
    library = native.loaded[readings.device]
    texts.append(plan_text(library, plan.function, plan.arguments(pointers, readings.out_pointer, values)))
    return "\n".join(texts)
