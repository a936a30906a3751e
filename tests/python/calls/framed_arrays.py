# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for CuPy's arrays: host memory that says it is on a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyflowk._arrays import registry
from pyflowk._arrays.adapters.base import ArrayAdapter
from pyflowk._calls import call_path

DEVICE = 98  # no machine has it, so that no other test has called an operation on this device
BY_CUPY_ATTRIBUTES = 1


class Framed:
    """An array with the attributes of cupy.ndarray."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=DEVICE)
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype


class FramedAdapter(ArrayAdapter):
    """The adapter of Framed, which counts the arrays that Python reads."""

    num_read = 0

    @classmethod
    def read(cls, x: Framed, name: str, stream: int) -> Any:
        cls.num_read += 1
        return x.data.ptr, x.shape, x.strides, x.dtype, DEVICE, None

    read_out = read

    @staticmethod
    def empty(x: Framed, shape: Any, dtype: Any, device: int, stream: int) -> tuple[Framed, int]:
        made = Framed(np.empty(shape, dtype))
        return made, made.data.ptr

    @staticmethod
    def transposed(made: Framed, axes: tuple[int, ...]) -> Framed:
        return Framed(made.array.transpose(axes))

    @staticmethod
    def stream_of(x: Framed) -> int:
        return 0


def register_framed_arrays(monkeypatch: pytest.MonkeyPatch) -> type[FramedAdapter]:
    """Makes pyflowk take Framed arrays, on stream 0, with an empty cache."""
    monkeypatch.setitem(registry.ARRAYS, Framed, FramedAdapter())
    monkeypatch.setitem(registry.OPERANDS, Framed, FramedAdapter())
    call_path.program_cache().forget()
    if Framed not in call_path._seen_types:
        call_path._seen_types.add(Framed)
        stream = SimpleNamespace(ptr=0)
        assert call_path.program_cache().add_type(Framed, BY_CUPY_ATTRIBUTES, 0, False, lambda: stream)
    return FramedAdapter
