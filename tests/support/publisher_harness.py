"""A publisher on a real Redis whose thread a test can hold, and a broker with scripted replies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

import redis

from api_client import ReaderSettings, RefreshReason
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.live_versions import loader_of, register, register_loader
from api_client.protocol.messages import RefreshItem
from api_client.transport.link import CacheLink
from api_client.transport.scripts import LeaseStore
from api_client.trigger.backlog import Trigger
from api_client.trigger.broker import Broker
from api_client.trigger.claim_and_publish import BatchPublisher
from api_client.trigger.publisher import Publisher
from api_client.trigger.suppression import TriggerSuppressor
from refresher.embedded import RedisServer
from tests.support.event_recorder import EventRecorder
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "cache"
QUEUE_SIZE = 10


class ScriptedBroker(Broker):
    """A broker with scripted behaviour, for cases that a real one does not produce on demand."""

    def __init__(self) -> None:
        self.length: int | Exception = 0
        self.misses: int | Exception = 0
        self.error: Callable[[RefreshItem], Exception | None] = lambda _: None
        self.messages: list[tuple[list[int], bool]] = []
        self.sizes: list[int] = []
        self.length_polls = 0

    def publish(self, items: Sequence[RefreshItem], *, has_waiter: bool) -> None:
        raise NotImplementedError

    def publish_each(self, contents: Sequence[Sequence[RefreshItem]], *, has_waiter: bool) -> list[Exception | None]:
        errors = [self.error(items[0]) for items in contents]
        sent = [items for items, error in zip(contents, errors, strict=True) if error is None]
        self.messages.append(([item.decoded_params["n"] for items in sent for item in items], has_waiter))
        self.sizes += map(len, sent)
        return errors

    def waiting(self, *, has_waiter: bool = False) -> int:
        self.length_polls += 1
        length = self.misses if has_waiter else self.length
        if isinstance(length, Exception):
            raise length
        return length

    def close(self) -> None:
        pass


class Ended:
    """The outcome of a trigger that was submitted with this as its ``done``."""

    def __init__(self) -> None:
        self._came: SimpleQueue[Exception | None] = SimpleQueue()

    def __call__(self, error: Exception | None) -> None:
        self._came.put(error)

    def error(self, timeout_seconds: float = MAX_WAIT_SECONDS) -> Exception | None:
        """Return its error; None if it succeeded."""
        return self._came.get(timeout=timeout_seconds)


@contextmanager
def held(publisher: Publisher) -> Iterator[None]:
    """Hold a publisher's thread: the triggers submitted in this block are its next batch."""
    is_held, go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        assert go.wait(MAX_WAIT_SECONDS)

    publisher.run_in_background(hold)
    assert is_held.wait(MAX_WAIT_SECONDS)
    try:
        yield
    finally:
        go.set()


class PublisherHarness:
    """A publisher whose thread a test can hold while it submits triggers, and whose ``clock`` only the test moves."""

    def __init__(self, server: RedisServer, broker: Broker, **settings: object) -> None:
        self.client = redis.Redis.from_url(server.url(0))
        self.link = CacheLink(server.url(0), MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)
        self.broker, self.events, self.clock = broker, EventRecorder(), Time()
        self.suppressor = TriggerSuppressor(monotonic=self.clock)
        publication = BatchPublisher(
            ReaderSettings(namespace=NAMESPACE, **settings),  # type: ignore[arg-type]
            self.link, broker, self.suppressor, self.events, monotonic=self.clock,
        )  # fmt: skip
        self.publisher = Publisher(publication, self.events.spans)

    def trigger(self, n: int, reason: RefreshReason = RefreshReason.STALE, **changes: object) -> Trigger:
        return Trigger(key(n), reason, **{"seen_token": 0, **changes})  # type: ignore[arg-type]

    def handle(self, *triggers: Trigger) -> list[bool]:
        """Submit all as one batch (of each queue), and wait for its end."""
        with held(self.publisher):
            accepted = self.publisher.submit_all(triggers)
        assert self.publisher.flush(MAX_WAIT_SECONDS)
        return accepted

    def claimed(self, n: int) -> bool:
        return bool(self.client.exists(key(n).record))

    def close(self) -> None:
        self.publisher.close()
        self.link.close()
        self.client.close()


def register_batched_query(client: redis.Redis, version: int = 1) -> None:
    """Register a version of the query as one that workers load in batches."""
    store = LeaseStore(client)
    store.run(register(NAMESPACE, "q", version, lives_seconds=60.0))
    store.run(register_loader(NAMESPACE, "q", loader_of(version, None), lives_seconds=60.0))


def key(n: int) -> CacheKey:
    return make_key(NAMESPACE, "q", {"n": n}, 1)
