# SPDX-License-Identifier: Apache-2.0
"""The plans of the elementwise functions.

The C library computes with operands of one type, except that floats of at most 32 bits mix. Operands of other types are
converted first, each by a call of its own into an array of the type that they need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int, c_int32
from typing import Any, NamedTuple

import numpy as np

from .._arrays.dtypes import dtype_like, dtype_name, number_type
from .._arrays.kinds import ARRAYS, Geometry, Signature
from .._calls.roads import Road
from .._native.abi import NUMBER, DType, Int64Pointer
from .._native.operations import OPERATIONS, BinaryOp, UnaryOp
from .._pipeline import (
    UNALLOCATED,
    Call,
    Listener,
    Operation,
    Plan,
    Readings,
    Recorder,
    call,
    new_array,
    no_array,
    plan_text,
)
from .layout import memory_order, place_operands, strides_in_order
from .promotion import INTEGERS, float_from, number_as, number_bytes
from .resolution import (
    COMPARISONS,
    TO_BOOL,
    Op,
    Resolution,
    ZeroDim,
    compared_past_bounds,
    resolve,
    resolve_torch,
    takes_out,
)
from .torch_promotion import default_dtype

# The library takes parameters as float64, which holds every integer up to this one.
LARGEST_PARAMETER = 2**53
_ZERO = c_double(0)  # for a parameter that the operation does not have


# Of the operators in torch.ops.flowk; the others have the operation's.
_OPERATOR_NAMES: dict[Op, str] = {UnaryOp.COPY: "cast", BinaryOp.MIN: "minimum", BinaryOp.MAX: "maximum"}


class Elementwise(Operation):
    """An operation on operands that are called `names`.

    result          the type of the result, for COPY; None: what the operands' types give
    parameters      names of the parameters a and b of its formula
    exact_integers  as in resolve()
    Its values are the parameters, its options their types; or the Resolution, if it is known.
    """

    takes_scalars = True

    __slots__ = ("exact_integers", "op", "operator", "parameters", "result")

    def __init__(
        self,
        op: Op,
        names: tuple[str, ...],
        result: DType | None = None,
        *,
        parameters: tuple[str, ...] = (),
        exact_integers: bool = False,
    ) -> None:
        super().__init__(names, self._plan, takes_numbers=len(names) > 1)
        self.op = op
        self.operator = "trunc_div" if exact_integers else _OPERATOR_NAMES.get(op, op.name.lower())
        self.result = result
        self.parameters = parameters
        self.exact_integers = exact_integers

    def _plan(
        self,
        operands: tuple[Signature, ...],
        out: Geometry | None,
        options: tuple[DType | type, ...] | Resolution | None,
    ) -> Plan:
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
        first = operands[arrays[0]]
        if isinstance(options, Resolution):
            resolution = options
        elif isinstance(first[2], np.dtype):
            resolution = resolve(self.op, kinds, options or (), names, exact_integers=self.exact_integers)
        else:
            resolve_now = functools.partial(self._resolve_tensors, operands, kinds, options or ())
            resolution = resolve_now(DType.FLOAT32)
            if resolution != resolve_now(DType.FLOAT64):
                by_default = functools.partial(_by_default_dtype, resolve_now)
                return Plan("", lambda *_: (), (), None, steps=by_default)
        op, needed, result = resolution
        result = result if self.result is None else self.result
        out_type = result
        if out is not None:
            out_type = number_type(out[2], "out")
            fits = takes_out(self.op, result, out_type) if self.result is None else out_type == result
            if not fits:
                raise TypeError(f"out has dtype {out[2]}, must be {dtype_name(result)}")
        out_shape, order, shape_address, addresses, keep = place_operands(names, operands, out)
        out_dtype = dtype_like(out_type, first[2]) if out is None else out[2]
        types = [c_int(code if index in arrays else number_as(code) | NUMBER) for index, code in enumerate(needed)]
        strides = [_pointer(address) for address in addresses]
        written = (strides[0], c_int(out_type), c_int32(len(out_shape)), _pointer(shape_address))
        operand_types = [(strides[1 + index], types[index]) for index in range(len(operands))]
        passed = needed if op in TO_BOOL else tuple(map(number_as, needed))
        numbers = tuple((i, passed[i], names[i]) for i in range(len(operands)) if i not in arrays)
        conversions = tuple((index, needed[index]) for index in arrays if kinds[index] != needed[index])
        steps = None
        if conversions:
            # The result may take the place of the first array, converted, if that is in memory what a new one would be.
            is_like = OPERATIONS[op].result == "SAME" and needed[arrays[0]] == out_type and tuple(first[0]) == out_shape
            may_reuse = is_like and out is None and memory_order(out_shape, [first[1]]) == order
            new = _New(out_shape, out_dtype, order, arrays[0] if may_reuse else None)
            steps = functools.partial(_convert_first, conversions, resolution, new)
        function, arguments_of = _FUNCTIONS[len(operands) - 1]
        parameters = self.parameters if OPERATIONS[op].num_parameters else ()
        arguments = arguments_of(c_int(op.value), operand_types, written, numbers, out_type, parameters, keep)
        arguments.numbers = numbers
        return Plan(function, arguments, out_shape, out_dtype, order, steps)

    def _resolve_tensors(
        self,
        operands: tuple[Signature, ...],
        kinds: tuple[DType | type, ...],
        parameters: tuple[DType | type, ...],
        default: DType,
    ) -> Resolution:
        marked = tuple(
            ZeroDim(kind) if isinstance(kind, DType) and not (isinstance(operand, tuple) and operand[0]) else kind
            for kind, operand in zip(kinds, operands)
        )
        return self.resolve_torch(marked, parameters, default)

    def resolve_torch(
        self, kinds: tuple[DType | ZeroDim | type, ...], parameters: tuple[DType | type, ...], default: DType
    ) -> Resolution:
        return resolve_torch(self.op, kinds, parameters, self.names, default, exact_integers=self.exact_integers)


def elementwise_road(op: Op, names: str) -> Road:
    """The roads of a function whose operands are called `names`."""
    operation = Elementwise(op, tuple(names.split()))

    def unary(x: Any, out: Any, stream: Any) -> Any:
        return call(operation, x, (), out, stream)

    def binary(x: Any, y: Any, out: Any, stream: Any) -> Any:
        return call(operation, x, (y,), out, stream)

    def ternary(x: Any, y: Any, z: Any, out: Any, stream: Any) -> Any:
        return call(operation, x, (y, z), out, stream)

    return Road(names, (unary, binary, ternary)[len(operation.names) - 1])


def _by_default_dtype(resolve_now: Callable[[DType], Resolution], read: Readings, made: Call) -> Any:
    """The steps of a Plan whose types depend on torch.get_default_dtype()."""
    resolution = resolve_now(default_dtype())
    return call(made.operation, made.inputs[0], made.inputs[1:], made.out, made.stream, resolution, made.values)


def _pointer(address: int | None) -> Int64Pointer | None:
    return None if address is None else Int64Pointer(address)


# ---- C arguments ----------------------------------------------------------------------------------------------------

# Each makes the `arguments` of a Plan from C values, which pass in half the time of an int:
#   op
#   operands        strides (None is C order) and type of each operand
#   written         strides and type of out, rank, shape
#   numbers         index of each operand that is a number, the type that it is rounded to, and its name
#   out_type        the type of the result
#   parameters      names of the values, which are parameters of the formula
#   keep            keeps alive what the C values point to


def _unary(
    op: c_int, operands: Any, written: Any, numbers: Any, out_type: DType, parameters: tuple[str, ...], keep: Any
) -> Any:
    ((x_strides, x_type),), (out_strides, c_out_type, rank, shape) = operands, written

    def without_parameters(pointers: Any, out: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return op, pointers[0], x_strides, x_type, out, out_strides, c_out_type, rank, shape, _ZERO, _ZERO, stream

    def with_parameters(pointers: Any, out: int, values: Any, stream: Any) -> tuple[Any, ...]:
        a = _checked(values[0], out_type, parameters[0])
        b = _checked(values[1], out_type, parameters[1]) if len(values) > 1 else _ZERO
        return op, pointers[0], x_strides, x_type, out, out_strides, c_out_type, rank, shape, a, b, stream

    arguments = with_parameters if parameters else without_parameters
    arguments.keep = keep  # type: ignore[attr-defined]
    return arguments


def _binary(
    op: c_int, operands: Any, written: Any, numbers: Any, out_type: DType, parameters: tuple[str, ...], keep: Any
) -> Any:
    ((x_strides, x_type), (y_strides, y_type)), (out_strides, c_out_type, rank, shape) = operands, written
    y_number = next((rest for index, *rest in numbers if index == 1), None)
    compares_integers = BinaryOp(op.value) in COMPARISONS and any(code in INTEGERS for _, code, _ in numbers)

    def arguments(pointers: Any, out: int, values: Any, stream: Any) -> tuple[Any, ...]:
        x, y = pointers
        called = op
        if numbers:
            try:
                x, y = _rounded(pointers, numbers) if y_number is None else (x, number_bytes(y, *y_number))
            except OverflowError:
                if not compares_integers:
                    raise
                index, code, name = numbers[0]
                comparison, bound = compared_past_bounds(BinaryOp(op.value), pointers[index], index, code)
                called, value = c_int(comparison.value), number_bytes(bound, code, name)
                x, y = (x, value) if index == 1 else (value, y)
        return called, x, x_strides, x_type, y, y_strides, y_type, out, out_strides, c_out_type, rank, shape, stream

    arguments.keep = keep  # type: ignore[attr-defined]
    return arguments


def _ternary(
    op: c_int, operands: Any, written: Any, numbers: Any, out_type: DType, parameters: tuple[str, ...], keep: Any
) -> Any:
    (x_strides, x_type), (y_strides, y_type), (z_strides, z_type) = operands
    out_strides, c_out_type, rank, shape = written

    def arguments(pointers: Any, out: int, values: Any, stream: Any) -> tuple[Any, ...]:
        x, y, z = _rounded(pointers, numbers) if numbers else pointers
        a = _checked(values[0], out_type, parameters[0]) if parameters else _ZERO
        return (
            *(op, x, x_strides, x_type, y, y_strides, y_type, z, z_strides, z_type),
            *(out, out_strides, c_out_type, rank, shape, a, stream),
        )

    arguments.keep = keep  # type: ignore[attr-defined]
    return arguments


_FUNCTIONS = (("flowk_unary", _unary), ("flowk_binary", _binary), ("flowk_ternary", _ternary))


def _rounded(pointers: Sequence[Any], numbers: tuple[tuple[int, DType, str], ...]) -> list[Any]:
    """The pointers, with each number as its bytes."""
    rounded = list(pointers)
    for index, code, name in numbers:
        rounded[index] = number_bytes(rounded[index], code, name)
    return rounded


def types_of(**parameters: Any) -> tuple[DType | type, ...]:
    """The options of a call with these parameters."""
    return tuple(_type_of(parameter, name) for name, parameter in parameters.items())


def _type_of(parameter: Any, name: str) -> DType | type:
    if isinstance(parameter, np.generic):
        return number_type(parameter.dtype, name)
    if not isinstance(parameter, (int, float)):
        raise TypeError(f"{name} is a {type(parameter).__name__}, must be a number")
    return float if isinstance(parameter, float) else int


def _checked(parameter: Any, code: DType, name: str) -> float:
    """A parameter of a result of type `code`; OverflowError, as in NumPy 2, where an integer type does not hold it."""
    if code in INTEGERS:
        parameter = int(parameter)
        number_bytes(parameter, code, name)
        if abs(parameter) > LARGEST_PARAMETER:
            raise OverflowError(f"{name}: Python integer {parameter} is past 2**53, the largest parameter")
    return parameter if parameter.__class__ is float else float_from(parameter, name)


# ---- operands that are converted first ------------------------------------------------------------------------------


@functools.cache
def conversion(name: str, code: DType) -> Elementwise:
    """The conversion of the operand that its function calls `name`."""
    return Elementwise(UnaryOp.COPY, (name,), code)


class _New(NamedTuple):
    """The result where the caller gives no out: a new array, or the converted operand with index `reused`."""

    shape: tuple[int, ...]
    dtype: Any
    order: tuple[int, ...] | None
    reused: int | None


def _convert_first(
    conversions: tuple[tuple[int, DType], ...], resolution: Resolution, new: _New, read: Readings, made: Call
) -> Any:
    """The steps of a Plan: converts operands, then calls the operation on arrays that need no conversion."""
    if made.stream.__class__ is Recorder:
        return None
    if made.stream.__class__ is Listener:
        return _explain_converted(conversions, resolution, read, made)
    converted, target = list(made.inputs), made.out
    for index, code in conversions:
        name, operand = made.operation.names[index], made.inputs[index]
        if isinstance(operand, (list, tuple)):
            operand = np.asarray(operand)
        # Dropped after the call, its memory is used again in the order of the stream.
        converted[index] = _converted(conversion(name, code), operand, read.signatures[index], read)
        if index == new.reused and operand is read.x:
            target = converted[index]
    if target is None:
        target, _ = new_array(read.source, read.x, new.shape, new.dtype, new.order, read.device, read.stream)
    call(made.operation, converted[0], tuple(converted[1:]), target, read.stream, resolution, made.values)
    return read.source.result(read.x, target) if made.out is None else target


def _converted(operation: Elementwise, operand: Any, signature: Signature, read: Readings) -> Any:
    """`operand` as a new array that pyflowk owns: not yet the JAX or Numba array that the caller gets of a result."""
    _, _, out_shape, out_dtype, order, _ = operation.plan(signature, None, None)
    kind = read.source if operand is read.x else ARRAYS.get(type(operand), read.source)
    array, _ = new_array(kind, operand, out_shape, out_dtype, order, read.device, read.stream)
    return call(operation, operand, (), array, read.stream)


def _explain_converted(
    conversions: tuple[tuple[int, DType], ...], resolution: Resolution, read: Readings, made: Call
) -> str:
    texts, pointers, signatures = [], list(read.pointers), list(read.signatures)
    for index, code in conversions:
        name = made.operation.names[index]
        shape, strides, dtype = signatures[index]
        texts.append(f"{name} is converted to {dtype_name(code)} first:")
        operand = made.inputs[index]
        operand = np.asarray(operand) if isinstance(operand, (list, tuple)) else operand
        texts.append(call(conversion(name, code), operand, (), None, Listener()))
        itemsize = dtype_like(code, dtype).itemsize if isinstance(dtype, np.dtype) else 1
        strides = strides_in_order(shape, memory_order(shape, [strides]), itemsize)
        signatures[index] = (shape, strides, dtype_like(code, dtype))
        pointers[index] = UNALLOCATED + (index + 1 << 55)
    geometry = [part for one in signatures for part in (one if isinstance(one, tuple) else (None, None, one))]
    plan = Plan(*made.operation.plan(tuple(geometry), read.out_signature, resolution))
    arguments = plan.arguments(pointers, read.out_pointer, made.values, None)
    texts.append(plan_text(read.library, plan.function, arguments[:-1]))
    return "\n".join(texts)
