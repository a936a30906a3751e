# SPDX-License-Identifier: Apache-2.0
"""The tools of bench/ that need PyTorch, in small on the CPU: test_transformer_trains.py checks what they train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT, tool_at

torch = pytest.importorskip("torch")

BENCH = ROOT / "bench"
if torch.cuda.is_available():
    pytest.skip("on a GPU the tools themselves run", allow_module_level=True)


def run_tool(path: str, *words: Any) -> str:
    result = subprocess.run(
        [sys.executable, BENCH / path, *map(str, words)],
        env={**os.environ, "FLOWK_SIMT_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_bench_of_calls_runs_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    tool = tool_at("bench/bench_calls.py")
    tool.NUM_CALLS = tool.NUM_ROUNDS = 1
    tool.main([])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20 and sum("absent" in line for line in lines) < len(lines) / 2


def test_a_small_training_writes_its_figures(tmp_path: Path) -> None:
    run_tool("transformer/train.py", "--device=cpu", "--steps=5", "--variant=flowk", "--json", tmp_path / "run.json")
    result = json.loads((tmp_path / "run.json").read_text())
    assert result["device"] == "CPU" and len(result["transformers"][0]["runs"][0]["losses"]) == 5


@pytest.mark.parametrize("path", ["transformer/measure_training.py", "transformer/plot_runs.py", "image_pipeline.py"])
def test_a_tool_describes_itself(path: str) -> None:
    if path.endswith("plot_runs.py"):
        pytest.importorskip("matplotlib")
    assert "json" in run_tool(path, "--help")


def test_the_bench_of_redistributions_needs_two_gpus() -> None:
    result = subprocess.run([sys.executable, BENCH / "bench_redistribute.py"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (1, "needs 2 GPUs at least\n")
