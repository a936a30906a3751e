# SPDX-License-Identifier: Apache-2.0
"""Numba's device arrays."""

from __future__ import annotations

import sys
from typing import Any

from ..device_array import DeviceArray
from ..frameworks import attribute_of
from .base import BY_NUMBA, ProgramCache
from .protocol import ProtocolAdapter


class NumbaAdapter(ProtocolAdapter):
    def result(self, x: Any, array: Any) -> object:
        return sys.modules["numba.cuda"].as_cuda_array(array) if isinstance(array, DeviceArray) else array

    def register_type(self, array_type: type, cache: ProgramCache) -> None:
        memory = attribute_of(array_type.__module__, "_driver.OwnedPointer")
        if memory is not None and array_type.__name__ == "DeviceNDArray":
            cache.add_type(array_type, BY_NUMBA, 0, False, memory)


def adapter_of(x: object, name: str) -> NumbaAdapter | None:
    """The adapter of an array, None for Numba's other objects."""
    return NumbaAdapter() if hasattr(x, "__cuda_array_interface__") else None
