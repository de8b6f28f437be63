"""A recorded history of tags: readers, workers, a writer that is killed in the middle of invalidations, a failover.

The values are versions of the graph's nodes, so that each read shows which writes it has seen; the checker of
`partitions` evaluates all at the end. Two kills and 200 writes; 50 and 10,000 in `make test-long`.
"""

from __future__ import annotations

import random
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from api_client import EntryState
from refresher.embedded import ArcadeDbServer, GuardedProcess
from tests.acceptance.conftest import ROOT, System
from tests.acceptance.partitions.checker import Bounds, check, floors
from tests.acceptance.partitions.drawing import draw_violations
from tests.acceptance.partitions.events import Log, events_in
from tests.acceptance.partitions.worker import GROUPED, NODES, name_of
from tests.servers.redis_sentinels import Sentinels
from tests.support.graph_session import watched_nodes
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KILLS, WRITES = (50, 10_000) if IS_LONG else (2, 200)
LAST_STEP = 16
READERS = {f"{kind}-{size}": (kind, size) for kind in ("sync", "async") for size in ("0", "1000")}
# The old master is dead, so nobody is served by it. A busy machine may let reads wait.
BOUNDS = Bounds(settle=0.0, read=2 * MAX_WAIT_SECONDS, apart=False)


def started(stack: ExitStack, system: System, log: Path, *args: str, **env: str) -> GuardedProcess:
    process = GuardedProcess.start(
        [sys.executable, "-m", "tests.acceptance.partitions.programs", *args, "--log", str(log)],
        env=system.env | env, cwd=ROOT, log_file=log.with_suffix(".log"),
    )  # fmt: skip
    stack.callback(process.kill)
    return process


@pytest.mark.promise(
    "Protocol",
    "No fresh read is older than an invalidation of its tags, though invalidators are killed and Redis fails over",
)
@pytest.mark.longer
@pytest.mark.timeout((15 if IS_LONG else 4) * MAX_WAIT_SECONDS)
def test_no_fresh_read_is_older_than_an_invalidation_of_its_tags(
    stack: ExitStack, system: System, arcadedb: ArcadeDbServer, tmp_path: Path
) -> None:
    stack.enter_context(watched_nodes(arcadedb, [name_of(number) for number in range(NODES)]))
    sentinels = Sentinels(stack)
    system.env |= {"CACHE_REDIS_URL": sentinels.url(), "REFRESHER_QUERIES": "tests.acceptance.partitions.worker"}
    for host in ("a", "b"):
        app, log = "tests.acceptance.partitions.worker", str(tmp_path / f"{host}-worker")
        system.start_worker("-c", "2", app=app, HISTORY_LOG=log)
    client = system.client()
    for group in range(NODES):
        client.get(GROUPED, {"group": group}, timeout=MAX_WAIT_SECONDS)
    logs = {name: tmp_path / f"{name}-reader-0.jsonl" for name in READERS}
    readers = {
        name: started(
            stack, system, logs[name], kind, "--reads", "100", "--seed", str(number), CACHE_LOCAL_MAX_ENTRIES=size
        )
        for number, (name, (kind, size)) in enumerate(READERS.items())
    }  # fmt: skip
    for name, log in logs.items():
        eventually(lambda log=log: log.exists() and log.stat().st_size, f"{name} reads")

    chosen, nemesis = random.Random(7), Log(tmp_path / "here-nemesis-0.jsonl")  # noqa: S311 - a choice
    for number in range(KILLS):
        log = tmp_path / f"here-writer-{number}.jsonl"
        options = {"seed": number, "writes": WRITES // KILLS, "dies-at": chosen.randint(1, LAST_STEP)}
        writer = started(stack, system, log, "writer", *(f"--{name}={value}" for name, value in options.items()))
        if number == KILLS // 2:
            eventually(lambda log=log: log.exists() and len(log.read_text().splitlines()) > 30, "it writes")
            nemesis.write("fault", name="kill of the master", hosts=["cache"])
            sentinels.kill_master()
            nemesis.write("heal")
        assert writer.wait(MAX_WAIT_SECONDS) == -signal.SIGKILL, writer.tail_of_log()
    for name, reader in readers.items():
        assert reader.terminate(within_seconds=MAX_WAIT_SECONDS) == 0, f"{name}: {reader.tail_of_log()}"

    verdict = check(events_in(tmp_path), BOUNDS)
    print(verdict)  # noqa: T201 - the run's figures, shown with -rA or -s
    assert verdict.violations == [], f"{verdict}\n{draw_violations(verdict, tmp_path)}"
    assert len(verdict.history.reads) > 2 * WRITES
    due = floors(verdict.history)

    def all_at_rest() -> bool:
        entries = [client.get_entry(GROUPED, {"group": group}) for group in range(NODES)]
        return all(
            one.state is EntryState.FRESH and all(version >= due.get(node, 0) for node, version in one.value.items())
            for one in entries
        )

    eventually(all_at_rest, f"kept invalidations are finished, and every key is fresh again: {verdict}")
