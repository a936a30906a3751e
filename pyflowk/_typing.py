# SPDX-License-Identifier: Apache-2.0
"""The types of pyflowk's parameters, for type checkers; imported by none of its modules at run time."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._native.abi import DType


class SupportsDLPack(Protocol):
    """torch.Tensor, cupy.ndarray, jax.Array, DeviceArray and others."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


class SupportsCudaArrayInterface(Protocol):
    """Numba's device arrays, CuPy's and others."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SupportsCudaStream(Protocol):
    """cuda.core.Stream."""

    def __cuda_stream__(self) -> Any: ...


class TorchStream(Protocol):
    """torch.cuda.Stream."""

    @property
    def cuda_stream(self) -> Any: ...


class CupyStream(Protocol):
    """cupy.cuda.Stream."""

    @property
    def ptr(self) -> Any: ...


class NumbaStream(Protocol):
    """numba.cuda's Stream."""

    @property
    def handle(self) -> Any: ...


class TorchDType(Protocol):
    """A torch.dtype."""

    @property
    def itemsize(self) -> int: ...


Array = NDArray[Any] | SupportsDLPack | SupportsCudaArrayInterface
ArrayT = TypeVar("ArrayT", bound=SupportsDLPack | SupportsCudaArrayInterface)
Number = bool | int | float | np.number[Any] | np.bool_
# What NumPy makes an array of: a number, or a list of numbers, which may be nested.
Numbers = Number | list[Any] | tuple[Any, ...]
# A name ("bfloat16"), a DType, a dtype or scalar type of NumPy or ml_dtypes, or a dtype of torch.
DTypeLike = str | DType | np.dtype[Any] | type | TorchDType
Stream = int | SupportsCudaStream | TorchStream | CupyStream | NumbaStream
