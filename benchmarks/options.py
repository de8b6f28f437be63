"""Options of the command lines: each is one field of its benchmark's dataclass, declared, passed and recorded there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from benchmarks.errors import BenchError

DEFAULT_ROUNDS: Final = 7
T = TypeVar("T")
_UNRECORDED: Final = ("seed", "rounds", "out")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every benchmark; those of one are a subclass, whose docstring is the help of its command.

    None and an empty list: as much as is usual.
    """

    quick: Annotated[
        bool,
        typer.Option("--quick", help="Little of everything, in a minute at most: shows that it works, not how fast."),
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn; of several, the first.")] = 1
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where JSON and charts go.")] = Path("bench-results")

    def recorded(self) -> dict[str, Any]:
        """Return what stands in the provenance of a run: no path."""
        given = {name: value for name, value in asdict(self).items() if name not in _UNRECORDED and value is not None}
        return {
            name: (", ".join(map(str, value)) or "all") if isinstance(value, list) else value
            for name, value in given.items()
        }


@dataclass(frozen=True, kw_only=True)
class GroupOptions(Options):
    """Options of a benchmark whose groups are measured in rounds."""

    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000, help=f"Rounds that count, of which the median is taken. [default: {DEFAULT_ROUNDS}]"
        ),
    ] = None
    only: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Run this group alone; may be repeated. A wrong name is answered with all."),
    ] = field(default_factory=list)

    def selected(self, groups: Mapping[str, T], usual: Collection[str] = ()) -> dict[str, T]:
        """Return the groups that are to run: those given, else the usual ones, else all.

        Raises:
            BenchError: there is none of a name.
        """
        check_names("group", self.only, groups)
        return {name: group for name, group in groups.items() if name in (self.only or usual or groups)}


def check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Check names that an option was given.

    Raises:
        BenchError: there is none of a name.
    """
    for name in given:
        if name not in known:
            raise BenchError(f"no {what} {name!r}; there are {', '.join(known)}")
