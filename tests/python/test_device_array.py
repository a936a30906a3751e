# SPDX-License-Identifier: Apache-2.0
"""DeviceArray, and the arrays of other frameworks on a GPU: each framework's tests run if it is installed."""

from __future__ import annotations

import copy
import gc
import pickle
import re

import numpy as np
import pytest

import pyflowk
from pyflowk._native import driver as _driver

gpu = pytest.mark.gpu
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_without_a_gpu_a_device_array_says_so() -> None:
    if _driver.device_count():
        pytest.skip("there is a GPU")
    with pytest.raises(pyflowk.FlowkError, match=f"^this needs a GPU: {re.escape(_driver.why_no_gpu())} ") as caught:
        pyflowk.empty((2, 3), np.float32)
    assert caught.value.status == pyflowk.Status.NO_DEVICE


def test_a_device_array_is_not_pickled_with_its_address() -> None:
    owner = np.arange(4, dtype=np.float32)
    array = pyflowk.DeviceArray(owner, owner.ctypes.data, (4,), (4,), np.dtype(np.float32), 0, 1)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(array)


@gpu
def test_a_copy_of_a_device_array_has_memory_of_its_own() -> None:
    array = pyflowk.asarray(MATRIX)
    for copied in (copy.copy(array), copy.deepcopy(array), array.copy()):
        assert copied.ptr != array.ptr
        np.testing.assert_array_equal(copied.to_numpy(), MATRIX)


def test_empty_checks_shape_and_dtype() -> None:
    with pytest.raises(ValueError, match=r"shape = \(2, -1\), each extent must be >= 0"):
        pyflowk.empty((2, -1), np.float32)
    with pytest.raises(TypeError, match="of 3 bytes"):
        pyflowk.empty((2,), "S3")


@gpu
def test_an_array_larger_than_the_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match=f"DeviceArray of {2**42} bytes does not fit: .* bytes are free"):
        pyflowk.empty(2**42, np.uint8)


@gpu
def test_a_device_array_round_trips() -> None:
    for host in (MATRIX, np.float16(3), np.zeros((0, 4)), MATRIX.T, MATRIX[::-1]):
        array = pyflowk.asarray(host)
        assert (array.shape, array.dtype) == (np.shape(host), host.dtype)
        assert array.nbytes == host.nbytes
        np.testing.assert_array_equal(array.to_numpy(), host)
    array = pyflowk.asarray(MATRIX)
    np.testing.assert_array_equal(array._view(44, (3, 4), (-16, -4), np.float32).to_numpy(), MATRIX[::-1, ::-1])


@gpu
def test_a_device_array_is_freed_when_nothing_holds_it() -> None:
    for _ in range(200):  # 200 GiB in all
        pyflowk.empty(2**30, np.uint8)


@gpu
def test_a_device_array_exports_cuda_array_interface() -> None:
    interface = pyflowk.asarray(MATRIX).__cuda_array_interface__
    assert (interface["version"], interface["shape"], interface["typestr"]) == (3, (3, 4), "<f4")
    assert interface["stream"] == 1


@gpu
@pytest.mark.parametrize("module", ["torch", "cupy"])
def test_a_device_array_goes_to_a_framework_and_back(module: str) -> None:
    framework = pytest.importorskip(module)
    array = pyflowk.asarray(MATRIX)
    theirs = framework.from_dlpack(array)
    del array
    gc.collect()
    result = pyflowk.permute(theirs, (1, 0))
    assert type(result) is type(theirs)
    fetched = result.cpu().numpy() if module == "torch" else result.get()
    np.testing.assert_array_equal(fetched, MATRIX.T)


@gpu
def test_host_and_device_arrays_are_not_mixed() -> None:
    device_array = pyflowk.asarray(MATRIX)
    with pytest.raises(TypeError, match="x is a host array and out is on device 0"):
        pyflowk.permute(MATRIX, (1, 0), out=pyflowk.empty((4, 3), np.float32))
    with pytest.raises(TypeError, match="x is on device 0 and out is a host array"):
        pyflowk.permute(device_array, (1, 0), out=np.empty((4, 3), np.float32))


@gpu
def test_torch_tensors_of_every_form_are_read_where_they_are() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(4 * 6 * 8, device="cuda").reshape(4, 6, 8)
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.complex128):
        for x in (base, base[:, ::2], base[1:3, :, 3], base.T if base.ndim == 2 else base.mT, base.expand(3, 4, 6, 8)):
            typed = x.to(dtype)
            axes = tuple(range(typed.ndim))[::-1]
            result = pyflowk.permute(typed, axes)
            assert result.is_contiguous()
            assert torch.equal(result, typed.permute(axes))
            out = torch.empty_like(result)
            assert pyflowk.permute(typed, axes, out=out, stream=torch.cuda.current_stream()) is out
            assert torch.equal(out, result)
    with pytest.raises(ValueError, match="lazily negated or conjugated"):
        pyflowk.permute(base.to(torch.complex64).conj(), (0, 1, 2))


@gpu
def test_torch_s_current_stream_is_used() -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(2048, 2048, device="cuda")
        torch.cuda._sleep(50_000_000)
        x += torch.arange(2048, device="cuda")
        result = pyflowk.permute(x, (1, 0))
    stream.synchronize()
    assert torch.equal(result, x.T)


@gpu
def test_a_captured_graph_replays() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.zeros(64, 65, device="cuda"), torch.empty(65, 64, device="cuda")
    pyflowk.permute(x, (1, 0), out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pyflowk.permute(x, (1, 0), out=out)
    x.copy_(torch.arange(64 * 65, device="cuda").reshape(64, 65))
    graph.replay()
    assert torch.equal(out, x.T)


@gpu
def test_work_on_another_stream_waits_for_a_device_array_and_it_for_the_work() -> None:
    cupy = pytest.importorskip("cupy")
    host = np.arange(2048 * 2048, dtype=np.float32).reshape(2048, 2048)
    stream = cupy.cuda.Stream(non_blocking=True)
    x, out = pyflowk.asarray(host), pyflowk.empty((2048, 2048), np.float32)
    pyflowk.permute(x, (1, 0), out=out, stream=stream)
    np.testing.assert_array_equal(out.to_numpy(), host.T)


@gpu
def test_jax_arrays_give_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(MATRIX)
    if x.devices().pop().platform != "gpu":
        pytest.skip("JAX has no GPU here")
    result = pyflowk.permute(x, (1, 0))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(np.asarray(result), MATRIX.T)
    with pytest.raises(ValueError, match="out is a JAX array, which is read-only"):
        pyflowk.permute(x, (1, 0), out=result)


@gpu
def test_elementwise_functions_take_the_arrays_of_frameworks() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4)
    for result, expected in (
        (pyflowk.add(x, x[0]), x + x[0]),
        (pyflowk.multiply(x.T, 2.5), x.T * 2.5),
        (pyflowk.divide(x, 3), x / 3),
        (pyflowk.less(x, 5), x < 5),
        (pyflowk.cast(x, torch.bfloat16), x.to(torch.bfloat16)),
        (pyflowk.add(x.to(torch.int32), x), x + x),
        (pyflowk.sqrt(x.to(torch.int32)), x.to(torch.int32).sqrt()),
    ):
        assert type(result) is torch.Tensor
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected)
    jax = pytest.importorskip("jax")
    y = jax.numpy.asarray(MATRIX)
    if y.devices().pop().platform == "gpu":
        total = pyflowk.add(y.astype("int32"), 1)
        assert isinstance(total, jax.Array)
        np.testing.assert_array_equal(np.asarray(total), MATRIX.astype(np.int32) + 1)


@gpu
def test_a_number_of_a_captured_call_is_in_the_graph() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.ones(100, device="cuda"), torch.empty(100, device="cuda")
    pyflowk.divide(x, 2.0, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pyflowk.divide(x, 3.0, out=out)
    x.fill_(6)
    graph.replay()
    assert torch.equal(out, torch.full_like(out, 2))


@gpu
def test_numba_arrays_give_numba_arrays() -> None:
    cuda = pytest.importorskip("numba.cuda")
    x = cuda.to_device(MATRIX)
    result = pyflowk.permute(x, (1, 0))
    assert type(result) is type(x)
    np.testing.assert_array_equal(result.copy_to_host(), MATRIX.T)


@gpu
def test_arrays_on_different_devices_are_refused() -> None:
    if _driver.device_count() < 2:
        pytest.skip("one GPU only")
    x, out = pyflowk.asarray(MATRIX, device=0), pyflowk.empty((4, 3), np.float32, device=1)
    with pytest.raises(ValueError, match="x is on device 0 and out is on device 1, must be on the same device"):
        pyflowk.permute(x, (1, 0), out=out)
    second = pyflowk.asarray(MATRIX, device=1)
    np.testing.assert_array_equal(pyflowk.permute(second, (1, 0)).to_numpy(), MATRIX.T)
    assert _driver.current_device() in (None, 0)
