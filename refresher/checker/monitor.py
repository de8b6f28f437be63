"""Monitor, which watches a deployment with its own nodes in the graph, a writer, readers and the oracle."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import neo4j
from neo4j.exceptions import AuthError, ClientError, DriverError, Neo4jError

from api_client import CacheClient, EntryState, ReaderSettings, UnknownQuery, WaitTimeout
from refresher.checker.feed import is_fed, seconds_until_read
from refresher.checker.nodes import CREATE_NODES, REMOVE_NODES, WATCH_QUERY, WATCHED
from refresher.checker.oracle import Checker
from refresher.checker.reader import Reader
from refresher.checker.writer import Writer, check_repairs
from refresher.errors import RefresherError

NODES: Final = 4
WRITER_PAUSE_SECONDS: Final = 0.5
FIRST_READ_SECONDS: Final = 15.0
REPAIR_SECONDS: Final = 30.0
TICK_SECONDS: Final = 0.2
_REMEDY: Final = (
    "REFRESHER_WATCH_USER and REFRESHER_WATCH_PASSWORD name one that may create, change and delete nodes with the "
    "label RefresherWatch (default: NEO4J_USER and NEO4J_PASSWORD)"
)


class WatchFailed(RefresherError):
    """The watch could not run; the message contains the remedy."""


@dataclass(frozen=True, slots=True)
class WatchResult:
    """Result of a watch. Durations in seconds; ``broken`` lists the violations as text.

    ``feed`` has, for each write that only the change feed made known, the time from its commit until a reader got it.
    """

    seconds: float
    states: Counter[EntryState]
    failures: Counter[str]
    soft_invalidations: int
    hard_invalidations: int
    slowest_repair_seconds: float
    broken: tuple[str, ...] = field(default=())
    feed: tuple[float, ...] = ()

    @property
    def reads(self) -> int:
        """Number of reads that got a value."""
        return self.states.total()


def watch(
    settings: ReaderSettings,
    driver: neo4j.Driver,
    database: str | None,
    *,
    span_seconds: float,
    reads_per_second: float,
) -> WatchResult:
    """Watch for ``span_seconds``, or until Ctrl-C.

    Raises:
        WatchFailed: the graph can't be written to, or no worker knows the query.
        WriterFailed: the writer could no longer write to the graph, or not invalidate.
        CacheUnavailable: the cache was unavailable before the start.
    """
    run = uuid.uuid4().hex[:12]
    *names, fed_name = (f"{run}-{number}" for number in range(NODES + 1))
    feed_seconds: list[float] = []
    checker = Checker(WATCH_QUERY)
    with _nodes(driver, database, [*names, fed_name]), CacheClient(settings) as client:
        _first_read(client, names[0])
        writer = Writer(
            driver, database, client, checker, WATCHED, names, pause_seconds=WRITER_PAUSE_SECONDS, seed=1
        )  # fmt: skip
        reader = Reader(settings, WATCHED, names, reads_per_second=reads_per_second, seed=1)
        began = time.monotonic()
        try:
            reader.start()
            writer.start()
            measure = partial(seconds_until_read, driver, database, client, fed_name) if is_fed(settings) else None
            with suppress(KeyboardInterrupt):
                feed_seconds.extend(measure() for _ in _ticks(began, span_seconds, writer) if measure)
        finally:
            writer.stop()
            reader.stop()
        reader.log.report(checker)
        slowest_seconds = check_repairs(checker, client, WATCHED, timeout_seconds=REPAIR_SECONDS)
    hard = sum(done.hard for done in checker.invalidations)
    return WatchResult(
        time.monotonic() - began, reader.log.states, reader.log.failures, len(checker.invalidations) - hard, hard,
        slowest_seconds, tuple(checker.broken), tuple(feed_seconds),
    )  # fmt: skip


def _ticks(began: float, span_seconds: float, writer: Writer) -> Iterator[None]:
    while (past_seconds := time.monotonic() - began) < span_seconds:
        writer.check()
        yield
        time.sleep(min(TICK_SECONDS, span_seconds - past_seconds))
    writer.check()


def _first_read(client: CacheClient, name: str) -> None:
    try:
        client.get(WATCH_QUERY, WATCHED.params(name), timeout=FIRST_READ_SECONDS)
    except UnknownQuery as error:
        raise WatchFailed(
            f"no worker knows the query {WATCH_QUERY}: add refresher.watch to the workers' REFRESHER_QUERIES, and "
            "restart them"
        ) from error
    except WaitTimeout as error:
        raise WatchFailed(f"no worker has replied within {FIRST_READ_SECONDS:g} s: is one running?") from error


@contextmanager
def _nodes(driver: neo4j.Driver, database: str | None, names: list[str]) -> Iterator[None]:
    try:
        with driver.session(database=database) as session:
            session.run(CREATE_NODES, names=names).consume()
    except AuthError as error:
        raise WatchFailed(f"the graph refuses the watch's user: {_REMEDY}") from error
    except ClientError as error:
        raise WatchFailed(f"the watch may not write to the graph ({error.code}): {_REMEDY}") from error
    except (DriverError, Neo4jError) as error:
        raise WatchFailed(f"the graph can't be written to: {error}") from error
    except KeyboardInterrupt:  # the nodes may have been created
        _remove(driver, database, names)
        raise
    try:
        yield
    finally:
        _remove(driver, database, names)


def _remove(driver: neo4j.Driver, database: str | None, names: list[str]) -> None:
    try:
        with driver.session(database=database) as session:
            session.run(REMOVE_NODES, names=names).consume()
    except (DriverError, Neo4jError) as error:
        left = f"MATCH (watched:RefresherWatch) WHERE watched.id IN {names} DELETE watched"
        raise WatchFailed(f"the graph can't be written to any more: {error}; what is left to do: {left}") from error
