"""The workers of a history: ``celery -A tests.acceptance.partitions.worker worker``.

Each process of the pool logs its loads, acquires and commits to ``$HISTORY_LOG-<pid>.jsonl``; HISTORY_LOG ends with
``<host>-worker``. HISTORY_TTL (default 1h) is the query's.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from api_client import CacheUnavailable
from api_client.protocol.keys import make_key
from api_client.protocol.lease import AcquireReply, AcquireStatus, Call, CommitStatus
from api_client.transport.scripts import LeaseStepRunner, Until
from refresher import WorkerEvents, make_app, query
from refresher.flow.ports import Origin, WorkerSpans
from refresher.queries import Loaded, Query
from refresher.results import Previous
from tests.acceptance.partitions.events import Log

T = TypeVar("T")

GROUPED: Final = "grouped"
NODES, NODES_OF_A_GROUP = 40, 3
MAX_LOAD_SECONDS = 0.05


def name_of(number: int) -> str:
    """Return the id of a node, which is also the tag of the entries that depend on it."""
    return f"n{number % NODES}"


def names_of(group: int) -> list[str]:
    """Return the nodes of a group; each belongs to as many groups."""
    return [name_of(group + place) for place in range(NODES_OF_A_GROUP)]


def key_of(params: Mapping[str, int]) -> str:
    """Return a key's name in events: g3, or g3/4 where ``once`` is 4."""
    return f"g{params['group']}" + (f"/{params['once']}" if "once" in params else "")


@query(
    GROUPED, ttl=os.environ.get("HISTORY_TTL", "1h"), slots=64, grace="1h",
    tags=lambda value, group, once=0: names_of(group),
)  # fmt: skip
def grouped(tx: Any, group: int, once: int = 0) -> dict[str, int]:
    """Read the versions of a group's nodes, and take some more time, in which others may write them.

    Another ``once`` makes a key that no index has yet.
    """
    rows = tx.run(
        "MATCH (watched:RefresherWatch) WHERE watched.id IN $names RETURN watched.id AS id, watched.version AS version",
        names=names_of(group),
    )
    versions = {row["id"]: row["version"] for row in rows}
    time.sleep(random.uniform(0, MAX_LOAD_SECONDS))  # noqa: S311 - a duration
    return versions


@cache
def log_of(pid: int) -> Log:
    """Return the log of a process, which a fork does not share."""
    return Log(Path(f"{os.environ['HISTORY_LOG']}-{pid}.jsonl"))


@cache
def names_by_entry() -> dict[str, str]:
    """Return the names of the keys by their entries' Redis keys; those with ``once`` are not among them."""
    namespace = os.environ.get("CACHE_NAMESPACE", "cache")
    return {make_key(namespace, GROUPED, {"group": group}, 1).entry: f"g{group}" for group in range(NODES)}


class LoggedSteps:
    """Logs the acquires and commits among the steps."""

    def __init__(self, steps: LeaseStepRunner) -> None:
        self._steps = steps

    def run(self, call: Call[T], /) -> T:
        """Run one step."""
        start = time.monotonic()
        try:
            reply = self._steps.run(call)
        except CacheUnavailable as error:
            _log_step(call, error, start)
            raise
        _log_step(call, reply, start)
        return reply

    def run_each(self, calls: Sequence[Call[T]], /, *, until: Until = all) -> Sequence[T | CacheUnavailable]:
        """Run steps in one round trip."""
        start = time.monotonic()
        replies = self._steps.run_each(calls, until=until)
        for call, reply in zip(calls, replies, strict=True):
            _log_step(call, reply, start)
        return replies


def _log_step(call: Call[Any], reply: object, start: float) -> None:
    name = names_by_entry().get(call.keys[0])
    if name is None:
        return
    if isinstance(reply, AcquireReply) and reply.status is AcquireStatus.ACQUIRED:
        log_of(os.getpid()).write("acquire", start, key=name, token=reply.token)
    elif call.script == "commit":
        outcome = {"status": reply.name.lower()} if isinstance(reply, CommitStatus) else {"error": str(reply)}
        log_of(os.getpid()).write("commit", start, key=name, token=call.args[0], **outcome)


class LoggedOrigin:
    """Logs each load of a group."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def load(
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> Sequence[Loaded]:
        """Load values; the query has no batches."""
        start, log, (params,) = time.monotonic(), log_of(os.getpid()), calls
        try:
            loaded = self._origin.load(query, calls, previous, bookmarks, timeout_seconds)
        except BaseException as error:
            log.write("load", start, key=key_of(params), error=type(error).__name__)
            raise
        log.write("load", start, key=key_of(params), versions=loaded[0].value)
        return loaded


class LoggedSpans(WorkerSpans):
    """The hooks, which see all steps and loads."""

    def lease_steps(self, steps: LeaseStepRunner) -> LeaseStepRunner:
        """Return ``steps``, logged."""
        return LoggedSteps(steps)

    def origin(self, origin: Origin) -> Origin:
        """Return ``origin``, logged."""
        return LoggedOrigin(origin)


class LoggedEvents(WorkerEvents):
    """The events that these hooks come with."""

    spans = LoggedSpans()


if "HISTORY_LOG" in os.environ:
    app = make_app(events=LoggedEvents())
