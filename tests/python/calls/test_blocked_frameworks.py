# SPDX-License-Identifier: Apache-2.0
"""Calls on NumPy's arrays if the import of a framework is blocked, or is not done yet."""

from __future__ import annotations

import subprocess
import sys

import pytest

STATES = {
    "blocked": "None",  # so that `import torch` is an ImportError
    "half imported": "types.ModuleType(name)",
    "half imported with a submodule": "with_submodules(name)",
}
CALLS = """
import numpy as np, pyflowk
x = np.arange(12, dtype=np.float32).reshape(3, 4)
class Producer:
    def __dlpack__(self, **options): return x.__dlpack__()
    def __dlpack_device__(self): return (1, 0)
for _ in range(3):
    assert (pyflowk.permute(x, (1, 0)) == x.T).all()
    assert (pyflowk.add(x, 1.5) == x + 1.5).all()
    assert (pyflowk.add(x.astype(np.int32), [1.5]) == x + 1.5).all()
    assert (pyflowk.permute(Producer(), (1, 0)) == x.T).all()
    assert pyflowk.softmax(x).shape == (3, 4)
    assert pyflowk.explain(pyflowk.relu, x)
    try:
        pyflowk.relu(object())
    except TypeError as error:
        assert "x is an object, must be a NumPy array" in str(error)
    else:
        raise AssertionError("no error")
"""


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("when", ["before pyflowk", "after pyflowk"])
def test_calls_need_no_framework(state: str, when: str) -> None:
    program = f"""
import sys, types
def with_submodules(name):
    module = types.ModuleType(name)
    module.compiler, module.core, module.cuda = (types.ModuleType(name + part) for part in (".c", ".d", ".e"))
    return module
{"" if when == "before pyflowk" else "import pyflowk; pyflowk.permute"}
for name in ("torch", "jax", "cupy", "numba"):
    sys.modules[name] = {STATES[state]}
{CALLS}"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_framework_whose_import_is_done_later_is_found() -> None:
    pytest.importorskip("torch")
    program = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
import numpy as np, pyflowk
pyflowk.relu(np.ones(3, np.float32))
del sys.modules["torch"]
import torch
for _ in range(3):
    assert torch.equal(pyflowk.relu(torch.ones(3)), torch.ones(3))
assert torch.compile(lambda x: pyflowk.relu(x) + 1, backend="eager", fullgraph=True)(torch.ones(3))[0] == 2
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
