"""Staleness with and without the change feed: persons are written by plain Cypher, and read through both caches.

Nobody else invalidates these persons. One query has tags and a TTL of an hour, the other only a TTL of seconds.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from neo4j.exceptions import DriverError, Neo4jError

from api_client import CacheClient, CacheError
from refresher.demo.queries import BY_FEED, BY_TTL, profile

if TYPE_CHECKING:
    import neo4j

WRITE_SECONDS: Final = 0.2
READ_SECONDS: Final = 0.01
UNCOUNTED_SECONDS: Final = 5.0
"""Time for worker and consumer to do their work once."""
_WARM_UP_WRITES: Final = 250
_WRITE: Final = "MATCH (p:Person {name: $name}) SET p.version = p.version + 1 RETURN p.version AS version"
_TIMEOUT_SECONDS: Final = 5.0
_JOIN_SECONDS: Final = 2 * _TIMEOUT_SECONDS


@dataclass(slots=True)
class Outdated:
    """Reads of one query, of which ``outdated`` began up to ``longest_seconds`` after a newer version's commit."""

    reads: int = 0
    outdated: int = 0
    longest_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Share of outdated reads, from 0 to 1."""
        return self.outdated / self.reads if self.reads else 0.0


@dataclass(slots=True)
class Comparison:
    """Both queries' reads, and the number of writes."""

    writes: int = 0
    by_feed: Outdated = field(default_factory=Outdated)
    by_ttl: Outdated = field(default_factory=Outdated)


class Staleness:
    """Writes and reads on two threads, from `start` to `stop`.

    Args:
        driver, database: the graph.
        client: the client for the reads.
        names: the names of persons that nobody else writes.
        seed: the seed of the draws.
    """

    def __init__(
        self, driver: neo4j.Driver, database: str | None, client: CacheClient, names: Sequence[str], *, seed: int
    ) -> None:
        self._driver, self._database, self._client, self._names = driver, database, client, names
        self._random, self._stopped = random.Random(seed), threading.Event()  # noqa: S311 - no secret
        # The versions and their commit times, by person; the first one predates the run.
        self._commits: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._write, self._read)]
        self._counts_from = 0.0
        self.comparison: Comparison = Comparison()

    def start(self) -> None:
        """Start both threads."""
        self._counts_from = time.monotonic() + UNCOUNTED_SECONDS
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads, after a write or read in progress."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_JOIN_SECONDS)

    def _write(self) -> None:
        while not self._stopped.wait(WRITE_SECONDS):
            name = self._random.choice(self._names)
            try:
                with self._driver.session(database=self._database) as session:
                    version = session.execute_write(_written, name)
            except (DriverError, Neo4jError, OSError):
                continue
            self._commits[name].append((version, time.monotonic()))
            self.comparison.writes += 1

    def _read(self) -> None:
        counts = {BY_FEED: self.comparison.by_feed, BY_TTL: self.comparison.by_ttl}
        while not self._stopped.wait(READ_SECONDS):
            name = self._random.choice(self._names)
            for query, counted in counts.items():
                began_at = time.monotonic()
                commits = list(self._commits[name])
                try:
                    value = self._client.get(query, {"name": name}, timeout=_TIMEOUT_SECONDS)
                except CacheError:
                    continue
                if began_at < self._counts_from:
                    continue
                counted.reads += 1
                if missed := [at for version, at in commits if version > value["version"]]:
                    counted.outdated += 1
                    counted.longest_seconds = max(counted.longest_seconds, began_at - missed[0])


def warm_up(driver: neo4j.Driver, database: str | None, names: Sequence[str]) -> None:
    """Write and load some persons, which takes Neo4j seconds of both cores until Java has compiled the code."""
    with driver.session(database=database) as session:
        for number in range(_WARM_UP_WRITES):
            session.execute_write(_written, names[number % len(names)])
            session.execute_read(profile, names[number % len(names)])


def _written(tx: neo4j.ManagedTransaction, name: str) -> int:
    return int(tx.run(_WRITE, name=name).single(strict=True)["version"])
