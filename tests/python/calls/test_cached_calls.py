# SPDX-License-Identifier: Apache-2.0
"""The fast path of a call gives what the path through Python gives: values, types, layouts, errors."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from call_cases import CASES, DEVICE, CallCase, tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

import pyflowk  # noqa: E402
from pyflowk import _pipeline  # noqa: E402
from pyflowk._calls import call_path  # noqa: E402
from pyflowk._elementwise.call import Elementwise  # noqa: E402
from pyflowk._explain import _OPERATORS  # noqa: E402
from pyflowk._native.operations import BinaryOp  # noqa: E402
from pyflowk._pipeline import Request  # noqa: E402

pytestmark = pytest.mark.skipif(call_path.program_cache() is None, reason="no program cache")


@pytest.fixture(autouse=True)
def forget_plans() -> Iterator[None]:
    call_path.program_cache().forget()
    yield
    call_path.program_cache().forget()


def num_plans() -> int:
    """How many calls the fast path takes."""
    return call_path.program_cache().num_plans()


def through_python(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_path, "is_compiling", lambda: True)
        return call()


def check_same(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert type(result) is type(expected) is torch.Tensor
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    assert result.untyped_storage().resizable()  # of torch's own allocator
    assert not result.requires_grad
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_both_paths_give_the_same(case: CallCase) -> None:
    expected = through_python(lambda: case.function(*case.arguments, **case.options))
    for _ in range(4):
        check_same(case.function(*case.arguments, **case.options), expected)
    assert num_plans() == (1 if case.is_cacheable else 0)
    out = torch.full_like(expected, 1)
    for _ in range(4):
        assert case.function(*case.arguments, **case.options, out=out) is out
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
        version = out._version
        out.zero_()
        assert out._version == version + 1
    assert num_plans() == (2 if case.is_cacheable else 0)


def test_a_type_that_an_operator_saw_first_has_plans() -> None:
    code = """
import torch, pyflowk
from pyflowk import _pipeline  # noqa: E402
from pyflowk._calls import call_path
with torch.autocast("cpu", torch.bfloat16):
    pyflowk.prelu(torch.rand(3, 4), torch.nn.Parameter(torch.rand(4)))
for _ in range(3):
    pyflowk.relu(torch.nn.Parameter(torch.rand(3, 4), requires_grad=False))
assert call_path.program_cache().num_plans() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_parameter_that_autocast_saw_first_has_plans() -> None:
    code = """
import torch, pyflowk
from pyflowk import _pipeline  # noqa: E402
from pyflowk._calls import call_path
with torch.autocast("cpu", torch.bfloat16):
    for _ in range(3):
        pyflowk.relu(torch.nn.Parameter(torch.rand(3, 4), requires_grad=False))
assert call_path.program_cache().num_plans() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_later_training_steps_of_prelu_bind_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, alpha = tensor(4, 6).requires_grad_(), torch.nn.Parameter(tensor(6))
    for _ in range(3):
        pyflowk.prelu(x, alpha).sum().backward()
    bound = []
    bind = _pipeline.bind
    monkeypatch.setattr(_pipeline, "bind", lambda *arguments: bound.append(arguments) or bind(*arguments))
    pyflowk.prelu(x, alpha).sum().backward()
    assert bound == [] and alpha.grad.shape == (6,)


def test_the_cases_reach_every_function() -> None:
    missing = set(_OPERATORS) - {case.function.__name__ for case in CASES}
    of_several_results = {"prelu_backward", "permute_many", "cross_entropy", "cross_entropy_merge", "softmax_merge"}
    assert missing == {*of_several_results, "masked_softmax_backward_dbias"}


@pytest.mark.parametrize("rows", [4, 50000])
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_both_paths_give_the_same_gradients_of_prelu(rows: int, needs: tuple[bool, bool]) -> None:
    dy, x, alpha = tensor(rows, 6), tensor(rows, 6) - 4, tensor(6)
    options: dict[str, Any] = dict(zip(("need_dx", "need_dalpha"), needs))
    expected = through_python(lambda: pyflowk.prelu_backward(dy, x, alpha, **options))
    for _ in range(3):
        for result, one in zip(pyflowk.prelu_backward(dy, x, alpha, **options), expected):
            assert (result is None) == (one is None)
            if one is not None:
                check_same(result, one)
    assert num_plans() == 1
    outs = {name: one.clone() for name, one in zip(("dx_out", "dalpha_out"), expected) if one is not None}
    num_bytes = pyflowk.prelu_backward_workspace_bytes(x, alpha)
    given: list[dict[str, Any]] = [outs]
    if needs[1] and num_bytes:
        given.append({**outs, "workspace": torch.empty(num_bytes, dtype=torch.uint8, device=DEVICE)})
    for each in given:
        for _ in range(3):
            versions = [one._version for one in outs.values()]
            results = pyflowk.prelu_backward(dy, x, alpha, **options, **each)
            assert [one is not None for one in results] == list(needs)
            assert all(one is None or one is outs[name] for one, name in zip(results, ("dx_out", "dalpha_out")))
            assert [one._version for one in outs.values()] == [version + 1 for version in versions]
    for one, name in zip(expected, ("dx_out", "dalpha_out")):
        if one is not None:
            assert torch.equal(outs[name], one)
    assert num_plans() == 1 + len(given)


@pytest.mark.parametrize("rows", [4, 500])
@pytest.mark.parametrize("need_dx", [True, False])
def test_both_paths_give_the_same_gradients_of_a_bias(rows: int, need_dx: bool) -> None:
    dy, y, bias = tensor(rows, 6), tensor(rows, 6), tensor(6)
    options: dict[str, Any] = {"need_dx": need_dx, "causal": True, "scale": 0.5}
    expected = through_python(lambda: pyflowk.masked_softmax_backward_dbias(dy, y, bias, **options))
    for scale in (0.5, 0.5, 0.25):  # a plan serves every scale
        found = pyflowk.masked_softmax_backward_dbias(dy, y, bias, **{**options, "scale": scale})
        assert (found[0] is None) == (expected[0] is None) and torch.equal(found[1], expected[1])
        if need_dx:
            assert torch.equal(found[0], expected[0] * (scale / 0.5))
    assert num_plans() == 1
    outs = {"dbias_out": expected[1].clone(), **({"dx_out": expected[0].clone()} if need_dx else {})}
    for _ in range(3):
        found = pyflowk.masked_softmax_backward_dbias(dy, y, bias, **options, **outs)
        assert found[1] is outs["dbias_out"] and found[0] is outs.get("dx_out")
        assert torch.equal(found[1], expected[1])
    assert num_plans() == 2


@pytest.mark.parametrize("call", [lambda x: pyflowk.add(x, 1.5), lambda x: pyflowk.where(x > 2, 0.5, 0.25)])
def test_a_plan_for_another_default_dtype_is_not_used(call: Callable[[Any], Any]) -> None:
    x = tensor(3, 4, dtype=torch.int32)
    for _ in range(3):
        assert call(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert call(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert call(x).dtype == torch.float32


def test_a_plan_serves_other_arrays_and_other_numbers() -> None:
    x, y = tensor(3, 4), tensor(3, 4) * 2
    for _ in range(3):
        pyflowk.add(x, x)
        pyflowk.multiply(x, 1.5)
        pyflowk.scale(x, 0.5, 0.5)
        pyflowk.softmax(x)
    before = num_plans()
    assert torch.equal(pyflowk.add(x, y), x + y)
    assert torch.equal(pyflowk.multiply(y, 2.5), y * 2.5)
    assert torch.equal(pyflowk.scale(y, 2.0, 3.0), y * 2 + 3)
    assert torch.equal(pyflowk.multiply(x, float("inf")), x * float("inf"))
    assert num_plans() == before


def test_what_a_plan_depends_on_is_in_its_key() -> None:
    x = tensor(4, 4)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: pyflowk.relu(x),
        lambda: pyflowk.relu(x.half()),
        lambda: pyflowk.relu(x.T),
        lambda: pyflowk.relu(x[:2]),
        lambda: pyflowk.relu(x, out=torch.empty(4, 4, device=DEVICE).T),
        lambda: pyflowk.permute(x, (0, 1)),
        lambda: pyflowk.permute(x, (1, 0)),
        lambda: pyflowk.multiply(x, 2),
        lambda: pyflowk.multiply(x, 3),
        lambda: pyflowk.permute(x, (0, 1), scale=3.0),
        lambda: pyflowk.permute(x, (0, 1), dtype="int8"),
        lambda: pyflowk.masked_softmax(x, causal=True),
        lambda: pyflowk.masked_softmax(x, causal=True, window=2),
        lambda: pyflowk.masked_softmax(x, log=True),
    ]
    expected = [through_python(call) for call in calls]
    for _ in range(4):
        for call, result in zip(calls, expected):
            check_same(call(), result)
    assert num_plans() == len(calls)


# ---- errors ---------------------------------------------------------------------------------------------------------


def error_of(call: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        call()
    return caught.type, str(caught.value)


def misaligned(*shape: int) -> torch.Tensor:
    memory = torch.zeros(4096, dtype=torch.uint8)
    return torch.frombuffer(memory.numpy(), dtype=torch.float32, count=12, offset=1).reshape(shape)


def test_errors_are_the_same_where_a_plan_is_there() -> None:
    x, out, memory = tensor(3, 4), torch.empty(3, 4, device=DEVICE), torch.zeros(100, device=DEVICE)
    for _ in range(3):
        pyflowk.relu(x, out=out)
        pyflowk.permute(x, (1, 0))
        pyflowk.masked_softmax(x, scale=1.0)
        pyflowk.multiply(x, 1)
    bad: list[Callable[[], Any]] = [
        lambda: pyflowk.relu(memory[:12].view(3, 4), out=memory[4:16].view(3, 4)),
        lambda: pyflowk.relu(x, out=torch.empty(4, 3, device=DEVICE)),
        lambda: pyflowk.relu(x, out=5),
        lambda: pyflowk.relu(x, stream=-1),
        lambda: pyflowk.relu(x, stream="s"),
        lambda: pyflowk.relu(None),
        lambda: pyflowk.permute(x, (0, 0)),
        lambda: pyflowk.permute(x, (1.0, 0)),
        lambda: pyflowk.permute(x, "ab"),
        lambda: pyflowk.masked_softmax(x, scale=float("nan")),
        lambda: pyflowk.masked_softmax(x, causal=1),
        lambda: pyflowk.masked_softmax(x, window=0),
        lambda: pyflowk.multiply(tensor(3, 4, dtype=torch.int8), 1000),
        lambda: pyflowk.add(x, torch.empty(3, 4, device="meta")),
        lambda: pyflowk.relu(torch.zeros(3, dtype=torch.complex64, device=DEVICE).conj()),
        lambda: pyflowk.relu(torch.zeros(3, dtype=torch.complex64, device=DEVICE).conj().imag),
    ]
    if DEVICE == "cpu":
        odd = misaligned(3, 4)
        bad.append(lambda: pyflowk.relu(odd, out=out))
    for call in bad:
        expected = error_of(lambda call=call: through_python(call))
        assert [error_of(call) for _ in range(3)] == [expected] * 3


def test_an_error_after_the_call_loses_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes later calls faster may fail: the result is there."""

    def fails(*arguments: Any) -> Any:
        raise RuntimeError("no plan")

    monkeypatch.setattr(call_path, "plan_of", fails)
    monkeypatch.setattr(call_path, "register_type", fails)
    x = tensor(3, 4)
    for _ in range(4):
        assert torch.equal(pyflowk.relu(x), x)
    assert num_plans() == 0


def test_wrong_arguments_are_the_function_s_own_error() -> None:
    with pytest.raises(TypeError, match=r"relu\(\) missing 1 required positional argument"):
        pyflowk.relu()


# ---- what torch must see --------------------------------------------------------------------------------------------


def test_gates_are_asked_where_a_plan_is_there() -> None:
    x, out = tensor(3, 4), torch.empty(3, 4, device=DEVICE)
    for _ in range(3):
        pyflowk.relu(x)
        pyflowk.relu(x, out=out)
    assert num_plans() == 2
    watched = tensor(3, 4).requires_grad_()
    calls: list[Callable[[], Any]] = [
        lambda: pyflowk.relu(watched),
        lambda: pyflowk.relu(watched, out=out),
        lambda: torch.func.vmap(pyflowk.relu)(x),
        lambda: torch.func.jvp(pyflowk.relu, (x,), (x,)),
        lambda: torch.func.grad(lambda x: pyflowk.relu(x).sum())(x),
    ]
    for call in calls:
        results = []
        for one in (lambda call=call: through_python(call), call):
            try:
                results.append(one())
            except Exception as error:
                results.append((type(error), str(error)))
        assert str(results[0]) == str(results[1])
    with torch.no_grad():
        check_same(pyflowk.relu(watched), watched.detach().relu())
    with torch.inference_mode():
        assert torch.equal(pyflowk.relu(x), x.relu())
        assert torch.equal(pyflowk.relu(x, out=torch.zeros(3, 4, device=DEVICE)), x.relu())
    # And two plans of relu_backward, for jvp and for grad: an operator's kernel is a cached call.
    assert num_plans() == 4


def test_a_subclass_is_not_taken_as_a_tensor() -> None:
    x = tensor(3, 4)
    for _ in range(3):
        pyflowk.relu(x)
    with FakeTensorMode() as mode:
        for _ in range(3):
            assert isinstance(pyflowk.relu(mode.from_tensor(x)), FakeTensor)
    assert num_plans() == 1


# ---- the cache ------------------------------------------------------------------------------------------------------


def test_the_cache_is_bounded_and_keeps_what_is_used() -> None:
    memory = torch.zeros(10000, device=DEVICE)
    for length in range(1, 5000):
        pyflowk.relu(memory[:length], out=memory[:length])
        pyflowk.relu(memory[:length], out=memory[:length])
    assert 3000 < num_plans() <= 4096
    assert pyflowk.relu(memory[:10] - 1).sum() == 0


def test_plans_keep_no_array_alive() -> None:
    x, out = tensor(3, 4), tensor(3, 4)
    for _ in range(3):
        pyflowk.add(x, x, out=out)
        result = pyflowk.softmax(x)
    alive = [weakref.ref(one) for one in (x, out, result)]
    del x, out, result
    gc.collect()
    assert num_plans() == 2
    assert not any(one() is not None for one in alive)


def test_a_result_like_another_array_than_the_call_s_first_is_made_in_python() -> None:
    operation = Elementwise(BinaryOp.ADD, ("x", "y"))
    path = call_path.CallPath("y x", lambda y, x: Request(operation, (x, y)))
    x, y = tensor(4, 8), tensor(4, 8, dtype=torch.int32)
    for _ in range(3):
        result = path.cached_call(y, x, None, None)
        assert result.dtype == torch.float32 and torch.equal(result, x + y)
    assert num_plans() == 0


def test_threads_share_the_cache() -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        memory = torch.randn(64, 64)
        for i in range(300):
            x = memory[: 1 + (i * seed) % 60]
            if not torch.equal(pyflowk.permute(x, (1, 0)), x.T) or not torch.equal(pyflowk.multiply(x, 2.0), x * 2):
                failures.append((seed, i))
            if i % 50 == 0:
                call_path.program_cache().forget()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
