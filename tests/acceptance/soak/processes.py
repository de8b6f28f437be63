"""A process of the soak: ``python -m tests.acceptance.soak.processes ROLE FILE NODES READS_PER_SECOND SEED``.

ROLE is ``threads`` or ``tasks``, a reader at a steady rate with a few nodes that get most of the reads, or ``writer``.
It writes what it saw or did to FILE at once, one line of JSON each, for the test to evaluate; SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from bisect import bisect
from collections import Counter
from pathlib import Path
from typing import Any

import neo4j

from api_client import AsyncCacheClient, CacheClient, CacheError, EntryState
from refresher.checker.nodes import WATCHED
from refresher.checker.oracle import Checker, Invalidated
from refresher.checker.reader import ObservationLog
from refresher.checker.writer import WatchedQuery, Writer
from tests.support.waiting import MAX_WAIT_SECONDS

QUERY = "soaked"
SOAKED = WatchedQuery(QUERY, "node", WATCHED.increment_cypher)
CALLERS = {"threads": 4, "tasks": 16}
WAIT_SECONDS = MAX_WAIT_SECONDS
"""Longer than any fault: no wait may time out."""

FLUSH_SECONDS = 1.0
# Often, and few: many invalidations are to hit a load. Not the hottest, whose misses would take all callers' time.
WRITER_PAUSE_SECONDS, WRITTEN_NODES = 0.1, ("n1", *(f"n{number}" for number in range(4, 12)))
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)


class Journal:
    """Lines of JSON in a file. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file, self._lock = path.open("a", buffering=1, encoding="utf-8"), threading.Lock()

    def write(self, what: str, *values: Any) -> None:
        with self._lock:
            self._file.write(json.dumps([what, *values]) + "\n")


class Caller:
    """One of the concurrent callers of a process."""

    def __init__(self, journal: Journal, nodes: int, interval_seconds: float, seed: str) -> None:
        self._journal, self._nodes, self._interval_seconds = journal, nodes, interval_seconds
        self._random = random.Random(seed)  # noqa: S311 - a popularity
        self._log = ObservationLog(QUERY)
        self._served_ms: Counter[int] = Counter()
        self._due = self._flushed_at = time.monotonic()

    def pause_seconds(self) -> float:
        """Return the time until the next read; reads missed during a wait are made up for."""
        self._due += self._interval_seconds
        return max(0.0, self._due - time.monotonic())

    def node(self) -> str:
        return f"n{min(self._nodes - 1, int(self._random.paretovariate(1.0)) - 1)}"

    def got(self, node: str, entry: Any, began: float) -> None:
        now = time.monotonic()
        self._log.record(node, entry, began)
        if entry.state is not EntryState.MISS:
            self._served_ms[bisect(BUCKETS_MS, (now - began) * 1_000)] += 1
        if now >= self._flushed_at + FLUSH_SECONDS:
            self.flush()

    def failed(self, error: CacheError, began: float) -> None:
        self._due = now = time.monotonic()  # an error comes at once: making up for what was missed would be a storm
        self._journal.write("failed", began, now, type(error).__name__, getattr(error, "kind", ""))

    def flush(self) -> None:
        """Write and clear what was collected: this process's memory is measured."""
        self._flushed_at = time.monotonic()
        for seen in self._log.take():
            self._journal.write("seen", seen.name, seen.token, seen.version, seen.fresh, seen.last_began)
        self._journal.write("read", dict(self._log.states), dict(self._served_ms), self._log.broken)
        self._log.states.clear()
        self._served_ms.clear()
        self._log.broken.clear()


def read_in_threads(callers: list[Caller], stopped: threading.Event) -> None:
    with CacheClient.from_env() as client:

        def read(caller: Caller) -> None:
            while not stopped.wait(caller.pause_seconds()):
                node, began = caller.node(), time.monotonic()
                try:
                    caller.got(node, client.get_entry(QUERY, {"node": node}, timeout=WAIT_SECONDS), began)
                except CacheError as error:
                    caller.failed(error, began)
            caller.flush()

        threads = [threading.Thread(target=read, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def read_in_tasks(callers: list[Caller], stopped: threading.Event) -> None:
    async with AsyncCacheClient.from_env() as client:

        async def read(caller: Caller) -> None:
            while not stopped.is_set():
                await asyncio.sleep(caller.pause_seconds())
                node, began = caller.node(), time.monotonic()
                try:
                    caller.got(node, await client.get_entry(QUERY, {"node": node}, timeout=WAIT_SECONDS), began)
                except CacheError as error:
                    caller.failed(error, began)
            caller.flush()

        await asyncio.gather(*(read(caller) for caller in callers))


class WrittenDown(Checker):
    """Writes each invalidation to the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(QUERY)
        self._journal = journal

    def invalidated(self, invalidated: Invalidated) -> None:
        done = invalidated
        self._journal.write("done", done.name, done.version, done.generation, done.hard, done.returned_at)


def write(journal: Journal, stopped: threading.Event, seed: int) -> None:
    auth = (os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
    with neo4j.GraphDatabase.driver(os.environ["NEO4J_URI"], auth=auth) as driver, CacheClient.from_env() as client:
        writer = Writer(
            driver, os.environ["NEO4J_DATABASE"] or None, client, WrittenDown(journal), SOAKED, WRITTEN_NODES,
            pause_seconds=WRITER_PAUSE_SECONDS, seed=seed, continue_on_error=True,
        )  # fmt: skip
        writer.start()
        stopped.wait()
        writer.stop()


def main() -> None:
    """Run the role until SIGTERM."""
    role, path, nodes, reads_per_second, seed = sys.argv[1:]
    stopped, journal = threading.Event(), Journal(Path(path))
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if role == "writer":
        write(journal, stopped, int(seed))
        return
    interval_seconds = CALLERS[role] / float(reads_per_second)
    callers = [
        Caller(journal, int(nodes), interval_seconds, f"{seed}:{role}:{number}") for number in range(CALLERS[role])
    ]
    if role == "tasks":
        asyncio.run(read_in_tasks(callers, stopped))
    else:
        read_in_threads(callers, stopped)


if __name__ == "__main__":
    main()
