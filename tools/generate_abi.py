# SPDX-License-Identifier: Apache-2.0
"""flowk.h for Python, and for the C files of pyflowk: its enums, its structs and its functions' parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from generated_text import LICENSE, NOTE, packed  # type: ignore[import-not-found, unused-ignore]

HEADER = Path(__file__).resolve().parents[1] / "include" / "flowk" / "flowk.h"
CODE = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.DOTALL)
SOURCE = "flowk/flowk.h"

# The C types of parameters: in ctypes, and how call_function() of c_call.c takes one from a 64-bit word.
TYPES = {
    "char *": ("c_char_p", "p"),
    "const char *": ("c_char_p", "p"),
    "const void *": ("TensorPointer", "p"),
    "void *": ("TensorPointer", "p"),
    "const int64_t *": ("Int64Pointer", "p"),
    "const int32_t *": ("Int32Pointer", "p"),
    "size_t *": ("SizePointer", "p"),
    "const flowk_softmax_mask *": ("SoftmaxMaskPointer", "p"),
    "const flowk_cross_entropy_options *": ("CrossEntropyOptionsPointer", "p"),
    "flowk_stream": ("StreamHandle", "p"),
    "double": ("c_double", "d"),
    "int64_t": ("c_int64", "i"),
    "size_t": ("c_size_t", "i"),
    "int32_t": ("c_int32", "n"),
    **dict.fromkeys(("flowk_status", "flowk_dtype"), ("c_int32", "n")),
    **dict.fromkeys(("flowk_unary_op", "flowk_binary_op", "flowk_ternary_op"), ("c_int32", "n")),
}
_OTHER_POINTER = ("Array", "p")
_HEAD = '''
from __future__ import annotations

from ctypes import Structure, c_char_p, c_double, c_int32, c_int64, c_size_t, c_ubyte, c_void_p
from enum import IntEnum

from .c_types import (
    Array,
    CrossEntropyOptionsPointer,
    HashedEnum,
    Int32Pointer,
    Int64Pointer,
    SizePointer,
    SoftmaxMaskPointer,
    StreamHandle,
    TensorPointer,
)

# FLOWK_VERSION and FLOWK_MAX_RANK of the header that this file mirrors.
VERSION = {version}
MAX_RANK = {FLOWK_MAX_RANK}
# FLOWK_HOST_SCALAR: a flag in an input's dtype.
HOST_SCALAR = {FLOWK_HOST_SCALAR}
# FLOWK_FUNCTOR_PARAMS_VERSION: of the kernels' parameters in FunctorLaunch.
FUNCTOR_PARAMS_VERSION = {FLOWK_FUNCTOR_PARAMS_VERSION}
# FLOWK_CROSS_ENTROPY_PARTIAL_VALUES: of a row of a shard.
PARTIAL_VALUES = {FLOWK_CROSS_ENTROPY_PARTIAL_VALUES}


class Status(IntEnum):
    """`flowk_status`: the outcome of a call."""

{statuses}

class DType(HashedEnum):
    """`flowk_dtype`: the element type of a tensor."""

{dtypes}

class FunctorLaunch(Structure):
    """`flowk_functor_launch`."""

    _fields_ = ({functor_launch}    )


class SoftmaxMask(Structure):
    """`flowk_softmax_mask`: which columns a softmax masks out, and the bias."""

    _fields_ = [{softmax_mask}    ]


class CrossEntropyOptions(Structure):
    """`flowk_cross_entropy_options`: the numbers of a cross-entropy."""

    _fields_ = [{cross_entropy_options}    ]


# name: (restype, argtypes), in the header's order.
# fmt: off
FUNCTIONS: dict[str, tuple[type, list[type]]] = {{
{functions}}}
# fmt: on
'''


def functions() -> dict[str, tuple[str, list[str]]]:
    """name: (C type of the result, C types of the parameters), in the header's order."""
    found = {}
    for result, name, parameters in re.findall(r"FLOWK_API\s+([\w\s*]+?)(\w+)\(([^)]*)\);", CODE):
        types = [] if parameters.strip() == "void" else [_type_of(one) for one in parameters.split(",")]
        found[name] = (" ".join(result.split()), types)
    return found


def _type_of(parameter: str) -> str:
    """The C type of `const void *src`."""
    return " ".join(re.sub(r"\w+$", "", parameter.strip()).split())


def constant(name: str) -> int:
    found = re.search(rf"#define {name} (\d+)", CODE)
    assert found, name
    return int(found[1])


def _members(enum: str, prefix: str) -> str:
    body = re.search(rf"typedef int32_t {enum};\s*__extension__ enum \w+ {{(.*?)}}", CODE, re.DOTALL)
    assert body, enum
    return "".join(f"    {name} = {value}\n" for name, value in re.findall(rf"{prefix}(\w+) = (-?\d+)", body[1]))


def _fields(struct: str) -> Iterator[str]:
    """The fields of a Structure; a pointer is a c_void_p, which gives and takes an address as int."""
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", CODE, re.DOTALL)
    assert body, struct
    yield "\n"
    for kind, name, length in re.findall(r"\s*([^;]*?)(\w+)(?:\[(\w+)\])?;", body[1]):
        own = "c_void_p" if "*" in kind else "c_ubyte" if length else TYPES[kind.strip()][0]
        yield f'        ("{name}", {own}{f" * {constant(length)}" if length else ""}),\n'


def abi() -> str:
    """_native/abi.py"""
    rows = ""
    for name, (result, types) in functions().items():
        arguments = [TYPES.get(one, _OTHER_POINTER)[0] for one in types]
        rows += packed(f'    "{name}": ({TYPES[result][0]}, [', arguments, "]),")
    major, minor, patch = (constant(f"FLOWK_VERSION_{part}") for part in ("MAJOR", "MINOR", "PATCH"))
    names = (
        *("FLOWK_MAX_RANK", "FLOWK_HOST_SCALAR", "FLOWK_FUNCTOR_PARAMS_VERSION"),
        "FLOWK_CROSS_ENTROPY_PARTIAL_VALUES",
    )
    text = f'{LICENSE}"""flowk.h in ctypes: its enums, its structs and one table of prototypes.\n\n'
    return f'{text}{NOTE.format(source=SOURCE)}\n"""\n' + _HEAD.format(
        version=10000 * major + 100 * minor + patch,
        **{name: constant(name) for name in names},
        statuses=_members("flowk_status", "FLOWK_STATUS_"),
        dtypes=_members("flowk_dtype", "FLOWK_"),
        functor_launch="".join(_fields("flowk_functor_launch")),
        softmax_mask="".join(_fields("flowk_softmax_mask")),
        cross_entropy_options="".join(_fields("flowk_cross_entropy_options")),
        functions=rows,
    )


def c_functions() -> str:
    """_native/c_functions.h"""
    rows = []
    for number, (name, (_, types)) in enumerate(functions().items()):
        if types[-1:] == ["flowk_stream"]:
            words = [f"{TYPES.get(one, _OTHER_POINTER)[1]}({i})" for i, one in enumerate(types)]
            rows.append(packed(f"  LAUNCH({number}, {name}, ", words, ")").rstrip().replace("\n", " \\\n"))
        else:
            rows.append(f"  OTHER({name})")
    table = " \\\n".join(rows)
    return f"""// SPDX-License-Identifier: Apache-2.0
// The functions of flowk.h, in its order, as pyflowk's libraries get their addresses from Python (addresses() in
// _native/library.py).
//
// {NOTE.format(source=SOURCE)}
#ifndef PYFLOWK_NATIVE_C_FUNCTIONS_H
#define PYFLOWK_NATIVE_C_FUNCTIONS_H

#include "flowk/flowk.h"

// clang-format off
// LAUNCH(number, name, arguments): `number` is the function's place in this list. Its argument number i is p(i), a
// pointer; d(i), a double; i(i), of 64 bits; n(i), of 32 bits. The last one is the stream.
#define FLOWK_FUNCTIONS(LAUNCH, OTHER) \\
{table}
// clang-format on

typedef struct {{
#define FLOWK_OTHER(name) __typeof__(&name) name;
#define FLOWK_LAUNCH(number, name, ...) FLOWK_OTHER(name)
  FLOWK_FUNCTIONS(FLOWK_LAUNCH, FLOWK_OTHER)
#undef FLOWK_LAUNCH
#undef FLOWK_OTHER
}} FlowkFunctions;

#endif
"""
