"""Every benchmark runs to its end with --quick, and measures all that it names. Nothing here is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hits.run import GROUPS
from benchmarks.reports.kept import load_all
from benchmarks.reports.results import Result
from benchmarks.simulate.options import Scenario as Simulated
from benchmarks.stampede.config import Scenario
from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[2]
# A quick run takes less than a minute, and ten times that on a machine that is held up.
RUN_SECONDS = 5 * MAX_WAIT_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(8 * MAX_WAIT_SECONDS)]


def results_of(tmp_path: Path, *args: str) -> dict[str, Result]:
    """Run a benchmark, and return what it has kept: every figure measured, every chart drawn."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *args, "--quick", "--out", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=RUN_SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (run,) = load_all(tmp_path)
    assert set(run.provenance["load"]) == {"before", "after"}
    for result in run.results:
        for chart in result.charts:
            assert all((tmp_path / f"{chart.name}.{kind}").stat().st_size for kind in ("png", "svg"))
    return {result.group: result for result in run.results}


def values(result: Result) -> dict[str, float | None]:
    return {figure.what: figure.value for figure in result.figures}


def test_hits(tmp_path: Path) -> None:
    results = results_of(tmp_path, "hits")
    assert list(results) == list(GROUPS)
    assert all(value is not None for result in results.values() for value in values(result).values())
    # A competitor that raised, or read a wrong value, is left out with a note.
    assert all(rate.us_per_read for one in results.values() for rate in one.rates)


def test_stampede(tmp_path: Path) -> None:
    # One of each sort: ours, one on threads with a thread of its own, one on event loops.
    some = [word for name in ("ours", "dogpile", "cashews-early") for word in ("--strategy", name)]
    results = results_of(tmp_path, "stampede", *some)
    assert list(results) == list(Scenario)
    assert values(results["workers"])["ours: recomputes at once, at most"] in (0, 1)
    found = values(results["herd"])
    assert found["ours, at expiry: recomputes"] == found["ours, cold key: recomputes"] == 1


def test_topology(tmp_path: Path) -> None:
    results = results_of(tmp_path, "topology")
    assert list(results) == ["topology-rmat", "topology-snb", "topology-expected"]
    assert [figure for one in results.values() for figure in one.figures if figure.reached is False] == []


def test_worker(tmp_path: Path) -> None:
    results = results_of(tmp_path, "worker")
    assert list(results) == ["rates-redis", "latency-redis"]
    assert all(one.tables for one in results.values())


@pytest.mark.neo4j
def test_feed(tmp_path: Path) -> None:
    results = results_of(tmp_path, "feed")
    assert list(results) == ["feed-delay", "feed-price", "feed-throughput", "feed-savings"]
    assert all(value is not None for result in results.values() for value in values(result).values())


def test_simulate(tmp_path: Path) -> None:
    assert list(results_of(tmp_path, "simulate")) == [scenario.value for scenario in Simulated]


def test_real_processes_are_overloaded(tmp_path: Path) -> None:
    result = results_of(tmp_path, "simulate", "--real")["real-overload"]
    assert all(value is not None for value in values(result).values())
    # Beside each real run stands its simulation.
    assert all(cell is not None for row in result.tables[0].rows for cell in row)
