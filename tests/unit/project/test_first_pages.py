"""The first pages: the README is short, its figures are the measured ones; the tutorial has the files that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.pages import blocks_of

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def results(benchmark: str, group: str) -> dict[str, Any]:
    kept = json.loads((ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text())
    (found,) = [one for one in kept["results"] if one["group"] == group]
    return dict(found)


def row_of(table: dict[str, Any], **cells: str) -> dict[str, Any]:
    """Return the row of a table that has these cells."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    (row,) = [row for row in rows if cells.items() <= row.items()]
    return row


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 90
    assert len(TEXT.split()) <= 700


def test_the_readme_s_figures_are_the_measured_ones() -> None:
    at_expiry = row_of(results("stampede", "herd")["tables"][0], strategy="ours", moment="at expiry", read_by="asyncio")
    assert (at_expiry["reads"], at_expiry["recomputes"], at_expiry["errors"]) == (10_000, 1, 0)
    assert f"1 load, no error, p99 {at_expiry['p99_ms']:.3g} ms" in TEXT

    of_the_run, after_the_kill = (row_of(one, strategy="ours") for one in results("stampede", "hot-key")["tables"][:2])
    assert (of_the_run["misses"], of_the_run["errors"]) == (0, 0)
    assert round(of_the_run["reads_per_s"], -3) == 20_000
    assert (after_the_kill["misses"], after_the_kill["errors"]) == (0, 0)
    assert f"p99 {of_the_run['p99_ms']:.3g} ms; fresh again after {after_the_kill['fresh_again_s']:.3g} s" in TEXT

    hit, *_ = results("hits", "sync-1")["figures"]
    assert hit["what"] == "CacheClient against redis-py GET"
    assert f"{hit['value']:.3g} × as fast as redis-py's GET ({hit['low']:.3g}–{hit['high']:.3g})" in TEXT


def test_the_tutorial_shows_the_files_that_are_run() -> None:
    blocks = blocks_of("docs/tutorial/first-application.md")
    files = (ROOT / "docs" / "examples" / "tutorial").glob("*.py")
    shown = {block["file"]: block["text"] for block in blocks if block["file"]}
    assert shown == {file.name: file.read_text(encoding="utf-8") for file in files}
