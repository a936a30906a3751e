# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions against NumPy: every row, every type, every conversion, drawn calls, explain."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import (
    BOOL,
    CALLS,
    DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    Call,
    converted,
    numpy_type,
    reference,
    rounded,
    tolerance,
    values_for,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from library_under_test import MARGIN_BYTES, THREAD_ORDERS
from permute_cases import Layout, layout

import pyflowk
from pyflowk._arrays.dtypes import number_type
from pyflowk._elementwise.promotion import common_type
from pyflowk._elementwise.resolution import resolve
from pyflowk._native.abi import DType
from pyflowk._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp

# NumPy warns of the values that these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# Every elementwise function, by its name.
FUNCTIONS = {
    name: getattr(pyflowk, name) for name, module in pyflowk._MODULE_OF.items() if module == "_elementwise.functions"
}
CANARY = 0xA5
CODES = tuple(number_type(dtype, "x") for dtype in DTYPES)


def resolution_of(call: Call, operands: list[Any]) -> tuple[Call, np.dtype, np.dtype]:
    """(The row that is computed, the type that it is computed in, the type of the result) for these arrays."""
    kinds = tuple(number_type(operand.dtype, "x") for operand in operands)
    op, needed, result = resolve(call.op, kinds, tuple(map(type, call.parameters)))
    compute = common_type(needed[1:] if op == TernaryOp.WHERE else needed)
    return call._replace(op=op), numpy_type(compute), numpy_type(result)


def check(call: Call, operands: list[np.ndarray], actual: np.ndarray) -> None:
    """`actual` is what the function gave for `operands`, of the shape that they broadcast to."""
    row, compute, result = resolution_of(call, operands)
    if actual.dtype not in FLOAT_DTYPES:
        assert actual.dtype == result
    lead = 1 if row.op == TernaryOp.WHERE else 0
    typed = [converted(o, BOOL) for o in operands[:lead]] + [
        o
        if o.dtype in FLOAT_DTYPES and compute in FLOAT_DTYPES and np.float64 not in (o.dtype, compute)
        else converted(o, compute)
        for o in operands[lead:]
    ]
    exact = typed[0] if row.op == UnaryOp.COPY else reference(row, typed, compute)
    if actual.dtype not in FLOAT_DTYPES:
        np.testing.assert_array_equal(actual, exact)
        return
    exact = np.asarray(exact if np.asarray(exact).dtype == np.longdouble else np.asarray(exact, np.float64))
    wide = [o.astype(np.float64) for o in typed]
    compare(actual, exact, tolerance(row, exact, wide, compute, actual.dtype))


def compare(actual: np.ndarray, exact: np.ndarray, allowed: np.ndarray) -> None:
    """NaN where NaN, infinities as they are, else within `allowed`."""
    expected = rounded(exact, actual.dtype)
    got, want = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        close = (np.abs(got - exact) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))
        # At the edge of a type's range a result within the bound may already be infinite, or not yet.
        edge = np.abs(exact) + allowed >= float(ml_dtypes.finfo(actual.dtype).max)
        close |= edge & np.isinf(got) & (np.sign(got) == np.sign(exact))
    if not close.all():
        index = tuple(np.argwhere(~close)[0])
        raise AssertionError(
            f"{np.count_nonzero(~close)} of {close.size} are wrong, the first at {index}: {got[index]!r}, "
            f"exact {exact[index]!r} +- {allowed[index]!r}"
        )


# ---- every row, every type ------------------------------------------------------------------------------------------


def accepted_types(call: Call) -> list[np.dtype]:
    accepted = []
    for code in CODES:
        try:
            kinds = (DType.BOOL, code, code) if call.op == TernaryOp.WHERE else (code,) * call.num_operands
            resolve(call.op, kinds)
            accepted.append(numpy_type(code))
        except TypeError:
            continue
    return accepted


EVERY_CALL = CALLS


@pytest.mark.parametrize("call", EVERY_CALL, ids=lambda call: call.id)
def test_every_row_is_right_in_every_type(arrays: Any, thread_order: str, call: Call) -> None:
    rng = np.random.default_rng(5)
    for dtype in accepted_types(call):
        dtypes = [dtype] * call.num_operands
        if call.op == TernaryOp.WHERE:
            dtypes[0] = BOOL
        operands = [values_for(call, i, (5, 67), d, rng) for i, d in enumerate(dtypes)]
        result = call(*map(arrays.put, operands))
        _, _, expected = resolution_of(call, operands)
        assert result.dtype == expected
        check(call, operands, arrays.fetch(result))


def test_every_row_and_every_function_is_called() -> None:
    assert {call.op for call in EVERY_CALL} | {UnaryOp.COPY} == set(OPERATIONS)
    assert {call.function for call in EVERY_CALL} | {"cast", "positive"} == set(FUNCTIONS)


def test_every_function_documents_its_formula_and_parameters() -> None:
    for name, function in FUNCTIONS.items():
        signature = inspect.signature(function)
        assert function.__name__ == name
        assert function.__doc__.startswith("``out = ")
        for parameter in signature.parameters:
            assert parameter in function.__doc__
        assert signature.parameters["stream"].kind == inspect.Parameter.KEYWORD_ONLY
        assert max(map(len, function.__doc__.splitlines())) <= 120


# ---- special values -------------------------------------------------------------------------------------------------


def special_values(dtype: np.dtype) -> np.ndarray:
    info = ml_dtypes.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.0, 3.0, float(info.max), -float(info.max), float(info.tiny)]
    numbers += [float(info.smallest_subnormal), -float(info.smallest_subnormal), float(info.tiny) / 2]
    numbers += [np.inf, -np.inf] if dtype.name != "float8_e4m3fn" else []
    return np.array([*numbers, np.nan]).astype(dtype)


_KEEPS_SIGN = {UnaryOp.ABS, UnaryOp.NEGATIVE, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC}
# Operations of several steps: intermediate results may overflow or vanish if the formula's value does not.
_IN_STEPS = {
    *(BinaryOp.GELU_BACKWARD, BinaryOp.GELU_TANH_BACKWARD, BinaryOp.SILU_BACKWARD, BinaryOp.SILU_MUL),
    *(BinaryOp.SIGMOID_BACKWARD, BinaryOp.TANH_BACKWARD, TernaryOp.ELU_BACKWARD),
    *(TernaryOp.LERP, TernaryOp.ADD_MULTIPLY),
}


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@pytest.mark.parametrize("call", [c for c in CALLS if "F" in OPERATIONS[c.op].takes], ids=lambda call: call.id)
def test_special_values_give_what_the_header_says(arrays: Any, call: Call, dtype: np.dtype) -> None:
    values = special_values(dtype)
    if call.op in _IN_STEPS:
        info, wide = ml_dtypes.finfo(dtype), np.abs(values.astype(np.float64))
        values = values[~((wide > float(info.max) / 8) & (wide < np.inf)) & ~((wide > 0) & (wide <= float(info.tiny)))]
    operands = [grid.ravel() for grid in np.meshgrid(*[values] * call.num_operands)]
    if call.op == TernaryOp.WHERE:
        operands[0] = operands[0].astype(np.float32) > 0
    if call.function.endswith("_backward"):  # an infinite gradient times a slope of 0 or next to it
        gradient, x = (operand.astype(np.float64) for operand in operands[:2])
        operands = [operand[~(np.isinf(gradient) & (x == -np.inf))] for operand in operands]
    actual = arrays.fetch(call(*map(arrays.put, operands)))
    check(call, operands, actual)
    if call.op in _KEEPS_SIGN:
        exact, number = reference(call, operands, dtype), ~np.isnan(values.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(actual.astype(np.float64))[number], np.signbit(exact)[number])


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
@pytest.mark.parametrize(
    "call",
    [c for c in EVERY_CALL if "I" in OPERATIONS[c.op].takes],
    ids=lambda call: call.id,
)
def test_integers_wrap_and_divide_at_their_bounds(arrays: Any, call: Call, dtype: np.dtype) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7]).astype(dtype)
    if info.min < 0:
        values = np.append(values, np.array([-1, -7], dtype))
    operands = [grid.ravel() for grid in np.meshgrid(*[values] * call.num_operands)]
    if call.op == TernaryOp.WHERE:
        operands[0] = operands[0] > 0
    check(call, operands, arrays.fetch(call(*map(arrays.put, operands))))


# ---- shapes and strides ---------------------------------------------------------------------------------------------


def in_memory(arrays: Any, where: Layout, values: np.ndarray, lead_bytes: int = 0) -> tuple[Any, np.ndarray, Any]:
    """(the array on the device, the bytes around it on the host, how to view those) of `values` laid out as `where`."""
    num_bytes = values.dtype.itemsize
    memory = np.full(2 * MARGIN_BYTES + lead_bytes + where.size * num_bytes, CANARY, np.uint8)
    offset = MARGIN_BYTES + lead_bytes + where.first * num_bytes
    strides = tuple(stride * num_bytes for stride in where.strides)
    np.ndarray(values.shape, values.dtype, memory, offset, strides)[...] = values
    device = arrays.put(memory)
    return arrays.view(device, offset, values.shape, strides, values.dtype), memory, (device, offset, strides)


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...], repeatable: bool) -> Layout:
    dimensions = range(len(shape))
    some = st.sets(st.sampled_from(dimensions)) if shape else st.just(set())
    stepped = draw(st.sets(st.sampled_from(dimensions), max_size=2)) if shape else set()
    return layout(
        shape,
        order=draw(st.one_of(st.just(dimensions), st.permutations(dimensions))),
        steps=[2 if d in stepped else 1 for d in dimensions],
        pads=draw(st.lists(st.integers(0, 2), min_size=len(shape), max_size=len(shape)))
        if draw(st.booleans())
        else None,
        backward=draw(some),
        repeated=draw(some) if repeatable and draw(st.booleans()) else (),
    )


@st.composite
def broadcast_shapes(draw: st.DrawFn, count: int) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """A shape, and `count` that broadcast to it."""
    rank = draw(st.integers(0, 5))
    shape: list[int] = []
    room = 4000
    for _ in range(rank):
        extent = draw(st.integers(0 if draw(st.integers(0, 30)) == 0 else 1, max(1, min(room, 90))))
        shape.append(extent)
        room //= max(extent, 1)
    shape = list(draw(st.permutations(shape)))
    operands = []
    for _ in range(count):
        ones = draw(st.sets(st.sampled_from(range(rank)))) if rank and draw(st.booleans()) else set()
        lead = draw(st.integers(0, rank)) if draw(st.integers(0, 3)) == 0 else 0
        operands.append(tuple(1 if d in ones else extent for d, extent in enumerate(shape))[lead:])
    return tuple(shape), operands


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@settings(unhurried, max_examples=500)
@given(data=st.data(), order=st.sampled_from(THREAD_ORDERS))
def test_any_call_is_right(arrays: Any, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, order: str) -> None:
    monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", order)
    call = data.draw(st.sampled_from(EVERY_CALL))
    accepted = accepted_types(call)
    dtypes = [data.draw(st.sampled_from(accepted)) for _ in range(call.num_operands)]
    if not data.draw(st.booleans()):  # mostly one type: the kernels' own ways, without a conversion
        dtypes = [dtypes[0]] * call.num_operands
    if call.op == TernaryOp.WHERE:
        dtypes[0] = BOOL
    common = common_type([number_type(dtype, "x") for dtype in dtypes[call.op == TernaryOp.WHERE :]])
    assume(numpy_type(common) in accepted)  # int64 with uint64 comes to float64
    shape, shapes = data.draw(broadcast_shapes(call.num_operands))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    hosts, operands, memories = [], [], []
    for index, (own, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        where = data.draw(layouts(own, repeatable=True))
        values = values_for(call, index, own, dtype, rng)
        for dimension, stride in enumerate(where.strides):
            if stride == 0:  # all indices show one element
                values = np.broadcast_to(np.take(values, [0], dimension), own) if own[dimension] else values
        lead = data.draw(st.integers(0, 16)) * dtype.itemsize
        array, memory, view = in_memory(arrays, where, values, lead)
        hosts.append(values)
        operands.append(array)
        memories.append((memory, view[0]))
    _, _, result_type = resolution_of(call, hosts)
    if data.draw(st.booleans()):
        actual = arrays.fetch(call(*operands))
        assert actual.dtype == result_type
        assert actual.shape == np.broadcast_shapes(*shapes)
        check(call, [np.broadcast_to(host, actual.shape) for host in hosts], actual)
    else:
        narrow = [d for d in FLOAT_DTYPES if d != np.float64]
        is_free = result_type in narrow and OPERATIONS[call.op].result == "SAME"
        out_type = data.draw(st.sampled_from(narrow)) if is_free else result_type
        where = data.draw(layouts(shape, repeatable=False))
        lead = data.draw(st.integers(0, 16)) * out_type.itemsize
        out, memory, (device, offset, strides) = in_memory(arrays, where, np.zeros(shape, out_type), lead)
        assert call(*operands, out=out) is out
        after = arrays.fetch(device)
        actual = np.ndarray(shape, out_type, after, offset, strides).copy()
        check(call, [np.broadcast_to(host, shape) for host in hosts], actual)
        np.ndarray(shape, out_type, after, offset, strides)[...] = np.zeros(shape, out_type)
        np.testing.assert_array_equal(after, memory)
    for memory, device in memories:
        np.testing.assert_array_equal(arrays.fetch(device), memory)


# ---- explain --------------------------------------------------------------------------------------------------------


def test_every_function_can_be_explained(arrays: Any) -> None:
    x = arrays.put(np.ones((4, 5), np.float32))
    condition = arrays.put(np.ones((4, 5), bool))
    whole = arrays.put(np.ones((4, 5), np.int32))
    for call in EVERY_CALL:
        operands = [x] * call.num_operands
        if "F" not in OPERATIONS[call.op].takes:
            operands = [whole] * call.num_operands
        if call.op == TernaryOp.WHERE:
            operands[0] = condition
        for op in (call.function, getattr(pyflowk, call.function)):
            assert pyflowk.explain(op, *operands, *call.arguments)
    assert pyflowk.explain(pyflowk.cast, x, np.float16)
    np.testing.assert_array_equal(arrays.fetch(x), 1)


def test_explain_says_what_is_converted_first(arrays: Any) -> None:
    x, y = arrays.put(np.ones((4, 5), np.int32)), arrays.put(np.ones((4, 5), np.float32))
    lines = pyflowk.explain(pyflowk.add, x, y).splitlines()
    assert lines[0] == "x is converted to float64 first:"
    assert "y is converted to float64 first:" in lines
    assert "converted" not in pyflowk.explain(pyflowk.add, y, y)
    assert "converted" not in pyflowk.explain(pyflowk.add, y, arrays.put(np.ones(5, np.float16)))
