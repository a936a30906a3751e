# SPDX-License-Identifier: Apache-2.0
"""DeviceArray: an n-dimensional array in GPU memory that cuda.core allocates and frees in stream order."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._arguments import axis_of, count_of, integer, shown
from .._native import driver
from .._native.abi import Status
from .._native.errors import FlowkError
from .._native.library import for_device
from . import dlpack, views
from .allocation import allocate
from .device_operators import ArrayOperators
from .dtypes import ALL_TYPES, contiguous_strides, element_type, named_type, numpy_dtype, type_of_elements
from .fill import fill_memory
from .stream import LEGACY_DEFAULT, stream_handle

if TYPE_CHECKING:
    from .._typing import DTypeLike, Stream

_PACKAGE = __package__.partition(".")[0]


class DeviceArray(ArrayOperators):
    """An n-dimensional array in GPU memory, made by `empty()`, `asarray()` and others.

    CuPy, torch, JAX and Numba take it without a copy, by ``__dlpack__`` or ``__cuda_array_interface__``
    (``torch.from_dlpack(a)``, ``cupy.asarray(a)``). It has NumPy's views (``a[1:, None, ::-1]``, ``a.T``) and operators
    (``2 * a + b``, ``a < b``), whose results are new arrays; ``a.to_numpy()`` is NumPy's array of it.

    An array belongs to one stream: its memory is allocated and freed in that stream's order, so the stream must outlive
    it. Before flowk works on it in another stream, that stream waits for the array's; afterwards the array's waits for
    the work.

    Attributes
    ----------
    ptr : int
        Address of the element with all indices 0; 0 if the array has no elements.
    shape : tuple of int
        Extents.
    strides : tuple of int
        One per dimension: bytes from one element to the next.
    dtype : np.dtype
        Element type.
    device : int
        Ordinal of the GPU.
    stream : int
        Handle of the stream that it belongs to; 1 is the legacy default stream.
    """

    __slots__ = ("__weakref__", "_buffer", "device", "dtype", "ptr", "shape", "stream", "strides")

    def __init__(
        self,
        buffer: object,
        ptr: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        device: int,
        stream: int,
    ) -> None:
        self._buffer = buffer
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.stream = stream

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<pyflowk.DeviceArray shape={self.shape} dtype={self.dtype} device={self.device}>"

    @property
    def T(self) -> DeviceArray:
        """A view with the dimensions reversed."""
        return self.transpose()

    @property
    def mT(self) -> DeviceArray:
        """A view with the last two dimensions swapped."""
        if self.ndim < 2:
            raise ValueError(f"an array of {self.ndim} dimensions has no last two to swap")
        return self.transpose(*range(self.ndim - 2), -1, -2)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        """Views of a[0], a[1], ..."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> DeviceArray:
        """A view, by integers, slices, None and Ellipsis. With an integer per dimension it has none left: `item()` is
        its number."""
        return self._view(*views.indexed(self.shape, self.strides, index), self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Writes a number, or an array that broadcasts to a[index] and is cast to this dtype."""
        target = self[index]
        if isinstance(value, (bool, int, float, complex, np.generic)):
            target.fill(value)
            return
        if not isinstance(value, DeviceArray):
            value = asarray(value, device=self.device, stream=self.stream)
        if value._buffer is target._buffer:
            if (value.ptr, value.shape, value.strides) == (target.ptr, target.shape, target.strides):
                return  # a[i] += b has written it already
            value = value.copy()
        strides = views.broadcast_strides(value.shape, value.strides, target.shape)
        _write(value._view(0, target.shape, strides, value.dtype), target)

    def transpose(self, *axes: Any) -> DeviceArray:
        """A view with the dimensions in the order of `axes`; without axes reversed."""
        order = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes
        places = [axis_of(axis, "axes", self.ndim) for axis in order or range(self.ndim)[::-1]]
        if sorted(places) != list(range(self.ndim)):
            raise ValueError(
                f"axes = {shown(axes)}, must name each of the array's {count_of(self.ndim, 'dimension')} once"
            )
        shape, strides = (tuple(part[place] for place in places) for part in (self.shape, self.strides))
        return self._view(0, shape, strides, self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """The elements in C order in another shape, of which one extent may be -1: a view if the strides allow it,
        else a copy."""
        given = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        new = views.wanted_shape(self.size, given)
        strides = views.reshaped_strides(self.shape, self.strides, new, self.dtype.itemsize)
        return self.copy().reshape(*new) if strides is None else self._view(0, new, strides, self.dtype)

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> DeviceArray:
        """A view without the dimensions `axis`, or without all of extent 1."""
        return self._view(0, *views.squeezed(self.shape, self.strides, axis), self.dtype)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DeviceArray cannot be pickled: pickle its to_numpy()")

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> DeviceArray:
        return self.copy()

    def copy(self) -> DeviceArray:
        """A new C-contiguous array with the same elements."""
        array = _empty(self.shape, self.dtype, "the array", self.device, self.stream)
        _write(self, array)
        return array

    def astype(self, dtype: DTypeLike) -> DeviceArray:
        """A new array, its elements converted as `cast` converts them."""
        wanted = named_type(dtype, ALL_TYPES)
        if wanted == type_of_elements(self.dtype):
            return self.copy()
        result: DeviceArray = import_module(_PACKAGE).cast(self, wanted)
        return result

    def fill(self, value: Any) -> None:
        """Writes `value`, as NumPy converts it to this dtype, to every element."""
        if self.size:
            library = for_device(self.device, "the array")
            with driver.current(self.device):
                fill_memory(library, self.ptr, self.shape, self.strides, self.dtype, value, self.stream)

    def item(self) -> Any:
        """The number of an array of one element; waits for the work on the array's stream."""
        if self.size != 1:
            raise ValueError(f"an array of {self.size} elements, must have 1 to be a number")
        return self.to_numpy().item()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"the truth value of an array of {self.size} elements is ambiguous")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError("only an array of integers without dimensions is an index")
        return int(self.item())

    def __array__(self, *arguments: object, **options: object) -> NoReturn:
        raise TypeError("a DeviceArray is in GPU memory: call its to_numpy() for NumPy's array of it")

    def to_numpy(self) -> np.ndarray:
        """A copy in host memory, C-contiguous; waits for the work on the array's stream."""
        # Copies the bytes from the lowest address to the highest, and reorders them on the host if needed.
        reaches = [stride * (extent - 1) for stride, extent in zip(self.strides, self.shape)] if self.size else []
        lowest = sum(reach for reach in reaches if reach < 0)
        num_bytes = sum(map(abs, reaches)) + self.dtype.itemsize if self.size else 0
        memory = np.empty(num_bytes, np.uint8)
        if num_bytes:
            with driver.current(self.device):
                driver.copy_to_host(memory.ctypes.data, self.ptr + lowest, num_bytes, self.stream)
        if self.strides == contiguous_strides(self.shape, self.dtype.itemsize):
            return np.ndarray(self.shape, self.dtype, memory)
        return np.ndarray(self.shape, self.dtype, memory, -lowest, self.strides).copy()

    def _view(
        self, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype
    ) -> DeviceArray:
        """An array over the same memory, strides in bytes; nothing is checked."""
        pointer = self.ptr + offset_bytes
        return DeviceArray(self._buffer, pointer, shape, strides, np.dtype(dtype), self.device, self.stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of this memory, ready for work on `stream` (None: the legacy default stream, -1: no wait)."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray is exported without a copy, on its own device only")
        if stream == 0:
            raise BufferError("stream = 0 is ambiguous in DLPack: pass 1 (legacy default) or 2 (per thread)")
        strides = tuple(stride // self.dtype.itemsize for stride in self.strides)
        versioned = max_version is not None and max_version[0] >= 1
        capsule = dlpack.make_capsule(
            self._buffer, self.ptr, self.shape, strides, self.dtype, self.__dlpack_device__(), versioned=versioned
        )
        if stream != -1:
            with driver.current(self.device):
                driver.make_wait(LEGACY_DEFAULT if stream is None else stream, self.stream)
        return capsule

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            raise AttributeError(f"__cuda_array_interface__ has no type for dtype {self.dtype}: use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": self.strides,
            "stream": self.stream,
        }


def empty(
    shape: int | Sequence[int], dtype: DTypeLike, *, device: int | None = None, stream: Stream | None = None
) -> DeviceArray:
    """A new C-contiguous array in GPU memory. Its elements are not initialised.

    Parameters
    ----------
    shape : int or sequence of int
        Extents, each >= 0.
    dtype : dtype-like
        Any argument of ``np.dtype()``, with elements of 1, 2, 4, 8 or 16 bytes; "bfloat16", "float8_e4m3fn" and
        "float8_e5m2" if ml_dtypes is installed.
    device : int, optional
        Ordinal of the GPU; by default the calling thread's current one.
    stream : int or stream object, optional
        The stream that the array belongs to, in any form that `permute` takes; by default the legacy default stream.

    Raises
    ------
    ValueError
        An extent is negative, or the array is of 2**63 bytes or more.
    TypeError
        An extent is no integer, or an element of `dtype` is not 1, 2, 4, 8 or 16 bytes.
    FlowkError
        NO_DEVICE: no driver, no such GPU, or no cuda.core.
    MemoryError
        The GPU's memory does not hold the array.

    See Also
    --------
    asarray : A copy of an array on the host.

    Examples
    --------
    >>> x, y = pyflowk.ones((2, 3), "float16"), pyflowk.empty((3, 2), "float16")
    >>> pyflowk.permute(x, (1, 0), out=y)
    <pyflowk.DeviceArray shape=(3, 2) dtype=float16 device=0>
    """
    return _empty(shape, numpy_dtype(dtype), "the array", device, stream)


def _empty(
    shape: int | Sequence[int], numpy_type: np.dtype, name: str, device: int | None, stream: Stream | None
) -> DeviceArray:
    """empty(); `name` is what has the dtype."""
    element_type(numpy_type, name)
    extents = checked_extents(shape, numpy_type.itemsize)
    num_bytes = math.prod(extents) * numpy_type.itemsize
    handle = LEGACY_DEFAULT if stream is None else stream_handle(stream) or LEGACY_DEFAULT
    ordinal = choose_device(device)
    strides = contiguous_strides(extents, numpy_type.itemsize)
    buffer, pointer = allocate(num_bytes, ordinal, handle) if num_bytes else (None, 0)
    return DeviceArray(buffer, pointer, extents, strides, numpy_type, ordinal, handle)


def checked_extents(shape: int | Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The extents in the parameter `shape`, of elements of `itemsize` bytes."""
    try:
        extents = tuple(int(operator.index(extent)) for extent in (shape if np.iterable(shape) else (shape,)))
    except (TypeError, NotImplementedError) as error:  # the second by a memoryview
        raise TypeError(f"shape is {shown(shape)}, must be an integer or a sequence of integers") from error
    num_bytes = math.prod(extents) * itemsize
    if min(extents, default=0) < 0:
        raise ValueError(f"shape = {shown(extents)}, each extent must be >= 0")
    if max(num_bytes, *extents, 0) >= 2**63:
        raise ValueError(f"shape = {shown(extents)}, the extents and the bytes of all elements must be < 2**63")
    return extents


def asarray(a: Any, *, device: int | None = None, stream: Stream | None = None) -> DeviceArray:
    """A new DeviceArray with a copy of `a`; returns when the copy is done. A DeviceArray is returned as it is.

    Parameters
    ----------
    a : array-like
        Any argument of ``np.asarray()``.
    device, stream : optional
        As in `empty`, which also lists what is raised.

    See Also
    --------
    from_dlpack : An array of another library, without a copy.
    memory.copy_async : A copy that a call does not wait for.

    Examples
    --------
    >>> x = pyflowk.asarray(np.arange(6).reshape(2, 3))
    >>> pyflowk.permute(x, (1, 0)).to_numpy()
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    if isinstance(a, DeviceArray):
        return a
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError("a is a masked array: pass its data and its mask one by one")
    if hasattr(a, "__cuda_array_interface__"):
        raise TypeError(
            f"a is a {type(a).__name__} on a GPU, must be on the host: pyflowk's functions take it as it is, and "
            "from_dlpack() makes a DeviceArray of it without a copy"
        )
    try:
        host = np.asarray(a, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"a is no array to NumPy: {error}") from error
    array = _empty(host.shape, host.dtype, "a", device, stream)
    if host.nbytes:
        with driver.current(array.device):
            driver.copy_to_device(array.ptr, host.ctypes.data, host.nbytes, array.stream)
    return array


def _write(x: DeviceArray, out: DeviceArray) -> None:
    """x into out, of the same shape, cast to out's dtype."""
    package = import_module(_PACKAGE)
    if x.size == 0:
        return
    if x.dtype == out.dtype:
        package.permute(x, range(x.ndim), out=out)
    else:
        package.cast(x, out=out)


def choose_device(device: int | None) -> int:
    """The ordinal of the GPU in the parameter `device`; None: the current one."""
    ordinal = (driver.current_device() or 0) if device is None else integer(device, "device")
    count = driver.device_count()
    if count == 0:
        raise FlowkError(Status.NO_DEVICE, f"this needs a GPU: {driver.why_no_gpu()}")
    if not 0 <= ordinal < count:
        raise FlowkError(Status.NO_DEVICE, f"device = {shown(ordinal)}, must be in 0 ... {count - 1}")
    return ordinal
