"""Claim and publish off the caller's path: one thread a process, a bounded backlog, those who wait first.

A reader hands a `Trigger` over and goes on; what becomes of it is up to `trigger.claim_and_publish`. A slow or dead
broker never shows in a reader's latency.

What a reader does here are single operations in C on deques and dicts, and no lock: an exception from a signal handler
may leave it at any point, and neither the publisher nor another reader waits for what was not done.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from api_client.config.settings import ReaderSettings
from api_client.observe.events import ReaderEvents
from api_client.observe.tracing import NULL_TRACE
from api_client.threads import OwnThread, Waker
from api_client.transport.scripts import Steps
from api_client.trigger.backlog import Backlog, Trigger, TriggerDropped
from api_client.trigger.broker import Broker
from api_client.trigger.claim_and_publish import Publication
from api_client.trigger.history import DecisionLog
from api_client.trigger.suppression import TriggerSuppressor

__all__ = ["Publisher", "Trigger", "TriggerDropped"]

log: Final = logging.getLogger(__name__)

BACKLOG: Final = 1_000
# A claim's share of a batch of 64 costs no less than of one of 16, and Redis runs a batch's scripts in one go: every
# reader of that Redis waits for their end. Who comes to wait for a value meanwhile waits no longer either.
BATCH: Final = 16


class Publisher:
    """The process's own publisher. Its thread starts with the first trigger; `close` ends it within a bound.

    The thread is replaced when it has died. A forked child has its own thread and backlog, also after a fork of which
    Python was not told: the parent publishes what it was given.

    Args:
        settings: a reader's.
        store: runs the steps of lease records.
        broker: the way to the workers.
        asked: what the process was told; corrected by what the claims say.
        events: who counts what happens.
        monotonic: the clock, in seconds.
        decisions: is told what came of each trigger; default: nobody is.
        backlog: how many triggers may wait, beside those that somebody waits for; about, where several threads hand
            triggers over at one time.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        store: Steps,
        broker: Broker,
        asked: TriggerSuppressor,
        events: ReaderEvents,
        *,
        monotonic: Callable[[], float],
        decisions: DecisionLog | None = None,
        backlog: int = BACKLOG,
    ) -> None:
        self._broker, self._spans = broker, events.spans
        self._publication = Publication(
            settings, store, broker, asked, decisions or DecisionLog(), events, monotonic=monotonic
        )
        self._is_closing = False
        self._begin(backlog)

    def _begin(self, backlog: int) -> None:
        """Begin in this process, with nothing to do."""
        self._backlog = Backlog(backlog)
        self._chores: deque[Callable[[], None]] = deque(maxlen=8)
        self._flushes: deque[Waker] = deque()
        self._waker = Waker()
        self._is_resting = False
        self._thread = OwnThread(self._run, "cache-publisher")
        self._pid = os.getpid()

    def submit(self, trigger: Trigger) -> bool:
        """Hand a trigger over; False when it was dropped.

        That is so when the backlog is full, the publisher is closed, or the system has no thread left for it. A claim
        that came with it is taken back then.
        """
        trigger = self._traced(trigger)
        if not (self._has_thread() and self._backlog.put(trigger)):
            self._give_back(trigger)
            return False
        if self._is_resting:
            self._waker.wake()
        return True

    def submit_all(self, triggers: Sequence[Trigger]) -> list[bool]:
        """Hand several over at once, as `submit` does each; in their order, False for each that was dropped."""
        triggers = [self._traced(trigger) for trigger in triggers]
        can = bool(triggers) and self._has_thread()
        accepted = [can and self._backlog.put(trigger) for trigger in triggers]
        if self._is_resting:
            self._waker.wake()
        for trigger, was_accepted in zip(triggers, accepted, strict=True):
            if not was_accepted:
                self._give_back(trigger)
        return accepted

    def run_in_background(self, chore: Callable[[], None]) -> None:
        """Run ``chore`` on the thread: what the reader needs done off its path (its errors are its own)."""
        if self._has_thread():
            self._chores.append(chore)
            if self._is_resting:
                self._waker.wake()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to do; False when the time ran out before."""
        if not self._backlog and not self._chores and not self._thread.is_running:
            return True
        if not self._has_thread():
            return False
        done = Waker()
        self._flushes.append(done)
        self._waker.wake()
        return done.wait(timeout_seconds)

    @property
    def known_queue_length(self) -> int | None:
        """How many refreshes wait in the broker, as this process last heard of it; None: it never asked."""
        return self._publication.known_length

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish what is left, for at most ``timeout_seconds``, and end the thread."""
        self.flush(timeout_seconds)
        self._is_closing = True
        self._waker.wake()
        self._thread.join(timeout_seconds)
        while left := self._backlog.take(BATCH):
            for trigger in left:
                self._give_back(trigger)
        self._broker.close()

    def _traced(self, trigger: Trigger) -> Trigger:
        asking = self._spans.asked(trigger.key, trigger.reason)
        return trigger if asking is NULL_TRACE else replace(trigger, asking=asking)

    def _has_thread(self) -> bool:
        if self._is_closing:
            return False
        if self._pid != os.getpid():
            self._begin(self._backlog.most)
        if self._thread.is_running:
            return True
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit: a read must not fail for that
            log.warning("no thread for the publisher: %s", error)
            return False
        return True

    def _give_back(self, trigger: Trigger) -> None:
        self._publication.give_back(trigger, "closed" if self._is_closing else "backlog")

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._do_next()
        finally:
            # `close` waits for this thread with a bound; what it was in the middle of may have connected since.
            self._broker.close()

    def _do_next(self) -> None:
        try:
            if self._chores:
                self._chores.popleft()()
            elif batch := self._backlog.take(BATCH):
                self._publication.handle(batch)
            else:
                self._rest()
        except Exception:
            # The thread must outlive whatever one batch meets; its claims run out by themselves.
            log.exception("the publisher met an error it does not know")

    def _rest(self) -> None:
        """Wait to be woken. Whoever hands something over does that first, and looks then whether it is to wake."""
        self._is_resting = True
        if not (self._chores or self._backlog or self._is_closing):
            while self._flushes:
                self._flushes.popleft().wake()
            self._waker.wait()
        self._is_resting = False
