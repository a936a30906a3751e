# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of a release: code for every GPU that flowk names, and the manylinux tag that the libraries hold.

    pip install auditwheel wheel
    python tools/release_wheel.py dist

nvcc is found as by `pip install .` (FLOWK_CUDA). The C library that the wheel is built with decides the oldest
Linux that it installs on: for manylinux_2_28 run this in the quay.io/pypa/manylinux_2_28_x86_64 image.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Code for each, and PTX of the last, which newer GPUs compile.
ARCHS = "80-real,90-real,100-real,120"
MAX_BYTES = 20_000_000  # what a user downloads; PyPI takes 100 MB


def build(archs: str, folder: Path) -> Path:
    """The wheel for these GPUs as pip builds it."""
    settings = [f"-Csetup-args=-Dgpu_archs={archs}"] if archs else ["-Csetup-args=-Dcuda=disabled"]
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", f"--wheel-dir={folder}", *settings]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_size(wheel: Path) -> None:
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    if size > MAX_BYTES:
        raise SystemExit(f"{wheel.name} has {size} bytes, must have <= {MAX_BYTES}: leave out an architecture")


def platform_of(report: str) -> str:
    """The lowest platform tag that holds, from what `auditwheel show` prints."""
    found = re.search(r'consistent\s+with\s+the\s+following\s+platform\s+tag:?\s+"(\w+)"', report)
    if found is None or not found[1].startswith("manylinux"):
        raise SystemExit(f"auditwheel finds no manylinux tag:\n{report}")
    return found[1]


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the wheel is written")
    parser.add_argument("--archs", default=ARCHS, help=f"as -Dgpu_archs (default {ARCHS}); empty: no libflowk")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        built = build(arguments.archs, Path(folder))
        check_size(built)
        shown = subprocess.run(
            [sys.executable, "-m", "auditwheel", "show", built], check=True, capture_output=True, text=True
        )
        print(shown.stdout)
        tags = [sys.executable, "-m", "wheel", "tags", f"--platform-tag={platform_of(shown.stdout)}", str(built)]
        name = subprocess.run(tags, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        print(shutil.copy(built.with_name(name), arguments.folder))


if __name__ == "__main__":
    main()
