"""What the hosts run: ``python -m tests.acceptance.partitions.programs ROLE --log FILE --seconds N --seed S``.

``sync``, ``async`` and ``local`` (with an in-process tier, which a Redis Cluster does not offer) are readers, at
``--reads`` a second. ``writer`` writes nodes of the graph (NEO4J_…), ``--pause`` seconds apart, and invalidates their
tags or, with a share of ``--by-key``, a key (of ``--groups`` alone), with 0 to ``--replicas``; a share of ``--hard`` is
hard. After ``--writes`` writes it begins one more, and dies by SIGKILL at step ``--dies-at`` of its invalidation. All
have CACHE_… in their environment, write their `events` to FILE, named ``<host>-<role>-<n>.jsonl``, and end after N
seconds (0: never) or at SIGTERM. The workers are `worker`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from api_client import AsyncCacheClient, CacheClient, CacheError, ReaderSettings
from api_client.protocol import tags
from tests.acceptance.partitions.events import Log
from tests.acceptance.partitions.worker import GROUPED, NODES, NODES_OF_A_GROUP, key_of, name_of

TASKS: Final = 4
AGAIN_SECONDS: Final = 0.2
MAX_TIER_SECONDS: Final = 1.0
"""By then Redis' message has told an in-process tier of an invalidation, or it has emptied itself."""
NEW_SHARE: Final = 0.15
INCREMENT: Final = (
    "MATCH (watched:RefresherWatch) WHERE watched.id IN $names SET watched.version = watched.version + 1 "
    "RETURN watched.id AS id, watched.version AS version"
)
STEPS: Final = ("tick", "keep", "mark", "page", "invalidate", "finish")
"""The functions of `tags` that make the calls of an invalidation, one call each."""


class Reader:
    """The reads of a process, and their log."""

    def __init__(self, log: Log, reads_per_second: float, seed: int) -> None:
        self._log, self._random, self._rate = log, random.Random(seed), reads_per_second  # noqa: S311 - a choice
        settings = ReaderSettings.from_env()
        self._more = {"allowed_seconds": MAX_TIER_SECONDS} if settings.local_max_entries else {}

    def read_until(self, stopped: threading.Event) -> None:
        """Read on this thread."""
        with CacheClient.from_env() as client:
            while not stopped.wait(self._random.expovariate(self._rate)):
                for params in self._next():
                    with self._logged(params) as got:
                        got.append(client.get_entry(GROUPED, params))

    async def read_in_tasks_until(self, stopped: threading.Event) -> None:
        """Read in several tasks of an event loop."""
        async with AsyncCacheClient.from_env() as client:
            await asyncio.gather(*(self._read_in_task(client, stopped) for _ in range(TASKS)))

    async def _read_in_task(self, client: AsyncCacheClient, stopped: threading.Event) -> None:
        while not stopped.is_set():
            await asyncio.sleep(self._random.expovariate(self._rate / TASKS))
            for params in self._next():
                with self._logged(params) as got:
                    got.append(await client.get_entry(GROUPED, params))

    def _next(self) -> list[dict[str, int]]:
        """Return the next reads: a group's key, or a new key twice, the second time after its load."""
        params = {"group": self._random.randrange(NODES)}
        is_new = self._random.random() < NEW_SHARE
        return [params | {"once": self._random.getrandbits(48)}] * 2 if is_new else [params]

    @contextmanager
    def _logged(self, params: dict[str, int]) -> Iterator[list[Any]]:
        """Log a read of the entry that is put into the list, or how it failed."""
        start, got = time.monotonic(), list[Any]()
        try:
            yield got
        except CacheError as error:
            self._log.write("read", start, key=key_of(params), error=type(error).__name__)
        for entry in got:
            more = self._more | {"token": entry.token, "state": entry.state.value, "versions": entry.value}
            self._log.write("read", start, key=key_of(params), **more)


class Steps:
    """Counts the calls of an invalidation, which sets ``number`` to 0; at ``dies_at`` the process kills itself."""

    def __init__(self, on_kept: Callable[[], object]) -> None:
        self._on_kept, self.number = on_kept, 0
        self.dies_at: int | None = None
        for name in STEPS:
            setattr(tags, name, self._counted(name, getattr(tags, name)))

    def _counted(self, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.number += 1
            if name == "mark":
                self._on_kept()  # the reply to `keep` has come before the first of these is made
            if self.number == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return make(*args, **options)

        return counted


class Writer:
    """Writes nodes, one or two at a time, and invalidates what depends on them."""

    def __init__(self, log: Log, options: argparse.Namespace, stopped: threading.Event) -> None:
        self._log, self._options, self._stopped = log, options, stopped
        self._random = random.Random(options.seed)  # noqa: S311 - a choice
        self._steps, self._pending = Steps(self._kept), dict[str, Any]()

    def run(self) -> None:
        """Write until it is stopped, or dies."""
        auth = (os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
        uri, database = os.environ["NEO4J_URI"], os.environ["NEO4J_DATABASE"] or None
        number, writes = 0, self._options.writes
        with neo4j.GraphDatabase.driver(uri, auth=auth) as driver, CacheClient.from_env() as client:
            while not self._stopped.wait(self._options.pause):
                try:
                    with driver.session(database=database) as session:
                        versions = self._write(session)
                except (DriverError, Neo4jError) as error:
                    self._log.write("write", versions={}, ok=False, error=type(error).__name__)
                    continue
                self._steps.dies_at = self._options.dies_at if writes and number == writes else None
                for call in self._calls(versions):
                    self._invalidate(client, call)
                if writes and number == writes:
                    os.kill(os.getpid(), signal.SIGKILL)
                number += 1

    def _write(self, session: neo4j.Session) -> dict[str, int]:
        first, start = self._random.choice(self._options.groups), time.monotonic()
        names = [name_of(first + place) for place in range(self._random.choice((1, 1, 2)))]
        versions = session.execute_write(
            lambda tx: {record["id"]: record["version"] for record in tx.run(INCREMENT, names=names)}
        )
        self._log.write("write", start, versions=versions, ok=True)
        return versions

    def _calls(self, versions: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Return the invalidations of a write: of its nodes' tags, or of a key that has one of them."""
        hard = self._random.random() < self._options.hard
        if self._random.random() >= self._options.by_key:
            yield {"tag": list(versions), "versions": versions, "hard": hard}
            return
        name = self._random.choice(list(versions))
        groups = [(int(name[1:]) - place) % NODES for place in range(NODES_OF_A_GROUP)]
        if groups := [group for group in groups if group in self._options.groups]:
            key, replicas = f"g{self._random.choice(groups)}", self._random.randrange(self._options.replicas + 1)
            yield {"key": key, "versions": {name: versions[name]}, "hard": hard, "replicas": replicas}

    def _invalidate(self, client: CacheClient, call: dict[str, Any]) -> None:
        """Invalidate, and retry while Redis is unreachable, as an application does that must not lose it.

        Without bookmarks: the graph has no followers. With them, a tag's new keys would be loaded twice, which hides
        what a load has missed.
        """
        while True:
            self._pending = call
            self._steps.number = 0
            start = time.monotonic()
            try:
                done = self._call(client, call)
            except CacheError as error:
                self._log.write("invalidate", start, **call, ok=False, error=type(error).__name__)
                if self._stopped.wait(AGAIN_SECONDS):
                    return
            else:
                self._log.write("invalidate", start, **call, ok=True, **done)
                return

    @staticmethod
    def _call(client: CacheClient, call: dict[str, Any]) -> dict[str, Any]:
        if "tag" in call:
            client.invalidate_tags(call["tag"], hard=call["hard"])
            return {}
        params = {"group": int(call["key"][1:])}
        # Of one version: on a cluster, those that there are stand on another node.
        done = client.invalidate(GROUPED, params, version=1, hard=call["hard"], replicas=call["replicas"])
        return {"generation": done.generation, "replicated": bool(done.replicated)}

    def _kept(self) -> None:
        if "tag" in self._pending:
            self._log.write("kept", **self._pending)
            self._pending = {}


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["sync", "async", "local", "writer"])
    parser.add_argument("--log", type=Path, required=True)
    for name in ("seconds", "seed", "writes", "dies-at", "replicas"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--groups", type=int, nargs="+", default=range(NODES))
    parser.add_argument("--reads", type=float, default=50.0)
    parser.add_argument("--by-key", type=float, default=0.0)
    parser.add_argument("--hard", type=float, default=0.1)
    # Reads and loads come in between, in a run of a few hundred writes, too.
    parser.add_argument("--pause", type=float, default=0.02)
    return parser.parse_args(arguments)


def main() -> None:
    """Run the role."""
    options, stopped = parsed(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if options.seconds:
        timer = threading.Timer(options.seconds, stopped.set)
        timer.daemon = True
        timer.start()
    log = Log(options.log)
    if options.role == "local":
        os.environ.setdefault("CACHE_LOCAL_MAX_ENTRIES", "1000")
    if options.role == "writer":
        Writer(log, options, stopped).run()
        return
    reader = Reader(log, options.reads, options.seed)
    if options.role == "async":
        asyncio.run(reader.read_in_tasks_until(stopped))
    else:
        reader.read_until(stopped)


if __name__ == "__main__":
    main()
