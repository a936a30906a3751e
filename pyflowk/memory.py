# SPDX-License-Identifier: Apache-2.0
"""GPU memory of DeviceArrays: how much is in use, a limit, where it comes from; page-locked host memory.

Arrays come from pools of cuda.core, one per GPU, in the order of the stream that they belong to: allocating and freeing
wait for nothing. A pool keeps what is freed for later arrays; `trim` gives it back to the GPU. All functions may be
called from any thread.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._arguments import integer_in
from ._arrays import allocation
from ._arrays.adapters.device import DEVICE_ARRAY
from ._arrays.device_array import DeviceArray, checked_extents, choose_device
from ._arrays.dtypes import element_type, is_contiguous, numpy_dtype
from ._arrays.stream import hold_until_done, stream_handle
from ._native import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._typing import DTypeLike, Stream

__all__ = [
    *("Statistics", "copy_async", "pinned_empty", "reset_peak"),
    *("set_allocator", "set_limit", "statistics", "trim"),
]


class Statistics(NamedTuple):
    """Bytes of one GPU."""

    used: int
    """Of arrays that live."""
    peak: int
    """The most that were used since the start or `reset_peak`."""
    reserved: int
    """What the pool holds of the GPU's memory; 0 if `set_allocator` names another source."""
    limit: int | None
    """What `set_limit` allows, None if there is no limit."""


def statistics(device: int | None = None) -> Statistics:
    """The bytes that DeviceArrays use on a GPU: by default on the calling thread's current one.

    See Also
    --------
    set_limit : A bound of what is used.

    Examples
    --------
    >>> before = pyflowk.memory.statistics().used
    >>> x = pyflowk.empty((1024, 256), "float32")
    >>> pyflowk.memory.statistics().used - before
    1048576
    """
    ordinal = choose_device(device)
    tally = allocation.tally_of(ordinal)
    used, peak = tally.settle()
    return Statistics(used, peak, allocation.reserved_bytes(ordinal), tally.limit)


def reset_peak(device: int | None = None) -> None:
    """Starts `peak` anew, from what is in use now."""
    allocation.tally_of(choose_device(device)).settle(resets_peak=True)


def set_limit(num_bytes: int | None, *, device: int | None = None) -> None:
    """Allows DeviceArrays that many bytes on a GPU; None: no limit. Arrays that live are not touched.

    An array that does not fit is a MemoryError, which says what was asked, is in use and is allowed.
    """
    limit = None if num_bytes is None else integer_in(num_bytes, "num_bytes", 0, 2**63 - 1, "2**63 - 1")
    allocation.tally_of(choose_device(device)).limit = limit


def trim(num_bytes_kept: int = 0, *, device: int | None = None) -> None:
    """Waits for the work on a GPU and gives what its pool holds unused back, except `num_bytes_kept` bytes."""
    kept = integer_in(num_bytes_kept, "num_bytes_kept", 0, 2**63 - 1, "2**63 - 1")
    allocation.trim_pool(choose_device(device), kept)


def set_allocator(allocator: str | Callable[[int, int, int], Any] | Any | None) -> None:
    """Where the memory of new DeviceArrays comes from, on every GPU.

    Parameters
    ----------
    allocator : None, str, MemoryResource or function
        None: pyflowk's pools. "torch" or "cupy": the framework's own cache, so that what one of the two frees is there
        for the other. A MemoryResource of cuda.core. Or a function of (bytes, device, stream), stream a
        cudaStream_t as int, 1 for the legacy default one, that returns an object with the address in ``ptr``,
        ``handle`` or ``data_ptr()``, whose memory is freed in that stream's order when it is dropped: for RMM
        ``lambda n, device, stream: rmm.DeviceBuffer(size=n)`` if all work is on the default stream.
    """
    allocation.set_source(allocation.source_named(allocator))


def pinned_empty(shape: int | Sequence[int], dtype: DTypeLike) -> np.ndarray[Any, Any]:
    """A new C-contiguous NumPy array in page-locked memory, not initialised: `copy_async` copies from and to it.

    Parameters
    ----------
    shape, dtype
        As in `empty`, which also says what is raised.
    """
    element = numpy_dtype(dtype)
    element_type(element, "the array")
    extents = checked_extents(shape, element.itemsize)
    device = choose_device(None)
    num_bytes = math.prod(extents) * element.itemsize
    if num_bytes == 0:
        return np.empty(extents, element)
    core = allocation.cuda_core()
    with driver.current(device):
        core.Device(device).set_current()
        buffer = core.LegacyPinnedMemoryResource().allocate(num_bytes)
    memory = (ctypes.c_uint8 * num_bytes).from_address(int(buffer.handle))
    memory.owner = buffer  # type: ignore[attr-defined]
    return np.frombuffer(memoryview(memory), np.uint8).view(element).reshape(extents)


def copy_async(
    src: DeviceArray | np.ndarray[Any, Any], dst: DeviceArray | np.ndarray[Any, Any], *, stream: Stream | None = None
) -> None:
    """Enqueues a copy between a DeviceArray and a page-locked NumPy array, and returns.

    Parameters
    ----------
    src, dst : DeviceArray and NumPy array, in either order
        C-contiguous, of one shape and dtype; the NumPy array from `pinned_empty`, whole or in part. Until the copy has
        ended (`synchronize`), src must not be written and dst not be read.
    stream : int or stream object, optional
        As in `permute`; by default the DeviceArray's.

    Raises
    ------
    TypeError, ValueError
        Arrays that are not as above.

    Examples
    --------
    >>> host = pyflowk.memory.pinned_empty(3, "float32")
    >>> host[:] = 1, 2, 3
    >>> x = pyflowk.empty(3, "float32")
    >>> pyflowk.memory.copy_async(host, x)
    >>> pyflowk.add(x, 1).to_numpy()
    array([2., 3., 4.], dtype=float32)
    """
    array, host = (src, dst) if isinstance(src, DeviceArray) else (dst, src)
    if not isinstance(array, DeviceArray) or not isinstance(host, np.ndarray):
        names = f"src is a {type(src).__name__} and dst a {type(dst).__name__}"
        raise TypeError(f"{names}, must be a DeviceArray and a NumPy array")
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ValueError(
            f"src has shape {src.shape} and dtype {src.dtype}, dst {dst.shape} and {dst.dtype}: must be the same"
        )
    for name, one in (("src", src), ("dst", dst)):
        if not is_contiguous((one.shape, one.strides, one.dtype), name):
            raise ValueError(f"{name} has strides of {one.strides}, must be C-contiguous")
    if array.size == 0:
        return
    address = host.ctypes.data
    if host is dst and not host.flags.writeable:
        raise ValueError("dst is read-only, must be writable")
    if not driver.is_pinned(address):
        raise ValueError("the NumPy array is in pageable memory, must be of pyflowk.memory.pinned_empty()")
    handle = array.stream if stream is None else stream_handle(stream)
    after = DEVICE_ARRAY.read(array, "x", handle)[-1]
    with driver.current(array.device):
        to, source = (address, array.ptr) if host is dst else (array.ptr, address)
        driver.enqueue_copy(to, source, array.nbytes, handle)
        hold_until_done(handle, (array, host))
    if after is not None:
        after(handle)


def __dir__() -> list[str]:
    return sorted(__all__)
