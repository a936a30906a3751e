# SPDX-License-Identifier: Apache-2.0
"""The campaign's calls on streams of a GPU: no work on the default stream, in CUDA graphs, from many threads."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from campaign_case import Arena, call_library, check_memory, start_case
from campaign_makers import MAKERS, PYTHON_CHECKS
from cuda_streams import Stream, StreamArrays, in_threads, overwrite
from driver_calls import DriverCall, DriverCalls, call_of

from pyflowk import DType, Status
from pyflowk._native import driver
from pyflowk._native import library as libraries

gpu = pytest.mark.gpu
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CASES = 60  # of each function and test
THREADS, STREAMS_PER_THREAD, CASES_PER_STREAM = 8, 8, 12


@pytest.fixture
def stream() -> Iterator[Stream]:
    with driver.current(0):
        yield Stream()


@pytest.fixture
def library() -> Any:
    return libraries.for_device(0, "the test")


# ---- the default stream ---------------------------------------------------------------------------------------------


class LaunchParams(ctypes.Structure):
    """cuLaunchKernel_params of generated_cuda_meta.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("rest", ctypes.c_void_p * 2),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    )


def test_a_call_on_the_default_stream_is_told_from_others() -> None:
    for stream in (0, 1, 2, 0x1234):
        params, config = LaunchParams(stream=stream), LaunchConfig(stream=stream)
        pointer = ctypes.c_void_p(ctypes.addressof(config))
        for name, address in (
            ("cuLaunchKernel", ctypes.addressof(params)),
            ("cuLaunchKernel_ptsz", ctypes.addressof(params)),
            ("cuLaunchKernelEx", ctypes.addressof(pointer)),
        ):
            call = call_of(name, address)
            assert call == DriverCall(name.removesuffix("_ptsz"), stream)
            assert call.is_launch
            assert call.is_on_default_stream == (stream != 0x1234)
    assert call_of("cuMemcpyHtoD_v2", 0).is_on_default_stream
    assert not call_of("cuCtxGetDevice", 0).is_on_default_stream


@pytest.fixture(scope="module")
def driver_calls() -> Iterator[DriverCalls]:
    calls = DriverCalls()
    yield calls
    calls.close()


@gpu
def test_work_planted_on_the_default_stream_is_found(driver_calls: DriverCalls, stream: Stream, library: Any) -> None:
    for name, make in MAKERS.items():
        r = random.Random(1)
        case = make(r, library, 100)
        while any(tensor.is_empty for tensor in case.tensors.values()):
            case = make(r, library, 100)
        arena = Arena(StreamArrays(stream), list(case.tensors.values()), np.random.default_rng(1))
        with driver_calls.recorded() as calls:
            call_library(library, case, arena, None)
        assert any(call.is_launch and call.is_on_default_stream for call in calls), (name, calls)
        driver.synchronize(1)


@gpu
@pytest.mark.parametrize("name", MAKERS)
def test_no_work_is_on_the_default_stream(driver_calls: DriverCalls, stream: Stream, library: Any, name: str) -> None:
    arrays, launches = StreamArrays(stream), 0
    for seed in range(CASES):
        case = MAKERS[name](random.Random(seed), library, 0)
        arena = Arena(arrays, list(case.tensors.values()), np.random.default_rng(seed))
        with driver_calls.recorded() as calls:
            call_library(library, case, arena, stream.handle)
        wrong = [call for call in calls if call.is_on_default_stream or call.stream not in (None, stream.handle)]
        assert not wrong, case.describe()
        launches += sum(call.is_launch for call in calls)
        stream.synchronize()
        check_memory(case, arena)
    assert launches >= CASES // 2


@gpu
@pytest.mark.parametrize("name", PYTHON_CHECKS)
def test_no_python_call_launches_on_the_default_stream(driver_calls: DriverCalls, stream: Stream, name: str) -> None:
    # The arrays belong to the stream, and so do the results. Copies from and to the host are the test's own.
    with driver_calls.recorded() as calls:
        for seed in range(CASES):
            PYTHON_CHECKS[name](random.Random(seed), StreamArrays(stream))
    launches = [call for call in calls if call.is_launch]
    assert len(launches) >= CASES // 2
    assert {call.stream for call in launches} == {stream.handle}


# ---- graphs ---------------------------------------------------------------------------------------------------------


@gpu
@pytest.mark.parametrize("name", MAKERS)
def test_every_function_is_captured_and_replayed_with_other_inputs(stream: Stream, library: Any, name: str) -> None:
    arrays = StreamArrays(stream)
    for seed in range(CASES):
        case = MAKERS[name](random.Random(seed), library, 0)
        tensors = list(case.tensors.values())
        arena = Arena(arrays, tensors, np.random.default_rng(seed))
        with stream.captured() as graph:
            call_library(library, case, arena, stream.handle)
        assert np.array_equal(arena.fetch(), arena.bytes), "a captured call did its work"
        for replay in (1, 2):
            other = Arena(arrays, tensors, np.random.default_rng([seed, replay]))  # other values in the same places
            overwrite(arena.memory, other.bytes, stream)
            stream.replay(graph)
            other.memory = arena.memory
            check_memory(case, other)
        graph.destroy()


@gpu
def test_plans_are_not_measured_on_a_stream_that_captures(stream: Stream, library: Any) -> None:
    arrays = StreamArrays(stream)
    x, out = arrays.put(np.ones((40, 30, 20), np.float32)), arrays.put(np.full((20, 40, 30), 7, np.float32))
    shape, axes = (ctypes.c_int64 * 3)(40, 30, 20), (ctypes.c_int32 * 3)(2, 0, 1)
    with stream.captured() as graph:
        status = library.flowk_permute_tune(
            *(x.ptr, None, DType.FLOAT32, out.ptr, None, DType.FLOAT32, 3),
            *(ctypes.addressof(shape), ctypes.addressof(axes), 1.0, 4, None, None, stream.handle),
        )
        text = library.flowk_last_error().decode()
    graph.destroy()
    assert status == Status.INVALID_ARGUMENT and "captures a CUDA graph" in text
    assert (arrays.fetch(out) == 7).all()


# ---- threads --------------------------------------------------------------------------------------------------------


@gpu
def test_threads_call_on_streams_of_their_own() -> None:
    library = libraries.for_device(0, "the test")
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        streams = [Stream() for _ in range(STREAMS_PER_THREAD)]
        start.wait(60)
        for turn in range(CASES_PER_STREAM):
            run_turn(library, streams, 1000 * thread + turn)

    in_threads(THREADS, work)


def run_turn(library: Any, streams: list[Stream], seed: int) -> None:
    """A case of each function on the streams, all enqueued before one is checked."""
    started = []
    for index, stream in enumerate(streams):
        make = list(MAKERS.values())[(seed + index) % len(MAKERS)]
        case = make(random.Random(seed * len(streams) + index), library, 0)
        arena = start_case(StreamArrays(stream), library, case, np.random.default_rng(seed), stream.handle)
        started.append((stream, case, arena))
    for stream, case, arena in started:
        stream.synchronize()
        check_memory(case, arena)
