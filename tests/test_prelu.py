# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward against NumPy: outputs bit for bit, dalpha against float64, all bytes around watched."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library_under_test import THREAD_ORDERS
from prelu_cases import CASES, CODES, DTYPES, EMPTY_SHAPES, Data, PreluCase, dalpha_bound, data_of, make_data

import pyflowk
from pyflowk import Status
from pyflowk._prelu import explain_prelu, explain_prelu_backward

CANARY = 0xA5
MARGIN_BYTES = 256  # on both sides of an array; a multiple of 16


class Placed:
    """An array of a case inside a buffer of canaries, where the library can reach it."""

    def __init__(self, arrays: Any, values: np.ndarray, order: tuple[int, ...] = (), lead: int = 0) -> None:
        self._arrays, self._dtype, self._shape = arrays, values.dtype, values.shape
        order = order or tuple(range(values.ndim))
        stride = values.dtype.itemsize
        strides = [0] * values.ndim
        for d in reversed(order):
            strides[d] = stride
            stride *= max(values.shape[d], 1)
        self._strides, self._offset = tuple(strides), MARGIN_BYTES + lead * values.dtype.itemsize
        size = self._offset + values.nbytes + MARGIN_BYTES
        # The host's buffer at a multiple of 16; a device's is at one of 256.
        room = np.full(size + 16, CANARY, np.uint8)
        start = -room.ctypes.data % 16
        self._host = room[start : start + size]
        np.ndarray(self._shape, self._dtype, self._host, self._offset, self._strides)[...] = values
        self._memory = arrays.put(self._host) if arrays.device is not None else self._host
        self._before = self._host.copy()
        self.array = arrays.view(self._memory, self._offset, self._shape, self._strides, self._dtype)

    def check_margins(self) -> None:
        """Nothing around the array has changed."""
        fetched, end = self._arrays.fetch(self._memory), self._offset + self._span()
        assert (fetched[: self._offset] == CANARY).all()
        assert (fetched[end:] == CANARY).all()

    def check_unchanged(self) -> None:
        np.testing.assert_array_equal(self._arrays.fetch(self._memory), self._before)

    def values(self) -> np.ndarray:
        return np.ndarray(
            self._shape, self._dtype, self._arrays.fetch(self._memory), self._offset, self._strides
        ).copy()

    def _span(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


def check_forward(arrays: Any, case: PreluCase, data: Data) -> None:
    x, alpha = Placed(arrays, data.x, case.order, case.leads[0]), Placed(arrays, data.alpha)
    out = Placed(arrays, np.full_like(data.x, 7), case.order, case.leads[2])
    assert pyflowk.prelu(x.array, alpha.array, case.channel_axis, out=out.array) is out.array
    np.testing.assert_array_equal(bits(out.values()), bits(data.y))
    out.check_margins()
    x.check_unchanged()
    assert pyflowk.prelu(x.array, alpha.array, case.channel_axis, out=x.array) is x.array
    np.testing.assert_array_equal(bits(x.values()), bits(data.y))
    x.check_margins()


def check_backward(arrays: Any, case: PreluCase, data: Data) -> None:
    x, alpha = Placed(arrays, data.x, case.order, case.leads[0]), Placed(arrays, data.alpha)
    dy = Placed(arrays, data.dy, case.order, case.leads[1])
    dx, dalpha = Placed(arrays, np.full_like(data.x, 7), case.order, case.leads[2]), Placed(arrays, data.alpha + 1)
    result = pyflowk.prelu_backward(
        *(dy.array, x.array, alpha.array, case.channel_axis), dx_out=dx.array, dalpha_out=dalpha.array
    )
    assert result[0] is dx.array and result[1] is dalpha.array
    np.testing.assert_array_equal(bits(dx.values()), bits(data.dx))
    error = np.abs(dalpha.values().astype(np.float64) - data.dalpha)
    assert (error <= dalpha_bound(data)).all(), (error.max(), data.dalpha)
    for written in (dx, dalpha):
        written.check_margins()
    for read in (x, dy, alpha):
        read.check_unchanged()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right_forward_and_in_place(arrays: Any, thread_order: str, case: PreluCase) -> None:
    check_forward(arrays, case, make_data(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right_backward(arrays: Any, thread_order: str, case: PreluCase) -> None:
    check_backward(arrays, case, make_data(case))


def test_every_portable_kernel_is_reached_by_a_row_of_the_table(arrays: Any) -> None:
    header = (Path(__file__).parents[1] / "cuda" / "prelu" / "prelu_plan.h").read_text()
    enum = re.search(r"enum class PreluBackwardKernel[^{]*{(.*?)};", header, re.DOTALL)
    assert enum
    kernels = set(re.findall(r"^\s*(\w+),", enum[1], re.MULTILINE))
    assert "packs_of_planes" in kernels
    planned = set()
    for case in CASES:
        data = make_data(case)
        x, alpha, dy = (
            Placed(arrays, values, order, lead)
            for values, order, lead in (
                (data.x, case.order, case.leads[0]), (data.alpha, (), 0), (data.dy, case.order, case.leads[1])
            )
        )  # fmt: skip
        text = explain_prelu_backward(dy.array, x.array, alpha.array, case.channel_axis)
        planned.add(text.partition(":")[0])
        assert explain_prelu(x.array, alpha.array, case.channel_axis).startswith("elements: ")
    assert kernels - {"cluster_of_columns", "nothing"} <= planned


@st.composite
def prelu_calls(draw: st.DrawFn) -> tuple[PreluCase, int]:
    """Any call that flowk.h allows, of bounded size, and a seed for its values."""
    rank = draw(st.integers(1, 5))
    room, extents = 20000, []
    for _ in range(rank):
        extent = draw(st.one_of(st.integers(1, max(1, min(room, 12))), st.integers(1, max(1, min(room, 700)))))
        extents.append(extent)
        room //= extent
    shape = tuple(draw(st.permutations(extents)))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    narrow = DTYPES[dtype].itemsize == 2
    per_pack = 16 // DTYPES[dtype].itemsize
    lead = st.integers(0, per_pack - 1)
    leads = draw(st.one_of(st.just((0, 0, 0)), lead.map(lambda n: (n, n, n)), st.tuples(lead, lead, lead)))
    case = PreluCase(
        shape,
        draw(st.integers(-rank, rank - 1)),
        dtype,
        "drawn",
        "float32" if narrow and draw(st.booleans()) else "",
        draw(st.integers(0, 4)) == 0,
        tuple(draw(st.permutations(range(rank)))) if draw(st.booleans()) else (),
        leads,
    )
    return case, draw(st.integers(0, 2**32 - 1))


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@settings(unhurried, max_examples=600)
@given(call=prelu_calls(), order=st.sampled_from(THREAD_ORDERS))
def test_any_shape_type_channel_axis_and_alignment_is_right(
    arrays: Any, monkeypatch: pytest.MonkeyPatch, call: tuple[PreluCase, int], order: str
) -> None:
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", order)
    case, seed = call
    data = make_data(case, seed)
    check_forward(arrays, case, data)
    check_backward(arrays, case, data)


def assert_same_values(actual: np.ndarray, expected: np.ndarray) -> None:
    """Any NaN is like any other; zeros have signs."""
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_nan_and_infinities_take_the_side_that_torch_gives_them(arrays: Any, dtype: str) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 2.0**-14, -(2.0**-14)] * 3, DTYPES[dtype])
    for slope in (0.25, -0.25, 0.0, np.inf, np.nan):
        alpha = np.array([slope], DTYPES[dtype])
        data = data_of(values, values[::-1].copy(), alpha, 0)
        y = arrays.fetch(pyflowk.prelu(arrays.put(values), arrays.put(alpha)))
        assert_same_values(y, data.y)
        dx, dalpha = pyflowk.prelu_backward(arrays.put(data.dy), arrays.put(values), arrays.put(alpha))
        assert_same_values(arrays.fetch(dx), data.dx)
        assert np.isnan(arrays.fetch(dalpha).astype(np.float32)).all()  # x holds NaN, and NaN is not > 0


def test_an_element_above_zero_adds_nothing_to_dalpha_whatever_its_gradient(arrays: Any) -> None:
    x, dy = np.array([1.0, 2.0, -3.0, 4.0], np.float32), np.array([np.nan, np.inf, 0.5, -np.inf], np.float32)
    dx, dalpha = pyflowk.prelu_backward(arrays.put(dy), arrays.put(x), arrays.put(np.ones(1, np.float32)))
    assert arrays.fetch(dalpha)[0] == -1.5
    np.testing.assert_array_equal(arrays.fetch(dx), dy)


@pytest.mark.parametrize("shape", [(8, 64, 28, 28), (300, 7, 7, 128), (40, 100, 3, 3), (3, 1, 50000)], ids=str)
def test_equal_calls_give_equal_bits(arrays: Any, shape: tuple[int, ...]) -> None:
    case = PreluCase(shape, 1 if shape[-1] != 128 else 3, "float32", "")
    data = make_data(case)
    x, dy, alpha = map(arrays.put, (data.x, data.dy, data.alpha))
    first = arrays.fetch(pyflowk.prelu_backward(dy, x, alpha, case.channel_axis)[1]).copy()
    for _ in range(5):
        again = arrays.fetch(pyflowk.prelu_backward(dy, x, alpha, case.channel_axis)[1])
        assert again.tobytes() == first.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_either_gradient_alone_is_that_of_both(arrays: Any, dtype: str) -> None:
    for shape in ((4, 5, 9, 9), (70, 24)):
        data = make_data(PreluCase(shape, 1, dtype, ""))
        arguments = [arrays.put(values) for values in (data.dy, data.x, data.alpha)]
        dx, dalpha = pyflowk.prelu_backward(*arguments)
        only_dx, nothing = pyflowk.prelu_backward(*arguments, need_dalpha=False)
        assert nothing is None
        assert arrays.fetch(only_dx).tobytes() == arrays.fetch(dx).tobytes()
        nothing, only_dalpha = pyflowk.prelu_backward(*arguments, need_dx=False)
        assert nothing is None
        assert arrays.fetch(only_dalpha).tobytes() == arrays.fetch(dalpha).tobytes()
        assert pyflowk.prelu_backward(*arguments, need_dx=False, need_dalpha=False) == (None, None)


@pytest.mark.parametrize("shape", [(4, 5, 9, 9), (70, 24), (3, 5, 64)], ids=str)
def test_dx_may_be_written_over_dy_or_over_x(arrays: Any, shape: tuple[int, ...]) -> None:
    data = make_data(PreluCase(shape, 1, "float16", ""))
    for over in (0, 1):
        arguments = [arrays.put(values) for values in (data.dy, data.x, data.alpha)]
        dx, dalpha = pyflowk.prelu_backward(*arguments, dx_out=arguments[over])
        assert dx is arguments[over]
        np.testing.assert_array_equal(bits(arrays.fetch(dx)), bits(data.dx))
        assert (np.abs(arrays.fetch(dalpha).astype(np.float64) - data.dalpha) <= dalpha_bound(data)).all()


def test_the_workspace_may_be_the_callers_and_holds_anything_before(arrays: Any) -> None:
    data = make_data(PreluCase((6, 10, 33, 33), 1, "float32", ""))
    dy, x, alpha = (arrays.put(values) for values in (data.dy, data.x, data.alpha))
    num_bytes = pyflowk.prelu_backward_workspace_bytes(x, alpha)
    assert 0 < num_bytes < data.x.nbytes / 10
    for fill in (0.0, np.nan):
        workspace = arrays.put(np.full((num_bytes + 7) // 8 + 2, fill, np.float64))
        start = -arrays.pointer(workspace) % 16
        aligned = arrays.view(workspace, start, ((num_bytes + 7) // 8,), (8,), np.float64)
        _, dalpha = pyflowk.prelu_backward(dy, x, alpha, workspace=aligned)
        assert (np.abs(arrays.fetch(dalpha) - data.dalpha) <= dalpha_bound(data)).all()


@pytest.mark.parametrize("shape", EMPTY_SHAPES, ids=str)
def test_no_elements_give_no_output_and_a_gradient_of_zeros(arrays: Any, shape: tuple[int, ...]) -> None:
    x, alpha = arrays.put(np.zeros(shape, np.float16)), arrays.put(np.ones(shape[1], np.float16))
    assert pyflowk.prelu(x, alpha).shape == shape
    dx, dalpha = pyflowk.prelu_backward(x, x, alpha)
    assert dx.shape == shape
    np.testing.assert_array_equal(arrays.fetch(dalpha), np.zeros(shape[1], np.float16))


def test_a_sum_of_very_many_terms_keeps_its_digits(arrays: Any) -> None:
    size = 1 << 22
    x = np.full(size, -0.1, np.float32)
    dy = np.full(size, 0.3, np.float32)
    for shape in ((size,), (size // 4, 4)):
        alpha = np.ones(4 if len(shape) == 2 else 1, np.float32)
        _, dalpha = pyflowk.prelu_backward(*(arrays.put(a) for a in (dy.reshape(shape), x.reshape(shape), alpha)))
        exact = float(x[0]) * float(dy[0]) * (size // alpha.size)
        assert (np.abs(arrays.fetch(dalpha) / exact - 1) < 1e-6).all()


def test_a_new_output_lies_in_memory_as_x_does(arrays: Any) -> None:
    data = make_data(PreluCase((2, 7, 6, 5), 1, "float32", ""))
    x, alpha = Placed(arrays, data.x, (0, 2, 3, 1)), arrays.put(data.alpha)
    y = pyflowk.prelu(x.array, alpha)
    dx, dalpha = pyflowk.prelu_backward(x.array, x.array, alpha)
    assert y.shape == dx.shape == x.array.shape
    assert y.strides == dx.strides == x.array.strides
    assert type(y) is type(dx) is type(x.array) and type(dalpha) is type(alpha)


# ---- bad input ------------------------------------------------------------------------------------------------------

ROOM = 16384  # bytes from one tensor to the next in a buffer
DY, X, ALPHA, Y, DALPHA, WORKSPACE = (ROOM * i for i in range(6))
NUM_BYTES = 6 * ROOM
PLACES = {"dy": DY, "x": X, "alpha": ALPHA, "y": Y, "dx": Y, "dalpha": DALPHA, "workspace": WORKSPACE}
OUTER, CHANNELS, INNER = 2, 3, 5
BIG = 2**40

# Changes to a good call, the status and words of the text.
BAD_SIZES_AND_TYPES = {
    "outer is negative": ({"outer": -1}, Status.INVALID_ARGUMENT, ("outer = -1", ">= 0")),
    "channels is negative": ({"channels": -7}, Status.INVALID_ARGUMENT, ("channels = -7", ">= 0")),
    "inner is negative beside a 0": ({"inner": -2, "outer": 0}, Status.INVALID_ARGUMENT, ("inner = -2", ">= 0")),
    "elements overflow": ({"outer": BIG, "inner": BIG}, Status.SIZE_OVERFLOW, (str(BIG), "2^62")),
    "bytes overflow": ({"outer": 2**60, "channels": 1, "inner": 1}, Status.SIZE_OVERFLOW, (str(2**60),)),
    "dtype is none": ({"dtype": 0}, Status.UNSUPPORTED_DTYPE, ("dtype = 0",)),
    "dtype is an integer": ({"dtype": 4}, Status.UNSUPPORTED_DTYPE, ("dtype = int32", "float64")),
    "dtype is float8": ({"dtype": 14}, Status.UNSUPPORTED_DTYPE, ("dtype = float8_e4m3", "float64")),
    "alpha's dtype is none": ({"alpha_dtype": 99}, Status.UNSUPPORTED_DTYPE, ("alpha_dtype = 99",)),
    "alpha's dtype is another": ({"alpha_dtype": 10}, Status.UNSUPPORTED_DTYPE, ("alpha_dtype = float16", "float32")),
    "alpha is float64 beside float16": (
        {"dtype": 10, "alpha_dtype": 13}, Status.UNSUPPORTED_DTYPE, ("alpha_dtype = float64", "float16 or float32")
    ),
}  # fmt: skip
BAD_FORWARDS = BAD_SIZES_AND_TYPES | {
    "x is NULL": ({"x": None}, Status.NULL_POINTER, ("x = NULL",)),
    "alpha is NULL": ({"alpha": None}, Status.NULL_POINTER, ("alpha = NULL",)),
    "y is NULL": ({"y": None}, Status.NULL_POINTER, ("y = NULL",)),
    "x is misaligned": ({"x": X + 2}, Status.MISALIGNED_POINTER, ("x = ", "multiple of 4")),
    "alpha is misaligned": ({"alpha": ALPHA + 1}, Status.MISALIGNED_POINTER, ("alpha = ", "multiple of 4")),
    "y is misaligned": ({"y": Y + 2}, Status.MISALIGNED_POINTER, ("y = ", "multiple of 4")),
    "y begins inside x": ({"y": X + 4}, Status.OVERLAP, ("y = ", "overlaps x")),
    "y ends inside x": ({"y": X - 4}, Status.OVERLAP, ("y = ", "overlaps x")),
    "y holds alpha": ({"y": ALPHA - 8}, Status.OVERLAP, ("y = ", "overlaps alpha")),
}
BAD_BACKWARDS = BAD_SIZES_AND_TYPES | {
    "dy is NULL": ({"dy": None}, Status.NULL_POINTER, ("dy = NULL",)),
    "x is NULL": ({"x": None}, Status.NULL_POINTER, ("x = NULL",)),
    "alpha is NULL": ({"alpha": None}, Status.NULL_POINTER, ("alpha = NULL",)),
    "nothing is wanted": ({"dx": None, "dalpha": None}, Status.NULL_POINTER, ("dx = NULL", "dalpha = NULL")),
    "dy is misaligned": ({"dy": DY + 2}, Status.MISALIGNED_POINTER, ("dy = ", "multiple of 4")),
    "dx is misaligned": ({"dx": Y + 1}, Status.MISALIGNED_POINTER, ("dx = ", "multiple of 4")),
    "dalpha is misaligned": ({"dalpha": DALPHA + 2}, Status.MISALIGNED_POINTER, ("dalpha = ", "multiple of 4")),
    "dx begins inside dy": ({"dx": DY + 4}, Status.OVERLAP, ("dx = ", "overlaps dy")),
    "dx ends inside x": ({"dx": X - 4}, Status.OVERLAP, ("dx = ", "overlaps x")),
    "dx holds alpha": ({"dx": ALPHA}, Status.OVERLAP, ("dx = ", "overlaps alpha")),
    "dalpha lies in x": ({"dalpha": X}, Status.OVERLAP, ("dalpha = ", "overlaps x")),
    "dalpha lies in dx": ({"dalpha": Y + 8}, Status.OVERLAP, ("dalpha = ", "overlaps dx")),
    "dalpha is alpha": ({"dalpha": ALPHA}, Status.OVERLAP, ("dalpha = ", "overlaps alpha")),
}
# The calls of these need a workspace: a plane is more than a block takes.
NEEDY = {"outer": 2, "channels": 1, "inner": 1100}
BAD_WORKSPACES = {
    "workspace is NULL": ({"workspace": None}, Status.NULL_POINTER, ("workspace = NULL",)),
    "workspace is too small": ({"workspace_bytes": 1}, Status.INVALID_ARGUMENT, ("workspace_bytes = 1", ">= ")),
    "workspace is misaligned": (
        {"workspace": WORKSPACE + 8},
        Status.MISALIGNED_POINTER,
        ("workspace = ", "multiple of 16"),
    ),
    "workspace lies in x": ({"workspace": X}, Status.OVERLAP, ("workspace = ", "overlaps x")),
    "workspace lies in dalpha": ({"workspace": DALPHA}, Status.OVERLAP, ("workspace = ", "overlaps dalpha")),
}


class Calls:
    """Calls the C functions with pointers into one buffer, whose bytes can be looked at afterwards."""

    def __init__(self, arrays: Any, library: Any) -> None:
        self._arrays, self._library = arrays, library
        room = np.arange(NUM_BYTES + 16, dtype=np.uint16).astype(np.uint8)
        self._memory = arrays.put(room)
        self._start = -arrays.pointer(self._memory) % 16
        self.before = arrays.fetch(self._memory).copy()

    def forward(self, explain: tuple[Any, int] | None = None, **changes: Any) -> int:
        pointers, sizes = self._arguments(("x", "alpha", "y"), changes)
        if explain is None:
            return self._library.flowk_prelu(*pointers, *sizes, None)
        return self._library.flowk_prelu_explain(*pointers, *sizes, *explain)

    def backward(self, explain: tuple[Any, int] | None = None, **changes: Any) -> int:
        num_bytes = changes.pop("workspace_bytes", ROOM)
        (*pointers, workspace), sizes = self._arguments(("dy", "x", "alpha", "dx", "dalpha", "workspace"), changes)
        if explain is None:
            return self._library.flowk_prelu_backward(*pointers, *sizes, workspace, num_bytes, None)
        return self._library.flowk_prelu_backward_explain(*pointers, *sizes, *explain)

    def check(self, words: tuple[str, ...]) -> None:
        text = self._library.flowk_last_error().decode()
        for word in words:
            assert word in text
        np.testing.assert_array_equal(self._arrays.fetch(self._memory), self.before)

    def _arguments(self, names: tuple[str, ...], changes: dict[str, Any]) -> tuple[list[int | None], list[int]]:
        good = {"outer": OUTER, "channels": CHANNELS, "inner": INNER, "dtype": 12, "alpha_dtype": 12}
        values = {name: PLACES[name] for name in names} | good | changes
        if "dtype" in changes and "alpha_dtype" not in changes:
            values["alpha_dtype"] = changes["dtype"]
        base = self._arrays.pointer(self._memory) + self._start
        pointers = [None if values[name] is None else base + values[name] for name in names]
        return pointers, [values[name] for name in good]


@pytest.fixture
def calls(arrays: Any, library: Any) -> Calls:
    return Calls(arrays, library)


@pytest.mark.parametrize("name", BAD_FORWARDS)
def test_a_bad_prelu_gets_its_status_and_writes_nothing(calls: Calls, name: str) -> None:
    changes, status, words = BAD_FORWARDS[name]
    assert Status(calls.forward(**changes)) == status
    calls.check(words)
    text = ctypes.create_string_buffer(b"before", 1000)
    assert Status(calls.forward((text, len(text)), **changes)) == status
    assert text.value == b"before"


@pytest.mark.parametrize("name", BAD_BACKWARDS)
def test_a_bad_prelu_backward_gets_its_status_and_writes_nothing(calls: Calls, name: str) -> None:
    changes, status, words = BAD_BACKWARDS[name]
    assert Status(calls.backward(**changes)) == status
    calls.check(words)
    text = ctypes.create_string_buffer(b"before", 1000)
    assert Status(calls.backward((text, len(text)), **changes)) == status
    assert text.value == b"before"


@pytest.mark.parametrize("name", BAD_WORKSPACES)
def test_a_bad_workspace_gets_its_status_and_nothing_is_written(calls: Calls, library: Any, name: str) -> None:
    changes, status, words = BAD_WORKSPACES[name]
    num_bytes = ctypes.c_size_t()
    sizes = (NEEDY["outer"], NEEDY["channels"], NEEDY["inner"], 12, 12)
    assert library.flowk_prelu_backward_workspace_bytes(*sizes, ctypes.addressof(num_bytes)) == 0
    assert 1 < num_bytes.value <= ROOM
    assert Status(calls.backward(**NEEDY, **changes)) == status
    calls.check(words)


def test_the_workspace_query_checks_sizes_types_and_its_pointer(library: Any) -> None:
    num_bytes = ctypes.c_size_t(77)
    query, place = library.flowk_prelu_backward_workspace_bytes, ctypes.addressof(num_bytes)
    assert Status(query(-1, 2, 3, 12, 12, place)) == Status.INVALID_ARGUMENT
    assert Status(query(1, 2, 3, 4, 4, place)) == Status.UNSUPPORTED_DTYPE
    assert Status(query(BIG, 2, BIG, 12, 12, place)) == Status.SIZE_OVERFLOW
    assert Status(query(1, 2, 3, 12, 12, None)) == Status.NULL_POINTER
    assert num_bytes.value == 77
    assert Status(query(0, 2, BIG, 12, 12, place)) == Status.SUCCESS
    assert num_bytes.value == 0


def test_calls_at_the_bounds_succeed(calls: Calls) -> None:
    for changes in ({"outer": 0, "inner": 2**62}, {"channels": 0, "outer": 2**62}):
        assert calls.forward(x=None, alpha=None, y=None, **changes) == Status.SUCCESS
        assert calls.backward(dy=None, x=None, alpha=None, dx=None, dalpha=None, **changes) == Status.SUCCESS
    assert calls.backward(workspace=None, dalpha=None) == Status.SUCCESS
    assert calls.forward(y=X) == Status.SUCCESS
    assert calls.forward(y=X + OUTER * CHANNELS * INNER * 4) == Status.SUCCESS


def test_a_plan_needs_a_text_and_cuts_it_where_it_is_short(calls: Calls) -> None:
    for call in (calls.forward, calls.backward):
        assert call((None, 100)) == Status.NULL_POINTER
        whole, cut = ctypes.create_string_buffer(2000), ctypes.create_string_buffer(b"x" * 20)
        assert call((whole, 2000)) == Status.SUCCESS
        assert whole.value.endswith(b"\n")
        assert call((cut, 10)) == Status.SUCCESS
        assert cut.raw == whole.raw[:9] + b"\0" + b"x" * 10 + b"\0"
        assert call((cut, 0)) == Status.SUCCESS
        empty = ctypes.create_string_buffer(100)
        assert call((empty, 100), channels=0) == Status.SUCCESS
        assert empty.value.startswith(b"nothing to do")


def image(arrays: Any, shape: tuple[int, ...] = (2, 3, 4), dtype: Any = np.float32) -> Any:
    return arrays.put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape).astype(dtype))


@pytest.mark.parametrize(
    ("shape", "alpha_shape", "axis", "error", "text"),
    [
        ((2, 3, 4), (4,), 1, ValueError, r"alpha has shape \(4,\), must have one element or the shape \(3,\)"),
        ((2, 3, 4), (3, 1), 1, ValueError, r"alpha has shape \(3, 1\)"),
        ((2, 3, 4), (0,), 1, ValueError, r"alpha has shape \(0,\)"),
        ((2, 3, 4), (3,), 3, pyflowk.FlowkValueError, r"channel_axis = 3, must be in -3 ... 2"),
        ((3,), (3,), 1, pyflowk.FlowkValueError, r"channel_axis = 1, must be in -1 ... 0"),
    ],
)
def test_an_alpha_that_is_not_one_for_each_channel_is_refused(
    arrays: Any, shape: tuple, alpha_shape: tuple, axis: int, error: type, text: str
) -> None:
    x, alpha = image(arrays, shape), image(arrays, alpha_shape)
    with pytest.raises(error, match=text):
        pyflowk.prelu(x, alpha, axis)
    with pytest.raises(error, match=text):
        pyflowk.prelu_backward(x, x, alpha, axis)


def test_arrays_that_do_not_match_x_are_refused_and_untouched(arrays: Any) -> None:
    x, alpha = image(arrays), image(arrays, (3,))
    for name, other, error, text in (
        ("shape", image(arrays, (2, 4, 3)), ValueError, r"has shape \(2, 4, 3\), must be \(2, 3, 4\) as x"),
        ("dtype", image(arrays, dtype=np.float16), TypeError, "has dtype float16, must be float32 as x"),
        ("order", Placed(arrays, np.zeros((2, 3, 4), np.float32), (0, 2, 1)).array, ValueError, "has strides of"),
    ):
        before = arrays.fetch(other).copy()
        with pytest.raises(error, match=f"out {text}"):
            pyflowk.prelu(x, alpha, out=other)
        with pytest.raises(error, match=f"dy {text}"):
            pyflowk.prelu_backward(other, x, alpha)
        with pytest.raises(error, match=f"dx_out {text}"):
            pyflowk.prelu_backward(x, x, alpha, dx_out=other)
        np.testing.assert_array_equal(arrays.fetch(other), before, err_msg=name)
    with pytest.raises(ValueError, match=r"dalpha_out has shape \(4,\), must be \(3,\) as alpha"):
        pyflowk.prelu_backward(x, x, alpha, dalpha_out=image(arrays, (4,)))


def test_strides_with_gaps_are_refused(arrays: Any) -> None:
    alpha, wide = image(arrays, (3,)), image(arrays, (2, 3, 8))
    for view in (
        arrays.view(arrays.put(np.zeros(192, np.uint8)), 0, (2, 3, 4), (96, 32, 4), np.float32),
        arrays.view(arrays.put(np.zeros(192, np.uint8)), 0, (2, 3, 4), (96, 32, 8), np.float32),
        arrays.view(arrays.put(np.zeros(192, np.uint8)), 0, (2, 3, 4), (0, 16, 4), np.float32),
        arrays.view(arrays.put(np.zeros(192, np.uint8)), 92, (2, 3, 4), (48, 16, -4), np.float32),
    ):
        with pytest.raises(ValueError, match=r"x has strides of .* without gaps"):
            pyflowk.prelu(view, alpha)
        with pytest.raises(ValueError, match=r"x has strides of .* without gaps"):
            pyflowk.prelu_backward(view, view, alpha)
    every_other = arrays.view(arrays.put(np.zeros(48, np.uint8)), 0, (3,), (8,), np.float32)
    with pytest.raises(ValueError, match=r"alpha has strides of .* contiguous"):
        pyflowk.prelu(wide, every_other)


def test_types_that_the_library_does_not_take_are_refused(arrays: Any) -> None:
    x = arrays.put(np.zeros((2, 3), np.int32))
    with pytest.raises(pyflowk.FlowkValueError, match="dtype = int32, must be float16, bfloat16, float32 or float64"):
        pyflowk.prelu(x, arrays.put(np.zeros(3, np.int32)))
    with pytest.raises(pyflowk.FlowkValueError, match="alpha_dtype = float64, must be float32"):
        pyflowk.prelu(image(arrays), arrays.put(np.zeros(3)))


def test_a_workspace_that_is_too_small_or_strided_is_refused(arrays: Any) -> None:
    data = make_data(PreluCase((6, 10, 33, 33), 1, "float32", ""))
    dy, x, alpha = (arrays.put(values) for values in (data.dy, data.x, data.alpha))
    with pytest.raises(pyflowk.FlowkValueError, match="workspace_bytes = 16, must be >= "):
        pyflowk.prelu_backward(dy, x, alpha, workspace=arrays.put(np.zeros(16, np.uint8)))
    strided = arrays.view(arrays.put(np.zeros(64, np.uint8)), 0, (8,), (8,), np.float32)
    with pytest.raises(ValueError, match=r"workspace has strides of .* contiguous"):
        pyflowk.prelu_backward(dy, x, alpha, workspace=strided)


def test_what_is_no_array_is_a_type_error(arrays: Any) -> None:
    x, alpha = image(arrays), image(arrays, (3,))
    for call, name in (
        (lambda thing: pyflowk.prelu(thing, alpha), "x"),
        (lambda thing: pyflowk.prelu(x, thing), "alpha"),
        (lambda thing: pyflowk.prelu_backward(thing, x, alpha), "dy"),
        (lambda thing: pyflowk.prelu_backward(x, x, alpha, workspace=thing), "workspace"),
    ):
        with pytest.raises(TypeError, match=f"{name} is a float, must be"):
            call(0.25)


def test_the_codes_of_the_cases_are_those_of_the_library() -> None:
    assert {name: pyflowk.DType[name.upper()] for name in CODES} == CODES
