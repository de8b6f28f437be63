"""Results as they are kept: medians, spreads and provenance, one record per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.apparatus.statistics import median
from benchmarks.errors import BenchError
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Figure, Rate, Result, TableCell, is_nothing

FORMAT_VERSION: Final = 3
ORDER: Final = ("hits", "stampede", "topology", "worker", "simulate")
_LINE_LETTERS: Final = 300
_DIGITS: Final = 4
_MAX_POINTS: Final = 150


class KeptFigure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure: the median of its rounds (or the worst of them), and the least and the greatest where there are two."""

    what: str
    value: float | None
    low: float | None = None
    high: float | None = None
    rounds: int = 1
    unit: str = ""
    target: str = ""
    reached: bool | None = None
    note: str = ""


class KeptRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A competitor's rate; medians, and the spread of the time of a read (µs)."""

    competitor: str
    us_per_read: float | None = None
    low: float | None = None
    high: float | None = None
    of_baseline: float | None = None
    ours_of_it: float | None = None
    note: str = ""


class KeptTable(msgspec.Struct, frozen=True):
    """A table for people."""

    title: str
    columns: list[str]
    rows: list[list[TableCell]]


class KeptResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one group."""

    group: str
    title: str
    figures: list[KeptFigure] = []
    rates: list[KeptRate] = []
    tables: list[KeptTable] = []
    charts: list[Plot] = []


@dataclass(frozen=True, slots=True)
class Run:
    """All that is kept of a run. ``provenance`` is made by `reports.provenance`."""

    format: int
    benchmark: str
    provenance: dict[str, Any]
    results: list[KeptResult]


def kept(provenance: Mapping[str, Any], results: Iterable[Result]) -> Run:
    """Reduce a run to what is kept of it."""
    about = dict(provenance)
    return Run(FORMAT_VERSION, str(about.pop("benchmark")), about, [_result(result) for result in results])


def save(run: Run, folder: Path) -> Path:
    """Write ``<benchmark>.json``.

    Raises:
        OSError: the folder can't be written to.
    """
    path = folder / f"{run.benchmark}.json"
    path.write_text(_text(msgspec.to_builtins(run)) + "\n", encoding="utf-8")
    return path


def load_all(folder: Path) -> list[Run]:
    """Return the runs in a folder and those below it, in the order of the page.

    Raises:
        BenchError: there are none, one is of another version, or a benchmark is there twice.
    """
    runs: dict[str, tuple[Path, Run]] = {}
    for path in sorted(folder.rglob("*.json")):
        run = _load(path)
        if run.benchmark in runs:
            first = runs[run.benchmark][0]
            raise BenchError(f"{run.benchmark} is there twice: {first} and {path}; give a folder with one of them")
        runs[run.benchmark] = path, run
    if not runs:
        raise BenchError(f"no results in {folder}: `make bench ARGS='hits --out {folder}'` writes some")
    return [runs[name][1] for name in (*ORDER, *sorted(set(runs) - set(ORDER))) if name in runs]


def _load(path: Path) -> Run:
    raw = path.read_bytes()
    try:
        version = msgspec.json.decode(raw)["format"]
        if version != FORMAT_VERSION:
            raise BenchError(f"{path} has format {version}, and this version reads {FORMAT_VERSION}: run it again")
        return msgspec.json.decode(raw, type=Run)
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
        raise BenchError(f"{path} is not a benchmark's result") from error


def _result(result: Result) -> KeptResult:
    return KeptResult(
        result.group,
        result.title,
        [_figure(figure) for figure in result.figures],
        [_rate(rate) for rate in result.rates],
        [
            KeptTable(table.title, list(table.columns), [[_number(cell) for cell in row] for row in table.rows])
            for table in result.tables
            if table.is_shown
        ],
        [replace(plot, series=tuple(map(_thinned, plot.series))) for plot in result.plots],
    )


def _figure(figure: Figure) -> KeptFigure:
    target = ""
    if figure.target is not None:
        target = f"{figure.target.must} {figure.target.value:.4g} {figure.unit}".strip()
    return KeptFigure(
        figure.what, _float(figure.value), *_spread(figure.rounds), len(figure.rounds), figure.unit, target,
        figure.reached, figure.note,
    )  # fmt: skip


def _rate(rate: Rate) -> KeptRate:
    us_per_read = [seconds * 1e6 for seconds in rate.seconds_per_read]
    ratios = _float(median(rate.of_baseline)), _float(median(rate.ours_of_it))
    return KeptRate(rate.competitor, _float(median(us_per_read)), *_spread(us_per_read), *ratios, rate.note)


def _spread(rounds: Sequence[float]) -> tuple[float | None, float | None]:
    return (_float(min(rounds)), _float(max(rounds))) if len(rounds) > 1 else (None, None)


def _float(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.6g}")


def _number(cell: TableCell) -> TableCell:
    return None if is_nothing(cell) else _float(cell) if isinstance(cell, float) else cell


def _thinned(series: Series) -> Series:
    """Return a series of at most `_MAX_POINTS` points, the last one among them, in `_DIGITS` significant digits."""
    step = -(-len(series.x) // _MAX_POINTS) or 1
    last = [-1] if series.x and (len(series.x) - 1) % step else []

    def few(values: Sequence[Any]) -> tuple[Any, ...]:
        chosen = [*values[::step], *(values[index] for index in last if values)]
        return tuple(float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value for value in chosen)

    return Series(series.label, few(series.x), few(series.y), few(series.low), few(series.high))


def _text(value: Any, indent: str = "") -> str:
    """Return JSON with as much on a line as is read at one glance, or has no joint."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if len(line) <= _LINE_LETTERS or not any(isinstance(child, dict | list) for child in children):
        return line
    more = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_text(child, more)}" for name, child in value.items()]
        return "{\n" + more + f",\n{more}".join(parts) + f"\n{indent}}}"
    return "[\n" + more + f",\n{more}".join(_text(child, more) for child in value) + f"\n{indent}]"
