# SPDX-License-Identifier: Apache-2.0
"""flowk.h, the exported symbols and pyflowk's ctypes table agree: names, values, arguments, types."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
from enum import Enum, IntEnum
from pathlib import Path

import pytest
from source_tree import ROOT

from pyflowk import FlowkError, __version__
from pyflowk._elementwise.promotion import FLOATS, INTEGERS
from pyflowk._native import abi as _abi
from pyflowk._native import c_types
from pyflowk._native import library as _library
from pyflowk._native.operations import OPERATIONS, BinaryOp, Operation, TernaryOp, UnaryOp

INCLUDE = ROOT / "include" / "flowk"
HEADER = (INCLUDE / "flowk.h").read_text()
CODE = re.sub(r"/\*.*?\*/", " ", HEADER, flags=re.DOTALL)

SYMBOL_VERSION = "FLOWK_0.1"

# How each C type is written in the table.
CTYPES = {
    "const char *": ctypes.c_char_p,
    "char *": ctypes.c_char_p,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "flowk_status": ctypes.c_int32,
    "flowk_dtype": ctypes.c_int32,
    "flowk_unary_op": ctypes.c_int32,
    "flowk_binary_op": ctypes.c_int32,
    "flowk_ternary_op": ctypes.c_int32,
    "flowk_stream": c_types.StreamHandle,
    "const void *": c_types.TensorPointer,
    "void *": c_types.TensorPointer,
    "const int64_t *": c_types.Int64Pointer,
    "const int32_t *": c_types.Int32Pointer,
    "const void *const *": c_types.Array,
    "void *const *": c_types.Array,
    "const int64_t *const *": c_types.Array,
    "const flowk_dtype *": c_types.Array,
    "flowk_functor_launch *": c_types.Array,
    "size_t *": c_types.SizePointer,
    "double *": c_types.Array,
    "int32_t *": c_types.Array,
    "const flowk_softmax_mask *": c_types.SoftmaxMaskPointer,
    "const flowk_cross_entropy_options *": c_types.CrossEntropyOptionsPointer,
}


def header_functions() -> dict[str, tuple[type, list[type]]]:
    """name: (restype, argtypes), in the header's order."""
    functions = {}
    for result, name, parameters in re.findall(r"FLOWK_API\s+([\w\s*]+?)(\w+)\(([^)]*)\);", CODE):
        types = [] if parameters.strip() == "void" else [declared_type(p) for p in parameters.split(",")]
        functions[name] = (CTYPES[" ".join(result.split())], types)
    return functions


def declared_type(parameter: str) -> type:
    """The type of `const void *src`."""
    return CTYPES[" ".join(re.sub(r"\w+$", "", parameter.strip()).split())]


def header_enum(name: str) -> dict[str, int]:
    """The constants of an int32_t type and their values."""
    body = re.search(rf"typedef int32_t {name};\s*__extension__ enum FLOWK_INT32_CONSTANTS_ {{(.*?)}}", CODE, re.DOTALL)
    assert body
    return {key: int(value) for key, value in re.findall(r"(\w+) = (-?\d+)", body[1])}


def header_struct(name: str) -> list[tuple[str, type]]:
    """Members and their types; a pointer is a c_void_p, as a ctypes.Structure gives and takes an address as int."""
    body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", CODE, re.DOTALL)
    assert body
    members = [member.strip() for member in body[1].split(";") if member.strip()]
    return [
        (re.findall(r"\w+", member)[-1], ctypes.c_void_p if "*" in member else declared_type(member))
        for member in members
    ]


def header_constant(name: str) -> int:
    value = re.search(rf"#define {name} (\d+)", CODE)
    assert value
    return int(value[1])


def built_libraries() -> list[ctypes.CDLL]:
    """Those that are installed here: at least one."""
    found = []
    for backend in _library.FILE_NAMES:
        if _library.allowed_backend() in (None, backend):
            try:
                found.append(_library.open_backend(backend))
            except (FlowkError, ImportError):
                continue
    return found


def test_the_table_has_the_functions_of_the_header_with_their_types() -> None:
    assert len(header_functions()) == len(re.findall(r"^FLOWK_API", CODE, re.MULTILINE)) > 0
    assert list(_abi.FUNCTIONS) == list(header_functions())
    assert header_functions() == _abi.FUNCTIONS


def test_every_public_declaration_has_a_comment_that_tools_show() -> None:
    """`/** ... */` before it or `/**< ... */` behind it; names that end in _ are not public."""
    declaration = (
        r"FLOWK_API |typedef |#define FLOWK_(?!API\b|FLOWK_H\b)\w*[A-Z]\b|  FLOWK_\w+ = |  [\w ]+[ *]\w+(\[\w+\])?;"
    )
    lines, missing, found = HEADER.splitlines(), [], 0
    for before, line in itertools.pairwise(lines):
        if re.match(declaration, line):
            comment = HEADER[: HEADER.index(f"\n{line}")].rpartition("/*")[2]
            found += 1
            if "/**< " not in line and not (before.endswith("*/") and comment.startswith("*")):
                missing.append(line)
    assert found > 100 and missing == []


@pytest.mark.parametrize(
    ("name", "enum", "prefix"), [("flowk_status", _abi.Status, "FLOWK_STATUS_"), ("flowk_dtype", _abi.DType, "FLOWK_")]
)
def test_enums_have_the_values_of_the_header(name: str, enum: type[IntEnum], prefix: str) -> None:
    assert {prefix + member.name: member.value for member in enum} == header_enum(name)


def header_operations(macro: str) -> dict[str, tuple[int, Operation]]:
    """The rows of a list of flowk/elementwise_ops.h: name: (value, the row as operations.py writes it)."""
    text = (INCLUDE / "elementwise_ops.h").read_text()
    rows = re.search(rf"#define {macro}\(OP\)(.*?)\n\n", text, re.DOTALL)
    assert rows
    found = re.findall(r'OP\((\w+), (\d+), (\w+), (\w+), (\w+), (\d), "(.*?)"\)', rows[1])
    assert all(name == enumerator.lower() for enumerator, _, name, *_ in found)
    return {row[0]: (int(row[1]), Operation(row[3], row[4], int(row[5]), row[6])) for row in found}


@pytest.mark.parametrize(
    ("macro", "enum"),
    [
        ("FLOWK_UNARY_OPS", UnaryOp),
        ("FLOWK_BINARY_OPS", BinaryOp),
        ("FLOWK_TERNARY_OPS", TernaryOp),
    ],
)
def test_operations_are_those_of_the_header(macro: str, enum: type[Enum]) -> None:
    rows = header_operations(macro)
    assert {op.name: (op.value, OPERATIONS[op]) for op in enum} == rows
    prefix = f"flowk_{macro.split('_')[1].lower()}_op"
    for library in built_libraries():
        for op in enum:
            assert getattr(library, f"{prefix}_name")(op.value).decode() == op.name.lower()
            assert getattr(library, f"{prefix}_formula")(op.value).decode() == OPERATIONS[op].formula
            if enum is not BinaryOp:
                assert getattr(library, f"{prefix}_num_parameters")(op.value) == OPERATIONS[op].num_parameters
        for value in (0, len(enum) + 1, -1):
            assert getattr(library, f"{prefix}_name")(value) is None
            assert getattr(library, f"{prefix}_formula")(value) is None


def test_the_result_of_an_operation_is_the_library_s() -> None:
    for library in built_libraries():
        for op, row in OPERATIONS.items():
            prefix = {UnaryOp: "unary", BinaryOp: "binary", TernaryOp: "ternary"}[type(op)]
            for dtype in _abi.DType:
                kind = "F" if dtype in FLOATS else "I" if dtype in INTEGERS else "B" if dtype == 1 else "complex"
                takes = kind in row.takes
                expected = (_abi.DType.BOOL if row.result == "BOOL" else dtype) if takes else 0
                assert getattr(library, f"flowk_{prefix}_op_result")(op.value, dtype) == expected, (op, dtype)


def test_the_library_names_a_dtype_as_numpy_does() -> None:
    for library in built_libraries():
        for dtype in _abi.DType:
            assert library.flowk_dtype_string(dtype).decode() == dtype.name.lower()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_template_says_in_one_error_that_it_needs_cpp20(tmp_path: Path) -> None:
    source = tmp_path / "main.cu"
    source.write_text("#include <flowk/elementwise.cuh>\n")
    command = ["nvcc", "-std=c++17", f"-I{INCLUDE.parent}", "-cubin", "-o", tmp_path / "out", source]
    text = subprocess.run(command, capture_output=True, text=True).stderr
    assert re.findall(r"error: (.*)", text) == ['#error "flowk/elementwise.cuh needs C++20: nvcc -std=c++20"'], text


def test_structs_have_the_fields_of_the_header() -> None:
    body = re.search(r"typedef struct flowk_functor_launch {(.*?)} flowk_functor_launch;", CODE, re.DOTALL)
    assert body
    sizes = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64}
    fields = []
    for kind, name, length in re.findall(r"([\w ]+) (\w+)(?:\[(\w+)\])?;", body[1]):
        field = ctypes.c_ubyte * header_constant(length) if length else sizes[kind.strip()]
        fields.append((name, field))
    assert tuple(fields) == _abi.FunctorLaunch._fields_


def test_structs_have_the_members_of_the_header() -> None:
    assert header_struct("flowk_softmax_mask") == _abi.SoftmaxMask._fields_
    assert header_struct("flowk_cross_entropy_options") == _abi.CrossEntropyOptions._fields_


def test_version_and_largest_rank_are_those_of_the_header() -> None:
    major, minor, patch = (header_constant(f"FLOWK_VERSION_{part}") for part in ("MAJOR", "MINOR", "PATCH"))
    assert 10000 * major + 100 * minor + patch == _abi.VERSION
    assert __version__ == f"{major}.{minor}.{patch}"
    assert header_constant("FLOWK_MAX_RANK") == _abi.MAX_RANK
    assert header_constant("FLOWK_HOST_SCALAR") == _abi.HOST_SCALAR
    assert header_constant("FLOWK_FUNCTOR_PARAMS_VERSION") == _abi.FUNCTOR_PARAMS_VERSION


def test_a_library_is_built() -> None:
    assert built_libraries()


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_libraries_export_the_functions_of_the_header_and_nothing_else() -> None:
    for library in built_libraries():
        command = ["nm", "-D", "--defined-only", "--format=posix", library._name]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        symbols = {line.split()[0] for line in lines} - {SYMBOL_VERSION}  # the version itself is a symbol too
        assert symbols == {f"{name}@@{SYMBOL_VERSION}" for name in header_functions()}, library._name


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_libraries_have_a_versioned_soname_and_need_the_c_library_alone() -> None:
    for library in built_libraries():
        lines = subprocess.run(["readelf", "-d", library._name], check=True, capture_output=True, text=True).stdout
        backend = _library.build_words(library)["backend"]
        assert re.findall(r"\(SONAME\).*\[(.*)\]", lines) == [_library.FILE_NAMES[backend]]
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", lines)
        # glibc before 2.34 has the threads, the loader's functions and the timers in libraries of their own.
        assert needed and all(re.match(r"(ld-linux.*|lib(c|m|pthread|dl|rt))\.so\.\d+$", name) for name in needed), (
            needed
        )


def test_libraries_say_which_they_are() -> None:
    for library in built_libraries():
        words = _library.build_words(library)
        assert set(words) >= {"backend", "archs", "toolkit", "compiler"}
        assert words["backend"] in ("cuda", "simt")
        assert library.flowk_version() == _abi.VERSION
    if len(built_libraries()) == 2:
        assert [_library.build_words(library)["backend"] for library in built_libraries()] == ["cuda", "simt"]
