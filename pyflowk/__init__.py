# SPDX-License-Identifier: Apache-2.0
"""pyflowk: permute and batch transpose on arrays of any kind, at the speed of a plain copy; with a GPU and without."""

from ._abi import VERSION, DType, Status
from ._errors import FlowkError, FlowkValueError
from ._library import version_text
from ._memory import DeviceArray, asarray, empty
from ._permute import batch_transpose, explain, permute

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
]
