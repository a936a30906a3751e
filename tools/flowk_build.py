# SPDX-License-Identifier: Apache-2.0
"""The build backend: meson-python, with nvcc found on the machine or, if there is none, in NVIDIA's PyPI wheels.

The environment variable FLOWK_CUDA decides where nvcc comes from:
  auto      (default) `system` if this finds one, otherwise `wheels`;
  system    CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda;
  wheels    build requirements that pip fetches (Linux only);
  disabled  nowhere: libflowk_simt alone is built, as with -Csetup-args=-Dcuda=disabled.

libflowk_simt needs the toolkit's headers of the 16- and 8-bit floats: from a toolkit, or from three of NVIDIA's wheels.

One wheel serves every Python from 3.10 on: its only extension uses the limited API, so the tag is cp310-abi3-PLATFORM.
Without Python's headers, and on a free-threaded Python, there is no extension, and the tag is py3-none-PLATFORM.

The last wheels stay in build/wheels/, each in a folder named by a hash of what it was built from: sources, options,
compilers. `pip install .` builds nothing if the hash has not changed. An editable install has meson's own
build/ folder and compiles what has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import mesonpy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Settings = dict[str, Any] | None

# One minor version for all wheels: it needs the oldest driver of CUDA 13, and all drivers of CUDA 13 compile its PTX.
WHEEL_VERSION = "13.0.*"
HEADER_WHEELS = ["nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl"]
WHEELS = ["nvidia-cuda-nvcc", "nvidia-nvvm", *HEADER_WHEELS]
OLDEST_NVCC = 12  # the first with C++20

ROOT = Path(__file__).resolve().parents[1]
KEPT_WHEELS = ROOT / "build" / "wheels"
MAX_KEPT_WHEELS = 4
WHEEL_SOURCES = ["cuda", "include", "pyflowk", "tools/flowk_build.py", "meson.build", "meson.options", "pyproject.toml"]
WHEEL_SOURCES += ["README.md", "LICENSE"]
COMPILER_VARIABLE = re.compile(r"CC|CXX|\w*FLAGS|CPATH|C\w*_INCLUDE_PATH|LIBRARY_PATH")


def _output(*command: str | Path) -> str:
    """What a command prints, "" if it does not run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _nvcc_major(nvcc: Path) -> int:
    """The version of an nvcc, 0 if it does not run."""
    release = re.search(r"release (\d+)\.", _output(nvcc, "--version"))
    return int(release[1]) if release else 0


def _toolkits() -> list[Path]:
    """The folders of toolkits. cuda/find_toolkit_headers.py looks there too."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [*named, Path("/usr/local/cuda")]


def _system_nvcc() -> Path | None:
    *named, default = (toolkit / "bin" for toolkit in _toolkits())
    folders = [*named, *(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder), default]
    return next((nvcc for nvcc in (folder / "nvcc" for folder in folders) if _nvcc_major(nvcc) >= OLDEST_NVCC), None)


def _wheel_nvcc() -> Path | None:
    try:
        files = distribution("nvidia-cuda-nvcc").files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == "nvcc"), None)


def _setup_args(settings: Settings) -> list[str]:
    value = (settings or {}).get("setup-args", [])
    return [value] if isinstance(value, str) else list(value)


def _origin(settings: Settings) -> str:
    """Where nvcc is to come from: `system`, `wheels` or `disabled`."""
    choice = os.environ.get("FLOWK_CUDA") or "auto"
    if choice not in ("auto", "system", "wheels", "disabled"):
        raise SystemExit(f"FLOWK_CUDA={choice}, must be auto, system, wheels or disabled")
    if "-Dcuda=disabled" in _setup_args(settings):
        return "disabled"
    if choice != "auto":
        return choice
    if _system_nvcc():
        return "system"
    return "wheels" if sys.platform == "linux" else "disabled"


def _prepare(settings: Settings, folder: Path) -> dict[str, Any]:
    """The settings with meson told whether to use nvcc, and which: that is in a file in `folder`."""
    origin = _origin(settings)
    arguments = _setup_args(settings)
    if _is_free_threaded():  # meson-python refuses it together with `limited-api`
        arguments = ["-Dpython.allow_limited_api=false", *arguments]
    if origin == "disabled":
        return {**(settings or {}), "setup-args": ["-Dcuda=disabled", *arguments]}
    nvcc = _system_nvcc() if origin == "system" else _wheel_nvcc()
    if nvcc is None:
        where = "on PATH, in CUDA_HOME or in /usr/local/cuda" if origin == "system" else "in NVIDIA's PyPI wheels"
        needed = " ".join(f"'{wheel}=={WHEEL_VERSION}'" for wheel in WHEELS)
        raise SystemExit(
            f"flowk: found no nvcc {where} (version {OLDEST_NVCC} or newer).\n"
            f"Either `pip install {needed}` and set FLOWK_CUDA=wheels, "
            "or set FLOWK_CUDA=disabled to build for the CPU alone."
        )
    print(f"flowk: building libflowk with {nvcc}", flush=True)
    if origin == "wheels":  # the wheels' nvcc does not look into its own lib/ when meson tries it
        libraries = [str(nvcc.parent.parent / "lib"), os.environ.get("LIBRARY_PATH", "")]
        os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    # By its full path: it may be off PATH, and an editable install builds again with whatever PATH there is then.
    native_file = folder.resolve() / "nvcc.ini"
    native_file.write_text(f"[binaries]\ncuda = '{nvcc}'\n")
    return {**(settings or {}), "setup-args": ["-Dcuda=enabled", f"--native-file={native_file}", *arguments]}


def _requires(settings: Settings) -> list[str]:
    origin = _origin(settings)
    has_headers = any((folder / "include/cuda_fp16.h").is_file() for folder in _toolkits()) or sys.platform != "linux"
    wheels = WHEELS if origin == "wheels" else HEADER_WHEELS if origin == "disabled" and not has_headers else []
    return [f"{wheel}=={WHEEL_VERSION}" for wheel in wheels]


def _is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _builds_extension() -> bool:
    """Whether there is an extension, as pyflowk/_calls/meson.build decides it."""
    return not _is_free_threaded() and (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()


def _kept_wheel_folder(settings: Settings) -> Path:
    """The folder of the wheel that these settings give of the sources, compilers and Python that are here now."""
    origin = _origin(settings)
    nvcc = _system_nvcc() if origin == "system" else None
    compiler = (os.environ.get("CXX") or "c++").split()
    inputs = [
        sorted((settings or {}).items()),
        sorted(item for item in os.environ.items() if COMPILER_VARIABLE.fullmatch(item[0])),
        [_output(*compiler, "--version"), origin, WHEEL_VERSION, str(nvcc), nvcc and _output(nvcc, "--version")],
        _toolkits(),
        _output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"),  # cuda/meson.build builds for these
        [sysconfig.get_platform(), mesonpy.__version__, _builds_extension()],
    ]
    digest = hashlib.sha256(repr(inputs).encode())
    for source in WHEEL_SOURCES:
        for path in sorted((ROOT / source).rglob("*")) if (ROOT / source).is_dir() else [ROOT / source]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return KEPT_WHEELS / digest.hexdigest()[:16]


def _for_every_python(wheel: Path) -> Path:
    """The same wheel with the tag of what is in it: meson-python's is for one Python."""
    with zipfile.ZipFile(wheel) as archive:
        has_extension = any(name.endswith(".abi3.so") for name in archive.namelist())
    python, abi = ("cp310", "abi3") if has_extension else ("py3", "none")
    tags = [sys.executable, "-m", "wheel", "tags", f"--python-tag={python}", f"--abi-tag={abi}"]
    result = subprocess.run([*tags, str(wheel)], stdout=subprocess.PIPE, text=True, check=True)
    return wheel.with_name(result.stdout.strip())


def _keep_wheel(wheel: Path, folder: Path) -> None:
    """Copies a wheel to its folder. Keeps none if the source tree cannot be written to."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{wheel.name}.{os.getpid()}"
        shutil.copyfile(wheel, unfinished)
        unfinished.replace(folder / wheel.name)
        for old in sorted(KEPT_WHEELS.iterdir(), key=os.path.getmtime, reverse=True)[MAX_KEPT_WHEELS:]:
            shutil.rmtree(old, ignore_errors=True)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    toolkit = [] if any(_kept_wheel_folder(config_settings).glob("*.whl")) else _requires(config_settings)
    return mesonpy.get_requires_for_build_wheel(config_settings) + toolkit


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return mesonpy.get_requires_for_build_editable(config_settings) + _requires(config_settings)


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return mesonpy.get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """The metadata without a build: without this function pip builds the wheel twice."""
    from packaging.version import Version
    from pyproject_metadata import StandardMetadata

    metadata = StandardMetadata.from_pyproject(tomllib.loads((ROOT / "pyproject.toml").read_text()), ROOT)
    version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.MULTILINE)
    if version is None:
        raise SystemExit("flowk: meson.build states no version")
    metadata.version = Version(version[1])
    folder = Path(metadata_directory) / f"{metadata.name}-{metadata.version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_bytes(bytes(metadata.as_rfc822()))
    return folder.name


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    kept = _kept_wheel_folder(config_settings)
    for wheel in kept.glob("*.whl"):
        print(f"flowk: nothing has changed since {wheel} was built", flush=True)
        shutil.copyfile(wheel, Path(wheel_directory) / wheel.name)
        return wheel.name
    with tempfile.TemporaryDirectory() as folder:
        name = mesonpy.build_wheel(folder, _prepare(config_settings, Path(folder)), metadata_directory)
        wheel = _for_every_python(Path(folder) / name)
        shutil.copyfile(wheel, Path(wheel_directory) / wheel.name)
        _keep_wheel(wheel, kept)
    return wheel.name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    folder = Path("build")  # meson-python's for editable installs; meson reads the file again when it reconfigures
    folder.mkdir(exist_ok=True)
    return mesonpy.build_editable(wheel_directory, _prepare(config_settings, folder), metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    arguments = ["-Dcuda=disabled", *_setup_args(config_settings)]  # meson configures before it packs
    return mesonpy.build_sdist(sdist_directory, {**(config_settings or {}), "setup-args": arguments})
