"""The page of results is what the kept runs give: nothing on it was typed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.page import found, page

DOCS = Path(__file__).parents[3] / "docs"
KEPT = DOCS / "results"


def test_the_page_is_made_of_what_runs_have_kept() -> None:
    assert (DOCS / "results.md").read_text(encoding="utf-8") == page(found(KEPT), KEPT.name)


def test_every_picture_is_there() -> None:
    runs = found(KEPT)
    plots = {plot["name"] for run in runs.values() for result in run["results"] for plot in result["plots"]}
    assert {path.stem for path in KEPT.glob("*.svg")} == plots


def test_every_run_says_on_what_and_from_which_seed() -> None:
    for run in found(KEPT).values():
        assert run["machine"]["processor"]
        assert run["versions"]["redis"]
        assert isinstance(run["seed"], int)
        assert run["options"].get("quick", "False") == "False"
