"""`benchmarks topology --quick` as CI runs it: all of it works, no read of ours waits. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.plan import cells, points
from tests.support.bench_runs import assert_one_line, begun, bench, rows_of
from tests.support.processes import is_gone
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_quick_run_measures_every_cell_and_nobody_waits(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("topology", "--quick", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    extent = TopologyOptions(quick=True).extent
    content = json.loads((out / "topology.json").read_text())
    assert [result["group"] for result in content["results"]] == ["topology-rmat", "topology-snb"]
    measured = [row for graph in ("rmat", "snb") for row in rows_of(out / f"cells-{graph}.csv")]
    assert len(measured) == sum(1 for _ in cells(extent, 1))
    assert {row["errors"] for row in measured} == {"0"}
    # A machine may stand still for the whole of a cell: then no read began in it, and there is no share.
    assert {row["waited_%"] for row in measured if row["refreshed_by"] == "workers"} <= {"0", ""}
    assert {row["stale_%"] for row in measured if row["refreshed_by"] == "own process"} <= {"0", ""}

    grids = [rows_of(out / f"grid-rmat-{setting}.csv") for setting in ("own-process", "workers")]
    assert [len(rows) for rows in grids] == [3 * (len(points(extent)) - 1)] * 2
    promises = {row["figure"]: row["reached"] for row in rows_of(out / "figures.csv") if row["target"]}
    assert set(promises.values()) == {"yes"}, promises
    assert (out / "topology-rmat-beta-workers.png").stat().st_size > 1_000


def test_ctrl_c_while_cells_run_ends_every_process_and_is_no_error(tmp_path: Path) -> None:
    with begun("topology", "--quick", "--cell", "1m", folder=tmp_path) as run:
        eventually(lambda: "cell 0 of" in run.out, 300, "cells are run")
        pids = run.children()
        assert run.interrupted(150) == 130, run.out
    assert "Traceback" not in run.out
    eventually(lambda: all(map(is_gone, pids)), 15, "no process is left")


def test_a_graph_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = bench("topology", "--quick", "--neo4j-uri", "bolt://127.0.0.1:1", "--out", str(tmp_path))
    assert done.returncode == 1
    assert_one_line(done, "error: the graph can't be used")
