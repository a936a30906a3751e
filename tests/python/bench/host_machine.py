# SPDX-License-Identifier: Apache-2.0
"""A machine for benches without a GPU: host memory, libflowk_simt, and a clock of the test's own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflowk._native import library


class HostMemory:
    """Bytes with an address, 256-byte aligned, and DLPack for PyTorch."""

    def __init__(self, num_bytes: int) -> None:
        room = np.zeros(num_bytes + 256, np.uint8)
        lead = -room.ctypes.data % 256
        self.host = room[lead : lead + num_bytes]
        self.ptr = self.host.ctypes.data

    def __dlpack__(self, **options: Any) -> Any:
        return self.host.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.host.__dlpack_device__()


class HostMachine:
    """`clock(replay)` says what seconds() returns; by default 1 ms."""

    stream = 0
    has_graphs = False
    touched_bytes = 0  # two buffer sets

    def __init__(self, clock: Callable[[Any], float] = lambda replay: 1e-3) -> None:
        self.c = library.open_backend("simt")
        self.clock = clock
        self.replays: list[Any] = []

    def allocate(self, num_bytes: int) -> HostMemory:
        return HostMemory(num_bytes)

    def upload(self, pointer: int, host: np.ndarray) -> None:
        ctypes.memmove(pointer, host.ctypes.data, host.nbytes)

    def download(self, pointer: int, num_bytes: int) -> np.ndarray:
        return np.frombuffer(ctypes.string_at(pointer, num_bytes), np.uint8)

    def copy(self, dst: int, src: int, num_bytes: int) -> None:
        ctypes.memmove(dst, src, num_bytes)

    def fill(self, pointer: int, byte: int, num_bytes: int) -> None:
        ctypes.memset(pointer, byte, num_bytes)

    def synchronize(self) -> None:
        """Nothing is behind."""

    def graph(self, work: Callable[[int], object], num_sets: int) -> Callable[[], object]:
        return lambda: [work(i) for i in range(num_sets)]

    def seconds(self, replay: Callable[[], object]) -> float:
        replay()
        self.replays.append(replay)
        return self.clock(replay)

    def datasheet_gb_s(self) -> float | None:
        return 1000.0

    def clocks(self) -> str:
        return "none"

    def describe(self) -> dict[str, str]:
        return {"GPU": "none", "driver": "none", "clocks": "none"}
