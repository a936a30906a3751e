# SPDX-License-Identifier: Apache-2.0
"""A PyTorch without one of the private names that pyflowk uses: calls are slower and right, or say what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

_PROGRAM = """
import json, operator, os, sys, traceback
from unittest import mock
import torch
import torch.autograd.forward_ad as forward_ad
import torch._dynamo, torch.fx.experimental.proxy_tensor  # which use some of the names themselves
import torch._ops, torch._prims_common

def hide(name):
    '''From pyflowk alone: PyTorch itself needs its names.'''
    owner, _, hidden = name.rpartition(".")
    owner = operator.attrgetter(owner.removeprefix("torch."))(torch)
    base = object if isinstance(owner, type) else type(owner)
    def get(one, asked):
        if asked == hidden and sys._getframe(1).f_globals["__name__"].startswith("pyflowk."):
            raise AttributeError(asked)
        return base.__getattribute__(one, asked)
    if isinstance(owner, type):
        owner.__getattribute__ = get  # of its objects
    else:
        owner.__class__ = type("Module", (base,), {"__getattribute__": get})

def check_plain():
    for _ in range(3):
        assert torch.equal(pyflowk.relu(x), x.relu())
        assert torch.equal(torch.ops.flowk.relu(x), x.relu())
        assert torch.equal(pyflowk.permute(x, (1, 0), dtype=torch.float64, scale=2.0), 2 * x.t().double())
    out = torch.empty_like(x)
    for _ in range(3):
        version = out._version
        assert pyflowk.relu(x, out=out) is out and torch.equal(out, x.relu()) and out._version == version + 1
    assert torch.equal(pyflowk.relu(x, stream=0), x.relu())
    assert torch.equal(pyflowk.permute_many([x, x], (1, 0))[1], x.T)
    assert pyflowk.explain(pyflowk.relu, x) == pyflowk.explain(pyflowk.relu, x.numpy()) != ""
    assert pyflowk.prelu_backward_workspace_bytes(x, x[0]) >= 0
    if name == "torch._C._cuda_getCurrentRawStream":
        check_current_stream()

def check_current_stream():
    with mock.patch.object(torch.cuda, "current_stream", lambda device: mock.Mock(cuda_stream=5)):
        assert gate.current_raw_stream(0) == 5

def check_gradients():
    w = x.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(pyflowk.relu(w).sum(), w)[0], (x > 0).float())
    assert torch.equal(torch.func.grad(lambda x: pyflowk.relu(x).sum())(x), (x > 0).float())
    assert torch.equal(torch.func.jvp(pyflowk.relu, (x,), (x,))[1], x.relu())
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(pyflowk.relu(forward_ad.make_dual(x, x))).tangent
        assert torch.equal(tangent, x.relu())
    assert torch.equal(torch.func.vmap(pyflowk.relu)(x), x.relu())
    with torch.autocast("cpu", torch.bfloat16):
        assert pyflowk.prelu(x, x[0]).dtype == torch.bfloat16
        assert pyflowk.relu(x).dtype == torch.float32

def check_traces():
    assert "flowk::relu" in str(torch.jit.trace(lambda x: pyflowk.relu(x), x).graph)
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: pyflowk.relu(x))(x)
    assert "flowk.relu" in str(graph.graph)

def check_shapes_alone():
    turned = torch.empty_strided((3, 2), (1, 3), device="meta")
    assert torch.ops.flowk.prelu(turned, turned[0]).stride() == (1, 3)
    assert torch.ops.flowk.prelu(turned[:, ::2], turned[0, :1]).stride() == (1, 1)
    assert torch.ops.flowk.relu(turned).stride() == (1, 3)

CHECKS = (check_plain, check_gradients, check_traces, check_shapes_alone)
x = torch.tensor([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]])
for name in sys.argv[1:]:  # each in a process of its own, which need not import PyTorch
    if os.fork():
        os.wait()
        continue
    errors = {}
    try:
        hide(name)
        import pyflowk.torch  # registers the operators
        from pyflowk._torch import gate
        for check in CHECKS:
            try:
                check()
            except BaseException as error:
                errors[check.__name__] = (str(error), traceback.format_exc())
    except BaseException as error:
        errors["import"] = (str(error), traceback.format_exc())
    print(json.dumps([name, errors]), flush=True)
    os._exit(0)
"""
NAMES = [
    *(f"torch._C.{name}" for name in ("_is_tracing", "_len_torch_dispatch_stack", "_are_functorch_transforms_active")),
    *(f"torch._C.{name}" for name in ("_increment_version", "_is_any_autocast_enabled", "_len_torch_function_stack")),
    *("torch._C._cuda_getCurrentRawStream", "torch.autograd.forward_ad._current_level"),
    *("torch._ops.OpOverloadPacket", "torch._ops.OpOverload._op", "torch._ops.OpOverload._schema"),
    *("torch._prims_common.is_non_overlapping_and_dense_or_false", "torch._C._dynamo.guards._empty_strided_cpu"),
]
# Of the names that have no replacement: what does not work without.
NEEDED = {
    "torch._C._AutoDispatchBelowAutograd": {"check_gradients", "check_traces", "check_shapes_alone"},
    "torch._prims_common.compute_elementwise_output_strides": {"check_shapes_alone"},
}


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, list[str]]]:
    """By name and check: the error's text, and its traceback."""
    program = [sys.executable, "-W", "ignore", "-c", _PROGRAM, *NAMES, *NEEDED]
    result = subprocess.run(program, env=dict(os.environ), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(line) for line in result.stdout.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_name_costs_time_alone(errors: dict[str, dict[str, list[str]]], name: str) -> None:
    assert errors[name] == {}, "\n".join(traceback for _, traceback in errors[name].values())


@pytest.mark.parametrize("name", NEEDED)
def test_a_call_that_needs_a_missing_name_says_so(errors: dict[str, dict[str, list[str]]], name: str) -> None:
    assert set(errors[name]) == NEEDED[name], "\n".join(traceback for _, traceback in errors[name].values())
    for text, _ in errors[name].values():
        assert f"PyTorch {torch.__version__} has no {name}, which this call needs" in text
