# SPDX-License-Identifier: Apache-2.0
"""The operators: what neither the signatures of their functions nor flowk.h say. The elementwise ones are the rows of
flowk/elementwise_ops.h.

An operator's parameters are those of its function in Python. From its signature come the parameters of its CallPath,
the schema of torch.ops.flowk, the function of pyflowk.jax and the stub; from flowk.h come the prototype in
_native/abi.py and the calls in C.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Operator(NamedTuple):
    """One operator.

    module       of its function, in pyflowk
    c_functions  what it calls
    c_names      the C parameters that have another name in Python, and this name
    torch        the types in the schema that do not follow from the signature; None for a parameter that the operator
                 lacks; None if torch.ops.flowk has no such operator
    jax          as `torch`, for the function of pyflowk.jax
    jax_text     what the text of that function adds
    """

    module: str
    c_functions: tuple[str, ...] = ()
    c_names: Mapping[str, str] = {}
    torch: Mapping[str, str | None] | None = {}
    jax: Mapping[str, str | None] | None = {}
    jax_text: str = ""


# The parameters of a call on memory, which no operator of a framework has.
OF_MEMORY = (
    "out",
    "dx_out",
    "dalpha_out",
    "dbias_out",
    "loss_out",
    "lse_out",
    "dsinks_out",
    "entropy_out",
    "workspace",
    "stream",
)
_PERMUTED = {"src": "x", "dst": "out", "rank": "x.ndim"}
_LAST = {"axis": None, "dim": None}  # over the last dimension alone
_SYMBOLIC = {"causal_offset": "SymInt", "window": "SymInt?"}

_SHARD = {"vocab_start": "SymInt", "vocab_size": "SymInt?"}
_CROSS_ENTROPY = {"loss": "loss_out", "lse": "lse_out", "entropy": "entropy_out", "rank": "logits.ndim"}

OPERATORS = {
    "permute": Operator(
        "_operators.permute",
        ("flowk_permute", "flowk_permute_convert"),
        _PERMUTED,
        torch={"axes": "int[]"},
        jax={"axes": "Iterable[int]"},
        jax_text="`scale` is a number.",
    ),
    "batch_transpose": Operator("_operators.permute", jax_text="`scale` is a number."),
    "permute_many": Operator(
        "_operators.permute_many",
        ("flowk_permute_many",),
        {"srcs": "xs", "dsts": "out", "rank": "xs[0].ndim"},
        torch=None,
        jax=None,
    ),
    "prelu": Operator("_operators.prelu", ("flowk_prelu",), {"y": "out"}),
    "prelu_backward": Operator(
        "_operators.prelu",
        ("flowk_prelu_backward",),
        {"dx": "dx_out", "dalpha": "dalpha_out", "workspace_bytes": "workspace.nbytes"},
        torch={"need_dx": None, "need_dalpha": None},
    ),
    "softmax": Operator("_operators.softmax_along", torch=_LAST, jax=_LAST, jax_text="Over the last dimension."),
    "log_softmax": Operator("_operators.softmax_along", torch=_LAST, jax=_LAST, jax_text="Over the last dimension."),
    "masked_softmax": Operator(
        "_operators.softmax",
        ("flowk_masked_softmax",),
        {"y": "out", "rank": "x.ndim", "lse": "lse_out"},
        torch=_SYMBOLIC | {"return_lse": None},
        jax_text="`scale` is a number. x, bias, sinks and row_scale have gradients.",
    ),
    "masked_softmax_backward": Operator(
        "_operators.softmax",
        ("flowk_masked_softmax_backward",),
        {"dx": "out", "rank": "dy.ndim", "dsinks": "dsinks_out", "x": "scores"},
        torch=_SYMBOLIC | {"return_dsinks": None},
        jax=dict.fromkeys(("sinks", "lse", "return_dsinks")),  # jax.grad has the gradient of the sinks
        jax_text="`scale` is a number.",
    ),
    "masked_softmax_backward_dbias": Operator(
        "_operators.softmax_dbias",
        ("flowk_masked_softmax_backward_dbias",),
        {"dx": "dx_out", "dbias": "dbias_out", "rank": "dy.ndim", "workspace_bytes": "workspace.nbytes"},
        torch=_SYMBOLIC | {"need_dx": None},
        jax_text="`scale` is a number.",
    ),
    "softmax_merge": Operator(
        "_operators.softmax_merge",
        ("flowk_softmax_merge",),
        {"y": "out", "lse": "lse_out", "rows": "lse1.size", "columns": "y1.shape[-1]"},
        jax_text="All four have gradients.",
    ),
    "cross_entropy": Operator(
        "_operators.cross_entropy",
        ("flowk_cross_entropy",),
        _CROSS_ENTROPY,
        jax_text="The numbers are Python's. logits has a gradient.",
    ),
    "cross_entropy_backward": Operator(
        "_operators.cross_entropy",
        ("flowk_cross_entropy_backward",),
        {"dlogits": "out", "rank": "logits.ndim"},
        torch=_SHARD,
        jax_text="The numbers are Python's.",
    ),
    "cross_entropy_partials": Operator(
        "_operators.cross_entropy", ("flowk_cross_entropy",), {"rank": "logits.ndim"}, torch=None, jax=None
    ),
    "cross_entropy_merge": Operator(
        "_operators.cross_entropy", ("flowk_cross_entropy_merge",), _CROSS_ENTROPY, torch=None, jax=None
    ),
}
