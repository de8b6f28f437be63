"""The writer: raises versions in the graph, and invalidates what the cache holds of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, LiteralString

from neo4j.exceptions import DriverError, Neo4jError

from api_client import CacheClient, CacheError
from refresher.checker.judging import Checker, Invalidated
from refresher.errors import RefresherError

if TYPE_CHECKING:
    import neo4j

_STOP_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched: a query of one param whose values have a version, and the Cypher that raises it.

    ``raise_version`` takes ``$name`` and returns the new ``version``.
    """

    query: str
    param: str
    raise_version: LiteralString

    def params(self, name: str) -> dict[str, object]:
        """Return the params of a name."""
        return {self.param: name}


class WriterFailed(RefresherError):
    """The writer could not write to the graph, or not invalidate."""


class Writer:
    """Raises a version and invalidates, softly and hard in turn, one name after another, until it is stopped.

    Args:
        driver, database: the graph.
        client: invalidates.
        checker: is told of each invalidation once it has returned.
        watched: the query, and how its versions are raised.
        names: what to change.
        pause_seconds: between two writes.
        seed: of the choice among the names.
        goes_on: after an error too, as a test needs that makes them. What it could not finish it does not tell of.
    """

    def __init__(
        self,
        driver: neo4j.Driver,
        database: str | None,
        client: CacheClient,
        checker: Checker,
        watched: Watched,
        names: Sequence[str],
        *,
        pause_seconds: float,
        seed: int,
        goes_on: bool = False,
    ) -> None:
        self._driver, self._database, self._client, self._checker = driver, database, client, checker
        self._watched, self._names, self._pause_seconds = watched, names, pause_seconds
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._goes_on, self._stopped = goes_on, threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._problem: Exception | None = None
        self.soft_only: bool = False
        """Set while there is no worker: what a hard invalidation takes away then, nobody would bring back."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Look whether it is still at it.

        Raises:
            WriterFailed: it could not write or invalidate.
        """
        if self._problem is not None:
            raise WriterFailed(f"the writer failed: {self._problem}") from self._problem

    def stop(self) -> None:
        """End; a write under way is finished first."""
        self._stopped.set()
        if self._thread.is_alive():  # it may never have begun
            self._thread.join(_STOP_SECONDS)

    def write_one(self, name: str, *, hard: bool) -> None:
        """Raise one version and invalidate what is known of it."""
        with self._driver.session(database=self._database) as session:
            version = session.execute_write(_raised, self._watched.raise_version, name)
            # ArcadeDB has no bookmarks; it also has no followers that would need them.
            bookmarks = sorted(filter(None, session.last_bookmarks().raw_values))
        done = self._client.invalidate(self._watched.query, self._watched.params(name), hard=hard, bookmarks=bookmarks)
        self._checker.invalidated(Invalidated(name, version, done.generation, hard, time.monotonic()))

    def _run(self) -> None:
        hard = False
        while not self._stopped.wait(self._pause_seconds):
            try:
                self.write_one(self._random.choice(self._names), hard=hard and not self.soft_only)
            except (CacheError, DriverError, Neo4jError, OSError) as error:
                if not self._goes_on:
                    self._problem = error
                    return
            hard = not hard


def check_repairs(checker: Checker, client: CacheClient, watched: Watched, *, timeout_seconds: float) -> float:
    """Ask for each value as it is after its last invalidation, and report what is not; the longest wait, in seconds."""
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


def _raised(tx: neo4j.ManagedTransaction, raise_version: LiteralString, name: str) -> int:
    record: Any = tx.run(raise_version, name=name).single(strict=True)
    return int(record["version"])
