"""The feed as a command and a worker run it: the graph's user, the trigger, and the consumer of its notes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext

from api_client.transport.scripts import LeaseStepRunner
from refresher.feed.changes import Changes
from refresher.feed.consumer import Consumer
from refresher.feed.outbox import Outbox
from refresher.feed.settings import FeedSettings
from refresher.feed.triggers import Triggers
from refresher.feed.watches import watches
from refresher.graph.driver import open_driver
from refresher.settings import WorkerSettings


@contextmanager
def opened_triggers(settings: WorkerSettings) -> Iterator[Triggers]:
    """Open the graph as the feed's user, whom REFRESHER_FEED_USER names; else the worker's.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    who = FeedSettings.from_env()
    user, password = (who.user, who.password) if who.user else (settings.neo4j_user, settings.neo4j_password)
    with closing(open_driver(settings, user, password)) as driver:
        yield Triggers(driver, settings.neo4j_database or None)


def consume(
    triggers: Triggers,
    steps: LeaseStepRunner,
    settings: WorkerSettings,
    stopped: threading.Event,
    *,
    on_invalidated: Callable[[Changes, int], object] = lambda *_: None,
    at_work: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Consume the trigger's notes until ``stopped`` is set, or an exception ends it.

    Raises:
        FeedError: the trigger is not installed, or not with what this process watches.
    """
    with at_work():
        triggers.check(watches)
    outbox = Outbox(triggers.driver, triggers.database, watches)
    consumer = Consumer(outbox, steps, settings, on_invalidated=on_invalidated, at_work=at_work)
    try:
        consumer.run(stopped)
    finally:
        consumer.close()
