# SPDX-License-Identifier: Apache-2.0
"""Streams: the handle behind what a caller passes, and objects that must outlive the work on one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from .._arguments import integer_in, kind_of
from .._native import driver

if TYPE_CHECKING:
    from .._typing import Stream

LEGACY_DEFAULT = 1  # cudaStreamLegacy, which DLPack and CAI also write as 1


def stream_handle(stream: Stream) -> int:
    """The cudaStream_t, as int, of an int, an object with `__cuda_stream__()` (cuda.core), `.cuda_stream` (torch),
    `.ptr` (CuPy) or `.handle` (Numba); TypeError for anything else, ValueError for an int that is no handle."""
    if isinstance(stream, (int, np.integer)) and not isinstance(stream, bool):
        return integer_in(stream, "stream", 0, 2**64 - 1, "2**64 - 1")
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    is_array = hasattr(stream, "__dlpack__")  # a DeviceArray has a `ptr` too
    for attribute in () if is_array else ("cuda_stream", "ptr", "handle"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise TypeError(f"stream is {kind_of(stream)}, must be an int or have __cuda_stream__, cuda_stream, ptr or handle")


def is_same_stream(first: int, second: int) -> bool:
    """Whether two handles name one stream: 0 and LEGACY_DEFAULT do."""
    return first == second or {first, second} == {0, LEGACY_DEFAULT}


_held: deque[tuple[int, object]] = deque()


def hold_until_done(stream: int, owner: object) -> None:
    """Keeps `owner` alive until the work that is on `stream` now has ended; drops what earlier calls kept.

    For arrays whose framework does not know `stream` and could reuse their memory. In a capture nothing is kept: the
    caller keeps a graph's arrays.
    """
    while _held:
        try:
            entry = _held.popleft()  # removed first, so that no other thread destroys the event
        except IndexError:
            break
        if not driver.event_is_done(entry[0]):
            _held.appendleft(entry)
            break
        driver.destroy_event(entry[0])
    if not driver.is_capturing(stream):
        event = driver.create_event()
        driver.record_event(event, stream)
        _held.append((event, owner))
