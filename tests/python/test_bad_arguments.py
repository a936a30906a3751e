# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types and values: the exception names the parameter and what it must be, and no array changes."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
from bad_arguments import ROWS, Arrays, Bad

import pyflowk
from pyflowk import DType
from pyflowk._native import abi, errors

ALLOWED = (TypeError, ValueError, OverflowError, MemoryError, pyflowk.FlowkError)


@pytest.mark.parametrize("bad", [bad for _, bad in ROWS], ids=[name for name, _ in ROWS])
def test_a_bad_argument_is_named_and_nothing_is_written(arrays: Any, bad: Bad) -> None:
    mine = Arrays(arrays)
    for _ in range(2):  # a second time too: what a call remembers must not change the answer
        with pytest.raises(ALLOWED) as caught:
            bad.call(mine)
        assert isinstance(caught.value, bad.error)
        text = bad.text if arrays.device is None or not bad.on_gpu else bad.on_gpu
        assert re.match(text, str(caught.value), re.DOTALL), caught.value
    mine.check_unchanged()


def test_every_function_that_python_calls_says_its_parameters_names() -> None:
    explained = {name.removesuffix("_explain") for name in abi.FUNCTIONS if name.endswith("_explain")}
    assert {*errors._PYTHON_NAMES, *errors._ELEMENTWISE} == explained - {"flowk_batch_transpose"}


def test_the_library_s_text_gets_the_names_of_the_operands_in_python(arrays: Any) -> None:
    memory, out = arrays.put(np.zeros(64, np.uint8)), arrays.put(np.zeros((2, 2), np.float32))
    x, odd = arrays.put(np.zeros((2, 2), np.float32)), arrays.view(memory, 1, (2, 2), (8, 4), np.float32)
    for name, call in (
        ("weight", lambda: pyflowk.lerp(x, x, odd, out=out)),
        ("y", lambda: pyflowk.where(arrays.put(np.ones((2, 2), bool)), x, odd, out=out)),
        ("dy", lambda: pyflowk.gelu_backward(odd, x, out=out)),
        ("max", lambda: pyflowk.clamp(x, None, odd, out=out)),
        ("x", lambda: pyflowk.permute(odd, (1, 0), out=out)),
        ("dy", lambda: pyflowk.masked_softmax_backward(odd, x, out=out)),
        ("bias", lambda: pyflowk.masked_softmax(x, bias=odd, out=out)),
        ("out", lambda: pyflowk.softmax(x, out=odd)),
        ("out", lambda: pyflowk.prelu(x, arrays.put(np.ones(1, np.float32)), out=odd)),
    ):
        with pytest.raises(pyflowk.FlowkValueError, match=rf"^{name} = 0x\w+, must be a multiple of 4") as caught:
            call()
        assert caught.value.status == pyflowk.Status.MISALIGNED_POINTER
        assert caught.value.args == (caught.value.status, caught.value.message)
    assert (arrays.fetch(out) == 0).all()
    assert (arrays.fetch(memory) == 0).all()


def test_a_typo_in_a_dtype_needs_no_ml_dtypes(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    x = arrays.put(np.ones(3, np.float32))
    for typo in ("typo16", "bfloat61", "float8"):
        with pytest.raises(TypeError, match=f"dtype = '{typo}', must name one of bool, .*bfloat16"):
            pyflowk.cast(x, typo)
        with pytest.raises(TypeError, match=f"dtype = '{typo}', must be a type of NumPy or ml_dtypes"):
            pyflowk.empty(3, typo)


def test_numbers_that_equal_an_allowed_argument_are_refused_after_it_too(arrays: Any) -> None:
    x, alpha = arrays.put(np.ones((3, 4), np.float32)), arrays.put(np.ones(4, np.float32))
    for good, bad, call in (
        (DType.INT8, 2, lambda value: pyflowk.cast(x, value)),
        (DType.BOOL, True, lambda value: pyflowk.cast(x, value)),
        (DType.FLOAT16, 10.0, lambda value: pyflowk.permute(x, (1, 0), dtype=value)),
        (1, 1.0, lambda value: pyflowk.prelu(x, alpha, value)),
        ((1, 0), (1.0, 0), lambda value: pyflowk.permute(x, value)),
        (2, 2.0, lambda value: pyflowk.masked_softmax(x, window=value)),
    ):
        for _ in range(2):
            call(good)
            with pytest.raises(TypeError):
                call(bad)
    expected = arrays.fetch(pyflowk.permute(x, (1, 0)))
    for axes in ([1, 0], np.array([1, 0]), (np.int64(1), np.uint8(0)), iter((1, 0))):
        np.testing.assert_array_equal(arrays.fetch(pyflowk.permute(x, axes)), expected)


def test_a_backward_call_without_one_gradient_is_explained(arrays: Any) -> None:
    x, alpha = arrays.put(np.ones((3, 4), np.float32)), arrays.put(np.ones(4, np.float32))
    for needs in ({"need_dx": False}, {"need_dalpha": False}, {"need_dx": np.bool_(True)}):
        text = pyflowk.explain(pyflowk.prelu_backward, x, x, alpha, **needs)
        assert text.startswith("by_")
    wide = arrays.put(np.ones((64, 32, 20, 20), np.float32)), arrays.put(np.ones(32, np.float32))
    text = pyflowk.explain(pyflowk.prelu_backward, wide[0], *wide)
    by_cluster = "" if arrays.device is None else "|dalpha by the same kernel"  # on GPUs with clusters
    sums_alpha = re.compile("reduce_partials" + by_cluster)
    assert sums_alpha.search(text)
    assert not sums_alpha.search(pyflowk.explain(pyflowk.prelu_backward, wide[0], *wide, need_dalpha=False))
    text = pyflowk.explain(pyflowk.prelu_backward, x, x, alpha, need_dx=False, need_dalpha=False)
    assert text == "nothing to do: no gradient is needed\n"
