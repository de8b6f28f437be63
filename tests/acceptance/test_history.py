"""A recorded history of tags: readers, workers, a writer that is killed in the middle of invalidations, a failover.

The values are versions of the graph's nodes, so that each read shows which writes it has seen; `history.oracle`
evaluates all reads at the end. Two kills and 200 writes; 50 and 10,000 in `make test-long`.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from api_client import EntryState
from refresher.checker.nodes import CREATE_NODES, REMOVE_NODES
from refresher.embedded import ArcadeDbServer, GuardedProcess
from tests.acceptance.conftest import ROOT, System
from tests.acceptance.history.oracle import History, Read, Write
from tests.servers.redis_sentinels import Sentinels
from tests.support.graph_session import graph_session
from tests.support.grouped_queries import GROUPED, NODES, name_of
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KILLS, WRITES = (50, 10_000) if IS_LONG else (2, 200)
READS_PER_SECOND = 100
LAST_STEP = 16
# Writes that Redis accepted this long before its end may be missing on its replica.
LAG_SECONDS = 1.0
# No value of an in-process tier is older: CACHE_LOCAL_MAX_AGE.
LOCAL_SECONDS = 1.0
READERS = {f"{kind}-{size}": (kind, size) for kind in ("sync", "async") for size in ("0", "1000")}


@contextmanager
def nodes_in(graph: ArcadeDbServer) -> Iterator[None]:
    names = [name_of(number) for number in range(NODES)]
    with graph_session(graph) as session:
        session.run(REMOVE_NODES, names=names).consume()
        session.run(CREATE_NODES, names=names).consume()
        yield
        session.run(REMOVE_NODES, names=names).consume()


def started(stack: ExitStack, system: System, folder: Path, name: str, role: str, *args: str, **env: str) -> Any:
    journal = folder / f"{name}.jsonl"
    journal.touch()
    process = GuardedProcess.start(
        [sys.executable, "-m", "tests.acceptance.history.processes", role, str(journal), *args],
        env=system.env | env, cwd=ROOT, log_file=folder / f"{name}.log",
    )  # fmt: skip
    stack.callback(process.kill)
    return process


def lines_of(path: Path) -> list[list[Any]]:
    """Return the lines that a process has written; a killed one may have left half a line."""
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1:] == "\n"
    ]


def writes_of(path: Path) -> Iterator[Write]:
    """The writes of one writer, in their order."""
    lines = lines_of(path)
    begins = [place for place, (what, *_) in enumerate(lines) if what == "written"]
    for place, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        _, versions, hard = lines[place]
        after = {what: values for what, *values in lines[place + 1 : end]}
        yield Write(versions, hard, "kept" in after, *after.get("done", [0.0]))


def reads_of(path: Path, allowed_seconds: float) -> tuple[list[Read], int, int]:
    """Return what a reader got, and how many reads succeeded and failed."""
    lines = lines_of(path)
    seen = [
        Read(group, versions, fresh, last_began, allowed_seconds)
        for _, group, versions, fresh, last_began in (line for line in lines if line[0] == "seen")
    ]
    counts = [values for what, *values in lines if what == "read"]
    return seen, sum(reads for reads, _ in counts), sum(failed for _, failed in counts)


@pytest.mark.promise(
    "Protocol",
    "No fresh read is older than an invalidation of its tags, though invalidators are killed and Redis fails over",
)
@pytest.mark.longer
@pytest.mark.timeout((15 if IS_LONG else 4) * MAX_WAIT_SECONDS)
def test_no_fresh_read_is_older_than_an_invalidation_of_its_tags(
    stack: ExitStack, system: System, arcadedb: ArcadeDbServer, tmp_path: Path
) -> None:
    stack.enter_context(nodes_in(arcadedb))
    sentinels = Sentinels(stack)
    system.env |= {"CACHE_REDIS_URL": sentinels.url(), "REFRESHER_QUERIES": "tests.support.grouped_queries"}
    for _ in range(2):
        system.start_worker("-c", "2")
    client = system.client()
    for group in range(NODES):
        client.get(GROUPED, {"group": group}, timeout=MAX_WAIT_SECONDS)
    readers = {
        name: started(
            stack, system, tmp_path, name, kind, str(READS_PER_SECOND), str(number), CACHE_LOCAL_MAX_ENTRIES=size
        )
        for number, (name, (kind, size)) in enumerate(READERS.items())
    }

    for name in readers:
        eventually(lambda: lines_of(tmp_path / f"{name}.jsonl"), f"{name} reads")  # noqa: B023

    chosen, lost = random.Random(7), (0.0, 0.0)  # noqa: S311 - a choice
    for number in range(KILLS):
        dies_at = chosen.randint(1, LAST_STEP)
        writer = started(
            stack, system, tmp_path, f"writer-{number}", "writer", str(WRITES // KILLS), str(dies_at), str(number)
        )
        if number == KILLS // 2:
            eventually(lambda: len(lines_of(tmp_path / f"writer-{number}.jsonl")) > 30, "it writes")  # noqa: B023
            began = time.monotonic()
            sentinels.kill_master()
            lost = began - LAG_SECONDS, time.monotonic()
        assert writer.wait(MAX_WAIT_SECONDS) == -signal.SIGKILL, writer.tail_of_log()
    for name, reader in readers.items():
        assert reader.terminate(within_seconds=MAX_WAIT_SECONDS) == 0, f"{name}: {reader.tail_of_log()}"

    writes = [write for number in range(KILLS) for write in writes_of(tmp_path / f"writer-{number}.jsonl")]
    history = History(writes, lost)
    verdicts: Counter[str] = Counter()
    wrong: list[tuple[str, Read]] = []
    for name, (_, size) in READERS.items():
        seen, reads, failed = reads_of(tmp_path / f"{name}.jsonl", LOCAL_SECONDS if size != "0" else 0.0)
        verdicts += Counter({"reads": reads, "failed": failed})
        for read in seen:
            verdict = history.evaluate(read)
            verdicts[verdict] += 1
            wrong += [(name, read)] * (verdict == "wrong")
    kept = sum(write.kept and not write.returned_at for write in writes)
    figures = f"{len(writes)} writes, {kept} kept by killed writers; {dict(verdicts)}"
    print(figures)  # noqa: T201 - the run's figures, shown with -rA or -s
    assert wrong == [], figures
    assert verdicts["reads"] > 2 * WRITES, figures

    def all_at_rest() -> bool:
        entries = [client.get_entry(GROUPED, {"group": group}) for group in range(NODES)]
        return all(one.state is EntryState.FRESH and history.is_at_rest(one.value) for one in entries)

    eventually(all_at_rest, f"kept invalidations are finished, and every key is fresh again: {figures}")
