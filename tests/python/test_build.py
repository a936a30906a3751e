# SPDX-License-Identifier: Apache-2.0
"""The build backend keeps wheels, and builds one only if its inputs have changed. meson-python is a fake."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from source_tree import ROOT, tool_at

from pyflowk import __version__

BACKEND = ROOT / "tools" / "flowk_build.py"
SETTINGS = {"setup-args": "-Dcuda=disabled"}
WHEEL = "flowk-0-cp311-cp311-linux_x86_64.whl"
DESCRIPTION = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"


class Backend:
    """flowk_build.py over a small source tree; a wheel's module is the number of builds so far."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wheelfile = pytest.importorskip("wheel.wheelfile")
        self.root, self.builds = root, 0
        mesonpy: Any = ModuleType("mesonpy")
        mesonpy.__version__ = "0"
        mesonpy.build_wheel = self.build_wheel
        mesonpy.get_requires_for_build_wheel = lambda settings: []
        monkeypatch.setitem(sys.modules, "mesonpy", mesonpy)
        monkeypatch.syspath_prepend(BACKEND.parent)
        self.module = tool_at("tools/flowk_build.py")
        for name in self.module.WHEEL_SOURCES:
            assert (ROOT / name).exists(), name
            path = root / name if (ROOT / name).is_file() else root / name / "source.cpp"
            path.parent.mkdir(exist_ok=True)
            path.write_text("1")
        self.module.ROOT, self.module.KEPT_WHEELS = root, root / "build" / "wheels"

    def build_wheel(self, folder: str, settings: Any, metadata: Any) -> str:
        self.builds += 1
        with self.wheelfile.WheelFile(Path(folder) / WHEEL, "w") as wheel:  # writes RECORD too
            wheel.writestr("flowk.py", str(self.builds))
            wheel.writestr("flowk-0.dist-info/WHEEL", DESCRIPTION)
        return WHEEL

    def wheel(self, settings: Any = SETTINGS) -> str:
        """The module in the wheel that pip gets."""
        folder = self.root / "out"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / self.module.build_wheel(str(folder), settings)) as wheel:
            return wheel.read("flowk.py").decode()


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
    return Backend(tmp_path, monkeypatch)


def test_the_same_sources_give_the_kept_wheel(backend: Backend) -> None:
    (backend.root / "pyflowk" / "__pycache__").mkdir()
    assert backend.wheel() == "1"
    (backend.root / "pyflowk" / "__pycache__" / "source.pyc").write_text("of a run")
    (backend.root / "cuda" / "source.cpp").touch()
    assert backend.wheel() == "1" and backend.builds == 1


@pytest.mark.parametrize(
    "name", ["cuda/source.cpp", "include/source.cpp", "pyflowk/source.cpp", "tools/flowk_build.py", "meson.build"]
)
def test_a_changed_source_is_built_and_its_old_wheel_stays(backend: Backend, name: str) -> None:
    assert backend.wheel() == "1"
    (backend.root / name).write_text("2")
    assert backend.wheel() == "2"
    (backend.root / name).write_text("1")
    assert backend.wheel() == "1" and backend.builds == 2


def test_a_new_a_renamed_and_a_removed_source_are_built(backend: Backend) -> None:
    assert backend.wheel() == "1"
    added = backend.root / "cuda" / "added.cpp"
    added.write_text("")
    assert backend.wheel() == "2"
    added = added.rename(backend.root / "cuda" / "renamed.cpp")
    assert backend.wheel() == "3"
    added.unlink()
    assert backend.wheel() == "1"


def test_other_options_and_compiler_flags_are_built(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.wheel() == "1"
    assert backend.wheel({"setup-args": ["-Dcuda=disabled", "-Dgpu_archs=90"]}) == "2"
    monkeypatch.setenv("CXXFLAGS", "-O1")
    assert backend.wheel() == "3"


def test_an_unfinished_copy_is_no_wheel(backend: Backend) -> None:
    assert backend.wheel() == "1"
    (kept,) = backend.module.KEPT_WHEELS.glob("*/*.whl")
    kept.rename(f"{kept}.123")
    assert backend.wheel() == "2"


def test_a_wheel_is_for_every_python(backend: Backend) -> None:
    backend.wheel()
    (path,) = (backend.root / "out").iterdir()
    assert path.name == "flowk-0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path) as wheel:
        description = wheel.read("flowk-0.dist-info/WHEEL").decode()
        record = wheel.read("flowk-0.dist-info/RECORD").decode()
    assert description.rstrip() == DESCRIPTION.replace("cp311-cp311", "py3-none").rstrip()
    digest = base64.urlsafe_b64encode(hashlib.sha256(description.encode()).digest()).rstrip(b"=").decode()
    assert f"\nflowk-0.dist-info/WHEEL,sha256={digest},{len(description)}\n" in f"\n{record}"


def test_a_wheel_with_the_extension_is_for_every_python_of_its_abi(backend: Backend) -> None:
    wheel = backend.root / "flowk-0-cp311-cp311-linux_x86_64.whl"
    with backend.wheelfile.WheelFile(wheel, "w") as archive:
        archive.writestr("pyflowk/_calls/_program_cache.abi3.so", "")
        archive.writestr("flowk-0.dist-info/WHEEL", DESCRIPTION)
    assert backend.module._for_every_python(wheel).name == "flowk-0-cp310-abi3-linux_x86_64.whl"


def test_a_kept_wheel_needs_no_toolkit(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.module, "_requires", lambda settings: ["nvcc"])
    assert backend.module.get_requires_for_build_wheel(SETTINGS) == ["nvcc"]
    backend.wheel()
    assert backend.module.get_requires_for_build_wheel(SETTINGS) == []


def test_a_release_has_a_manylinux_tag_and_a_cap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BACKEND.parent)
    release = tool_at("tools/release_wheel.py")
    shown = '\nflowk-0.whl is consistent with the\nfollowing platform tag: "manylinux_2_34_x86_64".\n'
    assert release.platform_of(shown) == "manylinux_2_34_x86_64"
    with pytest.raises(SystemExit, match="no manylinux tag"):
        release.platform_of(shown.replace("manylinux_2_34", "linux"))
    wheel = tmp_path / "flowk.whl"
    wheel.write_bytes(bytes(release.MAX_BYTES))
    release.check_size(wheel)
    wheel.write_bytes(bytes(release.MAX_BYTES + 1))
    with pytest.raises(SystemExit, match="has 20000001 bytes, must have <= 20000000"):
        release.check_size(wheel)


def test_the_forge_runs_files_that_exist() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    paths = [word for line in lines for word in line.split() if "/" in word and "*" not in word]
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_citation_names_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.skipif(
    shutil.which("meson") is None or shutil.which("nvcc") is None, reason="meson or nvcc is not installed"
)
@pytest.mark.parametrize(
    ("archs", "text"),
    [
        ("75", '"75" is older than 80, the oldest that flowk runs on'),
        ("90,61-real", '"61-real" is older than 80'),
        ("hopper", '"hopper" must be a number such as 90'),
    ],
)
def test_configure_refuses_gpus_that_flowk_does_not_run_on(tmp_path: Path, archs: str, text: str) -> None:
    options = ["-Dcuda=enabled", "-Dsimt=false", "-Dtests=false", f"-Dgpu_archs={archs}"]
    command = ["meson", "setup", str(tmp_path / "build"), str(ROOT), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0 and f"gpu_archs: {text}" in result.stdout


def test_the_oldest_wheels_go(backend: Backend) -> None:
    for i in range(backend.module.MAX_KEPT_WHEELS + 2):
        (backend.root / "LICENSE").write_text(str(i))
        backend.wheel()
    assert len(list(backend.module.KEPT_WHEELS.iterdir())) == backend.module.MAX_KEPT_WHEELS
    assert backend.wheel() == str(backend.builds)
