# SPDX-License-Identifier: Apache-2.0
"""bench/bench_calls_jax.py in small: every row runs, and its results are checked."""

from __future__ import annotations

import pytest
from jax_arrays import ON_GPU  # skips without JAX
from source_tree import tool_at


@pytest.mark.skipif(ON_GPU, reason="on a GPU the tool itself runs")
def test_every_row_runs(capsys: pytest.CaptureFixture[str]) -> None:
    tool = tool_at("bench/bench_calls_jax.py")
    tool.NUM_ROUNDS = tool.NUM_CALLS = tool.CHAIN = 2
    tool.LARGE_SHAPE = tool.SCORES_SHAPE = (64, 64)
    tool.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + len(tool.rows())
