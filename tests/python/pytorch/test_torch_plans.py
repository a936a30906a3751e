# SPDX-License-Identifier: Apache-2.0
"""explain(), prepare() and the size of a workspace on torch's tensors: subclasses, and `out`, which is not written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import pyflowk  # noqa: E402

X, ALPHA = torch.arange(12, dtype=torch.float32).reshape(4, 3) - 5, torch.rand(3)


class Named(torch.Tensor):
    """A user's subclass over plain memory."""


class Wrapper(torch.Tensor):
    """One without memory of its own."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Wrapper:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return function(*(one.held if isinstance(one, Wrapper) else one for one in arguments), **(options or {}))


def fake(x: torch.Tensor) -> torch.Tensor:
    with FakeTensorMode() as mode:
        return mode.from_tensor(x)


# Calls on a subclass made by `of`, each of a plan alone.
PLANS: dict[str, Callable[[Callable[[torch.Tensor], Any]], Any]] = {
    "explain": lambda of: pyflowk.explain(pyflowk.relu, of(X)),
    "explain of two": lambda of: pyflowk.explain(pyflowk.add, X, of(X)),
    "explain with out": lambda of: pyflowk.explain(pyflowk.relu, X, out=of(torch.empty(4, 3))),
    "explain of a conversion": lambda of: pyflowk.explain(pyflowk.add, of(X.int()), 1.5),
    "explain of two results": lambda of: pyflowk.explain(
        pyflowk.prelu_backward, of(X), X, ALPHA, dalpha_out=of(torch.empty(3))
    ),
    "prepare": lambda of: pyflowk.prepare(pyflowk.softmax, of(X)).__doc__,
    "workspace": lambda of: pyflowk.prelu_backward_workspace_bytes(of(X), ALPHA),
    "workspace of two": lambda of: pyflowk.prelu_backward_workspace_bytes(X, of(ALPHA)),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_subclass_over_plain_memory_has_the_plan_of_its_memory(name: str) -> None:
    assert PLANS[name](lambda x: x.as_subclass(Named)) == PLANS[name](lambda x: x)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("of", [fake, Wrapper])
def test_a_subclass_with_operators_of_its_own_is_refused_by_name(name: str, of: Callable[..., Any]) -> None:
    kind = "FakeTensor" if of is fake else "Wrapper"
    with pytest.raises(TypeError, match=rf"(x|y|alpha|dy|out|dalpha_out) is a {kind}, a subclass of torch\.Tensor"):
        PLANS[name](of)


def test_no_plan_is_made_while_torch_watches() -> None:
    for name, what in (("explain", "explain"), ("workspace", "prelu_backward_workspace_bytes")):
        with pytest.raises(TypeError, match=f"{what} is called while torch traces or transforms"):
            torch.func.vmap(lambda x, name=name: PLANS[name](lambda _: x))(X[None])


# ---- out ------------------------------------------------------------------------------------------------------------


def wrong_strides() -> torch.Tensor:
    return torch.zeros(3).expand(4, 3)


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        call()


# Calls that write nothing into their out.
UNWRITTEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "explain": lambda out: pyflowk.explain(pyflowk.relu, X, out=out),
    "explain of a conversion": lambda out: pyflowk.explain(pyflowk.add, X.int(), 1.5, out=out),
    "explain of copies": lambda out: pyflowk.explain(pyflowk.prelu, X[:, ::2].repeat(1, 2)[:, :3], ALPHA, out=out),
    "explain of two results": lambda out: pyflowk.explain(pyflowk.prelu_backward, X, X, ALPHA, dx_out=out),
    "explain of many": lambda out: pyflowk.explain(pyflowk.permute_many, [X], (0, 1), out=[out]),
    "prepare": lambda out: pyflowk.prepare(pyflowk.relu, X, out=out),
    "another shape": lambda out: refused(lambda: pyflowk.relu(X[1:], out=out)),
    "another type": lambda out: refused(lambda: pyflowk.relu(X.double(), out=out)),
    "a refused value": lambda out: refused(lambda: pyflowk.masked_softmax(X, scale=float("nan"), out=out)),
    "another type after a conversion": lambda out: refused(lambda: pyflowk.less(X.int(), 1.5, out=out)),
    "an overlap": lambda out: refused(lambda: pyflowk.permute(out, (0, 1), out=out)),
    "a workspace that is too small": lambda out: refused(
        lambda: pyflowk.prelu_backward(X, X, ALPHA, dx_out=out, workspace=torch.empty(0))
    ),
    "many": lambda out: refused(lambda: pyflowk.permute_many([X, X], (0, 1), out=[out, X])),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_the_version_of_an_out_that_is_not_written_stays(name: str) -> None:
    weight, out = torch.ones(4, 3, requires_grad=True), X.clone()
    loss = (weight * out).sum()  # its backward needs out unchanged
    for _ in range(3):
        UNWRITTEN[name](out)
    assert out._version == 0
    assert torch.equal(out, X)
    loss.backward()
    assert torch.equal(weight.grad, X)


def test_every_way_to_write_raises_the_version() -> None:
    gradients = torch.empty_like(X), torch.empty(3)
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda out: pyflowk.relu(X, out=out),
        lambda out: pyflowk.add(X.int(), 1.5, out=out),
        lambda out: pyflowk.prelu(X.flip(0).T.contiguous().T, ALPHA, out=out),
        lambda out: pyflowk.prelu_backward(X, X, ALPHA, dx_out=out, dalpha_out=gradients[1]),
        lambda out: pyflowk.permute_many([X], (0, 1), out=[out]),
        lambda out: pyflowk.where(X > 0, X, 0, out=out),
    ]
    for call in calls:
        out = X.clone()
        for _ in range(3):
            before = out._version
            call(out)
            assert out._version > before
