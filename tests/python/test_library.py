# SPDX-License-Identifier: Apache-2.0
"""How the libraries are found, what FLOWK_LIBRARY does, and the two commands of `python -m pyflowk`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyflowk import FlowkError, Status, __version__, get_include, get_library
from pyflowk._calls import call_path
from pyflowk._commands import info
from pyflowk._elementwise import jit
from pyflowk._native import driver
from pyflowk._native import library as _library

# Not the repository's root: `python -c` would import pyflowk from there, and not the one that is installed.
FOLDER = Path(__file__).parent


def run_command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"from pyflowk.__main__ import main; import sys; sys.argv[1:] = {list(words)}; sys.exit(main())"
    return run_python(code, **environment)


def run_python(code: str, folder: Path = FOLDER, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "FLOWK_LIBRARY"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**kept, **environment}, cwd=folder, capture_output=True, text=True, timeout=120)


PERMUTE_NUMPY = "import numpy, pyflowk; print(pyflowk.permute(numpy.ones((2, 3)), (1, 0)).shape)"


@pytest.mark.usefixtures("host_library")
def test_flowk_library_may_name_a_file_or_a_folder(tmp_path: Path) -> None:
    file = Path(_library.open_backend("simt")._name)
    copy = shutil.copy(file, tmp_path / "any_name.so")
    shutil.copy(file, tmp_path / "libflowk_simt.so.1")
    for choice in (copy, tmp_path):
        assert run_python(PERMUTE_NUMPY, FLOWK_LIBRARY=str(choice)).stdout == "(3, 2)\n"


SAME_FUNCTIONS = """
import ctypes, sys
from pyflowk._native import abi
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
for name in abi.FUNCTIONS:
    assert len({ctypes.cast(getattr(library, name), ctypes.c_void_p).value for library in libraries}) == 1, name
print("same")
"""


@pytest.mark.parametrize("backend", ["simt", "cuda"])
def test_the_name_without_a_version_is_the_same_library(backend: str) -> None:
    path = _library.installed_path(backend)
    if path is None or os.path.basename(path) != _library.FILE_NAMES[backend]:
        pytest.skip(f"the {backend} library is not installed")
    name = path.removesuffix(".1")
    for order in ([name, path], [path, name]):
        result = run_python(f"import sys; sys.argv[1:] = {order}\n{SAME_FUNCTIONS}")
        assert result.stdout == "same\n", result.stderr
    if backend == "simt":
        assert run_python(PERMUTE_NUMPY, FLOWK_LIBRARY=name).stdout == "(3, 2)\n"
        code = "from pyflowk._native import library; library.for_device(0, 'x')"
        assert "takes host arrays only" in run_python(code, FLOWK_LIBRARY=name).stderr


@pytest.mark.usefixtures("host_library")
def test_flowk_library_may_be_a_file_name_in_the_current_folder(tmp_path: Path) -> None:
    shutil.copy(_library.open_backend("simt")._name, tmp_path / "any_name.so")
    paths = [path for path in sys.path if path and Path(path, "pyflowk").is_dir()]
    result = run_python(PERMUTE_NUMPY, tmp_path, FLOWK_LIBRARY="any_name.so", PYTHONPATH=os.pathsep.join(paths))
    assert result.stdout == "(3, 2)\n", result.stderr


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


def test_a_missing_library_names_each_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWK_LIBRARY", raising=False)
    monkeypatch.setitem(_library.FILE_NAMES, "simt", "libflowk_none.so")
    monkeypatch.setattr(_library, "_opened", {})
    with pytest.raises(
        ImportError, match=r"libflowk_none\.so is not found \(looked for (.*)\); FLOWK_LIBRARY"
    ) as caught:
        _library.open_backend("simt")
    places = str(caught.value).partition("looked for ")[2].partition(");")[0].split(", ")
    assert len(places) == len(set(places)) >= 2
    assert places[-1] == "the system loader's folders"


def test_a_build_without_cuda_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLOWK_LIBRARY", str(tmp_path))
    monkeypatch.setattr(_library, "_opened", {})
    with pytest.raises(FlowkError) as caught:
        _library.open_backend("cuda")
    assert "without CUDA" not in caught.value.message
    (tmp_path / _library.FILE_NAMES["simt"]).touch()
    with pytest.raises(FlowkError, match="it was built without CUDA") as caught:
        _library.open_backend("cuda")
    assert caught.value.status == Status.NO_DEVICE
    assert caught.value.message.count(str(tmp_path)) == 1


def test_importing_pyflowk_imports_neither_frameworks_nor_cuda_core() -> None:
    code = "import sys, pyflowk; print([m for m in ('torch', 'cupy', 'jax', 'cuda.core') if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"


def test_without_ml_dtypes_a_typo_is_a_type_error_and_its_types_name_the_package() -> None:
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy, pyflowk
for call in lambda: pyflowk.cast(numpy.ones(3), "typo"), lambda: pyflowk.empty(3, "bfloat16"):
    try:
        call()
    except (TypeError, ImportError) as error:
        print(type(error).__name__, error)
"""
    typo, missing = run_python(code).stdout.splitlines()
    assert typo.startswith("TypeError dtype = 'typo', must name one of bool, int8")
    assert missing == "ImportError dtype = 'bfloat16': NumPy has this type from ml_dtypes (pip install ml_dtypes)"


def test_info_says_what_is_missing() -> None:
    result = run_command("info")
    assert result.returncode == 0, result.stderr
    for label in ("pyflowk", "libflowk", "libflowk_simt", "device", "program cache", "numpy", "cuda.core"):
        assert f"\n{label}" in "\n" + result.stdout


@pytest.mark.parametrize("command", ["", "info", "demo", "bench", "tune"])
def test_each_help_ends_with_examples(command: str) -> None:
    text = run_command(*filter(None, (command, "--help"))).stdout
    examples = text.partition("\nexamples:\n")[2].splitlines()
    assert examples and all("pyflowk" in line for line in examples)


def test_without_a_command_it_is_info() -> None:
    assert run_command().stdout == run_command("info").stdout != ""


def test_info_lists_frameworks_and_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info.metadata, "version", {"torch": "2.13.0", "cupy-cuda12x": "14.0"}.get)
    lines = dict(info._lines())
    assert (lines["PyTorch"], lines["CuPy"]) == ("2.13.0", "14.0")
    assert lines["JAX"] == "not installed: pip install 'jax[cuda13]'"


def test_info_says_why_there_is_no_program_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_path, "program_cache", lambda: None)
    assert dict(info._lines())["program cache"].startswith("none: this pyflowk was built without Python's headers")


def test_in_a_source_tree_the_program_cache_is_the_installed_package_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FLOWK_LIBRARY", raising=False)
    monkeypatch.setattr(info.metadata, "distribution", lambda name: SimpleNamespace(locate_file=tmp_path.joinpath))
    assert str(tmp_path / "pyflowk" / "_calls" / "_program_cache.abi3.so") in call_path._paths()


def test_info_takes_no_folder_for_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "folder_only").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert info._package_version("folder_only") == "missing: No module named 'folder_only'"


def test_the_help_names_all_operators_and_there_is_a_version() -> None:
    text = " ".join(run_command("--help").stdout.split())
    for word in ("permute", "elementwise operations", "PReLU", "masked softmax", "--version"):
        assert word in text
    assert run_command("--version").stdout == f"pyflowk {__version__}\n"


@pytest.mark.skipif(driver.device_count() > 0, reason="there is a GPU")
def test_a_demo_that_cannot_run_says_why_in_a_sentence() -> None:
    result = run_command("demo", FLOWK_LIBRARY="cuda")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == (
        "the demo cannot run: FLOWK_LIBRARY=cuda takes device arrays only, and no GPU can be used (NO_DEVICE)\n"
    )


@pytest.mark.usefixtures("host_library")
def test_the_demo_is_right_on_the_host() -> None:
    result = run_command("demo", FLOWK_LIBRARY=os.environ.get("FLOWK_LIBRARY") or "simt")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("equal to NumPy's, bit for bit") == 4
    assert len(result.stdout.splitlines()) == 10
    assert "GB/s" not in result.stdout


@pytest.mark.usefixtures("host_library")
def test_a_verbose_demo_shows_the_plans() -> None:
    result = run_command("demo", "--verbose", FLOWK_LIBRARY=os.environ.get("FLOWK_LIBRARY") or "simt")
    assert result.stdout.count("of shared memory") >= 1


def test_the_headers_of_formulas_are_found() -> None:
    folder = Path(jit.include_folders()[0])
    assert (folder / "flowk" / "detail" / "elementwise_kernel.cuh").is_file()
    assert len(jit._header_digest()) == 32


# ---- for C and C++ programs -----------------------------------------------------------------------------------------


def test_get_include_is_the_folder_of_the_headers() -> None:
    assert {"flowk.h", "flowk.hpp", "elementwise.cuh"} <= set(os.listdir(Path(get_include(), "flowk")))


@pytest.mark.usefixtures("host_library")
def test_get_library_is_the_file_that_is_loaded() -> None:
    loaded = Path(_library.open_backend("simt")._name)
    assert Path(get_library(simt=True)).samefile(loaded)
    printed = run_command("--libs", "--simt", FLOWK_LIBRARY=str(loaded)).stdout.split()
    assert Path(printed[0]).samefile(loaded)
    assert printed[1] == f"-Wl,-rpath,{os.path.dirname(printed[0])}"
    # --libs names libflowk_simt alone if there is no libflowk.
    assert run_command("--libs", FLOWK_LIBRARY=str(loaded)).stdout.split() == printed
    # Of the package that the command imports, which may be the installed one.
    flag = run_command("--cflags", FLOWK_LIBRARY=str(loaded)).stdout
    for folder in (flag.removeprefix("-I").removesuffix("\n"), get_include()):
        assert Path(folder, "flowk", "flowk.h").is_file()


def test_a_missing_library_or_folder_is_an_error(tmp_path: Path) -> None:
    for options in (["--libs"], ["--libs", "--simt"], ["--cmakedir"], ["--pkgconfigdir"]):
        result = run_command(*options, FLOWK_LIBRARY=str(tmp_path))
        assert result.returncode == 1 and "not found" in result.stderr and result.stdout == ""


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("words", [["info"], ["--libs", "--simt"], ["--cflags"], ["demo"]])
def test_a_pipe_without_a_reader_ends_a_command_in_silence(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run([sys.executable, "-m", "pyflowk", *words], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (result.returncode, result.stderr) == (128 + 13, "")


@pytest.mark.parametrize("words", [["info", "--libs"], ["--cflags", "info"], ["--simt"], ["--libs=x"]])
def test_the_command_line_is_checked(words: list[str]) -> None:
    assert run_command(*words).returncode == 2
