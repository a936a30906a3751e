# SPDX-License-Identifier: Apache-2.0
"""The structs of pyflowk/_jax/xla_ffi.h are those of the installed jaxlib."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

jaxlib = pytest.importorskip("jaxlib")

# Ours, XLA's, and the members by both names.
STRUCTS = {
    "FfiExtension": ("XLA_FFI_Extension_Base", "struct_size type next"),
    "FfiApiVersion": ("XLA_FFI_Api_Version", "struct_size extension_start major_version minor_version"),
    "FfiErrorCreateArgs": ("XLA_FFI_Error_Create_Args", "struct_size extension_start message code=errc"),
    "FfiErrorDestroyArgs": ("XLA_FFI_Error_Destroy_Args", "struct_size extension_start error"),
    "FfiBuffer": ("XLA_FFI_Buffer", "struct_size extension_start dtype data rank dims"),
    "FfiByteSpan": ("XLA_FFI_ByteSpan", "ptr len"),
    "FfiScalar": ("XLA_FFI_Scalar", "dtype value"),
    "FfiArray": ("XLA_FFI_Array", "dtype size data"),
    "FfiBuffers": ("XLA_FFI_Args", "struct_size extension_start size types values=args"),
    "FfiAttributes": ("XLA_FFI_Attrs", "struct_size extension_start size types names values=attrs"),
    "FfiCallFrame": (
        "XLA_FFI_CallFrame",
        "struct_size extension_start api context=ctx stage arguments=args results=rets attributes=attrs",
    ),
    "FfiMetadata": ("XLA_FFI_Metadata", "struct_size api_version traits"),
    "FfiMetadataExtension": ("XLA_FFI_Metadata_Extension", "base=extension_base metadata"),
    "FfiStreamArgs": ("XLA_FFI_Stream_Get_Args", "struct_size extension_start context=ctx stream"),
    "FfiAllocateArgs": (
        "XLA_FFI_DeviceMemory_Allocate_Args",
        "struct_size extension_start context=ctx size alignment data",
    ),
    "FfiApi": (
        "XLA_FFI_Api",
        "struct_size extension_start api_version internal_api create_error=XLA_FFI_Error_Create "
        "destroy_error=XLA_FFI_Error_Destroy get_stream=XLA_FFI_Stream_Get allocate=XLA_FFI_DeviceMemory_Allocate",
    ),
}
# Later versions add members behind ours, and the runtime sees how many a struct has.
MAY_BE_SHORTER = {"FfiApi", "FfiCallFrame", "FfiMetadata"}
TYPES = ("PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "F32", "F64", "C64", "BF16", "C128")
CONSTANTS = {
    "FFI_EXTENSION_METADATA": "XLA_FFI_Extension_Metadata",
    "FFI_INVALID_ARGUMENT": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
    "FFI_FAILED_PRECONDITION": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
    "FFI_INTERNAL": "XLA_FFI_Error_Code_INTERNAL",
    "FFI_BUFFER": "XLA_FFI_ArgType_BUFFER",
    "FFI_ATTRIBUTE_ARRAY": "XLA_FFI_AttrType_ARRAY",
    "FFI_ATTRIBUTE_SCALAR": "XLA_FFI_AttrType_SCALAR",
    "FFI_COMMAND_BUFFER_COMPATIBLE": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    **{f"FFI_{name}": f"XLA_FFI_DataType_{name}" for name in (*TYPES, "F8E5M2", "F8E4M3FN")},
}


def header() -> str:
    return (Path(jaxlib.__file__).parent / "include/xla/ffi/api/c_api.h").read_text()


def name_in(text: str, name: str) -> str:
    """The name that this version of the header has: jaxlib 0.12 renamed those of extensions."""
    renamed = {"XLA_FFI_Extension_Base": "XLA_FFI_InternalExtension"}
    return name if re.search(rf"\b{name}\b", text) else renamed.get(name, name)


def assertions(text: str) -> list[str]:
    lines = [f"SAME({ours}, {name_in(text, theirs)});" for ours, theirs in CONSTANTS.items()]
    for ours, (theirs, members) in STRUCTS.items():
        theirs = name_in(text, theirs)
        lines.append(f"SAME(sizeof({ours}) {'<=' if ours in MAY_BE_SHORTER else '=='} sizeof({theirs}), 1);")
        for member in members.split():
            own, _, other = member.partition("=")
            lines.append(f"SAME(offsetof({ours}, {own}), offsetof({theirs}, {other or own}));")
    return lines


def compiles(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = folder / "layout.c"
    source.write_text(
        '#include "xla_ffi.h"\n#include "xla/ffi/api/c_api.h"\n'
        "#define SAME(a, b) _Static_assert((a) == (b), #a)\n" + "\n".join(lines)
    )
    includes = [f"-I{ROOT / 'pyflowk' / '_jax'}", f"-I{Path(jaxlib.__file__).parent / 'include'}"]
    return subprocess.run(
        [*compiler.split(), "-std=c11", "-fsyntax-only", *includes, source], capture_output=True, text=True
    )


def test_structs_and_constants_are_those_of_the_installed_jaxlib(tmp_path: Path) -> None:
    result = compiles(assertions(header()), tmp_path)
    assert result.returncode == 0, result.stderr


def test_another_layout_would_be_found(tmp_path: Path) -> None:
    lines = ["SAME(offsetof(FfiBuffer, data), offsetof(XLA_FFI_Buffer, dims));"]
    assert "offsetof(FfiBuffer, data)" in compiles(lines, tmp_path).stderr


def test_every_struct_of_ours_is_compared() -> None:
    text = (ROOT / "pyflowk" / "_jax" / "xla_ffi.h").read_text()
    declared = set(re.findall(r"^} (\w+);", text, re.MULTILINE)) | set(
        re.findall(r"^struct (\w+) {", text, re.MULTILINE)
    )
    assert declared == set(STRUCTS)
