# SPDX-License-Identifier: Apache-2.0
"""--require-frameworks: a test that is skipped because a framework is missing fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from source_tree import ROOT

FILES = {
    "blocked.py": "import sys\nsys.modules.update(torch=None, jax=None)\n",  # as programs block an import
    "test_module.py": "import pytest\npytest.importorskip('torch')\n",
    "test_function.py": "import pytest\ndef test_it():\n    pytest.importorskip('jax.numpy')\n",
    "test_other_skip.py": "import pytest\ndef test_it():\n    pytest.skip('one GPU only')\n",
}


def outcome(folder: Path, *options: str) -> str:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    path = os.pathsep.join([str(folder), str(ROOT / "tests")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "blocked", "-p", "conftest", *options]
    names = [str(folder / name) for name in FILES if name.startswith("test_")]
    ran = subprocess.run([*command, *names], cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    return ran.stdout.decode().splitlines()[-1]


def test_a_missing_framework_is_a_failure_where_it_is_required(tmp_path: Path) -> None:
    assert outcome(tmp_path).startswith("3 skipped")
    assert outcome(tmp_path, "--require-frameworks", "--continue-on-collection-errors").startswith(
        "1 failed, 1 skipped, 1 error"
    )
