# SPDX-License-Identifier: Apache-2.0
"""pyflowk: permute, batch transpose and masked softmax on arrays of any kind, with a GPU and without."""

from ._abi import VERSION, DType, Status
from ._errors import FlowkError, FlowkValueError
from ._library import version_text
from ._memory import DeviceArray, asarray, empty
from ._permute import batch_transpose, explain, permute
from ._softmax import log_softmax, masked_softmax, masked_softmax_backward, softmax

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
    "log_softmax",
    "masked_softmax",
    "masked_softmax_backward",
    "permute",
    "softmax",
]
