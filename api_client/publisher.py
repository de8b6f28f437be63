"""Claim and publish off the caller's path: one thread a process, a bounded backlog, those who wait first.

A reader hands a `Trigger` over and goes on; what becomes of it is `publication`'s. A slow or dead broker never shows
in a reader's latency.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from api_client.asked import AskedRecently
from api_client.broker import Broker
from api_client.decisions import Decisions
from api_client.events import ReaderEvents
from api_client.publication import Publication
from api_client.settings import ReaderSettings
from api_client.spans import SILENT
from api_client.steps import Steps
from api_client.triggers import Backlog, Trigger, TriggerDropped

__all__ = ["Publisher", "Trigger", "TriggerDropped"]

log: Final = logging.getLogger(__name__)

BACKLOG: Final = 1_000
# A claim's share of a batch of 64 costs no less than of one of 16, and Redis runs a batch's scripts in one go: every
# reader of that Redis waits for their end. Who comes to wait for a value meanwhile waits no longer either.
BATCH: Final = 16


class Publisher:
    """The process's own publisher. Its thread starts with the first trigger; `close` ends it within a bound.

    Args:
        settings: a reader's.
        store: runs the steps of lease records.
        broker: the way to the workers.
        asked: what the process was told; corrected by what the claims say.
        events: who counts what happens.
        monotonic: the clock, in seconds.
        decisions: is told what came of each trigger; default: nobody is.
        backlog: how many triggers may wait, beside those that somebody waits for.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        store: Steps,
        broker: Broker,
        asked: AskedRecently,
        events: ReaderEvents,
        *,
        monotonic: Callable[[], float],
        decisions: Decisions | None = None,
        backlog: int = BACKLOG,
    ) -> None:
        self._broker, self._spans = broker, events.spans
        self._publication = Publication(
            settings, store, broker, asked, decisions or Decisions(), events, monotonic=monotonic
        )
        self._backlog = Backlog(backlog)
        self._chores: deque[Callable[[], None]] = deque(maxlen=8)
        lock = threading.RLock()
        # Two, so that what is meant for the thread never wakes one who waits for its end instead.
        self._wake, self._idle = threading.Condition(lock), threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._closing = self._busy = False

    def submit(self, trigger: Trigger) -> bool:
        """Hand a trigger over; False when it was dropped.

        That is so when the backlog is full, the publisher is closed, or the system has no thread left for it. A claim
        that came with it is taken back then.
        """
        trigger = self._traced(trigger)
        with self._wake:
            accepted = not self._closing and self._has_thread() and self._backlog.put(trigger)
            if not self._busy:
                self._wake.notify()
        if not accepted:
            self._give_back(trigger)
        return accepted

    def submit_all(self, triggers: Sequence[Trigger]) -> list[bool]:
        """Hand several over at once, as `submit` does each; in their order, False for each that was dropped."""
        triggers = [self._traced(trigger) for trigger in triggers]
        with self._wake:
            can = bool(triggers) and not self._closing and self._has_thread()
            accepted = [can and self._backlog.put(trigger) for trigger in triggers]
            if not self._busy:
                self._wake.notify()
        for trigger, was_accepted in zip(triggers, accepted, strict=True):
            if not was_accepted:
                self._give_back(trigger)
        return accepted

    def do_soon(self, chore: Callable[[], None]) -> None:
        """Run ``chore`` on the thread: what the reader needs done off its path (its errors are its own)."""
        with self._wake:
            if not self._closing and self._has_thread():
                self._chores.append(chore)
                self._wake.notify()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to do; False when the time ran out before."""
        with self._idle:
            return self._idle.wait_for(lambda: not (self._backlog or self._chores or self._busy), timeout_seconds)

    @property
    def known_queue_length(self) -> int | None:
        """How many refreshes wait in the broker, as this process last heard of it; None: it never asked."""
        return self._publication.known_length

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish what is left, for at most ``timeout_seconds``, and end the thread."""
        self.flush(timeout_seconds)
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        with self._wake:
            left = self._backlog.take(len(self._backlog)) + self._backlog.take(len(self._backlog))
        for trigger in left:
            self._give_back(trigger)
        self._broker.close()

    def _traced(self, trigger: Trigger) -> Trigger:
        asking = self._spans.asked(trigger.key, trigger.reason)
        return trigger if asking is SILENT else replace(trigger, asking=asking)

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="cache-publisher", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system's limit: a read must not fail for that
                log.warning("no thread for the publisher: %s", error)
                return False
            self._thread = thread
        return True

    def _give_back(self, trigger: Trigger) -> None:
        self._publication.give_back(trigger, "closed" if self._closing else "backlog")

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._idle.notify_all()
                self._wake.wait_for(lambda: self._backlog or self._chores or self._closing)
                if self._closing:
                    return
                self._busy = True
                chore = self._chores.popleft() if self._chores else None
                batch = [] if chore is not None else self._backlog.take(BATCH)
            try:
                if chore is not None:
                    chore()
                else:
                    self._publication.handle(batch)
            except Exception:
                # The thread must outlive whatever one batch meets; its claims run out by themselves.
                log.exception("the publisher met an error it does not know")
