# SPDX-License-Identifier: Apache-2.0
"""fill_memory(): one value in every element of any layout and type, and nowhere else."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflowk._arrays.fill import fill_memory

DTYPES = ("bool", "i1", "u2", "f2", "i4", "f4", "f8", "u8", "c8", "c16", ml_dtypes.bfloat16, "M8[s]")
VIEWS = {
    "contiguous": (Ellipsis,),
    "reversed and stepped": (slice(None, None, -2), slice(1, None, 3)),
    "one element": (2, 3, Ellipsis),
    "none": (slice(0, 0),),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_layout(arrays: Any, library: Any, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    value = 3.5 - 2.25j if dtype.kind == "c" else np.datetime64(7, "s") if dtype.kind == "M" else 1
    for index in VIEWS.values():
        host = np.zeros((7, 11), dtype)
        view = host[index]
        memory = arrays.put(host.view(np.uint8).ravel() if dtype.kind == "M" else host.reshape(-1))
        offset = view.__array_interface__["data"][0] - host.__array_interface__["data"][0]
        fill_memory(library, arrays.pointer(memory) + offset, view.shape, view.strides, dtype, value, 0)
        host[index] = value
        got = arrays.fetch(memory).view(np.uint8).ravel()
        np.testing.assert_array_equal(got, host.view(np.uint8).ravel())


def test_values_that_the_type_does_not_hold_are_refused(library: Any) -> None:
    geometry = ((2,), (1,), np.dtype(np.int8))
    with pytest.raises(OverflowError, match="300"):
        fill_memory(library, 1 << 20, *geometry, 300, 0)
    with pytest.raises(TypeError, match="value is an array, must be a number"):
        fill_memory(library, 1 << 20, *geometry, [1, 2], 0)
