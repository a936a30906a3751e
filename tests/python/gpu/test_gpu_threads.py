# SPDX-License-Identifier: Apache-2.0
"""Threads that launch the same kernel with different amounts of shared memory, each on a stream of its own."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from cuda_streams import Stream, StreamArrays, in_threads

import pyflowk

THREADS, SECONDS = 8, 4.0
ROWS, COLUMNS = 8, (250_001, 500_001)  # row_in_shared with 51 and 102 KB


@pytest.mark.gpu
def test_a_launch_keeps_its_shared_memory_while_other_threads_launch() -> None:
    start = threading.Barrier(THREADS)
    num_calls = in_threads(
        THREADS, lambda thread: call_for_a_while(np.random.default_rng(thread), COLUMNS[thread % 2], start)
    )
    assert min(num_calls) > 100


def call_for_a_while(random: np.random.Generator, columns: int, start: threading.Barrier) -> int:
    """Calls masked_softmax() until the time is over; the number of calls. The results of the last call are right."""
    stream = Stream()
    arrays = StreamArrays(stream)
    x = random.standard_normal((ROWS, columns), dtype=np.float32)
    source, result = arrays.put(x), arrays.put(np.zeros_like(x))
    assert "row_in_shared" in pyflowk.explain(pyflowk.masked_softmax, source, out=result)
    start.wait(60)
    calls, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in range(50):
            pyflowk.masked_softmax(source, out=result, stream=stream.handle)
        calls += 50
        stream.synchronize()
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(arrays.fetch(result), expected, rtol=1e-5, atol=1e-9)
    return calls
