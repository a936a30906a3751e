# SPDX-License-Identifier: Apache-2.0
"""The rules that keep the house in order: those of .pre-commit-config.yaml, who includes whom, no file forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCE_ENDINGS = {".c", ".h", ".cpp", ".cu", ".cuh", ".py", ".build"}


def files_of(*folders: str) -> list[Path]:
    """The project's own files below these folders, relative to the root."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    return [path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts and path.suffix != ".so"]


def pygrep_rules() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return [hook for repo in config["repos"] for hook in repo["hooks"] if hook["language"] == "pygrep"]


def broken_lines(rule: dict[str, Any], name: str, text: str) -> Iterator[str]:
    """The lines of a file that break a rule: what pre-commit's pygrep prints."""
    if re.search(rule["files"], name) and not re.search(rule.get("exclude", "^$"), name):
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(rule["entry"], line):
                yield f"{name}:{number}: {line.strip()}"


RULES = {rule["id"]: rule for rule in pygrep_rules()}

# For each rule a line that breaks it, where it stands, and lines near it that do not.
EXAMPLES = {
    "no-triple-chevron": ("cuda/permute/permute.cu", "kernel<<<1, 32>>>();", ["a << b", "cout << 1"]),
    "launch-only-in-launch": ("cuda/permute/permute.cu", "cudaLaunchKernelEx(&c, k);", ["launch(k, c);"]),
    "shared-only-in-shared": ("cuda/permute/a.cuh", "__shared__ int x[4];", ["shared<Tile>()"]),
    "no-allocation-no-synchronisation": (
        "cuda/api/permute_api.cpp",
        "cudaStreamSynchronize(stream);",
        ["cudaGetLastError();", "__syncthreads();"],
    ),
    "host-files-have-no-cuda-include": (
        "cuda/permute/permute_plan.h",
        "#include <cuda_runtime.h>",
        ['#include "core/device.h"', "#include <vector>"],
    ),
    "kernels-take-the-language-from-target": (
        "cuda/permute/a.cuh",
        "#include <cuda_fp16.h>",
        ['#include "flowk/detail/target.cuh"', "#include <cuda/std/utility>", "#include <cstdint>"],
    ),
    "no-printing-no-exit-no-throw": (
        "cuda/core/shape.cpp",
        'std::printf("here");',
        [
            "std::snprintf(text, 3, x);",
            "// never throws, never calls exit()",
            "[[gnu::format(printf, 2, 3)]] void f();",
        ],
    ),
    "names-say-the-mechanism": (
        "cuda/permute/a.cuh",
        "__global__ void transpose_fast(int* x) {",
        ["// a fast path = good", "tiled_transpose(x);", "breakfast(x);", 'asm("ld.global.v2.u32 {%0};");'],
    ),
    "todo-names-an-issue": ("cuda/api/permute_api.cpp", "// TODO: later", ["// TODO(#12): later"]),
    "python-needs-numpy-and-cuda-only": ("pyflowk/_array.py", "import torch", ["import numpy", "# from torch"]),
}


@pytest.mark.parametrize("rule_id", RULES)
def test_rule_finds_what_it_forbids_and_nothing_else(rule_id: str) -> None:
    name, forbidden, allowed = EXAMPLES[rule_id]
    assert list(broken_lines(RULES[rule_id], name, forbidden))
    assert not list(broken_lines(RULES[rule_id], name, "\n".join(allowed)))


@pytest.mark.parametrize("rule_id", RULES)
def test_no_file_breaks_the_rule(rule_id: str) -> None:
    paths = [path for path in files_of("cuda", "include", "pyflowk", "tests", "bench") if path.suffix in SOURCE_ENDINGS]
    broken = [
        line for path in paths for line in broken_lines(RULES[rule_id], path.as_posix(), (ROOT / path).read_text())
    ]
    assert not broken, RULES[rule_id]["name"]


def may_include(path: Path, included: str) -> bool:
    """What cuda/meson.build says: api -> operators -> core, and the executor only through launch.cuh."""
    place = path.relative_to("cuda").parts[0]
    target = included.partition("/")[0]
    if target in ("flowk", place):
        return True
    if place == "api":
        return target != "simt"
    if place == "core":
        return target == "simt" and path.name == "launch.cuh"
    if place == "simt":
        return included == "core/launch_config.h"
    return target == "core"


def test_includes_point_from_api_to_operators_to_core() -> None:
    wrong = [
        f"{path} includes {included}"
        for path in files_of("cuda")
        for included in re.findall(r'^\s*#\s*include\s*"(.*)"', (ROOT / path).read_text(), re.MULTILINE)
        if not may_include(path, included)
    ]
    assert not wrong


def test_every_source_is_named_in_a_meson_build() -> None:
    sources = {
        "cuda": [path for path in files_of("cuda") if path.suffix in (".cpp", ".cu")],
        "pyflowk": [path for path in files_of("pyflowk") if path.suffix == ".py" and len(path.parts) == 2],
        "include": [path for path in files_of("include") if path.suffix in (".h", ".cuh")],
        "tests": [path for path in files_of("tests/c", "tests/cpp") if path.suffix in (".c", ".cpp")],
    }
    missing = []
    for folder, paths in sources.items():
        lists = "".join((ROOT / path).read_text() for path in files_of(folder) if path.name == "meson.build")
        missing += [
            f"no meson.build below {folder}/ names {path}"
            for path in paths
            if not re.search(rf"['/]{re.escape(path.stem if folder == 'tests' else path.name)}'", lists)
        ]
    assert not missing


def test_every_source_says_its_license_on_top() -> None:
    paths = [path for path in files_of("cuda", "include", "pyflowk", "tests", "bench") if path.suffix in SOURCE_ENDINGS]
    silent = [
        str(path) for path in paths if "SPDX-License-Identifier: Apache-2.0" not in (ROOT / path).read_text()[:200]
    ]
    assert not silent


def test_the_folder_cuda_is_no_python_package() -> None:
    assert not list((ROOT / "cuda").rglob("__init__.py")), "it would hide cuda-python's namespace package"
