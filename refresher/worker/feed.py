"""The change feed within a worker (CACHE_FEED=true). Only one of the workers that have it consumes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from refresher.flow.ports import WorkerEvents
from refresher.ops.forks import fork_gate
from refresher.settings import WorkerSettings
from refresher.worker.periodic import Periodic
from refresher.worker.redis_link import RetryingLink

if TYPE_CHECKING:
    from refresher.feed.consumer import Invalidated

RETRY_SECONDS: Final = 5.0


def feed(settings: WorkerSettings, events: Callable[[], WorkerEvents]) -> Periodic:
    """Return the chore that consumes on a thread of the main process, and starts anew whatever ends it."""

    def run(stopped: threading.Event) -> None:
        from refresher.feed.run import consume, opened_triggers  # imported only with CACHE_FEED

        count = partial(_count, events)
        with opened_triggers(settings) as triggers, closing(RetryingLink(settings.redis_url)) as link:
            consume(triggers, link.store, settings, stopped, on_invalidated=count, at_work=fork_gate.at_work)

    return Periodic("consume the graph's changes", RETRY_SECONDS, run, expected=(Exception,))


def _count(events: Callable[[], WorkerEvents], done: Invalidated) -> None:
    counts = events()
    counts.changes_invalidated(
        transactions=len(done.changes.positions), tags=len(done.changes.tags), bulk=done.changes.bulk
    )
    seconds = max(done.staleness_seconds, default=0.0)  # it is not known on which of the changes an entry depended
    for query in done.by_query.elements():
        counts.was_stale(query, until="invalidated", seconds=seconds)
