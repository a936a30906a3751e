# SPDX-License-Identifier: Apache-2.0
"""The one path of every call: read the arrays, choose the stream, plan, allocate the output, call C, return the output.

An operator is an `Operation`: the names of its array parameters, and a function that makes a `Plan` from the arrays'
shapes, strides and dtypes. A plan makes the arguments of one C function. Plans are cached per operation, because making
one takes ten times as long as the call itself.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._arrays.dtypes import dtype_name
from ._arrays.frameworks import attribute_of
from ._arrays.host_numbers import LIST, find_operand_or_list_kind, host_scalar
from ._arrays.kinds import (
    ANYWHERE,
    ARRAYS,
    NUMPY,
    OPERANDS,
    After,
    NeedsOperator,
    Signature,
    find_array_kind,
    find_operand_kind,
)
from ._arrays.stream import stream_handle
from ._native import library as native
from ._native.abi import DType
from ._native.errors import FlowkError, different_devices, error_of

# The address of an output that is planned for but not allocated: past all memory, aligned as a new array, and inside
# the range of addresses that the library accepts.
UNALLOCATED = 1 << 58
_TEXT_BYTES = 4096


def is_compiling() -> bool:
    """Does torch.compile trace this call? Torch's function takes this one's place where torch is found."""
    asks_torch = attribute_of("torch", "compiler.is_dynamo_compiling")
    return asks_torch is not None and bool(asks_torch())


class Listener:
    """Passed as `stream`, makes a function return the plan of its call as text; nothing is launched or allocated."""


class Recorder(Listener):
    """Passed as `stream`, makes a function return its call as a Recorded, or None where that is not one call of a C
    function; nothing is launched or allocated."""


class Recorded(NamedTuple):
    """The C call that a function would make.

    arguments  without the stream
    names      the array that each address in `arguments` stands for
    plan       the Plan's `arguments`, which keeps what they point to
    out_like   kind, first array, shape, dtype and order (as in Plan) of a new result; None where the caller gives it
    """

    library: Any
    function: str
    arguments: tuple[Any, ...]
    names: dict[int, str]
    plan: Any
    out_like: tuple[Any, ...] | None


class Plan(NamedTuple):
    """What the arrays' shapes, strides and dtypes determine about a call.

    function   name of the C function
    arguments  (pointers of the inputs, pointer of the output, values, stream) -> the C arguments
    out_shape  shape of a new output
    out_dtype  dtype of a new output
    order      dimensions of a new output from the outermost in memory to the innermost; None is C order
    steps      None, or (Readings, Call) -> result: replaces the allocation and the C call
    """

    function: str
    arguments: Callable[[Sequence[Any], int, tuple[Any, ...], Any], tuple[Any, ...]]
    out_shape: tuple[int, ...]
    out_dtype: Any
    order: tuple[int, ...] | None = None
    steps: Callable[[Readings, Call], Any] | None = None


class Operation:
    """`plan(signatures, out_signature, options)` makes the Plan of a call on parameters called `names`.

    The attribute `plan` is that function with a cache. For speed it takes the geometry of all inputs as one flat tuple,
    (shape, strides, dtype, shape, strides, dtype, ...), and returns the Plan as a plain tuple.

    With `takes_numbers` it also takes lists beside NumPy arrays, and host arrays of rank 0 beside arrays on a GPU.
    """

    takes_scalars = False  # NumPy scalars alone, as NumPy's functions do

    __slots__ = ("functions", "kind_of", "names", "out_name", "plan", "takes_numbers", "torch_road")

    def __init__(
        self, names: tuple[str, ...], plan: Callable[..., Plan], out_name: str = "out", *, takes_numbers: bool = False
    ) -> None:
        self.names = names
        self.out_name = out_name
        self.takes_numbers = takes_numbers
        self.kind_of = find_operand_or_list_kind if takes_numbers else find_operand_kind
        # One entry is about 2 KB.
        self.plan = functools.lru_cache(maxsize=4096)(
            lambda geometry, out, options: tuple(plan(signatures_of(geometry), out, options))
        )
        self.functions: dict[int | None, Callable[..., int]] = {}  # the C function by device
        self.torch_road: Callable[..., Any] | None = None  # the call of its operator in torch.ops.flowk: road.py


class Readings(NamedTuple):
    """What was read from a call's arrays. The pointer of a number is the number itself, its signature is its type."""

    library: Any
    source: Any  # the kind of the first array, and of the result
    x: Any  # the first array
    stream: int
    device: int | None
    pointers: Sequence[Any]
    signatures: tuple[Signature, ...]
    out_pointer: int
    out_signature: Signature | None
    afters: list[After]  # to be called by the steps, with the stream, once the work is enqueued


class Call(NamedTuple):
    """What was passed to call()."""

    operation: Operation
    inputs: tuple[Any, ...]
    out: Any
    stream: Any
    options: Any
    values: tuple[Any, ...]


def call(
    operation: Operation,
    x: Any,
    others: tuple[Any, ...],
    out: Any,
    stream: Any,
    options: Any = None,
    values: tuple[Any, ...] = (),
) -> Any:
    """Runs `operation` on x and `others`: arrays, and where its plan takes them numbers or None.

    `options` are what the plan depends on besides the arrays; `values` are passed on as they are. Returns `out`, or
    where that is None a new array of the first array's kind; with a Listener as `stream` the plan as text.

    Raises TypeError or ValueError where an argument is not an array or lies on another device, and what the plan
    raises, before anything is allocated; FlowkError for a status of the library.
    """
    if is_compiling():  # Nothing is read first, because a compiled function checks at every call what its trace read.
        return _imported_by_operator()(Call(operation, (x, *others), out, stream, options, values))
    # Every call takes this path, hence the one long function: it takes about 1 us.
    try:
        names = operation.names
        source, name = ARRAYS.get(type(x)), names[0]
        before: Any = None
        inputs, rest = None, others
        if source is None:
            inputs = (x, *others)
            first = _first_array(operation, inputs)
            if first is None:
                return _of_scalars(Call(operation, inputs, out, stream, options, values))
            x, source, name, before = first
            rest = inputs[len(before[0]) + 1 :]
        if source.is_intercepted is not None and source.is_intercepted():
            raise NeedsOperator
        target = None if out is None else ARRAYS.get(type(out)) or find_array_kind(out, operation.out_name)
        explains = stream is not None and isinstance(stream, Listener)
        if stream is not None and not explains:
            handle = stream_handle(stream)
        elif target is None or source.follows_current_stream:
            handle = source.stream_of(x)
        else:
            handle = target.stream_of(out)
        pointer, shape, strides, dtype, device, after = source.read(x, name, handle)
        pointers: tuple[Any, ...] = (pointer,)
        geometry: tuple[Any, ...] = (shape, strides, dtype)
        afters = None if after is None else [after]
        if before is not None:
            pointers, geometry = (*before[0], pointer), (*before[1], *geometry)
            if before[2]:
                _require_numpy(source, before[2][0][0])
                afters = [*(afters or ()), *(after for _, after in before[2])]
        if rest:
            for operand in rest:
                if operand is None:
                    pointers, geometry = (*pointers, None), (*geometry, None, None, None)
                    continue
                other_name = names[len(pointers)]
                kind = OPERANDS.get(type(operand)) or operation.kind_of(operand, other_name)
                if kind is LIST:
                    _require_numpy(source, other_name)
                pointer, shape, strides, dtype, place, after = kind.read(operand, other_name, handle)
                if place is not device and place is not ANYWHERE and place != device:
                    scalars = tuple(map(host_scalar, inputs or (x, *others), names)) if operation.takes_numbers else ()
                    if all(new is old for new, old in zip(scalars, inputs or (x, *others))):
                        raise different_devices(name, device, other_name, place)
                    return call(operation, scalars[0], scalars[1:], out, stream, options, values)
                pointers, geometry = (*pointers, pointer), (*geometry, shape, strides, dtype)
                if after is not None:
                    afters = [after] if afters is None else [*afters, after]
        if target is None:
            out_pointer, out_signature = UNALLOCATED, None
        else:
            out_pointer, shape, strides, dtype, place, after = target.read_out(out, operation.out_name, handle)
            out_signature = (shape, strides, dtype)
            if place is not device and place != device:
                raise different_devices(name, device, operation.out_name, place)
            if after is not None:
                afters = [after] if afters is None else [*afters, after]
        function_name, arguments, out_shape, out_dtype, order, steps = operation.plan(geometry, out_signature, options)
        function = operation.functions.get(device)
        if function is None or steps is not None or explains:
            library = native.for_device(device, name)
            try:
                if steps is not None:
                    readings = Readings(
                        *(library, source, x, handle, device, pointers, signatures_of(geometry)),
                        *(out_pointer, out_signature, afters or []),
                    )
                    return steps(readings, Call(operation, inputs or (x, *others), out, stream, options, values))
                if stream.__class__ is Recorder:
                    out_like = (source, x, out_shape, out_dtype, order) if target is None else None
                    return recorded(operation, library, function_name, arguments, pointers, geometry, values, out_like)
                if explains:
                    return plan_text(library, function_name, arguments(pointers, out_pointer, values, None)[:-1])
            except FlowkError as error:
                error.name_parameters(function_name, names)
                raise
            function = operation.functions[device] = getattr(library, function_name)
        result = out
        if target is None:
            if order is None:
                result, out_pointer = source.empty(x, out_shape, out_dtype, device, handle)
            else:
                result, out_pointer = new_array(source, x, out_shape, out_dtype, order, device, handle)
        status = function(*arguments(pointers, out_pointer, values, handle))
        if status:
            failure = error_of(native.for_device(device, name), status)
            failure.name_parameters(function_name, names)
            raise failure
        if afters is not None:
            for after in afters:
                after(handle)
        return source.result(x, result) if target is None else out
    except NeedsOperator:
        return (by_operator or _imported_by_operator())(
            Call(operation, inputs or (x, *others), out, stream, options, values)
        )


by_operator: Callable[[Call], Any] | None = None  # that of _torch.road, once that is imported


def _imported_by_operator() -> Callable[[Call], Any]:
    from ._torch import road  # for torch alone, which is imported here

    return road.by_operator


def new_array(
    source: Any, x: Any, shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None, device: Any, stream: int
) -> tuple[Any, int]:
    """A new array of x's kind `source`, and its address; `order` as in Plan."""
    if order is None:
        array, pointer = source.empty(x, shape, dtype, device, stream)
        return array, pointer
    array, pointer = source.empty(x, tuple(shape[d] for d in order), dtype, device, stream)
    return source.transposed(array, tuple(order.index(d) for d in range(len(order)))), pointer


def recorded(
    operation: Operation,
    library: Any,
    function: str,
    arguments: Callable[..., tuple[Any, ...]],
    pointers: Sequence[Any],
    geometry: tuple[Any, ...],
    values: tuple[Any, ...],
    out_like: tuple[Any, ...] | None,
) -> Recorded:
    """The Recorded of a call, whose arrays get an address each that stands for them."""
    addresses = [UNALLOCATED + (index + 1 << 40) for index in range(len(pointers))]
    stands_in = [address if geometry[3 * i] is not None else pointers[i] for i, address in enumerate(addresses)]
    names = {**dict(zip(addresses, operation.names)), UNALLOCATED: "out"}
    made = arguments(stands_in, UNALLOCATED, values, None)[:-1]
    return Recorded(library, function, made, names, arguments, out_like)


def plan_text(library: Any, function: str, arguments: tuple[Any, ...]) -> str:
    """The text that `function`_explain of the library writes for `arguments`."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    status = getattr(library, function + "_explain")(*arguments, text, len(text))
    if status:
        raise error_of(library, status)
    return text.value.decode()


def require_arrays(names: tuple[str, ...], signatures: tuple[Signature, ...]) -> None:
    """TypeError where an input is a number or None. For plans of operations that take arrays only."""
    for name, signature in zip(names, signatures):
        if not isinstance(signature, tuple):
            raise no_array(name, signature)


def no_array(name: str, signature: Signature, wanted: str = "array") -> TypeError:
    """The exception for a number or None in parameter `name`."""
    if isinstance(signature, DType):
        return TypeError(f"{name} is a NumPy {dtype_name(signature)}, must be an {wanted}")
    return TypeError(f"{name} is a {(signature or type(None)).__name__}, must be an {wanted}")


def signatures_of(geometry: tuple[Any, ...]) -> tuple[Signature, ...]:
    """The signatures of inputs whose shapes, strides and dtypes follow each other in `geometry`."""
    triples = zip(geometry[::3], geometry[1::3], geometry[2::3])
    return tuple(dtype if shape is None else (shape, strides, dtype) for shape, strides, dtype in triples)


def _require_numpy(source: Any, name: str) -> None:
    if source is not NUMPY:
        raise TypeError(f"{name} is a list, which is taken beside NumPy arrays only: pass an array of the others' kind")


def _of_scalars(made: Call) -> Any:
    """The result of a call without an array: each NumPy scalar is an array of rank 0, and so is the result a scalar."""
    x, *others = (np.asarray(one) if isinstance(one, np.generic) else one for one in made.inputs)
    result = call(made.operation, x, tuple(others), made.out, made.stream, made.options, made.values)
    return result[()] if made.out is None and isinstance(result, np.ndarray) and result.ndim == 0 else result


def _first_array(
    operation: Operation, inputs: tuple[Any, ...]
) -> tuple[Any, Any, str, tuple[list[Any], list[Any], list[Any]]] | None:
    """(The first input that is an array, its kind, its name, what was read of the numbers and lists before it: their
    pointers, their geometry, the names and `after` of the lists). None for NumPy scalars alone, if they are taken."""
    names = operation.names
    pointers: list[Any] = []
    geometry: list[Any] = []
    lists: list[Any] = []
    for name, operand in zip(names, inputs):
        kind = OPERANDS.get(type(operand)) or operation.kind_of(operand, name)
        if kind.is_array:
            return operand, kind, name, (pointers, geometry, lists)
        pointer, *shape_strides_dtype, place, after = kind.read(operand, name, 0)
        if place is not ANYWHERE:
            lists.append((name, after))
        pointers.append(pointer)
        geometry.extend(shape_strides_dtype)
    if operation.takes_scalars and any(isinstance(one, np.generic) for one in inputs):
        return None
    if len(names) == 1:
        raise TypeError(f"{names[0]} is a {type(inputs[0]).__name__}, must be an array")
    what = "numbers or lists" if lists else "numbers"
    raise TypeError(f"{', '.join(names[:-1])} and {names[-1]} are {what}, one at least must be an array")
