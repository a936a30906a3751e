# SPDX-License-Identifier: Apache-2.0
"""Runs a case of softmax in buffers with canaries around every array, and checks the result."""

from __future__ import annotations

import operator
import os
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from library_under_test import MARGIN_BYTES
from softmax_cases import SoftmaxCase
from softmax_reference import (
    Inputs,
    assert_within,
    backward_reference,
    inputs_of,
    lse_reference,
    row_strides,
    softmax_reference,
    unmasked,
)

import pyflowk

CANARY = 0xFF  # NaN in every float type, masked out in a mask
# Cases with larger clusters are skipped. The synccheck of CUDA 13.0 ends with an illegal memory access in every cluster
# of 16 blocks that has an mbarrier, even if its threads only wait for one arrival of their own block.
MAX_CLUSTER_BLOCKS = int(os.environ.get("FLOWK_TEST_CLUSTER_BLOCKS", "16"))


class Placed(NamedTuple):
    """An array in a larger buffer of canaries, and a copy of this buffer on the host."""

    array: Any
    memory: Any
    before: np.ndarray
    place: tuple[tuple[int, ...], np.dtype, int, tuple[int, ...]]  # shape, dtype, offset and strides in bytes

    def host_view(self, memory: np.ndarray) -> np.ndarray:
        shape, dtype, offset, strides = self.place
        return np.ndarray(shape, dtype, memory, offset, strides)


def place(
    arrays: Any,
    values: np.ndarray | None,
    shape: Any,
    dtype: Any,
    lead: int = 0,
    padded: bool = False,
    strided: bool = False,
) -> Placed:
    """`values`, or canaries if None, `lead` elements past an aligned address."""
    dtype = np.dtype(dtype)
    strides = row_strides(shape, dtype.itemsize, 3 if padded else 0, strided)
    num_bytes = max(map(operator.mul, strides, shape), default=dtype.itemsize)
    memory = np.full(2 * MARGIN_BYTES + lead * dtype.itemsize + max(num_bytes, 0), CANARY, np.uint8)
    where = (tuple(shape), dtype, MARGIN_BYTES + lead * dtype.itemsize, strides)
    if values is not None:
        np.ndarray(where[0], dtype, memory, *where[2:])[...] = values
    device = arrays.put(memory)
    return Placed(arrays.view(device, where[2], where[0], where[3], dtype), device, memory, where)


def place_inputs(arrays: Any, case: SoftmaxCase, inputs: Inputs) -> dict[str, Placed]:
    """The inputs of the case, by the names of masked_softmax's parameters."""
    leads = {"x": case.x_lead, "mask": case.mask_lead, "bias": case.bias_lead, "lengths": 0}
    return {
        name: place(arrays, values, values.shape, values.dtype, leads[name], *(layout_of(case) if name == "x" else ()))
        for name, values in inputs._asdict().items()
        if values is not None
    }


def layout_of(case: SoftmaxCase) -> tuple[bool, bool]:
    return case.padded, case.strided


def result_of(arrays: Any, out: Placed) -> np.ndarray:
    """The array that a call wrote. Asserts that the bytes around it did not change."""
    after = np.array(arrays.fetch(out.memory))
    values = out.host_view(after).copy()
    expected = out.before.copy()
    out.host_view(expected)[...] = values
    assert np.array_equal(after, expected), "bytes around out were written"
    return values


def assert_unchanged(arrays: Any, placed: dict[str, Placed]) -> None:
    for name, one in placed.items():
        assert np.array_equal(arrays.fetch(one.memory), one.before), f"{name} was written"


def skip_large_clusters(function: str, **given: Any) -> None:
    """Skips a call of softmax whose plan has clusters of more than MAX_CLUSTER_BLOCKS blocks."""
    if MAX_CLUSTER_BLOCKS < 16:
        found = re.search(r"threads of a block, (\d+) blocks", pyflowk.explain(function, **given))
        if found and int(found[1]) > MAX_CLUSTER_BLOCKS:
            pytest.skip(f"a cluster of {found[1]} blocks")


def check_softmax(arrays: Any, case: SoftmaxCase) -> None:
    inputs = inputs_of(case)
    placed = place_inputs(arrays, case, inputs)
    out = place(arrays, None, case.shape, case.y_dtype, case.out_lead, *layout_of(case))
    given = {name: one.array for name, one in placed.items()}
    if case.lse:
        lse = place(arrays, None, case.shape[:-1], lse_dtype(case))
        both = {**given, **case.options(), "return_lse": True, "out": out.array, "lse_out": lse.array}
        skip_large_clusters("masked_softmax", **both)
        results = pyflowk.masked_softmax(**both)
        assert results[0] is out.array and results[1] is lse.array
        assert_within(result_of(arrays, lse), lse_reference(case, inputs))
    else:
        skip_large_clusters("masked_softmax", **given, **case.options(), out=out.array)
        assert pyflowk.masked_softmax(**given, **case.options(), out=out.array) is out.array
    y = result_of(arrays, out)
    assert_within(y, softmax_reference(case, inputs))
    assert_unchanged(arrays, placed)
    if inputs.mask is not None or inputs.lengths is not None:  # exactly, not within a bound
        assert (y[~unmasked(case, inputs)] == (-np.inf if case.log else 0)).all()


def gradients_of(case: SoftmaxCase, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """dy and y of a case: y from the reference, dy random in every column."""
    y = softmax_reference(case, inputs).values.astype(case.y_dtype)
    dy = np.random.default_rng(len(case.id)).normal(0, 1, case.shape).astype(case.y_dtype)
    return dy, y


def lse_dtype(case: SoftmaxCase) -> str:
    return "float64" if case.dtype == "float64" else "float32"


def dlse_of(case: SoftmaxCase) -> np.ndarray | None:
    """The gradient of lse in a case, or None."""
    if not case.lse:
        return None
    return np.asarray(np.random.default_rng(len(case.id)).normal(0, 1, case.shape[:-1])).astype(
        "float64" if case.y_dtype == "float64" else "float32"
    )


def place_gradients(
    arrays: Any, case: SoftmaxCase, dy: np.ndarray, y: np.ndarray, lengths: np.ndarray | None
) -> dict[str, Placed]:
    placed = {
        "dy": place(arrays, dy, case.shape, dy.dtype, case.x_lead, *layout_of(case)),
        "y": place(arrays, y, case.shape, y.dtype, case.mask_lead, *layout_of(case)),
    }
    if lengths is not None:
        placed["lengths"] = place(arrays, lengths, lengths.shape, lengths.dtype)
    return placed


def check_backward(arrays: Any, case: SoftmaxCase, unread: bool = False) -> None:
    """`unread`: dy and y are NaN in the columns that lengths, causal and window mask out."""
    inputs = inputs_of(case)
    dy, y = gradients_of(case, inputs)
    keep = unmasked(case, inputs._replace(mask=None))
    if unread:
        dy[~keep] = y[~keep] = np.nan
    placed = place_gradients(arrays, case, dy, y, inputs.lengths)
    dlse = dlse_of(case)
    if dlse is not None:
        placed["dlse"] = place(arrays, dlse, dlse.shape, dlse.dtype)
    out = place(arrays, None, case.shape, case.dtype, case.out_lead, *layout_of(case))
    given = {**{name: one.array for name, one in placed.items()}, **case.options(), "out": out.array}
    skip_large_clusters("masked_softmax_backward", **given)
    assert pyflowk.masked_softmax_backward(**given) is out.array
    assert_within(result_of(arrays, out), backward_reference(case, keep, dy, y, dlse))
    assert_unchanged(arrays, placed)
