"""The demo's writer: changes hot persons in the graph and invalidates what the cache holds of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, LiteralString

from neo4j.exceptions import DriverError, Neo4jError

from api_client import CacheClient, CacheError
from refresher.demo.checker import Checker, Invalidated
from refresher.demo.errors import DemoError
from refresher.demo.reader_thread import CHECKED_QUERY

if TYPE_CHECKING:
    import neo4j

PAUSE_SECONDS: Final = 0.8
NAMES: Final = 16
"""How many of the hottest persons are changed: few, so that each is in turn invalidated several times in a run."""

_STOP_SECONDS: Final = 15.0
_RAISE_VERSION: LiteralString = (
    "MATCH (p:Person {name: $name}) SET p.version = p.version + 1 RETURN p.version AS version"
)


class Writer:
    """Raises a person's version and invalidates its profile, softly and hard in turn, until it is stopped.

    Args:
        driver, database: the graph.
        client: invalidates.
        checker: is told of each invalidation once it has returned.
        names: the persons to change.
        seed: of the choice among them.
    """

    def __init__(
        self,
        driver: neo4j.Driver,
        database: str | None,
        client: CacheClient,
        checker: Checker,
        names: Sequence[str],
        *,
        seed: int,
    ) -> None:
        self._driver, self._database, self._client, self._checker = driver, database, client, checker
        self._names, self._random = names, random.Random(seed)  # noqa: S311 - no secret
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._problem: Exception | None = None
        self.soft_only = False
        """Set while there is no worker: what a hard invalidation takes away then, nobody would bring back."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Look whether it is still at it.

        Raises:
            DemoError: it could not write or invalidate.
        """
        if self._problem is not None:
            raise DemoError(f"the demo's writer failed: {self._problem}") from self._problem

    def stop(self) -> None:
        """End; a write under way is finished first."""
        self._stopped.set()
        if self._thread.is_alive():  # it may never have begun
            self._thread.join(_STOP_SECONDS)

    def write_one(self, name: str, *, hard: bool) -> None:
        """Change one person and invalidate what is known of it."""
        with self._driver.session(database=self._database) as session:
            version = session.execute_write(_raise_version, name)
            # ArcadeDB has no bookmarks; it also has no followers that would need them.
            bookmarks = sorted(filter(None, session.last_bookmarks().raw_values))
        done = self._client.invalidate(CHECKED_QUERY, {"name": name}, hard=hard, bookmarks=bookmarks)
        self._checker.invalidated(Invalidated(name, version, done.generation, hard, time.monotonic()))

    def _run(self) -> None:
        hard = False
        while not self._stopped.wait(PAUSE_SECONDS):
            try:
                self.write_one(self._random.choice(self._names), hard=hard and not self.soft_only)
            except (CacheError, DriverError, Neo4jError, OSError) as error:
                self._problem = error
                return
            hard = not hard


def _raise_version(tx: neo4j.ManagedTransaction, name: str) -> int:
    record: Any = tx.run(_RAISE_VERSION, name=name).single(strict=True)
    return int(record["version"])
