"""`refresher bench topology --quick` as CI runs it: all of it works, no read of ours waits. Nothing here is timed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from refresher.bench.topology.options import TopologyOptions
from refresher.bench.topology.plan import cells, points
from tests.support.processes import is_gone
from tests.support.requirements import full_runs_only
from tests.support.waiting import eventually

pytestmark = [full_runs_only, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 600  # a quick run takes half a minute, and ten times that on a machine that is held up


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "refresher.cli", "bench", "topology", *args],
        capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ), timeout=RUN_SECONDS,
    )  # fmt: skip


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_quick_run_measures_every_cell_and_nobody_waits(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("--quick", "--out", str(out))
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
    out = tmp_path / "out.txt"
    command = [sys.executable, "-m", "refresher.cli", "bench", "topology", "--quick", "--cell", "1m"]
    with out.open("w") as file:
        process = subprocess.Popen(
            [*command, "--out", str(tmp_path)], stdout=file, stderr=file, cwd=ROOT, start_new_session=True
        )
    try:
        eventually(lambda: "cell 0 of" in out.read_text(), 300, "cells are run")
        pids = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        assert process.wait(150) == 130, out.read_text()
    finally:
        process.kill()
        process.wait(30)
    assert "Traceback" not in out.read_text()
    eventually(lambda: all(map(is_gone, pids)), 15, "no process is left")


def test_a_graph_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = bench("--quick", "--neo4j-uri", "bolt://127.0.0.1:1", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "error: the graph can't be used" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
