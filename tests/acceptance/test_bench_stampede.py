"""`python -m benchmarks stampede --quick`: every scenario works, and exact promises hold. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.stampede.lanes import lanes_of
from benchmarks.stampede.options import Scenario
from benchmarks.stampede.strategies import chosen
from tests.support.bench_runs import assert_one_line, begun, bench, rows_of
from tests.support.processes import is_gone
from tests.support.requirements import IS_LONG
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# One of each sort: ours, one on threads with a thread of its own, one on event loops.
SOME = ("ours", "dogpile", "cashews-early")


@pytest.mark.parametrize("names", [pytest.param(() if IS_LONG else SOME, id="strategies")])
def test_the_quick_run_has_every_row(names: tuple[str, ...], tmp_path: Path) -> None:
    wanted = [word for name in names for word in ("--strategy", name)]
    done = bench("stampede", "--quick", *wanted, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr

    content = json.loads((tmp_path / "stampede.json").read_text())
    assert [result["group"] for result in content["results"]] == list(Scenario)
    for scenario in Scenario:
        titles = [lane.title for lane in lanes_of(scenario, chosen(names), None)[0]]
        moments = 2 if scenario is Scenario.HERD else 1
        assert [row["strategy"] for row in rows_of(tmp_path / f"{scenario}.csv")] == titles * moments
        assert (tmp_path / f"{scenario}-origin.png").stat().st_size > 0
        assert rows_of(tmp_path / f"{scenario}-events.csv") != []
    # How many recompute at once is a promise, on any machine; how long reads take, and whether one waits, is not.
    figures = {(row["group"], row["figure"]): row["value"] for row in rows_of(tmp_path / "figures.csv")}
    assert figures["workers", "ours: recomputes at once, at most"] in ("0", "1")
    assert figures["herd", "ours, at expiry: recomputes"] == figures["herd", "ours, cold key: recomputes"] == "1"


def test_ctrl_c_shows_what_was_counted_and_leaves_no_process(tmp_path: Path) -> None:
    args = ["--strategy", "xlocked", "--workers", "3", "--seconds", "600", "--report-every", "0.2"]
    with begun("stampede", *args, folder=tmp_path) as run:
        eventually(lambda: "reads: hits" in run.out, 120, "the first report")
        pids = run.children()
        assert run.interrupted(60) == 0, run.out
    assert "Traceback" not in run.out
    assert [row["strategy"] for row in rows_of(tmp_path / "workers.csv")] == ["xlocked"]
    eventually(lambda: all(map(is_gone, pids)), 30, "no process is left")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(("--strategy", "nonsense"), "error: no strategy 'nonsense'; there are fetch, ", id="strategy"),
        pytest.param(
            ("--scenario", "nonsense"), "'nonsense' is not one of 'workers', 'hot-key', 'herd'", id="scenario"
        ),
        pytest.param(
            ("--strategy", "aiocache", "--readers", "threads"), "nobody can run workers: aiocache: can't be", id="kind"
        ),
    ],
)
def test_a_wrong_call_is_one_line(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = bench("stampede", "--out", str(tmp_path), *args)
    assert_one_line(done, says)
