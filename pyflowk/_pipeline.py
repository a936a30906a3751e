# SPDX-License-Identifier: Apache-2.0
"""The one path of every call: read the arrays, choose the stream, find or make the Program, allocate the results, run.

An operator is an `Operation`: the names of its array parameters, and a function that makes a `Program` from the arrays'
shapes, strides and dtypes. Programs are cached per operation, because making one takes ten times as long as the call
itself. bind() does all of it that reads; explain() and prepare() use what it returns without launching anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._arguments import kind_named, kind_of
from ._arrays import frameworks
from ._arrays.adapters.base import ANYWHERE, After, AnyAdapter, ArrayAdapter, Geometry, Interceptor, Signature
from ._arrays.adapters.numbers import LIST
from ._arrays.adapters.numpy import NUMPY
from ._arrays.device_array import empty
from ._arrays.dtypes import dtype_like, dtype_name
from ._arrays.frameworks import is_compiling
from ._arrays.registry import ARRAYS, OPERANDS, array_adapter, host_scalar, operand_adapter, operand_or_list_adapter
from ._arrays.stream import stream_handle
from ._native import library as native
from ._native.abi import DType
from ._native.c_types import Library
from ._native.errors import different_devices
from ._program import Buffer, Memory, Program, explain, run

if TYPE_CHECKING:
    from ._typing import Stream

# Addresses of results and temporaries that are planned for but not allocated: past all memory, aligned as new arrays,
# and inside the range of addresses that the library accepts.
_UNALLOCATED = 1 << 58


class Operation:
    """`plan(signatures, outs, options)` makes the Program of a call on arrays called `names`, the last ones of which
    may be None, and numbers called `parameters`, for geometries `outs` of what the caller gives for `out_names`. The
    call returns the first `num_results` of these; a list of all of them if that is None.

    With `context`, a function of the device's library and the first array's adapter, `plan` may return None if the
    Program depends on one of them too; then it is called with context(library, adapter) as a fourth argument.

    The attribute `plan` is that function with a cache. For speed it takes the geometry of all inputs as one flat tuple,
    (shape, strides, dtype, shape, strides, dtype, ...).

    With `takes_numbers` it also takes lists with NumPy arrays, and host arrays of rank 0 with arrays on a GPU.
    `operator` is the name of its operator in a framework that must see calls; "" if it has none.
    """

    takes_scalars = False  # NumPy scalars alone, as NumPy's functions do

    def __init__(
        self,
        names: tuple[str, ...],
        plan: Callable[..., Program | None],
        *,
        parameters: tuple[str, ...] = (),
        out_names: tuple[str, ...] = ("out",),
        num_results: int | None = 1,
        context: Callable[[Any, AnyAdapter], Any] | None = None,
        takes_numbers: bool = False,
        operator: str = "",
    ) -> None:
        self.names, self.parameters, self.out_names = names, parameters, out_names
        self.num_results, self.operator = num_results, operator
        self.context = context
        self.takes_numbers = takes_numbers
        self.adapter_of = operand_or_list_adapter if takes_numbers else operand_adapter
        # One entry is about 2 KB.
        self.plan = functools.lru_cache(maxsize=4096)(
            lambda geometry, outs, options, *context: plan(signatures_of(geometry), outs, options, *context)
        )


class Request(NamedTuple):
    """A call without its outputs and its stream: arrays, and if the plan takes them numbers or None; `options`, on
    which the plan depends too; the values of the operation's parameters."""

    operation: Operation
    inputs: tuple[object, ...]
    options: Any = None
    values: tuple[float, ...] = ()


class Bound(NamedTuple):
    """A call that was read and planned: all that is left is to allocate what the caller does not give, and to run."""

    request: Request
    program: Program
    library: Library
    source: AnyAdapter  # of the first array, and of the results
    x: Any  # the first array
    device: int | None
    stream: int
    operands: tuple[Any, ...]  # the addresses of the inputs, or the numbers in their place, and the parameters
    outs: tuple[object, ...]  # the arrays that the caller gives, or None
    outputs: tuple[int | None, ...]  # their addresses
    afters: Sequence[After]  # to be called with the stream once the work is enqueued
    unwraps: bool = False  # NumPy scalars are given, and so is the result

    def run(self) -> Any:
        """Allocates and enqueues; the results, which are those that the caller gives or new arrays."""
        request, program, library, source, x, device, stream, operands, outs, addresses, afters, unwraps = self
        results, outputs = list(outs), list(addresses)
        for index, buffer in enumerate(program.results):
            if results[index] is None and buffer is not None:
                results[index], outputs[index] = new_array(*self._like(buffer), buffer, device, stream)
        temps = [temporary(source, x, size, device, stream) for size in program.temps] if program.temps else ()
        memory = Memory(operands, outputs, [address for _, address in temps] if temps else ())
        run(program, library, memory, stream)
        del temps  # freed in the stream's order, after the work
        for after in afters:
            after(stream)
        num_results = request.operation.num_results
        if num_results == 1:
            result: Any = source.result(x, results[0]) if outs[0] is None else outs[0]
            return result[()] if unwraps and outs[0] is None and result.ndim == 0 else result
        returned = [self._returned(results[index], index) for index in range(num_results or len(results))]
        return returned if num_results is None else tuple(returned)

    def explain(self) -> str:
        """The plan in words."""
        return explain(self.program, self.library, self.planned_memory())

    def planned_memory(self) -> Memory:
        """Outputs and temporaries as if they were allocated."""
        buffers, num_temps = self.program.results, len(self.program.temps)
        outputs = [
            _UNALLOCATED + (index << 57 - len(buffers).bit_length()) if given is None and buffer is not None else given
            for index, (given, buffer) in enumerate(zip(self.outputs, buffers))
        ]
        temps = [_UNALLOCATED + (1 << 57) + (index << 57 - num_temps.bit_length()) for index in range(num_temps)]
        return Memory(self.operands, outputs, temps)

    def _like(self, buffer: Buffer) -> tuple[AnyAdapter, object]:
        """The adapter of a new array, and an array of its kind."""
        if buffer.like is None:
            return self.source, self.x
        like = self.request.inputs[buffer.like]
        return ARRAYS[type(like)], like

    def _returned(self, array: object, index: int) -> object:
        if self.outs[index] is not None or array is None:
            return array
        adapter, model = self._like(self.program.results[index])  # type: ignore[arg-type]
        return adapter.result(model, array)


def call(request: Request, outs: tuple[object, ...] = (None,), stream: Stream | None = None) -> Any:
    """Runs a request. Returns the arrays of `outs`; for each None a new array of the first array's kind.

    Raises TypeError or ValueError if an argument is not an array or lies on another device, and what the plan
    raises, before anything is allocated; FlowkError for a status of the library.
    """
    if is_compiling():  # Nothing is read first, because a compiled function checks at every call what its trace read.
        return frameworks.tracer.by_operator(request, outs, stream)
    return call_now(request, outs, stream)


def call_now(request: Request, outs: tuple[object, ...], stream: Stream | None) -> Any:
    """call(), if torch.compile does not trace it."""
    bound = bind(request, outs, stream)
    return bound.run() if isinstance(bound, Bound) else bound.by_operator(request, outs, stream)


def bind_plan(request: Request, outs: tuple[object, ...] = (None,)) -> Bound:
    """bind() for a plan alone, also of tensors that torch watches: it reads no element."""
    bound = frameworks.tracer if is_compiling() else bind(request, outs, None)
    return bound if isinstance(bound, Bound) else bound.bind_plan(request, outs)


def bind(request: Request, outs: tuple[object, ...], stream: Stream | None) -> Bound | Interceptor:
    """Reads the arrays, chooses the stream, and finds or makes the Program: a Bound. If a framework must see the call,
    what makes it: the interceptor of that framework's adapter."""
    # Every call in Python takes this path, hence the one long function.
    operation, inputs, options, values = request
    names = operation.names
    x, name = inputs[0], names[0]
    source = ARRAYS.get(type(x))
    pointers: tuple[object, ...] = ()
    geometry: tuple[object, ...] = ()
    afters: list[After] = []
    lists: list[tuple[str, After | None]] = []
    first = 0
    if source is None:
        found = _first_array(operation, inputs)
        if found is None:  # NumPy scalars alone: each is an array of rank 0, and so is the result a scalar
            arrays = tuple(np.asarray(one) if isinstance(one, np.generic) else one for one in inputs)
            bound = bind(request._replace(inputs=arrays), outs, stream)
            return bound._replace(unwraps=True) if isinstance(bound, Bound) else bound
        first, source, pointers, geometry, lists = found
        x, name = inputs[first], names[first]
    out = outs[0]
    interceptor = source.interceptor_of(x, operation.operator if out is None else "")
    if interceptor is not None:
        return interceptor
    target = None if out is None else ARRAYS.get(type(out)) or array_adapter(out, operation.out_names[0])
    if stream is not None:
        handle = stream_handle(stream)
    elif target is None or source.follows_current_stream:
        handle = source.stream_of(x)
    else:
        handle = target.stream_of(out)
    pointer, shape, strides, dtype, device, after = source.read(x, name, handle)
    pointers, geometry = (*pointers, pointer), (*geometry, shape, strides, dtype)
    if after is not None:
        afters.append(after)
    if lists:
        _require_numpy(source, lists[0][0])
        afters.extend(after for _, after in lists if after)
    for index in range(first + 1, len(inputs)):
        operand = inputs[index]
        if operand is None:
            pointers, geometry = (*pointers, None), (*geometry, None, None, None)
            continue
        other_name = names[index]
        adapter = OPERANDS.get(type(operand)) or operation.adapter_of(operand, other_name)
        if adapter is LIST:
            _require_numpy(source, other_name)
        interceptor = adapter.interceptor_of(operand, None)
        if interceptor is not None:
            return interceptor
        value, *layout, place, after = adapter.read(operand, other_name, handle)
        if place is not device and place is not ANYWHERE and place != device:
            scalars = tuple(map(host_scalar, inputs, names)) if operation.takes_numbers else inputs
            if all(new is old for new, old in zip(scalars, inputs)):
                raise different_devices(name, device, other_name, place)
            return bind(request._replace(inputs=scalars), outs, stream)
        pointers, geometry = (*pointers, value), (*geometry, *layout)
        if after is not None:
            afters.append(after)
    outputs: tuple[int | None, ...] = (None,) * len(outs)
    out_geometries: tuple[Geometry | None, ...] = outputs  # type: ignore[assignment]
    if out is not None or len(outs) > 1:
        for out, out_name in zip(outs, operation.out_names):
            interceptor = None if out is None else array_adapter(out, out_name).interceptor_of(out, None)
            if interceptor is not None:
                return interceptor
        outputs, out_geometries = _read_outs(operation.out_names, outs, handle, name, device, afters)
    program = operation.plan(geometry, out_geometries, options)
    library = native.for_device(device, name)
    if program is None:
        assert operation.context is not None
        program = operation.plan(geometry, out_geometries, options, operation.context(library, source))
        assert program is not None
    return Bound(request, program, library, source, x, device, handle, (*pointers, *values), outs, outputs, afters)


def _read_outs(
    names: tuple[str, ...], outs: tuple[object, ...], stream: int, name: str, device: int | None, afters: list[After]
) -> tuple[tuple[int | None, ...], tuple[Geometry | None, ...]]:
    """The addresses and the geometries of the arrays that the caller gives to be written; `name` is on `device`."""
    outputs: list[int | None] = []
    geometries: list[Geometry | None] = []
    for out, out_name in zip(outs, names):
        pointer, geometry = None, None
        if out is not None:
            pointer, shape, strides, dtype, place, after = ARRAYS[type(out)].read_out(out, out_name, stream)
            if place is not device and place != device:
                raise different_devices(name, device, out_name, place)
            geometry = shape, strides, dtype
            if after is not None:
                afters.append(after)
        outputs.append(pointer)
        geometries.append(geometry)
    return tuple(outputs), tuple(geometries)


def new_array(adapter: AnyAdapter, x: object, buffer: Buffer, device: int | None, stream: int) -> tuple[object, int]:
    """A new array like x for a result, and its address."""
    shape, dtype, order, _ = buffer
    if order is None:
        return adapter.empty(x, shape, dtype, device, stream)
    array, pointer = adapter.empty(x, tuple(shape[d] for d in order), dtype, device, stream)
    return adapter.transposed(array, tuple(order.index(d) for d in range(len(order)))), pointer


def temporary(adapter: AnyAdapter, x: Any, num_bytes: int, device: int | None, stream: int) -> tuple[object, int]:
    """(memory of at least that many bytes, its address, a multiple of 16). Dropped once the work is enqueued, it is
    used again in the order of `stream`."""
    if device is None:
        memory = np.empty(num_bytes + 15, np.uint8)
        return memory, (memory.ctypes.data + 15) // 16 * 16
    if adapter.follows_current_stream:  # from the framework's own pool
        array, pointer = adapter.empty(x, ((num_bytes + 3) // 4,), dtype_like(DType.FLOAT32, x.dtype), device, stream)
        return array, pointer
    array = empty(num_bytes, np.uint8, device=device, stream=stream)
    return array, array.ptr


def require_arrays(names: tuple[str, ...], signatures: tuple[Signature, ...]) -> None:
    """TypeError if an input is a number or None. For plans of operations that take arrays only."""
    for name, signature in zip(names, signatures):
        if not isinstance(signature, tuple):
            raise no_array(name, signature)


def no_array(name: str, signature: Signature, wanted: str = "array") -> TypeError:
    """The exception for a number or None in parameter `name`."""
    if isinstance(signature, DType):
        return TypeError(f"{name} is a NumPy {dtype_name(signature)}, must be an {wanted}")
    return TypeError(f"{name} is {kind_named((signature or type(None)).__name__)}, must be an {wanted}")


def signatures_of(geometry: tuple[Any, ...]) -> tuple[Signature, ...]:
    """The signatures of the inputs; `geometry` has the shape, strides and dtype of one after the other."""
    triples = zip(geometry[::3], geometry[1::3], geometry[2::3])
    return tuple(dtype if shape is None else (shape, strides, dtype) for shape, strides, dtype in triples)


def _require_numpy(source: AnyAdapter, name: str) -> None:
    if source is not NUMPY:
        raise TypeError(f"{name} is a list, which is taken with NumPy arrays only: pass an array of the others' kind")


def _first_array(
    operation: Operation, inputs: tuple[object, ...]
) -> tuple[int, AnyAdapter, tuple[object, ...], tuple[object, ...], list[tuple[str, After | None]]] | None:
    """(The index of the first input that is an array, its adapter, what was read of the numbers and lists before it:
    their pointers, their geometry, the names and `after` of the lists). None for NumPy scalars alone, if they are
    taken."""
    names = operation.names
    pointers: list[object] = []
    geometry: list[object] = []
    lists: list[tuple[str, After | None]] = []
    for index, (name, operand) in enumerate(zip(names, inputs)):
        adapter = OPERANDS.get(type(operand)) or operation.adapter_of(operand, name)
        if isinstance(adapter, ArrayAdapter):
            return index, adapter, tuple(pointers), tuple(geometry), lists
        pointer, *shape_strides_dtype, place, after = adapter.read(operand, name, 0)
        if place is not ANYWHERE:
            lists.append((name, after))
        pointers.append(pointer)
        geometry.extend(shape_strides_dtype)
    if operation.takes_scalars and any(isinstance(one, np.generic) for one in inputs):
        return None
    if len(names) == 1:
        raise TypeError(f"{names[0]} is {kind_of(inputs[0])}, must be an array")
    what = "numbers or lists" if lists else "numbers"
    raise TypeError(f"{', '.join(names[:-1])} and {names[-1]} are {what}, one at least must be an array")
