# SPDX-License-Identifier: Apache-2.0
"""Bad input to PReLU: the C functions' statuses and texts, and what pyflowk refuses before it calls them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from c_calls import Bad, BufferCalls, check_bad_call
from prelu_cases import PreluCase, make_data

import pyflowk
from pyflowk import Status

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
    "y begins inside x": ({"y": X + 4}, Status.OVERLAP, ("y (", "overlaps x (")),
    "y ends inside x": ({"y": X - 4}, Status.OVERLAP, ("y (", "overlaps x (")),
    "y holds alpha": ({"y": ALPHA - 8}, Status.OVERLAP, ("y (", "overlaps alpha (")),
}
BAD_BACKWARDS = BAD_SIZES_AND_TYPES | {
    "dy is NULL": ({"dy": None}, Status.NULL_POINTER, ("dy = NULL",)),
    "x is NULL": ({"x": None}, Status.NULL_POINTER, ("x = NULL",)),
    "alpha is NULL": ({"alpha": None}, Status.NULL_POINTER, ("alpha = NULL",)),
    "nothing is wanted": ({"dx": None, "dalpha": None}, Status.NULL_POINTER, ("dx = NULL", "dalpha = NULL")),
    "dy is misaligned": ({"dy": DY + 2}, Status.MISALIGNED_POINTER, ("dy = ", "multiple of 4")),
    "dx is misaligned": ({"dx": Y + 1}, Status.MISALIGNED_POINTER, ("dx = ", "multiple of 4")),
    "dalpha is misaligned": ({"dalpha": DALPHA + 2}, Status.MISALIGNED_POINTER, ("dalpha = ", "multiple of 4")),
    "dx begins inside dy": ({"dx": DY + 4}, Status.OVERLAP, ("dx (", "overlaps dy (")),
    "dx ends inside x": ({"dx": X - 4}, Status.OVERLAP, ("dx (", "overlaps x (")),
    "dx holds alpha": ({"dx": ALPHA}, Status.OVERLAP, ("dx (", "overlaps alpha (")),
    "dalpha lies in x": ({"dalpha": X}, Status.OVERLAP, ("dalpha (", "overlaps x (")),
    "dalpha lies in dx": ({"dalpha": Y + 8}, Status.OVERLAP, ("dalpha (", "overlaps dx (")),
    "dalpha is alpha": ({"dalpha": ALPHA}, Status.OVERLAP, ("dalpha (", "overlaps alpha (")),
}
# The calls of these need a workspace: a plane is more than a block takes.
NEEDY = {"outer": 1, "channels": 1, "inner": 4000}
BAD_WORKSPACES = {
    "workspace is NULL": ({"workspace": None}, Status.NULL_POINTER, ("workspace = NULL",)),
    "workspace is too small": ({"workspace_bytes": 1}, Status.INVALID_ARGUMENT, ("workspace_bytes = 1", ">= ")),
    "workspace is misaligned": (
        {"workspace": WORKSPACE + 8},
        Status.MISALIGNED_POINTER,
        ("workspace = ", "multiple of 16"),
    ),
    "workspace lies in x": ({"workspace": X}, Status.OVERLAP, ("workspace (", "overlaps x (")),
    "workspace lies in dalpha": ({"workspace": DALPHA}, Status.OVERLAP, ("workspace (", "overlaps dalpha (")),
}


class Calls(BufferCalls):
    """The operands begin at a multiple of 16 bytes."""

    def __init__(self, arrays: Any, library: Any) -> None:
        super().__init__(arrays, library, np.arange(NUM_BYTES + 16, dtype=np.uint16).astype(np.uint8))
        self._start = -self.address % 16

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

    def _arguments(self, names: tuple[str, ...], changes: dict[str, Any]) -> tuple[list[int | None], list[int]]:
        good = {"outer": OUTER, "channels": CHANNELS, "inner": INNER, "dtype": 12, "alpha_dtype": 12}
        values = {name: PLACES[name] for name in names} | good | changes
        if "dtype" in changes and "alpha_dtype" not in changes:
            values["alpha_dtype"] = changes["dtype"]
        offsets = [values[name] for name in names]
        pointers = [None if offset is None else self.address + self._start + offset for offset in offsets]
        return pointers, [values[name] for name in good]


@pytest.fixture
def calls(arrays: Any, library: Any) -> Calls:
    return Calls(arrays, library)


@pytest.mark.parametrize("name", BAD_FORWARDS)
def test_a_bad_prelu_gets_its_status_and_writes_nothing(calls: Calls, name: str) -> None:
    changes, status, words = BAD_FORWARDS[name]
    check_bad_call(calls, calls.forward, Bad(status, words, changes))


@pytest.mark.parametrize("name", BAD_BACKWARDS)
def test_a_bad_prelu_backward_gets_its_status_and_writes_nothing(calls: Calls, name: str) -> None:
    changes, status, words = BAD_BACKWARDS[name]
    check_bad_call(calls, calls.backward, Bad(status, words, changes))


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


@pytest.mark.parametrize(("outer", "channels", "inner", "dtype"), [(1, 2**63 - 1, 0, 12), (0, 2**61, 1, 13)])
def test_too_many_alphas_overflow_without_elements_too(
    calls: Calls, library: Any, outer: int, channels: int, inner: int, dtype: int
) -> None:
    sizes = {"outer": outer, "channels": channels, "inner": inner, "dtype": dtype}
    assert Status(calls.backward(**sizes)) == Status.SIZE_OVERFLOW
    calls.check((f"channels = {channels}", "2^62"))
    num_bytes = ctypes.c_size_t(77)
    query = (outer, channels, inner, dtype, dtype, ctypes.addressof(num_bytes))
    assert Status(library.flowk_prelu_backward_workspace_bytes(*query)) == Status.SIZE_OVERFLOW
    assert num_bytes.value == 77
    assert Status(calls.backward(**sizes, dalpha=None)) == Status.SUCCESS
    assert Status(calls.forward(**sizes)) == Status.SUCCESS


@pytest.mark.parametrize("sizes", [(2, 3, 5), (1, 1, 2000), (3, 500, 1), (40, 5, 1), (30, 64, 1)])
@pytest.mark.parametrize("dtype", [10, 12, 13])
def test_every_alignment_needs_the_workspace_of_the_query(
    calls: Calls, library: Any, sizes: tuple[int, int, int], dtype: int
) -> None:
    num_bytes = ctypes.c_size_t()
    assert library.flowk_prelu_backward_workspace_bytes(*sizes, dtype, dtype, ctypes.addressof(num_bytes)) == 0
    call = dict(zip(("outer", "channels", "inner"), sizes, strict=True)) | {"dtype": dtype}
    size = {10: 2, 12: 4, 13: 8}[dtype]
    for lead in range(0, 16, size):
        for places in ({"dx": Y + lead}, {"dx": DY}, {"dx": None, "x": X + lead}, {"alpha": ALPHA + lead}):
            if num_bytes.value == 0:
                assert Status(calls.backward(**call, **places, workspace=None)) == Status.SUCCESS
                continue
            assert Status(calls.backward(**call, **places, workspace=None)) == Status.NULL_POINTER
            short = num_bytes.value - 1
            assert Status(calls.backward(**call, **places, workspace_bytes=short)) == Status.INVALID_ARGUMENT
            calls.check((f"workspace_bytes = {short}, must be >= {num_bytes.value}",))


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


# ---- arrays ---------------------------------------------------------------------------------------------------------


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


def test_types_that_the_library_does_not_take_are_refused(arrays: Any) -> None:
    x = arrays.put(np.zeros((2, 3), np.int32))
    with pytest.raises(TypeError, match="x has dtype int32, must be float16, bfloat16, float32 or float64"):
        pyflowk.prelu(x, arrays.put(np.zeros(3, np.int32)))
    with pytest.raises(TypeError, match="alpha has dtype float64, must be float32 beside x of float32"):
        pyflowk.prelu(image(arrays), arrays.put(np.zeros(3)))
    halves = arrays.put(np.zeros((2, 3), np.float16))
    with pytest.raises(TypeError, match="alpha has dtype float64, must be float16 or float32 beside x of float16"):
        pyflowk.prelu(halves, arrays.put(np.zeros(3)))


def test_data_of_the_other_byte_order_is_named_and_what_to_do(arrays: Any) -> None:
    x, swapped = (np.zeros((2, 3), dtype) for dtype in ("f4", ">f4"))
    alpha, swapped_alpha = (np.zeros(3, dtype) for dtype in ("f4", ">f4"))
    for name, array, call in (
        ("x", swapped, lambda s: pyflowk.prelu(s, arrays.put(alpha))),
        ("alpha", swapped_alpha, lambda s: pyflowk.prelu(arrays.put(x), s)),
        ("x", swapped, lambda s: pyflowk.prelu_backward(s, s, arrays.put(alpha))),
    ):
        with pytest.raises(TypeError, match=rf"{name} has dtype >f4, .*: NumPy's {name}\.astype\('float32'\)"):
            call(arrays.put(array))


def test_a_workspace_that_is_too_small_or_strided_is_refused(arrays: Any) -> None:
    data = make_data(PreluCase((6, 10, 33, 33), 1, "float32", ""))
    dy, x, alpha = (arrays.put(values) for values in (data.dy, data.x, data.alpha))
    with pytest.raises(pyflowk.FlowkValueError, match=r"^workspace\.nbytes = 16, must be >= "):
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
