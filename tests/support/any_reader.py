"""A common interface to sync and async readers, the outcome of a call, and access to private parts of a reader."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from api_client import (
    AsyncCacheClient,
    CacheClient,
    CacheError,
    Entry,
    Explanation,
    Invalidation,
    ReaderEvents,
    ReaderSettings,
    RefreshState,
    TagInvalidation,
    WaitTimeout,
)
from api_client.client_base import ClientBase
from api_client.local.tier import LocalTier
from api_client.protocol.keys import CacheKey
from api_client.read.batch import AnyCall
from tests.support.internals import flights_of, single_flight_of, tier_of, tracking_of
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

T = TypeVar("T")


class AnyReader(Protocol):
    """The blocking calls of tests."""

    def get(self, query: str, params: dict[str, Any], **options: Any) -> Any: ...
    def get_entry(self, query: str, params: dict[str, Any], **options: Any) -> Entry[Any]: ...
    def get_many(self, calls: Iterable[AnyCall], **options: Any) -> list[Entry[Any] | CacheError]: ...
    def explain(self, query: str, params: dict[str, Any], **options: Any) -> Explanation: ...
    def key(self, query: str, params: dict[str, Any], **options: Any) -> CacheKey: ...
    def refresh(self, query: str, params: dict[str, Any], **options: Any) -> RefreshState: ...
    def invalidate(self, query: str, params: dict[str, Any], **options: Any) -> Invalidation: ...
    def invalidate_many(self, calls: Iterable[AnyCall], **options: Any) -> list[Invalidation | CacheError]: ...
    def invalidate_tags(self, tags: Any, **options: Any) -> TagInvalidation: ...
    def flush(self, timeout: float) -> bool: ...
    def close(self) -> None: ...


class _Awaited:
    """The async reader with the sync interface: each call is awaited on an event loop of its own thread."""

    def __init__(self, settings: ReaderSettings, events: ReaderEvents) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event-loop", daemon=True)
        self._thread.start()
        self.client = AsyncCacheClient(settings, events=events)

    def get(self, query: str, params: dict[str, Any], **options: Any) -> Any:
        return self.wait_for(self.client.get(query, params, **options))

    def get_entry(self, query: str, params: dict[str, Any], **options: Any) -> Entry[Any]:
        return self.wait_for(self.client.get_entry(query, params, **options))

    def get_many(self, calls: Iterable[AnyCall], **options: Any) -> list[Entry[Any] | CacheError]:
        return self.wait_for(self.client.get_many(calls, **options))

    def explain(self, query: str, params: dict[str, Any], **options: Any) -> Explanation:
        return self.wait_for(self.client.explain(query, params, **options))

    def key(self, query: str, params: dict[str, Any], **options: Any) -> CacheKey:
        return self.client.key(query, params, **options)

    def refresh(self, query: str, params: dict[str, Any], **options: Any) -> RefreshState:
        return self.wait_for(self.client.refresh(query, params, **options))

    def invalidate(self, query: str, params: dict[str, Any], **options: Any) -> Invalidation:
        return self.wait_for(self.client.invalidate(query, params, **options))

    def invalidate_many(self, calls: Iterable[AnyCall], **options: Any) -> list[Invalidation | CacheError]:
        return self.wait_for(self.client.invalidate_many(calls, **options))

    def invalidate_tags(self, tags: Any, **options: Any) -> TagInvalidation:
        return self.wait_for(self.client.invalidate_tags(tags, **options))

    def flush(self, timeout: float) -> bool:
        return self.wait_for(self.client.flush(timeout))

    def close_client(self) -> None:
        """Close the client; the event loop goes on."""
        self.wait_for(self.client.close())

    def close(self) -> None:
        self.close_client()
        self.wait_for(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


KINDS: dict[str, Callable[[ReaderSettings, ReaderEvents], AnyReader]] = {
    "sync": lambda settings, events: cast("AnyReader", CacheClient(settings, events=events)),
    "async": _Awaited,
}


def client_of(reader: AnyReader | ClientBase) -> ClientBase:
    """Return the client itself, for what both kinds have in common."""
    return reader.client if isinstance(reader, _Awaited) else cast("ClientBase", reader)


def local_cache_of(reader: AnyReader | ClientBase) -> LocalTier:
    """Return the in-process cache of a reader that has one."""
    tier = tier_of(client_of(reader))
    assert tier is not None
    return tier


def turn_local_cache_on(reader: AnyReader | ClientBase) -> None:
    """Wait until the in-process cache, if the reader has one, is on; else the first read would start it."""
    tracking, tier = tracking_of(client_of(reader)), tier_of(client_of(reader))
    if tracking is not None and tier is not None:
        tracking.start()
        eventually(lambda: not tier.is_bypassed, "the in-process cache is on")


def callers_waiting(reader: AnyReader | ClientBase) -> list[int]:
    """Return how many callers share each wait in progress: there is no event before such a wait ends."""
    flights = flights_of(single_flight_of(client_of(reader)))
    # On threads the leading caller is not one of the followers.
    return [len(flight.waiting) + (not hasattr(flight, "task")) for flight in flights]


def close_client(reader: AnyReader) -> None:
    """Close the client, and leave to an async one the event loop on which it may be called again."""
    reader.close_client() if isinstance(reader, _Awaited) else reader.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended, and after how long."""

    value: Any
    error: CacheError | None
    took: Measured


def answer_of(call: Callable[..., Any], *args: Any, **options: Any) -> Answer:
    """Make a call; an error of the cache is an answer, any other propagates to the test."""
    value, error = None, None
    with Measured() as took:
        try:
            value = call(*args, **options)
        except CacheError as raised:
            error = raised
    return Answer(value, error, took)


def timeout_of_unpublished(reader: AnyReader, query: str, params: dict[str, Any]) -> WaitTimeout:
    """Return the error of a miss that can't be published, which names the cause.

    On a busy machine a short wait ends before the broker has refused the publication; then longer ones follow.
    """
    for timeout_seconds in (0.3, 3.0, MAX_WAIT_SECONDS / 4):
        error = answer_of(reader.get, query, params, timeout=timeout_seconds).error
        assert isinstance(error, WaitTimeout)
        if error.__cause__ is not None:
            return error
    raise AssertionError(f"the error names no failed publication: {error}")
