# SPDX-License-Identifier: Apache-2.0
"""Which memory a remembered exchange keeps alive. A made-up handle over host memory stands in for symmetric memory."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("a torch without torch.distributed", allow_module_level=True)

from pyflowk.distributed import transports  # noqa: E402
from pyflowk.distributed.shard_layout import ShardLayout  # noqa: E402


@pytest.mark.usefixtures("host_library")
def test_a_remembered_exchange_does_not_keep_the_memory_of_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers: list[torch.Tensor] = []

    def get_buffer(peer: int, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> torch.Tensor:
        buffers.append(torch.zeros(shape, dtype=dtype))
        return buffers[-1]

    handle = SimpleNamespace(get_buffer=get_buffer, barrier=lambda channel, timeout_ms: None)
    monkeypatch.setattr(transports, "_handle_of", lambda out, group: handle)
    monkeypatch.setattr(transports, "_timeout_ms", lambda group, device: 1)
    monkeypatch.setattr(transports, "current_raw_stream", lambda device: 0)
    layout = ShardLayout((4, 6), (1, 0), 0, 0, 2)
    x = torch.arange(12.0).reshape(2, 6)
    memory = torch.zeros(48, dtype=torch.uint8)
    storage = memory.untyped_storage()
    gone: list[bool] = []
    weakref.finalize(storage, gone.append, True)
    target = memory.view(torch.float32).view(3, 4)
    exchange = transports.Exchange(layout, 0, None, torch.float32, 1.0)

    call = transports.FusedCall(exchange, x, target)
    call(x)
    assert torch.equal(target[:, :2], x[:, :3].T)
    assert torch.equal(buffers[0][:, :2], x[:, 3:].T)
    buffer = weakref.ref(buffers.pop())
    del memory, storage, target
    gc.collect()
    assert gone  # so that empty() drops the exchange, and with it what it keeps of the peers
    assert buffer() is not None
    del call
    gc.collect()
    assert buffer() is None
