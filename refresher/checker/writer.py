"""Writer, which increments versions in the graph and invalidates their cached values."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, LiteralString

from neo4j.exceptions import DriverError, Neo4jError

from api_client import CacheClient, CacheError
from refresher.checker.oracle import Checker, Invalidated
from refresher.errors import RefresherError

if TYPE_CHECKING:
    import neo4j

_STOP_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """A query with one param and versioned values, and the Cypher that increments a version.

    ``increment_cypher`` takes ``$name`` and returns the new ``version``.
    """

    query: str
    param: str
    increment_cypher: LiteralString

    def params(self, name: str) -> dict[str, object]:
        """Return the params of a name."""
        return {self.param: name}


class WriterFailed(RefresherError):
    """The writer could not write to the graph, or could not invalidate."""


class Writer:
    """Increments versions and invalidates, soft and hard in turn, one name after another, until it is stopped.

    Args:
        driver, database: the graph.
        client: the client for the invalidations.
        checker: gets each invalidation once it has returned.
        watched: the query and its Cypher.
        names: the names to change.
        pause_seconds: the pause between two writes.
        seed: the seed of the choice among the names.
        continue_on_error: True for tests that inject errors. An unfinished invalidation is not reported.
    """

    def __init__(
        self,
        driver: neo4j.Driver,
        database: str | None,
        client: CacheClient,
        checker: Checker,
        watched: WatchedQuery,
        names: Sequence[str],
        *,
        pause_seconds: float,
        seed: int,
        continue_on_error: bool = False,
    ) -> None:
        self._driver, self._database, self._client, self._checker = driver, database, client, checker
        self._watched, self._names, self._pause_seconds = watched, names, pause_seconds
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._continue_on_error, self._stopped = continue_on_error, threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._problem: Exception | None = None
        self.soft_only: bool = False
        """Set while there is no worker to replace a value that a hard invalidation drops."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Check that the writer has not failed.

        Raises:
            WriterFailed: it could not write or invalidate.
        """
        if self._problem is not None:
            raise WriterFailed(f"the writer failed: {self._problem}") from self._problem

    def stop(self) -> None:
        """End the thread, after a write in progress."""
        self._stopped.set()
        if self._thread.is_alive():  # it may never have started
            self._thread.join(_STOP_SECONDS)

    def write_one(self, name: str, *, hard: bool) -> None:
        """Increment one version and invalidate its cached value."""
        with self._driver.session(database=self._database) as session:
            version = session.execute_write(_increment, self._watched.increment_cypher, name)
            # ArcadeDB has no bookmarks, and no followers that would need them.
            bookmarks = sorted(filter(None, session.last_bookmarks().raw_values))
        done = self._client.invalidate(self._watched.query, self._watched.params(name), hard=hard, bookmarks=bookmarks)
        self._checker.invalidated(Invalidated(name, version, done.generation, hard, time.monotonic()))

    def _run(self) -> None:
        hard = False
        while not self._stopped.wait(self._pause_seconds):
            try:
                self.write_one(self._random.choice(self._names), hard=hard and not self.soft_only)
            except (CacheError, DriverError, Neo4jError, OSError) as error:
                if not self._continue_on_error:
                    self._problem = error
                    return
            hard = not hard


def check_repairs(checker: Checker, client: CacheClient, watched: WatchedQuery, *, timeout_seconds: float) -> float:
    """Read each value as of its last invalidation, and report older ones; return the longest wait in seconds."""
    slowest_seconds = 0.0
    for done in checker.last:
        subject, began = f"{watched.query}({done.name!r})", time.monotonic()
        try:
            entry = client.get_entry(
                watched.query, watched.params(done.name), min_generation=done.generation, timeout=timeout_seconds
            )
        except CacheError as error:
            checker.report(f"{subject} was not repaired after its last invalidation: {error}")
            continue
        slowest_seconds = max(slowest_seconds, time.monotonic() - began)
        if entry.value is None or entry.value["version"] < done.version:
            checker.report(f"{subject} ended as {entry.value}, where version {done.version} was due")
    return slowest_seconds


def _increment(tx: neo4j.ManagedTransaction, increment_cypher: LiteralString, name: str) -> int:
    record: Any = tx.run(increment_cypher, name=name).single(strict=True)
    return int(record["version"])
