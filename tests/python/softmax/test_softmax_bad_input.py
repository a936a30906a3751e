# SPDX-License-Identifier: Apache-2.0
"""Bad input to softmax: every status that flowk.h documents, and Python's own errors. The output does not change."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import pytest
from c_calls import check_bad_call, check_text_of_plan
from softmax_bad_calls import BAD_BACKWARDS, BAD_FORWARDS, GOOD_BACKWARDS, GOOD_FORWARDS, NAN, Bad, Calls

import pyflowk
from pyflowk import Status


@pytest.fixture
def calls(arrays: Any, library: Any) -> Calls:
    return Calls(arrays, library)


BAD = [("forward", name, bad) for name, bad in BAD_FORWARDS.items()]
BAD += [("backward", name, bad) for name, bad in BAD_BACKWARDS.items()]
GOOD = [("forward", name, changes) for name, changes in GOOD_FORWARDS.items()]
GOOD += [("backward", name, changes) for name, changes in GOOD_BACKWARDS.items()]


@pytest.mark.parametrize(("function", "name", "bad"), BAD, ids=[f"{row[0]}: {row[1]}" for row in BAD])
def test_a_bad_call_and_its_plan_get_their_status_and_write_nothing(
    calls: Calls, function: str, name: str, bad: Bad
) -> None:
    check_bad_call(calls, getattr(calls, function), bad)


@pytest.mark.parametrize(("function", "name", "changes"), GOOD, ids=[f"{row[0]}: {row[1]}" for row in GOOD])
def test_a_call_at_the_bounds_succeeds(calls: Calls, function: str, name: str, changes: dict[str, Any]) -> None:
    text = ctypes.create_string_buffer(1000)
    for explain in (None, (text, len(text))):
        assert Status(getattr(calls, function)(explain, **changes)) == Status.SUCCESS, calls.error()
    assert text.value


EMPTY_BAD = {
    "causal is 2": ({"causal": 2}, Status.INVALID_ARGUMENT),
    "lengths_from_right is -1": ({"lengths_from_right": -1}, Status.INVALID_ARGUMENT),
    "window is negative": ({"window": -1}, Status.INVALID_ARGUMENT),
    "causal_offset is too large": ({"causal_offset": 2**63 - 1}, Status.INVALID_ARGUMENT),
    "lengths_dtype is float32": ({"lengths": 64, "lengths_dtype": 12}, Status.UNSUPPORTED_DTYPE),
    "bias_dtype is int32": ({"bias": 64, "bias_dtype": 4}, Status.UNSUPPORTED_DTYPE),
}


@pytest.mark.parametrize("name", EMPTY_BAD)
@pytest.mark.parametrize("shape", [[0, 4], [3, 0]])
def test_the_mask_of_an_empty_softmax_is_checked(calls: Calls, name: str, shape: list[int]) -> None:
    members, status = EMPTY_BAD[name]
    assert Status(calls.forward(shape=shape, x=None, y=None, mask=members)) == status
    assert name.split()[0] in calls.error()
    if "bias" not in name:
        assert Status(calls.backward(shape=shape, dy=None, y=None, dx=None, mask=members)) == status


@pytest.mark.parametrize("struct_bytes", [0, 1, 88, 97, 104, 120, 168, 180, 192, 2**64 - 1])
def test_a_size_that_the_mask_never_had_is_refused(calls: Calls, struct_bytes: int) -> None:
    assert Status(calls.forward(mask={"struct_bytes": 96})) == Status.SUCCESS
    assert Status(calls.forward(mask={"struct_bytes": struct_bytes})) == Status.INVALID_ARGUMENT
    assert f"mask->struct_bytes = {struct_bytes}, must be 184" in calls.error()


def test_a_plan_needs_a_text_and_cuts_it_where_it_is_short(calls: Calls) -> None:
    for function in (calls.forward, calls.backward):
        check_text_of_plan(calls, function)


# ---- Python ---------------------------------------------------------------------------------------------------------


class BadCall(NamedTuple):
    """Keywords that make masked_softmax(x of (2, 3, 4) float32) fail; (shape, dtype) stands for an array."""

    error: type[Exception]
    text: str
    keywords: dict[str, Any]


BAD_PYTHON = {
    "mask of other columns": BadCall(
        ValueError, r"mask has shape \(3, 5\), must broadcast to x of \(2, 3, 4\)$", {"mask": ((3, 5), "bool")}
    ),
    "mask of other rows and one column": BadCall(ValueError, r"mask has shape \(2, 1\)", {"mask": ((2, 1), "bool")}),
    "mask of other rows": BadCall(ValueError, r"mask has shape \(2, 4\)", {"mask": ((2, 4), "bool")}),
    "mask of more dimensions": BadCall(ValueError, r"mask has shape \(1, 2, 3, 4\)", {"mask": ((1, 2, 3, 4), "bool")}),
    "mask of integers": BadCall(TypeError, "mask has dtype int32, must be bool or uint8", {"mask": ((3, 4), "int32")}),
    "mask of floats": BadCall(TypeError, "mask has dtype float32, must be bool", {"mask": ((3, 4), "float32")}),
    "lengths of the last dimension": BadCall(
        ValueError,
        r"lengths has shape \(3,\), must be the first of x's \(2, 3\)",
        {"lengths": ((3,), "int32")},
    ),
    "lengths of x's shape": BadCall(ValueError, r"lengths has shape \(2, 3, 4\)", {"lengths": ((2, 3, 4), "int32")}),
    "lengths of floats": BadCall(
        TypeError, "lengths has dtype float32, must be int32 or int64", {"lengths": ((2,), "float32")}
    ),
    "lengths of small integers": BadCall(TypeError, "lengths has dtype int16", {"lengths": ((2,), "int16")}),
    "bias of other columns": BadCall(ValueError, r"bias has shape \(3, 3\)", {"bias": ((3, 3), "float32")}),
    "bias of integers": BadCall(TypeError, "bias has dtype int64, must be float16", {"bias": ((3, 4), "int64")}),
    "bias of another type": BadCall(
        TypeError, "^bias has dtype float16, must be float32 beside x of float32", {"bias": ((3, 4), "float16")}
    ),
    "lengths_from_right of a word": BadCall(
        TypeError, "lengths_from_right = 'right', must be True or False", {"lengths_from_right": "right"}
    ),
    "causal as an offset": BadCall(TypeError, "causal = 3, must be True or False", {"causal": 3}),
    "causal_offset that is not an integer": BadCall(
        TypeError, "causal_offset is 1.5, must be an integer", {"causal": True, "causal_offset": 1.5}
    ),
    "causal_offset too large": BadCall(
        ValueError, "causal_offset = 4611686018427387905, must", {"causal_offset": 2**62 + 1}
    ),
    "window of 0": BadCall(ValueError, r"window = 0, must be in 1 ... 2\*\*62", {"window": 0}),
    "window that is not an integer": BadCall(TypeError, "window is '7', must be an integer", {"window": "7"}),
    "scale that is not a number": BadCall(TypeError, "scale is 'x', must be a number", {"scale": "x"}),
    "scale of a string": BadCall(TypeError, "scale is '2', must be a number", {"scale": "2"}),
    "log of a string": BadCall(TypeError, "log = 'no', must be True or False", {"log": "no"}),
    "log of 1": BadCall(TypeError, "log = 1, must be True or False", {"log": 1}),
    "lengths_from_right in a list": BadCall(
        TypeError, r"lengths_from_right = \[True\], must be True", {"lengths_from_right": [True]}
    ),
    "dtype in a list": BadCall(TypeError, r"dtype = \['float16'\], must name one of", {"dtype": ["float16"]}),
    "scale of none": BadCall(TypeError, "scale is None, must be a number", {"scale": None}),
    "scale of NaN": BadCall(pyflowk.FlowkValueError, "scale = nan, must be finite", {"scale": NAN}),
    "dtype that is not a float": BadCall(TypeError, "dtype = 'int32', must name one of float16", {"dtype": "int32"}),
    "dtype unknown": BadCall(TypeError, "dtype = 'float17', must name one of float16", {"dtype": "float17"}),
    "dtype of another pair": BadCall(
        TypeError, "^dtype = float64, must be float16, bfloat16 or float32 beside x of float32$", {"dtype": "float64"}
    ),
    "out of another shape": BadCall(ValueError, r"out has shape \(2, 12\), must be", {"out": ((2, 12), "float32")}),
    "out that is not a float": BadCall(
        TypeError, "out has dtype int32, must be float16", {"out": ((2, 3, 4), "int32")}
    ),
    "out not of dtype": BadCall(
        TypeError, "out has dtype float32, must be float16", {"out": ((2, 3, 4), "float32"), "dtype": "float16"}
    ),
    "out of another pair": BadCall(
        TypeError,
        "^out has dtype float64, must be float16, bfloat16 or float32 beside x",
        {"out": ((2, 3, 4), "float64")},
    ),
    "mask that is not an array": BadCall(TypeError, "mask is a list, must be", {"mask": [True]}),
    "lengths that are not an array": BadCall(TypeError, "lengths is a float, must be", {"lengths": 3.0}),
    "out that is not an array": BadCall(TypeError, "out is a str, must be", {"out": "out"}),
    "stream": BadCall(TypeError, "stream is a str, must be", {"stream": "default"}),
}


@pytest.mark.parametrize("name", BAD_PYTHON)
def test_a_bad_call_from_python_is_an_error_that_names_the_parameter(arrays: Any, name: str) -> None:
    bad = BAD_PYTHON[name]
    x = arrays.put(np.ones((2, 3, 4), np.float32))
    keywords = {
        key: arrays.put(np.ones(*value)) if isinstance(value, tuple) else value for key, value in bad.keywords.items()
    }
    out = keywords.setdefault("out", None if "dtype" in keywords else arrays.put(np.ones((2, 3, 4), np.float32)))
    with pytest.raises(bad.error, match=bad.text):
        pyflowk.masked_softmax(x, **keywords)
    if not isinstance(out, str) and out is not None:
        assert (arrays.fetch(out) == 1).all()


def test_a_value_that_equals_an_allowed_one_is_refused_before_and_after_it(arrays: Any) -> None:
    x = arrays.put(np.ones((2, 3, 4), np.float32))
    for good, bad in (
        ({"window": 2}, {"window": 2.0}),
        ({"causal": True}, {"causal": 1}),
        ({"causal": False}, {"causal": 0.0}),
        ({"causal": True, "causal_offset": 1}, {"causal": True, "causal_offset": 1.0}),
        ({"dtype": pyflowk.DType.FLOAT16}, {"dtype": 10}),
        ({"log": True}, {"log": 1}),
    ):
        for _ in range(2):
            with pytest.raises(TypeError):
                pyflowk.masked_softmax(x, **bad)
            pyflowk.masked_softmax(x, **good)
    for window, causal in ((2, True), (np.int64(2), np.bool_(True))):
        result = pyflowk.masked_softmax(x, window=window, causal=causal)
        np.testing.assert_array_equal(arrays.fetch(result)[0, 0], [0.5, 0.5, 0, 0])


def test_x_must_be_an_array_of_floats_with_a_dimension(arrays: Any) -> None:
    for call in (pyflowk.masked_softmax, pyflowk.softmax, pyflowk.log_softmax):
        with pytest.raises(TypeError, match="x has dtype int32, must be float16, bfloat16, float32 or float64"):
            call(arrays.put(np.ones((2, 3), np.int32)))
        with pytest.raises(TypeError, match="x has dtype >f4"):
            call(arrays.put(np.ones((2, 3), ">f4")))
        with pytest.raises(ValueError, match="x has no dimensions, must have >= 1"):
            call(arrays.put(np.ones((), np.float32)))
        with pytest.raises(TypeError, match="x is a list, must be"):
            call([1.0, 2.0])


def test_a_strided_out_whose_elements_share_memory_is_refused(arrays: Any) -> None:
    memory = arrays.put(np.zeros(400, np.uint8))
    x = arrays.put(np.ones((3, 4), np.float32))
    for strides in ((16, 0), (8, 8)):
        with pytest.raises(ValueError, match=r"out has strides of .*: no two of its elements may share memory"):
            pyflowk.softmax(x, out=arrays.view(memory, 0, (3, 4), strides, np.float32))
    np.testing.assert_array_equal(arrays.fetch(memory), 0)


def test_an_out_that_shares_memory_with_an_input_is_refused(arrays: Any) -> None:
    memory = arrays.put(np.zeros(400, np.uint8))
    x = arrays.view(memory, 0, (3, 4), (16, 4), np.float32)
    for offset, strides in ((16, (16, 4)), (4, (16, 4)), (0, (20, 4))):
        with pytest.raises(pyflowk.FlowkValueError, match="overlaps") as caught:
            pyflowk.softmax(x, out=arrays.view(memory, offset, (3, 4), strides, np.float32))
        assert caught.value.status == Status.OVERLAP
    with pytest.raises(pyflowk.FlowkValueError, match=r"^out .* overlaps mask "):
        dense = arrays.view(memory, 100, (3, 4), (4, 1), np.bool_)
        pyflowk.masked_softmax(x, dense, out=arrays.view(memory, 64, (3, 4), (16, 4), np.float32))
    np.testing.assert_array_equal(arrays.fetch(memory), 0)


def test_a_bad_gradient_call_is_an_error_that_names_the_parameter(arrays: Any) -> None:
    def array(shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return arrays.put(np.ones(shape, dtype))

    y = array((2, 3))
    for error, text, call in (
        (ValueError, r"y has shape \(3, 2\), must be \(2, 3\)", lambda: (array((2, 3)), array((3, 2)), {})),
        (TypeError, "y has dtype float16, must be float32", lambda: (array((2, 3)), array((2, 3), "float16"), {})),
        (TypeError, "dy has dtype int32, must be float16", lambda: (array((2, 3), "int32"), y, {})),
        (TypeError, "y is a NoneType, must be", lambda: (array((2, 3)), None, {})),
        (ValueError, "dy has no dimensions", lambda: (array(()), array(()), {})),
        (ValueError, r"out has shape \(2, 2\), must be", lambda: (y, y, {"out": array((2, 2))})),
        (ValueError, r"lengths has shape \(3,\)", lambda: (y, y, {"lengths": array((3,), "int32")})),
        (TypeError, "lengths_from_right = 3", lambda: (y, y, {"lengths_from_right": 3})),
        (TypeError, "^dtype = float64, must be .* beside dy of float32", lambda: (y, y, {"dtype": "float64"})),
    ):
        dy, result, keywords = call()
        with pytest.raises(error, match=text):
            pyflowk.masked_softmax_backward(dy, result, **keywords)


def test_arrays_in_different_places_are_refused(arrays: Any) -> None:
    if arrays.device is None:
        pytest.skip("all is on the host")
    x, mask = arrays.put(np.ones((2, 3), np.float32)), np.zeros((2, 3), bool)
    with pytest.raises(TypeError, match="x is on device 0 and mask is a host array, must be on the same device"):
        pyflowk.masked_softmax(x, mask)


def test_a_read_only_out_is_refused() -> None:
    out = np.ones((2, 3), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only, must be writable"):
        pyflowk.softmax(np.ones((2, 3), np.float32), out=out)


def test_lengths_that_are_no_integers_are_named() -> None:
    x = np.ones((2, 3), np.float32)
    for lengths in ([1.5, 2], ["1", "2"], [[1], [1, 2]], [None, 1]):
        with pytest.raises(TypeError, match=r"must be an array, integers in a list, or an integer"):
            pyflowk.masked_softmax(x, lengths=lengths)
    with pytest.raises(ValueError, match=r"lengths has shape \(3,\)"):
        pyflowk.masked_softmax(x, lengths=[1, 2, 3])
