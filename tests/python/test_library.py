# SPDX-License-Identifier: Apache-2.0
"""How the libraries are found, what FLOWK_LIBRARY does, and the two commands of `python -m pyflowk`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyflowk._elementwise import jit
from pyflowk._native import library as _library


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "FLOWK_LIBRARY"}
    command = [sys.executable, "-c", code]
    # Not in the repository's root: `python -c` would import pyflowk from there, and not the one that is installed.
    folder = Path(__file__).parent
    return subprocess.run(command, env={**kept, **environment}, cwd=folder, capture_output=True, text=True, timeout=120)


PERMUTE_NUMPY = "import numpy, pyflowk; print(pyflowk.permute(numpy.ones((2, 3)), (1, 0)).shape)"


@pytest.mark.usefixtures("host_library")
def test_flowk_library_may_name_a_file_or_a_folder(tmp_path: Path) -> None:
    file = Path(_library.open_backend("simt")._name)
    copy = shutil.copy(file, tmp_path / "any_name.so")
    shutil.copy(file, tmp_path / "libflowk_simt.so.1")
    for choice in (copy, tmp_path):
        assert run_python(PERMUTE_NUMPY, FLOWK_LIBRARY=str(choice)).stdout == "(3, 2)\n"


def test_flowk_library_cuda_refuses_host_arrays() -> None:
    error = run_python(PERMUTE_NUMPY, FLOWK_LIBRARY="cuda").stderr
    assert "TypeError: x is a host array, but FLOWK_LIBRARY=cuda takes device arrays only" in error


@pytest.mark.usefixtures("host_library")
def test_flowk_library_simt_refuses_device_arrays() -> None:
    code = "from pyflowk._native import library; library.for_device(0, 'x')"
    error = run_python(code, FLOWK_LIBRARY="simt").stderr
    assert "TypeError: x is on device 0, but FLOWK_LIBRARY=simt takes host arrays only" in error
    file = _library.open_backend("simt")._name
    assert "takes host arrays only" in run_python(code, FLOWK_LIBRARY=file).stderr


def test_a_library_that_is_missing_or_is_no_flowk_is_named(tmp_path: Path) -> None:
    missing = run_python(PERMUTE_NUMPY, FLOWK_LIBRARY=str(tmp_path / "none.so")).stderr
    assert "ImportError: libflowk_simt.so.1 is not found" in missing
    assert str(tmp_path / "none.so") in missing
    (tmp_path / "libflowk_simt.so.1").write_text("no library")
    for choice in (tmp_path, tmp_path / "libflowk_simt.so.1"):
        assert "ImportError" in (error := run_python(PERMUTE_NUMPY, FLOWK_LIBRARY=str(choice)).stderr)
        assert "libflowk_simt.so.1 does not load" in error


def test_importing_pyflowk_imports_neither_frameworks_nor_cuda_core() -> None:
    code = "import sys, pyflowk; print([m for m in ('torch', 'cupy', 'jax', 'cuda.core') if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"


def test_info_says_what_is_missing() -> None:
    result = run_python("from pyflowk.__main__ import main; import sys; sys.argv[1:] = ['info']; sys.exit(main())")
    assert result.returncode == 0, result.stderr
    for label in ("pyflowk", "libflowk", "libflowk_simt", "device", "numpy", "cuda.core"):
        assert f"\n{label}" in "\n" + result.stdout


@pytest.mark.usefixtures("host_library")
def test_the_demo_is_right_on_the_host() -> None:
    code = "from pyflowk.__main__ import main; import sys; sys.argv[1:] = ['demo']; sys.exit(main())"
    result = run_python(code, FLOWK_LIBRARY=os.environ.get("FLOWK_LIBRARY") or "simt")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("equal to NumPy's, bit for bit") == 4


def test_the_headers_of_formulas_are_found() -> None:
    folder = Path(jit.include_folders()[0])
    assert (folder / "flowk" / "detail" / "elementwise_kernel.cuh").is_file()
    assert len(jit._header_digest()) == 32
