# SPDX-License-Identifier: Apache-2.0
"""Every way from another project to flowk: tests/examples/ built out of tree and run. flowk is the installed wheel, or
in a source tree a prefix with what `meson install` puts there and the library under test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from source_tree import ROOT

from pyflowk import FlowkError, _linking
from pyflowk._native import driver
from pyflowk._native import library as _library

EXAMPLES = ROOT / "tests" / "examples"
SCRIPTS = str(Path(sys.executable).parent)  # a virtual environment's ninja, if it is not activated


class Installed(NamedTuple):
    include: Path
    libraries: Path  # the folder
    pkgconfig: Path
    cmake: Path


def run(*command: str | Path, folder: Path | None = None, **environment: str | Path) -> str:
    path = os.pathsep.join([SCRIPTS, os.environ.get("PATH", os.defpath)])
    variables = {**os.environ, "PATH": path, **{name: str(value) for name, value in environment.items()}}
    result = subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    if result.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}", pytrace=False)
    return result.stdout


def tool(name: str, variable: str = "") -> str:
    found = shutil.which(os.environ.get(variable) or name) or shutil.which(name, path=SCRIPTS)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def meson(*words: str | Path, **environment: str | Path) -> str:
    pytest.importorskip("mesonbuild")
    return run(sys.executable, "-m", "mesonbuild.mesonmain", *words, **environment)


@pytest.fixture(scope="module")
def flowk(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    try:
        simt = Path(_linking.get_library(simt=True))
    except (FlowkError, ImportError) as error:
        pytest.skip(str(error))
    include, libraries = Path(_linking.get_include()), simt.parent
    if not (libraries / "pkgconfig").is_dir():
        folder = tmp_path_factory.mktemp("flowk")
        prefix, build = folder / "prefix", folder / "build"
        meson("setup", build, ROOT, f"--prefix={prefix}", "--libdir=lib", "-Dcuda=disabled", "-Dtests=false")
        meson("install", "-C", build, "--no-rebuild", "--tags=devel", "--quiet")
        include, libraries = prefix / "include", prefix / "lib"
        shutil.copy(simt, libraries / "libflowk_simt.so.1")
        link = libraries / "libflowk_simt.so"
        link.unlink(missing_ok=True)
        link.symlink_to("libflowk_simt.so.1")
    return Installed(include, libraries, libraries / "pkgconfig", libraries / "cmake" / "flowk")


def flags_of_pkg_config(flowk: Installed, *names: str) -> list[str]:
    pkg_config = tool("pkg-config", "PKG_CONFIG")
    return run(pkg_config, "--cflags", "--libs", *names, PKG_CONFIG_PATH=flowk.pkgconfig).split()


def cuda_toolkit() -> Path:
    nvcc = Path(os.path.realpath(tool("nvcc")))
    lines = run(nvcc, "--dryrun", "-c", "any.cu").splitlines()
    return Path(next(line.partition("=")[2].strip() for line in lines if line.startswith("#$ TOP=")))


def libflowk() -> Path:
    """libflowk on a machine with a GPU; skips if there is none."""
    try:
        library = _library.installed_path("cuda")
    except ImportError:
        library = None
    if library is None or driver.device_count() == 0:
        pytest.skip("no libflowk, or no GPU")
    return Path(library)


def test_c_by_pkg_config(flowk: Installed, tmp_path: Path) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    program = tmp_path / "executor"
    run(tool("cc", "CC"), *flags, EXAMPLES / "executor.c", *flags_of_pkg_config(flowk, "flowk_simt"), "-o", program)
    assert "plane 1 begins with 1, 4" in run(program, LD_LIBRARY_PATH=flowk.libraries)


def test_c_by_the_name_without_a_version(flowk: Installed, tmp_path: Path) -> None:
    """As in a wheel, which holds no symbolic link. The program needs libflowk_simt.so.1 alone."""
    compiler, name = tool("cc", "CC"), tmp_path / "libflowk_simt.so"
    shutil.copy(flowk.libraries / "libflowk_simt.so.1", tmp_path)
    files = [ROOT / "cuda/packaging/unversioned_library.py", flowk.include / "flowk/flowk.h", ROOT / "cuda/flowk.map"]
    run(sys.executable, *files, "libflowk_simt.so.1", name, compiler)
    load = f"import ctypes; print(ctypes.CDLL({str(name)!r}).flowk_version())"
    assert run(sys.executable, "-c", load) == "100\n"
    program = tmp_path / "executor"
    run(
        compiler,
        "-std=c11",
        EXAMPLES / "executor.c",
        f"-I{flowk.include}",
        f"-L{tmp_path}",
        "-lflowk_simt",
        "-o",
        program,
    )
    name.unlink()
    assert "plane 1 begins with 1, 4" in run(program, LD_LIBRARY_PATH=tmp_path)


def test_valgrind_finds_no_error_in_the_executor(flowk: Installed, tmp_path: Path) -> None:
    valgrind, compiler = tool("valgrind"), tool("cc", "CC")
    header = subprocess.run([compiler, "-E", "-include", "valgrind/memcheck.h", "-xc", os.devnull], capture_output=True)
    if header.returncode != 0:
        pytest.skip("valgrind/memcheck.h is not installed")
    program = tmp_path / "executor"
    flags = [f"-I{flowk.include}", flowk.libraries / "libflowk_simt.so.1"]
    run(compiler, "-std=c11", EXAMPLES / "executor.c", *flags, "-o", program)
    run(valgrind, "--quiet", "--error-exitcode=1", program, LD_LIBRARY_PATH=flowk.libraries)


def test_cpp_by_pkg_config(flowk: Installed, tmp_path: Path) -> None:
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    program = tmp_path / "attention"
    run(
        tool("c++", "CXX"), *flags, EXAMPLES / "attention.cpp", *flags_of_pkg_config(flowk, "flowk_simt"), "-o", program
    )
    assert "dst has extent 3 in dimension 0, must be 2" in run(program, LD_LIBRARY_PATH=flowk.libraries)


def test_cpp_by_the_flags_that_pyflowk_prints(flowk: Installed, tmp_path: Path) -> None:
    options = ["--cflags", "--libs", "--simt"]
    printed = run(sys.executable, "-m", "pyflowk", *options, folder=tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    program = tmp_path / "attention"
    run(tool("c++", "CXX"), "-std=c++17", EXAMPLES / "attention.cpp", *printed.split(), "-o", program)
    assert "the first row: 1 1 0 0" in run(program)  # by its rpath


def test_cpp_by_cmake(flowk: Installed, tmp_path: Path) -> None:
    cmake = tool("cmake")
    (tmp_path / "examples").mkdir()
    for name in ("CMakeLists.txt", "attention.cpp"):
        shutil.copy(EXAMPLES / name, tmp_path / "examples")
    build = tmp_path / "build"
    run(cmake, "-S", tmp_path / "examples", "-B", build, f"-Dflowk_DIR={flowk.cmake}")
    run(cmake, "--build", build)
    assert "the first row: 1 1 0 0" in run(build / "attention")


@pytest.mark.parametrize(
    ("request_text", "text"),
    [
        ("0.2", "0.1.0"),  # the version that is found and refused
        ("1.0", "0.1.0"),
        ("0.1 COMPONENTS flowk_gpu", "has no libflowk_gpu"),
    ],
)
def test_cmake_refuses_what_is_not_there(flowk: Installed, request_text: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(asks NONE)\nfind_package(flowk {request_text} REQUIRED)\n"
    )
    command = [tool("cmake"), "-S", tmp_path, "-B", tmp_path / "build", f"-Dflowk_DIR={flowk.cmake}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0 and text in " ".join(result.stderr.split())  # CMake breaks lines


def test_meson_dependency(flowk: Installed, tmp_path: Path) -> None:
    tool("pkg-config", "PKG_CONFIG")
    build = tmp_path / "build"
    meson("setup", build, EXAMPLES, PKG_CONFIG_PATH=flowk.pkgconfig)
    meson("compile", "-C", build)
    assert "the first row: 1 1 0 0" in run(build / "attention", LD_LIBRARY_PATH=flowk.libraries)


def test_meson_subproject_is_the_dependency(tmp_path: Path) -> None:
    """The project is configured and not compiled: other tests compile the library."""
    (tmp_path / "subprojects").mkdir()
    (tmp_path / "subprojects" / "flowk").symlink_to(ROOT)
    for name in ("meson.build", "attention.cpp"):
        shutil.copy(EXAMPLES / name, tmp_path)
    options = ["-Dflowk:cuda=disabled", "--force-fallback-for=flowk_simt"]
    printed = meson("setup", tmp_path / "build", tmp_path, *options)
    assert re.search(r"Dependency flowk_simt .* found: YES .*\(overridden\)", printed), printed


def test_a_static_library_says_what_it_needs(tmp_path: Path) -> None:
    """Configured alone, as above."""
    meson("setup", tmp_path, ROOT, "-Ddefault_library=static", "-Dcuda=disabled", "-Dtests=false")
    files = tmp_path / "cuda" / "packaging"
    assert "Libs: -L${libdir} -lflowk_simt -lstdc++ -lm -pthread\n" in (files / "flowk_simt.pc").read_text()
    config = (files / "flowkConfig.cmake").read_text()
    assert 'set(_flowk_needs_flowk_simt "-lstdc++;-lm;-pthread")' in config
    assert "libflowk_simt.a" in (tmp_path / "meson-info" / "intro-targets.json").read_text()


def test_dlopen(flowk: Installed, tmp_path: Path) -> None:
    program = tmp_path / "loaded_at_run_time"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{flowk.include}"]
    run(tool("cc", "CC"), *flags, EXAMPLES / "loaded_at_run_time.c", "-ldl", "-o", program)
    assert run(program, flowk.libraries / "libflowk_simt.so.1") == "0 0.5 2\n"


def assert_all_ranks_are_right(printed: str, ranks: int) -> None:
    lines = sorted(re.findall(r"rank (\d+) of (\d+): 0 of (\d+) elements are wrong", printed))
    assert [(int(rank), int(total)) for rank, total, _ in lines] == [(rank, ranks) for rank in range(ranks)], printed
    assert sum(int(elements) for *_, elements in lines) == 1003 * 771


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_memory_of_other_ranks(flowk: Installed, ranks: int, tmp_path: Path) -> None:
    """Processes that write into each other's memory, by the same program as on GPUs."""
    sources = [EXAMPLES / f"{name}.c" for name in ("peer_memory", "peer_memory_host")]
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{flowk.include}"]
    library, program = flowk.libraries / "libflowk_simt.so.1", tmp_path / "peer_memory"
    run(tool("cc", "CC"), *flags, *sources, library, "-lrt", "-pthread", "-o", program)
    printed = run(program, str(ranks), LD_LIBRARY_PATH=flowk.libraries, FLOWK_SIMT_THREADS="1")
    assert_all_ranks_are_right(printed, ranks)


def test_cffi(flowk: Installed) -> None:
    pytest.importorskip("cffi")
    library = flowk.libraries / "libflowk_simt.so.1"
    assert run(sys.executable, EXAMPLES / "call_by_cffi.py", library) == "[0, 3, 1, 4, 2, 5]\n"


def test_rust(flowk: Installed, tmp_path: Path) -> None:
    program = tmp_path / "call_from_rust"
    search = ["-L", str(flowk.libraries), "-l", "dylib=flowk_simt", "-C", f"link-arg=-Wl,-rpath,{flowk.libraries}"]
    rustc = tool("rustc")
    if subprocess.run([rustc, "--version"], capture_output=True).returncode != 0:
        pytest.skip("rustup has no toolchain")
    run(rustc, "--edition=2021", EXAMPLES / "call_from_rust.rs", *search, "-o", program, folder=tmp_path)
    assert "[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]" in run(program)


def c_program_on_a_gpu(folder: Path, *names: str) -> Path:
    """Compiled everywhere, and linked if there is a GPU."""
    toolkit = cuda_toolkit()
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{_linking.get_include()}"]
    objects = [folder / f"{name}.o" for name in names]
    for name, target in zip(names, objects):
        source = EXAMPLES / f"{name}.c"
        run(tool("cc", "CC"), *flags, "-isystem", toolkit / "include", "-c", source, "-o", target)
    library = libflowk()
    folders = [
        argument for lib in ("lib64", "lib") for argument in (f"-L{toolkit / lib}", f"-Wl,-rpath,{toolkit / lib}")
    ]
    rpath = f"-Wl,-rpath,{library.parent}"
    run(tool("cc", "CC"), *objects, library, rpath, *folders, "-lcudart", "-pthread", "-o", folder / names[0])
    return folder / names[0]


def test_c_on_a_gpu(tmp_path: Path) -> None:
    assert "0 of 196608 elements are wrong" in run(c_program_on_a_gpu(tmp_path, "gpu_stream"))


def test_memory_of_other_ranks_on_gpus(tmp_path: Path) -> None:
    program = c_program_on_a_gpu(tmp_path, "peer_memory", "peer_memory_cuda")
    for ranks in (2, 3):
        assert_all_ranks_are_right(run(program, str(ranks)), ranks)


def test_functor_under_nvcc(tmp_path: Path) -> None:
    architecture = "native" if driver.device_count() > 0 else "sm_90"
    nvcc, flags = tool("nvcc"), ["-std=c++20", f"-arch={architecture}", f"-I{_linking.get_include()}"]
    run(nvcc, *flags, "-c", EXAMPLES / "functor.cu", "-o", tmp_path / "functor.o")
    library, program = libflowk(), tmp_path / "functor"
    linker = [f"-Xlinker={library}", f"-Xlinker=-rpath,{library.parent}"]  # nvcc takes no file that ends in .so.1
    run(nvcc, f"-arch={architecture}", program.with_suffix(".o"), *linker, "-o", program)
    assert "0 elements are wrong" in run(program)
