"""Results as files: one JSON per benchmark, with the provenance of the run, one record per line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.errors import BenchError
from benchmarks.reports.charts import Series
from benchmarks.reports.results import Result

FORMAT_VERSION: Final = 3
ORDER: Final = ("hits", "stampede", "topology", "worker", "pools", "feed", "simulate", "overload")
_LINE_LETTERS: Final = 300
_DIGITS: Final = 6  # more than any measurement yields
_DIGITS_IN_CHARTS: Final = 4
_MAX_POINTS: Final = 150


class Run(msgspec.Struct, frozen=True):
    """The stored part of a run. ``provenance`` is made by `reports.provenance`."""

    format: int
    benchmark: str
    provenance: dict[str, Any]
    results: list[Result]


def kept(provenance: Mapping[str, Any], results: Sequence[Result]) -> Run:
    """Reduce a run to its stored part, with fewer digits and fewer points of long series."""
    about = dict(provenance)
    found = []
    for result in results:
        charts = [replace(chart, series=tuple(map(_thinned, chart.series))) for chart in result.charts]
        found.append(_rounded(msgspec.to_builtins(msgspec.structs.replace(result, charts=charts))))
    content = {"format": FORMAT_VERSION, "benchmark": about.pop("benchmark"), "provenance": about, "results": found}
    return msgspec.convert(content, Run)


def save(run: Run, folder: Path) -> Path:
    """Write ``<benchmark>.json``.

    Raises:
        OSError: the folder can't be written to.
    """
    path = folder / f"{run.benchmark}.json"
    path.write_text(_text(msgspec.to_builtins(run)) + "\n", encoding="utf-8")
    return path


def load_all(folder: Path) -> list[Run]:
    """Return the runs in a folder and its subfolders, in the order of the page.

    Raises:
        BenchError: there are none, one has another format, or a benchmark is there twice.
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


def _rounded(value: Any) -> Any:
    """Return a value as builtins, with floats of `_DIGITS` significant digits, and None for NaN."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.{_DIGITS}g}")
    return value


def _thinned(series: Series) -> Series:
    """Return a series with at most `_MAX_POINTS` points and its last one."""
    step = -(-len(series.x) // _MAX_POINTS) or 1
    last = [-1] if series.x and (len(series.x) - 1) % step else []

    def few(values: Sequence[Any]) -> tuple[Any, ...]:
        chosen = [*values[::step], *(values[index] for index in last if values)]
        return tuple(float(f"{value:.{_DIGITS_IN_CHARTS}g}") if isinstance(value, float) else value for value in chosen)

    return Series(series.label, few(series.x), few(series.y), few(series.low), few(series.high))


def _text(value: Any, indent: str = "") -> str:
    """Format JSON with as much on a line as can be read at a glance, or can't be broken."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if len(line) <= _LINE_LETTERS or not any(isinstance(child, dict | list) for child in children):
        return line
    more = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_text(child, more)}" for name, child in value.items()]
        return "{\n" + more + f",\n{more}".join(parts) + f"\n{indent}}}"
    return "[\n" + more + f",\n{more}".join(_text(child, more) for child in value) + f"\n{indent}]"
