"""The run of the feed in a command or a worker: the graph's user, the source of changes, and the consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext

from api_client.transport.link import CacheLink
from refresher.feed.cdc import CapturedChanges, is_source
from refresher.feed.changes import ChangeSource
from refresher.feed.consumer import Consumer, Invalidated
from refresher.feed.outbox import Outbox
from refresher.feed.settings import FeedSettings
from refresher.feed.state import FeedState, publishing
from refresher.feed.triggers import Triggers
from refresher.feed.watches import watches
from refresher.graph.driver import open_driver
from refresher.settings import WorkerSettings


@contextmanager
def opened_triggers(settings: WorkerSettings) -> Iterator[Triggers]:
    """Open the graph as the feed's user (REFRESHER_FEED_USER), by default the worker's.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    who = FeedSettings.from_env()
    with closing(open_driver(settings, who.user, who.password)) as driver:
        yield Triggers(driver, settings.neo4j_database or None)


def consume(
    triggers: Triggers,
    store: CacheLink,
    settings: WorkerSettings,
    stopped: threading.Event,
    *,
    on_invalidated: Callable[[Invalidated], object] = lambda _: None,
    at_work: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Consume the graph's changes until ``stopped`` is set or an exception comes.

    Raises:
        FeedError: the trigger is not installed for this process's watches, nor does the database capture changes.
    """
    with at_work():
        # From now on somebody should consume, and the state also shows if nobody can.
        store.execute_all([publishing(settings.namespace, FeedState(), "NX")])
        source = _source(triggers, store, settings)
    watched = (*watches.nodes, *watches.relationships)
    consumer = Consumer(source, store, settings, watched=watched, on_invalidated=on_invalidated, at_work=at_work)
    try:
        consumer.run(stopped)
    finally:
        consumer.close()


def _source(triggers: Triggers, store: CacheLink, settings: WorkerSettings) -> ChangeSource:
    """Return the trigger's notes as source, or captured changes if no trigger is installed and there are any."""
    if is_source(triggers, watches):
        return CapturedChanges(triggers, watches, store, settings.namespace)
    triggers.check(watches)
    return Outbox(triggers, watches)
