# SPDX-License-Identifier: Apache-2.0
"""flowk_functor_plan(): the library's part of an ElementwiseKernel."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pyflowk import Status
from pyflowk._native.abi import FUNCTOR_PARAMS_VERSION, FunctorLaunch


class Plans:
    """flowk_functor_plan() of out = functor(x, y), all (3, 4) float32 unless `changes` say otherwise."""

    def __init__(self, arrays: Any, library: Any) -> None:
        self._library = library
        self._memory = arrays.put(np.zeros(1024, np.uint8))
        self.base = arrays.pointer(self._memory)
        self.launch = FunctorLaunch(ctypes.sizeof(FunctorLaunch), FUNCTOR_PARAMS_VERSION)

    def __call__(self, **changes: Any) -> Status:
        offsets = changes.get("offsets", (512, 0, 64))
        strides = [None if s is None else np.array(s, np.int64) for s in changes.get("strides", (None,) * 3)]
        pointers = np.array([0 if o is None else self.base + o for o in offsets], np.uint64)
        addresses = np.array([0 if s is None else s.ctypes.data for s in strides], np.uint64)
        dtypes = np.array(changes.get("dtypes", (12, 12, 12)), np.int32)
        shape = np.array(changes.get("shape", (3, 4)), np.int64)
        launch = changes.get("launch", ctypes.addressof(self.launch))
        arguments = [pointers.ctypes.data, addresses.ctypes.data, dtypes.ctypes.data]
        if "null" in changes:
            arguments[changes["null"]] = None
        count, part = changes.get("num_operands", 3), changes.get("part", 0)
        return Status(self._library.flowk_functor_plan(*arguments, count, shape.size, shape.ctypes.data, part, launch))

    def error(self) -> str:
        """flowk_last_error()."""
        return self._library.flowk_last_error().decode()


@pytest.fixture
def plans(arrays: Any, library: Any) -> Plans:
    return Plans(arrays, library)


def test_a_plan_of_neighbours_is_flat_and_holds_their_addresses(plans: Plans) -> None:
    assert plans() == Status.SUCCESS
    launch = plans.launch
    assert (launch.num_parts, launch.kernel, launch.pack_elements, launch.num_blocks) == (1, 0, 4, 1)
    assert (launch.num_threads, launch.shared_bytes) == (256, 0)
    words = np.frombuffer(bytes(launch.params)[: launch.params_bytes], np.uint64)
    for offset in (0, 64, 512):
        assert plans.base + offset in words


def test_packs_are_of_the_widest_operand(plans: Plans) -> None:
    for dtypes, elements in (((6, 6, 6), 16), ((10, 6, 6), 8), ((6, 12, 6), 4), ((6, 6, 13), 2)):
        assert plans(dtypes=dtypes) == Status.SUCCESS
        assert plans.launch.pack_elements == elements


def test_a_broadcast_operand_makes_a_plan_periodic_and_no_element_makes_none(plans: Plans) -> None:
    assert plans(strides=(None, None, (0, 1))) == Status.SUCCESS
    assert (plans.launch.num_parts, plans.launch.kernel) == (1, 2)
    assert plans(shape=(0, 4), offsets=(None,) * 3) == Status.SUCCESS
    assert plans.launch.num_parts == 0


def test_more_elements_than_a_launch_takes_come_in_parts(plans: Plans) -> None:
    call = {"shape": (2**16, 2**16), "dtypes": (6, 6, 6), "offsets": (2**40, 0, 0), "strides": (None, (0, 0), (0, 1))}
    assert plans(**call) == Status.SUCCESS
    parts, blocks = plans.launch.num_parts, 0
    assert parts >= 4
    for part in range(parts):
        assert plans(**call, part=part) == Status.SUCCESS
        blocks += plans.launch.num_blocks
    assert blocks >= 2**32 // (16 * 256 * 8)  # of packs of 16, a thread 8 of them
    assert plans(**call, part=parts) == Status.INVALID_ARGUMENT
    assert f"part = {parts}, must be in 0 ... {parts - 1}" in plans.error()


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"null": 0}, Status.NULL_POINTER, "pointers = NULL"),
        ({"null": 1}, Status.NULL_POINTER, "strides = NULL"),
        ({"null": 2}, Status.NULL_POINTER, "dtypes = NULL"),
        ({"launch": None}, Status.NULL_POINTER, "launch = NULL"),
        ({"offsets": (512, None, 64)}, Status.NULL_POINTER, "x = NULL"),
        ({"num_operands": 1}, Status.INVALID_ARGUMENT, "num_operands = 1, must be in 2 ... 4"),
        ({"num_operands": 5}, Status.INVALID_ARGUMENT, "num_operands = 5, must be in 2 ... 4"),
        ({"part": 1}, Status.INVALID_ARGUMENT, "part = 1, must be in 0 ... 0"),
        ({"part": -1}, Status.INVALID_ARGUMENT, "part = -1, must be in 0 ... 0"),
        ({"shape": (3, -4)}, Status.INVALID_ARGUMENT, "shape[1] = -4"),
        ({"dtypes": (12, 16, 12)}, Status.UNSUPPORTED_DTYPE, "dtypes[1] = complex64"),
        ({"dtypes": (12, 99, 12)}, Status.UNSUPPORTED_DTYPE, "99"),
        ({"offsets": (4, 0, 64)}, Status.OVERLAP, "out"),
        ({"offsets": (514, 0, 64)}, Status.MISALIGNED_POINTER, "out"),
        ({"strides": ((0, 1), None, None)}, Status.OVERLAP, "out"),
    ],
)
def test_a_bad_plan_gets_its_status(plans: Plans, changes: dict[str, Any], status: Status, text: str) -> None:
    assert plans(**changes) == status
    assert text in plans.error()


@pytest.mark.parametrize("shape", [(3, 4), (0, 4)])
@pytest.mark.parametrize("part", [-1, 1, 2**31 - 1])
def test_a_bad_part_leaves_the_launch_untouched(plans: Plans, shape: tuple[int, ...], part: int) -> None:
    plans.launch.num_parts = 77
    before = bytes(plans.launch)
    assert plans(shape=shape, part=part) == Status.INVALID_ARGUMENT
    assert f"part = {part}, must be in 0 ... 0" in plans.error()
    assert bytes(plans.launch) == before


def test_a_bad_dtype_of_a_plan_is_named_with_its_index(plans: Plans) -> None:
    assert plans(dtypes=(12, 12, 0)) == Status.UNSUPPORTED_DTYPE
    assert plans.error() == "dtypes[2] = 0, must be a flowk_dtype (1 ... 17)"


def test_a_launch_of_another_size_is_refused(plans: Plans) -> None:
    plans.launch.struct_bytes -= 8
    assert plans() == Status.INVALID_ARGUMENT
    assert "launch->struct_bytes" in plans.error()
