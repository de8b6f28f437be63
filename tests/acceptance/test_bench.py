"""`python -m benchmarks hits --quick` as CI runs it: all of it works, and every row is there. Nothing here is timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.hits.groups import GROUPS
from benchmarks.hits.rates import MODES
from refresher.embedded import RedisServer
from tests.support.bench_runs import assert_one_line, begun, bench, rows_of
from tests.support.processes import is_gone
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_the_quick_run_has_every_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("hits", "--quick", "--out", str(out))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    content = json.loads((out / "hits.json").read_text())
    assert [result["group"] for result in content["results"]] == [group.name for group in GROUPS]
    assert content["machine"]["cores"]
    assert content["versions"]["redis"]

    rates = rows_of(out / "rates.csv")
    assert [(row["group"], row["contender"]) for row in rates] == [
        (mode.name, kind.title) for mode in MODES for kind in mode.all
    ]
    # Whoever is installed was measured: a contender that raised or read a wrong value would be left out, with a note.
    installed = {(mode.name, kind.title) for mode in MODES for kind in mode.all if not kind.missing()}
    assert [row for row in rates if (row["group"], row["contender"]) in installed and not row["us_per_read"]] == []

    figures = rows_of(out / "figures.csv")
    assert {row["group"] for row in figures} == {group.name for group in GROUPS}
    assert [row for row in figures if not row["value"]] == []
    # No figure of a quick run says how fast anything is; these say that what was measured is what they name.
    exact = {row["figure"]: row["value"] for row in figures if row["figure"].endswith(("recomputes", "errors"))}
    assert exact["cold key: recomputes"] == exact["at soft expiry: recomputes"] == "1"
    assert "figures and targets" in done.stdout
    # What is one number a group has no picture of.
    plotted = {result["group"] for result in content["results"] if result["plots"]}
    assert {result["group"] for result in content["results"]} - plotted == {"memory", "million"}
    assert all((out / f"hits-{group}.{kind}").stat().st_size for group in plotted for kind in ("png", "svg"))


def test_ones_own_redis_is_left_as_it_was(clean_redis: RedisServer, tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{clean_redis.port}/0"
    groups = ("--only", "sync-1", "--only", "memory", "--only", "trigger")
    done = bench(
        "hits", "--quick", *groups, "--redis-url", url, "--out", str(tmp_path), REDIS_PASSWORD=clean_redis.password
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with clean_redis._client(5) as client:
        assert client.keys() == []
    assert clean_redis.password not in done.stdout + (tmp_path / "hits.json").read_text()


def test_ctrl_c_ends_every_process_and_is_no_error(tmp_path: Path) -> None:
    with begun("hits", "--quick", "--only", "herd-threads", folder=tmp_path) as run:

        def started() -> set[int]:
            """Two servers, four processes of readers, the graph and the worker, each with its guardian."""
            found = run.children()
            return found if len(found) >= 12 else set()

        pids = eventually(started, 60, "everything has been started")
        assert run.interrupted(30) == 130
    assert "Traceback" not in run.out
    eventually(lambda: all(map(is_gone, pids)), 15, "no process is left")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--only", "nonsense"), "error: no group 'nonsense'; there are sync-1, "),
        (("--redis-url", "redis://:secret@localhost"), "no password on the command line"),
        (("--out", "pyproject.toml"), "error: the results can't be written to pyproject.toml: File exists"),
        (("--redis-url", "redis://127.0.0.1:1/0", "--quick"), "error: the cache's Redis can't be used"),
    ],
)
def test_a_wrong_call_is_one_line(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = bench("hits", "--out", str(tmp_path), *args)
    assert_one_line(done, says)
