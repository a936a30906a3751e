# SPDX-License-Identifier: Apache-2.0
"""permute with conversion against NumPy, bit for bit but for the payloads of NaN, with every byte around the output
watched."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from permute_cases import EVERY_TYPE_CASES, ONE_TYPE_CASES, Layout, PermuteCase, layout
from permute_convert_cases import CONVERTIBLE, PAIRS, converted, dtype_of, values_of
from test_permute import assert_same_bytes, buffer_for

import pyflowk
from pyflowk import DType, Status


def unsigned_view(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def assert_same_numbers(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, or both NaN."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    wrong = unsigned_view(actual.copy()) != unsigned_view(expected)
    if actual.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):  # raised by ml_dtypes' isnan
            wrong &= ~(np.isnan(actual) & np.isnan(expected))
    assert not wrong.any(), f"{wrong.sum()} wrong: {actual[wrong][:8]} in place of {expected[wrong][:8]}"


def check_convert(
    arrays: Any,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    types: tuple[str, str],
    src: Layout,
    dst: Layout,
    src_lead: int = 0,
    dst_lead: int = 0,
    scale: float = 1.0,
) -> None:
    """Permutes inside larger buffers, leads in elements; afterwards every byte of both must be right."""
    src_dtype, dst_dtype = map(dtype_of, types)
    out_shape = tuple(shape[axis] for axis in axes)
    src_memory, src_place = buffer_for(src, shape, src_dtype, src_lead * src_dtype.itemsize)
    dst_memory, dst_place = buffer_for(dst, out_shape, dst_dtype, dst_lead * dst_dtype.itemsize)
    x = np.ndarray(shape, src_dtype, src_memory, *src_place)
    x[...] = values_of(types[0], x.size).reshape(shape)
    expected = dst_memory.copy()
    expected_out = np.ndarray(out_shape, dst_dtype, expected, *dst_place)
    right = converted(np.ascontiguousarray(x).reshape(-1), *types, scale).reshape(shape).transpose(axes)
    expected_out[...] = right

    device_src, device_dst = arrays.put(src_memory), arrays.put(dst_memory)
    out = arrays.view(device_dst, dst_place[0], out_shape, dst_place[1], dst_dtype)
    view = arrays.view(device_src, src_place[0], shape, src_place[1], src_dtype)
    result = pyflowk.permute(view, axes, dtype=dst_dtype, scale=scale, out=out)

    assert result is out
    actual = arrays.fetch(device_dst).copy()
    actual_out = np.ndarray(out_shape, dst_dtype, actual, *dst_place)
    assert_same_numbers(actual_out, np.array(right, order="C"))
    actual_out[...] = expected_out  # NaN payloads are free; all else, around and between the elements, is not
    assert_same_bytes(actual, expected)
    assert_same_bytes(arrays.fetch(device_src), src_memory)


@pytest.mark.parametrize("scale", [1.0, 0.37, -1 / 255])
@pytest.mark.parametrize("src", CONVERTIBLE)
def test_every_type_becomes_every_other_as_the_header_says(arrays: Any, src: str, scale: float) -> None:
    values = values_of(src, 3000)
    x = arrays.put(values.reshape(50, 60))
    for dst in CONVERTIBLE:
        expected = converted(values, src, dst, scale).reshape(50, 60)
        for axes in ((0, 1), (1, 0)):
            result = arrays.fetch(pyflowk.permute(x, axes, dtype=dst, scale=scale))
            assert_same_numbers(result, np.ascontiguousarray(expected.transpose(axes)))


@pytest.mark.parametrize("src", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint16"])
def test_every_value_of_a_narrow_type_is_converted_right(arrays: Any, src: str) -> None:
    dtype = dtype_of(src)
    count = 256**dtype.itemsize
    values = np.arange(count).astype(f"u{dtype.itemsize}").view(dtype)
    x = arrays.put(values.reshape(16, -1))
    for dst in CONVERTIBLE:
        expected = converted(values, src, dst).reshape(16, -1)
        assert_same_numbers(arrays.fetch(pyflowk.permute(x, (1, 0), dtype=dst)), np.ascontiguousarray(expected.T))


@pytest.mark.parametrize("dst", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("src", ["float32", "float64"])
def test_floats_are_rounded_once_to_nearest_even(arrays: Any, src: str, dst: str) -> None:
    # Every value of dst, every middle of two, and src's next values on both sides of a middle.
    some = np.arange(0, 256 ** dtype_of(dst).itemsize // 2, 1 if "float8" in dst else 7)
    finite = some.astype(f"u{dtype_of(dst).itemsize}").view(dtype_of(dst))
    with np.errstate(invalid="ignore"):
        finite = finite[np.isfinite(finite)].astype(np.float64)
    middles = ((finite[1:] + finite[:-1]) / 2).astype(src)
    beside = [np.nextafter(middles, middles.dtype.type(towards)) for towards in (-np.inf, np.inf)]
    values = np.concatenate([finite.astype(src), middles, *beside])
    values = np.concatenate([values, -values])
    result = arrays.fetch(pyflowk.permute(arrays.put(values), (0,), dtype=dst))
    assert_same_numbers(result, converted(values, src, dst))


def check_case(arrays: Any, case: PermuteCase, types: tuple[str, str], scale: float = 0.5) -> None:
    leads = (lead // np.dtype(case.dtype).itemsize for lead in (case.src_lead_bytes, case.dst_lead_bytes))
    check_convert(arrays, case.shape, case.axes, types, *case.layouts, *leads, scale)


@pytest.mark.parametrize("case", EVERY_TYPE_CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right_for_types_of_every_size(
    arrays: Any, thread_order: str, case: PermuteCase
) -> None:
    for types in PAIRS:
        check_case(arrays, case, types)


def test_the_cases_of_one_type_are_right_with_the_pairs_in_turn(arrays: Any, thread_order: str) -> None:
    for case, types in zip(ONE_TYPE_CASES, itertools.cycle(PAIRS)):
        check_case(arrays, case, types)


def test_no_elements_are_converted(arrays: Any) -> None:
    for types in PAIRS:
        check_convert(arrays, (3, 0, 4), (2, 0, 1), types, layout((3, 0, 4)), layout((4, 3, 0)), scale=0.5)


def test_every_kernel_is_reached_by_a_row_of_the_table(arrays: Any) -> None:
    reached = set()
    for case, (src, dst) in itertools.product(EVERY_TYPE_CASES, (*PAIRS[:4], ("int8", "float16"))):
        out_shape = tuple(case.shape[axis] for axis in case.axes)
        memory, place = buffer_for(case.layouts[0], case.shape, dtype_of(src), 0)
        out_memory, out_place = buffer_for(case.layouts[1], out_shape, dtype_of(dst), 0)
        x = arrays.view(arrays.put(memory), place[0], case.shape, place[1], dtype_of(src))
        out = arrays.view(arrays.put(out_memory), out_place[0], out_shape, out_place[1], dtype_of(dst))
        reached.add(pyflowk.explain("permute", x, case.axes, dtype=dst, out=out).partition(":")[0])
    assert reached == {"copy_rows", "aligned_tile", "general_tile", "strided_tile", "channels"}


@pytest.mark.parametrize("types", [("float32", "float16"), ("uint8", "float32"), ("float64", "int8")], ids=str)
@pytest.mark.parametrize("extents", [(7, 5), (35, 19), (5, 3, 9), (17, 9, 20), (3, 2, 5, 7), (9, 3, 17, 5)], ids=str)
def test_every_permutation_of_ranks_2_to_4_is_right(
    arrays: Any, thread_order: str, extents: tuple[int, ...], types: tuple[str, str]
) -> None:
    for axes in itertools.permutations(range(len(extents))):
        out_shape = tuple(extents[axis] for axis in axes)
        check_convert(arrays, extents, axes, types, layout(extents), layout(out_shape))


# ---- what only moves bits -------------------------------------------------------------------------------------------


def convert_in_c(
    arrays: Any, library: Any, values: np.ndarray, src: int, dst: int, out: np.ndarray, scale: float
) -> Any:
    """flowk_permute_convert of a matrix's transpose: its status and what it wrote."""
    x, y = arrays.put(values), arrays.put(out)
    shape, axes = np.array(values.shape, np.int64), np.array([1, 0], np.int32)
    status = library.flowk_permute_convert(
        *(
            arrays.pointer(x),
            None,
            src,
            arrays.pointer(y),
            None,
            dst,
            2,
            shape.ctypes.data,
            axes.ctypes.data,
            scale,
            None,
        )
    )
    return Status(status), arrays.fetch(y)


@pytest.mark.parametrize(
    ("src", "dst", "dtype"),
    [
        (DType.FLOAT32, DType.FLOAT32, "uint32"),
        (DType.FLOAT16, DType.FLOAT16, "uint16"),
        (DType.INT64, DType.UINT64, "uint64"),
        (DType.COMPLEX128, DType.COMPLEX128, "complex128"),
        (DType.UINT8, DType.INT8, "uint8"),
    ],
)
def test_a_call_that_converts_nothing_moves_bits(arrays: Any, library: Any, src: DType, dst: DType, dtype: str) -> None:
    num_bytes = np.dtype(dtype).itemsize
    raw = np.random.default_rng(1).integers(0, 256, 33 * 18 * num_bytes, dtype=np.uint8)  # NaN payloads too
    values = raw.view(f"V{num_bytes}").reshape(33, 18)
    moved = np.zeros((18, 33), dtype)
    status, result = convert_in_c(arrays, library, raw.view(dtype).reshape(33, 18), src, dst, moved, 1.0)
    assert status == Status.SUCCESS
    assert result.tobytes() == np.ascontiguousarray(values.T).tobytes()


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "scale", "status", "words"),
    [
        (0, 12, 1.0, Status.UNSUPPORTED_DTYPE, ("src_dtype = 0", "17")),
        (12, 18, 1.0, Status.UNSUPPORTED_DTYPE, ("dst_dtype = 18", "17")),
        (DType.COMPLEX64, DType.FLOAT32, 1.0, Status.UNSUPPORTED_DTYPE, ("src_dtype = 16 (complex64)",)),
        (DType.FLOAT32, DType.INT64, 1.0, Status.UNSUPPORTED_DTYPE, ("dst_dtype = 5 (int64)", "8 to 32 bits")),
        (DType.UINT64, DType.UINT64, 2.0, Status.UNSUPPORTED_DTYPE, ("src_dtype = 9 (uint64)",)),
        (DType.FLOAT32, DType.FLOAT16, float("nan"), Status.INVALID_ARGUMENT, ("scale = nan", "finite")),
        (DType.FLOAT32, DType.FLOAT16, float("inf"), Status.INVALID_ARGUMENT, ("scale = inf", "float32")),
        (DType.FLOAT32, DType.FLOAT16, 1e39, Status.INVALID_ARGUMENT, ("scale = 1e+39", "float32")),
        (DType.FLOAT64, DType.FLOAT16, float("-inf"), Status.INVALID_ARGUMENT, ("scale = -inf", "float64")),
    ],
)
def test_types_and_scales_that_it_does_not_take_are_refused(
    arrays: Any, library: Any, src: int, dst: int, scale: float, status: Status, words: tuple[str, ...]
) -> None:
    values, before = np.zeros((3, 16), np.uint64), np.full((16, 3), 7, np.uint64)
    got, after = convert_in_c(arrays, library, values, src, dst, before, scale)
    assert got == status
    text = library.flowk_last_error().decode()
    assert all(word in text for word in words), text
    assert (after == before).all()


def test_the_scale_of_an_unscaled_pair_in_double_may_be_past_float32(arrays: Any) -> None:
    x = arrays.put(np.array([1e-200, -2e-200]))
    result = arrays.fetch(pyflowk.permute(x, (0,), dtype="float32", scale=1e200))
    np.testing.assert_array_equal(result, np.float32([1e-200 * 1e200, -2e-200 * 1e200]))


@pytest.mark.parametrize(
    ("types", "offset", "overlaps"),
    [
        (("float32", "float16"), 0, True),
        (("float32", "float16"), 12 * 4 - 2, True),
        (("float32", "float16"), 12 * 4, False),
        (("float32", "float16"), -12 * 2, False),
        (("float32", "float16"), -12 * 2 + 2, True),
        (("float16", "float32"), 12 * 2 - 4, True),
        (("float16", "float32"), 12 * 2, False),
        (("float16", "float32"), -12 * 4 + 4, True),
        (("float16", "float32"), -12 * 4, False),
    ],
)
def test_overlap_is_decided_by_the_bytes_of_each_side(
    arrays: Any, types: tuple[str, str], offset: int, overlaps: bool
) -> None:
    src_dtype, dst_dtype = map(np.dtype, types)
    memory = arrays.put(np.zeros(256, np.uint8))
    x = arrays.view(memory, 96, (3, 4), (4 * src_dtype.itemsize, src_dtype.itemsize), src_dtype)
    out = arrays.view(memory, 96 + offset, (4, 3), (3 * dst_dtype.itemsize, dst_dtype.itemsize), dst_dtype)
    if overlaps:
        with pytest.raises(pyflowk.FlowkError, match=r"^out .* overlaps x ") as caught:
            pyflowk.permute(x, (1, 0), dtype=dst_dtype, out=out)
        assert caught.value.status == Status.OVERLAP
    else:
        pyflowk.permute(x, (1, 0), dtype=dst_dtype, out=out)


def test_halves_of_other_elements_do_not_overlap(arrays: Any) -> None:
    # Every other float32 in, every fourth float16 out: into what lies between them.
    memory = arrays.put(np.zeros(16 * 8, np.uint8))
    x = arrays.view(memory, 0, (16,), (8,), np.float32)
    out = arrays.view(memory, 4, (16,), (8,), np.float16)
    pyflowk.permute(x, (0,), dtype=np.float16, out=out)
    with pytest.raises(pyflowk.FlowkError, match="overlaps"):
        pyflowk.permute(x, (0,), dtype=np.float16, out=arrays.view(memory, 2, (16,), (8,), np.float16))


def test_a_misaligned_side_is_named(arrays: Any) -> None:
    memory, out = arrays.put(np.zeros(64, np.uint8)), arrays.put(np.zeros(64, np.uint8))
    with pytest.raises(pyflowk.FlowkError, match=r"^out = .* must be a multiple of 4 for float32"):
        pyflowk.permute(
            arrays.view(memory, 2, (4,), (2,), np.float16),
            (0,),
            dtype=np.float32,
            out=arrays.view(out, 2, (4,), (4,), np.float32),
        )


# ---- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["bfloat16", DType.BFLOAT16, ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)], ids=str
)
def test_a_type_may_be_a_name_a_dtype_or_a_number_of_the_header(arrays: Any, dtype: Any) -> None:
    values = values_of("float32", 12).reshape(3, 4)
    result = pyflowk.permute(arrays.put(values), (1, 0), dtype=dtype)
    assert result.dtype == ml_dtypes.bfloat16
    assert_same_numbers(arrays.fetch(result), converted(values.T.copy(), "float32", "bfloat16"))


def test_without_a_type_a_scale_keeps_that_of_x(arrays: Any) -> None:
    values = values_of("float16", 60).reshape(5, 12)
    result = pyflowk.permute(arrays.put(values), (1, 0), scale=np.float32(0.5))
    assert_same_numbers(arrays.fetch(result), converted(values.T.copy(), "float16", "float16", 0.5))


def test_batch_transpose_converts_as_well(arrays: Any) -> None:
    values = values_of("float32", 2 * 33 * 18).reshape(2, 33, 18)
    result = pyflowk.batch_transpose(arrays.put(values), dtype="float16", scale=0.5)
    expected = converted(values.reshape(-1), "float32", "float16", 0.5).reshape(values.shape)
    assert_same_numbers(arrays.fetch(result), np.ascontiguousarray(expected.swapaxes(1, 2)))


def test_an_out_of_another_type_is_refused_unless_the_type_is_named(arrays: Any) -> None:
    x, out = arrays.put(np.ones((3, 4), np.float32)), arrays.put(np.full((4, 3), 7, np.float16))
    with pytest.raises(TypeError, match="out has dtype float16, must be float32"):
        pyflowk.permute(x, (1, 0), out=out)
    with pytest.raises(TypeError, match="out has dtype float16, must be float32"):
        pyflowk.permute(x, (1, 0), scale=2.0, out=out)
    with pytest.raises(TypeError, match="out has dtype float16, must be bfloat16"):
        pyflowk.permute(x, (1, 0), dtype="bfloat16", out=out)
    assert (arrays.fetch(out) == 7).all()
    assert pyflowk.permute(x, (1, 0), dtype=np.float16, out=out) is out
    assert (arrays.fetch(out) == 1).all()


def test_what_is_no_number_is_not_converted(arrays: Any) -> None:
    dates = np.zeros((3, 4), "datetime64[s]")
    for call in (pyflowk.permute, lambda *a, **k: pyflowk.explain("permute", *a, **k)):
        with pytest.raises(
            TypeError, match=r"x has dtype datetime64\[s\], must be bool, int8, .* to be converted or scaled"
        ):
            call(arrays.put(dates), (1, 0), dtype="float32")
        with pytest.raises(
            TypeError, match="dtype = complex64, must be x's own dtype float32 without a scale, or bool, int8"
        ):
            call(arrays.put(np.zeros((3, 4), np.float32)), (1, 0), dtype=np.complex64)
        with pytest.raises(TypeError, match="dtype = int64, must be x's own dtype float32"):
            call(arrays.put(np.zeros((3, 4), np.float32)), (1, 0), dtype=int)


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "int64", "uint64", ">f4", "datetime64[s]", "S4"])
def test_the_type_that_x_has_is_a_plain_permute(arrays: Any, dtype: str) -> None:
    x = np.arange(12).astype(np.int32).reshape(3, 4).astype(dtype)
    own = arrays.put(x)
    names = [np.dtype(dtype)] + ([] if np.dtype(dtype).kind in "MS" or dtype == ">f4" else [dtype, x.dtype.type])
    for name in names:
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(own, (1, 0), dtype=name)), x.T)
        np.testing.assert_array_equal(arrays.fetch(pyflowk.batch_transpose(own, dtype=name, scale=1)), x.T)
        plan = pyflowk.explain(pyflowk.permute, own, (1, 0), dtype=name)
        assert plan == pyflowk.explain(pyflowk.permute, own, (1, 0))
    with pytest.raises(TypeError, match=r"x has dtype .* to be converted or scaled"):
        pyflowk.permute(own, (1, 0), scale=2.0)


def test_the_plan_names_types_arithmetic_and_scale(arrays: Any) -> None:
    x = arrays.put(np.zeros((2, 16, 16, 3), np.uint8))
    text = pyflowk.explain(pyflowk.permute, x, (0, 3, 1, 2), dtype="float16", scale=0.25)
    assert text.startswith(("channels: ", "general_tile: "))
    assert "converts uint8 to float16, computed in float32, times 0.25\n" in text
    assert "uint8" not in pyflowk.explain(pyflowk.permute, x, (0, 3, 1, 2), dtype="uint8")
    assert "computed in float64" in pyflowk.explain(pyflowk.batch_transpose, x, dtype="float64")


def test_no_elements_need_no_memory(library: Any) -> None:
    shape, axes = np.array([0, 4], np.int64), np.array([1, 0], np.int32)
    arguments = (None, None, 12, None, None, 10, 2, shape.ctypes.data, axes.ctypes.data, 0.5)
    assert library.flowk_permute_convert(*arguments, None) == Status.SUCCESS
