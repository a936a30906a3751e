# SPDX-License-Identifier: Apache-2.0
"""Other libraries on the same buffers, if they are installed and take the case. Each result is checked, within 2 %,
before it is timed."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .._native.abi import Status
from .._native.c_types import StreamHandle
from . import cutensor
from .plain import plain_call
from .tensors import NAMES, Tensor
from .work import Work

Replay = Callable[[], object]
OLD_LIBRARY = "FLOWK_OLD_LIBRARY"  # the variable that names the file of the rival `old`


class Unsuitable(Exception):
    """A rival has no such case."""


def rivals_of(machine: Any, work: Work, names: Sequence[str]) -> tuple[dict[str, Replay], dict[str, str]]:
    """The graphs of the rivals that take a case and are right, and why each of the others is left out."""
    graphs: dict[str, Replay] = {}
    skipped: dict[str, str] = {}
    for name in names:
        try:
            graphs[name] = RIVALS[name](machine, work)
        except Exception as error:  # of any type: a rival raises its own
            skipped[name] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
    return graphs, skipped


def is_installed(name: str) -> bool:
    """Whether a rival can be tried at all."""
    if name == "cutensor":
        try:
            return cutensor.library() is not None
        except ImportError:
            return False
    if name == "old":
        return bool(os.environ.get(OLD_LIBRARY))
    package = {"compile": "torch", "jit": "cuda.core", "plain": "cuda.core"}.get(name, name)
    try:
        return find_spec(package) is not None
    except ImportError:  # of its parent
        return False


def _checked(machine: Any, work: Work, call: Callable[[int], Any], keep: Callable[[Any], None] | None = None) -> None:
    """Unsuitable if the call's result on the first buffers is not right; `keep` copies it to outs[0]."""
    work.poison()
    result = call(0)
    if keep is not None and result is not None:
        keep(result)
    machine.synchronize()
    if not work.check_rival():
        raise Unsuitable("gives other values")


# ---- PyTorch


def _torch_view(torch: Any, tensor: Tensor) -> Any:
    raw = torch.from_dlpack(tensor.memory)
    flat = raw[: tensor.num_bytes].view(getattr(torch, NAMES[tensor.kind]))
    return flat.as_strided(tensor.shape, tensor.strides, tensor.first)


def _torch_replay(machine: Any, work: Work, function_of: Callable[[Any], Callable[..., Any] | None]) -> Replay:
    """A CUDA graph on the bench's stream, made by PyTorch because its allocator must know of the capture."""
    torch = import_module("torch")
    function = function_of(torch)
    if function is None:
        raise Unsuitable("has no such case")
    operands = [[_torch_view(torch, tensor) for tensor in work.rival_operands(i)] for i in range(work.num_sets)]
    out = _torch_view(torch, work.rival_out())

    def call(i: int) -> Any:
        return function(*operands[i])

    def keep(result: Any) -> None:
        out.copy_((result[0] if isinstance(result, tuple) else result).reshape(out.shape))

    if not machine.has_graphs:
        _checked(machine, work, call, keep)
        return lambda: [call(i) for i in range(work.num_sets)]
    stream = torch.cuda.ExternalStream(machine.stream)
    with torch.cuda.stream(stream):
        _checked(machine, work, call, keep)
        for i in range(work.num_sets):
            call(i)
    machine.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        results = [call(i) for i in range(work.num_sets)]  # kept to the end, so that each has memory of its own
    del results

    def replay(_held: object = function) -> None:  # it may have tensors that the graph reads
        with torch.cuda.stream(stream):
            graph.replay()

    return replay


def _torch(machine: Any, work: Work) -> Replay:
    return _torch_replay(machine, work, getattr(work, "eager", work.formula))


def _compile(machine: Any, work: Work) -> Replay:
    def compiled(torch: Any) -> Callable[..., Any] | None:
        function = work.formula(torch)
        torch._dynamo.reset()
        return torch.compile(function, dynamic=False) if function else None

    return _torch_replay(machine, work, compiled)


def _quack(machine: Any, work: Work) -> Replay:
    if (function := _QUACK.get((work.op, work.kind))) is None:
        raise Unsuitable("has no such case")
    softmax, loss = import_module("quack.softmax"), import_module("quack.cross_entropy")
    return _torch_replay(machine, work, lambda torch: function(softmax, loss, work.operands[0][0].shape[-1]))


# quack's function of a case, from its modules of softmax and of cross-entropy and the number of columns.
_QUACK: dict[tuple[str, str], Callable[[Any, Any, int], Callable[..., Any]]] = {
    ("softmax", "plain"): lambda softmax, _, columns: lambda x: softmax.softmax(x.view(-1, columns)),
    ("softmax", "backward"): lambda softmax, _, columns: (
        lambda dy, y: softmax.softmax_bwd(dy.view(-1, columns), y.view(-1, columns))
    ),
    ("cross_entropy", "forward"): lambda _, loss, columns: (
        lambda x, targets: loss.cross_entropy_fwd(x, targets, return_lse=True)
    ),
    ("cross_entropy", "backward"): lambda _, loss, columns: (
        lambda x, targets, lse, dloss: loss.cross_entropy_bwd(x, targets, dloss, lse)
    ),
}


# ---- others, captured like flowk


def _captured(machine: Any, work: Work, call: Callable[[int], Any]) -> Replay:
    _checked(machine, work, call)
    replay: Replay = machine.graph(call, work.num_sets)
    return replay


def _cupy(machine: Any, work: Work) -> Replay:
    cupy = import_module("cupy")
    if work.op != "permute" or getattr(work, "scale", 1.0) != 1:
        raise Unsuitable("no one pass that scales and casts, no formula of the others")
    axes, stream = work.axes, cupy.cuda.ExternalStream(machine.stream)  # type: ignore[attr-defined]

    def view(tensor: Tensor) -> Any:
        flat = cupy.from_dlpack(tensor.memory)[: tensor.num_bytes].view(NAMES[tensor.kind])[tensor.first :]
        strides = [stride * tensor.itemsize for stride in tensor.strides]
        return cupy.lib.stride_tricks.as_strided(flat, tensor.shape, strides)

    views = [(view(x).transpose(axes), view(out)) for (x,), out in zip(work.operands, work.outs)]

    def call(i: int) -> None:
        with stream:
            cupy.copyto(views[i][1], views[i][0], casting="unsafe")

    return _captured(machine, work, call)


def _cutensor(machine: Any, work: Work) -> Replay:
    if work.op != "permute" or work.function != "permute":
        raise Unsuitable("has no such case")
    return _captured(machine, work, cutensor.cutensor_call(machine, work))


def _jit(machine: Any, work: Work) -> Replay:
    """pyflowk.ElementwiseKernel with the case's formula."""
    formula = getattr(work, "jit", "")
    if not formula:
        raise Unsuitable("the case has no formula")
    kernel_class = import_module("pyflowk").ElementwiseKernel
    names = "xy"[: len(work.operands[0])]
    kernel = kernel_class(", ".join(f"T {name}" for name in names), "T z", formula)

    def view(tensor: Tensor) -> Any:
        strides = tuple(stride * tensor.itemsize for stride in tensor.strides)
        return tensor.memory._view(tensor.first * tensor.itemsize, tensor.shape, strides, NAMES[tensor.kind])

    views = [([view(x) for x in inputs], view(out)) for inputs, out in zip(work.operands, work.outs)]
    return _captured(machine, work, lambda i: kernel(*views[i][0], out=views[i][1], stream=machine.stream))


def _plain(machine: Any, work: Work) -> Replay:
    """The simple kernel with which the article begins."""
    return _captured(machine, work, plain_call(machine, work))


@functools.cache
def _opened(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)


def _old(machine: Any, work: Work) -> Replay:
    """The same call of another libflowk, such as the one before a change."""
    function = getattr(_opened(os.environ[OLD_LIBRARY]), f"flowk_{work.function}")  # AttributeError: it is newer
    bound = getattr(machine.c, f"flowk_{work.function}")
    function.argtypes, function.restype = bound.argtypes, bound.restype

    def call(i: int) -> None:
        if status := function(*work.calls[i], *work.workspace, StreamHandle(machine.stream)):
            raise Unsuitable(f"returns {Status(status).name}")

    return _captured(machine, work, call)


RIVALS: dict[str, Callable[[Any, Work], Replay]] = {
    "torch": _torch, "compile": _compile, "cupy": _cupy, "cutensor": _cutensor, "quack": _quack, "jit": _jit,
    "plain": _plain, "old": _old,
}  # fmt: skip
