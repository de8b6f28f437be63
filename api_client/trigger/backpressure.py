"""Backpressure: limits by the queues' lengths as a process knows them, so that a slow queue does not grow.

::

    queued refreshes           early      stale       published again     a claim holds
    < bound                    claimed    claimed     when due            CACHE_QUEUE_TTL
    ≥ bound                    dropped    claimed     no                  CACHE_QUEUE_TTL
    ≥ bound, for 10 s          dropped    dropped     no                  CACHE_QUEUE_TTL
    ≥ n times the bound        dropped    as above    no                  n times as long, up to ten times

A message that has been queued for seconds is lost, or the queue is slow. If few are queued it is published again, since
a duplicate costs next to nothing. If many are queued it is most probably among them, and a duplicate would come after
all of them, no sooner than one that is published when they are gone.

A claim that expires while its message is queued is made anew by the next reader, which adds a message. Since claims
last in proportion to the queue, all keys together add one bound of messages per CACHE_QUEUE_TTL, rather than one per
key.

A queue that stays long is no burst: more becomes stale than the workers can load. Under first in, first out each key
would then be stale for the same time, and most reads of a popular key would be stale. So the queue is kept short: a
refresh that finds no room is dropped, and the key's next read tries again. A key's chance to get in is proportional to
its reads and the time it has been stale, and inversely proportional to its load's duration if that is longer than
usual: one heavy load makes way for many light ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from api_client.config.settings import ReaderSettings
from api_client.transport.breaker import Breaker
from api_client.trigger.backlog import TriggerDropped
from api_client.trigger.broker import Broker, fault_text

LENGTH_CACHED_SECONDS: Final = 0.25
PER_MESSAGE_GAIN: Final = 1 / 8
MAX_CLAIM_TIMES: Final = 10
"""Longest life of a claim, in multiples of CACHE_QUEUE_TTL, so that a long queue's lost message is missed in time."""
OVERLOADED_SECONDS: Final = 10.0
"""Time beyond its bound after which a queue does not get shorter by itself."""
MAX_KNOWN_SECONDS: Final = 5.0
"""Longest time without a poll after which the queue's length still counts as known."""
MIN_WINDOW: Final = 10
MAX_WINDOW_TIMES: Final = 100
WINDOW_SHRINKS: Final = 0.8
USUAL_GAIN: Final = 1 / 64
"""Gain of each stale refresh on the usual duration, a geometric mean that a few very heavy loads do not dominate."""


@dataclass(slots=True)
class _Known:
    """A queue's length in refreshes at the last poll, plus those published since; valid ``until`` (monotonic seconds).

    A broker counts messages; ``per_message`` is the average number of refreshes in a message of this process.
    """

    length: int = 0
    until: float = 0.0
    per_message: float = 1.0


@dataclass(slots=True)
class _StaleWindow:
    """Bound on the queue's length for stale refreshes; infinite unless the queue has stayed long.

    It follows the workers' rate between two polls: it doubles if they have nearly emptied the queue, shrinks if the
    queue is longer than its bound, and ends once it is a hundred times as large.
    """

    bound: int
    size: float = math.inf
    _long_since: float | None = None
    _polled_at: float = -math.inf

    def polled(self, length: int, now: float) -> None:
        """Adapt the window to the queue's length at ``now`` (monotonic seconds)."""
        if length <= self.bound:
            self._long_since = None
        elif self._long_since is None or now - self._polled_at > MAX_KNOWN_SECONDS:
            self._long_since = now
        self._polled_at = now
        if self.size == math.inf:
            if self._long_since is not None and now - self._long_since >= OVERLOADED_SECONDS:
                self.size = self.bound
        elif length < self.bound / 2:
            self.size = self.size * 2 if self.size < MAX_WINDOW_TIMES * self.bound else math.inf
        elif length > self.bound:
            self.size = max(self.bound, self.size * WINDOW_SHRINKS)


class Backpressure:
    """The lengths of the two queues, each polled at most four times a second. Not thread-safe.

    Args:
        settings: the reader's settings, whose ``queue_size`` is the bound.
        broker: the broker to poll.
        breaker: the broker's breaker.
        monotonic: the clock, in seconds.
    """

    def __init__(
        self, settings: ReaderSettings, broker: Broker, breaker: Breaker, *, monotonic: Callable[[], float]
    ) -> None:
        self._settings, self._broker, self._breaker, self._monotonic = settings, broker, breaker, monotonic
        self._misses, self._others = _Known(), _Known()
        self._usual_log_seconds: float | None = None
        self._window = _StaleWindow(max(MIN_WINDOW, settings.queue_size))

    @property
    def known_length(self) -> int | None:
        """Early and stale refreshes queued at the last poll, plus those published since; None before the first poll."""
        return self._others.length if self._others.until else None

    @property
    def known_for_seconds(self) -> float:
        """The time for which that length is valid."""
        return self._others.until - self._monotonic()

    def room_for_early(self) -> int:
        """Return how many early refreshes may still be published.

        Raises:
            TriggerDropped: the broker's breaker is open.
            Exception: an error of the broker.
        """
        return max(0, self._settings.queue_size - self._length(has_waiter=False))

    def room_for_stale(self) -> float:
        """Return how many stale refreshes may still be published; infinity unless the queue has stayed long.

        Raises:
            TriggerDropped, Exception: as `room_for_early`.
        """
        if not self.is_overloaded:
            return math.inf  # a long queue is polled because of refreshes that have waited in it
        return max(0.0, self._window.size - self._length(has_waiter=False))

    @property
    def is_overloaded(self) -> bool:
        """True while the room for stale refreshes is bounded."""
        return self._window.size != math.inf

    def has_precedence(self, run_seconds: float, draw: float) -> bool:
        """Return whether a stale refresh may take up room in an overload, which a heavy one seldom may.

        Args:
            run_seconds: the duration of its load; 0 if unknown or negligible.
            draw: a uniform draw from [0, 1).
        """
        if not 0 < run_seconds < math.inf:  # a damaged header may hold anything
            return True
        log_seconds = math.log(run_seconds)
        if self._usual_log_seconds is None:
            self._usual_log_seconds = log_seconds
        self._usual_log_seconds += (log_seconds - self._usual_log_seconds) * USUAL_GAIN
        return draw < math.exp(self._usual_log_seconds - log_seconds)

    def room_for_repeats(self, *, has_waiter: bool) -> int:
        """Return how many refreshes may be published again; at least one if none are queued.

        Raises:
            TriggerDropped, Exception: as `room_for_early`.
        """
        return max(0, self._bound - self._length(has_waiter=has_waiter))

    def claim_seconds(self) -> float:
        """Return how long a claim without a waiter holds, in seconds.

        A length polled more than CACHE_QUEUE_TTL ago does not count: the queue may be empty now, and a process without
        early refreshes polls only after one has been queued for long.
        """
        is_known = self._monotonic() < self._others.until + self._settings.queue_ttl_seconds
        times = self._others.length // self._bound if is_known else 1
        return self._settings.queue_ttl_seconds * min(max(times, 1), MAX_CLAIM_TIMES)

    def refresh_queue_length(self) -> None:
        """Poll the number of queued early and stale refreshes, unless it is known; ignore errors of the broker."""
        with suppress(Exception):
            self._length(has_waiter=False)

    def published(self, refreshes: int, messages: int, *, has_waiter: bool) -> None:
        """Count published refreshes. They are not added to an outdated length, since workers take from the queue."""
        known = self._known(has_waiter=has_waiter)
        if messages:
            known.per_message += (refreshes / messages - known.per_message) * PER_MESSAGE_GAIN
        if self._monotonic() < known.until:
            known.length += refreshes

    @property
    def _bound(self) -> int:
        return max(1, self._settings.queue_size)

    def _known(self, *, has_waiter: bool) -> _Known:
        return self._misses if has_waiter else self._others

    def _length(self, *, has_waiter: bool) -> int:
        known, now = self._known(has_waiter=has_waiter), self._monotonic()
        if now >= known.until:
            if not self._breaker.allows():
                raise TriggerDropped("breaker", self._breaker.reason)
            try:
                known.length = round(self._broker.waiting(has_waiter=has_waiter) * known.per_message)
            except Exception as error:
                self._breaker.failed(fault_text(error, self._settings.broker_url))
                raise
            self._breaker.succeeded()
            known.until = now + LENGTH_CACHED_SECONDS
            if not has_waiter:
                self._window.polled(known.length, now)
        return known.length
