"""Changes that the graph captures, through the consumer to entries in a real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from api_client import EntryState, get_cached
from api_client.protocol.keys import feed_position_key
from refresher.embedded import RedisServer
from refresher.feed.cdc import CapturedChanges
from refresher.feed.consumer import IDLE_SECONDS, Consumer
from refresher.feed.watches import Watches
from refresher.settings import WorkerSettings
from refresher.testing import InlineCache
from refresher.worker.redis_link import RetryingLink
from tests.support.capturing_graph import PERSON, CapturingGraph, CapturingServer

WATCHES = Watches({"Person": "ssn"})


@pytest.fixture
def link(redis_server: RedisServer) -> Iterator[RetryingLink]:
    with closing(RetryingLink(redis_server.url())) as link:
        yield link


def consumer(graph: CapturingGraph, link: RetryingLink, settings: WorkerSettings) -> Consumer:
    source = CapturedChanges(CapturingServer(graph), WATCHES, link.store, settings.namespace)  # type: ignore[arg-type]
    return Consumer(source, link.store, settings)


def test_a_captured_change_makes_what_depends_on_it_stale_and_no_other(cache: InlineCache, link: RetryingLink) -> None:
    cache.answer(
        "name_of", lambda ssn: ssn, ttl="5m", grace="1h", tags=lambda _, ssn: [f"Person:ssn={ssn}", "Person:*"]
    )
    settings = WorkerSettings(namespace=cache.client.settings.namespace)
    graph, people = CapturingGraph(), [{"ssn": "Y654321"}, {"ssn": "other"}]

    def states() -> list[EntryState]:
        return [cache.client.get_entry("name_of", person).state for person in people]

    with closing(consumer(graph, link, settings)) as first:
        for person in people:
            get_cached("name_of", person)
        assert first.step() == 0.0
        assert states() == [EntryState.STALE, EntryState.STALE], "no position yet"
        for person in people:
            get_cached("name_of", person)
    graph.commit(PERSON)
    with closing(consumer(graph, link, settings)) as second:
        assert second.step() == 0.0
        assert states() == [EntryState.STALE, EntryState.FRESH]
        assert second.step() == IDLE_SECONDS
    assert link.client.get(feed_position_key(settings.namespace)).endswith(b" 1.end")  # type: ignore[union-attr]
