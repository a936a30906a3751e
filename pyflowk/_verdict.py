# SPDX-License-Identifier: Apache-2.0
"""The last line of explain(): whether a call is as fast as its memory, and if not, what to change."""

from __future__ import annotations

import re

from ._program import Program

# By the mechanism's name, with which the text of a step begins.
_SLOW = {
    "byte_tile": "rows of single bytes do not begin at multiples of 16: pad the last dimension to a multiple of 16",
    "strided_tile": "no dimension of the source or of the result has stride 1: copy the slice once",
    "split_row": "few rows for the GPU: more rows per call run faster",
    "two_pass_row": "rows that no block holds are read twice: shorter rows run faster",
}
# In the text of a step.
_SLOW_LAYOUTS = {
    "element by element": "the last dimension of an operand has another stride than 1: pass a contiguous one",
    "packs cut from aligned accesses": "an operand, or a row of it, does not begin at a multiple of 16 bytes: align it",
}


def verdict(program: Program, text: str) -> str:
    """`fast`, or each extra pass and each reason why the call is slow; `text` is the plan's in words."""
    reasons = [_extra_pass(step.heading) for step in program.steps if step.heading]
    reasons += [f"slow because {_SLOW[name]}" for name in re.findall(r"^(\w+):", text, re.MULTILINE) if name in _SLOW]
    reasons += [f"slow because {reason}" for words, reason in _SLOW_LAYOUTS.items() if words in text]
    return "; ".join(dict.fromkeys(reasons)) or "fast"


def _extra_pass(heading: str) -> str:
    copied = re.match(r"on contiguous copies of ([^;]*), by", heading)
    if copied:
        verb = "are" if "," in copied[1] else "is"
        return f"extra pass: {copied[1]} {verb} copied because the kernel needs contiguous rows"
    converted = re.match(r"(\w+) is converted to (\w+) first", heading)
    return f"extra pass: {converted[0].removesuffix(' first')}: pass operands of one type" if converted else "fast"
