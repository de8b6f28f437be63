"""Dependencies of a query's result on the graph, which `plans` finds and `loads` turns into tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Key:
    """A key's values in a query's parameters: ``("*", "id")`` in ``$rows``, for example, means each row's ``id``."""

    parameter: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"${self.parameter}{_text_of(self.path)}"

    def values(self, parameters: Mapping[str, Any]) -> list[Any] | None:
        """Return the values, or None if the parameters do not have them."""
        found: list[Any] = [parameters.get(self.parameter)]
        for step in self.path:
            if step == "*":
                if not all(isinstance(one, list | tuple) for one in found):
                    return None
                found = [each for one in found for each in one]
            else:
                if not all(isinstance(one, Mapping) for one in found):
                    return None
                found = [one.get(step) for one in found]
        return found


@dataclass(frozen=True, slots=True)
class Dependency:
    """Nodes of a label, or relationships of a type, on which a result depends.

    With ``key`` these are the nodes whose ``key_property`` the parameters give; with ``shown`` the nodes that the
    result's rows show, by column and path to the key or the node. Otherwise it depends on all of them, and ``why``
    tells how to depend on less. ``label`` is the label of a relationship's end.
    """

    name: str
    is_type: bool = False
    label: str = ""
    key_property: str = ""
    key: Key | None = None
    shown: tuple[str, ...] = ()
    why: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.key is None and not self.shown:
            return self.name
        which = str(self.key) if self.key else f"{self.shown[0]}{_text_of(self.shown[1:])}"
        return f"{self.name}{self.label and f'@{self.label}'}:{self.key_property}={which}"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies of a result; ``gaps`` lists possible dependencies that no tag covers."""

    found: tuple[Dependency, ...] = ()
    gaps: tuple[str, ...] = ()


def _text_of(path: tuple[str, ...]) -> str:
    return "".join("[]" if step == "*" else f".{step}" for step in path)
