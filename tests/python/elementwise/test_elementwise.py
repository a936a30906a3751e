# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions against NumPy: every row, every type, every conversion, explain."""

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
