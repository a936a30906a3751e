# SPDX-License-Identifier: Apache-2.0
"""Two GPUs in one process: the campaign's calls on arrays of device 1 while 0 is current, and on both at once."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from campaign_case import check_memory, start_case
from campaign_makers import MAKERS, PYTHON_CHECKS
from cuda_streams import Stream, StreamArrays
from library_under_test import DeviceArrays

import pyflowk
from pyflowk._native import driver
from pyflowk._native import library as libraries

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.device_count() < 2, reason="fewer than two GPUs"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

CASES = 40


class ArraysOn(DeviceArrays):
    """Arrays on one device."""

    def __init__(self, device: int) -> None:
        self.device = device

    def put(self, host: np.ndarray) -> Any:
        return pyflowk.asarray(host, device=self.device)


@pytest.mark.parametrize("name", PYTHON_CHECKS)
def test_arrays_of_device_1_are_right_while_device_0_is_current(name: str) -> None:
    with driver.current(0):
        for seed in range(CASES):
            PYTHON_CHECKS[name](random.Random(seed), ArraysOn(1))
            assert driver.current_device() == 0


@pytest.mark.parametrize("name", MAKERS)
def test_c_calls_on_both_devices_in_turn_are_right(name: str) -> None:
    streams = [Stream(device) for device in (0, 1)]
    for seed in range(CASES):
        started = []
        for stream in streams:
            with driver.current(stream.device):
                library = libraries.for_device(stream.device, "the test")
                case = MAKERS[name](random.Random(seed), library, 0)
                arrays = StreamArrays(stream)
                started.append((case, start_case(arrays, library, case, np.random.default_rng(seed), stream.handle)))
        for stream, (case, arena) in zip(streams, started):
            stream.synchronize()
            check_memory(case, arena)


def test_arrays_of_two_devices_in_one_call_are_refused() -> None:
    hosts = [np.ones((3, 4), np.float32) for _ in range(2)]
    x, y = (pyflowk.asarray(host, device=device) for device, host in enumerate(hosts))
    alpha = pyflowk.asarray(np.ones(4, np.float32), device=1)
    calls = (
        lambda: pyflowk.add(x, y),
        lambda: pyflowk.relu(x, out=y),
        lambda: pyflowk.permute(x, (1, 0), out=pyflowk.asarray(np.ones((4, 3), np.float32), device=1)),
        lambda: pyflowk.prelu(x, alpha),
        lambda: pyflowk.prelu_backward(y, x, pyflowk.asarray(np.ones(4, np.float32), device=0)),
        lambda: pyflowk.softmax(x, out=y),
        lambda: pyflowk.masked_softmax(x, bias=y),
        lambda: pyflowk.masked_softmax_backward(x, y),
    )
    for call in calls:
        with pytest.raises(ValueError, match="device"):
            call()
    for array in (x, y):
        assert (array.to_numpy() == 1).all()
