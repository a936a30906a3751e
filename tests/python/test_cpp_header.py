# SPDX-License-Identifier: Apache-2.0
"""flowk.hpp: C++17, no warning, with CUDA's headers in any order, and no more code than the C call."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

# The same call in C and by flowk.hpp. The extents are known at run time, the ranks when it is compiled.
PAIRS = r"""
#include <flowk/flowk.hpp>

extern "C" flowk_status c_permute(const float *src, float *dst, int64_t m, int64_t n, flowk_stream stream) {
  const int64_t shape[] = {m, n};
  const int32_t axes[] = {1, 0};
  return flowk_permute(src, nullptr, dst, nullptr, 2, shape, axes, FLOWK_FLOAT32, stream);
}
extern "C" flowk_status cpp_permute(const float *src, float *dst, int64_t m, int64_t n, flowk_stream stream) {
  return flowk::permute(std::nothrow, flowk::view{src, {m, n}}, flowk::view{dst, {n, m}}, {1, 0}, stream).code();
}
extern "C" flowk_status c_add(const float *x, const float *y, float *out, int64_t n, flowk_stream stream) {
  return flowk_binary(FLOWK_BINARY_ADD, x, nullptr, FLOWK_FLOAT32, y, nullptr, FLOWK_FLOAT32, out, nullptr,
                      FLOWK_FLOAT32, 1, &n, stream);
}
extern "C" flowk_status cpp_add(const float *x, const float *y, float *out, int64_t n, flowk_stream stream) {
  return flowk::add(std::nothrow, flowk::view{x, {n}}, flowk::view{y, {n}}, flowk::view{out, {n}}, stream).code();
}
"""
HALVES = """
static_assert(flowk::dtype_of<__half>::value == FLOWK_FLOAT16);
static_assert(flowk::dtype_of<__nv_bfloat16>::value == FLOWK_BFLOAT16);
static_assert(flowk::dtype_of<__nv_fp8_e4m3>::value == FLOWK_FLOAT8_E4M3);
void copy(__half *x, __nv_fp8_e5m2 *y) {
  flowk::add(flowk::view{x, {3}}, 1.5, flowk::view{x, {3}});
  flowk::copy(flowk::view{x, {3}}, flowk::view{y, {3}});
}
"""
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT / 'include'}"]


def cpp_compilers() -> list[str]:
    found = (shutil.which(name) for name in (os.environ.get("CXX", "c++"), "clang++"))
    return sorted({compiler for compiler in found if compiler is not None}) or ["c++"]


def compile_cpp(compiler: str, source: Path, *flags: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip("no C++ compiler")
    result = subprocess.run([compiler, *FLAGS, *flags, source], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def instructions(assembly: str, function: str) -> list[str]:
    """The mnemonics of a function in a compiler's assembly, without what lies out of its line (.cold)."""
    body = re.search(rf"^{function}:\n(.*?)^\s*\.size\s+{function}\b", assembly, re.DOTALL | re.MULTILINE)
    assert body, f"no {function} in the assembly"
    in_line = re.split(r"^\s*\.section\s+\.text\.unlikely", body[1], flags=re.MULTILINE)[0]
    words = re.findall(r"^\t([a-z]\w*)", in_line, re.MULTILINE)
    return words


@pytest.mark.parametrize("compiler", cpp_compilers())
@pytest.mark.parametrize("function", ["permute", "add"])
def test_a_call_is_the_code_of_the_c_call(compiler: str, function: str, tmp_path: Path) -> None:
    """With ranks in the types, all comparisons of extents that are the same variable are gone: no branch is left, and
    at most 5 instructions more, which store the rest of the view."""
    (tmp_path / "pairs.cpp").write_text(PAIRS)
    compile_cpp(compiler, tmp_path / "pairs.cpp", "-O2", "-fno-stack-protector", "-S", "-o", str(tmp_path / "pairs.s"))
    assembly = (tmp_path / "pairs.s").read_text()
    in_c, in_cpp = instructions(assembly, f"c_{function}"), instructions(assembly, f"cpp_{function}")
    assert [word for word in in_cpp if word.startswith(("call", "j", "b"))] == [
        word for word in in_c if word.startswith(("call", "j", "b"))
    ]
    assert len(in_cpp) <= len(in_c) + 5, f"{in_c}\n{in_cpp}"


@pytest.mark.parametrize("compiler", cpp_compilers())
def test_the_header_is_cpp17_without_a_warning(compiler: str) -> None:
    compile_cpp(compiler, ROOT / "tests/cpp/api/test_flowk_hpp.cpp", "-fsyntax-only", f"-I{ROOT / 'tests/cpp'}")


@pytest.mark.parametrize("first", ["flowk", "cuda"])
def test_cudas_types_are_known_in_any_order_of_headers(first: str, tmp_path: Path) -> None:
    toolkit = runpy.run_path(str(ROOT / "cuda/find_toolkit_headers.py"))["header_folder"]()
    if toolkit is None:
        pytest.skip("no cuda_fp16.h")
    headers = ["flowk/flowk.hpp", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"]
    ordered = headers if first == "flowk" else headers[::-1]
    source = tmp_path / "halves.cpp"
    source.write_text("".join(f"#include <{header}>\n" for header in ordered) + HALVES)
    compile_cpp(cpp_compilers()[0], source, "-fsyntax-only", "-isystem", str(toolkit))
