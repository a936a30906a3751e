# SPDX-License-Identifier: Apache-2.0
"""The exceptions of pyflowk.

- `FlowkError`: a call of the C library failed. `.status` is its status. The text is the library's own, with the
  parameters' names in Python.
- `FlowkValueError`, both a FlowkError and a ValueError: a value that the caller passed causes the status
  (INVALID_ARGUMENT to SIZE_OVERFLOW), or `axes` is not a permutation.
- `ValueError`, `TypeError`: errors that only Python can see: an `out` of the wrong shape, dtype or read-only, arrays on
  different devices, a host array with a device array, an object that is not an array.
- `OverflowError`: a number outside the range of its type. `MemoryError`: an array that does not fit. `ImportError`: a
  missing package, or no libflowk_simt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .abi import Status
from .c_types import Library
from .operator_table import OPERATORS


class FlowkError(RuntimeError):
    """A call failed: `.status` is the `pyflowk.Status`, `.message` the text."""

    _has_c_names = False

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = Status(status)
        self.message = message

    def name_parameters(self, function: str, operands: Sequence[str], names: Mapping[str, str] | None = None) -> None:
        """Writes the parameters of the C function `function` in a text of the library's with their names in Python:
        `names`, or those of the function, or `operands` of an elementwise function. Does nothing the second time."""
        if self._has_c_names:
            self._has_c_names = False
            if names is None:
                of_operands = {"rank": "out.ndim", **dict(zip("xyz", operands))} if function in _ELEMENTWISE else {}
                names = _PYTHON_NAMES.get(function, of_operands)
            pattern = rf"(?<![\w>])({'|'.join(names) or '(?!)'})(?=_dtype|_strides|\b)"
            text = self.message.replace("mask->dense", "mask").replace("mask->", "")
            python_names = names
            self.message = re.sub(pattern, lambda found: python_names[found[1]], text)
            self.args = (self.args[0], self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.status.name})"


class FlowkValueError(FlowkError, ValueError):
    """A call failed because of a value that the caller passed."""


_ELEMENTWISE = ("flowk_unary", "flowk_binary", "flowk_ternary")
_PYTHON_NAMES = {name: operator.c_names for operator in OPERATORS.values() for name in operator.c_functions}
_CAUSED_BY_A_VALUE = range(Status.INVALID_ARGUMENT, Status.SIZE_OVERFLOW + 1)


def error_of(library: Library, status: int) -> FlowkError:
    """The exception for this thread's last call to `library`, which failed with `status`."""
    message = library.flowk_last_error().decode(errors="replace")
    error = (FlowkValueError if status in _CAUSED_BY_A_VALUE else FlowkError)(status, message)
    error._has_c_names = True
    return error


def different_devices(name: str, device: int | None, other: str, other_device: int | None) -> Exception:
    """The exception for arrays `name` and `other`, which are not on one device; None is the host."""
    places = ["a host array" if d is None else f"on device {d}" for d in (device, other_device)]
    kind = TypeError if None in (device, other_device) else ValueError
    return kind(f"{name} is {places[0]} and {other} is {places[1]}, must be on the same device")
