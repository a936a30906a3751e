# SPDX-License-Identifier: Apache-2.0
"""Where results and temporaries are allocated and when they are dropped: a CuPy made up over host memory, whose arrays
know the stream that was current when they were made; and PyTorch's pools on a GPU."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._native import driver, library

DEVICE = 97  # that no machine has: operations remember the C function of a device
CURRENT, OTHER = 11, 22
MATRIX = np.arange(1, 25, dtype=np.float32).reshape(4, 6) / 8
INTEGERS = MATRIX.astype(np.int32)
ALPHA = np.linspace(0.1, 0.6, 6, dtype=np.float32)


class FakeCupy(ModuleType):
    """cupy, as far as pyflowk uses it."""

    def __init__(self) -> None:
        super().__init__("cupy")
        made: list[Any] = []
        streams = [CURRENT]

        class ndarray:
            __module__ = "cupy"

            def __init__(self, shape: Any, dtype: Any, array: np.ndarray | None = None) -> None:
                self.array = np.empty(shape, dtype) if array is None else array
                self.data = SimpleNamespace(ptr=self.array.ctypes.data, device_id=DEVICE)
                self.shape, self.strides, self.dtype = self.array.shape, self.array.strides, self.array.dtype
                self.device = contextlib.nullcontext()
                made.append((weakref.ref(self), streams[-1]))

            def transpose(self, axes: Any) -> Any:
                view = ndarray(None, None, self.array.transpose(axes))
                made.pop()
                return view

        @contextlib.contextmanager
        def external_stream(handle: int, device: int = -1) -> Iterator[None]:
            assert device == DEVICE
            streams.append(handle)
            yield
            streams.pop()

        self.made, self.ndarray = made, ndarray
        self.cuda = SimpleNamespace(
            ExternalStream=external_stream,
            Device=lambda device: contextlib.nullcontext(),
            get_current_stream=lambda: SimpleNamespace(ptr=streams[-1]),
        )

    def asarray(self, array: np.ndarray) -> Any:
        x = self.ndarray(None, None, array)
        self.made.pop()
        return x


CUPY = FakeCupy()  # one, because the types of arrays that are known stay known


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch, host_library: None) -> FakeCupy:
    host = library.for_device(None, "x")
    monkeypatch.setattr(library, "for_device", lambda device, name: host)
    monkeypatch.setitem(sys.modules, "cupy", CUPY)
    return CUPY


# Calls by what they allocate, and their arrays.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a result": (lambda x, **options: pyflowk.multiply(x, 2.0, **options), (MATRIX,)),
    "a permuted result": (lambda x, **options: pyflowk.permute(x, (1, 0), **options), (MATRIX,)),
    "a conversion that becomes the result": (lambda x, **options: pyflowk.add(x, 1.5, **options), (INTEGERS,)),
    "a conversion": (lambda x, **options: pyflowk.less(x, 1.5, **options), (INTEGERS,)),
    "copies of strided arrays": (pyflowk.prelu, (MATRIX[:, ::-1], ALPHA)),
    "two results and a workspace": (pyflowk.prelu_backward, (MATRIX, MATRIX, ALPHA)),
    "many results": (lambda *xs, **options: pyflowk.permute_many(xs, (1, 0), **options), (MATRIX, MATRIX)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("stream", [None, CURRENT, OTHER, 1])
def test_memory_is_allocated_on_the_stream_of_the_call(name: str, stream: int | None, cupy: FakeCupy) -> None:
    function, arrays = CALLS[name]
    given = [cupy.asarray(array) for array in arrays]
    options = {} if stream is None else {"stream": stream}
    for _ in range(4):  # the later ones through C, if that takes the call
        cupy.made.clear()
        result = function(*given, **options)
        assert {each for _, each in cupy.made} == {CURRENT if stream is None else 0 if stream == 1 else stream}
        del result


@pytest.mark.parametrize("name", CALLS)
def test_nothing_but_the_results_stays(name: str, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "current", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(driver, "is_capturing", lambda stream: False)
    monkeypatch.setattr(driver, "create_event", lambda: 1)
    monkeypatch.setattr(driver, "record_event", lambda event, stream: None)
    monkeypatch.setattr(driver, "event_is_done", lambda event: False)
    function, arrays = CALLS[name]
    given = [cupy.asarray(array) for array in arrays]
    for _ in range(4):
        cupy.made.clear()
        result = function(*given)
        results = result if isinstance(result, (list, tuple)) else [result]
        gc.collect()
        assert sum(array() is not None for array, _ in cupy.made) <= len(results)
        kept = [weakref.ref(one) for one in results]
        del result, results
        gc.collect()
        assert [one() for one in kept] == [None] * len(kept)


# ---- PyTorch --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["multiply", "add", "permute", "prelu", "prelu_backward"])
def test_a_result_is_not_written_into_memory_that_the_current_stream_still_reads(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU for torch")
    extents = (512, 1024)
    x, alpha = torch.ones(extents, device="cuda"), torch.full((1,), 0.5, device="cuda")
    integers = torch.ones(extents, dtype=torch.int32, device="cuda")
    calls: dict[str, Callable[[Any], Any]] = {
        "multiply": lambda stream: pyflowk.multiply(x, 2.0, stream=stream),
        "add": lambda stream: pyflowk.add(integers, 1.5, stream=stream),
        "permute": lambda stream: pyflowk.permute(x, (1, 0), stream=stream),
        "prelu": lambda stream: pyflowk.prelu(x.T[::2], alpha, stream=stream),
        "prelu_backward": lambda stream: pyflowk.prelu_backward(x, x, alpha, stream=stream),
    }
    stream = torch.cuda.Stream()
    for _ in range(4):  # the later ones through C, if that takes the call
        calls[name](stream.cuda_stream)  # loads the kernels
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        read, copy = torch.zeros(extents, device="cuda"), torch.empty(extents, device="cuda")
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        copy.copy_(read)
        del read  # the current stream's work that follows may have its memory, and no other's
        result = calls[name](stream.cuda_stream)
        stream.synchronize()
        torch.cuda.synchronize()
        assert torch.count_nonzero(copy).item() == 0
        del result, copy
