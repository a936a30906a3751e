# SPDX-License-Identifier: Apache-2.0
"""Prints the folder of cuda_fp16.h where there is no nvcc: a toolkit's, or that of NVIDIA's wheels; nothing if none."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HEADER = "cuda_fp16.h"


def header_folder() -> Path | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in filter(None, homes):
        folder = Path(home) / "include"
        if (folder / HEADER).is_file():
            return folder
    try:
        files = distribution("nvidia-cuda-runtime").files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).parent for file in files if file.name == HEADER), None)


if __name__ == "__main__":
    print(header_folder() or "")
