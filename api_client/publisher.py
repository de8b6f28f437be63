"""Claim and publish off the caller's path: one thread a process, a bounded backlog, those who wait first.

A reader hands a `Trigger` over and goes on. The thread looks at the backpressure, claims, publishes, and takes the
claim back when the broker fails; a slow or dead broker never shows in a reader's latency.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from redis.exceptions import RedisError

from api_client import lease, messages
from api_client.asked import AskedRecently
from api_client.breaker import Breaker
from api_client.broker import Broker
from api_client.events import ReaderEvents, RefreshReason
from api_client.keys import CacheKey
from api_client.lease import ClaimReply, ClaimStatus, RecordState
from api_client.lease_store import LeaseStore
from api_client.settings import ReaderSettings

log = logging.getLogger(__name__)

BACKLOG: Final = 1_000
LENGTH_CACHED_SECONDS: Final = 0.25
REPUBLISH_SECONDS: Final = 5.0  # then 10, 20 …: while the workers are down, doubles must not fill the queue


@dataclass(frozen=True, slots=True)
class Trigger:
    """One refresh to ask for.

    ``claim`` is the reply of a claim that the caller has made itself (it waits for the value, and needed the stamp);
    without it the thread claims, for the entry that carried ``seen_token``. ``done`` is told the outcome.
    """

    key: CacheKey
    reason: RefreshReason
    seen_token: int | None = None
    claim_number: int = 0
    claim_id: str = ""
    someone_waits: bool = False
    done: Future[None] | None = None


class TriggerDropped(ConnectionError):
    """A trigger that was not tried: breaker (of the broker, open), backpressure, backlog (of this process), closed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"it was not tried ({why})")
        self.why = why


@dataclass(slots=True)
class _Backlog:
    """Two queues, the first for those who wait; bounded together."""

    most: int
    waiting: deque[Trigger] = field(default_factory=deque)
    others: deque[Trigger] = field(default_factory=deque)

    def put(self, trigger: Trigger) -> bool:
        if trigger.someone_waits:
            self.waiting.append(trigger)  # bounded by the callers that wait
        elif len(self.others) < self.most:
            self.others.append(trigger)
        else:
            return False
        return True

    def get(self) -> Trigger | None:
        if self.waiting:
            return self.waiting.popleft()
        return self.others.popleft() if self.others else None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.others)


class Publisher:
    """The process's own publisher. Its thread starts with the first trigger; `close` ends it within a bound."""

    def __init__(
        self,
        settings: ReaderSettings,
        store: LeaseStore,
        broker: Broker,
        asked: AskedRecently,
        events: ReaderEvents,
        *,
        monotonic: Callable[[], float],
        backlog: int = BACKLOG,
    ) -> None:
        self._settings, self._store, self._broker = settings, store, broker
        self._asked, self._events, self._monotonic = asked, events, monotonic
        self._backlog = _Backlog(backlog)
        self._chores: deque[Callable[[], None]] = deque(maxlen=8)
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = self._busy = False
        self._breaker = Breaker(threshold=3, first_pause_seconds=1.0, longest_pause_seconds=30.0, monotonic=monotonic)
        self._length, self._length_known_until = 0, 0.0

    def submit(self, trigger: Trigger) -> bool:
        """Hand a trigger over; False when it was dropped.

        That is so when the backlog is full, the publisher is closed, or the system has no thread left for it. A claim
        that came with it is taken back then.
        """
        with self._wake:
            accepted = not self._closing and self._has_thread() and self._backlog.put(trigger)
            self._wake.notify()
        if not accepted:
            self._give_back(trigger, "closed" if self._closing else "backlog")
        return accepted

    def do_soon(self, chore: Callable[[], None]) -> None:
        """Run ``chore`` on the thread: what the reader needs done off its path (its errors are its own)."""
        with self._wake:
            if not self._closing and self._has_thread():
                self._chores.append(chore)
                self._wake.notify()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until nothing is left to do; False when the time ran out before."""
        with self._wake:
            return self._wake.wait_for(lambda: not (self._backlog or self._chores or self._busy), timeout_seconds)

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish what is left, for at most ``timeout_seconds``, and end the thread."""
        self.flush(timeout_seconds)
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        while left := self._backlog.get():
            self._give_back(left, "closed")
        self._broker.close()

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

    def _give_back(self, trigger: Trigger, why: str) -> None:
        """End a trigger that will not be tried: nobody waits for it, and its claim is free for the next one."""
        if trigger.done is not None:
            trigger.done.set_exception(TriggerDropped(why))
        with suppress(RedisError, OSError):  # else the claim runs out
            self._unclaim(trigger.key, trigger.claim_id)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._backlog or self._chores or self._closing)
                if self._closing:
                    return
                chore = self._chores.popleft() if self._chores else None
                trigger = self._backlog.get() if chore is None else None
                self._busy = True
            try:
                if chore is not None:
                    chore()
                elif trigger is not None:
                    self._handle(trigger)
            except Exception:
                # The thread must outlive whatever one trigger meets; the claim runs out by itself.
                log.exception("the publisher met an error it does not know")

    def _handle(self, trigger: Trigger) -> None:
        try:
            self._claim_and_publish(trigger)
        except TriggerDropped as dropped:
            self._events.refresh_dropped(trigger.key.query, why=dropped.why)
            if trigger.done is not None:
                trigger.done.set_exception(dropped)
        except Exception as error:
            self._events.trigger_failed(trigger.key.query, why=type(error).__name__)
            if trigger.done is not None:
                trigger.done.set_exception(error)
            elif not isinstance(error, (RedisError, OSError, *_broker_errors())):
                raise
        else:
            if trigger.done is not None:
                trigger.done.set_result(None)

    def _claim_and_publish(self, trigger: Trigger) -> None:
        number, claim_id = trigger.claim_number, trigger.claim_id
        if self._breaker.is_waiting():
            # Nobody will publish a claim that was made: the next one who asks may claim at once.
            self._unclaim(trigger.key, claim_id)
            raise TriggerDropped("breaker")
        if not number:
            if trigger.reason is RefreshReason.EARLY and self._too_many_wait():
                raise TriggerDropped("backpressure")
            claim_id = uuid.uuid4().hex
            reply = self._claim(trigger, claim_id)
            if reply.status is not ClaimStatus.CLAIMED:
                self._events.refresh_deduplicated(trigger.key.query, state=_why_not(reply))
                if reply.state is RecordState.QUEUED:
                    self._publish_again(trigger)
                return
            number = reply.number
        try:
            self._publish(trigger, number)
        except Exception:
            self._unclaim(trigger.key, claim_id)
            raise
        self._events.refresh_triggered(trigger.key.query, reason=trigger.reason)

    def _claim(self, trigger: Trigger, claim_id: str) -> ClaimReply:
        reply = self._store.run(
            lease.claim(
                trigger.key,
                claim_id=claim_id,
                seen_token=trigger.seen_token,
                queue_ttl_seconds=self._settings.queue_ttl_seconds,
                retention_seconds=self._settings.record_retention_seconds,
            )
        )
        self._asked.correct(trigger.key.entry, trigger.seen_token or 0, reply.left_seconds)
        return reply

    def _publish_again(self, trigger: Trigger) -> None:
        """Publish what has been queued for long: its message may have gone with a worker, or was never sent."""
        number = self._store.run(lease.republish(trigger.key, interval_seconds=REPUBLISH_SECONDS))
        if number:
            self._publish(trigger, number)
            self._events.refresh_republished(trigger.key.query)

    def _publish(self, trigger: Trigger, number: int) -> None:
        item = messages.item_for(trigger.key, number, trigger.reason)
        with self._judged():
            self._broker.publish([item], someone_waits=trigger.someone_waits)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Guard a call of the broker by the breaker, and let it know how the call went."""
        if not self._breaker.allows():
            raise TriggerDropped("breaker")
        try:
            yield
        except Exception:
            self._breaker.failed()
            raise
        self._breaker.succeeded()

    def _too_many_wait(self) -> bool:
        now = self._monotonic()
        if now >= self._length_known_until:
            with self._judged():
                self._length = self._broker.waiting()
            self._length_known_until = now + LENGTH_CACHED_SECONDS
        return self._length >= self._settings.queue_size

    def _unclaim(self, key: CacheKey, claim_id: str) -> None:
        if claim_id:
            retention_seconds = self._settings.record_retention_seconds
            self._store.run(lease.unclaim(key, claim_id=claim_id, retention_seconds=retention_seconds))


def _why_not(reply: ClaimReply) -> str:
    return "already_refreshed" if reply.status is ClaimStatus.ALREADY_REFRESHED else reply.state.value


def _broker_errors() -> tuple[type[Exception], ...]:
    from kombu.exceptions import KombuError, OperationalError

    return (OperationalError, KombuError)
