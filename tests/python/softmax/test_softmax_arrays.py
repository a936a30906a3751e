# SPDX-License-Identifier: Apache-2.0
"""The softmax functions of pyflowk: the arrays that they take and return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from softmax_calls import place, place_inputs, result_of
from softmax_cases import DTYPES, SoftmaxCase
from softmax_reference import Inputs, assert_within, backward_reference, inputs_of, softmax64, softmax_reference

import pyflowk

# ---- places ---------------------------------------------------------------------------------------------------------


def check_in_place(arrays: Any, case: SoftmaxCase) -> None:
    inputs = inputs_of(case)
    x = place(arrays, inputs.x, case.shape, case.dtype, lead=1)
    given = {"mask": inputs.mask, "lengths": inputs.lengths}
    masks = {name: arrays.put(values) for name, values in given.items() if values is not None}
    pyflowk.masked_softmax(x.array, **masks, scale=0.5, out=x.array)
    y = result_of(arrays, x)
    assert_within(y, softmax_reference(case, inputs))
    dy = np.random.default_rng(1).normal(0, 1, case.shape).astype(case.dtype)
    expected = backward_reference(case, np.ones(case.shape, bool), dy, y)
    for name, dy_lead in (("dy", 1), ("y", 0)):  # out and the other input aligned alike, and not
        given = {"dy": place(arrays, dy, case.shape, dy.dtype, dy_lead), "y": place(arrays, y, case.shape, y.dtype, 1)}
        out = given[name]
        pyflowk.masked_softmax_backward(given["dy"].array, given["y"].array, scale=0.5, out=out.array)
        assert_within(result_of(arrays, out), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [3, 32, 77, 1024, 3001])
def test_the_output_may_be_the_input(arrays: Any, thread_order: str, dtype: str, cols: int) -> None:
    check_in_place(arrays, SoftmaxCase((5, cols), dtype, "in place", mask=(5, cols), lengths=(5,), scale=0.5))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(1, 2**20), (2, 2**20 + 5)])
def test_the_output_of_a_few_long_rows_may_be_the_input(arrays: Any, dtype: str, shape: tuple[int, ...]) -> None:
    check_in_place(arrays, SoftmaxCase(shape, dtype, "in place", scale=0.5))


# In place, many rows have the same bits as elsewhere. Gradients that are too long for a cluster have not: elsewhere
# they are split rows.
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", [(40, 2**17 + 8), (28, 2**18 + 1), (14, 2**19 - 9), (14, 2**20 - 9)])
def test_the_output_of_many_long_rows_may_be_the_input(arrays: Any, dtype: str, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(1)
    x, dy = (draw.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))

    def check(call: Callable[..., Any], **inputs: np.ndarray) -> np.ndarray:
        def run(out_name: str | None) -> np.ndarray:
            given = {name: place(arrays, values, shape, dtype, lead=1) for name, values in inputs.items()}
            out = given[out_name] if out_name else place(arrays, None, shape, dtype, lead=1)
            call(**{name: one.array for name, one in given.items()}, scale=0.5, out=out.array)
            return result_of(arrays, out)

        expected = run(None)
        for name in inputs:
            assert run(name).tobytes() == expected.tobytes(), f"other bits with {name} as the output"
        return expected

    y = check(pyflowk.masked_softmax, x=x)
    if x[0].nbytes <= 2**21:
        check(pyflowk.masked_softmax_backward, dy=dy, y=y)


def test_views_of_any_strides_before_the_last_are_taken_as_they_are(arrays: Any, thread_order: str) -> None:
    # x is a transposed, reversed and padded view; the mask and lengths are views too.
    base = np.random.default_rng(3).normal(0, 2, (6, 4, 3, 50)).astype(np.float32)
    flags = np.random.default_rng(4).integers(0, 2, (8, 3, 100)).astype(np.uint8)
    counts = np.arange(0, 24, dtype=np.int64)
    memory, flags_memory, counts_memory = (
        arrays.put(array.reshape(-1).view(np.uint8)) for array in (base, flags, counts)
    )

    def both(memory: Any, host: np.ndarray, view: np.ndarray) -> tuple[Any, np.ndarray]:
        offset = view.__array_interface__["data"][0] - host.__array_interface__["data"][0]
        return arrays.view(memory, offset, view.shape, view.strides, view.dtype), view

    x, x_host = both(memory, base, base.transpose(1, 2, 0, 3)[::-1, :, ::2, 5:42])  # (4, 3, 3, 37)
    mask, mask_host = both(flags_memory, flags, flags[::2, None, :, 7:44])  # (4, 1, 3, 37)
    lengths, lengths_host = both(counts_memory, counts, counts[::-6][:, None, None])  # (4, 1, 1)
    out_memory = arrays.put(np.full((3, 4, 3, 40), 7, np.float32).reshape(-1).view(np.uint8))
    frame = np.empty((3, 4, 3, 40), np.float32)
    out, out_host = both(out_memory, frame, frame.transpose(1, 0, 2, 3)[:, ::-1, :, 2:39])
    pyflowk.masked_softmax(x, mask, lengths=lengths, out=out)

    frame[...] = 7
    case = SoftmaxCase(x_host.shape, "float32", "views", mask=mask_host.shape, lengths=lengths_host.shape)
    reference = softmax_reference(case, Inputs(x_host, mask_host, lengths_host, None))
    fetched = np.array(arrays.fetch(out_memory)).view(np.float32).reshape(frame.shape)
    written = fetched.transpose(1, 0, 2, 3)[:, ::-1, :, 2:39]
    assert_within(written, reference)
    out_host[...] = written
    np.testing.assert_array_equal(fetched, frame)


def test_x_may_repeat_rows(arrays: Any) -> None:
    row = np.random.default_rng(5).normal(0, 1, 20).astype(np.float32)
    x = arrays.view(arrays.put(row.view(np.uint8)), 0, (4, 20), (0, 4), np.float32)
    y = arrays.fetch(pyflowk.softmax(x))
    np.testing.assert_array_equal(y, np.broadcast_to(y[0], (4, 20)))
    np.testing.assert_allclose(y[0], softmax64(row.astype(np.float64)), rtol=1e-6)


def test_a_last_extent_of_1_may_have_any_stride(arrays: Any) -> None:
    memory = arrays.put(np.arange(12, dtype=np.float32).view(np.uint8))
    y = pyflowk.softmax(arrays.view(memory, 0, (3, 1), (16, 12), np.float32))
    np.testing.assert_array_equal(arrays.fetch(y), np.ones((3, 1)))


# ---- the Python function --------------------------------------------------------------------------------------------


def test_without_out_the_result_is_a_new_contiguous_array_of_xs_kind(arrays: Any) -> None:
    x = arrays.put(np.random.default_rng(1).normal(0, 1, (3, 4, 5)).astype(np.float32))
    y = pyflowk.masked_softmax(x)
    assert type(y) is type(x)
    assert (y.shape, y.strides, y.dtype) == ((3, 4, 5), (80, 20, 4), np.float32)
    dx = pyflowk.masked_softmax_backward(y, y)
    assert (type(dx), dx.shape, dx.dtype) == (type(x), (3, 4, 5), np.float32)


def test_dtype_names_that_of_a_new_out(arrays: Any) -> None:
    host = np.random.default_rng(1).normal(0, 1, (3, 50)).astype(np.float32)
    for dtype in ("float16", np.float16, np.dtype("bfloat16"), "bfloat16", "float32"):
        y = pyflowk.masked_softmax(arrays.put(host), dtype=dtype)
        assert y.dtype == np.dtype(dtype)
        expected = softmax64(host.astype(np.float64))
        np.testing.assert_allclose(arrays.fetch(y).astype(float), expected, rtol=1e-2)
    half = pyflowk.masked_softmax(arrays.put(host), dtype="float16")
    assert pyflowk.masked_softmax_backward(half, half, dtype="float32").dtype == np.float32
    assert pyflowk.log_softmax(arrays.put(host), dtype="float16").dtype == np.float16


def test_softmax_and_log_softmax_are_masked_softmax_without_a_mask(arrays: Any) -> None:
    x = arrays.put(np.random.default_rng(1).normal(0, 1, (3, 50)).astype(np.float32))
    for call, log in ((pyflowk.softmax, False), (pyflowk.log_softmax, True)):
        expected = arrays.fetch(pyflowk.masked_softmax(x, log=log))
        np.testing.assert_array_equal(arrays.fetch(call(x)), expected)
        out = arrays.put(np.zeros((3, 50), np.float32))
        assert call(x, out=out) is out
        np.testing.assert_array_equal(arrays.fetch(out), expected)


def test_numpy_numbers_are_accepted(arrays: Any) -> None:
    host = np.random.default_rng(1).normal(0, 1, (3, 50)).astype(np.float32)
    x = arrays.put(host)
    plain = pyflowk.masked_softmax(x, causal=True, causal_offset=-1, window=7, scale=0.5)
    numpys = pyflowk.masked_softmax(
        *(x,), causal=np.True_, causal_offset=np.int8(-1), window=np.int64(7), scale=np.float32(0.5), log=np.False_
    )
    np.testing.assert_array_equal(arrays.fetch(plain), arrays.fetch(numpys))
    whole = pyflowk.masked_softmax(x, scale=2)
    np.testing.assert_array_equal(arrays.fetch(whole), arrays.fetch(pyflowk.masked_softmax(x, scale=2.0)))


def test_the_same_call_gives_the_same_bits_from_several_threads_at_once(arrays: Any) -> None:
    host = np.random.default_rng(1).normal(0, 1, (4, 6, 100)).astype(np.float32)
    masks = [np.random.default_rng(seed).integers(0, 2, (4, 1, 100)).astype(bool) for seed in range(6)]
    x = arrays.put(host)
    expected = [np.array(arrays.fetch(pyflowk.masked_softmax(x, arrays.put(mask)))) for mask in masks]
    wrong: list[int] = []

    def call(number: int) -> None:
        mask = arrays.put(masks[number])
        for _ in range(20):
            if not np.array_equal(arrays.fetch(pyflowk.masked_softmax(x, mask)), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(masks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_explain_does_not_launch(arrays: Any) -> None:
    case = SoftmaxCase((2, 3, 4, 100), "float16", "explain", mask=(2, 1, 4, 100), lengths=(2,), bias=(100,))
    given = {name: one.array for name, one in place_inputs(arrays, case, inputs_of(case)).items()}
    assert ":" in pyflowk.explain("masked_softmax", **given, causal=True, dtype="float32")
    assert ":" in pyflowk.explain("masked_softmax_backward", given["x"], given["x"], lengths=given["lengths"])
    out = place(arrays, None, case.shape, "float16")
    assert ":" in pyflowk.explain("masked_softmax", **given, out=out.array)
    np.testing.assert_array_equal(arrays.fetch(out.memory), out.before)


# ---- PyTorch --------------------------------------------------------------------------------------------------------


def torch_and_device(arrays: Any) -> tuple[Any, str]:
    return pytest.importorskip("torch"), "cpu" if arrays.device is None else "cuda"


def test_tensors_give_tensors_of_the_dtype_that_is_asked_for(arrays: Any) -> None:
    torch, device = torch_and_device(arrays)
    x = torch.randn(2, 3, 50, device=device)
    expected = torch.softmax(x, dim=-1)
    for dtype in (None, torch.float32, torch.float16, "bfloat16", np.float16):
        y = pyflowk.softmax(x, dtype=dtype)
        assert y.dtype == {None: torch.float32, "bfloat16": torch.bfloat16, np.float16: torch.float16}.get(dtype, dtype)
        assert y.device == x.device
        torch.testing.assert_close(y.float(), expected, rtol=1e-2, atol=1e-5)
    with pytest.raises(TypeError, match="dtype = 'float17', must name one of float16"):
        pyflowk.softmax(x, dtype="float17")


def test_tensors_and_their_views_are_operands(arrays: Any) -> None:
    torch, device = torch_and_device(arrays)
    x = torch.randn(4, 2, 6, 50, device=device).transpose(0, 1)[:, 1:, ::2, 3:40]
    mask = (torch.rand(6, 50, device=device) < 0.3)[::2, 3:40]
    lengths = torch.tensor([20, 37], device=device)
    bias = torch.randn(3, 37, device=device).expand(2, 3, 3, 37)
    y = pyflowk.masked_softmax(x, mask, lengths=lengths, bias=bias, scale=0.5)
    dropped = mask | (torch.arange(37, device=device) >= lengths[:, None, None, None])
    expected = torch.softmax((x * 0.5 + bias).masked_fill(dropped, -torch.inf), dim=-1).nan_to_num(0)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [77, 1000, 4096, 65536, 2**18, 2**20])
def test_a_captured_graph_replays(cols: int) -> None:
    torch = pytest.importorskip("torch")
    x, y, dx = torch.zeros(3, 8, cols, device="cuda"), *torch.empty(2, 3, 8, cols, device="cuda")
    mask = torch.rand(8, cols, device="cuda") < 0.5

    def calls() -> None:
        pyflowk.masked_softmax(x, mask, scale=0.5, causal=True, out=y)
        pyflowk.masked_softmax_backward(x, y, scale=0.5, causal=True, out=dx)

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    x.normal_()
    y.fill_(torch.nan)
    graph.replay()
    replayed = y.clone(), dx.clone()
    calls()
    assert torch.equal(replayed[0], y)
    assert torch.equal(replayed[1], dx)
