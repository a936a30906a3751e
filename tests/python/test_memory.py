# SPDX-License-Identifier: Apache-2.0
"""pyflowk.memory: counting, limits, trimming and allocators, over a pretended heap and, on a GPU, over the pools."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk import memory
from pyflowk._arrays import allocation
from pyflowk._native import driver

gpu = pytest.mark.gpu
DEVICE = 0


class Heap:
    """A source of `capacity` bytes, which hands out addresses; `cached` bytes of it are there after a trim only."""

    def __init__(self, capacity: int, cached: int = 0) -> None:
        self.free, self.cached, self.calls = capacity - cached, cached, []

    def __call__(self, num_bytes: int, device: int, stream: int) -> Any:
        self.calls.append((num_bytes, device, stream))
        if num_bytes > self.free:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: The API call failed")
        self.free -= num_bytes
        return Block(self, num_bytes)

    def trim(self, device: int, kept: int, stream: int | None = None) -> None:
        self.free, self.cached = self.free + self.cached, 0


class Block:
    def __init__(self, heap: Heap, num_bytes: int) -> None:
        self.heap, self.num_bytes, self.ptr = heap, num_bytes, 1 << 40

    def __del__(self) -> None:
        self.heap.free += self.num_bytes


@pytest.fixture
def heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heap]:
    """1000 bytes, 400 of them cached, as the memory of device 0."""
    heap = Heap(1000, 400)
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    monkeypatch.setattr(driver, "memory_bytes", lambda: (heap.free, 1000))
    monkeypatch.setattr(driver, "current_device", lambda: DEVICE)
    monkeypatch.setattr(driver, "is_capturing", lambda stream: False)
    monkeypatch.setattr(allocation, "trim_pool", heap.trim)
    monkeypatch.setattr(allocation, "_tallies", {})
    memory.set_allocator(heap)
    yield heap
    memory.set_allocator(None)


def test_what_is_in_use_is_counted(heap: Heap) -> None:
    assert memory.statistics()._replace(reserved=0) == (0, 0, 0, None)
    a, b = pyflowk.empty(100, "u1", stream=7), pyflowk.empty((5, 10), "f4")
    assert heap.calls == [(100, 0, 7), (200, 0, 1)]
    assert memory.statistics()[:2] == (300, 300)
    view = b[1:].T
    del b
    assert memory.statistics().used == 300  # the view holds it
    del view
    assert memory.statistics()[:2] == (100, 300)
    memory.reset_peak()
    assert memory.statistics()[:2] == (100, 100)
    assert pyflowk.empty((3, 0), "f4").ptr == 0  # takes no memory
    assert len(heap.calls) == 2
    del a
    assert memory.statistics().used == 0
    assert heap.free == 600


def test_a_limit_is_kept_and_named(heap: Heap) -> None:
    memory.set_limit(250)
    a = pyflowk.empty(200, "u1")
    with pytest.raises(
        MemoryError, match=r"of 51 bytes does not fit: 200 bytes are in use of the 250 that .*set_limit"
    ):
        pyflowk.empty(51, "u1")
    assert memory.statistics()._replace(reserved=0) == (200, 200, 0, 250)
    pyflowk.empty(50, "u1")
    del a
    assert pyflowk.empty(250, "u1").size == 250
    memory.set_limit(None)
    assert pyflowk.empty(500, "u1").size == 500
    for bad in (-1, 2**63):
        with pytest.raises(ValueError, match=r"num_bytes = .*must be in 0"):
            memory.set_limit(bad)


def test_garbage_that_holds_arrays_is_collected_before_memory_ends(heap: Heap) -> None:
    memory.set_limit(300)
    ring: list[Any] = [pyflowk.empty(300, "u1")]
    ring.append(ring)
    gc.disable()
    try:
        del ring
        assert pyflowk.empty(200, "u1").size == 200
    finally:
        gc.enable()


def test_the_pool_is_trimmed_once_where_memory_ends(heap: Heap) -> None:
    assert heap.free == 600
    a = pyflowk.empty(900, "u1")
    assert [call[0] for call in heap.calls] == [900, 900]
    memory.set_limit(5000)
    text = (
        "of 200 bytes does not fit: 100 bytes are free on the GPU of 1000, pyflowk's limit is 5000 bytes.*empty_cache"
    )
    with pytest.raises(MemoryError, match=text) as caught:
        pyflowk.empty(200, "u1")
    assert [call[0] for call in heap.calls] == [900, 900, 200, 200]
    assert "OUT_OF_MEMORY" in str(caught.value.__cause__)
    assert memory.statistics().used == 900  # failed ones do not count
    del a


def test_errors_of_another_kind_are_passed_on(heap: Heap) -> None:
    def broken(num_bytes: int, device: int, stream: int) -> Any:
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    memory.set_allocator(broken)
    with pytest.raises(RuntimeError, match=r"^CUDA_ERROR_INVALID_VALUE$"):
        pyflowk.empty(10, "u1")
    memory.set_allocator(lambda num_bytes, device, stream: object())
    with pytest.raises(TypeError, match=r"returned a object, must have handle, ptr or data_ptr"):
        pyflowk.empty(10, "u1")
    assert memory.statistics().used == 0


def test_threads_lose_no_byte(heap: Heap) -> None:
    heap.free = 10**9
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def work() -> None:
            kept = []
            for i in range(300):
                kept.append(pyflowk.empty(1 + i % 7, "u1"))
                if i % 3:
                    kept.pop(0)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    gc.collect()
    assert memory.statistics().used == 0
    assert memory.statistics().peak > 0


def test_allocators_are_none_names_resources_or_functions() -> None:
    for bad, error, text in (
        ("rmm", ValueError, "allocator = 'rmm', must be one of 'cupy', 'torch'"),
        (3, TypeError, "allocator is an int, must be None, 'torch', 'cupy', a MemoryResource or a function"),
    ):
        with pytest.raises(error, match=text):
            memory.set_allocator(bad)
    for block in (SimpleNamespace(ptr=5), SimpleNamespace(handle=5), SimpleNamespace(data_ptr=lambda: 5)):
        assert allocation.address_of(block) == 5


def test_without_a_gpu_all_say_so() -> None:
    if driver.device_count():
        pytest.skip("there is a GPU")
    assert (pyflowk.device_count(), pyflowk.is_available()) == (0, False)
    for call in (memory.statistics, memory.trim, memory.reset_peak, pyflowk.synchronize):
        with pytest.raises(pyflowk.FlowkError, match=f"^this needs a GPU: {re.escape(driver.why_no_gpu())} "):
            call()


# ---- on a GPU ------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_pool() -> Iterator[None]:
    gc.collect()
    memory.trim()
    yield
    memory.set_allocator(None)
    memory.set_limit(None)


@gpu
@pytest.mark.usefixtures("own_pool")
def test_the_pool_keeps_memory_until_it_is_trimmed() -> None:
    before = memory.statistics()
    a = pyflowk.empty(2**26, "u1")
    during = memory.statistics()
    assert during.used == before.used + 2**26
    assert during.reserved >= during.used
    del a
    after = memory.statistics()
    assert (after.used, after.reserved) == (before.used, during.reserved)
    pyflowk.synchronize()
    assert memory.statistics().reserved == during.reserved
    memory.trim()
    assert memory.statistics().reserved <= during.reserved - 2**26


@gpu
@pytest.mark.usefixtures("own_pool")
def test_memory_of_the_pool_runs_out_and_comes_back() -> None:
    with driver.current(0):
        free, _ = driver.memory_bytes()
    arrays: list[Any] = []
    with pytest.raises(MemoryError, match="bytes are free on the GPU of"):
        arrays.extend(pyflowk.empty(free // 3, "u1") for _ in range(8))
    del arrays
    # Of other extents, so that only a trimmed pool has the room.
    assert pyflowk.empty(free * 3 // 4, "u1").size == free * 3 // 4


@gpu
@pytest.mark.usefixtures("own_pool")
@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_framework_is_the_source(name: str) -> None:
    framework = pytest.importorskip(name)

    def used() -> int:
        if name == "torch":
            return int(framework.cuda.memory_allocated())
        return int(framework.get_default_memory_pool().used_bytes())

    memory.set_allocator(name)
    before = used()
    a = pyflowk.full((1000, 1000), 3, "f4")
    assert used() - before >= 4_000_000
    np.testing.assert_array_equal((a * 2).to_numpy(), np.full((1000, 1000), 6, np.float32))
    del a
    assert used() == before


@gpu
@pytest.mark.usefixtures("own_pool")
def test_a_memory_resource_of_cuda_core_is_the_source() -> None:
    core = pytest.importorskip("cuda.core")
    core.Device(0).set_current()
    resource = core.DeviceMemoryResource(0, options=core.DeviceMemoryResourceOptions())
    memory.set_allocator(resource)
    a = pyflowk.ones(10**6, "f4")
    assert int(resource.attributes.used_mem_current) >= 4 * 10**6
    assert a[:: 10**5].to_numpy().tolist() == [1.0] * 10


@gpu
@pytest.mark.usefixtures("own_pool")
def test_temporaries_of_torch_s_arrays_are_torch_s_on_any_stream() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(512, 1024, device="cuda").T  # its rows are copied first
    stream = torch.cuda.Stream()
    for given in (None, stream, 0):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, own = torch.cuda.memory_allocated(), memory.statistics()
        result = pyflowk.softmax(x, stream=given)
        torch.cuda.synchronize()
        assert torch.cuda.max_memory_allocated() - before >= 2 * 4 * 512 * 1024
        assert memory.statistics() == own
        torch.testing.assert_close(result, torch.softmax(x, -1))


@gpu
@pytest.mark.usefixtures("own_pool")
def test_copies_from_and_to_pinned_memory_are_asynchronous() -> None:
    host, back = (memory.pinned_empty((1000, 1001), "f4") for _ in range(2))
    host[...] = np.random.default_rng(1).normal(size=host.shape)
    a = pyflowk.empty(host.shape, host.dtype)
    memory.copy_async(host, a)
    b = a * 2
    memory.copy_async(b, back)
    pyflowk.synchronize(b.stream)
    np.testing.assert_array_equal(back, host * 2)
    memory.copy_async(host[:10], b[:10], stream=2)
    np.testing.assert_array_equal(b[:10].to_numpy(), host[:10])
    for src, dst, error, text in (
        (host, a[:5], ValueError, "must be the same"),
        (np.ones(host.shape, "f4"), a, ValueError, "pageable memory, must be of pyflowk.memory.pinned_empty"),
        (host.T, a.T, ValueError, "src has strides of .*must be C-contiguous"),
        (host, back, TypeError, "src is a ndarray and dst a ndarray"),
    ):
        with pytest.raises(error, match=text):
            memory.copy_async(src, dst)


@gpu
@pytest.mark.usefixtures("own_pool")
def test_memory_that_another_stream_used_is_freed_after_its_work() -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    for _ in range(20):
        x = pyflowk.full((1024, 1024), 3, "f4")
        out = pyflowk.empty((1024, 1024), "f4")
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
        pyflowk.permute(x, (1, 0), out=out, stream=stream)
        del x
        pyflowk.full((1024, 1024), 9, "f4")  # would take x's place
        assert bool((out[::64, ::64] == 3).to_numpy().all())


@gpu
def test_a_gpu_is_available() -> None:
    assert pyflowk.device_count() >= 1
    assert pyflowk.is_available()
    pyflowk.synchronize()
