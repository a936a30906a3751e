# SPDX-License-Identifier: Apache-2.0
"""Bad input of the elementwise functions: every status that flowk.h documents, and what only Python sees; the output
stays as it was."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from c_calls import Bad, BufferCalls, check_bad_call, check_text_of_plan

import pyflowk
from pyflowk import Status
from pyflowk._native.abi import HOST_SCALAR, DType
from pyflowk._native.operations import BinaryOp, TernaryOp, UnaryOp

NUM_BYTES = 512
X, Y, Z, OUT = 64, 128, 192, 320  # where the operands begin in one buffer, in bytes
F16, F32, F64, I32, BOOL = DType.FLOAT16, DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.BOOL
MAX_INT64 = 2**63 - 1


# Of flowk_ternary(FMA) on three (3, 4) float32; x, y, z and out are offsets into the buffer, None is NULL.
BAD = {
    "no such op": Bad(Status.INVALID_ARGUMENT, ("op", "99"), {"op": 99}),
    "op 0": Bad(Status.INVALID_ARGUMENT, ("op", "0"), {"op": 0}),
    "negative rank": Bad(Status.INVALID_ARGUMENT, ("rank", "-1", "32"), {"rank": -1}),
    "rank past the largest": Bad(Status.INVALID_ARGUMENT, ("rank", "33", "32"), {"rank": 33, "shape": [1] * 33}),
    "negative extent": Bad(Status.INVALID_ARGUMENT, ("shape[1]", "-3", ">= 0"), {"shape": [3, -3]}),
    "negative extent beside 0": Bad(Status.INVALID_ARGUMENT, ("shape[1]", "-1", ">= 0"), {"shape": [0, -1]}),
    "x is NULL": Bad(Status.NULL_POINTER, ("x", "NULL"), {"x": None}),
    "y is NULL": Bad(Status.NULL_POINTER, ("y", "NULL"), {"y": None}),
    "z is NULL": Bad(Status.NULL_POINTER, ("z", "NULL"), {"z": None}),
    "out is NULL": Bad(Status.NULL_POINTER, ("out", "NULL"), {"out": None}),
    "shape is NULL": Bad(Status.NULL_POINTER, ("shape", "NULL"), {"shape": None}),
    "x is misaligned": Bad(Status.MISALIGNED_POINTER, ("x", "multiple of 4"), {"x": X + 2}),
    "z is misaligned": Bad(Status.MISALIGNED_POINTER, ("z", "multiple of 4"), {"z": Z + 1}),
    "out is misaligned": Bad(Status.MISALIGNED_POINTER, ("out", "multiple of 4"), {"out": OUT + 2}),
    "x dtype is 0": Bad(Status.UNSUPPORTED_DTYPE, ("x_dtype", "0"), {"x_dtype": 0}),
    "out dtype past the last": Bad(Status.UNSUPPORTED_DTYPE, ("out_dtype", "18"), {"out_dtype": 18}),
    "complex": Bad(Status.UNSUPPORTED_DTYPE, ("y",), {"y_dtype": DType.COMPLEX64}),
    "an integer beside floats": Bad(Status.UNSUPPORTED_DTYPE, ("z",), {"z_dtype": I32}),
    "float64 beside float32": Bad(Status.UNSUPPORTED_DTYPE, ("y",), {"y_dtype": F64}),
    "float64 of float32": Bad(Status.UNSUPPORTED_DTYPE, ("out",), {"out_dtype": F64}),
    "bool of float32": Bad(Status.UNSUPPORTED_DTYPE, ("out",), {"out_dtype": BOOL}),
    "no bool in where": Bad(Status.UNSUPPORTED_DTYPE, ("x",), {"op": TernaryOp.WHERE.value}),
    "out begins inside x": Bad(Status.OVERLAP, ("out", "x"), {"out": X + 4}),
    "out ends inside z": Bad(Status.OVERLAP, ("out", "z"), {"out": Z - 4, "x": OUT, "y": OUT}),
    "out is x with other strides": Bad(Status.OVERLAP, ("out", "x"), {"out": X, "out_strides": [1, 3]}),
    "out is x with another element size": Bad(Status.OVERLAP, ("out", "x"), {"out": X, "out_dtype": F16}),
    "out is x, which is broadcast": Bad(Status.OVERLAP, ("out", "x"), {"out": X, "x_strides": [0, 1]}),
    "out repeats an element": Bad(Status.OVERLAP, ("out", "stride"), {"out_strides": [0, 1]}),
    "out strides collide": Bad(Status.OVERLAP, ("out", "stride"), {"out_strides": [1, 2]}),
    "extents whose product overflows": Bad(Status.SIZE_OVERFLOW, (str(2**40),), {"shape": [2**40, 2**40]}),
    "x strides that overflow": Bad(Status.SIZE_OVERFLOW, ("x", str(2**61)), {"x_strides": [2**61, 1]}),
    "out strides that overflow": Bad(Status.SIZE_OVERFLOW, ("out",), {"out_strides": [-MAX_INT64, 1]}),
}
GOOD = {
    "the call that all bad ones are made from": {},
    "an extent of 0 needs no pointers": {"shape": [0, 4], "x": None, "y": None, "z": None, "out": None},
    "rank 0 needs no shape": {"rank": 0, "shape": None},
    "floats mix": {"x_dtype": F16, "y_dtype": DType.BFLOAT16, "out_dtype": DType.FLOAT8_E4M3},
    "out is x": {"out": X},
    "out is x, y and z": {"x": OUT, "y": OUT, "z": OUT},
    "out is x backwards": {"out": X + 44, "x": X + 44, "out_strides": [-4, -1], "x_strides": [-4, -1]},
    "inputs overlap": {"x": Y + 4, "z": Y},
    "inputs are broadcast": {"x_strides": [0, 0], "y_strides": [1, 0], "z_strides": [0, 1]},
}


class Calls(BufferCalls):
    def __init__(self, arrays: Any, library: Any) -> None:
        super().__init__(arrays, library, np.full(NUM_BYTES // 4, 1.5, np.float32).view(np.uint8))

    def ternary(self, explain: tuple[Any, int] | None = None, **changes: Any) -> int:
        """flowk_ternary, or its explain into (text, text_bytes)."""
        tensors, keep = [], []
        for name, offset in (("x", X), ("y", Y), ("z", Z), ("out", OUT)):
            place = changes.get(name, offset)
            strides = changes.get(name + "_strides")
            longs = None if strides is None else np.array(strides, np.int64)
            keep.append(longs)
            tensors += [
                self._address(place),
                None if longs is None else longs.ctypes.data,
                changes.get(name + "_dtype", F32),
            ]
        shape = changes.get("shape", [3, 4])
        extents = None if shape is None else np.array(shape, np.int64)
        arguments = (
            changes.get("op", TernaryOp.FMA.value),
            *tensors,
            changes.get("rank", 2),
            None if extents is None else extents.ctypes.data,
            0.0,
        )
        if explain is None:
            return self._library.flowk_ternary(*arguments, None)
        return self._library.flowk_ternary_explain(*arguments, *explain)


@pytest.fixture
def calls(arrays: Any, library: Any) -> Calls:
    return Calls(arrays, library)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_gets_its_status_and_writes_nothing(calls: Calls, name: str) -> None:
    check_bad_call(calls, calls.ternary, BAD[name])


@pytest.mark.parametrize("name", GOOD)
def test_a_call_at_the_bounds_succeeds(calls: Calls, name: str) -> None:
    text = ctypes.create_string_buffer(1000)
    assert Status(calls.ternary((text, len(text)), **GOOD[name])) == Status.SUCCESS
    assert text.value
    calls.check()
    assert Status(calls.ternary(**GOOD[name])) == Status.SUCCESS


def test_a_plan_needs_a_text_and_cuts_it_where_it_is_short(calls: Calls) -> None:
    check_text_of_plan(calls, calls.ternary)


def test_strides_of_sliced_out_elements_do_not_overlap(calls: Calls) -> None:
    changes = {"x": X, "y": X, "z": X, "x_strides": [8, 2], "y_strides": [8, 2], "z_strides": [8, 2]}
    assert Status(calls.ternary(**changes, out=X + 4, out_strides=[8, 2])) == Status.SUCCESS


def test_a_number_has_no_strides_no_alignment_and_overlaps_nothing(calls: Calls) -> None:
    number = np.frombuffer(b"\0" + np.float32(2).tobytes(), np.uint8)  # not aligned, and in host memory
    offset = number.ctypes.data + 1 - calls.address
    for name in "xyz":
        changes = {
            name: offset,
            f"{name}_dtype": F32 | HOST_SCALAR,
            f"{name}_strides": [2**62, 2**62],
            "out": X if name == "x" else OUT,
        }
        assert Status(calls.ternary(**changes)) == Status.SUCCESS
    assert (
        Status(calls.ternary(x=offset, x_dtype=F32 | HOST_SCALAR, op=TernaryOp.WHERE.value)) == Status.UNSUPPORTED_DTYPE
    )
    assert Status(calls.ternary(x=None, x_dtype=F32 | HOST_SCALAR)) == Status.NULL_POINTER
    assert "x" in calls.error()
    assert Status(calls.ternary(out_dtype=F32 | HOST_SCALAR)) == Status.UNSUPPORTED_DTYPE
    assert Status(calls.ternary(x_dtype=18 | HOST_SCALAR)) == Status.UNSUPPORTED_DTYPE


def test_unary_and_binary_check_as_ternary_does(arrays: Any, library: Any) -> None:
    host = np.full(16, 3, np.float32)
    memory, shape = arrays.put(host), np.array([4], np.int64)
    x, out = arrays.pointer(memory), arrays.pointer(memory) + 4
    extents = (1, shape.ctypes.data)
    relu, add = UnaryOp.RELU.value, BinaryOp.ADD.value
    unary, binary = library.flowk_unary, library.flowk_binary
    for status, word, call in (
        (Status.OVERLAP, "out", lambda: unary(relu, x, None, F32, out, None, F32, *extents, 0, 0, None)),
        (Status.INVALID_ARGUMENT, "op", lambda: unary(77, x, None, F32, x, None, F32, *extents, 0, 0, None)),
        (Status.UNSUPPORTED_DTYPE, "x", lambda: unary(relu, x, None, BOOL, x, None, BOOL, *extents, 0, 0, None)),
        (Status.OVERLAP, "out", lambda: binary(add, x, None, F32, x, None, F32, out, None, F32, *extents, None)),
        (Status.UNSUPPORTED_DTYPE, "y", lambda: binary(add, x, None, F32, x, None, I32, x, None, F32, *extents, None)),
    ):
        assert Status(call()) == status
        assert word in library.flowk_last_error().decode()
    np.testing.assert_array_equal(arrays.fetch(memory), host)


# ---- Python ---------------------------------------------------------------------------------------------------------


def ones(arrays: Any, shape: tuple[int, ...] = (3, 4), dtype: Any = np.float32) -> Any:
    return arrays.put(np.ones(shape, dtype))


@pytest.mark.parametrize(
    ("first", "second"), [((3, 4), (3,)), ((3, 4), (2, 4)), ((3, 4), (5, 3, 1, 4)[:3]), ((0, 4), (2, 4)), ((2,), (3,))]
)
def test_shapes_that_do_not_broadcast_are_a_value_error(arrays: Any, first: Any, second: Any) -> None:
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ValueError, match=r"shapes do not broadcast to one: x of \(.*\), y of \("):
            pyflowk.add(ones(arrays, first), ones(arrays, second))
    else:
        assert pyflowk.add(ones(arrays, first), ones(arrays, second)).shape == np.broadcast_shapes(first, second)


def test_an_out_of_the_wrong_shape_or_dtype_is_refused_and_untouched(arrays: Any) -> None:
    for shape, dtype, error, text in (
        ((3, 5), np.float32, ValueError, r"out has shape \(3, 5\), to which x of shape \(3, 4\) does not broadcast"),
        ((4,), np.float32, ValueError, r"out has shape \(4,\), to which x of shape \(3, 4\) does not broadcast"),
        ((3, 4), np.int32, TypeError, "out has dtype int32, must be float32"),
        ((3, 4), np.float64, TypeError, "out has dtype float64, must be float32"),
        ((3, 4), np.complex64, TypeError, "out has dtype complex64, must be bool, integers or floats"),
    ):
        out = arrays.put(np.full(shape, 7, dtype))
        for call in (
            lambda out: pyflowk.add(ones(arrays), ones(arrays), out=out),
            lambda out: pyflowk.explain(pyflowk.add, ones(arrays), ones(arrays), out=out),
        ):
            with pytest.raises(error, match=text):
                call(out)
        assert (arrays.fetch(out) == 7).all()
    with pytest.raises(TypeError, match="out has dtype float32, must be bool"):
        pyflowk.less(ones(arrays), 2, out=ones(arrays))
    with pytest.raises(TypeError, match="out has dtype int16, must be int32"):
        pyflowk.add(ones(arrays, dtype=np.int32), 1, out=ones(arrays, dtype=np.int16))


def test_types_that_an_operation_does_not_take_are_a_type_error(arrays: Any) -> None:
    flags = ones(arrays, dtype=bool)
    for call, text in (
        (lambda: pyflowk.bitwise_and(ones(arrays), ones(arrays)), "x has dtype float32, must be bool or integers"),
        (lambda: pyflowk.subtract(flags, flags), "x has dtype bool, must be integers or floats"),
        (lambda: pyflowk.negative(flags), "x has dtype bool, must be integers or floats"),
        (lambda: pyflowk.abs(ones(arrays, dtype=np.complex64)), "x has dtype complex64, must be integers or floats"),
        (lambda: pyflowk.add(1, np.zeros(3, "M8[s]")), r"y has dtype datetime64\[s\], must be integers or floats"),
        (
            lambda: pyflowk.add(np.zeros(3, ">f4"), 1),
            "x has dtype >f4, must be .*: NumPy's x.astype.* has this machine's byte order",
        ),
        (lambda: pyflowk.scale(ones(arrays), "2"), "a is a str, must be"),
        (lambda: pyflowk.add(ones(arrays), 1j), "y is a complex, must be"),
        (lambda: pyflowk.add(1, 2), "x and y are numbers, one at least must be an array"),
        (lambda: pyflowk.relu(3.0), "x is a float, must be an array"),
        (lambda: pyflowk.clamp(ones(arrays)), "min is None and max is None: pass one or both"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


def test_what_is_no_array_is_a_type_error(arrays: Any) -> None:
    for thing in ({1, 2}, None, "text"):
        with pytest.raises(TypeError, match=f"x is a {type(thing).__name__}, must be"):
            pyflowk.relu(thing)
        with pytest.raises(TypeError, match=f"y is a {type(thing).__name__}, must be"):
            pyflowk.add(ones(arrays), thing)
        if thing is not None:
            with pytest.raises(TypeError, match=f"out is a {type(thing).__name__}, must be"):
                pyflowk.add(ones(arrays), 1, out=thing)
    with pytest.raises(TypeError, match="stream is a str, must be"):
        pyflowk.relu(ones(arrays), stream="default")


def test_integers_past_the_type_are_an_overflow_error(arrays: Any) -> None:
    x = ones(arrays, dtype=np.uint8)
    for call in (
        lambda: pyflowk.add(x, 300),
        lambda: pyflowk.add(-1, x),
        lambda: pyflowk.clamp(x, -5, 3),
        lambda: pyflowk.scale(x, 256),
        lambda: pyflowk.where(ones(arrays, dtype=bool), x, 256),
        lambda: pyflowk.add_multiply(x, x, x, 1000),
    ):
        with pytest.raises(OverflowError, match=r"Python integer -?\d+ out of bounds for uint8"):
            call()
    with pytest.raises(OverflowError, match=r"past 2\*\*53"):
        big = ones(arrays, dtype=np.int64)
        pyflowk.add_multiply(big, big, big, 2**60)
    np.testing.assert_array_equal(arrays.fetch(x), 1)


def test_arguments_out_of_their_set_are_a_value_error(arrays: Any) -> None:
    for call in (pyflowk.gelu, lambda x, form: pyflowk.gelu_backward(x, x, form)):
        with pytest.raises(ValueError, match="approximate = 'erf', must be 'none' or 'tanh'"):
            call(ones(arrays), "erf")


def test_an_out_that_overlaps_an_operand_is_the_library_s_error(arrays: Any) -> None:
    host = np.arange(20, dtype=np.float32)
    memory = arrays.put(host)
    x, out = arrays.view(memory, 0, (16,), (4,), np.float32), arrays.view(memory, 16, (16,), (4,), np.float32)
    with pytest.raises(pyflowk.FlowkValueError, match=r"out .* x") as caught:
        pyflowk.relu(x, out=out)
    assert caught.value.status == Status.OVERLAP
    np.testing.assert_array_equal(arrays.fetch(memory), host)
    with pytest.raises(pyflowk.FlowkError, match=r"out.ndim = 33, must be in 0 ... 32"):
        pyflowk.negative(arrays.view(memory, 0, (1,) * 33, (4,) * 33, np.float32))
    with pytest.raises(pyflowk.FlowkError, match=r"x = .* must be a multiple of 4"):
        pyflowk.negative(arrays.view(memory, 1, (2, 2), (8, 4), np.float32))


def test_a_read_only_numpy_out_is_refused() -> None:
    out = np.zeros((3, 4), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only, must be writable"):
        pyflowk.relu(np.zeros((3, 4), np.float32), out=out)


@pytest.mark.gpu
def test_host_and_device_arrays_are_not_mixed() -> None:
    host, device = np.ones(4, np.float32), pyflowk.asarray(np.ones(4, np.float32))
    for call, text in (
        (lambda: pyflowk.add(host, device), "x is a host array and y is on device 0"),
        (lambda: pyflowk.add(1, device, out=host), "y is on device 0 and out is a host array"),
        (lambda: pyflowk.relu(host, out=device), "x is a host array and out is on device 0"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
