"""Pictures of a value a round: medians as bars, with the least and the greatest round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from benchmarks.figures import Rate
from benchmarks.plots import Plot, PlotKind, Series
from benchmarks.statistics import middle

Rounds: TypeAlias = Mapping[str, Sequence[float]]
_CAPTION = "Bars are medians of the rounds, with the least and the greatest."


def bars(
    name: str, title: str, unit: str, series: Mapping[str, Rounds], *, x_label: str = "", is_log: bool = False
) -> Plot:
    """Return a picture of values side by side.

    Args:
        name, title: of the picture.
        unit: of the values.
        series: by label, by place on the x axis, one value a round. A place without values is left out.
        x_label: what the places are.
        is_log: whether the values differ by orders of magnitude.
    """
    lines = tuple(_series(label, rounds) for label, rounds in series.items())
    return Plot(name, title, x_label, unit, lines, PlotKind.BARS, _CAPTION, y_log=is_log)


def reads_a_second(name: str, title: str, rates: Iterable[Rate]) -> Plot:
    """Return a picture of contenders' rates; who was left out is not on it."""
    found = {rate.contender: [1 / took for took in rate.seconds_a_read] for rate in rates}
    return bars(name, title, "reads a second", {"reads a second": found})


def _series(label: str, rounds: Rounds) -> Series:
    there = {place: values for place, values in rounds.items() if values}
    values = there.values()
    return Series(label, tuple(there), tuple(map(middle, values)), tuple(map(min, values)), tuple(map(max, values)))
