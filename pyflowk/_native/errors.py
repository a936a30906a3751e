# SPDX-License-Identifier: Apache-2.0
"""The exceptions of pyflowk.

- `FlowkError`: a call of the C library failed. `.status` is its status. The text is the library's own: `src` is the
  parameter `x`, `dst` is `out`, and the operands of an elementwise function are x, y and z in their order.
- `FlowkValueError`, both a FlowkError and a ValueError: a value that the caller passed causes the status
  (INVALID_ARGUMENT to SIZE_OVERFLOW), or `axes` is not a permutation.
- `ValueError`, `TypeError`: errors that only Python can see: an `out` of the wrong shape, dtype or read-only, arrays on
  different devices, a host array beside a device array, an object that is not an array.
"""

from __future__ import annotations

import ctypes

from .abi import Status


class FlowkError(RuntimeError):
    """A call failed: `.status` is the `pyflowk.Status`, `.message` the text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = Status(status)
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.status.name})"


class FlowkValueError(FlowkError, ValueError):
    """A call failed because of a value that the caller passed."""


_CAUSED_BY_A_VALUE = range(Status.INVALID_ARGUMENT, Status.SIZE_OVERFLOW + 1)


def error_of(library: ctypes.CDLL, status: int) -> FlowkError:
    """The exception for this thread's last call to `library`, which returned `status`, not SUCCESS."""
    message = library.flowk_last_error().decode(errors="replace")
    return (FlowkValueError if status in _CAUSED_BY_A_VALUE else FlowkError)(status, message)


def different_devices(name: str, device: int | None, other: str, other_device: int | None) -> Exception:
    """The exception for arrays `name` and `other`, which are not on one device; None is the host."""
    places = ["a host array" if d is None else f"on device {d}" for d in (device, other_device)]
    kind = TypeError if None in (device, other_device) else ValueError
    return kind(f"{name} is {places[0]} and {other} is {places[1]}, must be on the same device")
