# SPDX-License-Identifier: Apache-2.0
"""The GPU that a bench runs on, by cuda.core's memory and cuda.bindings' streams, graphs and events."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .. import __version__, empty
from .._native import driver, library
from .._native.abi import Status
from .._native.errors import FlowkError
from .measure import TOUCHED_BYTES

Work = Callable[[int], object]  # the call on buffer set i
MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 36, 37  # CU_DEVICE_ATTRIBUTE_...
PACKAGES = ("numpy", "cuda-core", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "cutensor-cu13", "cutensor-cu12",
            "quack-kernels")  # fmt: skip


class Machine:
    """GPU 0, a stream of its own, and the library. All work of a bench is on this stream."""

    has_graphs = True
    touched_bytes = TOUCHED_BYTES

    def __init__(self) -> None:
        self.c = library.for_device(0, "the bench's x")
        self.library_path = library.open_backend("cuda")._name
        self._cu = import_module("cuda.bindings.driver")
        self._current = driver.current(0)
        self._current.__enter__()  # for the life of the process
        self.stream = int(self._call("cuStreamCreate", 1))  # CU_STREAM_NON_BLOCKING
        # What nvidia-smi calls the GPU, whichever are visible here.
        self._bus = self._call("cuDeviceGetPCIBusId", 32, 0).split(b"\0")[0].decode()
        self._events = [driver.create_event(timing=True) for _ in range(2)]

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *results = getattr(self._cu, name)(*arguments)
        if int(error) != 0:
            raise FlowkError(Status.CUDA_ERROR, f"{name} returned {error.name}")
        return results[0] if results else None

    # ---- memory

    def allocate(self, num_bytes: int) -> Any:
        """Memory with a `ptr`, which lives as long as the object."""
        return empty(num_bytes, "uint8", device=0, stream=self.stream)

    def upload(self, pointer: int, host: np.ndarray[Any, Any]) -> None:
        driver.copy_to_device(pointer, host.ctypes.data, host.nbytes, self.stream)

    def download(self, pointer: int, num_bytes: int) -> np.ndarray[Any, Any]:
        host = np.empty(num_bytes, np.uint8)
        driver.copy_to_host(host.ctypes.data, pointer, num_bytes, self.stream)
        return host

    def copy(self, dst: int, src: int, num_bytes: int) -> None:
        """cudaMemcpyAsync within the GPU."""
        self._call("cuMemcpyDtoDAsync", dst, src, num_bytes, self.stream)

    def fill(self, pointer: int, byte: int, num_bytes: int) -> None:
        self._call("cuMemsetD8Async", pointer, byte, num_bytes, self.stream)

    def synchronize(self) -> None:
        driver.synchronize(self.stream)

    # ---- time

    def graph(self, work: Work, num_sets: int) -> Callable[[], object]:
        """What replays work(0), work(1), ... over all buffer sets, as a CUDA graph; the calls run once before."""
        for i in range(num_sets):
            work(i)
        self.synchronize()
        self._call(
            "cuStreamBeginCapture", self.stream, self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        )
        try:
            for i in range(num_sets):
                work(i)
        finally:
            graph = self._call("cuStreamEndCapture", self.stream)
        executable = _Graph(self, self._call("cuGraphInstantiate", graph, 0))
        self._call("cuGraphDestroy", graph)
        return executable.replay

    def seconds(self, replay: Callable[[], object]) -> float:
        """Of one replay, by events. Another before it keeps the GPU busy until both events are enqueued."""
        start, end = self._events
        replay()
        driver.record_event(start, self.stream)
        replay()
        driver.record_event(end, self.stream)
        return driver.elapsed_ms(start, end) * 1e-3

    # ---- what it is

    def datasheet_gb_s(self) -> float | None:
        """Two transfers per clock of the memory, times the width of its bus; None if the driver does not say."""
        khz, bits = (driver._attribute(attribute, 0) for attribute in (MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS))
        return 2 * khz * bits / 8 * 1e-6 or None

    def clocks(self) -> str:
        """Now, at most, and what holds them down."""
        return self._nvidia_smi("clocks.sm,clocks.max.sm,clocks.mem,power.limit,clocks_throttle_reasons.active")

    def _nvidia_smi(self, query: str) -> str:
        """Name and value of each field; the value alone of one."""
        command = ["nvidia-smi", "-i", self._bus, f"--query-gpu={query}", "--format=csv,noheader"]
        try:
            text = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        except OSError:
            text = ""
        names, words = query.split(","), [word.strip() for word in text.split(",")]
        if len(words) != len(names) or not text:
            return "unknown: no nvidia-smi"
        return words[0] if len(words) == 1 else ", ".join(f"{name} {word}" for name, word in zip(names, words))

    def describe(self) -> dict[str, str]:
        """The first lines of a report: GPU, driver, clocks, versions."""
        datasheet = self.datasheet_gb_s()
        return {
            "GPU": driver.device_name(0),
            "driver": f"{self._nvidia_smi('driver_version')}, CUDA {driver.driver_version()}",
            "clocks": self.clocks(),
            "memory": f"{datasheet:.0f} GB/s by clock and bus" if datasheet else "unknown",
            "library": f"{library.version_text(self.c.flowk_version())}, {self.c.flowk_build_info().decode()}",
            "versions": versions(),
        }


class _Graph:
    """An executable graph, destroyed with the object."""

    def __init__(self, machine: Machine, executable: Any) -> None:
        self._machine, self._executable = machine, executable

    def replay(self) -> None:
        self._machine._call("cuGraphLaunch", self._executable, self._machine.stream)

    def __del__(self) -> None:
        self._machine._call("cuGraphExecDestroy", self._executable)


def versions() -> str:
    """pyflowk, Python, and which of PACKAGES are installed."""
    found = [f"pyflowk {__version__}", f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
