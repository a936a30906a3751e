# SPDX-License-Identifier: Apache-2.0
"""What a call does, as plain data: the C functions that it calls, and the sources of their arguments.

A `Program` depends on the shapes, strides and dtypes of a call's arrays, on the types of its numbers and on its
options. It is made once, cached, and run on addresses and numbers. In the arguments of a step an `Arg` names one of

  operands  the addresses of the inputs in turn, or the numbers in their place, and then the operation's parameters
  outputs   the addresses of the results, and of other arrays that the caller gives to be written
  temps     the addresses of temporary memory
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p
from typing import Any, NamedTuple, Protocol

from ._elementwise.promotion import number_bytes, parameter_value
from ._elementwise.resolution import within_bounds
from ._native.abi import FUNCTIONS, DType, SoftmaxMask
from ._native.c_types import Library
from ._native.errors import error_of
from ._native.operations import BinaryOp

# The kinds of Arg, and what `value` is:
INPUT, OUTPUT, TEMP = range(3)  # the index of an operand, output or temporary, whose address is passed
INPUTS, OUTPUTS = range(3, 5)  # a count: an array of the addresses of that many operands or outputs is passed
NUMBER, NUMBER_BYTES, OP = range(5, 8)  # a Number: passed by value, by address as an element; the operation on it
MASK = 8  # a Mask
MEMBER = 9  # a Number: passed as the 8 bytes of a member of a functor

_TEXT_BYTES = 4096


class Arg(NamedTuple):
    """An argument that differs from call to call."""

    kind: int
    value: Any


class Number(NamedTuple):
    """A number of the call.

    at        its index in the operands
    code      the type that it is rounded to
    name      its parameter, for errors
    compared  None, or the comparison of integers that it is in: a number that the type does not hold changes it
    """

    at: int
    code: DType
    name: str
    compared: BinaryOp | None = None


class Mask(NamedTuple):
    """A flowk_softmax_mask without the addresses of its arrays, and these, by their fields."""

    struct: SoftmaxMask
    arrays: dict[str, Arg]


class Kernels(Protocol):
    """Kernels that are compiled at run time (_elementwise/kernel.py)."""

    def table(self, device: int) -> ctypes.Array[c_void_p]:
        """The kernels as c_call.h takes them."""

    def launch(self, library: Any, *arguments: Any) -> int:
        """Plans and launches with the arguments of a step and the stream; the library's status."""


class Step(NamedTuple):
    """A call of one C function, or the launch of a compiled kernel.

    args          C values and Args, without the stream, which is always last
    slots         (index, kind, value) of each Arg in `args`
    names         of the arrays for errors, as FlowkError.name_parameters() takes them: `operands`, or `names`
    heading       what explain() writes first
    extra_passes  what the step reads and writes beyond the operation's own arrays, and why
    is_explained  does explain() write the step's plan?
    kernels       None, or what launches a kernel: then `function` is flowk_functor_plan(), which plans the launch
    """

    function: str
    args: tuple[Any, ...]
    slots: tuple[tuple[int, int, Any], ...]
    names: tuple[str, ...] | dict[str, str]
    heading: str = ""
    extra_passes: tuple[str, ...] = ()
    is_explained: bool = True
    kernels: Kernels | None = None

    @classmethod
    def of(cls, function: str, args: Sequence[Any], names: tuple[str, ...] | dict[str, str]) -> Step:
        slots = [(index, *arg) for index, arg in enumerate(args) if arg.__class__ is Arg]
        return cls(function, tuple(args), tuple(slots), names)

    def moved(self, places: dict[Arg, Arg]) -> Step:
        """The same step with other arrays."""
        args = [places.get(arg, arg) if arg.__class__ is Arg and arg.kind != MASK else arg for arg in self.args]
        for index, arg in enumerate(args):
            if arg.__class__ is Arg and arg.kind == MASK:
                struct, arrays = arg.value
                args[index] = Arg(MASK, Mask(struct, {name: places.get(one, one) for name, one in arrays.items()}))
        return self._replace(args=tuple(args), slots=Step.of(self.function, args, self.names).slots)


class Buffer(NamedTuple):
    """A new result.

    order  dimensions from the outermost in memory to the innermost; None is C order
    like   index of the input of which kind it is; None: the first array
    """

    shape: tuple[int, ...]
    dtype: Any
    order: tuple[int, ...] | None = None
    like: int | None = None


class Program(NamedTuple):
    """What a call does.

    results  the outputs that are allocated if the caller gives none; None: that output is not needed
    temps    bytes of each temporary
    context  what else it depends on, which a cache must compare: as Operation.context
    idle     why there is no step
    """

    steps: tuple[Step, ...]
    results: tuple[Buffer | None, ...]
    temps: tuple[int, ...] = ()
    context: Any = None
    idle: str = ""


class Memory(NamedTuple):
    """The addresses and numbers of a call, in the order of the kinds of Arg."""

    operands: Sequence[Any]
    outputs: Sequence[int | None]
    temps: Sequence[int | None] = ()


def run(program: Program, library: Library, memory: Memory, stream: int) -> None:
    """Enqueues the steps on `stream`; FlowkError if the library refuses one."""
    for step in program.steps:
        if step.kernels is None:
            status = getattr(library, step.function)(*arguments_of(step, memory), stream)
        else:
            status = step.kernels.launch(library, *arguments_of(step, memory), stream)
        if status:
            raise _named(error_of(library, status), step)


def explain(program: Program, library: Library, memory: Memory) -> str:
    """The plans of the steps in words."""
    texts = []
    for step in program.steps:
        if step.heading:
            texts.append(step.heading)
        if step.is_explained:
            text = ctypes.create_string_buffer(_TEXT_BYTES)
            name = f"{step.function}_explain"  # which takes no workspace
            arguments = arguments_of(step, memory)[: len(FUNCTIONS[name][1]) - 2]
            status = getattr(library, name)(*arguments, text, len(text))
            if status:
                raise _named(error_of(library, status), step)
            texts.append(text.value.decode())
    return "\n".join(texts) or f"nothing to do: {program.idle}\n"


def _named(error: Any, step: Step) -> Any:
    names = step.names
    error.name_parameters(step.function, names, names if isinstance(names, dict) else None)
    return error


def arguments_of(step: Step, memory: Memory) -> list[Any]:
    """The C arguments without the stream."""
    arguments = list(step.args)
    for index, kind, value in step.slots:
        if kind <= TEMP:
            arguments[index] = memory[kind][value]
        elif kind == NUMBER:
            arguments[index] = parameter_value(memory.operands[value.at], value.code, value.name)
        elif kind in (NUMBER_BYTES, MEMBER):
            arguments[index] = bytes_of(value, memory.operands)
        elif kind == OP:
            arguments[index] = op_of(value, memory.operands)
        elif kind == MASK:
            own = SoftmaxMask.from_buffer_copy(value.struct)  # a copy, because threads share a Program
            for name, array in value.arrays.items():
                setattr(own, name, memory[array.kind][array.value])
            arguments[index] = byref(own)
        else:
            pointers = memory.operands if kind == INPUTS else memory.outputs
            arguments[index] = byref((c_void_p * value)(*pointers[:value]))
    return arguments


def bytes_of(number: Number, operands: Sequence[Any]) -> bytes:
    """The bytes of a NUMBER_BYTES or MEMBER."""
    value = operands[number.at]
    if number.compared is not None:
        value = within_bounds(number.compared, value, number.at, number.code)[1]
    return number_bytes(value, number.code, number.name)


def op_of(number: Number, operands: Sequence[Any]) -> c_int:
    """The argument of an OP."""
    assert number.compared is not None
    return c_int(within_bounds(number.compared, operands[number.at], number.at, number.code)[0].value)
