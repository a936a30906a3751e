# SPDX-License-Identifier: Apache-2.0
"""What makes the campaign's cases: by function of flowk.h, and pyflowk's checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from campaign_case import Case
from cross_entropy_campaign import cross_entropy_backward_case, cross_entropy_case
from elementwise_campaign import elementwise_case
from permute_campaign import batch_transpose_case, permute_case, permute_convert_case
from prelu_campaign import prelu_backward_case, prelu_case
from python_campaign import check_elementwise, check_permute, check_prelu, check_softmax
from softmax_campaign import softmax_backward_case, softmax_case
from softmax_dbias_campaign import softmax_dbias_case
from softmax_merge_campaign import softmax_merge_case

# make(r, library, room): a call with about `room` elements per tensor at most; 0: as the campaign draws them.
MAKERS: dict[str, Callable[[random.Random, Any, int], Case]] = {
    "permute": lambda r, _, room: permute_case(r, room),
    "batch_transpose": lambda r, _, room: batch_transpose_case(r, room),
    "permute_convert": lambda r, _, room: permute_convert_case(r, room),
    "elementwise": lambda r, _, room: elementwise_case(r, room),
    "prelu": lambda r, _, room: prelu_case(r, room),
    "prelu_backward": prelu_backward_case,
    "softmax": lambda r, _, room: softmax_case(r, room),
    "softmax_backward": lambda r, _, room: softmax_backward_case(r, room),
    "softmax_dbias": softmax_dbias_case,
    "softmax_merge": lambda r, _, room: softmax_merge_case(r, room),
    "cross_entropy": cross_entropy_case,
    "cross_entropy_backward": lambda r, _, room: cross_entropy_backward_case(r, room),
}
# These have tests of bad arguments and of overlaps of their own.
OF_BAD_INPUT = [name for name in MAKERS if not name.startswith(("cross_entropy", "softmax_dbias", "softmax_merge"))]

PYTHON_CHECKS: dict[str, Callable[[random.Random, Any], None]] = {
    "pyflowk_elementwise": check_elementwise,
    "pyflowk_permute": check_permute,
    "pyflowk_prelu": check_prelu,
    "pyflowk_softmax": check_softmax,
}
