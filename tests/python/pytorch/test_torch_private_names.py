# SPDX-License-Identifier: Apache-2.0
"""A PyTorch without one of the private functions that pyflowk asks: calls are slower, and as right."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

_PROGRAM = """
import sys
import torch
import torch.autograd.forward_ad as forward_ad
import torch._dynamo, torch.fx.experimental.proxy_tensor  # which use some of the names themselves
module, name = sys.argv[1].rsplit(".", 1)
owner = {"torch._C": torch._C, "forward_ad": forward_ad}[module]
kept = getattr(owner, name)
delattr(owner, name)
import pyflowk.torch  # registers the operators
x = torch.tensor([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]])
setattr(owner, name, kept)  # PyTorch itself needs it
for _ in range(3):
    assert torch.equal(pyflowk.relu(x), x.relu())
    assert torch.equal(torch.ops.flowk.relu(x), x.relu())
out = torch.empty_like(x)
for _ in range(3):
    version = out._version
    assert pyflowk.relu(x, out=out) is out and torch.equal(out, x.relu()) and out._version > version
assert torch.equal(pyflowk.relu(x, stream=0), x.relu())
assert torch.equal(pyflowk.permute_many([x, x], (1, 0))[1], x.T)
assert pyflowk.explain(pyflowk.relu, x)
assert pyflowk.prelu_backward_workspace_bytes(x, x[0]) >= 0
w = x.clone().requires_grad_()
assert torch.equal(torch.autograd.grad(pyflowk.relu(w).sum(), w)[0], (x > 0).float())
assert torch.equal(torch.func.grad(lambda x: pyflowk.relu(x).sum())(x), (x > 0).float())
assert torch.equal(torch.func.jvp(pyflowk.relu, (x,), (x,))[1], x.relu())
with forward_ad.dual_level():
    tangent = forward_ad.unpack_dual(pyflowk.relu(forward_ad.make_dual(x, x))).tangent
    assert torch.equal(tangent, x.relu())
assert torch.equal(torch.func.vmap(pyflowk.relu)(x), x.relu())
assert "flowk::relu" in str(torch.jit.trace(lambda x: pyflowk.relu(x), x).graph)
graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: pyflowk.relu(x))(x)
assert "flowk.relu" in str(graph.graph)
with torch.autocast("cpu", torch.bfloat16):
    assert pyflowk.prelu(x, x[0]).dtype == torch.bfloat16
    assert pyflowk.relu(x).dtype == torch.float32
"""
NAMES = [
    *(f"torch._C.{name}" for name in ("_is_tracing", "_len_torch_dispatch_stack", "_are_functorch_transforms_active")),
    *(f"torch._C.{name}" for name in ("_increment_version", "_is_any_autocast_enabled", "_len_torch_function_stack")),
    "forward_ad._current_level",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_name_costs_time_alone(name: str) -> None:
    program = [sys.executable, "-W", "ignore", "-c", _PROGRAM, name]
    result = subprocess.run(program, check=False, env=dict(os.environ), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
