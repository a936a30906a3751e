# SPDX-License-Identifier: Apache-2.0
"""The examples of README and of the documentation's pages run as they stand there: fenced blocks marked c, cpp, cuda,
cmake and python. A block marked text is what the Python block before it prints."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from source_tree import ROOT
from test_examples import Installed, flowk, meson, run, tool

from pyflowk import FlowkError, _linking
from pyflowk._commands import bench
from pyflowk._native import driver
from pyflowk._native import library as _library

__all__ = ["flowk"]  # a fixture

FLAGS = {"c": ["-std=c11"], "cpp": ["-std=c++17"]}
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs" / "pages").glob("*.md"))]


class Block(NamedTuple):
    language: str
    text: str
    prints: str | None  # what a Python block prints, if the document says so


def blocks_of(document: Path) -> list[Block]:
    """The fenced blocks of a document that have a language."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)
    blocks: list[Block] = []
    for language, text in found:
        if language == "text":
            blocks[-1] = blocks[-1]._replace(prints=text)
        else:
            blocks.append(Block(language, text, None))
    return blocks


def parameters(*languages: str) -> list[object]:
    return [
        pytest.param(block, id=f"{document.stem}-{number}")
        for document in DOCUMENTS
        if document.exists()
        for number, block in enumerate(blocks_of(document))
        if block.language in languages
    ]


def test_readme_is_short() -> None:
    blocks = [
        text.rstrip() for _, text in re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    ]
    assert len(README.read_text().splitlines()) <= 130
    assert sum(len(text.splitlines()) for text in blocks) <= 40


def simt_library() -> Path:
    try:
        return Path(_library.open_backend("simt")._name).resolve()
    except (FlowkError, ImportError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("document", ["README", "getting_started"])
def test_what_a_reader_begins_with_has_an_example(document: str) -> None:
    languages = {"README": {"c", "cpp", "python"}, "getting_started": {"python"}}[document]
    blocks = blocks_of(next(path for path in DOCUMENTS if path.stem == document))
    assert languages <= {block.language for block in blocks}
    assert any("import cupy" in block.text for block in blocks)


@pytest.mark.parametrize("block", parameters("python"))
def test_python_example_runs(block: Block, tmp_path: Path) -> None:
    simt_library()
    for framework in ("cupy", "torch", "jax"):
        if re.search(rf"^import .*\b{framework}\b", block.text, re.MULTILINE):
            pytest.importorskip(framework)
    if 'device="cuda"' in block.text and driver.device_count() == 0:
        pytest.skip("needs a GPU")
    program = tmp_path / "example.py"
    program.write_text(block.text)
    command, variables = [sys.executable, str(program)], {}
    if "init_process_group" in block.text:
        command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert printed.returncode == 0, printed.stderr
    if block.prints is not None:
        assert printed.stdout.rstrip() == block.prints.rstrip()


@pytest.mark.parametrize("block", parameters("c", "cpp"))
def test_c_example_compiles_without_a_warning_and_a_program_runs(block: Block, tmp_path: Path) -> None:
    compiler = tool("cc", "CC") if block.language == "c" else tool("c++", "CXX")
    library = simt_library()
    source, program = tmp_path / f"example.{block.language}", tmp_path / "example"
    source.write_text(block.text)
    flags = [*FLAGS[block.language], "-Wall", "-Werror", "-pedantic", f"-I{ROOT / 'include'}"]
    if (
        "int main(" not in block.text
    ):  # a part of the reader's program, which takes pointers of a GPU: it is compiled, and not run
        run(*compiler.split(), *flags, "-c", source, "-o", program)
        return
    run(*compiler.split(), *flags, source, library, "-o", program)
    # The loader's path, not an rpath: what the example's build line would get from an installed library.
    run(program, folder=tmp_path, LD_LIBRARY_PATH=library.parent)


@pytest.mark.parametrize("block", parameters("cuda"))
def test_cuda_example_compiles(block: Block, tmp_path: Path) -> None:
    nvcc = tool("nvcc")
    source = tmp_path / "example.cu"
    source.write_text(block.text)
    run(nvcc, "-std=c++20", "-arch=sm_90", f"-I{_linking.get_include()}", "-c", source, "-o", tmp_path / "example.o")


def test_commands_of_the_bench_name_cases_and_sets_that_exist() -> None:
    parser, commands = argparse.ArgumentParser(), 0
    bench.add_arguments(parser)
    for document in DOCUMENTS:
        for line in re.findall(
            r"^python -m pyflowk bench (.*)$|`python -m pyflowk bench (\w.*?)`", document.read_text(), re.M
        ):
            words = shlex.split("".join(line))
            if words != ["--help"]:
                assert bench._cases(parser.parse_args(words)), line
                commands += 1
    assert commands >= 7


def write_first_c_program(folder: Path, language: str, build_file: str) -> None:
    """main.c of the page on C, and its project in a language of builds."""
    blocks = blocks_of(ROOT / "docs" / "pages" / "c_and_cpp.md")
    for kind, name in (("c", "main.c"), (language, build_file)):
        (folder / name).write_text(next(block.text for block in blocks if block.language == kind))


def test_meson_example_builds_the_first_c_program(flowk: Installed, tmp_path: Path) -> None:
    tool("pkg-config", "PKG_CONFIG")
    write_first_c_program(tmp_path, "meson", "meson.build")
    build = tmp_path / "build"
    meson("setup", build, tmp_path, PKG_CONFIG_PATH=flowk.pkgconfig)
    meson("compile", "-C", build)
    run(build / "main", LD_LIBRARY_PATH=flowk.libraries)


def test_cmake_example_builds_the_first_c_program(flowk: Installed, tmp_path: Path) -> None:
    cmake, build = tool("cmake"), tmp_path / "build"
    write_first_c_program(tmp_path, "cmake", "CMakeLists.txt")
    run(cmake, "-S", tmp_path, "-B", build, f"-Dflowk_DIR={flowk.cmake}")
    run(cmake, "--build", build)
    run(build / "main", LD_LIBRARY_PATH=flowk.libraries)
