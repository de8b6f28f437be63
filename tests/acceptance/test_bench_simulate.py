"""`benchmarks simulate` as CI runs it: every scenario, and a validation by a real run. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.simulate.options import Scenario
from tests.support.bench_runs import bench, rows_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_quick_run_has_every_scenario_its_events_and_its_pictures(tmp_path: Path) -> None:
    done = bench("simulate", "--quick", "--seed", "3", "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    content = json.loads((tmp_path / "simulate.json").read_text())
    assert [result["group"] for result in content["results"]] == [scenario.value for scenario in Scenario]
    assert content["seed"] == 3
    for result in content["results"]:
        (runs,) = result["tables"]
        loads = [row[runs["columns"].index("loads")] for row in runs["rows"]]
        assert all(found > 0 for found in loads)
        events = rows_of(tmp_path / f"{result['group']}-events.csv")
        assert {row["run"] for row in events} == {row[0] for row in runs["rows"]}
        assert result["plots"]
        for plot in result["plots"]:
            assert (tmp_path / f"{plot['name']}.png").stat().st_size > 5_000
            assert (tmp_path / f"{plot['name']}.svg").stat().st_size > 5_000


def test_a_real_run_is_measured_and_compared(tmp_path: Path) -> None:
    done = bench("simulate", "--validate", "--quick", "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    figures = {row["figure"]: row for row in rows_of(tmp_path / "figures.csv")}
    assert float(figures["real reads that failed"]["value"]) == 0
    # How far apart they are says nothing on a busy machine: that they were compared does.
    assert float(figures["recomputes: simulated against real, apart"]["value"]) >= 0
    assert float(figures["stale share: simulated against real, apart"]["value"]) >= 0
