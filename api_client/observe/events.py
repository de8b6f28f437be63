"""Events of a reader: one no-op method per event.

Subclass `ReaderEvents`, override the methods of interest, and pass an object of it to the client. The methods run on
the reading thread (or the publisher's, if stated) and must be quick. An exception is logged once per method and
otherwise ignored, because a read never fails due to its metrics.
"""

from __future__ import annotations

import functools
import logging
import signal
import traceback
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, TypeVar

from api_client.errors import CacheError, CacheUnavailable, DecodeError, RefreshFailed, UnknownQuery, WaitTimeout
from api_client.observe.tracing import NO_SPANS, ReaderSpans
from api_client.protocol.messages import RefreshReason

log: Final = logging.getLogger(__name__)
E = TypeVar("E")


class ReadFailure(StrEnum):
    """Reason for a read that ended without a value; its caller got the error or a default."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    REFRESH_FAILED = "refresh_failed"
    UNKNOWN_QUERY = "unknown_query"
    DECODE = "decode"

    @classmethod
    def of(cls, error: CacheError) -> ReadFailure | None:
        """Return the reason for the error of a read; None for wrong usage, for which nothing was read."""
        return next((why for kind, why in _FAILURES.items() if isinstance(error, kind)), None)


# Subclasses before their bases.
_FAILURES: Final[Mapping[type[CacheError], ReadFailure]] = {
    CacheUnavailable: ReadFailure.UNAVAILABLE,
    WaitTimeout: ReadFailure.TIMEOUT,
    UnknownQuery: ReadFailure.UNKNOWN_QUERY,
    RefreshFailed: ReadFailure.REFRESH_FAILED,
    DecodeError: ReadFailure.DECODE,
}


class ReaderEvents:
    """The events of a reader. Ages and remaining times are in seconds."""

    spans: ReaderSpans = NO_SPANS
    """Records refreshes and waits as spans of a trace."""

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Record a value served from the cache, stale if ``ttl_remaining_seconds`` is zero or negative."""

    def miss(self, query: str) -> None:
        """Record a read that found no entry to satisfy it, and waits."""

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        """Record a caller that was served by a wait of another caller in this process."""

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        """Record an entry treated as a miss: garbage, version, flags, digest."""

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Record a claim that was granted and published (on the publisher's thread)."""

    def refresh_republished(self, query: str) -> None:
        """Record a queued refresh that was published once more (on the publisher's thread)."""

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Record a claim that was refused because the record was in ``state`` (on the publisher's thread)."""

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Record a trigger that was not claimed: backlog, backpressure, breaker (on either thread).

        Also a queued refresh that was not published again because too many are queued: ``repeat``.
        """

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Record a claim that could not be made or published (on the publisher's thread)."""

    def unavailable(self, query: str) -> None:
        """Record a read that found Redis unavailable."""

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        """Record a read that ended without a value. In a batch, a key that several items request is one read."""

    def tags_invalidated(self, *, hard: bool, entries: int, seconds: float) -> None:
        """Record an invalidation of tags that this process has finished, with its entries and its total time."""


class Emitter(Generic[E]):
    """Calls an event of several objects; an exception is logged once per event and otherwise ignored."""

    def __init__(self, receivers: Sequence[E]) -> None:
        self._receivers = receivers
        self._failed: set[str] = set()

    def take_over(self, composite: E) -> None:
        """Make each event of ``composite`` call the receivers' events, except for those that its own class defines."""
        own = type(composite)
        for name in dir(own):
            if not name.startswith("_") and name not in vars(own) and callable(getattr(own, name)):
                setattr(composite, name, functools.partial(self.emit, name))

    def emit(self, name: str, *args: object, **fields: object) -> None:
        """Call the event ``name`` of each object."""
        for receiver in self._receivers:
            try:
                getattr(receiver, name)(*args, **fields)
            except Exception as error:  # noqa: BLE001 - logged
                self.suppress(error, name)

    def suppress(self, error: Exception, name: str) -> None:
        """Log an error if it is the first of the method ``name``; re-raise it if it comes from a signal handler."""
        if _is_raised_by_signal_handler(error):
            raise error
        if name not in self._failed:
            self._failed.add(name)
            log.error("event handler %s raised; its further errors are not logged", name, exc_info=error)


def _is_raised_by_signal_handler(error: Exception) -> bool:
    """Return whether a signal handler raised the error, and so ends the whole call around the event."""
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> object:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # a number: ignored, or the system's default
        return None
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


class CompositeEvents(ReaderEvents):
    """Several `ReaderEvents` as one that never raises, with the spans of the first one that records any."""

    def __init__(self, *events: ReaderEvents) -> None:
        self._emitter = Emitter(events)
        self._emitter.take_over(self)
        self._hits = [one.hit for one in events]
        self.spans: ReaderSpans = next((one.spans for one in events if one.spans is not NO_SPANS), NO_SPANS)

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Record a value served from the cache."""
        for hit in self._hits:  # written out, since a hit takes only a few microseconds
            try:
                hit(query, age_seconds=age_seconds, ttl_remaining_seconds=ttl_remaining_seconds, triggered=triggered)
            except Exception as error:  # noqa: BLE001 - logged
                self._emitter.suppress(error, "hit")
