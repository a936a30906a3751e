# SPDX-License-Identifier: Apache-2.0
"""The C++ tests in the background: they compile while the Python tests run, which are one process and come first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from source_tree import ROOT


def environment() -> dict[str, str]:
    """This process's environment, with a virtual environment's ninja even if the environment is not activated."""
    scripts = str(Path(sys.executable).parent)
    path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path}


class CppTests:
    """`meson setup` and `meson test` in a folder of their own, started by the constructor."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        build = Path(self._folder.name) / "build"
        self._log = Path(self._folder.name) / "log"
        # Without the libraries: the installed ones were built with the package, and the C tests are linked to them.
        script = '"$0" -m mesonbuild.mesonmain setup "$1" "$2" -Dcuda=disabled -Dsimt=false && '
        script += 'exec "$0" -m mesonbuild.mesonmain test -C "$1" --print-errorlogs'
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["nice", "-n", "10", "/bin/sh", "-c", script, sys.executable, build, ROOT],
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def result(self) -> tuple[int, str]:
        """Waits for the end; the exit status and what was printed."""
        return self._process.wait(), self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Ends the processes that still run, and removes the folder."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 15)
            self._process.wait()
        self._folder.cleanup()
