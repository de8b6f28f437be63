"""Drives wait plans: each step is one call here. What a step asks for is shared with the async driver."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, WaitTimeout
from api_client.protocol import lease
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call, ClaimReply
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import Answer
from api_client.read.batch import Batch
from api_client.read.coalescing import SingleFlight
from api_client.read.core import ReadCore
from api_client.read.evaluate import PLAIN, Freshness
from api_client.read.pending import PendingRead
from api_client.read.wait_plan import (
    Claim,
    Pause,
    Publish,
    Read,
    Reply,
    Republish,
    Step,
    WaitOptions,
    WaitPlan,
    wait_plan,
)
from api_client.threads import Waker
from api_client.transport.link import CacheLink
from api_client.transport.pubsub import Notifications
from api_client.trigger.publisher import Publisher, Trigger

REPUBLISH_INTERVAL_SECONDS: Final = 1.0


class PendingRefresh:
    """What the steps of one wait ask for, and its claim and publication on their way. No I/O.

    Args:
        asked: the reply of a claim that was made for this wait already.
    """

    def __init__(
        self,
        key: CacheKey,
        floor: Freshness,
        seen_token: int,
        timeout_seconds: float,
        settings: ReaderSettings,
        publisher: Publisher,
        asked: ClaimReply | None = None,
    ) -> None:
        self.key: CacheKey = key
        self._floor, self._settings, self._publisher = floor, settings, publisher
        self.plan: WaitPlan = wait_plan(key, floor, seen_token, _options(settings, timeout_seconds), asked)
        self._claim_id = ""
        self._is_again = False
        self._published: list[Exception | None] = []  # at most one: what came of it
        self._ends_at = monotonic_seconds() + timeout_seconds
        self._call: Call[Any] | None = None
        self._failed = False

    def _claim(self, seen_token: int | None) -> Call[ClaimReply]:
        # Each ask is a claim of its own: an answer to an earlier one may still be on its way.
        self._claim_id = uuid.uuid4().hex
        return lease.claim(
            self.key,
            claim_id=self._claim_id,
            seen_token=seen_token,
            queue_ttl_seconds=self._settings.queue_ttl_seconds,
            retention_seconds=self._settings.record_retention_seconds,
            bookmarks=sorted(self._floor.min_bookmarks),
        )

    def call(self, step: Claim | Republish) -> Call[Any]:
        """Return the call that a step asks for; its reply is the step's. Of a step that has failed it is the same."""
        if self._call is None or not self._failed:
            self._is_again = isinstance(step, Republish)
            if isinstance(step, Claim):
                self._call = self._claim(step.seen_token)
            else:
                self._call = lease.republish(self.key, interval_seconds=REPUBLISH_INTERVAL_SECONDS)
        return self._call

    def answered(self) -> None:
        """Note that Redis has answered a step."""
        self._failed = False

    def may_repeat(self) -> bool:
        """Tell whether the step that Redis has just failed is to be done once more.

        The first in a row is, while there is time: a wait of many steps is not to end by one reply that came late. The
        second says that Redis is not there.
        """
        first, self._failed = not self._failed, True
        return first and monotonic_seconds() < self._ends_at

    def publish(self, claim_number: int) -> None:
        """Hand a `Publish` to the publisher."""
        self._published = []
        self._publisher.submit(
            Trigger(
                self.key,
                RefreshReason.MISS,
                claim_number=claim_number,
                claim_id=self._claim_id,
                has_waiter=True,
                is_republish=self._is_again,
                done=self._published.append,
            )
        )

    def explained(self, timeout: WaitTimeout) -> WaitTimeout:
        """Return the timeout, with the failure of the last publication as its cause if there was one."""
        failure = self._published[0] if self._published else None
        if failure is None:
            return timeout
        state = f"{timeout.state}, but it could not be published: {type(failure).__name__}"
        told = WaitTimeout(self.key.query, timeout.waited_seconds, state)
        told.__cause__ = failure
        return told


def _options(settings: ReaderSettings, timeout_seconds: float) -> WaitOptions:
    return WaitOptions(
        timeout_seconds=max(0.0, timeout_seconds),  # what is left of a timeout may be a hair less than nothing
        first_pause_seconds=settings.wait_poll_ms / 1000,
        jitter_seconds=random.uniform(settings.jitter_min_ms, settings.jitter_max_ms) / 1000,  # noqa: S311 - no secret
        monotonic=monotonic_seconds,
    )


class SyncWaitRunner:
    """Waits for entries that are good enough, on the calling thread; several waits go on together."""

    def __init__(
        self, link: CacheLink, publisher: Publisher, notifications: Notifications, settings: ReaderSettings
    ) -> None:
        self._link, self._publisher, self._settings = link, publisher, settings
        self._notifications = notifications

    def wait(
        self,
        key: CacheKey,
        floor: Freshness,
        seen_token: int,
        timeout_seconds: float,
        read_begins: Callable[[], None] = lambda: None,
        asked: ClaimReply | None = None,
    ) -> bytes:
        """Return the bytes of an entry that is good enough for ``floor``; ``read_begins`` is called before each read.

        ``asked`` is the reply of a claim that was made for this wait already.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable.
        """
        (raw,) = self.wait_all([self.steps(key, floor, seen_token, timeout_seconds, asked)], read_begins)
        if isinstance(raw, CacheError):
            raise raw from raw.__cause__
        return raw

    def steps(
        self,
        key: CacheKey,
        floor: Freshness,
        seen_token: int,
        timeout_seconds: float,
        asked: ClaimReply | None = None,
    ) -> PendingRefresh:
        """Return a wait to come, for `wait_all`; the arguments are those of `wait`."""
        return PendingRefresh(key, floor, seen_token, timeout_seconds, self._settings, self._publisher, asked)

    def wait_all(
        self, all_steps: Sequence[PendingRefresh], read_begins: Callable[[], None] = lambda: None
    ) -> list[bytes | CacheError]:
        """Wait for several, with one round trip for what they ask at one time. The errors are those of `wait`."""
        waker = Waker()
        waits = [_Wait(steps, waker) for steps in all_steps]
        listener = None
        try:
            listener = self._notifications.listen({wait.steps.key.channel: wait.wake for wait in waits})
            while under_way := [wait for wait in waits if wait.result is None]:
                if busy := [wait for wait in under_way if not isinstance(wait.step, Pause)]:
                    self._do(busy, read_begins)
                else:
                    _pause(under_way, waker)
        finally:
            if listener is not None:
                listener.close()
        return [wait.result for wait in waits if wait.result is not None]

    def _do(self, waits: Sequence[_Wait], read_begins: Callable[[], None]) -> None:
        """Do the steps on which these waits are, and go on to their next ones."""
        asking = [wait for wait in waits if isinstance(wait.step, Claim | Republish)]
        reading = [wait for wait in waits if isinstance(wait.step, Read)]
        for wait in waits:
            if isinstance(wait.step, Publish):
                wait.steps.publish(wait.step.claim_number)
                wait.go_on(None)
        if asking:
            self._ask(asking)
        if reading:
            read_begins()
            self._read(reading)

    def _ask(self, waits: Sequence[_Wait]) -> None:
        calls = [wait.steps.call(wait.step) for wait in waits if isinstance(wait.step, Claim | Republish)]
        try:
            replies = self._link.run_each(calls, waits[0].steps.key.query)
        except CacheUnavailable as error:
            replies = [error] * len(waits)
        for wait, reply in zip(waits, replies, strict=True):
            if isinstance(reply, CacheUnavailable):
                wait.fail(reply)
            else:
                wait.go_on(reply)

    def _read(self, waits: Sequence[_Wait]) -> None:
        try:
            found = self._link.read_all([wait.steps.key for wait in waits])
            now_us = self._link.now_us()
        except CacheUnavailable as error:
            for wait in waits:
                wait.fail(error)
        else:
            for wait, raw in zip(waits, found, strict=True):
                if isinstance(raw, CacheUnavailable):
                    wait.fail(raw)
                else:
                    wait.go_on((raw, now_us))


class _Wait:
    """One of several waits on a thread."""

    def __init__(self, steps: PendingRefresh, waker: Waker) -> None:
        self.steps, self._waker = steps, waker
        self.notified = False
        self.pauses_until = 0.0
        self.result: bytes | CacheError | None = None
        self.step: Step
        self.go_on(None)

    def wake(self) -> None:
        """Take a notification (on the listening thread)."""
        self.notified = True
        self._waker.wake()

    def fail(self, error: CacheUnavailable) -> None:
        """Stay at the step, or end: Redis could not be asked, or refused."""
        if not self.steps.may_repeat():
            self.result = error.about(self.steps.key.query)

    def go_on(self, reply: Reply) -> None:
        """Take the reply to the step, and go on to the next one, or to the end."""
        self.steps.answered()
        try:
            self.step = self.steps.plan.send(reply)
        except StopIteration as done:
            self.result = done.value
        except WaitTimeout as timeout:
            self.result = self.steps.explained(timeout)
        except CacheError as error:
            self.result = error
        else:
            if isinstance(self.step, Pause):
                self.pauses_until = monotonic_seconds() + self.step.duration_seconds


def _pause(waits: Sequence[_Wait], waker: Waker) -> None:
    """Pause until the first of them is notified or has paused for long enough."""
    waker.wait(min(wait.pauses_until for wait in waits) - monotonic_seconds())
    now = monotonic_seconds()
    for wait in waits:
        if wait.notified or now >= wait.pauses_until:
            came, wait.notified = wait.notified, False
            wait.go_on(came)


class ReadPath:
    """Reads entries on the calling thread. Thread-safe."""

    def __init__(self, core: ReadCore, link: CacheLink, publisher: Publisher, driver: SyncWaitRunner) -> None:
        self._core, self._link, self._publisher, self._driver = core, link, publisher, driver
        self._flights = SingleFlight(monotonic_seconds)

    def read(self, key: CacheKey, floor: Freshness, timeout_seconds: float, type_: Any) -> Answer:
        """Return the answer: at once where there is an entry that is good enough, else as soon as there is.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        try:
            if self._core.tier is not None and (local := self._core.serve_local(key, floor, type_)) is not None:
                return local
            fill = None
            try:
                fill = self._core.begin(key)
                raw = self._link.read(key)
                self._know_the_time()
            except BaseException:
                self._core.abandon(fill)
                raise
            answer = self._core.serve(key, raw, floor, type_, fill)
            if isinstance(answer, int):
                miss = PendingRead(self._core, key, floor, answer, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return miss.answer(self._wait(miss), type_)
        except CacheError as error:
            self._core.record_failure(key, error)
            raise
        return answer

    def read_all(self, batch: Batch) -> None:
        """Answer all of a batch: what is there in one round trip, the rest by waits that go on together.

        The errors are those of `read`; each is its item's answer.
        """
        batch.serve_local()
        keys = batch.begin()
        if not keys:
            return
        try:
            found = self._link.read_all(keys)
            self._know_the_time()
            misses = batch.serve(found)
        except CacheUnavailable as error:
            batch.abandon()
            batch.fail(error)
            return
        except BaseException:
            batch.abandon()
            raise
        if misses:
            steps = [self._driver.steps(miss.key, miss.floor, miss.seen_token, miss.left_seconds) for miss in misses]
            with self._core.spans.waiting([miss.key for miss in misses]):
                batch.end(self._driver.wait_all(steps))

    def _know_the_time(self) -> None:
        """Learn Redis' time, where it was never asked; have it learnt again, off the caller's path, every 10 s."""
        clock = self._link.health.clock
        if clock.is_due_once():
            if clock.is_known:
                self._publisher.run_in_background(self._relearn_clock)
            else:
                self._link.learn_clock()

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._link.learn_clock()

    def _wait(self, miss: PendingRead) -> bytes:
        if miss.may_share:
            try:
                raw, followed = self._flights.share(
                    miss.key.entry,
                    miss.left_seconds,
                    lambda left, begins: self._driver.wait(miss.key, PLAIN, 0, left, begins),
                )
            except WaitTimeout:
                raise
            except TimeoutError:
                raise miss.timed_out() from None
            if miss.takes(raw, followed=followed):
                return raw
        return self._driver.wait(miss.key, miss.floor, miss.seen_token, miss.left_seconds)
