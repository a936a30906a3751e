# SPDX-License-Identifier: Apache-2.0
"""Calls of C functions with pointers into one buffer, and what every operator's bad calls have in common."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflowk import Status


class Bad(NamedTuple):
    """A call that is right but for `changes`, what it returns, and words that its text must have."""

    status: Status
    words: tuple[str, ...]
    changes: dict[str, Any]


class BufferCalls:
    """The buffer, and the library to call. `before` is the buffer's bytes at first, `address` where it begins."""

    def __init__(self, arrays: Any, library: Any, before: np.ndarray) -> None:
        self._arrays, self._library = arrays, library
        self.before = before
        self._memory = arrays.put(before)

    @property
    def address(self) -> int:
        return self._arrays.pointer(self._memory)

    def _address(self, offset: int | None) -> int | None:
        return None if offset is None else self.address + offset

    def error(self) -> str:
        """flowk_last_error()."""
        return self._library.flowk_last_error().decode()

    def check(self, words: tuple[str, ...] = ()) -> None:
        """The last error's text has the words, and the buffer's bytes are as before."""
        for word in words:
            assert word in self.error()
        np.testing.assert_array_equal(self._arrays.fetch(self._memory), self.before)


# A call takes None or its explain's (text, text_bytes).
Function = Callable[..., int]


def check_bad_call(calls: BufferCalls, function: Function, bad: Bad) -> None:
    """The call and its plan return the status and write nothing."""
    text = ctypes.create_string_buffer(b"before", 1000)
    for explain in (None, (text, len(text))):
        assert Status(function(explain, **bad.changes)) == bad.status, calls.error()
        calls.check(bad.words)
    assert text.value == b"before"


def check_text_of_plan(calls: BufferCalls, function: Function) -> None:
    """explain() needs a buffer, and cuts the text if the buffer is short. Nothing is launched."""
    assert function((None, 100)) == Status.NULL_POINTER
    assert "text" in calls.error()
    whole, cut = ctypes.create_string_buffer(2000), ctypes.create_string_buffer(b"x" * 20)
    assert function((whole, 2000)) == Status.SUCCESS
    assert function((cut, 10)) == Status.SUCCESS
    assert cut.raw == whole.raw[:9] + b"\0" + b"x" * 10 + b"\0"
    assert function((cut, 0)) == Status.SUCCESS
    assert cut.raw[:9] == whole.raw[:9]
    calls.check()
