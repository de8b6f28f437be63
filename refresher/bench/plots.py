"""Pictures of a report: said as data, drawn as PNG and SVG, and drawn again from the JSON that keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refresher.bench.errors import BenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart also by those who see fewer; black is for what is compared with.
COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C8C8C",
    "#7F3C8D",
    "#B5A300",
)
_MARKERS: Final = "osD^vP*Xph"
_INCHES: Final = (8.0, 4.5)
_MOST_MARKED: Final = 40
_MOST_LETTERS: Final = 60  # of names side by side below bars


class PlotKind(StrEnum):
    """How series are drawn."""

    LINES = "lines"
    STEPS = "steps"
    POINTS = "points"
    BARS = "bars"


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one bar in each group.

    Attributes:
        label: in the legend.
        x: numbers; of bars the names of the groups.
        y: a number for each.
        low, high: the spread about each, or empty.
    """

    label: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture.

    Attributes:
        name: of its files, without ``.png`` and ``.svg``.
        title, x_label, y_label: in words, units in brackets.
        caption: below it on the page of results: what one sees there, never a figure.
        x_log, y_log: logarithmic axes.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: PlotKind = PlotKind.LINES
    caption: str = ""
    x_log: bool = False
    y_log: bool = False


def draw(plot: Plot, folder: Path) -> list[Path]:
    """Draw the picture into the folder, and return its two paths.

    Raises:
        BenchError: matplotlib is not installed.
        OSError: the folder can't be written to.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchError("pictures need matplotlib: pip install 'refresher[bench]'") from error
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.add_subplot()
    (_draw_bars if plot.kind is PlotKind.BARS else _draw_lines)(plot, axes)
    axes.set_title(plot.title, loc="left", fontsize=11)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    if plot.y_log:
        axes.set_yscale("log")
        lowest = min((y for series in plot.series for y in series.y if y > 0), default=1.0)
        if plot.kind is PlotKind.BARS:  # the least one is to be seen, too
            axes.set_ylim(bottom=lowest / 2)
    axes.grid(visible=True, axis="y", linewidth=0.4, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(plot.series) > 1:
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    paths = [folder / f"{plot.name}.png", folder / f"{plot.name}.svg"]
    # Without the date and with names that are not drawn, the same data gives the same file.
    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "path"}):
        figure.savefig(paths[0], dpi=120, metadata={"Software": None})
        figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def _draw_lines(plot: Plot, axes: Axes) -> None:
    for number, series in enumerate(plot.series):
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        marked = marker if plot.kind is PlotKind.POINTS or len(series.x) <= _MOST_MARKED else ""
        # Beyond the colours there are, the same ones again, dashed.
        style = "none" if plot.kind is PlotKind.POINTS else "-" if number < len(COLOURS) else "--"
        axes.plot(
            series.x, series.y, label=series.label, color=colour, marker=marked, markersize=4, linestyle=style,
            drawstyle="steps-post" if plot.kind is PlotKind.STEPS else "default", linewidth=1.4,
        )  # fmt: skip
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
    if plot.x_log:
        axes.set_xscale("log")


def _draw_bars(plot: Plot, axes: Axes) -> None:
    groups = list(dict.fromkeys(name for series in plot.series for name in series.x))
    width = 0.8 / len(plot.series)
    for number, series in enumerate(plot.series):
        places = [groups.index(name) + (number - (len(plot.series) - 1) / 2) * width for name in series.x]
        around = None
        if series.low:
            around = [
                [value - low for value, low in zip(series.y, series.low, strict=True)],
                [high - value for value, high in zip(series.y, series.high, strict=True)],
            ]
        axes.bar(
            places, series.y, width=width * 0.9, label=series.label, color=COLOURS[number % len(COLOURS)],
            yerr=around, error_kw={"linewidth": 0.8},
        )  # fmt: skip
    is_crowded = sum(len(str(name)) for name in groups) > _MOST_LETTERS
    axes.set_xticks(range(len(groups)), [str(name) for name in groups], rotation=40 if is_crowded else 0)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right" if is_crowded else "center")
