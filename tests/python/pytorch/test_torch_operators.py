# SPDX-License-Identifier: Apache-2.0
"""Every operator of torch.ops.flowk under autograd, forward mode, torch.func, vmap, fake tensors and tracing."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_calls import DEVICES, Call, calls, label  # noqa: E402

import pyflowk  # noqa: E402

# opcheck() and gradgradcheck() take a second each: without FLOWK_TEST_LARGE=1 one operator of each kind has them.
SLICE = {
    *(
        "relu",
        "gelu",
        "elu",
        "isnan",
        "multiply",
        "maximum",
        "where",
        "lerp",
        "silu_backward",
        "bitwise_and",
        "permute",
        "cast",
    ),
    *("prelu", "prelu_backward", "softmax", "log_softmax", "masked_softmax", "masked_softmax_backward"),
    *("masked_softmax_with_lse", "masked_softmax_backward_with_dsinks", "masked_softmax_backward_dbias"),
    *("cross_entropy", "cross_entropy_backward"),
}
CALLS = [
    pytest.param(device, number, id=f"{label(call)}-{number}-{device}")
    for device in DEVICES
    for number, call in enumerate(calls())
]
each_call = pytest.mark.parametrize(("device", "number"), CALLS)
each_differentiable_call = pytest.mark.parametrize(
    ("device", "number"), [one for one in CALLS if calls()[one.values[1]].differentiable]
)


def call_of(device: str, number: int) -> Call:
    return calls(device)[number]


def skip_beyond_the_slice(call: Call) -> None:
    if call.name not in SLICE and os.environ.get("FLOWK_TEST_LARGE") != "1":
        pytest.skip("FLOWK_TEST_LARGE is not 1")


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@each_call
def test_opcheck(device: str, number: int) -> None:
    call = call_of(device, number)
    skip_beyond_the_slice(call)
    torch.library.opcheck(call.operator, call.arguments, call.options)
    if call.differentiable:
        places = {**call.places, **dict(zip(call.differentiable, call.function()[1]))}
        arguments = tuple(places[place] for place in range(len(call.arguments)))
        torch.library.opcheck(call.operator, arguments, {name: places[name] for name in call.options})


@pytest.mark.parametrize("device", DEVICES)
def test_a_softmax_of_strided_rows_lies_as_its_fake_says(device: str) -> None:
    flowk, x = torch.ops.flowk, torch.randn(2, 3, 4, 5, device=device)
    lengths = torch.tensor([2, 3], dtype=torch.int32, device=device)
    seen = set()
    for y in (x, x.movedim(1, -1), x.swapaxes(0, 3), x[:, ::2].movedim(1, -1), x.permute(2, 3, 1, 0), x[:, :0].mT):
        for call in (
            flowk.softmax,
            flowk.log_softmax,
            flowk.masked_softmax,
            lambda y: flowk.softmax(y, dtype=torch.float16),
            lambda y: flowk.masked_softmax(y, lengths=lengths[: len(y)] if len(y) == 2 else None),
            lambda y: flowk.masked_softmax(y, causal=True),
            lambda y: flowk.masked_softmax_backward(y, y),
            lambda y: flowk.masked_softmax_backward(y, y.contiguous()),
            lambda y: flowk.masked_softmax_backward(y, y, window=3),
        ):
            result = call(y)
            with FakeTensorMode() as mode:
                mode.allow_non_fake_inputs = True
                fake = call(mode.from_tensor(y))
            assert (fake.shape, fake.stride(), fake.dtype) == (result.shape, result.stride(), result.dtype)
            seen.add(result.is_contiguous())
    assert seen == {True, False}


@each_differentiable_call
def test_gradients(device: str, number: int) -> None:
    call = call_of(device, number)
    function, tensors = call.function()
    if tensors[0].dtype == torch.float64:
        torch.autograd.gradcheck(function, tensors, check_forward_ad=True, check_undefined_grad=False)
        skip_beyond_the_slice(call)
        torch.autograd.gradcheck(
            function, tensors, check_batched_grad=True, check_batched_forward_grad=True, check_forward_ad=True
        )
        torch.autograd.gradgradcheck(function, tensors)


@each_differentiable_call
def test_torch_func(device: str, number: int) -> None:
    """The Jacobian by reverse and by forward mode, each through vmap, is autograd's."""
    function, tensors = call_of(device, number).function()
    expected = torch.autograd.functional.jacobian(function, tensors)
    arguments, detached = tuple(range(len(tensors))), tuple(tensor.detach() for tensor in tensors)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        # torch's own two Jacobians differ in type if the function's result does.
        torch.testing.assert_close(transform(function, arguments)(*detached), expected, check_dtype=False)


@each_differentiable_call
def test_forward_mode_keeps_tangents(device: str, number: int) -> None:
    function, tensors = call_of(device, number).function()
    detached, tangents = [tensor.detach() for tensor in tensors], [torch.ones_like(tensor) for tensor in tensors]
    with forward_ad.dual_level():
        result = as_tuple(function(*map(forward_ad.make_dual, detached, tangents)))
        dual = [forward_ad.unpack_dual(one).tangent for one in result]
    _, expected = torch.func.jvp(function, tuple(detached), tuple(tangents))
    for own, other in zip(dual, as_tuple(expected)):
        torch.testing.assert_close(torch.zeros_like(other) if own is None else own, other)


@each_call
def test_vmap_is_a_loop(device: str, number: int) -> None:
    call = call_of(device, number)
    places = call.places
    tensors = [place for place, one in places.items() if isinstance(one, torch.Tensor)]
    for batched in [tensors, *([place] for place in tensors)]:
        for dim in (0, -1):
            stacks = [
                torch.stack([places[p], places[p].flip(0) if places[p].dim() else places[p]], dim) for p in batched
            ]

            run = functools.partial(call.with_tensors, batched)
            result = as_tuple(torch.func.vmap(run, in_dims=dim)(*stacks))
            loop = [as_tuple(run(*(stack.select(dim, i) for stack in stacks))) for i in range(2)]
            for own, parts in zip(result, zip(*loop)):
                torch.testing.assert_close(own, torch.stack(parts), equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (1, 2, None), (None, 0, 1), (0, None, None), (None, None, 0)], ids=str)
@pytest.mark.parametrize("has_one_alpha", [False, True])
def test_vmap_of_prelu_and_of_its_gradients_is_one_call(in_dims: Any, axis: int, has_one_alpha: bool) -> None:
    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls = getattr(self, "calls", 0) + (func.namespace == "flowk")
            return func(*args, **(kwargs or {}))

    shape, size = (3, 4, 2), 5
    shapes = (shape, shape, (1,) if has_one_alpha else (shape[axis],))
    tensors = [
        torch.randn((*own[:dim], size, *own[dim:]) if dim is not None else own, dtype=torch.float64)
        for own, dim in zip(shapes, in_dims)
    ]
    for operator, first in ((torch.ops.flowk.prelu_backward, 0), (torch.ops.flowk.prelu, 1)):
        given, dims = tensors[first:], in_dims[first:]
        if all(dim is None for dim in dims):
            continue

        def run(*tensors: Any, operator: Any = operator) -> Any:
            return operator(*tensors, axis)

        with Counting() as counting:
            result = as_tuple(torch.func.vmap(run, dims)(*given))
        assert counting.calls == 1
        for i in range(size):
            one = [x if dim is None else x.select(dim, i) for x, dim in zip(given, dims)]
            for own, expected in zip(result, as_tuple(run(*one))):
                torch.testing.assert_close(own[i], expected)


def test_vmap_of_prelu_refuses_a_channel_axis_that_x_does_not_have() -> None:
    x, alpha = torch.ones(5, 3, 4), torch.ones(5, 3)
    for in_dims, own in (((0, 0), alpha), ((0, None), alpha[0])):
        with pytest.raises(ValueError, match=r"channel_axis = 2, x has 2 dimensions: must be in -2 \.\.\. 1"):
            torch.func.vmap(lambda x, a: torch.ops.flowk.prelu(x, a, 2), in_dims)(x, own)


@each_call
def test_a_trace_holds_the_operator(device: str, number: int) -> None:
    call = call_of(device, number)
    places = [place for place, one in call.places.items() if isinstance(one, torch.Tensor)]
    tensors = [call.places[place] for place in places]
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(functools.partial(call.with_tensors, places), tracing_mode=mode)(*tensors)
        assert call.operator in [node.target for node in graph.graph.nodes]
        torch.testing.assert_close(graph(*tensors), call.operator(*call.arguments, **call.options))


def test_operators_are_found_from_c() -> None:
    for call in calls():
        builtin, _ = torch._C._jit_get_operation(f"flowk::{call.name}")
        torch.testing.assert_close(
            builtin(*call.arguments, **call.options), call.operator(*call.arguments, **call.options), equal_nan=True
        )


@each_call
def test_a_plain_call_is_the_dispatcher_s(device: str, number: int) -> None:
    """If torch need not see the call, it gives what torch.ops.flowk.NAME gives, without the dispatcher."""
    call = call_of(device, number)
    packet = getattr(torch.ops.flowk, call.name)
    expected = as_tuple(call.operator(*call.arguments, **call.options))
    for own, other in zip(as_tuple(packet(*call.arguments, **call.options)), expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0, equal_nan=True)
        assert own.stride() == other.stride()
    if call.differentiable:
        places = {**call.places, **dict(zip(call.differentiable, call.function()[1]))}
        result = packet(*(places[i] for i in range(len(call.arguments))), **{k: places[k] for k in call.options})
        assert all(one.requires_grad for one in as_tuple(result))


def test_calls_that_are_not_plain_go_to_the_dispatcher() -> None:
    flowk, z = torch.ops.flowk, torch.randn(2, 3, dtype=torch.complex64)
    assert torch.equal(flowk.permute(z.conj(), [1, 0]), z.conj().mT)
    assert torch.equal(flowk.relu(z.conj().imag), torch.relu(z.conj().imag))
    assert flowk.relu(torch.empty(2, 3, device="meta")).shape == (2, 3)
    with torch.device("meta"):
        assert flowk.relu(torch.ones(2)).is_meta
    graph = torch.fx.symbolic_trace(lambda x: flowk.add(z.real, flowk.relu(x)))
    assert torch.equal(graph(z.imag), z.real + torch.relu(z.imag))
    with pytest.raises(ValueError, match="shapes do not broadcast to one"):
        flowk.add(torch.ones(2), torch.ones(3))
    modes = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            modes.append(function)
            return function(*arguments, **(options or {}))

    with Mode():
        flowk.relu(z.real)
    assert flowk.relu in modes


def test_binary_operators_take_numbers() -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float16, requires_grad=True)
    result = torch.ops.flowk.multiply(x, 3)
    assert result.dtype == torch.float16
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.full_like(x, 3))
    assert torch.ops.flowk.add(torch.ones(2, dtype=torch.int32), 1.5).dtype == torch.float32
    assert torch.equal(torch.func.vmap(lambda x: torch.ops.flowk.less(x, 0))(x.detach()), x < 0)


@each_call
def test_out(device: str, number: int) -> None:
    call = call_of(device, number)
    two = ("masked_softmax_with_lse", "masked_softmax_backward_with_dsinks", "masked_softmax_backward_dbias")
    if call.name in ("prelu_backward", "cross_entropy", "softmax_merge", *two):  # which have several results
        return
    expected = call.operator(*call.arguments, **call.options)
    out = torch.empty_strided(expected.shape, expected.stride(), dtype=expected.dtype, device=device)
    variant = getattr(torch.ops.flowk, call.name).out
    assert variant(*call.arguments, **call.options, out=out) is out and out._version == 1
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    if call.differentiable:
        with pytest.raises(TypeError, match="out is given while autograd is on"):
            variant(*call.arguments, **call.options, out=out.requires_grad_())


def test_out_in_a_compiled_function() -> None:
    def double(x: Any, out: Any) -> Any:
        torch.ops.flowk.scale.out(x, 2.0, out=out)
        return out + pyflowk.add(x, 1.0, out=torch.empty_like(x))

    x, out = torch.randn(3, 4), torch.empty(3, 4)
    result = torch.compile(double, fullgraph=True, backend="aot_eager")(x, out)
    torch.testing.assert_close((out, result), (2 * x, 3 * x + 1))
