# SPDX-License-Identifier: Apache-2.0
"""flowk_masked_softmax_backward_dbias(): its statuses, its plan's text and its workspace."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from c_calls import Bad, check_bad_call, check_text_of_plan
from softmax_bad_calls import (
    BIAS,
    DENSE,
    DX,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INVALID,
    LENGTHS,
    LSE,
    MISALIGNED,
    NULL,
    OVERFLOW,
    OVERLAP,
    UNSUPPORTED,
    Calls,
    X,
    Y,
)
from test_softmax_dbias import gradients

import pyflowk
from pyflowk import Status
from pyflowk._native.abi import SoftmaxMask

WORKSPACE = 896


class DbiasCalls(Calls):
    """The correct call: float32 of shape (3, 4), with a bias of 4 elements that the rows share."""

    def dbias(self, explain: Any = None, **changes: Any) -> int:
        given = {"dy": X, "y": Y, "dx": DX, "dbias": BIAS, "dy_strides": None, "y_strides": None, "dx_strides": None}
        given |= {"y_dtype": FLOAT32, "dx_dtype": FLOAT32, "dbias_dtype": FLOAT32, "dbias_strides": [0, 1]}
        given |= {"rank": 2, "shape": [3, 4], "scale": 1.0, "mask": None, "log": 0, "workspace": None, "bytes": 0}
        given |= changes
        keep: list[Any] = []

        def longs(values: list[int] | None) -> int | None:
            keep.append(np.array(values or [], np.int64))
            return None if values is None else keep[-1].ctypes.data

        arguments = [
            *(self._address(given["dy"]), longs(given["dy_strides"])),
            *(self._address(given["y"]), longs(given["y_strides"]), given["y_dtype"]),
            *(self._address(given["dx"]), longs(given["dx_strides"]), given["dx_dtype"]),
            *(self._address(given["dbias"]), longs(given["dbias_strides"]), given["dbias_dtype"]),
            *(given["rank"], longs(given["shape"]), given["scale"], self._mask(given["mask"], keep), given["log"]),
        ]
        if explain is not None:
            return self._library.flowk_masked_softmax_backward_dbias_explain(*arguments, *explain)
        memory = self._address(given["workspace"]), given["bytes"]
        return self._library.flowk_masked_softmax_backward_dbias(*arguments, *memory, None)


@pytest.fixture
def calls(arrays: Any, library: Any) -> DbiasCalls:
    return DbiasCalls(arrays, library)


SINKS = {"dsinks": DENSE, "sinks": LENGTHS, "lse": LSE}
BAD_C = {
    "dy is NULL": Bad(NULL, ("dy", "NULL"), {"dy": None}),
    "y is NULL": Bad(NULL, ("y", "NULL"), {"y": None}),
    "dbias is NULL": Bad(NULL, ("dbias", "NULL"), {"dbias": None}),
    "dbias is NULL and there are no rows": Bad(NULL, ("dbias",), {"dbias": None, "shape": [0, 4]}),
    "dbias is misaligned": Bad(MISALIGNED, ("dbias", "multiple of 4"), {"dbias": BIAS + 2}),
    "dx is misaligned": Bad(MISALIGNED, ("dx", "multiple of 4"), {"dx": DX + 2}),
    "a bias per row": Bad(INVALID, ("dbias_strides[1]", "0", "must be 1"), {"dbias_strides": [1, 0]}),
    "dy's rows are not contiguous": Bad(INVALID, ("dy_strides[1]", "2", "must be 1"), {"dy_strides": [8, 2]}),
    "dx's rows are not contiguous": Bad(INVALID, ("dx_strides[1]", "2", "must be 1"), {"dx_strides": [8, 2]}),
    "dbias_dtype is int32": Bad(UNSUPPORTED, ("dbias_dtype", "4"), {"dbias_dtype": 4}),
    "dbias_dtype is float64": Bad(UNSUPPORTED, ("dbias_dtype", "13", "y_dtype"), {"dbias_dtype": FLOAT64}),
    "float16 and bfloat16": Bad(
        UNSUPPORTED, ("dbias_dtype", "11", "y_dtype"), {"y_dtype": FLOAT16, "dx_dtype": FLOAT16, "dbias_dtype": 11}
    ),
    "dbias's rows overlap": Bad(OVERLAP, ("dbias",), {"dbias_strides": [3, 1]}),
    "dbias overlaps dy": Bad(OVERLAP, ("dbias", "dy"), {"dbias": X + 44}),
    "dbias overlaps y": Bad(OVERLAP, ("dbias", "y"), {"dbias": Y - 8}),
    "dbias overlaps dx": Bad(OVERLAP, ("dbias", "dx"), {"dbias": DX}),
    "dbias overlaps the lengths": Bad(OVERLAP, ("dbias", "lengths"), {"mask": {"lengths": BIAS + 8}}),
    "dbias overlaps dlse": Bad(OVERLAP, ("dbias", "dlse"), {"mask": {"dlse": BIAS - 8}}),
    "dbias overlaps dsinks": Bad(OVERLAP, ("dbias", "dsinks"), {"mask": {**SINKS, "dsinks": BIAS}}),
    "dbias overlaps sinks": Bad(OVERLAP, ("dbias", "sinks"), {"mask": {**SINKS, "sinks": BIAS}}),
    "dx begins inside y": Bad(OVERLAP, ("dx", "y"), {"dx": Y + 16}),
    "dx with a softcap": Bad(INVALID, ("dx", "softcap"), {"mask": {"softcap": 2.0, "x": X}}),
    "dx with a scale per row": Bad(INVALID, ("dx", "row_scale"), {"mask": {"row_scale": LSE}}),
    "softcap is negative": Bad(INVALID, ("softcap", "-1"), {"dx": None, "mask": {"softcap": -1.0}}),
    "too many rows": Bad(
        OVERFLOW,
        ("dy", "2^63"),
        {"dx": None, "rank": 3, "shape": [2**40, 2**40, 4], "dbias_strides": [0, 0, 1], "dy_strides": [0, 0, 1]}
        | {"y_strides": [0, 0, 1]},
    ),
    "dbias's strides overflow": Bad(OVERFLOW, ("dbias",), {"dbias_strides": [2**62, 1]}),
}


@pytest.mark.parametrize("name", BAD_C)
def test_a_bad_call_and_its_plan_get_their_status_and_write_nothing(calls: DbiasCalls, name: str) -> None:
    check_bad_call(calls, calls.dbias, BAD_C[name])


GOOD_C: dict[str, dict[str, Any]] = {
    "the call without changes": {},
    "dx is NULL": {"dx": None},
    "dx is dy": {"dx": X},
    "dx is y": {"dx": Y},
    "no row is shared": {"dbias": LSE, "dbias_strides": None},
    "no elements": {"shape": [3, 0], "dy": None, "y": None, "dx": None, "dbias": None},
    "one column has any stride": {"shape": [3, 1], "dbias_strides": [0, 0]},
    "dense and bias are ignored": {"mask": {"dense": 1, "bias": 3, "bias_dtype": 99, "lengths": LENGTHS}},
    "a softcap without dx": {"dx": None, "mask": {"softcap": 2.0}},
    "a scale per row without dx": {"dx": None, "mask": {"row_scale": 1}},
    "sinks": {"mask": SINKS},
}


@pytest.mark.parametrize("name", GOOD_C)
def test_a_call_at_the_bounds_succeeds(calls: DbiasCalls, name: str) -> None:
    text = ctypes.create_string_buffer(2000)
    for explain in (None, (text, len(text))):
        assert Status(calls.dbias(explain, **GOOD_C[name])) == Status.SUCCESS, calls.error()
    assert text.value


def test_a_plan_needs_a_text_and_cuts_it_where_it_is_short(calls: DbiasCalls) -> None:
    check_text_of_plan(calls, calls.dbias)


def test_the_workspace_is_checked(calls: DbiasCalls, library: Any) -> None:
    shape, strides, needed = np.array([2048, 4]), np.array([0, 1]), ctypes.c_size_t()
    query = library.flowk_masked_softmax_backward_dbias_workspace_bytes
    assert query(2, shape.ctypes.data, strides.ctypes.data, FLOAT32, ctypes.addressof(needed)) == Status.SUCCESS
    assert needed.value > 0
    given: dict[str, Any] = {"shape": [2048, 4], "dy": 0, "y": 0, "dx": None, "dbias": BIAS}
    given |= {"dy_strides": [0, 1], "y_strides": [0, 1]}
    for changes, status, word in (
        ({}, NULL, "workspace = NULL"),
        ({"workspace": WORKSPACE, "bytes": needed.value - 1}, INVALID, f"must be >= {needed.value}"),
        ({"workspace": WORKSPACE + 8, "bytes": needed.value}, MISALIGNED, "workspace"),
        ({"workspace": 0, "bytes": needed.value}, OVERLAP, "workspace"),
        ({"workspace": BIAS, "bytes": needed.value}, OVERLAP, "dbias"),
    ):
        assert Status(calls.dbias(**given, **changes)) == status
        calls.check((word,))
    assert Status(calls.dbias(**given, workspace=WORKSPACE - 128, bytes=needed.value)) == Status.SUCCESS, calls.error()
    for arguments, status in (
        ((2, shape.ctypes.data, strides.ctypes.data, 4), UNSUPPORTED),
        ((0, shape.ctypes.data, strides.ctypes.data, FLOAT32), INVALID),
        ((2, None, None, FLOAT32), NULL),
    ):
        assert Status(query(*arguments, ctypes.addressof(needed))) == status
    assert Status(query(2, shape.ctypes.data, strides.ctypes.data, FLOAT32, None)) == NULL
    shape, strides = np.array([2**60, 1]), np.array([1, 1])  # no row is shared
    assert query(2, shape.ctypes.data, strides.ctypes.data, FLOAT32, ctypes.addressof(needed)) == Status.SUCCESS
    assert needed.value == 0
    shape, strides = np.array([2**40, 2**40, 4]), np.array([0, 0, 1])
    assert query(3, shape.ctypes.data, strides.ctypes.data, FLOAT32, ctypes.addressof(needed)) == OVERFLOW
    assert "shape has too many rows" in calls.error()


def test_the_sinks_of_a_call_have_their_gradient(arrays: Any, library: Any) -> None:
    dy, y = gradients("float32", (4, 10))
    sinks, lse = np.random.default_rng(11).standard_normal((2, 4)).astype("f4")
    expected = pyflowk.masked_softmax_backward(dy, y, sinks=sinks, lse=lse, return_dsinks=True)[1]
    given = {name: arrays.put(one) for name, one in (("dy", dy), ("y", y), ("sinks", sinks), ("lse", lse))}
    dsinks, dbias = arrays.put(np.zeros(4, "f4")), arrays.put(np.zeros(10, "f4"))
    at = {name: arrays.pointer(one) for name, one in given.items()}
    mask = SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask), sinks=at["sinks"], lse=at["lse"])
    mask.dsinks = arrays.pointer(dsinks)
    shape, strides = np.array([4, 10]), np.array([0, 1])
    status = library.flowk_masked_softmax_backward_dbias(
        *(at["dy"], None, at["y"], None, FLOAT32, None, None, FLOAT32, arrays.pointer(dbias), strides.ctypes.data),
        *(FLOAT32, 2, shape.ctypes.data, 1.0, ctypes.addressof(mask), 0, None, 0, None),
    )
    assert Status(status) == Status.SUCCESS, library.flowk_last_error()
    np.testing.assert_allclose(arrays.fetch(dsinks), expected, rtol=1e-6)
