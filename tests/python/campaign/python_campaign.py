# SPDX-License-Identifier: Apache-2.0
"""Random calls of pyflowk's functions: types in any mix, numbers, lists, broadcasting, any strides, out or none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
from campaign_case import Arena, Outputs, Tensor
from campaign_shapes import any_strides, chance, generator, separate_strides, shape, shares_its_own_memory, tensor
from elementwise_cases import BOOL, DTYPES, Call, numpy_type, values_for
from elementwise_cases import converted as cast_values
from permute_campaign import ALL_DTYPES, SCALES, assert_same
from permute_convert_cases import CONVERTIBLE, converted, dtype_of
from permute_convert_cases import values_of as values_of_type
from prelu_campaign import values_of
from prelu_cases import DTYPES as PRELU_DTYPES
from prelu_cases import dalpha_bound, data_of
from softmax_campaign import MIDDLE, SHORT, bias_of, dense_of, lengths_of, options_of, reference_of, types_of, x_of
from softmax_reference import Inputs, assert_within, backward_reference, unmasked
from test_elementwise import EVERY_CALL, check, resolution_of

import pyflowk
from pyflowk._arrays.dtypes import number_type
from pyflowk._elementwise.promotion import FLOATS, common_type
from pyflowk._elementwise.resolution import takes_out
from pyflowk._native.operations import BinaryOp, TernaryOp, UnaryOp

NUMBERS = (0, 1, 2, 3, 0.5, 1.5, 0.25)  # exact in every float type
CAST = Call("cast", UnaryOp.COPY)
Results = tuple[Any, ...]


def run_python(
    r: random.Random,
    arrays: Any,
    tensors: dict[str, Tensor],
    outs: tuple[str, ...],
    call: Callable[[dict[str, Any]], Results],
    verify: Callable[[Outputs, list[np.ndarray]], None],
) -> None:
    """`call` gets the arrays by name and returns its results; a result with a tensor in `outs` is that array.
    No byte outside those changes."""
    for one in tensors.values():  # NumPy has no arrays with such strides
        one.strides = tuple(stride if extent != 1 else 1 for stride, extent in zip(one.strides, one.shape))
    arena = Arena(arrays, list(tensors.values()), generator(r))
    before = {name: np.array(one.view(arena.bytes)) for name, one in tensors.items()}
    views = {}
    for name, one in tensors.items():
        strides = tuple(stride * one.dtype.itemsize for stride in one.strides)
        views[name] = arrays.view(arena.memory, 0 if one.is_empty else one.offset, one.shape, strides, one.dtype)
    results = call(views)
    after = arena.fetch()
    actual = []
    for name, result in zip(outs, results):
        if name in tensors:
            assert result is views[name]
            actual.append(np.array(tensors[name].view(after)))
        else:
            actual.append(None if result is None else np.array(arrays.fetch(result)))
    for name in outs:
        if name in tensors:
            tensors[name].view(after)[...] = before[name]
    assert np.array_equal(after, arena.bytes), "bytes outside the outputs changed"
    verify(before, actual)


# ---- elementwise ----------------------------------------------------------------------------------------------------


def _part_of(r: random.Random, extents: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to this one."""
    if chance(r, 50):
        return extents
    part = tuple(1 if chance(r, 30) else extent for extent in extents)
    return part[r.randrange(len(part) + 1) :] if chance(r, 30) else part


def check_elementwise(r: random.Random, arrays: Any) -> None:
    call = r.choice((*EVERY_CALL, CAST, CAST))
    count = call.num_operands
    dtypes = [r.choice(DTYPES) for _ in range(count)]
    if chance(r, 60):
        dtypes = [dtypes[0]] * count
    if call.op == TernaryOp.WHERE:
        dtypes[0] = BOOL
    first_value = 1 if call.op == TernaryOp.WHERE else 0
    array_index = r.randrange(first_value, count)  # that operand is an array
    extents, rng = shape(r, max_rank=8), generator(r)
    tensors: dict[str, Tensor] = {}
    given: list[Any] = []  # names of tensors, numbers, NumPy scalars and lists
    for index, dtype in enumerate(dtypes):
        is_list = arrays.device is None and 0 not in extents and chance(r, 4)
        values = _filler(call, index, dtype, rng)
        if index != array_index and index >= first_value and chance(r, 12):
            given.append(r.choice(NUMBERS))
        elif index != array_index and chance(r, 8):
            given.append(values((1,))[0])
        elif index != array_index and is_list and dtype in (BOOL, np.dtype(np.int64), np.dtype(np.float64)):
            given.append(values(_part_of(r, extents[-2:]) or (1,)).tolist())
        else:
            part = _part_of(r, extents)
            name = f"operand{index}"
            tensors[name] = tensor(r, dtype, part, any_strides(r, part), values)
            given.append(name)
    target = r.choice(DTYPES) if call is CAST else None
    hosts = _hosts(tensors, given, first_value)
    try:
        result_dtype = target or resolution_of(call, hosts)[2]
    except TypeError:
        result_dtype = None
    out_shape = np.broadcast_shapes(*(host.shape for host in hosts))
    has_out = result_dtype is not None and chance(r, 50)
    if has_out:
        fitting = [d for d in DTYPES if takes_out(call.op, number_type(result_dtype, "x"), number_type(d, "x"))]
        out_dtype = target or (r.choice(fitting) if chance(r, 30) else result_dtype)
        in_place = [name for name, one in tensors.items() if (one.shape, one.dtype) == (out_shape, out_dtype)]
        if in_place and chance(r, 40):
            out_name = r.choice(in_place)
            tensors[out_name].strides = separate_strides(r, out_shape)
        else:
            out_name, out_strides = "out", separate_strides(r, out_shape)
            tensors["out"] = tensor(r, out_dtype, out_shape, out_strides)

    def run(views: dict[str, Any]) -> Results:
        operands = [views[one] if isinstance(one, str) else one for one in given]
        keywords = {"out": views[out_name]} if has_out else {}
        function = getattr(pyflowk, call.function)
        if result_dtype is None:
            try:
                function(*operands, *call.arguments)
            except TypeError:
                return ()
            raise AssertionError(f"{call.function} took {[host.dtype for host in hosts]}")
        if call is CAST:
            return (function(*operands, target, **keywords),)
        return (function(*operands, *call.arguments, **keywords),)

    def verify(before: Outputs, actual: list[np.ndarray]) -> None:
        if result_dtype is None:
            return
        typed = [before[one] if isinstance(one, str) else host for one, host in zip(given, hosts)]
        assert actual[0].shape == out_shape
        typed = [np.broadcast_to(one, out_shape) for one in typed]
        if call is CAST:
            assert_same(actual[0], cast_values(typed[0], target), any_nan=typed[0].dtype != target)
        else:
            if not has_out:
                assert actual[0].dtype == result_dtype == _numpy_s_type(call, given, hosts, result_dtype)
            check(call, typed, actual[0])

    described = f"{call} of {[(h.dtype, h.shape) for h in hosts]} {given}"
    try:
        run_python(r, arrays, tensors, (out_name,) if has_out else ("new",), run, verify)
    except BaseException:
        hypothesis.note(described)
        raise


def _numpy_s_type(call: Call, given: list[Any], hosts: list[np.ndarray], known: np.dtype) -> np.dtype:
    """The result's type by NumPy's own rules, if they are pyflowk's; else `known`."""
    is_native = all(host.dtype.char in np.typecodes["All"] for host in hosts)
    is_numpy_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
    plain = (BinaryOp.ADD, BinaryOp.SUBTRACT, BinaryOp.MULTIPLY, BinaryOp.MINIMUM, BinaryOp.MAXIMUM)
    if call.op not in plain or not is_native or not is_numpy_2:
        return known
    is_weak = [isinstance(one, (int, float)) and not isinstance(one, np.generic) for one in given]
    return np.result_type(*(one if weak else host.dtype for one, weak, host in zip(given, is_weak, hosts)))


def _filler(call: Call, index: int, dtype: np.dtype, rng: np.random.Generator) -> Any:
    return lambda shape: values_for(call, index, shape, dtype, rng)


def _hosts(tensors: dict[str, Tensor], given: list[Any], first_value: int) -> list[np.ndarray]:
    """The operands as arrays; a Python number has the type that promotion.py gives it with the others."""
    hosts: list[Any] = []
    for one in given:
        if isinstance(one, str):
            hosts.append(np.zeros(tensors[one].shape, tensors[one].dtype))
        else:
            hosts.append(None if isinstance(one, (int, float)) and not isinstance(one, np.generic) else np.asarray(one))
    kinds = [number_type(host.dtype, "x") for host in hosts[first_value:] if host is not None]
    weak = [type(one) for one, host in zip(given, hosts) if host is None]
    common = common_type(kinds, weak)
    # An operand's type if it is a float: with two kinds of float8, float16 would change their common type.
    floats = [kind for kind in kinds if kind in FLOATS and common in FLOATS]
    weak_type = numpy_type(floats[0] if floats else common)
    return [np.asarray(one).astype(weak_type) if host is None else host for one, host in zip(given, hosts)]


# ---- permute --------------------------------------------------------------------------------------------------------


def check_permute(r: random.Random, arrays: Any) -> None:
    is_batch = chance(r, 20)
    extents = shape(r, min_rank=2, max_rank=8) if is_batch else shape(r)
    axes = list(range(len(extents)))
    if is_batch:
        axes[-2:] = axes[-2:][::-1]
    else:
        r.shuffle(axes)
    converts = chance(r, 50)
    src = dst = r.choice(ALL_DTYPES)
    scale, seed = 1.0, r.randrange(2**32)
    if converts:
        src, dst = dtype_of(r.choice(CONVERTIBLE)), dtype_of(r.choice(CONVERTIBLE))
        scale = r.choice(SCALES)
    out_extents = tuple(extents[axis] for axis in axes)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return values_of_type(src.name, int(np.prod(shape, dtype=np.int64)), seed).reshape(shape)

    tensors = {"x": tensor(r, src, extents, any_strides(r, extents), values if converts else None)}
    has_out = chance(r, 60)
    if has_out:
        tensors["out"] = tensor(r, dst, out_extents, separate_strides(r, out_extents))

    def run(views: dict[str, Any]) -> Results:
        keywords: dict[str, Any] = {"out": views["out"]} if has_out else {}
        if converts:
            keywords |= {"dtype": r.choice((dst, dst.name)), "scale": scale}
        if is_batch:
            return (pyflowk.batch_transpose(views["x"], **keywords),)
        return (pyflowk.permute(views["x"], r.choice((tuple(axes), list(axes), np.array(axes, np.int64))), **keywords),)

    def verify(before: Outputs, actual: list[np.ndarray]) -> None:
        x = np.array(before["x"].transpose(axes), order="C")
        expected = converted(x.reshape(-1), src.name, dst.name, scale).reshape(x.shape) if converts else x
        assert actual[0].dtype == dst
        assert actual[0].shape == out_extents
        assert_same(actual[0], expected, any_nan=converts)

    run_python(r, arrays, tensors, ("out",), run, verify)


# ---- PReLU ----------------------------------------------------------------------------------------------------------


def check_prelu(r: random.Random, arrays: Any) -> None:
    is_backward = chance(r, 50)
    dtype = r.choice(tuple(PRELU_DTYPES.values()))
    alpha_dtype = np.dtype(np.float32) if dtype.itemsize == 2 and chance(r, 30) else dtype
    extents = shape(r, max_rank=8)
    axis = r.randrange(len(extents)) if extents else 0
    channels = 1 if not extents or chance(r, 15) else extents[axis]
    given_axis = axis if chance(r, 50) else axis - max(len(extents), 1)

    def of(percent: int, *names: str) -> dict[str, Tensor]:
        strides = separate_strides(r, extents)  # alike, which needs no copies, or not
        return {
            name: tensor(r, dtype, extents, strides if chance(r, percent) else any_strides(r, extents), fill())
            for name in names
        }

    def fill() -> Any:
        return values_of(r, dtype, finite=is_backward)

    tensors = of(60, *(("dy", "x") if is_backward else ("x",)))
    tensors["alpha"] = tensor(r, alpha_dtype, (channels,), (1,), values_of(r, alpha_dtype, finite=is_backward))
    needs = (chance(r, 80), chance(r, 80)) if is_backward else (True, False)
    if needs[0] and chance(r, 60):
        out = tensor(r, dtype, extents, r.choice((tensors["x"].strides, separate_strides(r, extents))))
        if shares_its_own_memory(out):
            out.strides = separate_strides(r, extents)
        tensors["out"] = out
    if needs[1] and chance(r, 50):
        tensors["dalpha"] = tensor(r, alpha_dtype, (channels,), (1,))

    def run(views: dict[str, Any]) -> Results:
        if not is_backward:
            return (pyflowk.prelu(views["x"], views["alpha"], given_axis, out=views.get("out")),)
        return pyflowk.prelu_backward(
            *(views["dy"], views["x"], views["alpha"], given_axis),
            **dict(zip(("need_dx", "need_dalpha"), needs)),
            dx_out=views.get("out") if needs[0] else None,
            dalpha_out=views.get("dalpha"),
        )

    def verify(before: Outputs, actual: list[np.ndarray]) -> None:
        if 0 in extents:
            return
        data = data_of(before["x"], before.get("dy", before["x"]), before["alpha"], axis)
        if not is_backward:
            assert_same(actual[0], data.y)
            return
        assert [one is not None for one in actual] == list(needs)
        if needs[0]:
            assert_same(actual[0], data.dx)
        if needs[1]:
            error = np.abs(actual[1].astype(np.float64) - data.dalpha)
            assert (error <= dalpha_bound(data)).all(), (error.max(), actual[1], data.dalpha)

    run_python(r, arrays, tensors, ("out", "dalpha"), run, verify)


# ---- softmax --------------------------------------------------------------------------------------------------------


def check_softmax(r: random.Random, arrays: Any) -> None:
    columns = r.choice(r.choice((SHORT, SHORT, MIDDLE)))
    extents = (*shape(r, max_rank=6, room=max(1, min(60, 3000 // columns))), columns)
    x_dtype, y_dtype = types_of(r)
    case = options_of(r, extents, x_dtype, y_dtype)
    is_backward = chance(r, 35)
    parts: dict[str, Tensor] = {}
    for name, make, percent in (("mask", dense_of, 35), ("lengths", lengths_of, 30), ("bias", bias_of, 25)):
        if chance(r, percent) and (name == "lengths" or not is_backward):
            parts[name] = one = make(r, case)
            if name == "lengths":
                own = tuple(1 if chance(r, 30) else extent for extent in extents[:-1])
                one.shape = own[: r.randrange(len(own) + 1)]
            else:
                one.shape = _part_of(r, extents)
            one.strides = any_strides(r, one.shape)
    if is_backward:
        case = case._replace(values="normal")
        rng = generator(r)
        tensors = {
            name: tensor(r, y_dtype, extents, any_strides(r, extents), values)
            for name, values in (
                ("dy", lambda shape: rng.normal(0, 1, shape).astype(y_dtype)),
                ("y", lambda shape: _y_of(case, rng, shape, y_dtype)),
            )
        }
    else:
        tensors = {"x": x_of(r, case)}
        tensors["x"].strides = any_strides(r, extents)
    tensors |= parts
    out_dtype = x_dtype if is_backward else y_dtype
    has_out = chance(r, 60)
    if has_out:
        tensors["out"] = tensor(r, out_dtype, extents, separate_strides(r, extents))

    def run(views: dict[str, Any]) -> Results:
        keywords = {name: views[name] for name in parts} | case.options()
        if has_out:
            keywords["out"] = views["out"]
        elif x_dtype != y_dtype or chance(r, 20):
            keywords["dtype"] = out_dtype
        if is_backward:
            return (pyflowk.masked_softmax_backward(views["dy"], views["y"], **keywords),)
        return (pyflowk.masked_softmax(views["x"], **keywords),)

    def verify(before: Outputs, actual: list[np.ndarray]) -> None:
        assert actual[0].dtype == out_dtype
        if 0 in extents:
            return
        if is_backward:
            keep = unmasked(case, Inputs(before["dy"], None, before.get("lengths"), None))
            assert_within(actual[0], backward_reference(case, keep, before["dy"], before["y"]))
            return
        inputs = Inputs(before["x"], *(before.get(name) for name in ("mask", "lengths", "bias")))
        assert_within(actual[0], reference_of(case, inputs))

    run_python(r, arrays, tensors, ("out",), run, verify)


def _y_of(case: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return reference_of(case, Inputs(rng.normal(0, 3, shape).astype(case.dtype), None, None, None)).values.astype(dtype)
