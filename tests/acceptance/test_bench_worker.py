"""`refresher bench worker --quick` as CI runs it: all of it works, and every row is there. Nothing here is timed."""

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

from refresher.bench.contenders.duplicates import CeleryOnce, CelerySingleton
from refresher.bench.worker.options import Pool
from refresher.bench.worker.rates import CONTENDERS
from refresher.embedded import RedisServer
from tests.support.processes import is_gone
from tests.support.requirements import full_runs_only
from tests.support.waiting import eventually

pytestmark = [full_runs_only, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 600  # a quick run takes less than a minute, and ten times that on a machine that is held up


def bench(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "refresher.cli", "bench", "worker", *args],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environ}, timeout=RUN_SECONDS,
    )  # fmt: skip


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_quick_run_has_every_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("--quick", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    content = json.loads((out / "worker.json").read_text())
    assert [result["group"] for result in content["results"]] == ["rates-redis", "latency-redis", "duplicates"]

    rates = rows_of(out / "rates-redis.csv")
    assert [(row["pool"], row["tasks"], row["events"] == "yes") for row in rates] == [
        (pool, contender.what, contender.events) for pool in Pool for contender in CONTENDERS
    ]
    # That each refresh was one is seen to by the run itself.
    assert [row for row in rates if not float(row["per_second"]) > 0] == []
    assert [row["samples"] for row in rows_of(out / "latency-redis.csv")] == ["5"] * 4

    asked = {row["asked again by"]: row for row in rows_of(out / "duplicates.csv")}
    for peer in (CelerySingleton, CeleryOnce):
        row = asked.pop(peer.title)
        assert row["us_each"] or row["note"].startswith("not installed")
    assert [row for row in asked.values() if not row["us_each"]] == []
    assert all(
        (out / f"{name}.{kind}").stat().st_size for name in ("rates-redis", "duplicates") for kind in ("png", "svg")
    )


def test_ones_own_redis_is_left_as_it_was(clean_redis: RedisServer, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{clean_redis.port}/0"
    args = ("--quick", "--only", "duplicates", "--redis-url", url, "--out", str(tmp_path))
    done = bench(*args, REDIS_PASSWORD=clean_redis.password)
    assert done.returncode == 0, done.stdout + done.stderr
    with clean_redis._client(5) as client:
        assert client.keys() == []
    assert clean_redis.password not in done.stdout + (tmp_path / "worker.json").read_text()


def test_ctrl_c_ends_every_process_and_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "refresher.cli", "bench", "worker", "--only", "rates", "--out", str(tmp_path)]
    out = tmp_path / "out.txt"
    with out.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, start_new_session=True)

    def started() -> set[int]:
        """Two servers, the graph and the worker, each with its guardian, and the process of the worker's pool."""
        assert process.poll() is None, out.read_text()
        found = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        return found if len(found) >= 9 else set()

    try:
        pids = eventually(started, 120, "everything has been started")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait(60)
    assert "Traceback" not in out.read_text()
    eventually(lambda: all(map(is_gone, pids)), 30, "no process is left")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--only", "nonsense"), "error: no group 'nonsense'; there are rates, latency, duplicates"),
        (("--redis-url", "redis://:secret@localhost"), "no password on the command line"),
        (("--neo4j-uri", "bolt://user:secret@localhost"), "no password on the command line"),
        (("--broker", "carrier pigeon"), "carrier pigeon"),
    ],
)
def test_a_wrong_call_is_one_line(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = bench("--out", str(tmp_path), *args)
    assert done.returncode in (1, 2)
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
