"""The refresh publisher: one thread per process, off the readers' path, with a bounded backlog.

A reader submits a `Trigger` and moves on; `trigger.claim_and_publish` does the rest. A slow or dead broker never
affects a reader's latency.

A reader's steps here are single C operations on deques and dicts, without a lock. So a signal handler's exception may
end them at any point, without making the publisher or another reader wait.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from api_client.errors import CacheUnavailable
from api_client.observe.tracing import NULL_TRACE, ReaderSpans
from api_client.threads import OwnThread, Waker
from api_client.trigger.backlog import Backlog, Trigger
from api_client.trigger.claim_and_publish import BatchPublisher

log: Final = logging.getLogger(__name__)

BACKLOG: Final = 1_000  # approximate if several threads submit at the same time
# A claim costs no less in a batch of 64 than in one of 16, and Redis runs a batch's scripts in one go, while every
# reader of that Redis waits.
BATCH: Final = 16


class Publisher:
    """The process's publisher, whose thread starts with the first trigger; `close` ends it within a bounded time.

    A dead thread is replaced. A forked child has its own thread and backlog, even after a fork that runs no Python
    hooks; the parent publishes the triggers that were submitted to it.

    Args:
        publication: handles batches on the thread.
        spans: traces each trigger from here on.
    """

    def __init__(self, publication: BatchPublisher, spans: ReaderSpans) -> None:
        self._publication, self._spans = publication, spans
        self._is_closing = False
        self._begin()

    def _begin(self) -> None:
        """Initialise the state for this process, with an empty backlog."""
        self._backlog = Backlog(BACKLOG)
        self._publication.forget_held()
        self._chores: deque[Callable[[], None]] = deque(maxlen=8)
        self._flushes: deque[Waker] = deque()
        self._waker = Waker()
        self._is_resting = False
        self._thread = OwnThread(self._run, "cache-publisher")
        self._pid = os.getpid()

    def submit(self, trigger: Trigger) -> bool:
        """Submit a trigger; return False if it was dropped.

        A trigger is dropped if the backlog is full, the publisher is closed, or the system has no thread left for it.
        Its claim, if it has one, is then taken back.
        """
        return self.submit_all((trigger,))[0]

    def submit_all(self, triggers: Sequence[Trigger]) -> list[bool]:
        """Submit several triggers at once; return False, in order, for each that was dropped."""
        triggers = [self._traced(trigger) for trigger in triggers]
        can = bool(triggers) and self._has_thread()
        accepted = [can and self._backlog.put(trigger) for trigger in triggers]
        if self._is_resting:
            self._waker.wake()
        if self._is_closing:  # closed in the meantime, so perhaps nobody sees them any more
            self._give_back_backlog()
        for trigger, was_accepted in zip(triggers, accepted, strict=True):
            if not was_accepted:
                self._give_back(trigger)
        return accepted

    def refusal(self, query: str) -> CacheUnavailable | None:
        """Return the error for a caller that needs a refresh of ``query`` if this is closed, otherwise None."""
        if not self._is_closing:
            return None
        return CacheUnavailable("the client is closed: it reads what is cached, and triggers no refresh", query=query)

    def run_in_background(self, chore: Callable[[], None]) -> None:
        """Run ``chore`` on the publisher's thread; it handles its own errors."""
        if self._has_thread():
            self._chores.append(chore)
            if self._is_resting:
                self._waker.wake()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the backlog is empty and handled; return False if the time ran out first.

        Triggers dropped by a `close` on another thread do not count.
        """
        if not self._backlog and not self._chores and not self._thread.is_running:
            return True
        if not self._has_thread():
            return False
        done = Waker()
        self._flushes.append(done)
        self._waker.wake()
        if self._is_closing:  # closed in the meantime: the thread may have ended without seeing this flush
            return self._thread.join(timeout_seconds)
        return done.wait(timeout_seconds)

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish the backlog, for at most ``timeout_seconds``, and end the thread."""
        self.flush(timeout_seconds)
        self._is_closing = True
        self._waker.wake()
        self._thread.join(timeout_seconds)
        self._give_back_backlog()
        self._publication.close()

    def _traced(self, trigger: Trigger) -> Trigger:
        trace = self._spans.start_trigger(trigger.key, trigger.reason)
        return trigger if trace is NULL_TRACE else replace(trigger, trace=trace)

    def _has_thread(self) -> bool:
        if self._is_closing:
            return False
        if self._pid != os.getpid():
            self._begin()
        if self._thread.is_running:
            return True
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit on threads, which must not fail a read
            log.warning("no thread for the publisher: %s", error)
            return False
        return True

    def _give_back(self, trigger: Trigger) -> None:
        self._publication.give_back(trigger, "closed" if self._is_closing else "backlog")

    def _give_back_backlog(self) -> None:
        while left := self._backlog.take(BATCH):
            for trigger in left:
                self._give_back(trigger)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._do_next()
        finally:
            try:
                self._publication.give_back_held()
                if self._is_closing:
                    self._give_back_backlog()
            finally:
                while self._is_closing and self._flushes:  # of threads other than the closing one
                    self._flushes.popleft().wake()
                # `close` waits only for a bounded time, and a step in progress may have connected since.
                self._publication.close()

    def _do_next(self) -> None:
        try:
            if self._chores:
                self._chores.popleft()()
            elif batch := self._backlog.take(BATCH):
                self._publication.handle(batch, more_follow=bool(self._backlog))
            else:
                self._publication.publish_held()
                self._rest()
        except Exception:
            # The thread must outlive any failure of a batch, whose claims expire by themselves.
            log.exception("unexpected error in the refresh publisher")

    def _rest(self) -> None:
        """Wait to be woken. A submitter first appends, and then checks whether to wake."""
        self._is_resting = True
        flushes = len(self._flushes)  # a later flush may follow triggers that are not visible yet
        if not (self._chores or self._backlog or self._is_closing):
            for _ in range(flushes):
                self._flushes.popleft().wake()
            self._waker.wait()
        self._is_resting = False
