# SPDX-License-Identifier: Apache-2.0
"""Bad input: every status that flowk.h documents, and what only Python sees; the output stays as it was."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from c_calls import Bad, BufferCalls, check_bad_call, check_text_of_plan

import pyflowk
from pyflowk import Status

ROWS, COLS = 3, 4
NUM_BYTES = 512
SRC, DST = 64, 256  # where src and dst begin in one buffer, in bytes
MAX_INT64 = 2**63 - 1


# src and dst are offsets into the buffer, None is NULL. The call underneath is the transpose of (3, 4) uint32.
BAD_PERMUTES = {
    "negative rank": Bad(Status.INVALID_ARGUMENT, ("rank", "-1", "32"), {"rank": -1}),
    "rank past the largest": Bad(
        Status.INVALID_ARGUMENT, ("rank", "33", "32"), {"rank": 33, "shape": [1] * 33, "axes": [*range(33)]}
    ),
    "negative extent": Bad(Status.INVALID_ARGUMENT, ("shape[1]", "-3", ">= 0"), {"shape": [3, -3]}),
    "negative extent beside an extent of 0": Bad(
        Status.INVALID_ARGUMENT, ("shape[1]", "-1", ">= 0"), {"shape": [0, -1]}
    ),
    "axis past the rank": Bad(Status.INVALID_ARGUMENT, ("axes[1]", "2", "0 ... 1"), {"axes": [0, 2]}),
    "negative axis": Bad(Status.INVALID_ARGUMENT, ("axes[0]", "-1", "0 ... 1"), {"axes": [-1, 0]}),
    "axis named twice": Bad(Status.INVALID_ARGUMENT, ("axes[1]", "0", "0 ... 1"), {"axes": [0, 0]}),
    "src is NULL": Bad(Status.NULL_POINTER, ("src", "NULL"), {"src": None}),
    "dst is NULL": Bad(Status.NULL_POINTER, ("dst", "NULL"), {"dst": None}),
    "shape is NULL": Bad(Status.NULL_POINTER, ("shape", "NULL"), {"shape": None}),
    "axes is NULL": Bad(Status.NULL_POINTER, ("axes", "NULL"), {"axes": None}),
    "src is misaligned": Bad(Status.MISALIGNED_POINTER, ("src", "multiple of 4"), {"src": SRC + 2}),
    "dst is misaligned": Bad(Status.MISALIGNED_POINTER, ("dst", "multiple of 4"), {"dst": DST + 1}),
    "complex64 at half its alignment": Bad(
        Status.MISALIGNED_POINTER, ("src", "multiple of 4"), {"src": SRC + 2, "dtype": 16}
    ),
    "dtype is 0": Bad(Status.UNSUPPORTED_DTYPE, ("dtype", "0", "17"), {"dtype": 0}),
    "dtype past the last": Bad(Status.UNSUPPORTED_DTYPE, ("dtype", "18", "17"), {"dtype": 18}),
    "dtype is negative": Bad(Status.UNSUPPORTED_DTYPE, ("dtype", "-1", "17"), {"dtype": -1}),
    "dst is src": Bad(Status.OVERLAP, ("dst", "src"), {"dst": SRC}),
    "dst begins inside src": Bad(Status.OVERLAP, ("dst", "src"), {"dst": SRC + 44}),
    "dst ends inside src": Bad(Status.OVERLAP, ("dst", "src"), {"dst": SRC - 44}),
    "dst reaches back into src": Bad(Status.OVERLAP, ("dst", "src"), {"dst": SRC + 88, "dst_strides": [-3, -1]}),
    "slices of one buffer that share elements": Bad(
        Status.OVERLAP, ("dst", "src"), {"dst": SRC + 8, "src_strides": [8, 2], "dst_strides": [2, 8]}
    ),
    "dst repeats an element": Bad(Status.OVERLAP, ("dst", "stride 0"), {"dst_strides": [0, 1]}),
    "dst strides collide": Bad(Status.OVERLAP, ("dst", "stride"), {"dst_strides": [1, 2]}),
    "dst strides collide, negative": Bad(Status.OVERLAP, ("dst", "stride"), {"dst": DST + 64, "dst_strides": [-1, 1]}),
    "extents whose product overflows": Bad(Status.SIZE_OVERFLOW, ("src", str(2**40)), {"shape": [2**40, 2**40]}),
    "bytes that overflow": Bad(Status.SIZE_OVERFLOW, ("src", str(2**61)), {"shape": [2**61, 1]}),
    "src strides that overflow": Bad(Status.SIZE_OVERFLOW, ("src", str(2**61)), {"src_strides": [2**61, 1]}),
    "dst strides that overflow": Bad(Status.SIZE_OVERFLOW, ("dst", str(-MAX_INT64)), {"dst_strides": [-MAX_INT64, 1]}),
    "the most negative stride": Bad(Status.SIZE_OVERFLOW, ("dst",), {"dst_strides": [-MAX_INT64 - 1, 1]}),
}
BAD_BATCH_TRANSPOSES = {
    "negative batch": Bad(Status.INVALID_ARGUMENT, ("batch", "-2", ">= 0"), {"batch": -2}),
    "negative rows": Bad(Status.INVALID_ARGUMENT, ("rows", "-1", ">= 0"), {"rows": -1}),
    "negative cols": Bad(Status.INVALID_ARGUMENT, ("cols", str(-MAX_INT64), ">= 0"), {"cols": -MAX_INT64}),
    "src is NULL": Bad(Status.NULL_POINTER, ("src", "NULL"), {"src": None}),
    "dst is NULL": Bad(Status.NULL_POINTER, ("dst", "NULL"), {"dst": None}),
    "src is misaligned": Bad(Status.MISALIGNED_POINTER, ("src", "multiple of 4"), {"src": SRC + 1}),
    "dst is misaligned": Bad(Status.MISALIGNED_POINTER, ("dst", "multiple of 4"), {"dst": DST + 2}),
    "no such dtype": Bad(Status.UNSUPPORTED_DTYPE, ("dtype", "99", "17"), {"dtype": 99}),
    "dst is src": Bad(Status.OVERLAP, ("dst", "src"), {"dst": SRC}),
    "a size that overflows": Bad(Status.SIZE_OVERFLOW, (str(2**40),), {"rows": 2**40, "cols": 2**40}),
}
GOOD_PERMUTES = {
    "the call that all bad ones are made from": {},
    "an extent of 0 needs no pointers": {"shape": [0, 4], "src": None, "dst": None},
    "an extent of 0 hides an overflow": {"shape": [0, 2**62], "axes": [1, 0]},
    "rank 0 needs no shape and no axes": {"rank": 0, "shape": None, "axes": None},
    "complex64 at half its size": {"src": SRC + 4, "dst": DST + 4, "dtype": 16},
    "src repeats an element": {"src_strides": [0, 0]},
    "interleaved slices of one buffer": {"dst": SRC + 4, "src_strides": [8, 2], "dst_strides": [2, 8]},
    "src and dst touch": {"dst": SRC + 48},
}


class Calls(BufferCalls):
    def __init__(self, arrays: Any, library: Any) -> None:
        super().__init__(arrays, library, np.arange(NUM_BYTES, dtype=np.uint16).astype(np.uint8))

    def permute(
        self,
        explain: tuple[Any, int] | None = None,
        *,
        src: int | None = SRC,
        src_strides: list[int] | None = None,
        dst: int | None = DST,
        dst_strides: list[int] | None = None,
        rank: int = 2,
        shape: list[int] | None = (ROWS, COLS),
        axes: list[int] | None = (1, 0),
        dtype: int = 8,
    ) -> int:
        """flowk_permute, or its explain into (text, text_bytes)."""
        longs = [None if v is None else np.array(v, np.int64) for v in (src_strides, dst_strides, shape)]
        ints = None if axes is None else np.array(axes, np.int32)
        c_src_strides, c_dst_strides, c_shape, c_axes = (None if v is None else v.ctypes.data for v in (*longs, ints))
        arguments = (
            *(self._address(src), c_src_strides, self._address(dst), c_dst_strides),
            *(rank, c_shape, c_axes, dtype),
        )
        if explain is None:
            return self._library.flowk_permute(*arguments, None)
        return self._library.flowk_permute_explain(*arguments, *explain)

    def batch_transpose(
        self,
        explain: tuple[Any, int] | None = None,
        *,
        src: int | None = SRC,
        dst: int | None = DST,
        batch: int = 1,
        rows: int = ROWS,
        cols: int = COLS,
        dtype: int = 8,
    ) -> int:
        """flowk_batch_transpose, or its explain."""
        arguments = (self._address(src), self._address(dst), batch, rows, cols, dtype)
        if explain is None:
            return self._library.flowk_batch_transpose(*arguments, None)
        return self._library.flowk_batch_transpose_explain(*arguments, *explain)


@pytest.fixture
def calls(arrays: Any, library: Any) -> Calls:
    return Calls(arrays, library)


@pytest.mark.parametrize("name", BAD_PERMUTES)
def test_a_bad_permute_and_its_plan_get_their_status_and_write_nothing(calls: Calls, name: str) -> None:
    check_bad_call(calls, calls.permute, BAD_PERMUTES[name])


@pytest.mark.parametrize("name", BAD_BATCH_TRANSPOSES)
def test_a_bad_batch_transpose_and_its_plan_get_their_status_and_write_nothing(calls: Calls, name: str) -> None:
    check_bad_call(calls, calls.batch_transpose, BAD_BATCH_TRANSPOSES[name])


@pytest.mark.parametrize("name", GOOD_PERMUTES)
def test_a_permute_at_the_bounds_succeeds(calls: Calls, name: str) -> None:
    assert Status(calls.permute(**GOOD_PERMUTES[name])) == Status.SUCCESS
    text = ctypes.create_string_buffer(1000)
    assert Status(calls.permute((text, len(text)), **GOOD_PERMUTES[name])) == Status.SUCCESS
    assert text.value


def test_a_batch_transpose_of_no_elements_needs_no_pointers(calls: Calls) -> None:
    assert calls.batch_transpose(batch=0, src=None, dst=None) == Status.SUCCESS
    assert calls.batch_transpose(rows=0, cols=2**62, src=None, dst=None) == Status.SUCCESS


def test_a_plan_needs_a_text_and_cuts_it_where_it_is_short(calls: Calls) -> None:
    for function in (calls.permute, calls.batch_transpose):
        check_text_of_plan(calls, function)


def test_every_status_has_its_name(library: Any) -> None:
    for status in Status:
        assert library.flowk_status_string(status) == f"FLOWK_STATUS_{status.name}".encode()
    for value in (-1, 10, 2**31 - 1):
        assert library.flowk_status_string(value) == b"unknown flowk_status"


def test_every_dtype_has_its_bytes_and_alignment(library: Any) -> None:
    halves = (pyflowk.DType.COMPLEX64, pyflowk.DType.COMPLEX128)
    sizes = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 8, 16]
    for dtype, size in zip(pyflowk.DType, sizes, strict=True):
        assert library.flowk_dtype_bytes(dtype) == size
        assert library.flowk_dtype_alignment_bytes(dtype) == (size // 2 if dtype in halves else size)
    for value in (0, 18, -1):
        assert library.flowk_dtype_bytes(value) == 0
        assert library.flowk_dtype_alignment_bytes(value) == 0


# ---- Python ---------------------------------------------------------------------------------------------------------


def x_of(arrays: Any) -> Any:
    return arrays.put(np.arange(12, dtype=np.int32).reshape(3, 4))


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ((0,), "axes has 1 entry, x has 2 dimensions"),
        ((0, 1, 2), "axes has 3 entries, x has 2 dimensions"),
        ((0, 2), r"axes\[1\] = 2, must be in -2 ... 1"),
        ((-3, 0), r"axes\[0\] = -3, must be in -2 ... 1"),
        ((1, 1), r"axes\[1\] = 1, .* once: \(1, 1\)"),
        ((1, -1), r"axes\[1\] = -1, .* once: \(1, -1\)"),
    ],
)
def test_axes_that_are_no_permutation_are_a_value_error(arrays: Any, axes: tuple[int, ...], text: str) -> None:
    for call in (lambda x: pyflowk.permute(x, axes), lambda x: pyflowk.explain("permute", x, axes)):
        with pytest.raises(pyflowk.FlowkValueError, match=text) as caught:
            call(x_of(arrays))
        assert isinstance(caught.value, ValueError)
        assert caught.value.status == Status.INVALID_ARGUMENT


def test_axes_that_are_no_integers_are_a_type_error(arrays: Any) -> None:
    for axes in ((1.5, 0), ("0", "1"), 3.0, None):
        with pytest.raises(TypeError):
            pyflowk.permute(x_of(arrays), axes)


def test_an_out_of_the_wrong_shape_or_dtype_is_refused_and_untouched(arrays: Any) -> None:
    for shape, dtype, error, text in (
        ((3, 4), np.int32, ValueError, r"out has shape \(3, 4\), must be \(4, 3\)"),
        ((4, 3, 1), np.int32, ValueError, r"out has shape \(4, 3, 1\), must be \(4, 3\)"),
        ((4, 3), np.uint32, TypeError, "out has dtype uint32, must be int32"),
        ((4, 3), np.int64, TypeError, "out has dtype int64, must be int32"),
    ):
        out = arrays.put(np.full(shape, 7, dtype))
        with pytest.raises(error, match=text):
            pyflowk.permute(x_of(arrays), (1, 0), out=out)
        assert (arrays.fetch(out) == 7).all()


def test_a_status_of_the_library_becomes_an_error_with_its_text(arrays: Any) -> None:
    x = x_of(arrays)
    out = arrays.view(x, 0, (4, 3), (12, 4), np.int32)
    with pytest.raises(pyflowk.FlowkError, match=r"^out .* overlaps x ") as caught:
        pyflowk.permute(x, (1, 0), out=out)
    assert caught.value.status == Status.OVERLAP
    assert isinstance(caught.value, ValueError)
    with pytest.raises(pyflowk.FlowkError, match=r"x.ndim = 33, must be in 0 ... 32"):
        pyflowk.permute(arrays.view(x, 0, (1,) * 33, (4,) * 33, np.int32), range(33))
    with pytest.raises(pyflowk.FlowkError, match=r"^x = .* must be a multiple of 4"):
        pyflowk.permute(arrays.view(x, 1, (2, 2), (8, 4), np.int32), (1, 0))
    np.testing.assert_array_equal(arrays.fetch(x), np.arange(12, dtype=np.int32).reshape(3, 4))


def test_batch_transpose_needs_two_dimensions(arrays: Any) -> None:
    with pytest.raises(pyflowk.FlowkValueError, match="x has 1 dimension, must have >= 2"):
        pyflowk.batch_transpose(arrays.put(np.zeros(3)))


def test_what_is_no_array_is_a_type_error(arrays: Any) -> None:
    for thing in ([1, 2], 3.0, None, "text"):
        with pytest.raises(TypeError, match=f"x is a {type(thing).__name__}, must be"):
            pyflowk.permute(thing, (0,))
        if thing is not None:
            with pytest.raises(TypeError, match=f"out is a {type(thing).__name__}, must be"):
                pyflowk.permute(x_of(arrays), (1, 0), out=thing)


def test_a_stream_that_is_none_is_a_type_error(arrays: Any) -> None:
    with pytest.raises(TypeError, match="stream is a str, must be"):
        pyflowk.permute(x_of(arrays), (1, 0), stream="default")


def test_explain_refuses_what_it_does_not_know(arrays: Any) -> None:
    x = x_of(arrays)
    for op in ("reshape", print, 3):
        with pytest.raises(ValueError, match=r"op = .*, must be a function of pyflowk that"):
            pyflowk.explain(op, x, (1, 0))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'axes'"):
        pyflowk.explain("permute", x)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2"):
        pyflowk.explain(pyflowk.batch_transpose, x, (1, 0))
    with pytest.raises(TypeError, match="explain takes no stream"):
        pyflowk.explain(pyflowk.relu, x, stream=1)


def test_a_read_only_numpy_out_is_refused() -> None:
    out = np.zeros((4, 3), np.int32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only, must be writable"):
        pyflowk.permute(np.zeros((3, 4), np.int32), (1, 0), out=out)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (object, "x has dtype object: its elements are Python objects"),
        ("S3", r"x has dtype \|S3 of 3 bytes, must be of 1, 2, 4, 8 or 16 bytes"),
        ([("a", "i4"), ("b", "i2")], "x has dtype .* of 6 bytes, must be of 1, 2, 4, 8 or 16 bytes"),
        (np.dtype("V0"), "of 0 bytes"),
    ],
)
def test_elements_of_other_sizes_or_of_objects_are_a_type_error(dtype: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        pyflowk.permute(np.zeros((3, 4), dtype), (1, 0))


def test_strides_that_are_no_multiple_of_the_element_are_a_value_error() -> None:
    records = np.zeros((3, 4), [("number", "i4"), ("flag", "i1")])
    with pytest.raises(ValueError, match=r"x has strides of \(20, 5\) bytes, each must be a multiple of .* 4 bytes"):
        pyflowk.permute(records["number"], (1, 0))
    with pytest.raises(ValueError, match="out has strides of"):
        pyflowk.permute(np.zeros((4, 3), np.int32), (1, 0), out=records["number"])


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(TypeError, match="x is a masked array"):
        pyflowk.permute(np.ma.zeros((3, 4)), (1, 0))


def test_errors_name_what_to_pass_instead() -> None:
    scores, key_mask = np.zeros((2, 3, 4, 5), np.float32), np.zeros((2, 5), bool)
    with pytest.raises(ValueError, match=r"must broadcast to x of \(2, 3, 4, 5\): pass mask\[:, None, None, :\]$"):
        pyflowk.masked_softmax(scores, key_mask)
    pyflowk.masked_softmax(scores, key_mask[:, None, None, :])
    with pytest.raises(ValueError, match=r"mask has shape \(3, 5\), must broadcast to x of \(2, 3, 4, 5\)$"):
        pyflowk.masked_softmax(scores, np.zeros((3, 5), bool))
    with pytest.raises(TypeError, match=r"x is a list, .*: pass np.asarray\(x\)$"):
        pyflowk.relu([1.0, 2.0])
    with pytest.raises(TypeError, match="alpha is a float, must be an array: leaky_relu takes a number"):
        pyflowk.prelu(scores, 0.25)
    with pytest.raises(ValueError, match=r"op = 'sofmax', .*: is it softmax"):
        pyflowk.explain("sofmax", scores)
