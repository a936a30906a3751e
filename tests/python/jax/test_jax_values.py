# SPDX-License-Identifier: Apache-2.0
"""Values of pyflowk.jax: those of pyflowk bit for bit, and near those of jax.numpy."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from jax_arrays import DTYPES, FLOATS, INTEGERS, ON_GPU, assert_close, assert_same, flowk_jax, jax, jnp, values, x64
from jax_references import ELEMENTWISE, calls

import pyflowk

CALLS = calls()
# The public functions that pyflowk.jax lacks.
NOT_FOR_JAX = {
    **dict.fromkeys(("asarray", "empty", "zeros", "ones", "full", "empty_like", "from_dlpack"), "make DeviceArrays"),
    **dict.fromkeys(("device_count", "is_available", "synchronize"), "JAX has its own"),
    **dict.fromkeys(("explain", "prepare", "tune", "save_plans", "load_plans"), "are of calls on memory"),
    **dict.fromkeys(("get_include", "get_library"), "are of the C library"),
    "prelu_backward_workspace_bytes": "XLA allocates the workspace",
    "masked_softmax_backward_dbias_workspace_bytes": "XLA allocates the workspace",
    **dict.fromkeys(("cross_entropy_partials", "cross_entropy_merge"), "are of shards"),
}
OF_INTEGERS = {"abs", "negative", "square", "relu", "clip_numbers", "scale_numbers"}  # the others make floats of them
BITWISE = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift"}


def test_every_public_function_has_its_form_for_jax() -> None:
    functions = {name for name in pyflowk._MODULE_OF if inspect.isfunction(getattr(pyflowk, name))} - {*NOT_FOR_JAX}
    assert functions == set(flowk_jax.__all__) - {"CUSTOM_CALLS"}
    others = {"permute", "batch_transpose", "prelu", "prelu_backward"}
    others |= {"masked_softmax", "masked_softmax_backward", "softmax", "log_softmax", "softmax_merge"}
    others |= {"masked_softmax_backward_dbias"}
    others |= {"transpose", "swapaxes", "moveaxis", "permute_many", "positive"}
    others |= {"cross_entropy", "cross_entropy_backward"}
    assert functions == set(ELEMENTWISE) | others


def test_the_aliases_of_pyflowk_are_here() -> None:
    for alias, name in pyflowk._ALIASES.items():
        assert getattr(flowk_jax, alias) is getattr(flowk_jax, name)
    with pytest.raises(AttributeError, match="foo"):
        _ = flowk_jax.foo
    assert set(dir(flowk_jax)) == {*flowk_jax.__all__, *pyflowk._ALIASES}


def test_permutes_by_other_names_are_numpy_s() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for function in (jax.jit, lambda function: function):
        for ours, expected in (
            (lambda x: flowk_jax.transpose(x), x.T),
            (lambda x: flowk_jax.transpose(x, (1, 0, 2)), x.transpose(1, 0, 2)),
            (lambda x: flowk_jax.swapdims(x, 0, -1), x.swapaxes(0, 2)),
            (lambda x: flowk_jax.movedim(x, 0, 1), np.moveaxis(x, 0, 1)),
            (lambda x: flowk_jax.permute_many([x, x], (2, 0, 1))[1], x.transpose(2, 0, 1)),
            (lambda x: flowk_jax.positive(x), x),
        ):
            np.testing.assert_array_equal(function(ours)(x), expected)
    with pytest.raises(TypeError, match="x has dtype complex64"):
        flowk_jax.positive(jnp.ones(3, "complex64"))


def test_names_of_other_libraries_say_what_is_meant() -> None:
    for name, text in {
        "attn_mask": "True means masked out",
        "is_causal": "causal=True",
        "side": "lengths_from_r",
    }.items():
        with pytest.raises(TypeError, match=text):
            flowk_jax.masked_softmax(jnp.ones((2, 3)), **{name: None})


def test_a_traced_option_names_static_argnames() -> None:
    x = jnp.ones((2, 3, 4))
    for name, call in {
        "axes": lambda x, n: flowk_jax.permute(x, (n, 1, 0)),
        "causal": lambda x, n: flowk_jax.masked_softmax(x, causal=n),
        "channel_axis": lambda x, n: flowk_jax.prelu(x, x[0, :, 0], n),
        "approximate": lambda x, n: flowk_jax.gelu(x, n),
        "slope": lambda x, n: flowk_jax.leaky_relu(x, n),
    }.items():
        with pytest.raises(TypeError, match=f"{name} is traced, must be known .* static_argnames"):
            jax.jit(call)(x, 2)


def test_lengths_may_be_a_list_or_an_int() -> None:
    x = jnp.arange(24, dtype="float32").reshape(2, 3, 4)
    for given, as_array in (([2, 3], [2, 3]), (2, [2, 2])):
        expected = flowk_jax.masked_softmax(x, lengths=jnp.asarray(as_array))
        np.testing.assert_array_equal(flowk_jax.masked_softmax(x, lengths=given), expected)
        np.testing.assert_array_equal(jax.jit(lambda x, n=given: flowk_jax.masked_softmax(x, lengths=n))(x), expected)


def test_the_warning_of_x64_points_at_the_caller() -> None:
    for call in (
        lambda: flowk_jax.cast(np.ones(3, np.float32), "float64"),
        lambda: flowk_jax.permute(jnp.ones((2, 3)), (1, 0), dtype="float64"),
    ):
        with pytest.warns(UserWarning, match="jax_enable_x64") as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("name", sorted(set(flowk_jax.__all__) - {"CUSTOM_CALLS"}))
def test_parameters_are_those_of_pyflowk(name: str) -> None:
    plain = dict(inspect.signature(getattr(pyflowk, name)).parameters)
    absent = {"out", "stream", "dx_out", "dalpha_out", "dbias_out", "workspace"}
    absent |= {"loss_out", "lse_out", "entropy_out", "dsinks_out"}
    if name == "masked_softmax_backward":  # jax.grad has the gradient of the sinks
        absent |= {"sinks", "lse", "return_dsinks"}
    absent |= {"more", "axis", "dim"}  # other forms of what is there
    ours = inspect.signature(getattr(flowk_jax, name)).parameters
    assert [*ours] == [parameter for parameter in plain if parameter not in absent]
    for parameter, declared in ours.items():
        assert declared.kind == plain[parameter].kind
        assert declared.default == plain[parameter].default or (name, parameter) == ("cast", "dtype")
    assert getattr(flowk_jax, name).__doc__


def operands_for(name: str, count: int, dtype: str) -> list[np.ndarray]:
    operands = [values(dtype, seed=seed) for seed in range(count)]
    if name in ("sqrt", "rsqrt", "log", "pow"):
        operands[0] = np.abs(operands[0]) + np.ones((), operands[0].dtype)
    if name == "where":
        operands[0] = values("bool")
    if name in ("bitwise_left_shift", "bitwise_right_shift") or (name == "pow" and dtype in INTEGERS):
        operands[1] = np.abs(operands[1]) % operands[1].dtype.type(8)
    if name in ("clip", "divide", "trunc_divide", "floor_divide", "remainder"):
        operands[-1] = np.maximum(np.abs(operands[-1]), np.ones((), operands[-1].dtype)).astype(operands[-1].dtype)
    return operands


def takes(name: str, dtype: str) -> bool:
    """Whether the function takes this type and has the same result in pyflowk."""
    if dtype == "bool":
        return name in BITWISE - {"bitwise_left_shift", "bitwise_right_shift"} | {
            "maximum",
            "minimum",
            "equal",
            "less",
            "where",
            "logical_not",
            "add",
            "multiply",
        }
    if dtype[0] == "u" and name == "clip_numbers":  # with -1, which jax.numpy wraps around
        return False
    if dtype in INTEGERS:
        return name in OF_INTEGERS | BITWISE | {
            "pow",
            "sign",
            "floor_divide",
            "remainder",
            "logical_and",
            "add",
            "subtract",
            "multiply",
            "trunc_divide",
            "fma",
            "less",
            "equal",
            "where",
        }
    return name not in BITWISE | {"trunc_divide"}


@jax.jit
def references(given: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: CALLS[name][2](*operands) for name, operands in given.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_values_are_those_of_pyflowk_and_near_jax_numpy(dtype: str) -> None:
    """All functions in one program: one compilation per type."""
    plain = {
        "gelu_tanh": lambda x: pyflowk.gelu(x, "tanh"),
        "gelu_tanh_backward": lambda *a: pyflowk.gelu_backward(*a, "tanh"),
    }
    with x64():
        names = [name for name in CALLS if takes(name, dtype)]
        inputs = {name: [jnp.asarray(one) for one in operands_for(name, CALLS[name][0], dtype)] for name in names}
        ours = jax.jit(lambda given: {name: CALLS[name][1](*given[name]) for name in names})(inputs)
        wide = {name: [one if one.dtype == bool else one.astype("float64") for one in inputs[name]] for name in names}
        expected = references(wide if dtype in FLOATS else inputs)
        for name in names:
            function = plain.get(name) or getattr(pyflowk, name, None)
            if function is not None and not ON_GPU:
                assert_same(ours[name], function(*map(np.asarray, inputs[name])))
            rounded = np.asarray(expected[name]).astype(ours[name].dtype)
            assert_close(ours[name], rounded, tolerance_of(dtype, ours[name]))


def tolerance_of(dtype: str, ours: Any) -> float:
    """In float32 and float64 XLA's own error too, of which the gradients of gelu cancel digits."""
    if not jnp.issubdtype(ours.dtype, jnp.floating):
        return 0
    return float(jnp.finfo(ours.dtype).eps) * (2 if jnp.finfo(ours.dtype).bits <= 16 else 64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cast_and_permute_give_the_bits_of_pyflowk(dtype: str) -> None:
    with x64():
        host = values(dtype, (3, 5, 4))
        x = jnp.asarray(host)
        program = jax.jit(
            lambda x: (
                [flowk_jax.cast(x, other) for other in DTYPES],
                flowk_jax.permute(x, (2, 0, -2)),
                flowk_jax.batch_transpose(x),
            )
        )
        casts, permuted, transposed = program(x)
        assert_same(permuted, host.transpose(2, 0, 1))
        assert_same(transposed, host.swapaxes(1, 2))
        for other, ours in zip(DTYPES, casts):
            assert ours.dtype == jnp.dtype(other)
            if not ON_GPU:
                assert_same(ours, pyflowk.cast(host, other))
        if dtype in ("int64", "uint64"):
            return
        converted = [one for one in DTYPES if one not in ("int64", "uint64", dtype)]
        ours = jax.jit(lambda x: [flowk_jax.permute(x, (1, 0, 2), dtype=one, scale=0.5) for one in converted])(x)
        for other, one in zip(converted, ours):
            assert one.dtype == jnp.dtype(other)
            if not ON_GPU:
                assert_same(one, pyflowk.permute(host, (1, 0, 2), dtype=other, scale=0.5))


def test_permute_moves_complex_numbers_and_every_rank() -> None:
    with x64():
        for dtype in ("complex64", "complex128"):
            host = (values("float64", (2, 3)) + 1j * values("float64", (2, 3), 1)).astype(dtype)
            assert_same(flowk_jax.permute(host, (1, 0)), host.T)
    for rank in range(7):
        host = values("float32", tuple(range(2, 2 + rank)))
        axes = tuple(np.random.default_rng(rank).permutation(rank))
        assert_same(flowk_jax.permute(host, axes), host.transpose(axes))
        assert_same(flowk_jax.permute(host, axes, dtype="float16"), host.transpose(axes).astype(np.float16))


def test_arrays_without_elements_are_nothing_to_do() -> None:
    empty = jnp.zeros((3, 0, 2))
    assert flowk_jax.permute(empty, (2, 1, 0)).shape == (2, 0, 3)
    assert flowk_jax.add(empty, 1).shape == flowk_jax.softmax(empty).shape == (3, 0, 2)
    dx, dalpha = flowk_jax.prelu_backward(jnp.zeros((0, 4)), jnp.zeros((0, 4)), jnp.ones(4))
    assert dx.shape == (0, 4)
    assert_same(dalpha, np.zeros(4, np.float32))


def test_shapes_broadcast_as_in_numpy() -> None:
    rng = np.random.default_rng(3)
    for shapes in [((3, 1), (4,)), ((), (2, 3)), ((1, 1, 4), (3, 1)), ((2, 1, 3), (1, 5, 1)), ((1,), (1, 1))]:
        x, y = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
        assert_same(flowk_jax.add(x, y), x + y)
        assert_same(jax.jit(flowk_jax.multiply)(x, y), x * y)
        assert_same(flowk_jax.where(y > 0, x, 2.0), np.where(y > 0, x, np.float32(2)))


PROMOTED = ("bool", "int8", "int32", "uint8", "uint32", "float16", "bfloat16", "float32", "int64", "uint64", "float64")
UNARY_TYPES = ("sqrt", "floor", "abs", "negative", "square", "isnan", "logical_not", "exp")


@pytest.mark.parametrize("wide", [False, True])
def test_types_are_those_of_jax_numpy(wide: bool) -> None:
    """Of every pair of types, with Python numbers, NumPy's scalars and arrays that are weak."""

    def of(function: Any, *operands: Any) -> Any:
        try:
            result = jax.eval_shape(function, *operands)
        except (TypeError, ValueError):  # what jax.numpy refuses
            return None
        return result.dtype, result.weak_type and result.dtype != bool

    with x64(wide), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [jnp.ones(2, dtype) for dtype in PROMOTED]
        others = [*arrays, jnp.asarray(2), jnp.asarray(2.5), np.float32(2), np.int8(2)]
        for x in arrays:
            for y in others:
                for name in ("add", "divide", "less"):
                    expected = of(getattr(jnp, {"divide": "true_divide"}.get(name, name)), x, y)
                    if expected is not None:
                        assert of(getattr(flowk_jax, name), x, y) == expected, (name, x.dtype, y)
            for number in (True, 2, 2.5):
                expected = of(lambda x, number=number: jnp.add(x, number), x)
                assert of(lambda x, number=number: flowk_jax.add(x, number), x) == expected, (x.dtype, number)
            for name in UNARY_TYPES:
                expected = of(ELEMENTWISE[name][1], x)
                if expected is not None and not (name in ("negative", "square") and x.dtype == bool):
                    assert of(getattr(flowk_jax, name), x) == expected, (name, x.dtype)
        weak = jnp.asarray(1.5)
        assert flowk_jax.relu(weak).weak_type
        assert flowk_jax.add(flowk_jax.relu(weak), jnp.ones(2, "bfloat16")).dtype == "bfloat16"
        assert flowk_jax.cast(jnp.ones(2), "int32").dtype == "int32"


def test_asking_for_64_bits_warns_as_jax_does() -> None:
    with pytest.warns(UserWarning, match="float64"):
        assert flowk_jax.cast(jnp.ones(2), "float64").dtype == "float32"


def test_integers_of_64_bits_are_compared_exactly() -> None:
    with x64():
        x, y = jnp.asarray([-1, 2**62 + 1, 3]), jnp.asarray([2**64 - 1, 2**62, 3], dtype=jnp.uint64)
        assert_same(flowk_jax.less(x, y), np.array([True, False, False]))
        assert_same(flowk_jax.equal(x, y), np.array([False, False, True]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_compared_with_numbers_that_their_type_does_not_hold(dtype: str) -> None:
    """As NumPy compares them; jnp wraps the number around or raises OverflowError."""
    with x64(dtype.endswith("64")):
        info = np.iinfo(dtype)
        for x in (jnp.asarray([info.min, 0, info.max], dtype), np.array([info.min, 0, info.max], dtype)):
            for number in (int(info.max) + 1, int(info.min) - 1, 2**70, -(2**70)):
                for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
                    function, reference = getattr(flowk_jax, name), getattr(np, name)
                    assert_same(function(x, number), reference(np.asarray(x), number))
                    assert_same(function(number, x), reference(number, np.asarray(x)))
        assert_same(jax.jit(lambda x: flowk_jax.less(x, 2**70))(x), [True] * 3)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_numbers_alone_give_what_jax_numpy_gives(is_compiled: bool) -> None:
    cases: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (flowk_jax.add, jnp.add, (1, 2)),
        (flowk_jax.add, jnp.add, (1, 2.5)),
        (flowk_jax.sqrt, jnp.sqrt, (4,)),
        (flowk_jax.abs, jnp.abs, (-1.5,)),
        (flowk_jax.less, jnp.less, (1, True)),
        (flowk_jax.where, jnp.where, (True, 2, 3)),
        (flowk_jax.logical_and, jnp.logical_and, (True, False)),
    ]
    for ours, reference, numbers in cases:
        given = jax.jit(lambda f=ours, n=numbers: f(*n))() if is_compiled else ours(*numbers)
        expected = reference(*numbers)
        assert isinstance(given, jax.Array)
        assert given.weak_type == (expected.weak_type and given.dtype != bool)
        assert_same(given, expected)
    with pytest.raises(OverflowError, match="y: Python integer 1099511627776 out of bounds for int32"):
        flowk_jax.add(1, 2**40)


def test_zeros_of_both_signs_are_two_parameters() -> None:
    """In one program, and in calls on NumPy's arrays, which are compiled primitive by primitive."""
    x = np.array([1, -1], np.float32)
    for call in (
        lambda x, zero: flowk_jax.leaky_relu(x, zero),
        lambda x, zero: flowk_jax.elu(x, zero),
        lambda x, zero: flowk_jax.permute(x, (0,), scale=zero),
        lambda x, zero: flowk_jax.masked_softmax_backward(x, x * x, scale=zero),
        lambda x, zero: jax.jvp(lambda x: flowk_jax.masked_softmax(x, scale=zero), (x,), (x,))[1],
    ):
        both = jax.jit(lambda x, f=call: (f(x, 0.0), f(x, -0.0)))(x)
        for plus, minus in (both, (call(x, 0.0), call(x, -0.0))):
            assert np.signbit(plus).tolist() != np.signbit(minus).tolist()
