"""The feed's state, which its consumer publishes in the cache, so that it can be shown without the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import redis

from api_client.protocol.keys import feed_state_key
from refresher.watched_tags import watched_name

PUBLISH_SECONDS: Final = 1.0
KEPT_MS: Final = 30 * 86_400_000
GONE_SECONDS: Final = 3.0
"""Silence after which a consumer has ended, or can't reach the graph."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """The feed's state. Durations in seconds.

    Attributes:
        consumer: the process that consumes; "" if none does.
        waiting: the number of transactions not taken yet; None if unknown.
        oldest: the age of the oldest change that may not be invalidated yet; it grows while nobody consumes.
        p50, p99: the time from commit to invalidation, over the last 1,000 transactions; None before the first.
        watched: the watched labels and relationship types.
        silent_for: the time since the state was published.
    """

    consumer: str = ""
    waiting: int | None = None
    oldest: float = 0.0
    p50: float | None = None
    p99: float | None = None
    watched: tuple[str, ...] = ()
    silent_for: float = 0.0

    def covers(self, tags: Iterable[str]) -> bool:
        """Return whether a change of the watched labels and types can invalidate one of the tags."""
        return any(watched_name(tag) in self.watched for tag in tags)


_decode: Final = msgspec.json.Decoder(FeedState).decode


def publishing(namespace: str, state: FeedState, *options: str) -> tuple[str | bytes | int, ...]:
    """Return the command that publishes a state; ``options`` are options of SET."""
    return ("SET", feed_state_key(namespace), msgspec.json.encode(state), "PX", KEPT_MS, *options)


def read_state(client: redis.Redis, namespace: str) -> FeedState | None:
    """Return the present state, or None if the feed is off. redis-py's errors pass through."""
    key = feed_state_key(namespace)
    found, left_ms = client.get(key), client.pttl(key)
    if not isinstance(found, bytes):
        return None
    state, silent_for = _decode(found), max(0.0, (KEPT_MS - left_ms) / 1e3)
    consumer = state.consumer if silent_for < GONE_SECONDS else ""
    return replace(state, consumer=consumer, oldest=state.oldest + silent_for, silent_for=silent_for)
