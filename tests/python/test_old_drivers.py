# SPDX-License-Identifier: Apache-2.0
"""What a user reads if the NVIDIA driver is missing, too old, or finds no GPU: a stand-in takes libcuda's place."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_library import run_command, run_python

from pyflowk._native import driver
from pyflowk._native import library as _library

# CUDA's runtime finds the functions by cuGetProcAddress.
OLD_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 12040, 0; }
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, void *status) {
  (void)version, (void)flags, (void)status;
  *function = 0;
  if (strcmp(name, "cuInit") == 0) *function = (void *)cuInit;
  if (strcmp(name, "cuDriverGetVersion") == 0) *function = (void *)cuDriverGetVersion;
  if (strcmp(name, "cuGetProcAddress") == 0) *function = (void *)cuGetProcAddress_v2;
  return *function == 0 ? 500 : 0;
}
"""
NO_GPU = "int cuInit(unsigned flags) { (void)flags; return 100; }\n" + "".join(
    f"int {name}(void) {{ return 0; }}\n" for name in driver._FUNCTIONS if name != "cuInit"
)
PERMUTE_IN_C = """
import ctypes
from pyflowk._native import abi, library
from pyflowk._native.errors import error_of
flowk = library.open_backend("cuda")
shape, axes = (ctypes.c_int64 * 2)(4, 4), (ctypes.c_int32 * 2)(1, 0)
src, dst = (ctypes.create_string_buffer(64) for _ in range(2))
status = flowk.flowk_permute(src, None, dst, None, 2, shape, axes, abi.DType.FLOAT32, None)
print(error_of(flowk, status))
"""


def stand_in(folder: Path, code: str) -> dict[str, str]:
    """The environment in which libcuda.so.1 is a library of this C code, or a file that does not load."""
    if code:
        compiler = (os.environ.get("CC") or shutil.which("cc") or "gcc").split()
        target = ["-o", str(folder / "libcuda.so.1")]
        command = [*compiler, "-shared", "-fPIC", "-x", "c", "-", *target]
        subprocess.run(command, input=code, check=True, text=True)
    else:
        (folder / "libcuda.so.1").write_text("no library")
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "no NVIDIA driver (libcuda.so.1) is found"),
        (OLD_DRIVER, "the NVIDIA driver supports CUDA 12.4, this libflowk needs CUDA 13.0 or newer"),
    ],
    ids=["missing", "old"],
)
def test_the_library_names_a_driver_that_is_missing_or_too_old(tmp_path: Path, code: str, text: str) -> None:
    path = _library.installed_path("cuda")
    if path is None:
        pytest.skip("there is no libflowk")
    result = run_python(PERMUTE_IN_C, FLOWK_LIBRARY=path, **stand_in(tmp_path, code))
    assert result.stdout == f"no usable CUDA device: {text} (NO_DEVICE)\n", result.stderr


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("", "no NVIDIA driver (libcuda.so.1) is found"),
        (OLD_DRIVER, "the NVIDIA driver is too old: its libcuda.so.1 has no cuGetErrorString"),
        (NO_GPU, "the NVIDIA driver finds no GPU: cuInit returned 100"),
    ],
    ids=["missing", "old", "no GPU"],
)
def test_python_names_the_fault_of_the_driver(tmp_path: Path, code: str, text: str) -> None:
    environment = stand_in(tmp_path, code)
    error = run_python("import pyflowk; pyflowk.synchronize()", **environment).stderr
    assert error.splitlines()[-1].endswith(f"FlowkError: this needs a GPU: {text} (NO_DEVICE)")
    assert f"device         none: {text}\n" in run_command("info", **environment).stdout
