# SPDX-License-Identifier: Apache-2.0
"""Arguments that are no arrays: integers, booleans and numbers. Each error names the parameter and what it must be."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import numpy as np


def integer(value: SupportsIndex, name: str) -> int:
    """operator.index(value) of the argument `name`; TypeError if it is no integer, as 2.0 is not."""
    try:
        return int(operator.index(value))  # of True, index() is True
    except TypeError as error:
        raise TypeError(f"{name} is {shown(value)}, must be an integer") from error


def integer_in(value: SupportsIndex, name: str, smallest: int, largest: int, largest_text: str = "") -> int:
    """integer() in smallest ... largest; ValueError if it is outside."""
    number = integer(value, name)
    if not smallest <= number <= largest:
        raise ValueError(f"{name} = {shown(number)}, must be in {smallest} ... {largest_text or largest}")
    return number


def axis_of(axis: SupportsIndex, name: str, rank: int) -> int:
    """The dimension that the argument `name` names of x, counted from the first; ValueError if x has no such one."""
    found = integer(axis, name)
    if not -rank <= found < rank:
        raise ValueError(
            f"{name} = {shown(found)}, x has {count_of(rank, 'dimension')}: must be in {-rank} ... {rank - 1}"
        )
    return found % rank


def boolean(value: object, name: str) -> bool:
    """A bool of Python or NumPy; TypeError for anything else, 1 and "no" too."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} = {shown(value)}, must be True or False")
    return bool(value)


def number(value: Any, name: str) -> float:
    """A real number as a float: Python's, a NumPy scalar, or an array without dimensions. TypeError for anything else,
    a string that float() takes too."""
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    is_number = not isinstance(value, (str, bytes, bytearray)) and kind not in "cmMOSTU"
    try:
        if is_number and getattr(value, "shape", ()) == ():
            return float(value)
    except OverflowError as error:
        raise OverflowError(f"{name} = {shown(value)}, must be in the range of float64") from error
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} is {shown(value)}, must be a number")


def non_negative(value: Any, name: str) -> float:
    """number() that is finite and >= 0; ValueError for others."""
    found = value if type(value) is float else number(value, name)  # torch.compile cannot trace number() of a float
    if not 0 <= found < float("inf"):
        raise ValueError(f"{name} = {shown(found)}, must be finite and >= 0")
    return found


def kind_of(value: object) -> str:
    """The type of an argument in an error: "a list", "an int"."""
    return kind_named(type(value).__name__)


def kind_named(name: str) -> str:
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """1 dimension, 2 dimensions."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shown(value: object) -> str:
    """`value` in an error: its repr, cut if it is long."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:  # a long integer inside
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}... (a {type(value).__name__})"
