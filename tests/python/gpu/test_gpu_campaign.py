# SPDX-License-Identifier: Apache-2.0
"""tests/gpu_campaign.py has a part for every sanitizer and GPU test, and fails if a part fails."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT, tool_at


@pytest.fixture(scope="module")
def campaign() -> Any:
    return tool_at("tests/gpu_campaign.py")


def test_parts_are_every_sanitizer_and_every_gpu_test(campaign: Any) -> None:
    parts = campaign.all_parts(20_000)
    assert len({part.name for part in parts}) == len(parts)
    assert {*campaign.OPERATORS} <= {*campaign.SANITIZED}
    words = [word for part in parts for word in part.command]
    for argument in words:
        if argument.startswith(os.sep):
            assert os.path.exists(argument), argument
    for name in campaign.SANITIZED:
        for tool in campaign.TOOLS:
            assert any(f"{part.name} ".startswith(f"{tool} {name} ") for part in parts)
    for operator in campaign.OPERATORS:
        assert any(word.endswith(f"test_large_{operator}.py") for word in words)
    racechecks = [part.name.rpartition("=")[2] for part in parts if part.name.startswith("racecheck softmax ")]
    count = len(racechecks)
    assert racechecks == [f"{index}/{count}" for index in range(1, count + 1)]


def test_every_folder_of_tests_has_parts(campaign: Any) -> None:
    folders = {path.parent.name for path in (ROOT / "tests/python").glob("*/test_*.py")}
    assert folders - {"bench", "campaign", "distributed", "gpu"} == {*campaign.TEST_FOLDERS}


def test_a_part_that_has_no_time_left_fails(campaign: Any, tmp_path: Path) -> None:
    part = campaign.Part("slow", (sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"))
    result = campaign.run(part, tmp_path, time.monotonic() + 2)
    assert not result.passed and result.text == "stopped: no time was left"
    assert "begun" in (tmp_path / "slow.txt").read_text()


def test_a_part_passes_only_if_all_of_it_ran(campaign: Any) -> None:
    tests, two = campaign.pytest_part("a"), campaign.pytest_part("b", needs_two_gpus=True)
    folder = campaign.pytest_part("c")._replace(may_skip=True)
    tool, clusters = (campaign.sanitizer_part(name, "softmax") for name in ("memcheck", "synccheck"))
    for part, code, output, passed in (
        (tests, 0, "....\n4 passed in 3.00s", True),
        (tests, 1, "..F.\n1 failed, 3 passed in 3.00s", False),
        (tests, 0, "...s\n3 passed, 1 skipped in 3.00s", False),
        (tests, 5, "no tests ran in 0.1s", False),
        (tests, -1, "....\nstopped: no time was left", False),
        (folder, 0, "...s\n3 passed, 1 skipped in 3.00s", True),
        (folder, 0, "s\n1 skipped in 3.00s", False),
        (two, 0, "ss\n2 skipped in 0.1s", True),
        (two, 0, "s.\n1 passed, 1 skipped in 0.1s", False),
        (tool, 0, "..\n2 passed, 3 deselected in 1s\n========= ERROR SUMMARY: 0 errors", True),
        (tool, 9, "..\n2 passed in 1s\n========= ERROR SUMMARY: 1 error", False),
        (tool, 0, "s.\n1 passed, 1 skipped in 1s\n========= ERROR SUMMARY: 0 errors", False),
        (clusters, 0, "s.\n1 passed, 1 skipped in 1s\n========= ERROR SUMMARY: 0 errors", True),
        (tool, 0, "========= ERROR SUMMARY: 0 errors", False),
    ):
        assert campaign.judged(part, code, output)[0] == passed, output
