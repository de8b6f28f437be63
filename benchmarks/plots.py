"""Pictures of a report: said as data, drawn as PNG and SVG, and drawn again from the JSON that keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal

from benchmarks.errors import BenchError

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
_MAX_MARKED: Final = 40
_LETTERS_ABREAST: Final = 76  # of names side by side below bars


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
        raise BenchError("pictures need matplotlib: `make bench` installs it") from error
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.add_subplot()
    (_draw_bars if plot.kind is PlotKind.BARS else _draw_lines)(plot, axes)
    axes.set_title(plot.title, loc="left", fontsize=11)
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
        marked = marker if plot.kind is PlotKind.POINTS or len(series.x) <= _MAX_MARKED else ""
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
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    _scale(axes, "y", is_log=plot.y_log)


def _draw_bars(plot: Plot, axes: Axes) -> None:
    """Draw bars that stand, or lie where their names are too long to stand side by side below them."""
    groups = list(dict.fromkeys(str(name) for series in plot.series for name in series.x))
    letters = _LETTERS_ABREAST // len(groups)
    lie = any(len(word) > letters for name in groups for word in name.split())
    width = 0.8 / len(plot.series)
    for number, series in enumerate(plot.series):
        places = [groups.index(str(name)) + (number - (len(plot.series) - 1) / 2) * width for name in series.x]
        around = _spread(series)
        looks: dict[str, Any] = {
            "label": series.label, "color": COLOURS[number % len(COLOURS)], "error_kw": {"linewidth": 0.8},
        }  # fmt: skip
        if lie:
            axes.barh(places, series.y, height=width * 0.9, xerr=around, **looks)
        else:
            axes.bar(places, series.y, width=width * 0.9, yerr=around, **looks)
    if lie:
        axes.set_yticks(range(len(groups)), groups, fontsize=9)
        axes.invert_yaxis()  # the first one above
    else:
        names = ["\n".join(fill(line, letters) for line in name.splitlines()) for name in groups]
        axes.set_xticks(range(len(groups)), names, fontsize=9)
    axes.set_xlabel(plot.y_label if lie else plot.x_label)
    axes.set_ylabel(plot.x_label if lie else plot.y_label)
    _scale(axes, "x" if lie else "y", is_log=plot.y_log)
    if plot.y_log:
        values = [value for series in plot.series for value in (*series.y, *series.low) if value > 0]
        start = min(values, default=1.0) / 2  # the least one is to be seen, too
        axes.set_xlim(left=start) if lie else axes.set_ylim(bottom=start)


def _spread(series: Series) -> list[list[float]] | None:
    """Return how far the spread goes below each value, and above it."""
    if not series.low:
        return None
    return [
        [value - low for value, low in zip(series.y, series.low, strict=True)],
        [high - value for value, high in zip(series.y, series.high, strict=True)],
    ]


def _scale(axes: Axes, which: Literal["x", "y"], *, is_log: bool) -> None:
    """Give the axis of the values its scale, its numbers and its lines."""
    from matplotlib.ticker import LogFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if is_log:
        axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
        axis.set_minor_formatter(LogFormatter())
    axis.set_major_formatter(_shown)
    axes.grid(visible=True, axis=which, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)


def _shown(number: float, _: float) -> str:
    """Return a number of an axis, whole: neither in powers of ten nor with zeros at its end."""
    return f"{number:,.10f}".rstrip("0").rstrip(".")
