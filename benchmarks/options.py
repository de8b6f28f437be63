"""Options of the command lines: fields of the benchmarks' dataclasses, declared, passed and recorded there."""

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
    """Options of every benchmark. A subclass has those of one benchmark, with the command's help as docstring.

    None and an empty list stand for the usual amount.
    """

    quick: Annotated[
        bool,
        typer.Option("--quick", help="Little of everything, in a minute at most: shows that it works, not how fast."),
    ] = False
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn; of several, the first.")] = 1
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where JSON and charts go.")] = Path("bench-results")

    def recorded(self) -> dict[str, Any]:
        """Return the options for the provenance of a run, without paths."""
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
        """Return the groups to run: the given ones, or otherwise the usual ones, or otherwise all.

        Raises:
            BenchError: a name is unknown.
        """
        check_names("group", self.only, groups)
        return {name: group for name, group in groups.items() if name in (self.only or usual or groups)}


def check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Check the names given to an option.

    Raises:
        BenchError: a name is unknown.
    """
    for name in given:
        if name not in known:
            raise BenchError(f"no {what} {name!r}; there are {', '.join(known)}")
