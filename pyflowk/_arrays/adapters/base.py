# SPDX-License-Identifier: Apache-2.0
"""What an adapter does, and what most adapters have in common. Every call in Python uses it: hence plain tuples.

A reading is (pointer, shape, strides, dtype, device, after). `strides` are in bytes if `dtype` is NumPy's, and in
elements if it is a framework's. `device` is None for the host. `after` is None, or a function to be called with the
stream once the work is enqueued, and only then. The pointer of a number is the number; it has no shape and no strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..dlpack import exchange_api

if TYPE_CHECKING:
    import numpy as np

    from ..._native.abi import DType
    from ..._pipeline import Bound, Request
    from ..._typing import Stream
    from ..dtypes import ElementDType

T = TypeVar("T")
Extents = tuple[int, ...]
After = Callable[[int], None]
Geometry = tuple[Extents, Extents, "ElementDType"]  # shape, strides, dtype
# What a plan sees of an input: an array's geometry, a Python number's type, a NumPy scalar's DType, None for None.
Signature = Any  # Geometry | type | DType | None, which type checkers cannot narrow by position
Reading = tuple[int, Extents, Extents, "ElementDType", "int | None", "After | None"]
NumberReading = tuple["float | None", None, None, "type | DType | None", Any, None]  # on the device ANYWHERE

ANYWHERE = object()

# How the extension reads an array: as in array_view.h.
BY_EXCHANGE_API, BY_CUPY, BY_DEVICE_ARRAY, BY_NUMBA, BY_NUMPY = range(5)


# A function that makes an array, its arguments (None: the call's first array) and its options.
Maker = tuple[Callable[..., object], "tuple[object, ...] | None", "dict[str, object] | None"]


class Interceptor(Protocol):
    """Makes and plans the calls that a framework must see."""

    def by_operator(self, request: Request, outs: tuple[object, ...], stream: Stream | None, /) -> Any: ...
    def bind_plan(self, request: Request, outs: tuple[object, ...], /) -> Bound: ...
    def by_cached_operator(
        self, request: Request, inputs: tuple[object, ...], numbers: dict[str, int], /
    ) -> tuple[Any, tuple[Any, ...] | bool | None]:
        """The result of a call without outputs and stream, and the call of an operator that it is, for calls.c."""

    def require_alike(self, arrays: Sequence[object], /) -> None:
        """Raises if arrays of permute_many differ, each of which becomes a call of its own."""


class ProgramCache(Protocol):
    """The extension _program_cache, as adapters use it."""

    def add_type(
        self, array_type: type, way: int, exchange_api: int, is_watched: bool, attribute: object, /
    ) -> object: ...
    def add_constant(self, constant_type: type, /) -> object: ...
    def watch(self, watchers: tuple[object, ...], /, *gates: object) -> object: ...


class Adapter(Generic[T]):
    """How an operand is read: an array, a number or None."""

    def interceptor_of(self, x: T, operator: str | None) -> Interceptor | None:
        """What makes the call, if a framework must see a call on x. `operator` is that of the call if x is its first
        array, else None."""
        return None

    def read(self, x: T, name: str, stream: int) -> Reading | NumberReading:
        """The reading of parameter `name`, for work on `stream` (a handle)."""
        raise NotImplementedError


class ArrayAdapter(Adapter[T]):
    """How arrays of a type are read and made."""

    follows_current_stream = True  # stream_of() is the stream that the caller has made current in that framework

    def read(self, x: T, name: str, stream: int) -> Reading:
        raise NotImplementedError

    def read_out(self, x: T, name: str, stream: int) -> Reading:
        """read() of an array that will be written; ValueError if it is read-only."""
        return self.read(x, name, stream)

    def empty(self, x: T, shape: Extents, dtype: Any, device: int | None, stream: int) -> tuple[T, int]:
        """(A new C-contiguous array of x's framework, its pointer). Its memory is allocated on `stream`, and freed in
        the order of that stream."""
        raise NotImplementedError

    def copy_of(self, x: T, values: np.ndarray) -> T | None:
        """An array of the framework with these values where x is; None if any other array does."""
        return None

    def transposed(self, array: Any, axes: Extents) -> Any:
        """A view of an array that empty() made, with its dimensions in the order `axes`."""
        return array.transpose(axes)

    def result(self, x: T, array: T) -> object:
        """The array for the caller, of an array that empty() made."""
        return array

    def stream_of(self, x: T) -> int:
        """The handle of the stream for work on x if the caller names none."""
        raise NotImplementedError

    def default_dtype(self) -> ElementDType:
        """The framework's default dtype, on which results of its own promotion depend."""
        raise NotImplementedError

    def register_type(self, array_type: type, cache: ProgramCache) -> None:
        """Tells the fast path how to read arrays of this type, if it can."""
        api = exchange_api(array_type) if self.follows_current_stream else None
        if api is not None:
            cache.add_type(array_type, BY_EXCHANGE_API, api, False, None)

    def maker(self, x: T, shape: Extents, strides: Extents, dtype: Any) -> Maker | None:
        """The framework's function for a new array like x, for the fast path; `strides` are in elements. None if there
        is no such function."""
        return None


AnyAdapter = ArrayAdapter[Any]
