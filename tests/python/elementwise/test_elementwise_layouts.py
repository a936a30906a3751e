# SPDX-License-Identifier: Apache-2.0
"""Shapes and strides, against NumPy: the layouts of tests/cases/elementwise_cases.json, which C++ reads too, in every
type; broadcasting, ranks, `out`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from elementwise_cases import BOOL
from source_tree import ROOT

import pyflowk

CASES = json.loads((ROOT / "tests/cases/elementwise_cases.json").read_text())
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
# Gradients of activations, in float64. With integers all are exact, except softplus_backward.
GRADIENTS: dict[str, Callable[..., np.ndarray]] = {
    "sigmoid_backward": lambda x, y: x * y * (1 - y),
    "tanh_backward": lambda x, y: x * (1 - y * y),
    "softplus_backward": lambda x, y: x / (1 + np.exp(-y)),
    "leaky_relu_backward": lambda x, y, z: np.where(y > 0, x, z * x),
    "elu_backward": lambda x, y, z: np.where(y > 0, x, x * z),
}
CONVERSIONS = ("f4 f2", "f2 f4", "f8 f4", "u1 f4", "f4 u1", "i8 i4", "i2 f8", "? i4")
CANARY = 0x2A


class Operand:
    """An operand of a case, in memory of its exact size."""

    def __init__(self, arrays: Any, case: dict, k: int, dtype: str) -> None:
        shape, size = case["shape"], np.dtype(dtype).itemsize
        strides = case["operands"][k].get("strides") or [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        reaches = [(n - 1) * s for n, s in zip(shape, strides)]
        lead = case["operands"][k].get("lead_elements", 0)
        place = (lead - sum(min(reach, 0) for reach in reaches)) * size, [s * size for s in strides]
        self.host = np.full((lead + 1 + sum(map(abs, reaches))) * size, CANARY, np.uint8)
        self.view = np.ndarray(shape, dtype, self.host, *place)
        if k > 0:
            self.view[...] = np.random.default_rng(k).integers(0, 2 if np.dtype(dtype).kind == "b" else 100, shape)
        self.memory = arrays.put(self.host.copy())
        self.array = arrays.view(self.memory, place[0], tuple(shape), tuple(place[1]), dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_every_layout_is_right_in_every_type(arrays: Any, thread_order: str, case: dict) -> None:
    for dtype in ["float64"] if "big" in case else DTYPES:
        x, y = Operand(arrays, case, 1, dtype), Operand(arrays, case, 2, dtype)
        for function, expected in ((pyflowk.maximum, np.maximum), (pyflowk.less, np.less)):
            out = Operand(arrays, case, 0, "bool" if function is pyflowk.less else dtype)
            out.view[...] = expected(x.view, y.view)
            function(x.array, y.array, out=out.array)
            np.testing.assert_array_equal(arrays.fetch(out.memory), out.host)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_every_layout_is_right_in_gradients_and_conversions(arrays: Any, thread_order: str, case: dict) -> None:
    for (name, expected), dtype in itertools.product(GRADIENTS.items() if "big" not in case else (), ("f2", "f4")):
        function = getattr(pyflowk, name)
        out, *inputs = (Operand(arrays, case, k, dtype) for k in (0, 1, 2, 2)[: 1 + expected.__code__.co_argcount])
        with np.errstate(over="ignore"):
            out.view[...] = expected(*(one.view.astype(np.float64) for one in inputs))
        function(*(one.array for one in inputs), out=out.array)
        if name != "softplus_backward":
            np.testing.assert_array_equal(arrays.fetch(out.memory), out.host)
    for source, target in map(str.split, CONVERSIONS):
        out, x = Operand(arrays, case, 0, target), Operand(arrays, case, 2, source)
        out.view[...] = x.view.astype(target)
        pyflowk.cast(x.array, out=out.array)
        np.testing.assert_array_equal(arrays.fetch(out.memory), out.host)


def test_every_kernel_is_reached_by_a_row_of_the_table() -> None:
    params = ROOT / "include/flowk/detail/elementwise_params.h"
    header = params.read_text().partition("enum class ElementwiseKernel")[2]
    kernels = [line.split(",")[0].strip() for line in header.partition("{\n")[2].partition("}")[0].splitlines()]
    assert {case["mechanism"] for case in CASES} == set(kernels) - {""}


# ---- broadcasting, ranks and out -------------------------------------------------------------------------------------

BROADCASTS = (
    ((64, 130), (130,), "a row"),
    ((64, 130), (64, 1), "a column"),
    ((64, 130), (1, 1), "one element"),
    ((64, 130), (), "rank 0"),
    ((3, 1, 130), (64, 1), "each where the other is not"),
    ((2, 5, 1, 7), (3, 1), "of different ranks"),
    ((4099,), (1,), "one element beside many blocks"),
    ((0, 5), (5,), "no elements"),
    ((1,), (0,), "an extent of 0 wins over 1"),
)


@pytest.mark.parametrize(("first", "second", "why"), BROADCASTS, ids=lambda value: str(value))
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_shapes_broadcast_as_in_numpy(
    arrays: Any, thread_order: str, first: tuple[int, ...], second: tuple[int, ...], why: str, dtype: str
) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, 9, shape).astype(dtype) for shape in (first, second))
    for left, right in ((x, y), (y, x)):
        np.testing.assert_array_equal(arrays.fetch(pyflowk.subtract(arrays.put(left), arrays.put(right))), left - right)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_a_transposed_operand_is_read_where_it_is(arrays: Any, thread_order: str, dtype: str) -> None:
    x = (np.arange(70 * 130) % 100).reshape(70, 130).astype(dtype)
    y = (np.arange(70 * 130) % 90).reshape(130, 70).astype(dtype)
    num_bytes = x.itemsize
    device = arrays.put(y)
    transposed = arrays.view(device, 0, (70, 130), (num_bytes, 70 * num_bytes), x.dtype)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.maximum(arrays.put(x), transposed)), np.maximum(x, y.T))


def test_ranks_to_32_work(arrays: Any) -> None:
    for rank in (0, 1, 31, 32):
        x = np.arange(2 ** min(rank, 10), dtype=np.float32).reshape((2,) * min(rank, 10) + (1,) * (rank - 10))
        y = np.full((1,) * rank, 3, np.float32)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.add(arrays.put(x), arrays.put(y))), x + 3)
    bits = (2,) * 12
    x = np.arange(2**12, dtype=np.int16).reshape(bits)
    backwards = arrays.view(arrays.put(x), 0, bits, x.strides[::-1], x.dtype)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.subtract(arrays.put(x), backwards)), x - x.transpose())


def test_the_result_may_take_an_operand_s_place(arrays: Any) -> None:
    values = np.arange(300, dtype=np.float32).reshape(3, 100) - 150
    x = arrays.put(values)
    assert pyflowk.relu(x, out=x) is x
    np.testing.assert_array_equal(arrays.fetch(x), np.maximum(values, 0))
    assert pyflowk.add(x, x, out=x) is x
    np.testing.assert_array_equal(arrays.fetch(x), 2 * np.maximum(values, 0))
    y = arrays.put(values)
    assert pyflowk.add(1, y, out=y) is y
    np.testing.assert_array_equal(arrays.fetch(y), 1 + values)


def test_out_may_have_more_dimensions_than_the_operands(arrays: Any) -> None:
    out = arrays.put(np.zeros((4, 3), np.float32))
    pyflowk.cast(arrays.put(np.arange(3, dtype=np.float32)), out=out)
    np.testing.assert_array_equal(arrays.fetch(out), np.tile(np.arange(3), (4, 1)))


def test_without_out_the_result_is_new_contiguous_and_of_x_s_kind(arrays: Any) -> None:
    x = arrays.put(np.ones((4, 5), np.float32))
    result = pyflowk.less(x, 2)
    assert type(result) is type(x)
    assert (result.shape, result.strides, result.dtype) == ((4, 5), (5, 1), BOOL)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_condition_per_row_serves_both_packs_of_a_thread(arrays: Any, dtype: str) -> None:
    random = np.random.default_rng(0)
    rows, cols = 2048, 301  # with this many rows a thread computes packs of two rows
    condition = random.random((rows, 1)) < 0.5
    x, y = (random.random((rows, cols)).astype(dtype) for _ in range(2))
    memory = arrays.put(np.full((rows, 2 * cols), 7, dtype))
    out = arrays.view(memory, 0, (rows, cols), (2 * cols * x.itemsize, x.itemsize), x.dtype)
    pyflowk.where(arrays.put(condition), arrays.put(x), arrays.put(y), out=out)
    np.testing.assert_array_equal(arrays.fetch(memory)[:, :cols], np.where(condition, x, y))
    assert (arrays.fetch(memory)[:, cols:] == 7).all()
