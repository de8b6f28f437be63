"""A process of a history: ``python -m tests.acceptance.history.processes ROLE FILE …``.

``sync`` and ``async`` are readers, until SIGTERM: READS_PER_SECOND SEED. ``writer`` writes nodes and invalidates their
tags: WRITES DIES_AT SEED; after WRITES writes it begins one more, and dies by SIGKILL at step DIES_AT of its
invalidation. They write what they saw or did to FILE at once, one line of JSON each.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neo4j

from api_client import AsyncCacheClient, CacheClient, CacheError, EntryState
from api_client.protocol import tags
from tests.acceptance.soak.processes import Journal
from tests.support.grouped_queries import GROUPED, NODES, name_of
from tests.support.waiting import MAX_WAIT_SECONDS

FLUSH_SECONDS = 0.5
AGAIN_SECONDS = 0.2
# So that reads and loads come in between, in a run of a few hundred writes, too.
PAUSE_SECONDS = 0.02
NEW_SHARE = 0.15
INCREMENT = (
    "MATCH (watched:RefresherWatch) WHERE watched.id IN $names SET watched.version = watched.version + 1 "
    "RETURN watched.id AS id, watched.version AS version"
)
STEPS = ("tick", "keep", "mark", "page", "invalidate", "finish")
"""The functions of `tags` that make the calls of an invalidation, one call each."""


class Seen:
    """The values that a reader got, each once, with the begin of its last read; written every half second."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._flushed_at = journal, time.monotonic()
        self._seen: dict[tuple[int, int, bool], tuple[dict[str, int], float]] = {}
        self._reads = self._failed = 0

    def got(self, group: int, entry: Any, began: float) -> None:
        self._reads += 1
        self._seen[group, entry.token, entry.state is not EntryState.STALE] = entry.value, began
        if time.monotonic() >= self._flushed_at + FLUSH_SECONDS:
            self.flush()

    def failed(self) -> None:
        self._failed += 1

    def flush(self) -> None:
        for (group, _, fresh), (versions, began) in self._seen.items():
            self._journal.write("seen", group, versions, fresh, began)
        self._journal.write("read", self._reads, self._failed)
        self._seen.clear()
        self._reads = self._failed = 0
        self._flushed_at = time.monotonic()


def next_reads(chosen: random.Random) -> list[dict[str, int]]:
    """Return the next reads: a group's key, or a new key twice, the second time after its load."""
    params = {"group": chosen.randrange(NODES)}
    return [params] if chosen.random() > NEW_SHARE else [params | {"once": chosen.getrandbits(48)}] * 2


def read_until_stopped(journal: Journal, reads_per_second: float, seed: int, stopped: threading.Event) -> None:
    seen, chosen = Seen(journal), random.Random(seed)  # noqa: S311 - a choice
    with CacheClient.from_env() as client:
        while not stopped.wait(chosen.expovariate(reads_per_second)):
            for params in next_reads(chosen):
                began = time.monotonic()
                try:
                    seen.got(params["group"], client.get_entry(GROUPED, params), began)
                except CacheError:
                    seen.failed()
    seen.flush()


async def read_in_loop_until_stopped(
    journal: Journal, reads_per_second: float, seed: int, stopped: threading.Event
) -> None:
    seen, chosen = Seen(journal), random.Random(seed)  # noqa: S311 - a choice
    async with AsyncCacheClient.from_env() as client:
        while not stopped.is_set():
            await asyncio.sleep(chosen.expovariate(reads_per_second))
            for params in next_reads(chosen):
                began = time.monotonic()
                try:
                    seen.got(params["group"], await client.get_entry(GROUPED, params), began)
                except CacheError:
                    seen.failed()
    seen.flush()


class Steps:
    """Counts the calls of an invalidation as they are made; at number ``dies_at`` the process kills itself."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._number = journal, 0
        self.dies_at: int | None = None
        for name in STEPS:
            setattr(tags, name, self._counted(name, getattr(tags, name)))

    def begin(self) -> None:
        """Count from 0: an invalidation begins."""
        self._number = 0

    def _counted(self, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._number += 1
            if name == "mark":
                self._journal.write("kept")  # the reply to `keep` has come before the first of these is made
            if self._number == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return make(*args, **options)

        return counted


def write(journal: Journal, writes: int, dies_at: int, seed: int) -> None:
    chosen, steps = random.Random(seed), Steps(journal)  # noqa: S311 - a choice
    auth = (os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
    with (
        neo4j.GraphDatabase.driver(os.environ["NEO4J_URI"], auth=auth) as driver,
        driver.session(database=os.environ["NEO4J_DATABASE"]) as session,
        CacheClient.from_env() as client,
    ):
        for number in range(writes + 1):
            first, hard = chosen.randrange(NODES), chosen.random() < 0.1
            names = [name_of(first + place) for place in range(chosen.choice((1, 1, 2)))]
            versions = session.execute_write(_incremented, names)
            journal.write("written", versions, hard)
            steps.dies_at = dies_at if number == writes else None
            _invalidate(client, names, steps, hard=hard)
            journal.write("done", time.monotonic())
            time.sleep(PAUSE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _incremented(tx: neo4j.ManagedTransaction, names: list[str]) -> dict[str, int]:
    return {record["id"]: record["version"] for record in tx.run(INCREMENT, names=names)}


def _invalidate(client: CacheClient, names: list[str], steps: Steps, *, hard: bool) -> None:
    """Invalidate, and retry while Redis is unreachable, as an application does that must not lose it."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        steps.begin()
        try:
            client.invalidate_tags(names, hard=hard)
        except CacheError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(AGAIN_SECONDS)
        else:
            return


def main() -> None:
    """Run the role."""
    role, path, *numbers = sys.argv[1:]
    journal, stopped = Journal(Path(path)), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if role == "writer":
        writes, dies_at, seed = map(int, numbers)
        write(journal, writes, dies_at, seed)
    elif role == "sync":
        read_until_stopped(journal, float(numbers[0]), int(numbers[1]), stopped)
    else:
        asyncio.run(read_in_loop_until_stopped(journal, float(numbers[0]), int(numbers[1]), stopped))


if __name__ == "__main__":
    main()
