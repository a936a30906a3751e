# SPDX-License-Identifier: Apache-2.0
"""Streams and graphs of the CUDA driver, by ctypes, and arrays that belong to a stream."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from library_under_test import DeviceArrays

import pyflowk
from pyflowk._native import driver

_NON_BLOCKING = 1
_CAPTURE_GLOBAL = 0


def call(name: str, *arguments: Any) -> None:
    """A function of the driver; RuntimeError if it fails."""
    error = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if error != 0:
        raise RuntimeError(f"{name} returned {error}")


class Stream:
    """A stream that does not wait for the default one. Its device's context is current in the block."""

    def __init__(self, device: int = 0) -> None:
        self.device, self._handle = device, ctypes.c_void_p()
        with driver.current(device):
            call("cuStreamCreate", ctypes.byref(self._handle), _NON_BLOCKING)

    @property
    def handle(self) -> int:
        assert self._handle.value
        return self._handle.value

    def synchronize(self) -> None:
        with driver.current(self.device):
            call("cuStreamSynchronize", self._handle)

    @contextlib.contextmanager
    def captured(self) -> Iterator[Graph]:
        """What the block enqueues on the stream becomes a graph. Work on the default stream ends the capture."""
        graph = Graph()
        call("cuStreamBeginCapture_v2", self._handle, _CAPTURE_GLOBAL)
        try:
            yield graph
        finally:
            call("cuStreamEndCapture", self._handle, ctypes.byref(graph.graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(graph.executable), graph.graph, ctypes.c_ulonglong(0))

    def replay(self, graph: Graph) -> None:
        call("cuGraphLaunch", graph.executable, self._handle)
        self.synchronize()


class Graph:
    """A captured graph and its executable."""

    def __init__(self) -> None:
        self.graph, self.executable = ctypes.c_void_p(), ctypes.c_void_p()

    def destroy(self) -> None:
        call("cuGraphExecDestroy", self.executable)
        call("cuGraphDestroy", self.graph)


class StreamArrays(DeviceArrays):
    """Arrays on one device that belong to one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.device = stream, stream.device

    def put(self, host: np.ndarray) -> Any:
        return pyflowk.asarray(host, device=self.device, stream=self.stream.handle)


def overwrite(array: Any, host: np.ndarray, stream: Stream) -> None:
    """Copies bytes to an array that stays where it is, in the order of the stream: after cuMemcpyHtoD() returns the
    driver may still be at work on the copy, and the stream does not wait for the default one.
    """
    source, num_bytes = ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes)
    with driver.current(array.device):
        call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(array.ptr), source, num_bytes, ctypes.c_void_p(stream.handle))


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of work(0), ..., work(count - 1), each in a thread of its own with GPU 0 current."""

    def run(thread: int) -> Any:
        with driver.current(0):
            return work(thread)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
