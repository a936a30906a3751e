# SPDX-License-Identifier: Apache-2.0
"""ElementwiseKernel: a user's own formula as an elementwise function on a GPU."""

from __future__ import annotations

import ctypes
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from .._arguments import shown
from .._arrays.adapters.base import Signature
from .._arrays.dtypes import dtype_like, dtype_name, dtype_named, number_type
from .._native import driver
from .._native.abi import FUNCTOR_PARAMS_VERSION, DType, FunctorLaunch
from .._native.errors import error_of
from .._pipeline import Operation, Request, call, no_array
from .._program import Buffer, Memory, Program
from .jit import Formula, Variable, compile_kernel, kernel_expression, value_type
from .layout import place_operands
from .promotion import FLOATS, INTEGERS, number_bytes

if TYPE_CHECKING:
    from .._typing import Array, Number, Stream

_MOST_ARRAYS = 3
_LAUNCH_BYTES, _PARAMS_OFFSET = ctypes.sizeof(FunctorLaunch), FunctorLaunch.params.offset
_FORMATS = {"bool": "?", "float": "f", "double": "d"} | {
    f"{sign}int{bits}_t": letter.upper() if sign else letter
    for sign in ("", "u")
    for bits, letter in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))
}


# The index is flowk_functor_launch.kernel.
_KERNELS = (
    "elementwise_contiguous",
    "elementwise_strided",
    "elementwise_broadcast",
    "elementwise_aligned_tiles",
    "elementwise_shifted_tiles",
    "elementwise_broadcast_rows",
)


class Parameter(NamedTuple):
    """`T x`: `dtype` is None where the type is one letter."""

    name: str
    type_name: str
    dtype: DType | None


class Binding(NamedTuple):
    """A formula with all types known, and the arguments of calls on operands of these shapes and strides."""

    formula: Formula
    arrays: tuple[int, ...]  # which operands are arrays
    numbers: tuple[tuple[int, DType], ...]  # which are numbers, and their types
    number_format: str  # the members of the functor, for struct.pack()
    strides: int  # address of the addresses of all arrays' strides, out's first
    dtypes: int  # address of their types
    rank: int
    shape: int | None
    out_shape: tuple[int, ...]
    order: tuple[int, ...] | None  # as in Buffer
    out_dtype: Any
    pointers: type  # of the array of all arrays' addresses
    kernels: dict[tuple[int, int, int], int]  # the CUkernel by kernel, pack_elements and device
    keep: Any


class ElementwiseKernel:
    """An elementwise function from a formula in C++, compiled at run time for the GPU, with NumPy's broadcasting::

        fused = pyflowk.ElementwiseKernel("T x, T y, float32 a", "T z", "z = a * x * y + 1")
        z = fused(x, y, 0.5)

    Parameters
    ----------
    in_params : str
        ``type name`` of each input, separated by commas. A type is NumPy's name (`float32`, `bfloat16`), or one letter
        for a type that the arrays passed decide; parameters with the same letter have the same type. Up to 3 of the
        inputs are arrays, with any strides; the others are Python numbers or NumPy scalars.
    out_params : str
        The same for the one output.
    operation : str
        C++ statements that set the output from the inputs, for one element; the letters are types in them. Floats of 8
        and 16 bits are computed in float and rounded once. The CUDA math functions are available.
    name : str, optional
        Of the kernel, in the compiler's messages and in errors.
    preamble : str, optional
        C++ before the kernel: functions, constants, #include.

    Raises
    ------
    ImportError
        NVRTC is missing: ``pip install 'pyflowk[jit]'``.
    FlowkValueError
        The formula does not compile; the text is the compiler's.
    TypeError
        The arrays are on the host.

    Notes
    -----
    The strings mean what they mean to cupy.ElementwiseKernel. `raw` parameters, the index `i`, several outputs and
    complex types are not taken. A formula is compiled once per combination of types, in about a second, or read from
    cuda.core's program cache on disk; call it once before a graph capture.
    """

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "elementwise_kernel", preamble: str = ""
    ) -> None:
        texts = {"in_params": in_params, "out_params": out_params, "operation": operation, "name": name}
        for parameter, text in {**texts, "preamble": preamble}.items():
            if not isinstance(text, str):
                raise TypeError(f"{parameter} is {shown(text)}, must be a string")
        self.in_params = tuple(_parse(in_params, "in_params"))
        outputs = tuple(_parse(out_params, "out_params"))
        if len(outputs) != 1:
            raise ValueError(f"out_params = {out_params!r} names {len(outputs)} outputs, must name one")
        if not self.in_params:
            raise ValueError("in_params names no input")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"name = {name!r}, must be an identifier")
        self.out_param = outputs[0]
        names = [parameter.name for parameter in (*self.in_params, self.out_param)]
        if len(set(names)) < len(names):
            raise ValueError(f"the parameters {', '.join(names)} must have different names")
        self.operation = operation
        self.preamble = preamble
        self.__name__ = name
        self._names = tuple(names[:-1])
        self._operation = Operation(self._names, self._plan, takes_numbers=True)
        self._kernels: dict[tuple[Formula, str, int, int], tuple[int, Any]] = {}

    def __repr__(self) -> str:
        return f"<pyflowk.ElementwiseKernel {self.__name__}>"

    def __call__(self, *operands: Array | Number, out: Array | None = None, stream: Stream | None = None) -> Any:
        """Applies the formula to `operands`, and writes to `out`, which may also be the last operand, or to a new array
        of the first array's kind. `stream` as in `permute`."""
        if len(operands) == len(self._names) + 1 and out is None:
            operands, out = operands[:-1], operands[-1]  # type: ignore[assignment]
        if len(operands) != len(self._names):
            raise TypeError(f"{self.__name__} takes {len(self._names)} inputs, {len(operands)} were given")
        return call(Request(self._operation, operands), (out,), stream)

    def _plan(self, operands: tuple[Signature, ...], outs: tuple[Signature | None], options: None) -> Program:
        binding = self._bind(operands, outs[0])
        result = Buffer(binding.out_shape, binding.out_dtype, binding.order)
        return Program((), (result,), keep=binding, launch=self._launch)

    def _launch(self, program: Program, library: Any, memory: Memory, device: int | None, stream: int) -> None:
        """What runs instead of a Program's steps."""
        operands, outputs, _ = memory
        binding: Binding = program.keep
        if device is None:
            raise TypeError(f"{self.__name__} runs on a GPU only, but {self._names[binding.arrays[0]]} is a host array")
        pointers = [outputs[0], *(operands[index] for index in binding.arrays)]
        members = [_member(operands[index], code, self._names[index]) for index, code in binding.numbers]
        factory = struct.pack(binding.number_format, *members)
        with driver.current(device):
            self._run(library, binding, pointers, factory, device, stream)

    def _run(
        self, library: Any, binding: Binding, pointers: list[Any], factory: bytes, device: int, stream: int
    ) -> None:
        launch = FunctorLaunch(_LAUNCH_BYTES, FUNCTOR_PARAMS_VERSION, 1)
        address, addresses = ctypes.addressof(launch), binding.pointers(*pointers)
        part = 0
        while part < launch.num_parts:
            status = library.flowk_functor_plan(
                *(ctypes.addressof(addresses), binding.strides, binding.dtypes, len(pointers)),
                *(binding.rank, binding.shape, part, address),
            )
            if status:
                raise error_of(library, status)
            if launch.num_parts:
                key = (launch.kernel, launch.pack_elements, device)
                kernel = binding.kernels.get(key)
                if kernel is None:
                    kernel = binding.kernels[key] = self._kernel(binding.formula, *key)
                driver.launch(
                    *(kernel, launch.num_blocks, launch.num_threads, launch.shared_bytes, stream),
                    *(address + _PARAMS_OFFSET, factory),
                )
            part += 1

    def _kernel(self, formula: Formula, kernel_index: int, pack_elements: int, device: int) -> int:
        """Its CUkernel."""
        kernel = _KERNELS[kernel_index]
        key = (formula, kernel, pack_elements, device)
        if key not in self._kernels:
            code = compile_kernel(formula, kernel, pack_elements, driver.architecture(device))
            loaded = code.get_kernel(kernel_expression(formula, kernel, pack_elements))
            handle = int(loaded.handle)
            driver.allow_shared_memory(handle, device)
            self._kernels[key] = (handle, loaded)
        return self._kernels[key][0]

    def _bind(self, operands: tuple[Signature, ...], out: Signature | None) -> Binding:
        """Finds the types. An operand is (shape, strides, dtype) of an array, or the type of a number."""
        arrays = tuple(index for index, operand in enumerate(operands) if isinstance(operand, tuple))
        if None in operands:
            raise no_array(self._names[operands.index(None)], None, "array or a number")
        if len(arrays) > _MOST_ARRAYS:
            raise ValueError(f"{self.__name__} got {len(arrays)} arrays, must be at most {_MOST_ARRAYS}")
        types = self._types(operands, arrays, out)
        output = types.get(self.out_param.type_name, self.out_param.dtype)
        if output is None:
            raise TypeError(f"{self.out_param.type_name} of {self.out_param.name} is decided by no array: pass out")
        inputs = tuple(
            Variable(parameter.name, types[parameter.type_name], index not in arrays)
            for index, parameter in enumerate(self.in_params)
        )
        aliases = {
            parameter.type_name: types.get(parameter.type_name, output)
            for parameter in (*self.in_params, self.out_param)
            if parameter.dtype is None
        }
        formula = Formula(
            self.__name__,
            self.operation,
            self.preamble,
            inputs,
            Variable(self.out_param.name, output),
            tuple(aliases.items()),
        )
        out_shape, order, out_address, strides, keep = place_operands(
            [self._names[index] for index in arrays], [operands[index] for index in arrays], out
        )
        pointers = ctypes.c_void_p * len(strides)
        addresses = pointers(*strides)
        codes = (ctypes.c_int * len(strides))(output, *(inputs[index].dtype for index in arrays))
        numbers = tuple((index, inputs[index].dtype) for index in range(len(inputs)) if index not in arrays)
        return Binding(
            formula,
            arrays,
            numbers,
            # C's layout, one byte at least, and a tail to the largest alignment.
            "@" + "".join(_FORMATS[value_type(code)] for _, code in numbers) + "x0q",
            ctypes.addressof(addresses),
            ctypes.addressof(codes),
            len(out_shape),
            out_address,
            out_shape,
            order,
            dtype_like(output, operands[arrays[0]][2]),
            pointers,
            {},
            (addresses, codes, keep),
        )

    def _types(
        self, operands: tuple[Signature, ...], arrays: tuple[int, ...], out: Signature | None
    ) -> dict[str, DType]:
        """What each type name stands for: its own dtype, or for a letter that of the first array, else number."""
        parameters = (*self.in_params, self.out_param)
        types = {parameter.type_name: parameter.dtype for parameter in parameters if parameter.dtype is not None}
        passed = [(self.in_params[index], operands[index]) for index in arrays]
        if out is not None:
            passed.append((self.out_param, out))
        for parameter, (_, _, dtype) in passed:
            name = "out" if parameter is self.out_param else parameter.name
            code = number_type(dtype, name)
            if types.setdefault(parameter.type_name, code) != code:
                wanted = dtype_name(types[parameter.type_name])
                raise TypeError(f"{name} has dtype {dtype}, must be {wanted}, which {parameter.type_name} stands for")
        for index, operand in enumerate(operands):
            if index not in arrays:
                default = {bool: DType.BOOL, int: DType.INT64, float: DType.FLOAT64}
                types.setdefault(self.in_params[index].type_name, default.get(operand, operand))
        return types


def _parse(text: str, what: str) -> list[Parameter]:
    parameters = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        words = part.split()
        if words[0] == "raw":
            raise ValueError(f"{what} = {text!r}: raw parameters are not taken")
        if len(words) != 2 or not re.fullmatch(r"[A-Za-z_]\w*", words[1]):
            raise ValueError(f"{what} = {text!r}: {part!r} must be a type and a name")
        type_name, name = words
        if len(type_name) == 1 and type_name.isalpha():
            parameters.append(Parameter(name, type_name, None))
            continue
        code = dtype_named(type_name)
        if code is None or code >= DType.COMPLEX64:
            raise ValueError(f"{what} = {text!r}: {type_name!r} must be one letter, bool, an integer or a float type")
        parameters.append(Parameter(name, type_name, code))
    return parameters


def _member(number: Any, code: DType, name: str) -> Any:
    """A number as a member of the functor, in its type."""
    if code in INTEGERS and isinstance(number, float):
        raise TypeError(f"{name} is a float, must be an integer: its type is {dtype_name(code)}")
    encoded = number_bytes(number, code, name)
    return struct.unpack("=f", encoded)[0] if code in FLOATS and len(encoded) == 4 else number
