"""`benchmarks worker --quick` as CI runs it: all of it works, and every row is there. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.contenders.duplicates import CeleryOnce, CelerySingleton
from benchmarks.worker.options import Pool
from benchmarks.worker.rates import CONTENDERS
from refresher.embedded import RedisServer
from tests.support.bench_runs import assert_one_line, begun, bench, rows_of
from tests.support.processes import is_gone
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_quick_run_has_every_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("worker", "--quick", "--out", str(out))
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
    done = bench("worker", *args, REDIS_PASSWORD=clean_redis.password)
    assert done.returncode == 0, done.stdout + done.stderr
    with clean_redis._client(5) as client:
        assert client.keys() == []
    assert clean_redis.password not in done.stdout + (tmp_path / "worker.json").read_text()


def test_ctrl_c_ends_every_process_and_is_no_error(tmp_path: Path) -> None:
    with begun("worker", "--only", "rates", folder=tmp_path) as run:

        def started() -> set[int]:
            """Two servers, the graph and the worker, each with its guardian, and the process of the worker's pool."""
            found = run.children()
            return found if len(found) >= 9 else set()

        pids = eventually(started, 120, "everything has been started")
        assert run.interrupted(60) == 130
    assert "Traceback" not in run.out
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
    done = bench("worker", "--out", str(tmp_path), *args)
    assert_one_line(done, says)
