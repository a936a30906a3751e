# SPDX-License-Identifier: Apache-2.0
"""bench/tune_*.py and profile_permute.py: they load, and candidates are checked and timed with the plan's pick."""

from __future__ import annotations

import ctypes
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_machine import HostMachine
from source_tree import ROOT, tool_at

from pyflowk._bench import machine as bench_machine
from pyflowk._bench import permute_work
from pyflowk._bench.runner import make_work
from pyflowk._native import library


@pytest.mark.parametrize("name", ["tune_elementwise", "tune_permute", "tune_prelu", "tune_softmax", "profile_permute"])
def test_a_tool_describes_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "bench" / f"{name}.py"), run_name="__main__")
    assert end.value.code == 0 and "--json" in capsys.readouterr().out


def prototypes(op: str) -> dict[str, list[str]]:
    """The parameters of the functions of bench/OP_candidates.cpp. tests/cpp/api/test_candidates.cpp calls them."""
    text = (ROOT / "bench" / f"{op}_candidates.cpp").read_text()
    found = re.findall(r"\bint (flowk_bench_\w+_candidate)\((.*?)\) \{", text, re.S)
    return {name: [" ".join(one.split()) for one in parameters.split(",")] for name, parameters in found}


def check_arguments(function: str, parameters: list[str], arguments: tuple[Any, ...]) -> None:
    """That these arguments of a ctypes function without a prototype are what the C function takes."""
    assert len(arguments) == len(parameters), function
    integers = {"int64_t": 8, "size_t": 8, "int": 4, "int32_t": 4, "flowk_dtype": 4}
    for argument, parameter in zip(arguments, parameters):
        words = parameter.split()
        if "*" in parameter or words[0] == "flowk_stream":
            is_right = argument is None or isinstance(
                argument, (ctypes.c_void_p, ctypes.Array, ctypes.c_char_p, type(ctypes.byref(ctypes.c_int())))
            )
        elif words[0] == "double":
            is_right = isinstance(argument, ctypes.c_double)
        else:
            num_bytes = 4 if isinstance(argument, int) else ctypes.sizeof(argument)
            is_right = not isinstance(argument, (float, ctypes.c_double)) and num_bytes == integers[words[0]]
        assert is_right, f"{function}: {parameter} gets {argument!r}"


@pytest.mark.parametrize(
    ("op", "words", "status"),
    [
        ("elementwise", "copy f32,f16 300", 1),
        ("permute", "f32 30x40 1,0", 2),  # no such choice
        ("permute", "u8>f16 30x40 1,0 0.5", 2),
        ("prelu", "f16 3x5x4x4 backward", 1),
        ("softmax", "plain f32 7x100", 1),
    ],
)
def test_a_tool_times_the_pick_where_no_candidate_fits(
    op: str, words: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simt, made = library.open_backend("simt"), []

    def candidate(name: str) -> Any:
        def call(*arguments: Any) -> int:
            made.append(name)
            check_arguments(name, prototypes(op)[name], arguments)
            return status

        return call

    for name in prototypes(op):
        monkeypatch.setattr(simt, name, candidate(name), raising=False)
    monkeypatch.setattr(library, "open_backend", lambda backend: simt)
    monkeypatch.setattr(bench_machine, "Machine", HostMachine)
    monkeypatch.syspath_prepend(ROOT / "bench")
    for module in ("candidates", "tuning.generate_tuning"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [f"tune_{op}", words])
    runpy.run_path(str(ROOT / "bench" / f"tune_{op}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert made
    # Without a tile there is nothing to time for permute.
    assert lines[-1].startswith("== 0 cases" if op == "permute" else "== 1 cases: pick 1.000 best 1.000")


def test_the_profile_knows_every_kernel_of_permute() -> None:
    tool = runpy.run_path(str(ROOT / "bench" / "profile_permute.py"))
    pattern = tool["KERNELS"].removeprefix("regex:")
    kernels = [
        name
        for path in (ROOT / "cuda/permute").rglob("*.cuh")
        for name in re.findall(r"__global__\s+void\s+__launch_bounds__\(.*?\)\s+(\w+)\(const", path.read_text(), re.S)
    ]
    assert "aligned_tile" in kernels and len(kernels) == 7
    assert [name for name in kernels if not re.search(pattern, name)] == []


def test_candidates_are_checked_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    candidates = tool_at("bench/candidates.py")
    machine = HostMachine()
    work = make_work(machine, "permute", permute_work.case_of_words(["f32", "30x40", "1,0"]))

    def right(i: int) -> int:
        work.run(i)
        return 0

    calls = {"right": right, "fits not": lambda i: candidates.DOES_NOT_FIT, "fails": lambda i: 2, "idle": lambda i: 0}
    row, found = candidates.fractions_of(machine, work, calls, rounds=3)
    assert row["fractions"] == {"flowk": 1.0} and found == {"right": pytest.approx(1.0)}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] + " " + line.split()[-1] for line in lines] == ["FAILED fails", "WRONG idle"]
    result = candidates.result_of(row, {"right": 1.25})
    assert (result["pick"], result["candidates"]) == (1.0, {"right": 1.25})
    candidates.finish([result], None)
    assert "pick 1.000 best 1.250" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_the_bench_of_calls_from_c_compiles(tmp_path: Path) -> None:
    """And links, without code for a GPU: to the executor, which has the same functions."""
    file = library.open_backend("simt")._name
    command = ["nvcc", "-std=c++20", "-Werror=all-warnings", f"-I{ROOT / 'include'}", ROOT / "bench" / "bench_calls.cu"]
    result = subprocess.run(
        [*command, "-o", tmp_path / "bench_calls", f"-Xlinker={file}"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_costs_are_fitted_to_measured_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    tuning = json.loads((ROOT / "bench" / "tuning" / "permute_h200.json").read_text())
    tuned = tuning["constants"]["unit_tile_costs"]["value"]
    # The tile that touches more sectors twice is slower, by far more than today's costs say.
    tiles = []
    for fraction, term in ((0.9, 0.001), (0.3, 0.01)):
        terms = dict.fromkeys(tuned, 0) | {"copy": 1, "src_sectors": term}
        tiles.append({"kernel": 3, "unit_bytes": 4, "fraction": fraction, "terms": list(terms.values())})
    rows = [{"types": "f32", "pick": 0.3, "tiles": tiles}] * 10
    (tmp_path / "tiles.json").write_text(json.dumps(rows))
    monkeypatch.setattr(sys, "argv", ["fit_permute", str(tmp_path / "tiles.json")])
    runpy.run_path(str(ROOT / "bench" / "fit_permute.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith(
        "10 cases of 20 tiles, pick over best: 1.000, worst 1.00 -> 1.000, worst 1.00, kept out 1.000"
    )
    costs = json.loads("{" + printed.splitlines()[1] + "}")["unit_tile_costs"]
    assert list(costs) == list(tuned) and costs["src_sectors"] > tuned["src_sectors"]
