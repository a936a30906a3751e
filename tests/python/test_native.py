# SPDX-License-Identifier: Apache-2.0
"""The C and C++ tests: meson builds and runs them, and a C program links each library that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cpp_tests import CppTests, environment
from source_tree import ROOT

from pyflowk import FlowkError
from pyflowk._native import library as _library


def run(*command: str | Path) -> None:
    """Runs a command; its output is the failure's text."""
    result = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}", pytrace=False)


def test_cpp_tests_pass_under_meson(cpp_tests: CppTests) -> None:
    status, text = cpp_tests.result()
    if status != 0:
        pytest.fail(text, pytrace=False)


@pytest.mark.parametrize("source", sorted((ROOT / "tests/c").glob("*.c")), ids=lambda source: source.stem)
@pytest.mark.parametrize("backend", ["simt", "cuda"])
def test_c11_program_links_the_installed_library_and_runs(backend: str, source: Path, tmp_path: Path) -> None:
    try:
        library = Path(_library.open_backend(backend)._name).resolve()
    except (FlowkError, ImportError) as error:
        pytest.skip(str(error))
    compiler = (os.environ.get("CC") or shutil.which("cc") or "gcc").split()
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{ROOT / 'include'}"]
    program = tmp_path / source.stem
    run(*compiler, *flags, source, library, f"-Wl,-rpath,{library.parent}", "-o", program)
    run(program)
