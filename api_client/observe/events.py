"""Events of a reader: one no-op method per event.

Subclass `ReaderEvents`, override what is of interest, and pass it to the client. The methods run on the reading thread
(or on the publisher's, where it says so) and must be quick. One that raises is logged once and otherwise ignored: a
read never fails for its metrics.
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
    """Reason why a read ended without a value; its caller got the error, or a default."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    REFRESH_FAILED = "refresh_failed"
    UNKNOWN_QUERY = "unknown_query"
    DECODE = "decode"

    @classmethod
    def of(cls, error: CacheError) -> ReadFailure | None:
        """Return what the error of a read counts as; None for wrong usage, by which nothing was read."""
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

    spans: ReaderSpans = NO_SPANS
    """Records refreshes and waits as spans of a trace."""

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Record a value served from the cache; it is stale where ``ttl_remaining_seconds`` is not positive."""

    def miss(self, query: str) -> None:
        """Record a read that found no entry that satisfies it, and waits."""

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
        """Record a trigger that was not claimed: backlog, backpressure, breaker (on either thread).

        Or a queued refresh that was not published again, since too many wait: ``repeat``.
        """

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Record a claim that could not be made or published (on the publisher's thread)."""

    def unavailable(self, query: str) -> None:
        """Record a read that found Redis unavailable."""

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        """Record a read that ended without a value. In a batch, a key that several items request is one read."""

    def tags_invalidated(self, *, hard: bool, entries: int, seconds: float) -> None:
        """Record an invalidation of tags that this process has finished: how many entries, and its whole time."""


class Emitter(Generic[E]):
    """Calls an event of several objects; what one raises is logged, once per event, and otherwise ignored."""

    def __init__(self, receivers: Sequence[E]) -> None:
        self._receivers = receivers
        self._failed: set[str] = set()

    def take_over(self, composite: E) -> None:
        """Make each event of ``composite`` call those of the receivers, but for those that its own class defines."""
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
        """Log an error if it is the first of the method ``name``; raise it again if it is a signal handler's."""
        if _is_raised_by_signal_handler(error):
            raise error
        if name not in self._failed:
            self._failed.add(name)
            log.error("event handler %s raised; its further errors are not logged", name, exc_info=error)


def _is_raised_by_signal_handler(error: Exception) -> bool:
    """Return whether a signal handler raised it, and so ends the whole call that the event belongs to."""
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: object) -> object:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # a number: ignored, or the system's own
        return None
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


class CompositeEvents(ReaderEvents):
    """Several `ReaderEvents` as one that never raises. Spans are those of the first that records any."""

    def __init__(self, *events: ReaderEvents) -> None:
        self._emitter = Emitter(events)
        self._emitter.take_over(self)
        self._hits = [one.hit for one in events]
        self.spans: ReaderSpans = next((one.spans for one in events if one.spans is not NO_SPANS), NO_SPANS)

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Record a value served from the cache."""
        for hit in self._hits:  # written out: a hit costs a few microseconds
            try:
                hit(query, age_seconds=age_seconds, ttl_remaining_seconds=ttl_remaining_seconds, triggered=triggered)
            except Exception as error:  # noqa: BLE001 - logged
                self._emitter.suppress(error, "hit")
