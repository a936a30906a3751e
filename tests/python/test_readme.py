# SPDX-License-Identifier: Apache-2.0
"""README's examples run as they stand there: fenced blocks marked c, cpp and python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

from pyflowk import FlowkError
from pyflowk._native import library as _library

FLAGS = {"c": ["-std=c11"], "cpp": ["-std=c++17"]}


def readme_blocks(language: str) -> list[str]:
    """The fenced blocks of README.md in a language."""
    readme = ROOT / "README.md"
    text = readme.read_text() if readme.exists() else ""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def simt_library() -> Path:
    try:
        return Path(_library.open_backend("simt")._name).resolve()
    except (FlowkError, ImportError) as error:
        pytest.skip(str(error))


def test_readme_has_an_example_in_each_language() -> None:
    assert readme_blocks("c")
    assert readme_blocks("cpp")
    assert readme_blocks("python")


@pytest.mark.parametrize("number", range(len(readme_blocks("python"))))
def test_python_example_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    simt_library()
    text = readme_blocks("python")[number]
    if "import torch" in text:
        pytest.importorskip("torch")
    program = tmp_path / "example.py"
    program.write_text(text)
    subprocess.run([sys.executable, program], check=True, cwd=tmp_path, timeout=120)


@pytest.mark.parametrize(("language", "number"), [(name, i) for name in FLAGS for i in range(len(readme_blocks(name)))])
def test_c_example_of_the_readme_compiles_without_a_warning_and_runs(
    language: str, number: int, tmp_path: Path
) -> None:
    variable, default = ("CC", "cc") if language == "c" else ("CXX", "c++")
    compiler = os.environ.get(variable) or shutil.which(default)
    if compiler is None:
        pytest.skip(f"no {default}")
    library = simt_library()
    source, program = tmp_path / f"example.{language}", tmp_path / "example"
    source.write_text(readme_blocks(language)[number])
    flags = [*FLAGS[language], "-Wall", "-Werror", "-pedantic", f"-I{ROOT / 'include'}"]
    # The loader's path, not an rpath: what the example's build line in README would get from an installed library.
    subprocess.run([*compiler.split(), *flags, str(source), str(library), "-o", str(program)], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    subprocess.run([program], check=True, cwd=tmp_path, env=environment, timeout=120)
