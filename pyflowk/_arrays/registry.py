# SPDX-License-Identifier: Apache-2.0
"""The adapter of each operand, by its type. A framework's adapter is registered when its first array is seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._arguments import kind_of
from .._native.abi import DType
from .adapters.base import Adapter, AnyAdapter, Interceptor
from .adapters.device import DEVICE_ARRAY
from .adapters.numbers import LIST, HostScalar, HostScalarAdapter, NoneAdapter, NumberAdapter, ScalarAdapter
from .adapters.numpy import NUMPY
from .adapters.protocol import PROTOCOL
from .device_array import DeviceArray
from .dtypes import number_type
from .frameworks import ADAPTERS, adapters_of

_NUMBER = NumberAdapter()
ARRAYS: dict[type, AnyAdapter] = {np.ndarray: NUMPY, DeviceArray: DEVICE_ARRAY}
# The adapters of all operands: arrays, numbers and None.
OPERANDS: dict[type, Adapter[Any]] = {
    **ARRAYS,
    **dict.fromkeys((float, int, bool), _NUMBER),
    type(None): NoneAdapter(),
    HostScalar: HostScalarAdapter(),
}


def array_adapter(x: object, name: str) -> AnyAdapter:
    """The adapter of the array in parameter `name`, remembered for its type; TypeError if x is not an array."""
    adapter = ARRAYS.get(type(x))
    if adapter is None:
        adapter = ARRAYS[type(x)] = OPERANDS[type(x)] = _find_adapter(x, name)
    return adapter


def operand_adapter(x: object, name: str) -> Adapter[Any]:
    """array_adapter(), or the adapter of a number."""
    adapter = OPERANDS.get(type(x))
    if adapter is None and isinstance(x, (int, float, np.generic)):
        adapter = OPERANDS[type(x)] = ScalarAdapter()
    return adapter or array_adapter(x, name)


def operand_or_list_adapter(x: object, name: str) -> Adapter[Any]:
    """operand_adapter(), or the adapter of a list or tuple."""
    return LIST if isinstance(x, (list, tuple)) and type(x) not in OPERANDS else operand_adapter(x, name)


def _find_adapter(x: object, name: str) -> AnyAdapter:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: pass its data and its mask one by one")
    if isinstance(x, np.ndarray):
        return NUMPY
    packages = (base.__module__.partition(".")[0] for base in type(x).__mro__)
    framework = next(filter(ADAPTERS.__contains__, packages), None)
    if framework is not None:
        adapter: AnyAdapter | None = adapters_of(framework).adapter_of(x, name)
        if adapter is not None:
            return adapter
    if hasattr(x, "__cuda_array_interface__") or (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        return PROTOCOL
    text = f"{name} is {kind_of(x)}, must be a NumPy array or have __dlpack__ or __cuda_array_interface__"
    if isinstance(x, (memoryview, bytearray, list, tuple)):
        text += f": pass np.asarray({name})"
    raise TypeError(text)


def interceptor_of(arrays: Iterable[object]) -> Interceptor | None:
    """The interceptor that makes the call, if the framework of one of these arrays must see it; None if none must."""
    for index, array in enumerate(arrays):
        try:
            interceptor = array_adapter(array, "").interceptor_of(array, None if index else "")
        except TypeError:  # the error of the call itself names the array
            return None
        if interceptor is not None:
            return interceptor
    return None


def host_scalar(x: Any, name: str) -> Any:
    """A host array of rank 0 as a HostScalar; any other operand as it is."""
    adapter = ARRAYS.get(type(x))
    if adapter is None or getattr(x, "shape", None) != ():
        return x
    *_, dtype, device, _ = adapter.read(x, name, 0)
    if device is not None:
        return x
    code = number_type(dtype, name)
    if code == DType.BOOL:
        return HostScalar(bool(x), code)
    return HostScalar(int(x) if code < DType.FLOAT16 else float(x), code)
