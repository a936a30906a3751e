# SPDX-License-Identifier: Apache-2.0
"""Bad arguments of pyflowk.jax are named while tracing; pyflowk's plain functions refuse tracers, and take arrays."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_arrays import ON_GPU, assert_close, assert_same, flowk_jax, jax, jnp
from source_tree import ROOT

import pyflowk
from pyflowk._jax import handlers
from pyflowk._native.abi import SoftmaxMask
from pyflowk._operators.cross_entropy_arguments import checked_options
from pyflowk._operators.softmax_arguments import MEMBERS

X = jnp.ones((2, 3))

# Each is called as it is and under jit: error, text, call of x.
BAD: dict[str, tuple[type[Exception], str, Callable[[Any], Any]]] = {
    "axes twice": (ValueError, r"axes\[1\] = 0", lambda x: flowk_jax.permute(x, (0, 0))),
    "axes too few": (ValueError, "axes has 1 entry, x has 2 dimensions", lambda x: flowk_jax.permute(x, (0,))),
    "axes of floats": (TypeError, "axes is .*, must be integers", lambda x: flowk_jax.permute(x, (0.0, 1.0))),
    "transposed row": (ValueError, "x has 1 dimension, must have >= 2", lambda x: flowk_jax.batch_transpose(x[0])),
    "no array": (TypeError, "x is 'text', must be an array", lambda x: flowk_jax.permute("text", ())),
    "a list": (TypeError, r"y is \[1\], must be an array of JAX or NumPy, or", lambda x: flowk_jax.add(x, [1])),
    "scale of nan": (ValueError, "scale = nan, must be finite", lambda x: flowk_jax.permute(x, (0, 1), scale=np.nan)),
    "traced scale": (TypeError, "scale is", lambda x: flowk_jax.softmax(x) + flowk_jax.masked_softmax(x, scale=x)),
    "dtype": (TypeError, "dtype = 'float33'", lambda x: flowk_jax.cast(x, "float33")),
    "complex converted": (
        TypeError, "x has dtype complex64", lambda x: flowk_jax.permute(x * 1j, (1, 0), dtype="float32")
    ),
    "complex": (TypeError, "x has dtype complex64", lambda x: flowk_jax.add(x + 1j, 1)),
    "shapes": (ValueError, r"do not broadcast to one: x of \(2, 3\), y of \(2,\)", lambda x: flowk_jax.add(x, x[:, 0])),
    "bits of floats": (TypeError, "bitwise_and takes bool and integers", lambda x: flowk_jax.bitwise_and(x, 1)),
    "approximate": (ValueError, "approximate = 'erf'", lambda x: flowk_jax.gelu(x, "erf")),
    "clip": (TypeError, "min is None and max is None: pass one or both", lambda x: flowk_jax.clip(x)),
    "alpha's shape": (ValueError, r"alpha has shape \(2,\)", lambda x: flowk_jax.prelu(x, x[:, 0])),
    "alpha's type": (
        TypeError, "alpha has dtype float16, must be float32", lambda x: flowk_jax.prelu(x, x[0].astype("float16"))
    ),
    "prelu of integers": (TypeError, "x has dtype int32", lambda x: flowk_jax.prelu(x.astype("int32"), x[0])),
    "channel_axis": (ValueError, "channel_axis = 2", lambda x: flowk_jax.prelu(x, x[0], 2)),
    "dy's shape": (ValueError, r"dy has shape \(3,\)", lambda x: flowk_jax.prelu_backward(x[0], x, x[0])),
    "softmax of a number": (ValueError, "x has no dimensions", lambda x: flowk_jax.softmax(x[0, 0])),
    "softmax of integers": (TypeError, "x has dtype int32", lambda x: flowk_jax.softmax(x.astype("int32"))),
    "mask's shape": (ValueError, r"mask has shape \(2, 2\)", lambda x: flowk_jax.masked_softmax(x, x[:, :2] > 0)),
    "mask's type": (TypeError, "mask has dtype float32", lambda x: flowk_jax.masked_softmax(x, x)),
    "lengths": (TypeError, "lengths has dtype float32", lambda x: flowk_jax.masked_softmax(x, lengths=x[:, 0])),
    "lengths' shape": (
        ValueError, "lengths has shape", lambda x: flowk_jax.masked_softmax(x, lengths=x[0].astype("int32"))
    ),
    "bias's type": (TypeError, "bias has dtype int32", lambda x: flowk_jax.masked_softmax(x, bias=x.astype("int32"))),
    "softmax's dtype": (TypeError, "dtype = int32|dtype = 'int32'", lambda x: flowk_jax.softmax(x, dtype="int32")),
    "softmax's scale": (ValueError, r"\|scale\| <= 2\*\*126", lambda x: flowk_jax.masked_softmax(x, scale=1e39)),
    "window": (ValueError, "window = 0", lambda x: flowk_jax.masked_softmax(x, window=0)),
    "rank": (
        ValueError, "x has 33 dimensions, must have <= 32", lambda x: flowk_jax.relu(x.reshape(x.shape + (1,) * 31))
    ),
    "rank of y": (ValueError, "y has 33 dim", lambda x: flowk_jax.add(x, x.reshape(x.shape + (1,) * 31))),
    "rank of a permute": (
        ValueError, "x has 33 dim", lambda x: flowk_jax.permute(x.reshape(x.shape + (1,) * 31), range(33))
    ),
    "rank of a softmax": (ValueError, "x has 33 dim", lambda x: flowk_jax.softmax(x.reshape((1,) * 31 + x.shape))),
    "rank of a mask": (
        ValueError, "mask has 33 dim", lambda x: flowk_jax.masked_softmax(x, (x > 0).reshape((1,) * 31 + x.shape))
    ),
    "rank of a prelu": (
        ValueError, "x has 33 dim", lambda x: flowk_jax.prelu(x.reshape(x.shape + (1,) * 31), x[0, :1])
    ),
    "a number too large": (
        OverflowError, r"y: Python integer 300 out of bounds for uint8, must be in 0 \.\.\. 255",
        lambda x: flowk_jax.add(x.astype("uint8"), 300),
    ),
    "a bound of clip too large": (
        OverflowError, r"max: Python integer 300 out of bounds for int8, must be in -128 \.\.\. 127",
        lambda x: flowk_jax.clip(x.astype("int8"), -1, 300),
    ),
    "a bound of clip too small": (
        OverflowError, "min: Python integer -1 out of bounds for uint8",
        lambda x: flowk_jax.clip(x.astype("uint8"), -1, 1),
    ),
    "a factor of scale too large": (
        OverflowError, "a: Python integer 128 out of bounds for int8", lambda x: flowk_jax.scale(x.astype("int8"), 128)
    ),
    "an offset of scale too large": (
        OverflowError, "b: Python integer 32768 out of bounds for int16",
        lambda x: flowk_jax.scale(x.astype("int16"), 2, 32768),
    ),
    "a factor of add_multiply too large": (
        OverflowError, "a: Python integer 1000 out of bounds for int8",
        lambda x: flowk_jax.add_multiply(*[x.astype("int8")] * 3, 1000),
    ),
    "y's type": (
        TypeError, "y has dtype float16", lambda x: flowk_jax.masked_softmax_backward(x, x.astype("float16"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named(name: str) -> None:
    error, text, call = BAD[name]
    for run in (call, jax.jit(call), jax.vmap(call)):
        x = jnp.stack([X, X]) if run is not call and not hasattr(run, "lower") else X
        with pytest.raises(error, match=text):
            run(x)


def test_a_rank_that_vmap_makes_too_large_is_an_error_while_tracing() -> None:
    for function in (flowk_jax.relu, lambda x: flowk_jax.permute(x, range(32)), flowk_jax.softmax):
        call = jax.vmap(function)
        with pytest.raises(ValueError, match=r"flowk_.*: an array has 33 dimensions under vmap, must have <= 32"):
            jax.eval_shape(call, jax.ShapeDtypeStruct((1,) * 33, jnp.float32))


@pytest.mark.parametrize("name", ["jax_debug_nans", "jax_debug_infs"])
def test_a_nan_or_an_infinity_is_found_where_it_is_made(name: str) -> None:
    """As for jnp's functions, which raise the same error."""
    word, bad = ("nan", -1.0) if name == "jax_debug_nans" else ("inf", 0.0)
    jax.config.update(name, True)
    try:
        for x in (jnp.asarray([1.0, bad]), np.array([1, bad], np.float32)):
            for call in (flowk_jax.log, jax.jit(flowk_jax.log), jax.jit(lambda x: 2 * flowk_jax.log(x))):
                with pytest.raises(FloatingPointError, match=rf"invalid value \({word}\) encountered in flowk_unary"):
                    call(x)
        assert_close(flowk_jax.log(jnp.ones(3)), np.zeros(3, np.float32))
        assert_same(flowk_jax.add(np.ones(3, np.int32), 1), np.full(3, 2, np.int32))
        dx, dalpha = flowk_jax.prelu_backward(X, X, jnp.ones(1))
        assert_close(dx, X)
        assert_close(dalpha, np.zeros(1, np.float32))
    finally:
        jax.config.update(name, False)


def test_numbers_that_are_part_of_the_program_are_not_traced() -> None:
    for call in (flowk_jax.leaky_relu, flowk_jax.elu, lambda x, a: flowk_jax.add_multiply(x, x, x, a)):
        with pytest.raises(TypeError, match="is traced, must be known when the function is compiled"):
            jax.jit(call)(X, 0.5)
    assert_close(jax.jit(flowk_jax.scale)(X, 2.0, 3.0), np.full((2, 3), 5, np.float32))
    assert_close(jax.jit(flowk_jax.clamp)(X, 2.0, 3.0), np.full((2, 3), 2, np.float32))


def mask_words(**members: int) -> Any:
    return np.frombuffer(bytes(SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask), **members)), np.int64)


def test_handlers_compare_the_shapes_that_xla_does_not() -> None:
    """Calls that no function of pyflowk.jax makes."""
    three, four = jax.ShapeDtypeStruct((2, 3), jnp.float32), jax.ShapeDtypeStruct((2, 4), jnp.float32)
    half = jax.ShapeDtypeStruct((2, 3), jnp.float16)
    numbers = {"op": np.int64(1), "a": np.float64(0), "b": np.float64(0)}
    softmax = {"mask": mask_words(), "scale": np.float64(1), "log": np.int64(0)}
    alpha, rows, targets = jnp.ones(2), jax.ShapeDtypeStruct((2,), jnp.float32), jnp.zeros(2, jnp.int32)
    options = {"options": np.frombuffer(bytes(checked_options().struct()), np.int64)}
    bad: list[tuple[str, str, Any, tuple[Any, ...], dict[str, Any]]] = [
        ("binary", "x has 3 elements along dimension 1", four, (X, X), numbers),
        ("binary", "y has 1 dimension, must have 2", three, (X, X[0]), numbers),
        ("binary", "1 argument and 1 result, must", three, (X,), numbers),
        ("unary", "no attribute op", three, (X,), {}),
        ("unary", "attribute op has XLA's type", three, (X,), {**numbers, "op": np.int32(1)}),
        ("unary", "op = 1000", three, (X,), {**numbers, "op": np.int64(1000)}),
        ("unary", "has XLA's type", three, (X.astype("int4"),), numbers),
        (
            "permute",
            "out has 2 elements along dimension 0, must have 3",
            three,
            (X,),
            {"axes": np.array([1, 0], np.int32)},
        ),
        ("permute", r"axes\[1\] = 2", three, (X,), {"axes": np.array([0, 2], np.int32)}),
        ("permute", "attribute axes has 1 entry", three, (X,), {"axes": np.array([0], np.int32)}),
        ("permute", "out is of another type", half, (X,), {"axes": np.array([0, 1], np.int32)}),
        ("prelu", "alpha must have one dimension of 3", three, (X, alpha), {"axis": np.int64(1)}),
        ("prelu", "axis = 2", three, (X, alpha), {"axis": np.int64(2)}),
        ("prelu_backward", "dy has 4 elements", three, (jnp.ones((2, 4)), X, alpha), {"axis": np.int64(0)}),
        ("masked_softmax", "out has 4 elements", four, (X,), softmax),
        ("masked_softmax", "mask must be of bool", three, (X, X), {**softmax, "mask": mask_words(dense=1)}),
        ("masked_softmax", "attribute mask has 22 entries", three, (X,), {**softmax, "mask": mask_words()[1:]}),
        ("masked_softmax", "2 arguments", three, (X, X), softmax),
        (
            "masked_softmax",
            "sinks must be of float32, or of float64 if the rows are",
            three,
            (X, X[0, :1].astype("float16")),
            {**softmax, "mask": mask_words(sinks=1)},
        ),
        ("masked_softmax_backward", "y has 1 dimension, must", three, (X, X[0]), softmax),
        (
            "masked_softmax_backward_dbias",
            "dbias must not broadcast over the row",
            (three, jax.ShapeDtypeStruct((1, 1), jnp.float32)),
            (X, X),
            softmax,
        ),
        ("masked_softmax_backward_dbias", "2 arguments and 1 result", (three,), (X, X), softmax),
        ("masked_softmax_backward_dbias", "y is of another type", (three, three), (X, X.astype("float16")), softmax),
        (
            "softmax_merge",
            "lse2 has 3 elements along dimension 0, must have 2",
            (three, rows),
            (X, X[:, 0], X, X[0]),
            {},
        ),
        ("softmax_merge", "y2 is of another type", (three, rows), (X, X[:, 0], X.astype("float16"), X[:, 0]), {}),
        ("softmax_merge", "y1 has no dimensions", (three, rows), (X[0, 0], X[:, 0], X, X[:, 0]), {}),
        ("cross_entropy", "entropy has 2 dimensions, must have 1", (rows, rows, three), (X, targets), options),
        ("cross_entropy", "lse must be of float32", (rows, targets), (X, targets), options),
        (
            "cross_entropy_backward",
            "d has 3 elements along dimension 0, must have 2",
            three,
            (jnp.ones((3, 2)), X, targets, X[:, 0]),
            options,
        ),
    ]
    for name, text, result, operands, attributes in bad:
        with pytest.raises(Exception, match=f"flowk_{name}: .*{text}"):
            jax.block_until_ready(jax.ffi.ffi_call(f"flowk_{name}", result)(*operands, **attributes))


def test_handlers_have_room_for_the_arrays_of_every_call() -> None:
    text = (ROOT / "pyflowk" / "_jax" / "ffi_frame.h").read_text()
    room = {name: int(number) for name, number in re.findall(r"(max_\w+) = (\d+)", text)}
    assert room["max_arguments"] >= 2 + len({*MEMBERS} - {"lse"})  # dy and y of a softmax's gradient
    assert room["max_results"] >= 3  # of a cross-entropy


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad], ids=["jit", "vmap", "grad"])
def test_plain_functions_refuse_tracers(transform: Any) -> None:
    for function in (
        pyflowk.relu,
        lambda x: pyflowk.add(x, 2),
        lambda x: pyflowk.add(np.ones(3, np.float32), x),
        lambda x: pyflowk.permute(x, (0,)),
        lambda x: pyflowk.prelu(x, x),
        pyflowk.softmax,
        lambda x: pyflowk.permute(np.ones(3), (0,), out=x),
    ):
        with pytest.raises(TypeError, match=r"traced by JAX.*pyflowk\.jax"):
            transform(function)(X[0] if transform is not jax.vmap else X)


@pytest.mark.skipif(ON_GPU, reason="of host arrays")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "int8"])
def test_plain_functions_take_and_give_jax_arrays_on_the_host(dtype: str) -> None:
    x = jnp.asarray([[-1, 0, 2], [3, -4, 5]], dtype)
    for ours, expected in (
        (pyflowk.relu(x), jnp.maximum(x.astype("float32"), 0).astype(dtype)),
        (pyflowk.permute(x, (1, 0)), x.T),
        (pyflowk.cast(x, "bfloat16"), x.astype("bfloat16")),
    ):
        assert isinstance(ours, jax.Array)
        assert_same(ours, expected)


@pytest.mark.skipif(ON_GPU, reason="about the CPU's library")
def test_a_missing_library_is_an_error_when_a_program_runs(tmp_path: Path) -> None:
    code = (
        "import numpy as np, pyflowk.jax as f\n"
        "try: f.relu(np.ones(3)).block_until_ready()\n"
        "except Exception as error: print(error)"
    )
    (tmp_path / handlers.FILE_NAME).symlink_to(handlers.path())
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "FLOWK_LIBRARY": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "flowk_unary: no library for this platform: libflowk_simt.so.1 is not found" in result.stdout, result.stderr
