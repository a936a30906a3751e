# SPDX-License-Identifier: Apache-2.0
"""The C and C++ tests: meson builds and runs them, and a C program links each library that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

from pyflowk import FlowkError
from pyflowk._native import library as _library


def run(*command: str | Path, **environment: str) -> None:
    """Runs a command; its output is the failure's text."""
    scripts = str(Path(sys.executable).parent)  # a virtual environment's ninja, where it is not activated
    path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    result = subprocess.run(
        command,
        env={**os.environ, "PATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}", pytrace=False)


def test_cpp_tests_pass_under_meson(tmp_path: Path) -> None:
    # Without the libraries: the installed ones were built with the package, and the C tests are linked to them below.
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    run(*meson, "setup", tmp_path, ROOT, "-Dcuda=disabled", "-Dsimt=false")
    run(*meson, "test", "-C", tmp_path, "--print-errorlogs")


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
