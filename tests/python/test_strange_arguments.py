# SPDX-License-Identifier: Apache-2.0
"""Every parameter of every function, with values that it does not expect: it takes them, or names the parameter."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import pyflowk

ALLOWED = (TypeError, ValueError, OverflowError, MemoryError, pyflowk.FlowkError)


class LooksLikeAnArray:
    """Has the methods of DLPack, which return nothing of use."""

    def __dlpack__(self, **options: Any) -> int:
        return 3

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


STRANGE = {
    "none": None,
    "a string": "2",
    "a long string": "q" * 5000,
    "bytes": b"2",
    "a list": [[1, 2], [3]],
    "a tuple": (),
    "a dictionary": {},
    "a complex": 1j,
    "an int": -3,
    "a large int": 2**70,
    "an int of more digits than Python prints": 2**20000,
    "a float": 2.5,
    "NaN": float("nan"),
    "an object": object(),
    "a class": dict,
    "a slice": slice(3),
    "a memoryview": memoryview(bytearray(16)),
    "a date": np.datetime64("2020", "s"),
    "a void": np.void(b"abc"),
    "a NumPy string": np.str_("q"),
    "strings": np.array(["1", "0"]),
    "objects": np.ones((3, 4), object),
    "a struct": np.ones((3, 4), "i4,i4"),
    "dates": np.ones((3, 4), "M8[s]"),
    "3 bytes": np.ones((3, 4), "S3"),
    "the other byte order": np.ones((3, 4), ">f4"),
    "a masked array": np.ma.ones((3, 4)),
    "no dimensions": np.array(1.0, np.float32),
    "33 dimensions": np.ones((1,) * 33, np.float32),
    "another shape": np.ones((2, 5), np.float32),
    "a misaligned array": np.ndarray((3, 4), np.float32, bytearray(64), 1),
    "one field": np.ones((3, 4), [("a", "f4"), ("b", "i1")])["a"],
    "no elements": np.ones((0, 4), np.float32),
    "no array": LooksLikeAnArray(),
}
# Errors that name no parameter: of NumPy's words for numbers that a type does not hold, and of calls without a fault.
PASSED_ON = "Python integer|this needs a GPU"
NOT_CALLS = (
    "DType",
    "Status",
    "DeviceArray",
    "FlowkError",
    "FlowkValueError",
    "ElementwiseKernel",
    "explain",
    "prepare",
    "Tuning",
    "load_plans",
    "save_plans",
    "tune",
    "from_dlpack",
)
FUNCTIONS = sorted(set(pyflowk._MODULE_OF) - set(NOT_CALLS))


def names_in(text: str) -> set[str]:
    """The words of an error's text that stand where a parameter does: `x[0].ndim = 3`, `x of (2, 3)`, `x has 2 ...`."""
    return set(
        re.findall(r"\b([a-z_][a-z_0-9]*)(?:\[\d+\])?(?:\.\w+)? (?:=|of \(|has \d|has strides|is an? |is None)", text)
    )


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_strange_argument_is_taken_or_refused_by_name(function: str) -> None:
    x, alpha = (
        np.ones((3, 4), np.int32 if "bitwise" in function or function == "trunc_divide" else np.float32),
        np.ones(4, np.float32),
    )
    good = {"xs": [x], "axes": (1, 0), "shape": 3, "dtype": "float16", "a": 2.0, "alpha": alpha, "min": 0.0}
    good |= {"value": 1.0, "axis1": 0, "axis2": 1, "source": 0, "destination": 1}
    good |= {"targets": np.ones(3, np.int64), "lse": np.ones(3, np.float32), "dloss": np.ones(3, np.float32)}
    good |= {name: good["lse"] for name in ("lse1", "lse2")}
    good |= {"vocab_start": 0, "vocab_size": 4, "partials": np.ones((1, 3, 5), np.float32)}
    call = getattr(pyflowk, function)
    parameters = {
        name: one
        for name, one in inspect.signature(call).parameters.items()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }
    needed = {name for name, one in parameters.items() if one.default is one.empty}
    needed |= {"min", "dtype", "dloss"} & {*parameters}
    for name in parameters:
        for what, strange in STRANGE.items():
            try:
                with np.errstate(all="ignore"):
                    call(**({one: good.get(one, x) for one in needed} | {name: strange}))
            except ALLOWED as error:
                words = rf"\b({name}(_dtype|_strides|\.ndim)?|out\.ndim|{function} takes|shapes|{PASSED_ON})\b"
                assert re.search(words, str(error)), f"{name} is {what}: {error}"
                assert len(str(error)) < 1000, f"{name} is {what}"
                assert names_in(str(error)) <= {*parameters}, f"{name} is {what}: {error}"
    assert (x == 1).all() and (alpha == 1).all()
