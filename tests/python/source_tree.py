# SPDX-License-Identifier: Apache-2.0
"""The folder of the sources, and its tools as modules."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def tool_at(path: str) -> Any:
    """A new module from a file that no package has: `bench/results.py`."""
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
