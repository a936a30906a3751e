# SPDX-License-Identifier: Apache-2.0
"""The generated files of pyflowk are what its generator writes; its names, types and texts are there for editors."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT, tool_at

import pyflowk

FUNCTIONS = [name for name in pyflowk.__all__ if inspect.isfunction(getattr(pyflowk, name))]


def test_the_generator_writes_the_files_that_are_there() -> None:
    files = tool_at("tools/generate.py").generated()
    assert "_elementwise/functions.py" in files
    for path, text in files.items():
        assert (ROOT / "pyflowk" / path).read_text() == text, f"run tools/generate.py: {path} differs"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_documents_every_parameter(name: str) -> None:
    function = getattr(pyflowk, name)
    assert function.__doc__
    for parameter, declared in inspect.signature(function).parameters.items():
        assert declared.annotation is not inspect.Parameter.empty, parameter
        if name not in ("softmax", "log_softmax"):  # by reference to masked_softmax
            assert parameter in function.__doc__


def test_every_public_name_is_declared_for_type_checkers() -> None:
    stub = ast.parse((ROOT / "pyflowk" / "__init__.pyi").read_text())
    imported = {
        alias.asname or alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == {*pyflowk.__all__, "memory"} <= set(dir(pyflowk))


def run(*command: str, **environment: str) -> str:
    # Not in the repository's root, where mypy and `python -c` would find the source tree.
    result = subprocess.run(
        command,
        cwd=ROOT / "tests" / "python",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_user_s_program_and_pyflowk_pass_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    # Silent about the modules that these import, as mypy is about installed packages.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    run(*mypy, "typed_user.py", MYPYPATH=str(ROOT))
    # pyflowk and the tools, without what needs packages that have no types, and without files of absent frameworks.
    exclude = r"tools/(flowk_build|release_wheel)"
    if not all(map(importlib.util.find_spec, ("torch", "jax"))):
        exclude += r"|pyflowk/(_torch|_jax|distributed|torch)/|pyflowk/jax\.py"
    untyped = ["--untyped-calls-exclude=torch", "--untyped-calls-exclude=jax"]  # much of both has no types
    run(*mypy, str(ROOT / "pyflowk"), str(ROOT / "tools"), "--exclude", exclude, *untyped)


def test_help_shows_the_functions() -> None:
    text = run(sys.executable, "-c", "import pyflowk; help(pyflowk)", PAGER="cat")
    assert "permute(x: " in text
    assert "relu(x: " in text


def test_importing_pyflowk_takes_little_time() -> None:
    code = "import time, numpy; start = time.perf_counter(); import pyflowk; print(time.perf_counter() - start)"
    assert min(float(run(sys.executable, "-c", code)) for _ in range(5)) < 0.03  # seconds
