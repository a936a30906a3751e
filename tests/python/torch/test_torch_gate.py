# SPDX-License-Identifier: Apache-2.0
"""Which calls on torch's tensors are plain, and that no call is silently wrong."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import pyflowk  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)


def test_a_plain_call_gives_torch_s_values() -> None:
    assert torch.equal(pyflowk.permute(X, (1, 0)), X.T)
    assert torch.equal(pyflowk.add(X, X[0]), X + X[0])
    assert torch.equal(pyflowk.relu(torch.nn.Parameter(X - 2).detach()), (X - 2).relu())


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
        pyflowk.mul(parameter, 2.0, out=parameter)
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


def test_a_view_is_read_in_place() -> None:
    view = torch.arange(24.0).reshape(4, 6)[::2, ::3]
    assert torch.equal(pyflowk.permute(view, (1, 0)), view.T)


def test_explain_needs_no_gradient() -> None:
    assert pyflowk.explain(pyflowk.relu, X.clone().requires_grad_()) == pyflowk.explain(pyflowk.relu, X)


@pytest.mark.parametrize("parameter", ["x", "y", "out"])
def test_a_call_in_autograd_is_refused(parameter: str) -> None:
    tensors = {name: torch.ones(3) for name in ("x", "y", "out")}
    tensors[parameter].requires_grad_()
    with pytest.raises(TypeError, match="autograd is on and a tensor requires grad"):
        pyflowk.add(**tensors)
    assert tensors["out"]._version == 0


def test_a_call_in_a_trace_is_refused() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def double(x: torch.Tensor) -> torch.Tensor:
        return pyflowk.mul(2.0, x)

    for trace in (make_fx(double), torch.func.vmap(double), lambda x: torch.jit.trace(double, x)):
        with pytest.raises(TypeError, match="torch traces or transforms this call"):
            trace(X)
