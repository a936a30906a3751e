# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training step goes: the time of every operator, in groups.

"mask" is scale and bias too, and the sum that is the gradient of the positions; "permute" every copy of a view, and of
gradients that are put together; "generated" is code of torch.compile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

GROUPS = (
    *("preparation", "matmul", "convolution", "fused attention", "softmax", "mask", "permute", "activation", "cast"),
    *("norm", "loss", "optimizer", "generated", "other"),
)

# The first rule decides that has one of its words in the name of the operator or of one of its callers.
_BY_CALLER = (
    ("generated", ("triton_",)),
    ("preparation", ("preparation",)),
    ("optimizer", ("Optimizer.", "_fused_adam", "_foreach_")),
    ("fused attention", ("scaled_dot_product", "flash_attention", "efficient_attention", "cudnn_attention")),
    ("loss", ("cross_entropy", "CrossEntropy", "nll_loss", "log_softmax", "NllLoss", "LogSoftmax")),
    ("softmax", ("masked_softmax", "flowk::softmax", "aten::_softmax", "SoftmaxBackward")),
    ("mask", ("masked_fill", "MaskedFill")),
    ("activation", ("gelu", "Gelu", "prelu", "Prelu", "PreLu")),
    ("norm", ("layer_norm", "LayerNorm")),
    ("cast", ("aten::_to_copy",)),
    ("permute", ("permute", "aten::clone", "aten::contiguous", "aten::cat", "aten::stack")),
    ("matmul", ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")),
    ("convolution", ("convolution", "Convolution")),
)


def group_of(names: list[str]) -> str:
    """The group of an operator, by its name and those of its callers, innermost first."""
    for group, words in _BY_CALLER:
        if any(word in name for name in names for word in words):
            return group
    # Only attention multiplies (by its scale) and adds in place; the sum is the gradient of its bias.
    in_backward = any("Backward" in name for name in names)
    is_bias = names[0] == "aten::sum" and any("AddBackward" in name or "ExpandBackward" in name for name in names)
    is_bias = is_bias or (names[0] == "aten::add_" and not in_backward)
    return "mask" if is_bias or names[0] == "aten::mul" else "other"


def _names(event: Any) -> list[str]:
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return names


def profile_steps(
    step: Callable[[], object], num_steps: int, device: torch.device, *, outside: str = "other"
) -> dict[str, Any]:
    """Milliseconds per step by group; `operators`, the same by group and operator, largest first; `kernels`, the ten
    kernels that take longest. On a GPU the time of kernels, else of the operators themselves. `outside` is the group of
    kernels that no operator of PyTorch has launched: pyflowk's on tensors without gradients."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as recorded:
        for _ in range(num_steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()
    on_cpu = [event for event in recorded.events() if event.device_type == DeviceType.CPU]
    ranges = {event.name for event in on_cpu}  # GPU events have them too, around their kernels
    groups: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    operators: dict[tuple[str, str], float] = defaultdict(float)
    kernels: dict[str, float] = defaultdict(float)
    launched_by_none: dict[str, float] = defaultdict(float)
    for event in recorded.events():
        if event.device_type != DeviceType.CPU and event.name not in ranges:
            kernels[event.name] += event.time_range.elapsed_us() / 1000 / num_steps
            launched_by_none[event.name] += event.time_range.elapsed_us() / 1000 / num_steps
    for event in on_cpu:
        for kernel in event.kernels:
            launched_by_none[kernel.name] -= kernel.duration / 1000 / num_steps
        time = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if time > 0:
            names = _names(event)
            operators[group_of(names), names[0]] += time / 1000 / num_steps
    for name, time in launched_by_none.items():
        if time > 1e-6:
            operators[outside, name] += time
    for (group, _), time in operators.items():
        groups[group] += time
    return {
        "groups": groups,
        "operators": [[*key, time] for key, time in sorted(operators.items(), key=lambda one: -one[1])][:40],
        "kernels": sorted(kernels.items(), key=lambda one: -one[1])[:10],
    }
