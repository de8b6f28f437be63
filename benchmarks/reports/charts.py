"""Charts, described as data and drawn as SVG and PNG, with ours in a strong colour and the others muted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from benchmarks.apparatus.statistics import median

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rounds: TypeAlias = Mapping[str, Sequence[float]]

# Ours is blue, its variants lighter and darker; the others are muted, and differ by hue, lightness, dashes and marker.
OURS: Final = ("#0B5CD5", "#6FA8F5", "#0F3C82", "#A9CBF8")
MUTED: Final = (
    "#A8937A", "#7F9C8A", "#B8909B", "#8D8D8D", "#C2B280", "#9A86A4", "#5F7F86", "#C9A58B", "#B9C4B0", "#6E6A62",
)  # fmt: skip
PLAIN: Final = ("#0B5CD5", "#C2571A", "#2F8F5B", "#8E4FA8", "#B08A00", "#4D4D4D", "#D14B8F", "#3AA6B9")
"""Colours for charts without a distinction between ours and others."""
_MARKERS: Final = "osD^vP*Xph"
_DASHES: Final = ("-", "--", "-.", ":")
_INCHES: Final = (8.0, 4.5)
_BAR_INCHES: Final = 0.3
_MAX_MARKED: Final = 20
_LETTERS_ABREAST: Final = 76  # for names side by side below bars
_CAPTION: Final = "Bars are medians of the rounds, with the least and the greatest."


class PlotKind(StrEnum):
    """Way of drawing a series."""

    LINES = "lines"
    STEPS = "steps"
    BARS = "bars"


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one bar in each group.

    Attributes:
        label: the text in the legend.
        x: numbers; for bars the names of the groups.
        y: a number for each x.
        low, high: the spread around each y, or empty.
    """

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart.

    Attributes:
        name: the name of its files, without suffix.
        title, x_label, y_label: texts, with units in brackets.
        ours: the labels of this project's series; for a single series of bars, the names of its groups.
        caption: the text below it on the page of results, which describes what one sees, without figures.
        x_log, y_log: True for logarithmic axes, which bars don't have, since their lengths are compared.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: PlotKind = PlotKind.LINES
    caption: str = ""
    ours: tuple[str, ...] = ()
    x_log: bool = False
    y_log: bool = False


def bars(
    name: str, title: str, unit: str, series: Mapping[str, Rounds], *, ours: tuple[str, ...], x_label: str = ""
) -> Plot:
    """Return a bar chart of the rounds' medians, with the least and the greatest values.

    ``series`` has one value per round, by label and group on the x axis. A group without values is left out.
    """
    lines = []
    for label, rounds in series.items():
        found = {group: values for group, values in rounds.items() if values}
        spread = (tuple(of(values) for values in found.values()) for of in (median, min, max))
        lines.append(Series(label, tuple(found), *spread))
    return Plot(name, title, x_label, unit, tuple(lines), PlotKind.BARS, _CAPTION, ours)


def draw(plot: Plot, folder: Path, suffixes: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw the chart into the folder, and return the paths. Its background is white, even on a dark page.

    Raises:
        OSError: the folder can't be written to.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Without the date, and with ids that are not random, the same data gives the same file. Text stays text.
    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=_INCHES, facecolor="white")
        figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.1)
        axes = figure.add_subplot()
        if plot.kind is PlotKind.BARS:
            _draw_bars(plot, axes, figure)
        else:
            _draw_lines(plot, axes)
        axes.set_title(plot.title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        if len(plot.series) > 1:
            axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
        paths = [folder / f"{plot.name}.{suffix}" for suffix in suffixes]
        for path in paths:
            dated = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
            figure.savefig(path, dpi=120, metadata=dated)
    return paths


def _colours(labels: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """Yield the colour of each label: strong for ours, muted for the others; all strong if none is ours."""
    strong, muted = iter(OURS), iter(MUTED * 2)
    for number, label in enumerate(labels):
        if not ours:
            yield PLAIN[number % len(PLAIN)]
        else:
            yield next(strong, OURS[-1]) if label in ours else next(muted)


def _draw_lines(plot: Plot, axes: Axes) -> None:
    colours = _colours([series.label for series in plot.series], plot.ours)
    for number, (series, colour) in enumerate(zip(plot.series, colours, strict=True)):
        is_ours = series.label in plot.ours
        axes.plot(
            series.x, series.y, label=series.label, color=colour, markersize=4,  # type: ignore[arg-type, unused-ignore]
            marker=_MARKERS[number % len(_MARKERS)] if len(series.x) <= _MAX_MARKED else "",
            linestyle="-" if is_ours or not plot.ours else _DASHES[number % len(_DASHES)],
            drawstyle="steps-post" if plot.kind is PlotKind.STEPS else "default",
            linewidth=2.4 if is_ours else 1.4, zorder=3 if is_ours else 2,
        )  # fmt: skip
        if series.low:
            x: Any = series.x
            axes.fill_between(x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log" if plot.x_log else "linear")
    axes.set_yscale("log" if plot.y_log else "linear")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    _show_plain_numbers(axes, "both")


def _draw_bars(plot: Plot, axes: Axes, figure: Any) -> None:
    """Draw vertical bars, or horizontal ones if their names are too long to fit side by side."""
    groups = list(dict.fromkeys(str(name) for series in plot.series for name in series.x))
    letters = _LETTERS_ABREAST // len(groups)
    lie = len(plot.series) == 1 or any(len(word) > letters for name in groups for word in name.split())
    if lie:
        figure.set_size_inches(_INCHES[0], max(2.2, 1.2 + _BAR_INCHES * len(groups) * max(1, len(plot.series) * 0.6)))
    of_series = list(_colours([series.label for series in plot.series], plot.ours))
    of_groups = dict(zip(groups, _colours(groups, plot.ours), strict=True))
    width = 0.8 / len(plot.series)
    for number, series in enumerate(plot.series):
        at = [groups.index(str(name)) + (number - (len(plot.series) - 1) / 2) * width for name in series.x]
        colour: Any = [of_groups[str(name)] for name in series.x] if len(plot.series) == 1 else of_series[number]
        looks: dict[str, Any] = {"label": series.label, "color": colour, "error_kw": {"linewidth": 0.8}}
        draw_bars = axes.barh if lie else axes.bar
        looks |= {"height" if lie else "width": width * 0.9, "xerr" if lie else "yerr": _spread(series)}
        drawn: Any = draw_bars(at, series.y, **looks)
        axes.bar_label(
            drawn, [plain(value) for value in series.y], fontsize=7 if len(plot.series) > 1 else 8, padding=3
        )
    if lie:
        axes.set_yticks(range(len(groups)), groups, fontsize=9)
        axes.invert_yaxis()  # the first one at the top
        axes.margins(x=0.12)
    else:
        names = ["\n".join(fill(line, letters) for line in name.splitlines()) for name in groups]
        axes.set_xticks(range(len(groups)), names, fontsize=9)
        axes.margins(y=0.12)
    axes.set_xlabel(plot.y_label if lie else plot.x_label)
    axes.set_ylabel(plot.x_label if lie else plot.y_label)
    _show_plain_numbers(axes, "x" if lie else "y")


def _spread(series: Series) -> list[list[float]] | None:
    if not series.low:
        return None
    return [
        [value - low for value, low in zip(series.y, series.low, strict=True)],
        [high - value for value, high in zip(series.y, series.high, strict=True)],
    ]


def _show_plain_numbers(axes: Axes, which: Any) -> None:
    for axis in [axes.xaxis] * (which != "y") + [axes.yaxis] * (which != "x"):
        axis.set_major_formatter(lambda number, _: f"{number:,.10f}".rstrip("0").rstrip("."))
    axes.grid(visible=True, axis=which, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)


def plain(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
