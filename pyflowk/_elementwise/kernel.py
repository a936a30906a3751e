# SPDX-License-Identifier: Apache-2.0
"""ElementwiseKernel: a formula of the user as an elementwise function on a GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._arguments import count_of, shown
from .._arrays.adapters.base import Signature
from .._arrays.dtypes import dtype_like, dtype_name, dtype_named, number_type
from .._calls import call_path
from .._calls.call_path import CallPath
from .._native import driver
from .._native.abi import FUNCTOR_PARAMS_VERSION, DType, FunctorLaunch
from .._native.c_types import Array as ArrayPointer
from .._native.c_types import Int64Pointer
from .._native.library import device_of
from .._pipeline import Operation, Request, no_array
from .._program import INPUT, MEMBER, OUTPUT, Arg, Buffer, Program, Step
from .._program import Number as NumberArg
from .jit import Formula, Variable, compile_kernel, kernel_expression
from .layout import place_operands
from .promotion import FLOATS, INTEGERS, number_as

if TYPE_CHECKING:
    from .._typing import Array, Number, Stream

_MAX_ARRAYS = 3
_LAUNCH_BYTES, _PARAMS_OFFSET = ctypes.sizeof(FunctorLaunch), FunctorLaunch.params.offset
_MEMBER_BYTES = 8
_PACK_SIZES = 5  # 1, 2, 4, 8 and 16 elements

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
    """`T x`; `dtype` is None if the type is one letter."""

    name: str
    type_name: str
    dtype: DType | None


class FormulaKernels:
    """The kernels of a formula, which are compiled when a call first needs them."""

    def __init__(self, formula: Formula) -> None:
        self._formula = formula
        self._tables: dict[int, ctypes.Array[ctypes.c_void_p]] = {}
        self._loaded: list[Any] = []  # cuda.core's kernels, which keep the CUkernels

    def table(self, device: int) -> ctypes.Array[ctypes.c_void_p]:
        """The CUkernels of a device, by flowk_functor_launch.kernel and log2 of pack_elements; NULL: not compiled."""
        if device not in self._tables:
            self._tables[device] = (ctypes.c_void_p * (len(_KERNELS) * _PACK_SIZES))()
        return self._tables[device]

    def launch(
        self, library: Any, strides: Any, dtypes: Any, num_arrays: int, rank: int, shape: Int64Pointer, *values: Any
    ) -> int:
        """Plans and launches; `values` are the arrays' addresses, the numbers as bytes, and the stream. Returns the
        library's status."""
        *others, stream = values
        device = device_of(library)
        if device is None:
            name = next(each.name for each in self._formula.inputs if not each.is_number)
            raise TypeError(
                f"{self._formula.name} runs on a GPU only, but {name} is a host array: "
                f"pyflowk.asarray({name}) copies it there; pyflowk's own functions take host arrays"
            )
        addresses = (ctypes.c_void_p * num_arrays)(*others[:num_arrays])
        members = b"".join(number.ljust(_MEMBER_BYTES, b"\0") for number in others[num_arrays:])
        launch = FunctorLaunch(_LAUNCH_BYTES, FUNCTOR_PARAMS_VERSION, 1)
        address, part = ctypes.addressof(launch), 0
        with driver.current(device):
            while part < launch.num_parts:
                status = library.flowk_functor_plan(
                    *(ctypes.addressof(addresses), strides, dtypes, num_arrays, rank, shape, part, address)
                )
                if status:
                    return int(status)
                if launch.num_parts:
                    kernel = self._kernel(launch.kernel, launch.pack_elements, device)
                    size = launch.num_blocks, launch.num_threads, launch.shared_bytes
                    driver.launch(kernel, *size, stream, address + _PARAMS_OFFSET, members)
                part += 1
        return 0

    def _kernel(self, index: int, pack_elements: int, device: int) -> int:
        """A CUkernel, compiled if it is not in the table."""
        table, at = self.table(device), index * _PACK_SIZES + pack_elements.bit_length() - 1
        handle = table[at]
        if handle is None:
            name = _KERNELS[index]
            code = compile_kernel(self._formula, name, pack_elements, driver.architecture(device))
            loaded = code.get_kernel(kernel_expression(self._formula, name, pack_elements))
            self._loaded.append(loaded)
            handle = int(loaded.handle)
            driver.allow_shared_memory(handle, device)
            table[at] = handle
        return handle


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

    Examples
    --------
    >>> x = pyflowk.asarray(np.array([1.0, 2.0]))
    >>> fused = pyflowk.ElementwiseKernel("T x, T y, float32 a", "T z", "z = a * x * y + 1")
    >>> fused(x, x, 0.5).to_numpy()
    array([1.5, 3. ])
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
        self._kernels: dict[Formula, FormulaKernels] = {}
        self._path = CallPath(" ".join(f"{each}#" for each in self._names), self._request)

    def __repr__(self) -> str:
        return f"<pyflowk.ElementwiseKernel {self.__name__}>"

    def __call__(self, *operands: Array | Number, out: Array | None = None, stream: Stream | None = None) -> Any:
        """Applies the formula to `operands`, and writes to `out`, which may also be the last operand, or to a new array
        of the first array's kind. `stream` as in `permute`."""
        path = self._path
        if len(operands) != path.num_inputs:
            if len(operands) != path.num_inputs + 1 or out is not None:
                raise TypeError(f"{self.__name__} takes {count_of(path.num_inputs, 'input')}, got {len(operands)}")
            operands, out = operands[:-1], operands[-1]  # type: ignore[assignment]
        return (path.call if call_path.is_compiling() else path.cached_call)(*operands, out, stream)

    def _request(self, *operands: Any) -> Request:
        return Request(self._operation, operands)

    def _plan(self, operands: tuple[Signature, ...], outs: tuple[Signature | None], options: None) -> Program:
        """An operand is (shape, strides, dtype) of an array, or the type of a number."""
        out, names = outs[0], self._names
        arrays = [index for index, operand in enumerate(operands) if isinstance(operand, tuple)]
        if None in operands:
            raise no_array(names[operands.index(None)], None, "array or a number")
        if len(arrays) > _MAX_ARRAYS:
            raise ValueError(f"{self.__name__} got {len(arrays)} arrays, must be at most {_MAX_ARRAYS}")
        formula = self._formula(self._types(operands, arrays, out), arrays)
        place = place_operands([names[index] for index in arrays], [operands[index] for index in arrays], out)
        members = []
        for index in sorted({*range(len(operands))} - {*arrays}):
            code = formula.inputs[index].dtype
            if code in INTEGERS and (operands[index] is float or operands[index] in FLOATS):
                raise TypeError(f"{names[index]} is a float, must be an integer: its type is {dtype_name(code)}")
            members.append(Arg(MEMBER, NumberArg(index, number_as(code), names[index])))
        strides = ArrayPointer.to((ctypes.c_void_p * len(place.c_strides))(*place.c_strides))
        strides.kept = place.c_strides  # type: ignore[attr-defined]
        dtypes = (formula.output.dtype, *(formula.inputs[index].dtype for index in arrays))
        codes = ArrayPointer.to((ctypes.c_int * len(dtypes))(*dtypes))
        layout = strides, codes, len(dtypes), len(place.shape), place.c_shape
        pointers = [Arg(OUTPUT, 0), *(Arg(INPUT, index) for index in arrays)]
        c_names = {"rank": "out.ndim", **dict(zip("xyz", (names[index] for index in arrays)))}
        step = Step.of("flowk_functor_plan", (*layout, *pointers, *members), c_names)
        step = step._replace(kernels=self._kernels.setdefault(formula, FormulaKernels(formula)))
        out_dtype = dtype_like(formula.output.dtype, operands[arrays[0]][2])
        return Program((step,), (Buffer(place.shape, out_dtype, place.order),))

    def _formula(self, types: dict[str, DType], arrays: Sequence[int]) -> Formula:
        """The formula with `types` for the names of types."""
        output = types.get(self.out_param.type_name)
        if output is None:
            raise TypeError(f"{self.out_param.type_name} of {self.out_param.name} is decided by no array: pass out")
        inputs = [
            Variable(parameter.name, types[parameter.type_name], index not in arrays)
            for index, parameter in enumerate(self.in_params)
        ]
        letters = [parameter.type_name for parameter in (*self.in_params, self.out_param) if parameter.dtype is None]
        return Formula(
            *(self.__name__, self.operation, self.preamble, tuple(inputs), Variable(self.out_param.name, output)),
            tuple((letter, types[letter]) for letter in dict.fromkeys(letters)),
        )

    def _types(self, operands: tuple[Signature, ...], arrays: Sequence[int], out: Signature | None) -> dict[str, DType]:
        """The type that each type name stands for. A letter has the type of the first array that is declared with it,
        or if there is none, of the first number."""
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
