"""The page of results, generated from the saved runs: nothing on it was typed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reports.charts import PlotKind
from benchmarks.reports.kept import load_all
from benchmarks.reports.page import page

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "explanation" / "benchmarks"
RUNS = load_all(ROOT / "benchmarks" / "results")
CHARTS = [chart for run in RUNS for result in run.results for chart in result.charts]


def test_the_results_page_is_generated_from_the_saved_runs() -> None:
    assert (PAGES / "results.md").read_text(encoding="utf-8") == page(RUNS, "results")


def test_there_is_a_picture_of_each_chart_and_no_other() -> None:
    assert {path.stem for path in (PAGES / "results").iterdir()} == {chart.name for chart in CHARTS}


def test_ours_is_a_series_of_each_chart_that_has_others_and_bars_have_no_logarithmic_axis() -> None:
    for chart in CHARTS:
        labels = {series.label for series in chart.series} | {str(x) for series in chart.series for x in series.x}
        assert set(chart.ours) <= labels, chart.name
        assert chart.kind is not PlotKind.BARS or not (chart.x_log or chart.y_log), chart.name


def test_every_saved_run_records_machine_versions_commit_and_load() -> None:
    for run in RUNS:
        found = run.provenance
        assert all((found["machine"]["processor"], found["versions"]["redis"], found["commit"], found["rounds"]))
        assert set(found["load"]) == {"before", "after"}
        assert found["options"].get("quick", "False") == "False"
    assert sum(len(path.read_text().splitlines()) for path in (ROOT / "benchmarks" / "results").iterdir()) <= 3_000
