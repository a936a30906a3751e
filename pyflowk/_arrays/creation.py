# SPDX-License-Identifier: Apache-2.0
"""Functions that make a DeviceArray, with NumPy's names. device_array.py has empty() and asarray()."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import kind_of
from .._native import driver
from .adapters.protocol import reading_of, strided_memory_view
from .device_array import DeviceArray, empty
from .dlpack import CUDA
from .stream import LEGACY_DEFAULT, hold_until_done, stream_handle

if TYPE_CHECKING:
    from .._typing import Array, DTypeLike, Number, Stream


def zeros(
    shape: int | Sequence[int],
    dtype: DTypeLike = "float64",
    *,
    device: int | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """A new C-contiguous array of zeros in GPU memory.

    Parameters
    ----------
    shape, dtype, device, stream : optional
        As in `empty`, which also says what is raised.
    """
    return full(shape, 0, dtype, device=device, stream=stream)


def ones(
    shape: int | Sequence[int],
    dtype: DTypeLike = "float64",
    *,
    device: int | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """A new C-contiguous array of ones in GPU memory.

    Parameters
    ----------
    shape, dtype, device, stream : optional
        As in `empty`, which also says what is raised.
    """
    return full(shape, 1, dtype, device=device, stream=stream)


def full(
    shape: int | Sequence[int],
    value: Number,
    dtype: DTypeLike | None = None,
    *,
    device: int | None = None,
    stream: Stream | None = None,
) -> DeviceArray:
    """A new C-contiguous array in GPU memory, all elements of which are `value`.

    Parameters
    ----------
    value : number
        As NumPy converts it to `dtype`: an int that an integer type does not hold is an OverflowError.
    dtype : dtype-like, optional
        By default the type that NumPy has for `value`.
    shape, device, stream : optional
        As in `empty`, which also says what is raised.
    """
    array = empty(shape, np.asarray(value).dtype if dtype is None else dtype, device=device, stream=stream)
    array.fill(value)
    return array


def empty_like(
    x: Array, *, dtype: DTypeLike | None = None, device: int | None = None, stream: Stream | None = None
) -> DeviceArray:
    """A new C-contiguous array in GPU memory with the shape of x. Its elements are not initialised.

    Parameters
    ----------
    x : array
        With a shape, and unless `dtype` is given a dtype of NumPy or ml_dtypes. Of a DeviceArray also the device and
        the stream are taken.
    dtype, device, stream : optional
        As in `empty`, which also says what is raised.
    """
    given: Any = x
    for attribute in ("shape", "dtype"):
        if not hasattr(given, attribute) and not (attribute == "dtype" and dtype is not None):
            raise TypeError(f"x is {kind_of(x)}, must be an array with a {attribute}")
    if isinstance(given, DeviceArray):
        device = given.device if device is None else device
        stream = given.stream if stream is None and device == given.device else stream
    return empty(tuple(given.shape), given.dtype if dtype is None else dtype, device=device, stream=stream)


class _Borrowed:
    """Keeps another framework's memory until the work on the stream of the DeviceArray over it has ended."""

    __slots__ = ("device", "stream", "view")

    def __init__(self, view: Any, device: int, stream: int) -> None:
        self.view, self.device, self.stream = view, device, stream

    def __del__(self) -> None:
        # At the end of the process the driver may be gone.
        with contextlib.suppress(Exception), driver.current(self.device):
            hold_until_done(self.stream, self.view)


def from_dlpack(x: Array, *, stream: Stream | None = None) -> DeviceArray:
    """A DeviceArray over the memory of x, without a copy.

    Parameters
    ----------
    x : array
        On a GPU, with ``__dlpack__`` or ``__cuda_array_interface__``. The two share their elements: no work on one may
        run at the same time as work that writes the other.
    stream : int or stream object, optional
        The stream that the array belongs to, in any form that `permute` takes; by default the legacy default stream. It
        waits for the work on x.

    Raises
    ------
    TypeError
        x is no such array, or on the host: `asarray` copies it.
    """
    if isinstance(x, DeviceArray) and stream is None:
        return x
    handle = LEGACY_DEFAULT if stream is None else stream_handle(stream) or LEGACY_DEFAULT
    given: Any = x
    is_on_gpu = hasattr(given, "__cuda_array_interface__") or (
        hasattr(given, "__dlpack_device__") and given.__dlpack_device__()[0] == CUDA
    )
    if not is_on_gpu:
        raise TypeError(f"x is {kind_of(x)}, must be an array on a GPU: asarray() copies one from the host")
    view = strided_memory_view(x, "x", handle)
    pointer, shape, strides, *_ = reading_of(view)
    owner = _Borrowed(view, view.device_id, handle)
    return DeviceArray(owner, pointer, shape, strides, np.dtype(view.dtype), view.device_id, handle)
