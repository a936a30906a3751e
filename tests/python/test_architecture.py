# SPDX-License-Identifier: Apache-2.0
"""The rules that keep the house in order: those of .pre-commit-config.yaml, who includes whom, no file forgotten."""

from __future__ import annotations

import ast
import graphlib
import os
import re
import runpy
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from source_tree import ROOT

FOLDERS = ("cuda", "include", "pyflowk", "docs", "tools", "tests", "bench")
SOURCE_ENDINGS = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".build"}


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
    "no-triple-chevron": ("cuda/permute/permute_run.cu", "kernel<<<1, 32>>>();", ["a << b", "cout << 1"]),
    "launch-only-in-launch": ("cuda/permute/permute_run.cu", "cudaLaunchKernelEx(&c, k);", ["launch(k, c);"]),
    "kernel-attributes-in-one-place": (
        "cuda/core/launch.cuh",
        "cudaFuncSetAttribute(kernel, attribute, bytes);",
        ["cudaFuncGetAttributes(&attributes, kernel);"],
    ),
    "shared-only-in-shared": ("cuda/permute/a.cuh", "__shared__ int x[4];", ["shared<Tile>()"]),
    "kernel-parameters-are-grid-constants": (
        "cuda/permute/a.cuh",
        "__global__ void copy_rows(const __grid_constant__ CopyParams params) {",
        [
            "__global__ void copy_rows(const __grid_constant__ GridConstant<CopyParams> params) {",
            "// __grid_constant__.",
        ],
    ),
    "no-allocation-no-synchronisation": (
        "cuda/api/permute_api.cpp",
        "cudaStreamSynchronize(stream);",
        ["cudaGetLastError();", "__syncthreads();"],
    ),
    "host-files-have-no-cuda-include": (
        "cuda/permute/permute.h",
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
        ["// a fast path = good", "aligned_tile(x);", "breakfast(x);", 'asm("ld.global.v2.u32 {%0};");'],
    ),
    "todo-names-an-issue": ("cuda/api/permute_api.cpp", "// TODO: later", ["// TODO(#12): later"]),
    "python-needs-numpy-and-cuda-only": (
        "pyflowk/_arrays/registry.py",
        "import torch",
        ["import numpy", "# from torch"],
    ),
}


@pytest.mark.parametrize("rule_id", RULES)
def test_rule_finds_what_it_forbids_and_nothing_else(rule_id: str) -> None:
    name, forbidden, allowed = EXAMPLES[rule_id]
    assert list(broken_lines(RULES[rule_id], name, forbidden))
    assert not list(broken_lines(RULES[rule_id], name, "\n".join(allowed)))


@pytest.mark.parametrize("rule_id", RULES)
def test_no_file_breaks_the_rule(rule_id: str) -> None:
    paths = [path for path in files_of(*FOLDERS) if path.suffix in SOURCE_ENDINGS]
    broken = [
        line for path in paths for line in broken_lines(RULES[rule_id], path.as_posix(), (ROOT / path).read_text())
    ]
    assert not broken, RULES[rule_id]["name"]


def may_include(path: Path, included: str) -> bool:
    """What cuda/meson.build says: api -> operators -> core, the executor only from launch.cuh and device_simt.cpp."""
    place = path.relative_to("cuda").parts[0]
    target = included.split("/")[0]
    if target in ("flowk", place):
        return True
    if place == "api":
        return target != "simt"
    if place == "core":
        return (path.name, included) == ("device_simt.cpp", "simt/settings.h") or (
            target == "simt" and path.name == "launch.cuh"
        )
    if place == "simt":
        return included == "core/namespaces.h"
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
        "tests": [path for path in files_of("tests/c", "tests/cpp") if path.suffix in (".c", ".cpp")],
    }
    missing = []
    for folder, paths in sources.items():
        lists = "".join((ROOT / path).read_text() for path in files_of(folder) if path.name == "meson.build")
        # A test is named without its ending.
        names = {path: path.stem if folder == "tests" else path.name for path in paths}
        missing += [
            f"no meson.build below {folder}/ names {path}"
            for path, name in names.items()
            if not re.search(rf"['/]{re.escape(name)}'", lists)
        ]
    assert not missing


@pytest.mark.skipif(shutil.which("meson") is None, reason="meson is not installed")
def test_all_of_pyflowk_but_sources_in_c_is_installed(tmp_path: Path) -> None:
    source, build, target = tmp_path / "source", tmp_path / "build", tmp_path / "target"
    for folder in ("cuda", "include", "pyflowk"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("meson.build", "meson.options", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for module in (source / "pyflowk").rglob("*.py"):  # as if all modules had been imported there
        bytecode = module.parent / "__pycache__" / f"{module.stem}.pyc"
        bytecode.parent.mkdir(exist_ok=True)
        bytecode.touch()
    options = ["-Dcuda=disabled", "-Dsimt=false", "-Dtests=false", "-Dpython_package=true", "-Dpython.bytecompile=-1"]
    install = ["meson", "install", "-C", build, "--no-rebuild", "--tags=python-runtime", f"--destdir={target}"]
    for command in (["meson", "setup", build, source, *options], install):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert result.returncode == 0, result.stdout
    (package,) = target.rglob("pyflowk")
    installed = {path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()}
    assert installed == {path for path in files_of("pyflowk") if path.suffix not in (".c", ".h", ".build")}


def test_every_source_says_its_license_on_top() -> None:
    paths = [path for path in files_of(*FOLDERS) if path.suffix in SOURCE_ENDINGS]
    silent = [
        str(path) for path in paths if "SPDX-License-Identifier: Apache-2.0" not in (ROOT / path).read_text()[:200]
    ]
    assert not silent


def imports_of(path: Path) -> set[str]:
    """The modules of pyflowk, as `_native.abi`, that a module of it imports: when it is imported itself, or later, in a
    function; not for type checkers alone. The public functions that DeviceArray and explain() take from the package by
    their names are not seen."""
    module = path.relative_to("pyflowk").with_suffix("").parts
    names = set()
    todo: list[ast.AST] = [ast.parse((ROOT / path).read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*module[: len(module) - node.level], *(node.module.split(".") if node.module else [])]
            names |= {".".join([*base, alias.name]) for alias in node.names} | {".".join(base)}
        elif isinstance(node, ast.Constant) and str(node.value).startswith("pyflowk._"):  # for import_module()
            names.add(str(node.value).removeprefix("pyflowk."))
    return names


def test_pyflowk_has_no_import_cycle() -> None:
    paths = [path for path in files_of("pyflowk") if path.suffix == ".py"]
    modules = {".".join(path.relative_to("pyflowk").with_suffix("").parts): imports_of(path) for path in paths}
    graph = {name: (imported & set(modules)) - {name} for name, imported in modules.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the cycle
    assert order


# The tables, and what is there for one framework.
NAMES_FRAMEWORKS = {
    "_arrays/frameworks.py",
    "_arrays/adapters/cupy.py",
    "_arrays/adapters/numba.py",
    "_native/operator_table.py",
}


def test_what_all_calls_share_names_no_framework() -> None:
    """In code; texts for users name them."""
    wrong = []
    for path in files_of(
        *(f"pyflowk/{name}" for name in ("_arrays", "_calls", "_elementwise", "_native", "_operators"))
    ):
        if path.suffix == ".py" and str(path.relative_to("pyflowk")) not in NAMES_FRAMEWORKS:
            nodes = list(ast.walk(ast.parse((ROOT / path).read_text())))
            names = {getattr(node, name, None) for node in nodes for name in ("id", "attr", "arg", "module", "name")}
            names |= {node.value for node in nodes if isinstance(node, ast.Constant)}
            used = {
                name for name in names if re.fullmatch(r"(\w*[._])?(torch|jax|jaxlib|cupy|numba)([._]\w*)*", str(name))
            }
            wrong += [f"{path}: {name}" for name in sorted(used)]
    assert wrong == []


def test_an_operator_s_parameters_are_written_in_few_files() -> None:
    """Of masked_softmax, which has the most; the others follow from its signature and from flowk.h."""
    texts = {str(path): (ROOT / path).read_text() for path in files_of("pyflowk") if path.suffix in (".py", ".c", ".h")}
    own = {path for path, text in texts.items() if "causal_offset" in text and "Generated by" not in text}
    assert own == {
        "pyflowk/_native/operator_table.py",
        "pyflowk/_operators/softmax.py",
        "pyflowk/_operators/softmax_arguments.py",
        "pyflowk/_operators/softmax_dbias.py",  # an operator with the same masks
    }


def test_the_folder_cuda_is_no_python_package() -> None:
    assert not list((ROOT / "cuda").rglob("__init__.py")), "it would hide cuda-python's namespace package"


# Role files that every folder may have.
SHARED_FILE_NAMES = {"__init__.py", "meson.build"}


def test_file_names_are_unique() -> None:
    paths = files_of(*FOLDERS)
    counts = Counter(path.name for path in paths if path.suffix in SOURCE_ENDINGS)
    twice = {name for name, count in counts.items() if count > 1}
    assert not twice - SHARED_FILE_NAMES


def test_a_vector_and_a_warp_have_their_size_in_one_place() -> None:
    names = r"((vector|pack|chunk)_bytes = 16|(warp_(lanes|threads|size)|lanes_per_warp) = 32)\b"
    pattern = rf"constexpr \w+ (\w+ = \d+, )*{names}"
    found = [str(path) for path in files_of("cuda", "include") if re.search(pattern, (ROOT / path).read_text())]
    assert found == ["include/flowk/detail/sizes.h"]


def test_all_headers_compile_in_one_translation_unit(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    toolkit = runpy.run_path(str(ROOT / "cuda/find_toolkit_headers.py"))["header_folder"]()
    if compiler is None or toolkit is None:
        pytest.skip("no C++ compiler, or no cuda_fp16.h")
    headers = [path for path in files_of("cuda", "include") if path.suffix in (".h", ".hpp", ".cuh")]
    source = tmp_path / "all_headers.cpp"
    source.write_text("".join(f'#include "{path.relative_to(path.parts[0])}"\n' for path in headers))
    includes = [f"-I{ROOT / 'cuda'}", f"-I{ROOT / 'include'}", "-isystem", str(toolkit)]
    flags = ["-std=c++20", "-fsyntax-only", "-DFLOWK_SIMT", "-Wno-unknown-pragmas"]
    result = subprocess.run([*compiler.split(), *flags, *includes, source], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# Plans that launch no kernel of their own.
NO_KERNEL = {"nothing", "no_elements"}


def mechanisms() -> list[tuple[str, str]]:
    """Operator and enumerator of every mechanism: the enumerators of `enum class ...Kernel` below cuda/OPERATOR."""
    found = []
    for path in files_of("cuda"):
        for body in re.findall(r"enum class \w*Kernel\b[^{]*\{(.*?)\}", (ROOT / path).read_text(), re.DOTALL):
            names = re.findall(r"^\s*(\w+)", re.sub(r"//.*", "", body).replace(",", "\n"), re.MULTILINE)
            found += [(path.parts[1], name) for name in names if name not in NO_KERNEL]
    return sorted(set(found))


@pytest.mark.parametrize(("operator", "name"), mechanisms())
def test_a_mechanism_has_one_name(operator: str, name: str) -> None:
    """A kernel, a file and explain()'s word have the enumerator's name, all with or without the operator before it. A
    file of another mechanism may hold the kernel too."""
    paths = [path for path in files_of(f"cuda/{operator}", "include/flowk/detail") if path.suffix in SOURCE_ENDINGS]
    texts = {path: (ROOT / path).read_text() for path in paths}
    words = [
        (path.stem.removeprefix(f"{operator}_"), word)
        for path, text in texts.items()
        for signature in re.findall(r"__global__([^;{]*)", text)
        for word in re.findall(r"(\w+)\(", signature)
    ]
    files = {stem for stem, word in words if re.fullmatch(rf"({operator}_)?{name}(_\w+)?", word)}
    assert files, "no kernel of its name"
    assert files & {other for of, other in mechanisms() if of == operator}, f"the kernel is in {files}"
    assert any(re.search(rf'"({operator}_)?{name}\b', text) for text in texts.values()), "explain() has no such word"


def test_launch_bounds_ask_for_blocks_that_fit() -> None:
    """ptxas ignores a bound of more threads than a multiprocessor of the architecture has, with a warning. Softmax's
    kernel_blocks() is fitting_blocks() of its table."""
    text = "".join((ROOT / path).read_text() for path in files_of("cuda", "include") if path.suffix == ".cuh")
    bounds = re.findall(r"__launch_bounds__\(\s*(?:[\w\[\].]+|\(.*?\)\)),\s*(\w+)", text)
    assert len(bounds) > 20 and set(bounds) == {"fitting_blocks", "kernel_blocks"}
    table = (ROOT / "cuda/softmax/softmax_kernel_table.h").read_text()
    assert re.search(r"int kernel_blocks\(\) \{\s*return fitting_blocks\(", table)


# These functions of the math library are a few instructions. Any other one raises the registers of its kernel.
FEW_INSTRUCTIONS = {"ceil", "copysign", "floor", "fma", "rint", "trunc"}


def test_every_long_formula_has_its_cost() -> None:
    """An operation that is not named in elementwise_op_cost.h shares a kernel with the light ones: a call of the math
    library there takes registers from all of them (logaddexp made float64 additions 5 % slower)."""
    text = (ROOT / "cuda/elementwise/device/elementwise_formulas.cuh").read_text()
    floats = text[text.index("struct FloatFormulas") :]
    formulas = re.findall(r"static T (\w+)\([^)]*\) \{(.*?)(?=__device__|\};\n)", floats, re.DOTALL)
    operations = (ROOT / "include/flowk/elementwise_ops.h").read_text()
    names = dict(re.findall(r"OP\((\w+), \d+, (\w+),", operations))
    cost_of = (ROOT / "cuda/elementwise/elementwise_op_cost.h").read_text()
    costs = {names[op] for op in re.findall(r"case FLOWK_\w+?NARY_(\w+):", cost_of)}
    calls = {name: set(re.findall(r"::(\w+)\(|\b(?:exp|normcdf)_of\(", body)) for name, body in formulas}
    long = {name for name, called in calls.items() if name in names.values() and called - FEW_INSTRUCTIONS}
    assert len(long) > 30
    assert long <= costs


# Names that stand for any operator or mechanism, and files of a reader's own.
PLACEHOLDER = re.compile(r"OP|MECHANISM|main\.c|program\.py")


def test_files_that_a_page_names_exist() -> None:
    own = files_of(*FOLDERS, ".github")
    pages = [Path("README.md"), Path("CONTRIBUTING.md"), *(path for path in own if path.suffix == ".md")]
    missing = [
        f"{page}: {name}"
        for page in pages
        for name in re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|c|h|hpp|cuh|cu|cpp|json|md|yml))`", (ROOT / page).read_text())
        if not PLACEHOLDER.search(name) and not any(f"/{path}".endswith(f"/{name}") for path in own)
    ]
    assert len(pages) > 10
    assert missing == []


def test_commands_of_contributing_name_files_options_and_libraries_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    lines = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for line in block.split("\n")
    ]
    commands = lines + re.findall(r"`([^`]*\b(?:python|pytest|ninja|meson|pip|pre-commit) [^`]*)`", text)
    words = [word.rstrip(".") for command in commands for word in command.partition("#")[0].split()]
    paths = [word for word in words if re.match(r"(bench|docs|tests|tools)/", word) and not word.endswith(".so")]
    libraries = re.findall(r"bench/lib(\w+)\.so", " ".join(words))
    options = [word.partition("=")[0] for word in words if re.match(r"--(campaign|require)", word)]
    assert len(paths) >= 3 and libraries and len(options) >= 2
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    assert [name for name in libraries if f"'{name}'," not in (ROOT / "bench/meson.build").read_text()] == []
    assert [option for option in options if f'"{option}"' not in (ROOT / "tests/conftest.py").read_text()] == []
