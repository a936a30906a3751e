# SPDX-License-Identifier: Apache-2.0
"""The sets of an operator's cases, as `bench --set NAME[:ARGUMENT...]` names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Case = dict[str, Any]  # keyword arguments of the operator's Work
Shapes = Sequence[tuple[int, ...]]


class CaseSet(NamedTuple):
    """What --help says of a set, what makes its cases, and the arguments that may follow its name: SEED and COUNT are
    the first parameters of `cases`, TYPES is its parameter `types`."""

    text: str
    cases: Callable[..., Iterable[Case]]
    arguments: str = ""


class CaseSets(dict[str, CaseSet]):
    """The sets of an operator by their names."""

    def cases_of(self, name: str) -> list[Case]:
        """The cases of a set, by its name and arguments, "random:7:100" for example; KeyError if there is no such
        set."""
        set_name, *words = name.split(":")
        numbers = [int(word) for word in words if word.isdigit()]
        types = [word.split(",") for word in words if not word.isdigit()]
        return list(self[set_name].cases(*numbers, **({"types": types[0]} if types else {})))

    def lines(self) -> Iterator[tuple[str, str]]:
        """(Names and arguments, text) for --help: sets with the same text share a line."""
        for text in dict.fromkeys(one.text for one in self.values()):
            alike = {name: one.arguments for name, one in self.items() if one.text == text}
            yield ", ".join(alike) + next(iter(alike.values())), text


def set_of_shapes(text: str, shapes: Mapping[str, Shapes], default_types: Sequence[str]) -> CaseSet:
    """A set with each shape of each kind, in each type."""

    def cases(types: Sequence[str] = default_types) -> Iterator[Case]:
        for type_ in types:
            for kind, of_kind in shapes.items():
                yield from ({"kind": kind, "types": type_, "shape": shape} for shape in of_kind)

    return CaseSet(text, cases, "[:TYPES]")
