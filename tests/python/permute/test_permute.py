# SPDX-License-Identifier: Apache-2.0
"""permute and batch_transpose against NumPy, bit for bit, with every byte around the output watched."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from library_under_test import MARGIN_BYTES
from permute_cases import CASES, DTYPES, MECHANISMS, TABLE_CASES, Layout, PermuteCase, index_valued, layout
from source_tree import ROOT

import pyflowk

CANARY = 0xA5


def check_permute(
    arrays: Any,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    dtype: str,
    src: Layout,
    dst: Layout,
    src_lead_bytes: int = 0,
    dst_lead_bytes: int = 0,
) -> None:
    """Permutes inside larger buffers; afterwards every byte of both must be as NumPy says."""
    values = index_valued(shape, dtype)
    out_shape = tuple(shape[axis] for axis in axes)
    src_memory, src_place = buffer_for(src, shape, dtype, src_lead_bytes)
    dst_memory, dst_place = buffer_for(dst, out_shape, dtype, dst_lead_bytes)
    x = np.ndarray(shape, dtype, src_memory, *src_place)
    x[...] = values
    expected = dst_memory.copy()
    np.ndarray(out_shape, dtype, expected, *dst_place)[...] = x.transpose(axes)

    device_src, device_dst = arrays.put(src_memory), arrays.put(dst_memory)
    out = arrays.view(device_dst, dst_place[0], out_shape, dst_place[1], dtype)
    result = pyflowk.permute(arrays.view(device_src, src_place[0], shape, src_place[1], dtype), axes, out=out)

    assert result is out
    assert_same_bytes(arrays.fetch(device_dst), expected)
    assert_same_bytes(arrays.fetch(device_src), src_memory)


def buffer_for(
    where: Layout, shape: tuple[int, ...], dtype: str, lead_bytes: int
) -> tuple[np.ndarray, tuple[int, tuple[int, ...]]]:
    """Bytes full of canaries that hold the layout, and (offset, strides) in bytes of the array in them."""
    num_bytes = np.dtype(dtype).itemsize
    memory = np.full(2 * MARGIN_BYTES + lead_bytes + where.size * num_bytes, CANARY, np.uint8)
    offset = MARGIN_BYTES + lead_bytes + where.first * num_bytes
    return memory, (offset, tuple(stride * num_bytes for stride in where.strides))


def assert_same_bytes(actual: np.ndarray, expected: np.ndarray) -> None:
    if not np.array_equal(actual, expected):
        wrong = np.flatnonzero(actual != expected)
        raise AssertionError(
            f"{wrong.size} of {expected.size} bytes are wrong, the first at {wrong[:8]}: {actual[wrong[:8]]} "
            f"instead of {expected[wrong[:8]]}"
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_permuted_bit_for_bit(arrays: Any, thread_order: str, case: PermuteCase) -> None:
    check_permute(arrays, case.shape, case.axes, case.dtype, *case.layouts, case.src_lead_bytes, case.dst_lead_bytes)


EXTENTS = (
    (5,),
    (7, 4),
    (35, 19),
    (5, 3, 4),
    (17, 9, 20),
    (3, 2, 5, 4),
    (9, 3, 17, 5),
    (2, 3, 1, 4, 5),
    (5, 2, 17, 3, 6),
)


def test_every_kernel_is_reached_by_a_row_of_the_table(arrays: Any) -> None:
    folder = ROOT / "cuda" / "permute"
    enum = re.search(r"enum class PermuteKernel[^{]*{(.*?)};", (folder / "permute.h").read_text(), re.DOTALL)
    assert enum
    kernels = set(re.findall(r"^\s*(\w+),", enum[1], re.MULTILINE))
    sources = "".join(path.read_text() for path in (folder / "kernels").iterdir())
    assert set(re.findall(r"__global__[^;{]*?(\w+)\(const __grid_constant__", sources)) == kernels
    assert kernels == MECHANISMS
    planned = set()
    for case in TABLE_CASES:
        src, dst = case.layouts
        out_shape = tuple(case.shape[axis] for axis in case.axes)
        src_memory, src_place = buffer_for(src, case.shape, case.dtype, case.src_lead_bytes)
        dst_memory, dst_place = buffer_for(dst, out_shape, case.dtype, case.dst_lead_bytes)
        x = arrays.view(arrays.put(src_memory), src_place[0], case.shape, src_place[1], case.dtype)
        out = arrays.view(arrays.put(dst_memory), dst_place[0], out_shape, dst_place[1], case.dtype)
        planned.add(pyflowk.explain("permute", x, case.axes, out=out).partition(":")[0])
    assert kernels == planned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extents", EXTENTS, ids=lambda extents: "x".join(map(str, extents)))
def test_every_permutation_of_ranks_1_to_5_is_right(
    arrays: Any, thread_order: str, extents: tuple[int, ...], dtype: str
) -> None:
    for axes in itertools.permutations(range(len(extents))):
        out_shape = tuple(extents[axis] for axis in axes)
        check_permute(arrays, extents, axes, dtype, layout(extents), layout(out_shape))


@pytest.mark.parametrize("shape", [(3, 5), (2, 33, 31), (2, 3, 16, 17), (2, 0, 3)], ids=str)
def test_batch_transpose_swaps_the_last_two_axes(arrays: Any, shape: tuple[int, ...]) -> None:
    values = index_valued(shape, "uint16")
    result = pyflowk.batch_transpose(arrays.put(values))
    np.testing.assert_array_equal(arrays.fetch(result), values.swapaxes(-2, -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_c_batch_transpose_does_as_its_formula_says(arrays: Any, library: Any, dtype: str) -> None:
    code = {"uint8": 6, "uint16": 7, "uint32": 8, "complex64": 16, "complex128": 17}[dtype]
    values = index_valued((3, 33, 18), dtype)
    src, dst = arrays.put(values), arrays.put(np.zeros((3, 18, 33), dtype))
    assert library.flowk_batch_transpose(arrays.pointer(src), arrays.pointer(dst), 3, 33, 18, code, None) == 0
    fetched = arrays.fetch(dst)
    assert fetched.tobytes() == np.ascontiguousarray(values.swapaxes(1, 2)).tobytes()


def test_strides_may_be_null_for_contiguous_arrays(arrays: Any, library: Any) -> None:
    values = index_valued((5, 7), "uint32")
    src, dst = arrays.put(values), arrays.put(np.zeros((7, 5), np.uint32))
    shape, axes = np.array([5, 7], np.int64), np.array([1, 0], np.int32)
    status = library.flowk_permute(
        *(arrays.pointer(src), None, arrays.pointer(dst), None, 2, shape.ctypes.data, axes.ctypes.data, 8, None)
    )
    assert status == 0
    np.testing.assert_array_equal(arrays.fetch(dst), values.T)


def test_without_out_the_result_is_a_new_contiguous_array(arrays: Any) -> None:
    values = index_valued((4, 3, 5), "float32")
    x = arrays.put(values)
    result = pyflowk.permute(x, (2, 0, 1))
    assert type(result) is type(x)
    assert result.shape == (5, 4, 3)
    assert result.strides == (48, 12, 4)
    assert result.dtype == np.float32
    assert arrays.fetch(result).tobytes() == np.ascontiguousarray(values.transpose(2, 0, 1)).tobytes()


def test_negative_axes_count_from_the_end(arrays: Any) -> None:
    values = index_valued((4, 3, 5), "uint16")
    result = pyflowk.permute(arrays.put(values), (-1, 0, -2))
    np.testing.assert_array_equal(arrays.fetch(result), values.transpose(2, 0, 1))


def test_axes_may_be_any_iterable_of_integers(arrays: Any) -> None:
    values = index_valued((4, 3), "uint16")
    for axes in ([1, 0], np.array([1, 0]), reversed(range(2)), iter((np.int8(1), 0))):
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(arrays.put(values), axes)), values.T)


def test_nan_payloads_denormals_and_negative_zero_keep_their_bits(arrays: Any) -> None:
    for unsigned, floating in (("uint16", "float16"), ("uint32", "float32"), ("uint64", "float64")):
        top = np.dtype(unsigned).itemsize * 8 - 1
        exponents = {"float16": 0x7C00, "float32": 0x7F800000, "float64": 0x7FF << 52}[floating]
        bits = [0, 1, 1 << top, (1 << top) + 3, exponents, exponents + 1, exponents + 5, (1 << top) | exponents | 7]
        values = np.array(bits * 20, unsigned).reshape(16, 10)
        result = arrays.fetch(pyflowk.permute(arrays.put(values.view(floating)), (1, 0)))
        np.testing.assert_array_equal(result.view(unsigned), values.T)


@pytest.mark.parametrize(
    ("variable", "value", "bound"),
    [
        ("FLOWK_SIMT_THREAD_ORDER", "sideways", "forward or reverse"),
        ("FLOWK_SIMT_THREADS", "two", r"1 \.\.\. 256"),
        ("FLOWK_SIMT_THREADS", "257", r"1 \.\.\. 256"),
    ],
)
def test_an_unknown_value_of_the_executors_variables_is_refused_in_every_call(
    arrays: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, bound: str
) -> None:
    if arrays.device is not None:
        pytest.skip("a variable of the executor")
    monkeypatch.setenv(variable, value)
    for num_rows in (1, 300_000):
        x, out = index_valued((num_rows, 3), "uint32"), np.full((3, num_rows), 7, np.uint32)
        for call in (
            lambda x=x, out=out: pyflowk.permute(x, (1, 0), out=out),
            lambda x=x: pyflowk.explain(pyflowk.permute, x, (1, 0)),
            lambda x=x: pyflowk.negative(x.astype(np.int32)),
        ):
            with pytest.raises(pyflowk.FlowkValueError, match=f'{variable} = "{value}", must be {bound}') as error:
                call()
            assert error.value.status == pyflowk.Status.INVALID_ARGUMENT
        assert (out == 7).all()


def test_the_thread_order_variable_is_read_at_each_launch(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if arrays.device is not None:
        pytest.skip("a variable of the executor")
    x = index_valued((4, 3), "uint16")
    np.testing.assert_array_equal(pyflowk.permute(x, (1, 0)), x.T)
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", "reverse")
    np.testing.assert_array_equal(pyflowk.permute(x, (1, 0)), x.T)
