# SPDX-License-Identifier: Apache-2.0
"""Compiles a formula into a kernel of flowk/detail/elementwise_kernel.cuh at run time with NVRTC, by way of
cuda.core, and keeps the result in cuda.core's program cache on disk."""

from __future__ import annotations

import contextlib
import functools
import os
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .._native.abi import DType, Status
from .._native.errors import FlowkError, FlowkValueError
from .promotion import INTEGERS

# The C++ type of an element in memory. A formula computes in the same type, and in float for floats of 8 and 16 bits.
_STORAGE = {code: f"{code.name.lower()}_t" for code in INTEGERS} | {
    DType.BOOL: "bool",
    DType.FLOAT16: "__half",
    DType.BFLOAT16: "__nv_bfloat16",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    DType.FLOAT8_E4M3: "__nv_fp8_e4m3",
    DType.FLOAT8_E5M2: "__nv_fp8_e5m2",
}
_HEADERS = {
    DType.FLOAT16: "cuda_fp16.h",
    DType.BFLOAT16: "cuda_bf16.h",
    DType.FLOAT8_E4M3: "cuda_fp8.h",
    DType.FLOAT8_E5M2: "cuda_fp8.h",
}
# How a result is rounded to these types: once, as convert() in core/convert.cuh does.
_STORE = {DType.FLOAT16: "__float2half_rn", DType.BFLOAT16: "__float2bfloat16_rn"}

_NEEDS_NVRTC = "ElementwiseKernel needs cuda.core and NVRTC (pip install 'pyflowk[jit]')"


class Variable(NamedTuple):
    """An operand of a formula: with `is_number` it is not an array but a member of the functor."""

    name: str
    dtype: DType
    is_number: bool = False


class Formula(NamedTuple):
    """What is compiled; `aliases` are the names that the formula uses for types."""

    name: str
    operation: str
    preamble: str
    inputs: tuple[Variable, ...]
    output: Variable
    aliases: tuple[tuple[str, DType], ...]


def value_type(dtype: DType) -> str:
    """The C++ type of a variable of the formula."""
    return "float" if dtype in _HEADERS else _STORAGE[dtype]


def source_of(formula: Formula) -> str:
    """The CUDA C++ of a formula: the functor flowk_formula, and flowk_factory, which makes one inside a kernel."""
    variables = (*formula.inputs, formula.output)
    headers = sorted({_HEADERS[variable.dtype] for variable in variables if variable.dtype in _HEADERS})
    arrays = [variable for variable in formula.inputs if not variable.is_number]
    numbers = [variable for variable in formula.inputs if variable.is_number]
    lines = [
        *(f"#include <{header}>" for header in headers),
        "#include <flowk/detail/elementwise_kernel.cuh>",
        formula.preamble,
        "struct flowk_formula {",
        *(f"  alignas(8) {value_type(number.dtype)} {number.name};" for number in numbers),  # a word each: c_call.h
        *(f"  using {alias} = {value_type(dtype)};" for alias, dtype in formula.aliases),
        f"  __device__ __forceinline__ {_STORAGE[formula.output.dtype]} operator()("
        + ", ".join(f"const {_STORAGE[array.dtype]} flowk_{array.name}" for array in arrays)
        + ") const {",
        *(
            f"    const {value_type(array.dtype)} {array.name} = static_cast<{value_type(array.dtype)}>"
            f"(flowk_{array.name});"
            for array in arrays
        ),
        f"    {value_type(formula.output.dtype)} {formula.output.name}{{}};",
        "    {",
        f'#line 1 "{formula.name}"',
        f"{formula.operation};",
        "    }",
        f"    return {_STORE.get(formula.output.dtype, _STORAGE[formula.output.dtype])}({formula.output.name});",
        "  }",
        "};",
        "struct flowk_factory {",
        "  flowk_formula formula;",
        "  __device__ __forceinline__ flowk_formula operator()() const { return formula; }",
        "};",
    ]
    return "\n".join(lines) + "\n"


def kernel_expression(formula: Formula, kernel: str, pack_elements: int) -> str:
    """The C++ name of the kernel that runs a formula."""
    operands = (formula.output, *(variable for variable in formula.inputs if not variable.is_number))
    elements = ", ".join(f"flowk::detail::Element<{_STORAGE[operand.dtype]}>" for operand in operands)
    return f"flowk::detail::{kernel}<{pack_elements}, flowk_factory, {elements}>"


def compile_kernel(formula: Formula, kernel: str, pack_elements: int, architecture: str) -> Any:
    """The compiled kernel as a cuda.core.ObjectCode with the name kernel_expression().

    kernel         the name of a kernel of flowk/detail/elementwise_kernel.cuh
    architecture   sm_90, for example
    Raises FlowkValueError, with the compiler's log, if the formula does not compile; ImportError without NVRTC.
    """
    core, utils = _cuda_core()
    source, expression = source_of(formula), kernel_expression(formula, kernel, pack_elements)
    try:
        options = core.ProgramOptions(
            std="c++20",
            arch=architecture,
            device_as_default_execution_space=True,  # NVRTC 13.0 takes a lambda of device code for host code
            include_path=list(include_folders()),
            name=formula.name,
        )
        key = utils.make_program_cache_key(
            code=source,
            code_type="c++",
            options=options,
            target_type="cubin",
            name_expressions=(expression,),
            extra_digest=_header_digest(),
        )
    except Exception as error:  # without NVRTC cuda.core raises several classes
        raise ImportError(f"{_NEEDS_NVRTC}: {error}") from error
    cache = _disk_cache()
    stored = None if cache is None else cache.get(key)
    if stored is not None:  # the kernel's symbol, NUL, the cubin: cuda.core keeps no symbols with a cubin
        symbol, _, cubin = bytes(stored).partition(b"\0")
        return core.ObjectCode.from_cubin(cubin, name=formula.name, symbol_mapping={expression: symbol})  # bytes: 1.2
    code = _compile(core, source, options, expression, formula.name)
    if cache is not None:
        symbol = code.symbol_mapping[expression]
        symbol = symbol if isinstance(symbol, bytes) else symbol.encode()
        cache[key] = symbol + b"\0" + bytes(code.code)
    return code


def _compile(core: Any, source: str, options: Any, expression: str, name: str) -> Any:
    log = _Log()
    try:
        program = core.Program(source, "c++", options)
    except Exception as error:
        raise ImportError(f"{_NEEDS_NVRTC}: {error}") from error
    try:
        return program.compile("cubin", name_expressions=(expression,), logs=log)
    except Exception as error:
        text = "".join(log.parts) or str(error)
        raise FlowkValueError(Status.INVALID_ARGUMENT, f"{name} does not compile:\n{text.strip()}") from error


class _Log:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        self.parts.append(text)


def _cuda_core() -> tuple[Any, Any]:
    try:
        return import_module("cuda.core"), import_module("cuda.core.utils")
    except Exception as error:  # a broken cuda-python raises more than ImportError
        raise ImportError(f"{_NEEDS_NVRTC}: {error}") from error


@functools.cache
def _disk_cache() -> Any:
    """cuda.core's cache in the user's folder; None if this version has none, or if the folder cannot be written."""
    _, utils = _cuda_core()
    try:
        return utils.FileStreamProgramCache()
    except (AttributeError, OSError):
        return None


@functools.cache
def include_folders() -> tuple[str, ...]:
    """The folders of flowk's headers, and of the toolkit's for types of 8 and 16 bits."""
    from importlib.resources import files

    package = Path(__file__).parents[1]
    # In the package, in the folder of an editable install, and in the source tree.
    places = [package / "include", Path(str(files(package.name).joinpath("include"))), package.parent / "include"]
    headers = next((path for path in places if (path / "flowk" / "detail" / "elementwise_kernel.cuh").is_file()), None)
    if headers is None:
        raise FlowkError(Status.INTERNAL_ERROR, f"flowk's headers are not in {', '.join(map(str, places))}")
    toolkit = _toolkit_headers()
    folders = [headers] if toolkit is None else [headers, toolkit, toolkit / "cccl"]
    return tuple(str(path) for path in folders if path.is_dir())


def _toolkit_headers() -> Path | None:
    """The folder of cuda_fp16.h: a wheel's or CUDA_HOME's."""
    candidates = []
    with contextlib.suppress(Exception):  # classes of cuda.pathfinder, if it finds none
        candidates.append(import_module("cuda.pathfinder").find_nvidia_header_directory("cudart"))
    candidates += [f"{root}/include" for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    return next((Path(path) for path in candidates if path and os.path.isfile(f"{path}/cuda_fp16.h")), None)


@functools.cache
def _header_digest() -> bytes:
    """A digest of every header that a kernel may include."""
    import hashlib

    digest = hashlib.sha256("\n".join(include_folders()).encode())
    folder = Path(include_folders()[0]) / "flowk"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.digest()
