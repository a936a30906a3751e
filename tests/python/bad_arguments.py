# SPDX-License-Identifier: Apache-2.0
"""Calls with arguments of wrong types and values, and how the message begins: test_bad_arguments.py makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pyflowk

SHAPES = {"x": (3, 4), "y": (3, 4), "out": (3, 4), "alpha": (4,), "wrong": (2, 5)}


class Bad(NamedTuple):
    """`text` begins the message, a regular expression; `call` takes Arrays. `on_gpu` is the text for arrays on a GPU,
    if it is another one."""

    error: type[Exception]
    text: str
    call: Callable[[Arrays], Any]
    on_gpu: str = ""


class Arrays:
    """Named arrays of the library under test; other attributes are made by put()."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays
        self._made: list[tuple[Any, np.ndarray]] = []
        for name, shape in SHAPES.items():
            setattr(self, name, self.put(np.ones(shape, np.float32)))

    def put(self, host: np.ndarray) -> Any:
        array = self._arrays.put(host)
        self._made.append((array, host.copy()))
        return array

    def of(self, dtype: Any, shape: tuple[int, ...] = (3, 4)) -> Any:
        return self.put(np.ones(shape, dtype))

    def check_unchanged(self) -> None:
        for array, before in self._made:
            np.testing.assert_array_equal(self._arrays.fetch(array), before)


F = pyflowk
NUMBERS = "must be (bool(,| or) )?integers or floats"
FLOATS = "must be float16, bfloat16, float32 or float64"
INDEX = "must be an integer"
HUGE = 2**20000  # past what str() takes
READ_ONLY = np.broadcast_to(np.float32(1), (3, 4))

# In the order of README: permute, elementwise, prelu, softmax, memory, explain.
PERMUTES = {
    "axes of none": Bad(TypeError, "axes is None, must be integers", lambda a: F.permute(a.x, None)),
    "axes of a number": Bad(ValueError, "axes has 1 entry, x has 2 dimensions", lambda a: F.permute(a.x, 3)),
    "axes of a string": Bad(ValueError, "axes = '10', must be integers or a pattern", lambda a: F.permute(a.x, "10")),
    "axes of floats": Bad(TypeError, r"axes is \(1.0, 0\), must be integers", lambda a: F.permute(a.x, (1.0, 0))),
    "axes of two dimensions": Bad(
        TypeError, r"axes is array\(.*must be integers", lambda a: F.permute(a.x, np.eye(2, dtype=int))
    ),
    "no axes": Bad(ValueError, "axes has 0 entries, x has 2 dimensions", lambda a: F.permute(a.x, ())),
    "axis twice": Bad(ValueError, r"axes\[1\] = -1, but axes must name each", lambda a: F.permute(a.x, (1, -1))),
    "axis of more digits than Python prints": Bad(
        ValueError, r"axes\[0\] = an integer of 20001 bits, must be in -2 ... 1", lambda a: F.permute(a.x, (HUGE, 0))
    ),
    "axis too large": Bad(
        ValueError, rf"axes\[0\] = {2**70}, must be in -2 ... 1", lambda a: F.permute(a.x, (2**70, 0))
    ),
    "x of a list": Bad(TypeError, "x is a list, must be a NumPy array", lambda a: F.permute([[1.0]], (1, 0))),
    "x of a memoryview": Bad(
        TypeError, r"x is a memoryview, must be .* pass np.asarray\(x\)", lambda a: F.permute(memoryview(b"ab"), (0,))
    ),
    "x of a number": Bad(TypeError, "x is a float, must be an array", lambda a: F.permute(1.0, ())),
    "x of one dimension": Bad(ValueError, "x has 1 dimension, must have >= 2", lambda a: F.batch_transpose(a.alpha)),
    "dtype unknown": Bad(
        TypeError,
        "dtype = 'foo', must name one of bool, int8, .*complex128$",
        lambda a: F.permute(a.x, (1, 0), dtype="foo"),
    ),
    "dtype of a list": Bad(
        TypeError, r"dtype = \['f4'\], must name one of bool", lambda a: F.permute(a.x, (1, 0), dtype=["f4"])
    ),
    "dtype of a number": Bad(TypeError, "dtype = 12, must name one of", lambda a: F.permute(a.x, (1, 0), dtype=12)),
    "dtype of a scalar": Bad(
        TypeError, r"dtype = np.float32\(2.0\), must", lambda a: F.permute(a.x, (1, 0), dtype=np.float32(2))
    ),
    "axes of a memoryview": Bad(
        TypeError, "axes is <memory", lambda a: F.permute(a.x, memoryview(np.ones((2, 2), np.int64)))
    ),
    "33 dimensions": Bad(
        ValueError, "x.ndim = 33, must be in 0 ... 32", lambda a: F.permute(a.of("f4", (1,) * 33), range(33))
    ),
    "dtype of a class": Bad(TypeError, "dtype = <class 'dict'>, must", lambda a: F.permute(a.x, (1, 0), dtype=dict)),
    "dtype of another byte order": Bad(
        TypeError, "dtype = '>f8', must name one of", lambda a: F.permute(a.x, (1, 0), dtype=">f8")
    ),
    "dtype of 64 bits": Bad(
        TypeError, "dtype = int64, must be x's own dtype float32", lambda a: F.batch_transpose(a.x, dtype=int)
    ),
    "x of 64 bits, converted": Bad(
        TypeError, "x has dtype int64, must be bool, int8", lambda a: F.permute(a.of("i8"), (1, 0), dtype="f4")
    ),
    "scale of a string": Bad(TypeError, "scale is '2', must be a number", lambda a: F.permute(a.x, (1, 0), scale="2")),
    "scale of bytes": Bad(TypeError, "scale is b'2', must be a number", lambda a: F.permute(a.x, (1, 0), scale=b"2")),
    "scale of none": Bad(TypeError, "scale is None, must be a number", lambda a: F.batch_transpose(a.x, scale=None)),
    "scale of an array": Bad(
        TypeError, "scale is .*must be a number", lambda a: F.permute(a.x, (1, 0), scale=np.ones((2, 2)))
    ),
    "scale of a string of NumPy's": Bad(
        TypeError, r"scale is np.str_\('2'\), must be", lambda a: F.permute(a.x, (1, 0), scale=np.str_("2"))
    ),
    "scale of a complex": Bad(TypeError, "scale is 2j, must be a number", lambda a: F.permute(a.x, (1, 0), scale=2j)),
    "scale of a complex of NumPy's": Bad(
        TypeError, "scale is .*must be a number", lambda a: F.permute(a.x, (1, 0), scale=np.complex64(2))
    ),
    "scale too large": Bad(
        OverflowError,
        "scale = an integer of 20001 bits, must be in the range of float64",
        lambda a: F.permute(a.x, (1, 0), scale=HUGE),
    ),
    "scale not finite": Bad(ValueError, "scale = inf, must be finite", lambda a: F.permute(a.x, (1, 0), scale=np.inf)),
    "out of another shape": Bad(
        ValueError, r"out has shape \(3, 4\), must be \(4, 3\)", lambda a: F.permute(a.x, (1, 0), out=a.out)
    ),
    "out of another type": Bad(
        TypeError, "out has dtype int32, must be float32", lambda a: F.permute(a.x, (1, 0), out=a.of("i4", (4, 3)))
    ),
    "out of another byte order": Bad(
        TypeError, "out has dtype >f4, must be float32", lambda a: F.permute(a.x, (1, 0), out=a.of(">f4", (4, 3)))
    ),
    "out of a list": Bad(TypeError, "out is a list, must be a NumPy array", lambda a: F.permute(a.x, (1, 0), out=[1])),
    "out that is read-only": Bad(
        ValueError, "out is read-only, must be writable", lambda a: F.permute(a.x, (0, 1), out=READ_ONLY)
    ),
    "out of a masked array": Bad(
        TypeError, "out is a masked array", lambda a: F.permute(a.x, (1, 0), out=np.ma.ones((4, 3), np.float32))
    ),
    "out that is x": Bad(ValueError, "out .* overlaps x", lambda a: F.permute(a.x, (0, 1), out=a.x)),
    "stream of a string": Bad(
        TypeError, "stream is a str, must be an int", lambda a: F.permute(a.x, (1, 0), stream="s")
    ),
    "stream of a bool": Bad(
        TypeError, "stream is a bool, must be an int", lambda a: F.permute(a.x, (1, 0), stream=True)
    ),
    "stream of an array": Bad(
        TypeError, "stream is a .*, must be an int", lambda a: F.permute(a.x, (1, 0), stream=a.x)
    ),
    "stream below 0": Bad(
        ValueError, r"stream = -1, must be in 0 ... 2\*\*64", lambda a: F.permute(a.x, (1, 0), stream=-1)
    ),
    "stream too large": Bad(ValueError, "stream = .*, must be in 0", lambda a: F.permute(a.x, (1, 0), stream=2**64)),
}
ELEMENTWISE = {
    "out of another integer, of rounded integers": Bad(
        TypeError, "out has dtype int8, must be int32", lambda a: F.floor(a.of("i4"), out=a.of("i1"))
    ),
    "cast to a typo": Bad(
        TypeError, "dtype = 'foo', must name one of bool, .*float8_e5m2$", lambda a: F.cast(a.x, "foo")
    ),
    "cast to what is no type": Bad(TypeError, "dtype = 'finfo', must name one of", lambda a: F.cast(a.x, "finfo")),
    "cast to a complex": Bad(TypeError, "dtype = 'complex64', must name one of", lambda a: F.cast(a.x, "complex64")),
    "cast to a struct": Bad(TypeError, r"dtype = 'i4,i4', must name", lambda a: F.cast(a.x, "i4,i4")),
    "cast to fields": Bad(TypeError, r"dtype = \[\('a', 'i4'\)\], must name", lambda a: F.cast(a.x, [("a", "i4")])),
    "cast to a dictionary": Bad(TypeError, "dtype = {}, must name", lambda a: F.cast(a.x, {})),
    "cast to a number": Bad(TypeError, "dtype = 1, must name", lambda a: F.cast(a.x, 1)),
    "cast to a bool": Bad(TypeError, "dtype = True, must name", lambda a: F.cast(a.x, True)),
    "cast to a long typo": Bad(
        TypeError, r"dtype = 'fff.*\.\.\. \(a str\), must name", lambda a: F.cast(a.x, "f" * 999)
    ),
    "cast without a type": Bad(TypeError, "dtype is None: pass one, or an out", lambda a: F.cast(a.x)),
    "another byte order": Bad(
        TypeError, rf"x has dtype >f4, {NUMBERS}.*: NumPy's x.astype\('float32'\)", lambda a: F.add(a.of(">f4"), a.x)
    ),
    "complex": Bad(TypeError, f"y has dtype complex64, {NUMBERS}", lambda a: F.multiply(a.x, a.of("c8"))),
    "datetime": Bad(TypeError, rf"x has dtype datetime64\[s\], {NUMBERS}", lambda a: F.relu(a.of("M8[s]"))),
    "struct": Bad(TypeError, f"x has dtype .*, {NUMBERS}", lambda a: F.abs(a.of("i4,i4"))),
    "float128": Bad(TypeError, f"y has dtype .*, {NUMBERS}", lambda a: F.add(a.x, np.longdouble(1))),
    "complex scalar": Bad(TypeError, f"y has dtype complex64, {NUMBERS}", lambda a: F.add(a.x, np.complex64(1))),
    "datetime scalar": Bad(TypeError, "y has dtype datetime64", lambda a: F.add(a.x, np.datetime64("2020", "s"))),
    "string scalar": Bad(TypeError, f"y has dtype <U1, {NUMBERS}", lambda a: F.add(a.x, np.str_("2"))),
    "string": Bad(TypeError, "y is a str, must be", lambda a: F.add(a.x, "2")),
    "none": Bad(TypeError, "y is a NoneType, must be an array or a number", lambda a: F.add(a.x, None)),
    "a condition of none": Bad(TypeError, "condition is a NoneType, must", lambda a: F.where(None, a.x, a.y)),
    "numbers alone": Bad(TypeError, "x and y are numbers, one at least", lambda a: F.add(1, 2.0)),
    "shapes": Bad(
        ValueError, r"shapes do not broadcast to one: x of \(3, 4\), y of \(2, 5\)", lambda a: F.add(a.x, a.wrong)
    ),
    "out of another shape": Bad(
        ValueError, r"out has shape \(2, 5\), to which x of shape", lambda a: F.add(a.x, a.y, out=a.wrong)
    ),
    "out of another type": Bad(TypeError, "out has dtype int32, must be", lambda a: F.add(a.x, a.y, out=a.of("i4"))),
    "out that is read-only": Bad(ValueError, "out is read-only", lambda a: F.add(a.x, a.y, out=READ_ONLY)),
    "out of a number": Bad(TypeError, "out is an int, must be a NumPy array", lambda a: F.relu(a.x, out=3)),
    "bits of floats": Bad(
        TypeError, "x has dtype float32, must be bool or integers$", lambda a: F.bitwise_and(a.x, a.y)
    ),
    "bits of an array and a float": Bad(
        TypeError, "y is a float, must be bool or integers$", lambda a: F.bitwise_and(a.of("i4"), 0.5)
    ),
    "bits of integers that no integer holds": Bad(
        TypeError,
        "x has dtype int64, y has dtype uint64: they come to float64, must come to bool or integers$",
        lambda a: F.bitwise_and(a.of("i8"), a.of("u8")),
    ),
    "square of bool": Bad(TypeError, "x has dtype bool, must be integers or floats$", lambda a: F.square(a.of("?"))),
    "clamp of bool by bool": Bad(
        TypeError, "x has dtype bool, must be integers or floats$", lambda a: F.clamp(a.of("?"), a.of("?"), a.of("?"))
    ),
    "approximate of a list": Bad(ValueError, r"approximate = \['tanh'\], must", lambda a: F.gelu(a.x, ["tanh"])),
    "33 dimensions": Bad(ValueError, "out.ndim = 33, must be in 0 ... 32", lambda a: F.relu(a.of("f4", (1,) * 33))),
    "approximate": Bad(ValueError, "approximate = 'tan', must be 'none' or 'tanh'", lambda a: F.gelu(a.x, "tan")),
    "no bounds": Bad(TypeError, "min is None and max is None: pass one or both", lambda a: F.clip(a.x)),
    "min of a string": Bad(TypeError, "min is a str, must be", lambda a: F.clamp(a.x, "0", 1)),
    "clamp past the type": Bad(OverflowError, ".*300 .*out of bounds for int8", lambda a: F.clamp(a.of("i1"), 0, 300)),
}
PRELUS = {
    "channel_axis of a float": Bad(TypeError, f"channel_axis is 1.0, {INDEX}", lambda a: F.prelu(a.x, a.alpha, 1.0)),
    "channel_axis of a string": Bad(TypeError, f"channel_axis is '1', {INDEX}", lambda a: F.prelu(a.x, a.alpha, "1")),
    "channel_axis of a list": Bad(TypeError, rf"channel_axis is \[1\], {INDEX}", lambda a: F.prelu(a.x, a.alpha, [1])),
    "channel_axis past the rank": Bad(
        ValueError, "channel_axis = 2, must be in -2 ... 1", lambda a: F.prelu(a.x, a.alpha, 2)
    ),
    "channel_axis of more digits than Python prints": Bad(
        ValueError, "channel_axis = an integer of 20001 bits, must be in", lambda a: F.prelu(a.x, a.alpha, HUGE)
    ),
    "channel_axis of a float, backward": Bad(
        TypeError, f"channel_axis is 1.0, {INDEX}", lambda a: F.prelu_backward(a.y, a.x, a.alpha, 1.0)
    ),
    "channel_axis of a float, workspace": Bad(
        TypeError, f"channel_axis is 1.0, {INDEX}", lambda a: F.prelu_backward_workspace_bytes(a.x, a.alpha, 1.0)
    ),
    "alpha of another extent": Bad(
        ValueError, r"alpha has shape \(4,\), must have one element or", lambda a: F.prelu(a.x, a.alpha, 0)
    ),
    "alpha of two dimensions": Bad(ValueError, r"alpha has shape \(3, 4\), must", lambda a: F.prelu(a.x, a.y)),
    "alpha of a number": Bad(TypeError, "alpha is a float, must be an array", lambda a: F.prelu(a.x, 0.25)),
    "alpha of none": Bad(TypeError, "alpha is a NoneType, must be an array", lambda a: F.prelu(a.x, None)),
    "alpha of a scalar": Bad(
        TypeError, "alpha is a NumPy float32, must be an array", lambda a: F.prelu(a.x, np.float32(1))
    ),
    "alpha of another type": Bad(
        TypeError, "alpha has dtype float64, must be float32 beside", lambda a: F.prelu(a.x, a.of("f8", (4,)))
    ),
    "x of integers": Bad(TypeError, f"x has dtype int32, {FLOATS}", lambda a: F.prelu(a.of("i4"), a.alpha)),
    "x of another byte order": Bad(
        TypeError, rf"x has dtype >f4, {FLOATS}: NumPy's x.astype\('float32'\)", lambda a: F.prelu(a.of(">f4"), a.alpha)
    ),
    "x of objects": Bad(TypeError, "x has dtype object", lambda a: F.prelu(np.ones((3, 4), object), np.ones(4))),
    "out of another type": Bad(
        TypeError, "out has dtype float64, must be float32", lambda a: F.prelu(a.x, a.alpha, out=a.of("f8"))
    ),
    "out of another shape": Bad(
        ValueError, r"out has shape \(2, 5\), must be \(3, 4\)", lambda a: F.prelu(a.x, a.alpha, out=a.wrong)
    ),
    "dy of another shape": Bad(
        ValueError, r"dy has shape \(2, 5\), must be \(3, 4\)", lambda a: F.prelu_backward(a.wrong, a.x, a.alpha)
    ),
    "channel_axis of x without dimensions": Bad(
        ValueError, r"x has no dimensions: alpha has shape \(4,\)", lambda a: F.prelu(a.of("f4", ()), a.alpha)
    ),
    "workspace of objects": Bad(
        TypeError,
        "workspace has dtype object",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, workspace=np.ones(9, object), dx_out=a.out),
        "x is on device 0 and workspace is a host array",
    ),
    "need_dx of a string": Bad(
        TypeError, "need_dx = 'no', must be True or False", lambda a: F.prelu_backward(a.y, a.x, a.alpha, need_dx="no")
    ),
    "need_dalpha of a number": Bad(
        TypeError, "need_dalpha = 0, must be True", lambda a: F.prelu_backward(a.y, a.x, a.alpha, need_dalpha=0)
    ),
    "dx_out without need_dx": Bad(
        ValueError,
        "dx_out is given, must be None where need_dx is False",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, need_dx=False, dx_out=a.out),
    ),
    "dalpha_out without need_dalpha": Bad(
        ValueError,
        "dalpha_out is given, must be None where need_dalpha is False",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, need_dalpha=False, dalpha_out=a.alpha),
    ),
    "dx_out of another shape": Bad(
        ValueError, r"dx_out has shape \(2, 5\), must", lambda a: F.prelu_backward(a.y, a.x, a.alpha, dx_out=a.wrong)
    ),
    "dx_out that is read-only": Bad(
        ValueError, "dx_out is read-only", lambda a: F.prelu_backward(a.y, a.x, a.alpha, dx_out=READ_ONLY)
    ),
    "dalpha_out that is read-only": Bad(
        ValueError,
        "dalpha_out is read-only",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, dx_out=a.out, dalpha_out=READ_ONLY[0]),
    ),
    "dalpha_out of a number": Bad(
        TypeError, "dalpha_out is an int, must be", lambda a: F.prelu_backward(a.y, a.x, a.alpha, dalpha_out=3)
    ),
    "dalpha_out of another type": Bad(
        TypeError,
        "dalpha_out has dtype float64, must be float32",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, dx_out=a.out, dalpha_out=a.of("f8", (4,))),
    ),
    "workspace of a list": Bad(
        TypeError,
        "workspace is a list, must be",
        lambda a: F.prelu_backward(a.y, a.x, a.alpha, workspace=[0], dx_out=a.out),
    ),
}
SOFTMAXES = {
    "window of a float": Bad(TypeError, f"window is 2.0, {INDEX}", lambda a: F.masked_softmax(a.x, window=2.0)),
    "window of a list": Bad(TypeError, rf"window is \[2\], {INDEX}", lambda a: F.masked_softmax(a.x, window=[2])),
    "window of 0": Bad(ValueError, "window = 0, must be in 1 ...", lambda a: F.masked_softmax(a.x, window=0)),
    "window too large": Bad(
        ValueError, r"window = an integer of .* bits, must be in 1", lambda a: F.masked_softmax(a.x, window=HUGE)
    ),
    "causal of a string": Bad(TypeError, "causal = 'no', must be True", lambda a: F.masked_softmax(a.x, causal="no")),
    "causal of a number": Bad(TypeError, "causal = 1, must be True", lambda a: F.masked_softmax(a.x, causal=1)),
    "causal of an array": Bad(
        TypeError, "causal = array.*must be True", lambda a: F.masked_softmax(a.x, causal=np.ones(2, bool))
    ),
    "causal of none": Bad(TypeError, "causal = None, must be", lambda a: F.masked_softmax(a.x, causal=None)),
    "causal_offset of none": Bad(
        TypeError, "causal_offset is None", lambda a: F.masked_softmax(a.x, causal_offset=None)
    ),
    "lengths_from_right of none": Bad(
        TypeError, "lengths_from_right = None, must be True", lambda a: F.masked_softmax(a.x, lengths_from_right=None)
    ),
    "lengths_from_right of a list": Bad(
        TypeError, r"lengths_from_right = \[1\], must", lambda a: F.masked_softmax(a.x, lengths_from_right=[1])
    ),
    "log of a string": Bad(TypeError, "log = 'no', must be True", lambda a: F.masked_softmax(a.x, log="no")),
    "log of none": Bad(TypeError, "log = None, must be", lambda a: F.masked_softmax_backward(a.x, a.y, log=None)),
    "scale of a string": Bad(TypeError, "scale is '2', must be", lambda a: F.masked_softmax(a.x, scale="2")),
    "scale too large": Bad(OverflowError, "scale = an integer", lambda a: F.masked_softmax(a.x, scale=HUGE)),
    "scale not finite": Bad(ValueError, "scale = nan, must be finite", lambda a: F.masked_softmax(a.x, scale=np.nan)),
    "dtype unknown": Bad(TypeError, "dtype = 'foo', must name one of float16", lambda a: F.softmax(a.x, dtype="foo")),
    "dtype of a number": Bad(TypeError, "dtype = 12, must name", lambda a: F.log_softmax(a.x, dtype=12)),
    "dtype of integers": Bad(TypeError, "dtype = 'int32', must name", lambda a: F.softmax(a.x, dtype="int32")),
    "dtype of another pair": Bad(
        TypeError, "dtype = float64, must be float16", lambda a: F.softmax(a.x, dtype="float64")
    ),
    "mask of a list": Bad(TypeError, "mask is a list, must be", lambda a: F.masked_softmax(a.x, [True])),
    "mask of floats": Bad(TypeError, "mask has dtype float32, must be bool", lambda a: F.masked_softmax(a.x, a.y)),
    "lengths of a float": Bad(TypeError, "lengths is a float, must be", lambda a: F.masked_softmax(a.x, lengths=3.0)),
    "lengths of another byte order": Bad(
        TypeError,
        r"lengths has dtype >i4, .*lengths.astype\('int32'\)",
        lambda a: F.masked_softmax(a.x, lengths=a.of(">i4", (3,))),
    ),
    "bias of another type": Bad(
        TypeError, "bias has dtype float16, must be float32", lambda a: F.masked_softmax(a.x, bias=a.of("f2"))
    ),
    "x without dimensions": Bad(ValueError, "x has no dimensions, must have >= 1", lambda a: F.softmax(a.of("f4", ()))),
    "y of none": Bad(TypeError, "y is a NoneType, must be", lambda a: F.masked_softmax_backward(a.x, None)),
    "dy of none": Bad(TypeError, "dy is a NoneType, must be", lambda a: F.masked_softmax_backward(None, a.y)),
    "lengths_from_right of an array": Bad(
        TypeError, "lengths_from_right = array", lambda a: F.masked_softmax(a.x, lengths_from_right=np.ones(2))
    ),
    "lengths_from_right of a memoryview": Bad(
        TypeError,
        "lengths_from_right = <mem",
        lambda a: F.masked_softmax(a.x, lengths_from_right=memoryview(bytearray(2))),
    ),
    "y of another shape": Bad(
        ValueError, r"y has shape .*, must be \(3, 4\) as dy", lambda a: F.masked_softmax_backward(a.x, a.wrong)
    ),
    "out of another shape": Bad(ValueError, r"out has shape \(2, 5\), must", lambda a: F.softmax(a.x, out=a.wrong)),
    "out that is read-only": Bad(ValueError, "out is read-only", lambda a: F.softmax(a.x, out=READ_ONLY)),
    "out beside dtype": Bad(
        TypeError, "out has dtype float32, must be float16", lambda a: F.softmax(a.x, dtype="float16", out=a.out)
    ),
}
OTHERS = {
    "shape of none": Bad(TypeError, "shape is None, must be an integer or", lambda a: F.empty(None, "f4")),
    "shape of floats": Bad(TypeError, r"shape is \(2.0,\), must be", lambda a: F.empty((2.0,), "f4")),
    "shape of a string": Bad(TypeError, "shape is '23', must be", lambda a: F.empty("23", "f4")),
    "shape too large": Bad(ValueError, r"shape = \(.*bytes of all", lambda a: F.empty((2**40, 2**40), "f4")),
    "extent too large beside 0": Bad(ValueError, r"shape = \(.*extents", lambda a: F.empty((0, 2**70), "f4")),
    "extent of more digits than Python prints": Bad(
        ValueError, "shape = a tuple, ", lambda a: F.empty((3, HUGE), "f4")
    ),
    "stream of more digits than Python prints": Bad(
        ValueError, "stream = an integer of 20001 bits, must be in 0", lambda a: F.empty(3, "f4", stream=HUGE)
    ),
    "device of floats": Bad(TypeError, f"device is 0.0, {INDEX}", lambda a: F.empty(3, "f4", device=0.0)),
    "extent below 0": Bad(ValueError, r"shape = \(2, -1\), each extent", lambda a: F.empty((2, -1), "f4")),
    "dtype unknown": Bad(TypeError, "dtype = 'foo', must be a type of NumPy or", lambda a: F.empty(3, "foo")),
    "dtype of objects": Bad(TypeError, "the array has dtype object", lambda a: F.empty(3, object)),
    "device of a string": Bad(TypeError, f"device is '0', {INDEX}", lambda a: F.empty(3, "f4", device="0")),
    "stream of an object": Bad(TypeError, "stream is an object, must", lambda a: F.empty(3, "f4", stream=object())),
    "in_params of none": Bad(
        TypeError, "in_params is None, must be a string", lambda a: F.ElementwiseKernel(None, "T y", "")
    ),
    "operation of a number": Bad(TypeError, "operation is 3, must be", lambda a: F.ElementwiseKernel("T x", "T y", 3)),
    "a of a masked array": Bad(TypeError, "a is a masked array", lambda a: F.asarray(np.ma.ones(3))),
    "a of a ragged list": Bad(ValueError, "a is no array to NumPy: ", lambda a: F.asarray([[1], [1, 2]])),
    "a of none": Bad(TypeError, "a has dtype object", lambda a: F.asarray(None)),
    "explain NumPy's add": Bad(
        ValueError, "op = <ufunc 'add'>, must be a function of pyflowk", lambda a: F.explain(np.add, a.x, a.x)
    ),
    "explain a function of that name": Bad(
        ValueError, r"op = <.*, must be a function of pyflowk", lambda a: F.explain(np.square, a.x)
    ),
    "explain none": Bad(ValueError, "op = None, must be a function of pyflowk", lambda a: F.explain(None, a.x)),
    "explain a bad call": Bad(TypeError, "window is 2.0", lambda a: F.explain("masked_softmax", a.x, window=2.0)),
}
TABLES = {"permute": PERMUTES, "elementwise": ELEMENTWISE, "prelu": PRELUS, "softmax": SOFTMAXES, "others": OTHERS}
ROWS = [(f"{group}: {name}", bad) for group, table in TABLES.items() for name, bad in table.items()]
