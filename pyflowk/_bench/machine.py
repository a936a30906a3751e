# SPDX-License-Identifier: Apache-2.0
"""The GPU that a bench runs on, by cuda.core's stream, graphs and memory."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .. import __version__, empty
from .._arrays.allocation import cuda_core
from .._native import driver, library
from .measure import TOUCHED_BYTES

Work = Callable[[int], object]  # the call on buffer set i
PACKAGES = ("numpy", "cuda-core", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "cutensor-cu13", "cutensor-cu12",
            "quack-kernels")  # fmt: skip


class Machine:
    """GPU 0, a stream of its own, and the library. All work of a bench is on this stream."""

    has_graphs = True
    touched_bytes = TOUCHED_BYTES

    def __init__(self) -> None:
        self.c = library.for_device(0, "the bench's x")
        self._device = cuda_core().Device(0)
        self._device.set_current()  # for the life of the process
        self._stream = self._device.create_stream()
        self.stream = int(self._stream.handle)
        self._events = [driver.create_event(timing=True) for _ in range(2)]

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
        driver.enqueue_copy(dst, src, num_bytes, self.stream)

    def fill(self, pointer: int, byte: int, num_bytes: int) -> None:
        cuda_core().Buffer.from_handle(pointer, num_bytes).fill(byte, stream=self._stream)

    def synchronize(self) -> None:
        driver.synchronize(self.stream)

    # ---- time

    def graph(self, work: Work, num_sets: int) -> Callable[[], object]:
        """Replays work(0), work(1), ... over all buffer sets, as a CUDA graph; the calls run once before."""
        for i in range(num_sets):
            work(i)
        self.synchronize()
        builder = self._stream.create_graph_builder().begin_building("thread_local")
        try:
            for i in range(num_sets):
                work(i)
        finally:
            builder.end_building()
        executable = builder.complete()
        return lambda: executable.launch(self._stream)

    def seconds(self, replay: Callable[[], object]) -> float:
        """The time of one replay, by events. A replay before it keeps the GPU busy until both events are enqueued."""
        start, end = self._events
        replay()
        driver.record_event(start, self.stream)
        replay()
        driver.record_event(end, self.stream)
        return driver.elapsed_ms(start, end) * 1e-3

    # ---- what it is

    def datasheet_gb_s(self) -> float | None:
        """Two transfers per clock of the memory, times the width of its bus; None if the driver does not say."""
        properties = self._device.properties
        return 2 * properties.memory_clock_rate * properties.global_memory_bus_width / 8 * 1e-6 or None

    def clocks(self) -> str:
        """The clocks now and at most, and what limits them."""
        return self._nvidia_smi("clocks.sm,clocks.max.sm,clocks.mem,power.limit,clocks_throttle_reasons.active")

    def _nvidia_smi(self, query: str) -> str:
        """The name and value of each field; the value alone if there is one field."""
        command = ["nvidia-smi", "-i", self._device.pci_bus_id, f"--query-gpu={query}", "--format=csv,noheader"]
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


def versions() -> str:
    """pyflowk, Python, and which of PACKAGES are installed."""
    found = [f"pyflowk {__version__}", f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
