# SPDX-License-Identifier: Apache-2.0
"""The functions of PyTorch that torch_shim.h declares are those of PyTorch's own headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from source_tree import ROOT

torch = pytest.importorskip("torch")

CHECK = r"""
#include <type_traits>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include "pyflowk/_torch/torch_shim.h"

// Equal, or pointers one of which has void where the other has a type that PyTorch does not define.
template <class A, class B> struct Alike : std::bool_constant<std::is_same_v<A, B>> {};
template <class A> struct Alike<A, void> : std::is_class<A> {};
template <class B> struct Alike<void, B> : std::is_class<B> {};
template <> struct Alike<void, void> : std::true_type {};
template <class A, class B> struct Alike<A *, B *> : Alike<A, B> {};
template <class A, class B, class... As, class... Bs> struct Alike<A(As...), B(Bs...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(As) == sizeof...(Bs)) return Alike<A, B>::value && (Alike<As, Bs>::value && ...);
    else return false;
  }
  static constexpr bool value = compare();
};
#define CHECK(result, name, parameters) static_assert(Alike<decltype(name), CHANGED(result) parameters>::value, #name);
PYFLOWK_TORCH_SHIM(CHECK)
PYFLOWK_TORCH_OPTIONAL_SHIM(CHECK)
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_declared_functions_are_those_of_pytorch(tmp_path: Path) -> None:
    include = Path(torch.__file__).parent / "include"
    if not (include / "torch/csrc/stable/c/shim.h").exists():
        pytest.skip("a PyTorch without the header of its stable functions")
    for changed, is_right in (("result", True), ("short", False)):
        source = tmp_path / f"{changed}.cpp"
        source.write_text(CHECK.replace("CHANGED(result)", changed))
        folders = [f"-I{ROOT}", f"-I{ROOT / 'include'}", f"-isystem{include}"]
        # -fpermissive: members of FlowkFunctions have the names of functions, as C allows.
        command = ["c++", "-std=c++20", "-fsyntax-only", "-fpermissive", "-w", "-DUSE_CUDA", *folders, source]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode == 0) == is_right, result.stderr
        assert is_right or "aoti_torch_get_sizes" in result.stderr
