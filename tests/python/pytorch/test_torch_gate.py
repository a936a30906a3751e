# SPDX-License-Identifier: Apache-2.0
"""Which calls on torch's tensors are plain, and that no call is silently wrong."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

import pyflowk  # noqa: E402
from pyflowk._torch import gate  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)


def test_a_plain_call_gives_torch_s_values() -> None:
    assert torch.equal(pyflowk.permute(X, (1, 0)), X.T)
    assert torch.equal(pyflowk.add(X, X[0]), X + X[0])
    assert torch.equal(pyflowk.relu(torch.nn.Parameter(X - 2).detach()), (X - 2).relu())


def test_the_gate_tells_whether_torch_watches_all_calls() -> None:
    assert not gate.is_intercepted()
    with torch.autograd.forward_ad.dual_level():
        assert gate.is_intercepted()
    assert torch.func.vmap(lambda row: row if gate.is_intercepted() else 1 / 0)(X) is not None
    gate.mark_written(out := torch.empty(2))
    assert out._version == 1


def test_out_raises_the_version_counter() -> None:
    weight, out = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (weight * out).sum()
    pyflowk.add(out, 1.0, out=out)
    assert out._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_every_written_tensor_raises_its_version_counter() -> None:
    x, alpha = torch.randn(4, 3), torch.rand(3)
    dx, dalpha, workspace = torch.empty_like(x), torch.empty_like(alpha), torch.empty(10000)
    pyflowk.prelu_backward(x, x, alpha, dx_out=dx, dalpha_out=dalpha, workspace=workspace)
    assert [dx._version, dalpha._version, workspace._version] == [1, 1, 1]


def test_inference_tensors_have_no_version_and_are_written() -> None:
    with torch.inference_mode():
        out = torch.zeros(2, 3)
        assert torch.equal(pyflowk.relu(X, out=out), X)


def test_a_parameter_is_written_without_grad_mode() -> None:
    parameter = torch.nn.Parameter(X.clone())
    with torch.no_grad():
        pyflowk.multiply(parameter, 2.0, out=parameter)
    assert torch.equal(parameter.detach(), 2 * X)
    assert parameter._version == 1


def test_a_tensor_whose_memory_is_not_its_values_is_refused() -> None:
    x = torch.zeros(2, 3, dtype=torch.complex64)
    with pytest.raises(ValueError, match="x is a lazily negated or conjugated tensor"):
        pyflowk.permute(x.conj(), (1, 0))
    with pytest.raises(ValueError, match="out is a lazily negated or conjugated tensor"):
        pyflowk.relu(X, out=x.conj().imag)
    with pytest.raises(TypeError, match=r"x is a tensor on meta, must be on the host or a CUDA device"):
        pyflowk.permute(X.to("meta"), (1, 0))


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_memory_are_refused() -> None:
    x = torch.randn(4, 4)
    nested = torch.nested.nested_tensor([x[0], x[1, :2]])
    for odd in (x.to_sparse(), x.to_sparse_csr(), x.to_mkldnn(), nested):
        text = "is a nested tensor" if odd is nested else f"has the layout {odd.layout}, must have strides"
        calls = {
            "x": lambda odd=odd: pyflowk.relu(odd),
            "y": lambda odd=odd: pyflowk.add(x, odd),
            "out": lambda odd=odd: pyflowk.relu(x, out=odd),
            "xs[1]": lambda odd=odd: pyflowk.permute_many([x, odd], (1, 0)),
        }
        for name, call in calls.items():
            with pytest.raises(TypeError, match="^" + re.escape(f"{name} {text}")):
                call()
        if not odd.is_mkldnn:
            odd.requires_grad_()
            for name in ("x", "y", "xs[1]"):
                with pytest.raises(TypeError, match="^" + re.escape(f"{name} {text}")):
                    calls[name]()
    with pytest.raises(TypeError, match="x is a nested tensor"):
        pyflowk.softmax(torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged))
    with pytest.raises(TypeError, match="its tensors hold more than elements"):
        pyflowk.permute(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), (1, 0))
    with pytest.raises(ValueError, match="x = NULL"):
        pyflowk.relu(torch._efficientzerotensor((4, 4)))


def test_a_view_is_read_in_place() -> None:
    view = torch.arange(24.0).reshape(4, 6)[::2, ::3]
    assert torch.equal(pyflowk.permute(view, (1, 0)), view.T)


def test_a_result_is_no_view() -> None:
    assert not pyflowk.relu(X.T)._is_view()
    assert not pyflowk.prelu(X.T, X[0, :1])._is_view()


def test_explain_needs_no_gradient() -> None:
    assert pyflowk.explain(pyflowk.relu, X.clone().requires_grad_()) == pyflowk.explain(pyflowk.relu, X)


@pytest.mark.parametrize("parameter", ["x", "y", "out"])
def test_out_is_refused_in_autograd(parameter: str) -> None:
    tensors = {name: torch.ones(3) for name in ("x", "y", "out")}
    tensors[parameter].requires_grad_()
    with pytest.raises(TypeError, match="out is given while autograd is on and a tensor requires grad"):
        pyflowk.add(**tensors)
    assert tensors["out"]._version == 0


def test_what_torch_cannot_see_is_refused() -> None:
    x = X.clone().requires_grad_()
    with pytest.raises(TypeError, match="y is a ndarray, must be a torch"):
        pyflowk.add(x, X.numpy())
    with pytest.raises(TypeError, match="dalpha_out and workspace are given where torch must see the call"):
        pyflowk.prelu_backward(X, x, X[0], dalpha_out=torch.empty(3))
    with pytest.raises(TypeError, match="stream is given while torch traces or transforms"):
        torch.func.vmap(lambda x: pyflowk.relu(x, stream=0))(X)
    with pytest.raises(TypeError, match="out is given while autograd is on"):
        pyflowk.cast(x, out=torch.empty(2, 3))
    kernel = pyflowk.ElementwiseKernel("T x", "T y", "y = x + 1")
    with pytest.raises(TypeError, match="a kernel of one's own has no gradient"):
        kernel(x)


def test_the_workspace_of_prelu_backward_needs_no_gradient() -> None:
    x = X.clone().requires_grad_()
    assert pyflowk.prelu_backward_workspace_bytes(x, X[0]) == pyflowk.prelu_backward_workspace_bytes(X, X[0])


def test_out_in_a_trace_is_a_copy_that_torch_sees() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    out = torch.empty(2, 3)
    graph = make_fx(lambda x, out: pyflowk.multiply(2.0, x, out=out))(X, out)
    graph(X + 1, out)
    assert torch.equal(out, 2 * (X + 1))
    with pytest.raises(TypeError, match=r"must be torch\.float32 of"):
        make_fx(lambda x, out: pyflowk.multiply(2.0, x, out=out))(X, out[0])


def test_dx_out_in_a_trace_is_a_copy_that_torch_sees() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    alpha, out = torch.rand(3), torch.empty(2, 3)
    graph = make_fx(lambda x, out: pyflowk.prelu_backward(x, x, alpha, dx_out=out))(X, out)
    dx, dalpha = graph(X - 1, out)
    expected = pyflowk.prelu_backward(X - 1, X - 1, alpha)
    assert torch.equal(out, expected[0]) and torch.equal(dx, out) and torch.equal(dalpha, expected[1])


def test_subclasses_get_the_operator() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = mode.from_tensor(X)
        result = pyflowk.permute(x, (1, 0), dtype="float16")
    assert type(result) is type(x) and result.shape == (3, 2) and result.dtype == torch.float16
    result = pyflowk.permute(x, (1, 0))  # outside the mode
    assert type(result) is type(x)
