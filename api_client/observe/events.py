"""What a reader tells those who count: one method an event, silent by default.

Subclass `ReaderEvents`, override what is of interest, and pass it to the client. The methods are called on the
reading thread (or on the publisher's, where it says so), must be quick and must not raise; an event that raises is
logged once and otherwise ignored, since a read never fails for its metrics.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from api_client.errors import CacheError, CacheUnavailable, DecodeError, RefreshFailed, UnknownQuery, WaitTimeout
from api_client.observe.tracing import NO_SPANS, ReaderSpans
from api_client.protocol.messages import RefreshReason

log: Final = logging.getLogger(__name__)
E = TypeVar("E")


HitNote: TypeAlias = tuple[str, int, int, bool]
"""A hit, to be looked at later: query, age and what is left to the soft expiry, both in µs, whether it triggered."""


class ReadFailure(StrEnum):
    """Why a read ended without a value, whether its caller got the error or a default."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    REFRESH_FAILED = "refresh_failed"
    UNKNOWN_QUERY = "unknown_query"
    DECODE = "decode"

    @classmethod
    def of(cls, error: CacheError) -> ReadFailure | None:
        """Return what an error of a read is counted as; None: it is wrong by itself, and nothing was read."""
        return next((why for kind, why in _FAILURES.items() if isinstance(error, kind)), None)


# The special before the general.
_FAILURES: Final[Mapping[type[CacheError], ReadFailure]] = {
    CacheUnavailable: ReadFailure.UNAVAILABLE,
    WaitTimeout: ReadFailure.TIMEOUT,
    UnknownQuery: ReadFailure.UNKNOWN_QUERY,
    RefreshFailed: ReadFailure.REFRESH_FAILED,
    DecodeError: ReadFailure.DECODE,
}


class ReaderEvents:
    """The events of a reader. Ages and remaining times in seconds."""

    note_hit: Callable[[HitNote], None] | None = None
    """Called for each hit in the place of `hit`, where it is set: for those who add up many hits at once."""

    spans: ReaderSpans = NO_SPANS
    """Told of refreshes and waits as spans of a trace."""

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Record a value served from the cache; it is stale where ``ttl_remaining_seconds`` is not positive."""

    def miss(self, query: str) -> None:
        """Record a read that found nothing good enough, and waits."""

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        """Record a caller that was served by a wait which another caller of this process had begun."""

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        """Record an entry treated as a miss: garbage, version, flags, digest."""

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Record a claim that was granted and published (on the publisher's thread)."""

    def refresh_republished(self, query: str) -> None:
        """Record a queued refresh that was published once more (on the publisher's thread)."""

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Record a claim that was refused, since the record was in ``state`` (on the publisher's thread)."""

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Record a trigger that was not even claimed: backlog, backpressure, breaker (on either thread).

        And ``repeat``: of a refresh that has been queued for long, and is not published again since too many wait.
        """

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Record a claim that could not be made or published (on the publisher's thread)."""

    def unavailable(self, query: str) -> None:
        """Record a read that found Redis unavailable."""

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        """Record a read that ended without a value. Of a batch, a key that several items want is one read."""


def guarded(events: E, base: type[E]) -> E:
    """Return ``events`` such that none of the methods of ``base`` raises: what one does is logged, once a method."""
    if type(events) is base:
        return events
    # Of a type of its own: who is of the base alone counts nothing, and is not told of hits at all.
    guarded_type: type[E] = type(f"Guarded{base.__name__}", (base,), {})
    proxy = guarded_type.__new__(guarded_type)
    _hand_on(proxy, [events])
    for name, method in vars(base).items():
        if callable(method) and not name.startswith("_"):
            setattr(proxy, name, _never_raising(getattr(events, name), name))
    return proxy


def together(several: Sequence[E], base: type[E]) -> E:
    """Return what tells each of ``several``, in their order, all that is told by a method of ``base``.

    Spans are told to the first that has any.
    """
    if len(several) <= 1:
        return several[0] if several else base()
    together_type: type[E] = type(f"Several{base.__name__}", (base,), {})
    proxy = together_type.__new__(together_type)
    _hand_on(proxy, several)
    for name, method in vars(base).items():
        if callable(method) and not name.startswith("_"):
            setattr(proxy, name, _telling_all([getattr(events, name) for events in several]))
    return proxy


def _hand_on(proxy: Any, several: Sequence[Any]) -> None:
    """Give a proxy what its events have beside methods. Nothing in it raises: a note is appended to a list."""
    proxy.spans = next((events.spans for events in several if events.spans is not proxy.spans), proxy.spans)
    if isinstance(proxy, ReaderEvents):
        notes = [events.note_hit for events in several]
        if all(notes):
            proxy.note_hit = notes[0] if len(notes) == 1 else _telling_all(notes)


def _telling_all(methods: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any, **fields: Any) -> None:
        for method in methods:
            method(*args, **fields)

    return call


def _never_raising(method: Callable[..., None], name: str) -> Callable[..., None]:
    told = False

    @functools.wraps(method)
    def call(*args: Any, **fields: Any) -> None:
        nonlocal told
        try:
            method(*args, **fields)
        except Exception:
            if not told:
                told = True
                log.exception("the event %s raised; further errors of it are ignored", name)

    return call
