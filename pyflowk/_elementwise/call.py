# SPDX-License-Identifier: Apache-2.0
"""The plans of the elementwise functions.

The C library computes with operands of one type, except that floats of at most 32 bits mix. Operands of other types are
converted first, each by its own step into temporary memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_double, c_int, c_int32
from typing import Any

import numpy as np

from .._arguments import kind_of
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import dtype_like, dtype_name, element_type, number_type, strides_in_order, type_of_elements
from .._calls.call_path import CallPath
from .._native.abi import HOST_SCALAR, DType
from .._native.operations import OPERATIONS, UnaryOp
from .._pipeline import Operation, Request, no_array
from .._program import INPUT, NUMBER_BYTES, OP, OUTPUT, TEMP, Arg, Buffer, Number, Program, Step
from .._program import NUMBER as NUMBER_ARG
from .layout import Placement, memory_order, place_operands
from .promotion import INTEGERS, number_as
from .promotion import LARGEST_PARAMETER as LARGEST_PARAMETER
from .resolution import COMPARISONS, PROMOTIONS, TO_BOOL, Op, resolve, takes_out, types_in_words

_ZERO = c_double(0)  # for a parameter that the operation does not have


class Elementwise(Operation):
    """An operation on operands that are called `names`.

    result          the type of the result, for COPY; None: what the operands' types give
    parameters      names of the parameters a and b of its formula
    Its values are the parameters, its options their types.
    """

    takes_scalars = True

    def __init__(
        self,
        op: Op,
        names: tuple[str, ...],
        result: DType | None = None,
        *,
        parameters: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            *(names, self._plan),
            parameters=parameters,
            context=lambda library, adapter: type_of_elements(adapter.default_dtype()),
            takes_numbers=len(names) > 1,
        )
        self.op = op
        self.operator = "cast" if op == UnaryOp.COPY else op.name.lower()  # in torch.ops.flowk
        self.result = result

    def _plan(
        self,
        operands: tuple[Signature, ...],
        outs: tuple[Geometry | None],
        options: tuple[DType | type, ...] | None,
        default: DType | None = None,
    ) -> Program | None:
        """Raises ValueError if shapes do not broadcast, TypeError if types do not fit. `default` is the framework's
        default dtype, if the types depend on it."""
        names, (out,) = self.names, outs
        arrays = [index for index, operand in enumerate(operands) if isinstance(operand, tuple)]
        for operand, name in zip(operands, names):
            if operand is None:
                raise no_array(name, operand, "array or a number")
        allowed = types_in_words(OPERATIONS[self.op].takes)
        types = tuple(
            number_type(operand[2], name, allowed) if isinstance(operand, tuple) else operand
            for operand, name in zip(operands, names, strict=True)
        )
        first = operands[arrays[0]]
        promotion = PROMOTIONS.get(type(first[2]))
        if promotion is None:
            resolution = resolve(self.op, types, options or (), names)
        else:
            found = promotion(self.op, operands, types, options or (), names, default)
            if found is None:
                return None
            resolution = found
        op, needed, result = resolution
        result = result if self.result is None else self.result
        out_type = result
        if out is not None:
            out_type = number_type(out[2], "out")
            fits = takes_out(self.op, result, out_type) if self.result is None else out_type == result
            if not fits:
                raise TypeError(f"out has dtype {out[2]}, must be {dtype_name(result)}")
        place = place_operands(names, operands, out)
        out_dtype = dtype_like(out_type, first[2]) if out is None else out[2]
        buffer = Buffer(place.shape, out_dtype, place.order)
        conversions = [index for index in arrays if types[index] != needed[index]]
        steps: list[Step] = []
        temps: list[int] = []
        read: list[Any] = [Arg(INPUT, index) for index in range(len(operands))]
        if conversions:
            # The first array may be converted into the memory of the result, if a new array would have its layout.
            is_like = (
                OPERATIONS[op].result == "SAME" and needed[arrays[0]] == out_type and tuple(first[0]) == place.shape
            )
            may_reuse = is_like and out is None and memory_order(place.shape, [first[1]]) == place.order
            converted = list(operands)
            for index in conversions:
                read[index] = Arg(OUTPUT, 0)
                if index != arrays[0] or not may_reuse:
                    read[index] = Arg(TEMP, len(temps))
                    temps.append(0)
                step, converted[index] = _conversion(index, operands[index], needed[index], names[index], read[index])
                steps.append(step)
                if read[index].kind == TEMP:
                    shape, _, dtype = converted[index]
                    temps[-1] = math.prod(shape) * element_type(dtype, names[index])[1]
            place = place_operands(names, converted, out or _new_geometry(place.shape, place.order, out_dtype))
        passed_types = [code if index in arrays else number_as(code) | HOST_SCALAR for index, code in enumerate(needed)]
        passed = needed if op in TO_BOOL else tuple(map(number_as, needed))
        called: Any = c_int(op.value)
        for index in range(len(operands)):
            if index not in arrays:
                compares = op in COMPARISONS and passed[index] in INTEGERS
                number = Number(index, passed[index], names[index], op if compares else None)  # type: ignore[arg-type]
                read[index] = Arg(NUMBER_BYTES, number)
                called = Arg(OP, number) if compares else called
        parameters: list[Any] = [_ZERO] * (2, 0, 1)[len(operands) - 1]
        if OPERATIONS[op].num_parameters:
            for index, name in enumerate(self.parameters):
                parameters[index] = Arg(NUMBER_ARG, Number(len(operands) + index, out_type, name))
        steps.append(_step(called, read, passed_types, Arg(OUTPUT, 0), out_type, place, parameters, names))
        return Program(tuple(steps), (buffer,), tuple(temps), context=default)


def _step(
    op: Any,
    read: Sequence[Any],
    types: Sequence[int],
    written: Arg,
    out_type: DType,
    place: Placement,
    parameters: Sequence[Any],
    names: tuple[str, ...],
) -> Step:
    """The call of the C function for this number of operands. ctypes passes a C value in half the time of an int."""
    out_strides, *strides = place.c_strides
    operands = [part for operand in zip(read, strides, map(c_int, types)) for part in operand]
    out = (written, out_strides, c_int(out_type), c_int32(len(place.shape)), place.c_shape)
    return Step.of(_FUNCTIONS[len(read) - 1], (op, *operands, *out, *parameters), names)


_FUNCTIONS = ("flowk_unary", "flowk_binary", "flowk_ternary")


def _conversion(index: int, operand: Geometry, code: DType, name: str, target: Arg) -> tuple[Step, Geometry]:
    """The conversion of operand `index` into the array `target`, and the geometry of the converted array."""
    place = place_operands((name,), (operand,), None)
    shape, _, dtype = operand
    copy, types = c_int(UnaryOp.COPY.value), [number_type(dtype, name)]
    step = _step(copy, [Arg(INPUT, index)], types, target, code, place, (_ZERO, _ZERO), (name,))
    converted = f"{name} is converted to {dtype_name(code)}"
    step = step._replace(heading=f"{converted} first:", extra_passes=(f"{converted}: pass operands of one type",))
    return step, _new_geometry(tuple(shape), place.order, dtype_like(code, dtype))


def _new_geometry(shape: tuple[int, ...], order: tuple[int, ...] | None, dtype: Any) -> Geometry:
    return shape, strides_in_order(shape, order, dtype.itemsize if isinstance(dtype, np.dtype) else 1), dtype


def elementwise_path(op: Op, words: str) -> CallPath:
    """The paths of a function of one operation; `words` are its operands, and after them its parameters with "~"."""
    names = [word for word in words.split() if not word.endswith("~")]
    parameters = words.replace("~", "").split()[len(names) :]
    operation = Elementwise(op, tuple(names), parameters=tuple(parameters))
    count, takes_floats = len(names), OPERATIONS[op].takes == "F"

    def operands(*inputs: Any) -> Request:
        return Request(operation, inputs)

    def with_parameters(*given: Any) -> Request:
        inputs, values = given[:count], given[count:]
        types = types_of(**dict(zip(parameters, values)))
        if takes_floats:  # an int counts as a float
            types = tuple(float if kind is int else kind for kind in types)
        return Request(operation, inputs, types, values)

    request = with_parameters if parameters else operands
    request.__name__ = operation.operator
    return CallPath(words, request)


def types_of(**parameters: Any) -> tuple[DType | type, ...]:
    """The options of a call with these parameters."""
    return tuple(_type_of(parameter, name) for name, parameter in parameters.items())


def _type_of(parameter: Any, name: str) -> DType | type:
    if isinstance(parameter, np.generic):
        return number_type(parameter.dtype, name)
    if not isinstance(parameter, (int, float)):
        raise TypeError(f"{name} is {kind_of(parameter)}, must be a number")
    return float if isinstance(parameter, float) else int
