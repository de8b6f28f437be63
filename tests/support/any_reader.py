"""One face for the readers of both kinds, so that one test runs on each; and what a test wants to know of a call."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from api_client import CacheClient, CacheError, Entry, Invalidation, ReaderEvents, ReaderSettings, RefreshState
from api_client.events import RefreshReason


class AnyReader(Protocol):
    """What a test calls, blocking."""

    def get(self, query: str, params: dict[str, Any], **options: Any) -> Any: ...
    def get_entry(self, query: str, params: dict[str, Any], **options: Any) -> Entry[Any]: ...
    def refresh(self, query: str, params: dict[str, Any], **options: Any) -> RefreshState: ...
    def invalidate(self, query: str, params: dict[str, Any], **options: Any) -> Invalidation: ...
    def flush(self, timeout: float) -> bool: ...
    def close(self) -> None: ...


KINDS: dict[str, Callable[[ReaderSettings, ReaderEvents], AnyReader]] = {
    "sync": lambda settings, events: cast("AnyReader", CacheClient(settings, events=events)),
}


class Told(ReaderEvents):
    """What a reader told, counted: by the event's name, and ``name: detail`` where there is one. Thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def __repr__(self) -> str:
        return repr(dict(self._counts))

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        self._count("hit" if ttl_remaining_seconds > 0 else "hit: stale")

    def miss(self, query: str) -> None:
        self._count("miss")

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        self._count(f"triggered: {reason}")

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self._count(f"deduplicated: {state}")

    def refresh_dropped(self, query: str, *, why: str) -> None:
        self._count(f"dropped: {why}")

    def trigger_failed(self, query: str, *, why: str) -> None:
        self._count("failed")
        self._count(f"failed: {why}")

    def unavailable(self, query: str) -> None:
        self._count("unavailable")


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended, and after how long."""

    value: Any
    error: CacheError | None
    seconds: float


def answer_of(call: Callable[..., Any], *args: Any, **options: Any) -> Answer:
    """Make a call; an error of the cache is an answer, any other is the test's."""
    began = time.monotonic()
    try:
        value, error = call(*args, **options), None
    except CacheError as raised:
        value, error = None, raised
    return Answer(value, error, time.monotonic() - began)
