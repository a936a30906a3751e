# SPDX-License-Identifier: Apache-2.0
"""bench/bench_calls_jax.py in small: every row runs, and its results are checked."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from jax_arrays import ON_GPU  # skips without JAX
from source_tree import ROOT


@pytest.mark.skipif(ON_GPU, reason="on a GPU the tool itself runs")
def test_every_row_runs(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("bench_calls_jax", ROOT / "bench" / "bench_calls_jax.py")
    assert spec is not None and spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.NUM_ROUNDS = tool.NUM_CALLS = tool.CHAIN = 2
    tool.LARGE_SHAPE = tool.SCORES_SHAPE = (64, 64)
    tool.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + len(tool.rows())
