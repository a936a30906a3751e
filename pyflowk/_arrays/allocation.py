# SPDX-License-Identifier: Apache-2.0
"""The memory of DeviceArrays: where it comes from, what is counted, and what happens if there is no more.

An Allocation owns the memory of one array and its views. Dropping it gives the memory back in the order of the stream
that it was allocated on; calls on other streams make that one wait for their work first (adapters/device.py).
"""

from __future__ import annotations

import functools
import gc
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .._arguments import kind_of
from .._native import driver
from .._native.abi import Status
from .._native.errors import FlowkError
from .frameworks import ALLOCATORS, adapters_of

# (bytes, device, stream) -> an object that owns that many bytes of the device's memory until it is dropped.
Source = Callable[[int, int, int], Any]


class Tally:
    """The bytes that are allocated on one device.

    Memory may be given back anywhere, also by the garbage collector inside an allocation: `freed` takes its bytes
    without a lock, and settle() counts them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.freed: deque[int] = deque()
        self.used = 0
        self.peak = 0
        self.limit: int | None = None

    def reserve(self, num_bytes: int) -> bool:
        """Counts an allocation; False if the limit does not allow it."""
        with self._lock:
            self._settle()
            if self.limit is not None and self.used + num_bytes > self.limit:
                return False
            self.used += num_bytes
            self.peak = max(self.peak, self.used)
            return True

    def settle(self, *, resets_peak: bool = False) -> tuple[int, int]:
        """(Bytes in use, the most that were)."""
        with self._lock:
            self._settle()
            if resets_peak:
                self.peak = self.used
            return self.used, self.peak

    def _settle(self) -> None:
        while self.freed:
            self.used -= self.freed.popleft()


class Allocation:
    """The owner of an array's memory."""

    __slots__ = ("_freed", "_num_bytes", "memory")

    def __init__(self, memory: object, num_bytes: int, freed: deque[int]) -> None:
        self.memory, self._num_bytes, self._freed = memory, num_bytes, freed

    def __del__(self) -> None:
        self.memory = None
        self._freed.append(self._num_bytes)


_tallies: dict[int, Tally] = {}
_source: Source | None = None


def tally_of(device: int) -> Tally:
    """The counters of a device."""
    return _tallies.get(device) or _tallies.setdefault(device, Tally())


def set_source(source: Source | None) -> None:
    """Sets where memory comes from; None: the pool."""
    global _source
    _source = source


def allocate(num_bytes: int, device: int, stream: int) -> tuple[Allocation, int]:
    """(The owner of `num_bytes` of memory, its address). If there is not enough, garbage is collected and the pool is
    trimmed once; MemoryError if that does not help."""
    source, tally = _source or allocate_from_pool, tally_of(device)
    cause: Exception | None = None
    for is_last in (False, True):
        if tally.reserve(num_bytes):
            try:
                memory = source(num_bytes, device, stream)
                pointer = address_of(memory)
                return Allocation(memory, num_bytes, tally.freed), pointer
            except Exception as error:  # cuda.core's and torch's errors are of types of their own
                tally.freed.append(num_bytes)
                if not _is_out_of_memory(error):
                    raise
                cause = error
        if not is_last and not driver.is_capturing(stream):
            gc.collect()
            trim_pool(device, 0, stream)
    raise MemoryError(_out_of_memory(num_bytes, device, tally)) from cause


def _is_out_of_memory(error: Exception) -> bool:
    text = f"{type(error).__name__} {error}".lower().replace("_", " ")
    return isinstance(error, MemoryError) or "out of memory" in text or "outofmemory" in text


def _out_of_memory(num_bytes: int, device: int, tally: Tally) -> str:
    used, _ = tally.settle()
    asked = f"a DeviceArray of {num_bytes} bytes does not fit: "
    if tally.limit is not None and used + num_bytes > tally.limit:
        return f"{asked}{used} bytes are in use of the {tally.limit} that pyflowk.memory.set_limit() allows"
    with driver.current(device):
        free, total = driver.memory_bytes()
    limit = "" if tally.limit is None else f", pyflowk's limit is {tally.limit} bytes"
    return (
        f"{asked}{free} bytes are free on the GPU of {total}{limit}. Delete arrays that are no longer needed, and free "
        "what frameworks keep (torch.cuda.empty_cache(), cupy.get_default_memory_pool().free_all_blocks())"
    )


def address_of(memory: object) -> int:
    """The address of memory that a Source gave: cuda.core's Buffer, CuPy's MemoryPointer, RMM's DeviceBuffer, a torch
    tensor."""
    for attribute in ("handle", "ptr", "data_ptr"):
        address = getattr(memory, attribute, None)
        if address is not None:
            return int(address() if callable(address) else address)
    raise TypeError(f"the allocator returned a {type(memory).__name__}, must have handle, ptr or data_ptr()")


# ---- the pool of cuda.core ------------------------------------------------------------------------------------------


def cuda_core() -> Any:
    """cuda.core, imported on first use: that takes 0.2 s, and other frameworks' arrays need no cuda.core."""
    try:
        core = import_module("cuda.core")
        if core.__file__ is None:  # a folder cuda/core without the package
            raise ImportError("No module named 'cuda.core'")
    except Exception as error:  # a broken cuda-python raises more than ImportError
        raise FlowkError(
            Status.NO_DEVICE, f"a DeviceArray needs cuda.core 1.0 or newer (pip install cuda-core): {error}"
        ) from error
    return core


def core_stream(stream: int) -> Any:
    """The stream as an object of cuda.core."""
    core = cuda_core()
    default_streams = {1: core.LEGACY_DEFAULT_STREAM, 2: core.PER_THREAD_DEFAULT_STREAM}
    return default_streams.get(stream) or core.Stream.from_handle(stream)


_pools: dict[int, Any] = {}
_pools_lock = threading.Lock()


def _pool(device: int) -> Any:
    """pyflowk's pool of a device. It keeps what is freed until trim_pool(); the device must be current."""
    pool = _pools.get(device)
    if pool is None:
        with _pools_lock:
            pool = _pools.get(device)
            if pool is None:
                core = cuda_core()
                core.Device(device).set_current()
                pool = core.DeviceMemoryResource(device, options=core.DeviceMemoryResourceOptions())
                driver.keep_pool_memory(int(pool.handle))
                _pools[device] = pool
    return pool


def allocate_from_pool(num_bytes: int, device: int, stream: int) -> Any:
    """A cuda.core Buffer."""
    with driver.current(device):
        return _pool(device).allocate(num_bytes, stream=core_stream(stream))


def trim_pool(device: int, num_bytes_kept: int, stream: int | None = None) -> None:
    """Gives unused memory of the pool back to the driver, after the work on `stream`, or on the whole device."""
    pool = _pools.get(device)
    if pool is None:
        return
    with driver.current(device):
        if stream is None:
            driver.synchronize_device()
        else:
            driver.synchronize(stream)
        driver.trim_pool(int(pool.handle), num_bytes_kept)


def reserved_bytes(device: int) -> int:
    """The bytes of the GPU's memory that the pool holds, in use or not."""
    pool = _pools.get(device)
    return 0 if pool is None else int(pool.attributes.reserved_mem_current)


# ---- other sources --------------------------------------------------------------------------------------------------


def allocate_from_resource(resource: Any, num_bytes: int, device: int, stream: int) -> Any:
    """Memory from a MemoryResource of cuda.core."""
    with driver.current(device):
        cuda_core().Device(device).set_current()
        return resource.allocate(num_bytes, stream=core_stream(stream))


def source_named(allocator: Any) -> Source | None:
    """The Source that a caller of set_allocator() means."""
    if allocator is None:
        return None
    if isinstance(allocator, str):
        if allocator not in ALLOCATORS:
            raise ValueError(f"allocator = {allocator!r}, must be one of {', '.join(map(repr, ALLOCATORS))}")
        import_module(allocator)
        return adapters_of(allocator).allocate  # type: ignore[no-any-return]
    if hasattr(allocator, "allocate"):
        return functools.partial(allocate_from_resource, allocator)
    if not callable(allocator):
        raise TypeError(
            f"allocator is {kind_of(allocator)}, must be None, 'torch', 'cupy', a MemoryResource or a function"
        )
    source: Source = allocator
    return source
