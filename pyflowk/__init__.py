# SPDX-License-Identifier: Apache-2.0
"""pyflowk: permute, batch transpose and PReLU on arrays of any kind, at the speed of a plain copy, GPU or not."""

from ._abi import VERSION, DType, Status
from ._errors import FlowkError, FlowkValueError
from ._library import version_text
from ._memory import DeviceArray, asarray, empty
from ._permute import batch_transpose, explain, permute
from ._prelu import prelu, prelu_backward, prelu_backward_workspace_bytes

__version__ = version_text(VERSION)

__all__ = [
    "DType",
    "DeviceArray",
    "FlowkError",
    "FlowkValueError",
    "Status",
    "asarray",
    "batch_transpose",
    "empty",
    "explain",
    "permute",
    "prelu",
    "prelu_backward",
    "prelu_backward_workspace_bytes",
]
