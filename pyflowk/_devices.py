# SPDX-License-Identifier: Apache-2.0
"""device_count(), is_available() and synchronize()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._arrays.device_array import choose_device
from ._arrays.stream import stream_handle
from ._native import driver
from ._native.library import open_backend

if TYPE_CHECKING:
    from ._typing import Stream


def device_count() -> int:
    """How many GPUs the CUDA driver shows; 0 without a driver."""
    return driver.device_count()


def is_available() -> bool:
    """Whether pyflowk computes on a GPU here: there are a driver, a GPU and libflowk."""
    try:
        return driver.device_count() > 0 and open_backend("cuda") is not None
    except (RuntimeError, ImportError):  # FlowkError is a RuntimeError
        return False


def synchronize(stream: Stream | None = None, *, device: int | None = None) -> None:
    """Waits until the work on `stream` has ended, or without one all work on a GPU.

    Parameters
    ----------
    stream : int or stream object, optional
        As in `permute`.
    device : int, optional
        Ordinal of the GPU; by default the calling thread's current one.

    Raises
    ------
    FlowkError
        NO_DEVICE: there is no such GPU; CUDA_ERROR: work on it failed.
    """
    handle = None if stream is None else stream_handle(stream)
    with driver.current(choose_device(device)):
        if handle is None:
            driver.synchronize_device()
        else:
            driver.synchronize(handle)
