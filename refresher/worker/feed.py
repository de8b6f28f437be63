"""The feed within a worker: CACHE_FEED=true. Of all that have it, one consumes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from refresher.flow.ports import WorkerEvents
from refresher.ops.forks import fork_gate
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink

if TYPE_CHECKING:
    from refresher.feed.consumer import Invalidated

log: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0


class Feed:
    """Consumes on a thread of the main process, from `start` to `stop`; nothing without CACHE_FEED."""

    def __init__(self, settings: WorkerSettings, events: Callable[[], WorkerEvents]) -> None:
        self._settings, self._events = settings, events
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, once the worker has forked its pool."""
        if self._settings.feed:
            self._stopped.clear()
            threading.Thread(target=self._run, name="feed", daemon=True).start()

    def stop(self) -> None:
        """End; what is being invalidated is finished."""
        self._stopped.set()

    def _run(self) -> None:
        from refresher.feed.run import consume, opened_triggers  # it costs those alone who have CACHE_FEED

        said = ""
        while not self._stopped.is_set():
            try:
                with (
                    opened_triggers(self._settings) as triggers,
                    closing(RetryingLink(self._settings.redis_url)) as link,
                ):
                    consume(
                        triggers,
                        link.store,
                        self._settings,
                        self._stopped,
                        on_invalidated=self._count,
                        at_work=fork_gate.at_work,
                    )
            except Exception as error:  # noqa: BLE001 - whatever it is, the worker refreshes, and it may be mended
                if str(error) != said:
                    said = str(error)
                    log.error("the feed can't run: %s", said)
                self._stopped.wait(RETRY_SECONDS)

    def _count(self, done: Invalidated) -> None:
        events = self._events()
        events.changes_invalidated(
            transactions=len(done.changes.positions), tags=len(done.changes.tags), bulk=done.changes.bulk
        )
        seconds = max(done.staleness_seconds, default=0.0)  # which of the changes an entry depended on is not known
        for query in done.by_query.elements():
            events.was_stale(query, until="invalidated", seconds=seconds)
