# SPDX-License-Identifier: Apache-2.0
"""pyflowk.distributed on 2 to 8 ranks: processes on the CPU by gloo, or on one GPU each if there are enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

torch = pytest.importorskip("torch")

WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize(
    ("ranks", "parts"),
    [
        (2, "values,pieces,forms,gradients,faults,transport_choice"),
        (2, "inductor"),
        (4, "values,forms,gradients,faults,transport_choice"),
        (8, "values"),
    ],
)
def test_every_rank_gets_its_shard(ranks: int, parts: str, tmp_path: Path) -> None:
    run_ranks(ranks, parts, tmp_path)


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_dies_is_an_error_of_the_others(ranks: int, tmp_path: Path) -> None:
    run_ranks(ranks, "dies", tmp_path)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU per rank")
def test_cuda_graphs_and_memory(tmp_path: Path) -> None:
    run_ranks(2, "graphs", tmp_path)


def run_ranks(ranks: int, parts: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["FLOWK_SIMT_THREADS"] = "1"
    log = folder / "log"
    with log.open("w") as file:
        command = [sys.executable, WORKER, parts, str(ranks), folder / "store"]
        result = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    assert result.returncode == 0, log.read_text()[-9000:]
