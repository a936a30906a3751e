# SPDX-License-Identifier: Apache-2.0
"""masked_softmax and masked_softmax_backward against float64. No byte around the output may change."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library_under_test import THREAD_ORDERS
from softmax_calls import check_backward, check_softmax, layout_of, place, place_gradients, place_inputs
from softmax_cases import DTYPES, MASK_CASES, TABLE, SoftmaxCase, TableCase
from softmax_reference import zeros_of
from source_tree import ROOT

import pyflowk

CASES = [*(row.case for row in TABLE if not row.backward and not row.gpu), *MASK_CASES]
BACKWARD_CASES = [
    *(row.case for row in TABLE if row.backward and not row.gpu),
    *(case for case in MASK_CASES if case.values != "special" and case.bias is None),
]
GPU_ROWS = [row for row in TABLE if row.gpu]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right(arrays: Any, thread_order: str, case: SoftmaxCase) -> None:
    check_softmax(arrays, case)


@pytest.mark.parametrize("case", BACKWARD_CASES, ids=lambda case: case.id)
def test_the_gradient_of_every_case_is_right(arrays: Any, thread_order: str, case: SoftmaxCase) -> None:
    check_backward(arrays, case)


@pytest.mark.gpu
@pytest.mark.parametrize("row", GPU_ROWS, ids=lambda row: "backward-" * row.backward + row.case.id)
def test_every_case_of_clusters_is_right(arrays: Any, row: TableCase) -> None:
    if arrays.device is None:
        pytest.skip("the executor has no clusters")
    (check_backward if row.backward else check_softmax)(arrays, row.case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [5, 64, 77, 1000, 2048])
def test_columns_that_lengths_and_bands_mask_are_not_read(arrays: Any, dtype: str, cols: int) -> None:
    shape = (2, 6, cols)
    for log in (False, True):
        for keywords in (
            {"lengths": (2, 6)},
            {"lengths": (2, 1), "lengths_from_right": True},
            {"causal": True, "causal_offset": -3},
            {"window": max(1, cols // 4)},
            {"lengths": (2, 6), "causal": True, "window": cols},
        ):
            case = SoftmaxCase(shape, dtype, "masked columns unread", log=log, **keywords)
            check_backward(arrays, case, unread=True)


def test_every_kernel_is_reached_by_a_row_of_the_table(arrays: Any) -> None:
    header = ROOT / "cuda" / "softmax" / "softmax_kernel_table.h"
    enum = re.search(r"enum class \w*Kernel[^{]*{(.*?)};", header.read_text(), re.DOTALL)
    assert enum
    kernels = set(re.findall(r"^\s*(\w+),", enum[1], re.MULTILINE))
    if arrays.device is None:  # the executor has no clusters
        kernels -= {"persistent_rows"}
    planned = set()
    for case in CASES if arrays.device is None else (*CASES, *(row.case for row in GPU_ROWS if not row.backward)):
        if 0 in case.shape:
            continue
        given = {name: one.array for name, one in place_inputs(arrays, case, zeros_of(case)).items()}
        out = place(arrays, None, case.shape, case.y_dtype, case.out_lead, *layout_of(case)).array
        planned.add(pyflowk.explain("masked_softmax", **given, **case.options(), out=out).partition(":")[0])
    for case in BACKWARD_CASES:
        if 0 in case.shape:
            continue
        y = np.zeros(case.shape, case.y_dtype)
        given = {name: one.array for name, one in place_gradients(arrays, case, y, y, zeros_of(case).lengths).items()}
        out = place(arrays, None, case.shape, case.dtype, case.out_lead, *layout_of(case)).array
        planned.add(pyflowk.explain("masked_softmax_backward", **given, **case.options(), out=out).partition(":")[0])
    assert kernels <= planned, planned


# ---- any call -------------------------------------------------------------------------------------------------------


VALUES = ("normal", "normal", "wide", "negative", "special")


@st.composite
def softmax_cases(draw: st.DrawFn) -> SoftmaxCase:
    """Any call of limited size that the docstring allows."""
    cols = draw(st.one_of(st.integers(1, 140), st.integers(1, 2200), st.sampled_from([3000, 4096, 9001])))
    lead: list[int] = []
    room = max(1, 6000 // cols)
    for _ in range(draw(st.integers(0, 4))):
        lead.append(draw(st.integers(1, min(room, 9))))
        room //= lead[-1]
    shape = (*lead, cols)

    def some(extents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(draw(st.sampled_from((1, extent))) for extent in extents)

    maybe = st.booleans()
    dtype = draw(st.sampled_from(DTYPES))
    narrow = dtype in ("float16", "bfloat16")
    out_dtypes = {"float64": [None], "float32": [None, "float16", "bfloat16"]}.get(dtype, [None, "float32"])
    rank = len(shape)
    offsets = st.integers(-cols - 5, cols + 5)
    scale = draw(st.sampled_from((1.0, 0.125, -0.5, 0.3, 0.0)))  # 0 times infinity is not promised
    return SoftmaxCase(
        shape,
        dtype,
        "drawn",
        mask=(*some(tuple(lead)[draw(st.integers(0, rank - 1)) :]), cols) if draw(maybe) else None,
        lengths=some(tuple(lead)[: draw(st.integers(0, rank - 1))]) if draw(maybe) else None,
        lengths_from_right=draw(st.booleans()),
        causal=draw(maybe),
        causal_offset=draw(st.one_of(st.just(0), offsets)),
        window=draw(st.one_of(st.none(), st.integers(1, cols + 3))),
        bias=(*some(tuple(lead)[draw(st.integers(0, rank - 1)) :]), cols) if draw(maybe) else None,
        bias_dtype="float32" if narrow and draw(maybe) else None,
        scale=scale,
        out_dtype=draw(st.sampled_from(out_dtypes)),
        log=draw(maybe),
        padded=draw(maybe),
        x_lead=draw(st.integers(0, 9)),
        out_lead=draw(st.integers(0, 9)),
        mask_lead=draw(st.integers(0, 17)),
        bias_lead=draw(st.integers(0, 9)),
        lengths_dtype=draw(st.sampled_from(("int32", "int64"))),
        mask_dtype=draw(st.sampled_from(("bool", "uint8"))),
        values=draw(st.sampled_from(("normal", "wide", "negative") if scale == 0 else VALUES)),
    )


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@settings(unhurried, max_examples=400)
@given(case=softmax_cases(), order=st.sampled_from(THREAD_ORDERS))
def test_any_call_is_right(arrays: Any, monkeypatch: pytest.MonkeyPatch, case: SoftmaxCase, order: str) -> None:
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", order)
    check_softmax(arrays, case)


@settings(unhurried, max_examples=300)
@given(case=softmax_cases(), unread=st.booleans(), order=st.sampled_from(THREAD_ORDERS))
def test_any_gradient_is_right(
    arrays: Any, monkeypatch: pytest.MonkeyPatch, case: SoftmaxCase, unread: bool, order: str
) -> None:
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", order)
    check_backward(arrays, case._replace(values="normal"), unread)
