"""The page of results, made of what runs have kept: nothing on it is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.about import heading
from benchmarks.errors import BenchError
from benchmarks.plots import Plot, PlotKind, Series, draw
from benchmarks.report import FORMAT_VERSION
from benchmarks.statistics import middle
from benchmarks.tables import Cell, shown_cell, shown_column

ORDER: Final = ("hits", "stampede", "topology", "worker", "simulate")
_PREAMBLE: Final = """\
# Results

Made by `make bench ARGS=page` from what the runs have kept; nothing here is typed. A figure holds for the machine that
stands above it, and says most as a ratio to what ran beside it. How each is measured, and what it can't show, stands in
[benchmarks](benchmarks.md). A target that was missed says so.
"""
_RATE_COLUMNS: Final = ("reader", "µs a read", "× baseline", "ours is × it", "")
_FIGURE_COLUMNS: Final = ("figure", "measured", "rounds", "target", "reached", "")
_REACHED: Final = {None: "", True: "yes", False: "**no**"}


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of the runs in a folder and those below it, by benchmark, in the order of the page.

    Raises:
        BenchError: there are none, one is of another version, or a benchmark is there twice.
    """
    runs: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(folder.rglob("*.json")):
        content = _read(path)
        name = str(content["benchmark"])
        if name in runs:
            raise BenchError(f"{name} is there twice: {runs[name][0]} and {path}; give a folder with one of them")
        runs[name] = path, content
    if not runs:
        raise BenchError(f"no results in {folder}: `python -m benchmarks hits --out {folder}` writes some")
    return {name: runs[name][1] for name in sorted(runs, key=lambda name: (_place(name), name))}


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise BenchError(f"{path} is no benchmark's result") from error
    if version != FORMAT_VERSION:
        raise BenchError(f"{path} has format {version}, and this version reads {FORMAT_VERSION}: run it again")
    return dict(content)


def page(runs: Mapping[str, Mapping[str, Any]], pictures: str) -> str:
    """Return the page in Markdown.

    Args:
        runs: what `found` returned.
        pictures: the folder of the pictures, as seen from the page.
    """
    sections = [_PREAMBLE.rstrip("\n")]
    for name, content in runs.items():
        sections.append("\n\n".join([f"## {name}", f"```text\n{_about(content)}\n```", *_results(content, pictures)]))
    return "\n\n".join(sections) + "\n"


def draw_all(runs: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw every picture of the runs into the folder, as SVG, and return the paths.

    Raises:
        BenchError: matplotlib is not installed.
        OSError: the folder can't be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for content in runs.values():
        for result in content["results"]:
            for plot in map(_plot, result["plots"]):
                png, svg = draw(plot, folder)
                png.unlink()
                drawn.append(svg)
    return drawn


def _about(content: Mapping[str, Any]) -> str:
    return f"{content['began']}\n{heading(content)}"


def _results(content: Mapping[str, Any], pictures: str) -> Iterator[str]:
    for result in content["results"]:
        yield f"### {result['title']}"
        if result["figures"]:
            yield _markdown(_FIGURE_COLUMNS, [_figure_row(figure) for figure in result["figures"]])
        if result["rates"]:
            yield _markdown(_RATE_COLUMNS, [_rate_row(rate) for rate in result["rates"]])
        for table in result["tables"]:
            rows = [[shown_cell(cell) for cell in row] for row in table["rows"]]
            yield f"{table['title']}\n\n{_markdown([*map(shown_column, table['columns'])], rows)}"
        for plot in result["plots"]:
            yield f"![{plot['title']}]({pictures}/{plot['name']}.svg)"
            if plot["caption"]:
                yield plot["caption"]


def _figure_row(figure: Mapping[str, Any]) -> list[str]:
    rounds = figure["rounds"]
    spread = f"{shown_cell(min(rounds))} – {shown_cell(max(rounds))}" if len(rounds) > 1 else ""
    measured = f"{shown_cell(figure['value'])} {figure['unit']}".strip()
    return [figure["what"], measured, spread, figure["target"], _REACHED[figure["reached"]], figure["note"]]


def _rate_row(rate: Mapping[str, Any]) -> list[str]:
    took: Cell = middle(rate["seconds_a_read"]) * 1e6
    ratios = (middle(rate["of_baseline"]), middle(rate["ours_of_it"]))
    return [rate["contender"], shown_cell(took), *map(shown_cell, ratios), rate["note"]]


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _plot(content: Mapping[str, Any]) -> Plot:
    series = tuple(
        Series(one["label"], *(tuple(one[name]) for name in ("x", "y", "low", "high"))) for one in content["series"]
    )
    return Plot(**{**content, "series": series, "kind": PlotKind(content["kind"])})
