# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward in a CUDA graph of PyTorch."""

from __future__ import annotations

import pytest

import pyflowk

torch = pytest.importorskip("torch")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((96, 512, 7, 7), 1),
        ((8, 64, 56, 56), 1),
        ((4, 20, 57, 57), 1),
        ((9, 7, 7, 512), 3),
        ((4096, 64), 1),
        ((77, 9), 1),
    ],
    ids=str,
)
def test_a_captured_graph_replays(shape: tuple[int, ...], axis: int) -> None:
    x, dy, y, dx = torch.zeros(4, *shape, device="cuda", dtype=torch.float16)
    alpha, dalpha = torch.rand(shape[axis], device="cuda").half(), torch.zeros(shape[axis], device="cuda").half()
    num_bytes = max(16, pyflowk.prelu_backward_workspace_bytes(x, alpha, axis))
    workspace = torch.empty(num_bytes, dtype=torch.uint8, device="cuda")

    def calls() -> None:
        pyflowk.prelu(x, alpha, axis, out=y)
        pyflowk.prelu_backward(dy, x, alpha, axis, dx_out=dx, dalpha_out=dalpha, workspace=workspace)

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    x.normal_()
    dy.normal_()
    workspace.fill_(0xFF)
    graph.replay()
    replayed = [tensor.clone() for tensor in (y, dx, dalpha)]
    for tensor in (y, dx, dalpha):
        tensor.fill_(torch.nan)
    calls()
    assert all(torch.equal(a, b) for a, b in zip(replayed, (y, dx, dalpha), strict=True))
