# SPDX-License-Identifier: Apache-2.0
"""torch.Tensor and its subclasses, on the host or a GPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .._arrays import frameworks
from .._arrays.adapters.base import BY_EXCHANGE_API, ArrayAdapter, Extents, Interceptor, Maker, ProgramCache, Reading
from .._arrays.dlpack import exchange_api
from .._arrays.stream import LEGACY_DEFAULT, is_same_stream
from .._native import driver
from . import gate, torch_promotion

# What the code of torch.compile calls, which takes a third of the time of torch.empty_strided.
_ALLOCATORS = {
    device: frameworks.attribute_of("torch._C", f"_dynamo.guards._empty_strided_{device}") for device in ("cpu", "cuda")
}


class TorchAdapter(ArrayAdapter[Tensor]):
    """torch.Tensor and torch.nn.Parameter."""

    @functools.cached_property
    def _has_one_device(self) -> bool:
        return driver.device_count() == 1  # get_device() would be a tenth of a read

    def interceptor_of(self, x: Tensor, operator: str | None) -> Interceptor | None:
        is_intercepted = operator is not None and gate.is_intercepted(operator)
        return interceptor() if is_intercepted or self._must_see(x) else None

    def _must_see(self, x: Tensor) -> bool:
        return x.requires_grad and torch.is_grad_enabled() and not gate.in_kernel.now

    def read(self, x: Tensor, name: str, stream: int) -> Reading:
        dtype = x.dtype
        if x.is_neg() or (dtype.is_complex and x.is_conj()):  # its memory holds other values than the tensor
            raise ValueError(f"{name} is a lazily negated or conjugated tensor: resolve_neg() and resolve_conj() first")
        try:
            if x.is_cuda:
                device = 0 if self._has_one_device else x.get_device()
                return x.data_ptr(), x.shape, x.stride(), dtype, device, None
            if x.is_cpu:
                return x.data_ptr(), x.shape, x.stride(), dtype, None, None
        except RuntimeError:
            gate.require_plain_memory(x, name)
            raise
        raise TypeError(f"{name} is a tensor on {x.device}, must be on the host or a CUDA device")

    def read_out(self, x: Tensor, name: str, stream: int) -> Reading:
        return (*self.read(x, name, stream)[:5], lambda stream: gate.mark_written(x))

    def empty(
        self, x: Tensor, shape: Extents, dtype: torch.dtype, device: int | None, stream: int
    ) -> tuple[Tensor, int]:
        if device is None or is_same_stream(stream, gate.current_raw_stream(device)):
            array = x.new_empty(shape, dtype=dtype)
        else:
            with _on_stream(stream, device):
                array = x.new_empty(shape, dtype=dtype)
        return array, array.data_ptr()

    def copy_of(self, x: Tensor, values: Any) -> Tensor:
        return torch.tensor(values.tolist(), dtype=torch.int64, device=x.device)

    def transposed(self, array: Tensor, axes: Extents) -> Tensor:
        return array.permute(axes).data  # without `data` autograd would take the result for a view of another tensor

    def stream_of(self, x: Tensor) -> int:
        return gate.current_raw_stream(0 if self._has_one_device else x.get_device()) if x.is_cuda else 0

    def default_dtype(self) -> torch.dtype:
        return torch.get_default_dtype()

    def register_type(self, array_type: type, cache: ProgramCache) -> None:
        api = exchange_api(array_type)
        if api is not None and gate.is_whole:
            cache.watch(gate.WATCHERS, *gate.GATES)
            cache.add_constant(torch.dtype)
            cache.add_type(array_type, BY_EXCHANGE_API, api, True, None)

    def maker(self, x: Tensor, shape: Extents, strides: Extents, dtype: torch.dtype) -> Maker:
        """Not the exchange API's allocator: the storage of its tensors cannot be resized, and record_stream() does
        nothing there."""
        allocate = _ALLOCATORS.get(x.device.type)
        if allocate is not None:  # on the current GPU, which is x's
            return allocate, (shape, strides, dtype), None
        return torch.empty_strided, (shape, strides), {"dtype": dtype, "device": x.device}


class TorchSubclassAdapter(TorchAdapter):
    """Any other subclass of torch.Tensor: FakeTensor, DTensor, a user's own."""

    def _must_see(self, x: Tensor) -> bool:
        return not gate.in_kernel.now

    def register_type(self, array_type: type, cache: ProgramCache) -> None:
        """They are not plain memory."""


def interceptor() -> Interceptor:
    """The interceptor of calls that torch must see. Its import registers the operators, which takes a while."""
    from . import interceptor

    return interceptor


def adapter_of(x: object, name: str) -> TorchAdapter | None:
    """The adapter of a tensor, None for PyTorch's other objects."""
    if not isinstance(x, Tensor):
        return None
    frameworks.trace_by(torch.compiler.is_dynamo_compiling)  # not in a trace, which has asked already
    return TorchAdapter() if gate.is_plain_type(type(x)) else TorchSubclassAdapter()


def allocate(num_bytes: int, device: int, stream: int) -> Tensor:
    """Memory from PyTorch's cache, for a DeviceArray."""
    with _on_stream(stream, device):
        return torch.empty(num_bytes, dtype=torch.uint8, device=f"cuda:{device}")


def _on_stream(stream: int, device: int) -> Any:
    """A block in which torch's allocations belong to `stream`: freed memory is used again in the stream's order."""
    handle = 0 if stream == LEGACY_DEFAULT else stream
    return torch.cuda.stream(torch.cuda.ExternalStream(handle, device=f"cuda:{device}"))


torch_promotion.register()
