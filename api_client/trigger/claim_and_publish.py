"""Claim and publication of batches of triggers, each with its own outcome. Blocking, on the publisher's thread.

::

    breaker open ──▶ dropped, no round trip                            (a claim that came along is taken back)
    early, too many queued; stale, for long ──▶ dropped                 (the length is known for 0.25 s)
    claims, one round trip ──▶ refused: deduplicated; queued for 5 s ───▶ published again, unless too many wait
                           └─▶ granted ──▶ published, one round trip ──▶ triggered      (of batched queries: `batches`)
                                                            └──▶ failed: claims taken back, one round trip
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from time import time_ns
from typing import Final, TypeVar

from msgspec.structs import replace
from redis.exceptions import RedisError

from api_client.config.broker import queue_name
from api_client.config.broker_url import system_of
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheUnavailable, twin
from api_client.observe.events import ReaderEvents
from api_client.protocol import lease, messages
from api_client.protocol.lease import Call, ClaimReply, ClaimStatus, RecordState
from api_client.protocol.messages import RefreshReason
from api_client.transport.breaker import Breaker
from api_client.transport.link import CacheLink
from api_client.trigger.backlog import Trigger, TriggerDropped, TriggerOutcome
from api_client.trigger.backpressure import Backpressure
from api_client.trigger.batches import BatchedVersions, HeldBatch
from api_client.trigger.broker import Broker, fault_text
from api_client.trigger.suppression import MAX_SUPPRESSION_SECONDS, TriggerSuppressor

log: Final = logging.getLogger(__name__)

T = TypeVar("T")
N = TypeVar("N", int, float)

REPUBLISH_SECONDS: Final = 5.0  # then 10, 20 …: while the workers are down, duplicates must not fill the queue
SLOW_SECONDS: Final = 1.0  # a refresh queued for longer suggests a long queue


def broker_breaker(monotonic: Callable[[], float]) -> Breaker:
    """Return the breaker of a process's publishing; ``monotonic`` is the clock, in seconds."""
    return Breaker(threshold=3, first_pause_seconds=1.0, max_pause_seconds=30.0, monotonic=monotonic)


class BatchPublisher:
    """Claims and publishes triggers. Not thread-safe, except for `give_back`."""

    def __init__(
        self,
        settings: ReaderSettings,
        link: CacheLink,
        broker: Broker,
        suppressor: TriggerSuppressor,
        events: ReaderEvents,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._settings, self._link, self._broker = settings, link, broker
        self._suppressor, self._events, self._monotonic = suppressor, events, monotonic
        self._breaker = broker_breaker(monotonic)
        self._pressure = Backpressure(settings, broker, self._breaker, monotonic=monotonic)
        self._versions = BatchedVersions(link, settings.namespace, monotonic=monotonic)
        self._held: dict[tuple[str, int, bool], HeldBatch] = {}

    @property
    def known_queue_length(self) -> int | None:
        """Refreshes queued in the broker at the last poll, plus those published since; None before the first poll."""
        return self._pressure.known_length

    def handle(self, batch: Sequence[Trigger], *, more_follow: bool = False) -> None:
        """Bring triggers of one queue (all with a waiter, or none) to their outcomes.

        With ``more_follow`` another call follows at once, and triggers for batches may be held until then.
        """
        for trigger in batch:
            trigger.trace.begin()
        if self._breaker.is_waiting():
            # Their claims will not be published, so the next reader may claim at once.
            self._unclaim(batch)
            for trigger in batch:
                self._dropped(trigger, TriggerDropped("breaker", self._breaker.reason))
            return
        own = [trigger for trigger in batch if trigger.claim_number]
        ready = [trigger for trigger in own if not trigger.is_republish]
        ready += self._limit_republish([trigger for trigger in own if trigger.is_republish])
        ready += self._claim(self._apply_backpressure([trigger for trigger in batch if not trigger.claim_number]))
        if len(ready) > 1 or more_follow:
            ready = [trigger for trigger in ready if not self._hold(trigger)]
        self._publish([[trigger] for trigger in ready])
        self.publish_held(due_only=more_follow)

    def publish_held(self, *, due_only: bool = False) -> None:
        """Publish all held triggers, or with ``due_only`` those held long enough and full batches."""
        now = self._monotonic()
        for place, batch in list(self._held.items()):
            if not due_only or batch.is_due(now):
                del self._held[place]
                self._publish([batch.held])

    def forget_held(self) -> None:
        """Forget held triggers, which belong to the parent process."""
        self._held.clear()

    def give_back_held(self) -> None:
        """End held triggers without publishing them, and take their claims back."""
        while self._held:
            for trigger in self._held.popitem()[1].held:
                self.give_back(trigger, "closed")

    def _hold(self, trigger: Trigger) -> bool:
        """Hold a trigger for a batch if its query is loaded in batches; return whether it is held."""
        key = trigger.key
        if not self._versions.are_batched(key):
            return False
        now, place = self._monotonic(), (key.query, key.version, trigger.has_waiter)
        batch = self._held.setdefault(place, HeldBatch(now))
        batch.add(trigger)
        if batch.is_due(now):
            del self._held[place]
            self._publish([batch.held])
        return True

    def give_back(self, trigger: Trigger, why: str) -> None:
        """End a trigger that will not be tried, and take its claim back."""
        self._dropped(trigger, TriggerDropped(why))
        self._unclaim([trigger])

    def close(self) -> None:
        """Close the broker's connections; the broker may be used again."""
        self._broker.close()

    def _run_each(self, calls: Sequence[Call[T]]) -> Sequence[T | Exception]:
        try:
            return self._link.run_each(calls)
        except Exception as error:  # noqa: BLE001 - reported to the caller of each of them
            return [error] * len(calls)

    def _apply_backpressure(self, triggers: list[Trigger]) -> list[Trigger]:
        """Drop early refreshes for which the queue has no room, and stale ones if it stays long; return the others."""
        for reason, room_for_them in (
            (RefreshReason.STALE, self._pressure.room_for_stale),
            (RefreshReason.EARLY, self._pressure.room_for_early),
        ):
            limited = [each for each in triggers if each.reason is reason and not each.has_waiter]
            if limited:
                others = [each for each in triggers if each.reason is not reason or each.has_waiter]
                triggers = others + self._within(limited, room_for_them)
        return triggers

    def _within(self, triggers: list[Trigger], room_for_them: Callable[[], float]) -> list[Trigger]:
        """Return the triggers for which there is room, and end the others."""
        allowed: list[Trigger] = []
        if (room := self._room(triggers, room_for_them)) is None:
            return allowed
        for trigger in triggers:
            if len(allowed) + 1 <= room and self._has_precedence(trigger):
                allowed.append(trigger)
                continue
            # Until the next poll of the length, so that a key past its soft expiry need not wait for a second.
            self._suppressor.update(trigger.key.entry, trigger.mark, self._pressure.known_for_seconds)
            self._dropped(trigger, TriggerDropped("backpressure"))
        return allowed

    def _room(self, triggers: list[Trigger], room_for_them: Callable[[], N]) -> N | None:
        """Return the room for triggers, or None after failing all of them if it can't be determined."""
        try:
            return room_for_them()
        except Exception as error:  # noqa: BLE001 - recorded for each of the triggers
            for trigger in triggers:
                self._failed(trigger, error)
            return None

    def _has_precedence(self, trigger: Trigger) -> bool:
        if trigger.reason is not RefreshReason.STALE or not self._pressure.is_overloaded:
            return True
        if self._versions.are_batched(trigger.key):
            return True  # the duration is that of its whole batch
        return self._pressure.has_precedence(trigger.run_seconds, random.random())  # noqa: S311 - no secret

    def _claim(self, triggers: Sequence[Trigger]) -> list[Trigger]:
        """Claim; return the granted triggers, and those queued for so long that they are due for publication again."""
        claim_ids, began_ns = [uuid.uuid4().hex for _ in triggers], time_ns()
        replies = self._run_each([self._claim_call(*each) for each in zip(triggers, claim_ids, strict=True)])
        granted, queued, is_slow = [], [], False
        for trigger, claim_id, reply in zip(triggers, claim_ids, replies, strict=True):
            trigger.trace.claimed(began_ns)
            if isinstance(reply, Exception):
                self._failed(trigger, reply)
                continue
            self._update_suppression(trigger, reply)
            if reply.status is ClaimStatus.CLAIMED:
                granted.append(replace(trigger, claim_number=reply.number, claim_id=claim_id))
                continue
            why = "already_refreshed" if reply.status is ClaimStatus.ALREADY_REFRESHED else reply.state.value
            self._events.refresh_deduplicated(trigger.key.query, state=why)
            waits = reply.status is ClaimStatus.REFUSED and reply.state is RecordState.QUEUED
            is_slow = is_slow or (waits and self._is_older(reply, SLOW_SECONDS))
            if waits and self._is_older(reply, REPUBLISH_SECONDS):
                queued.append(trigger)
            else:
                self._deduplicated(trigger, why)
        if is_slow and not queued:
            self._pressure.refresh_queue_length()  # the length determines how long the next claims hold
        return granted + self._claim_republish(self._limit_republish(queued))

    def _claim_call(self, trigger: Trigger, claim_id: str) -> Call[ClaimReply]:
        return lease.claim(
            trigger.key,
            claim_id=claim_id,
            seen_token=trigger.seen_token,
            queue_ttl_seconds=self._pressure.claim_seconds(),
            retention_seconds=self._settings.record_retention_seconds,
        )

    def _update_suppression(self, trigger: Trigger, reply: ClaimReply) -> None:
        left_seconds = reply.left_seconds
        if reply.status is ClaimStatus.ALREADY_REFRESHED:
            # Reads of the old entry may still be in progress, and need not trigger a refresh that has been done.
            left_seconds = MAX_SUPPRESSION_SECONDS
        self._suppressor.update(trigger.key.entry, trigger.mark, left_seconds)

    def _is_older(self, reply: ClaimReply, seconds: float) -> bool:
        """Return whether a claim may be older than ``seconds``; `republish` knows for certain.

        It is not if both its end and its number show that it is newer. They don't for a claim made with other settings,
        with a clock that has been set, or for longer because of a long queue.
        """
        ages_seconds = (
            self._settings.queue_ttl_seconds - reply.left_seconds,
            (reply.now_us - reply.claim_number) / 1e6,
        )
        return not all(0 <= age < seconds for age in ages_seconds)

    def _limit_republish(self, repeats: list[Trigger]) -> list[Trigger]:
        """Return the triggers that may be published again, and end the others: a queue so long contains their messages.

        All triggers are of one queue.
        """
        if not repeats:
            return []
        has_waiter = repeats[0].has_waiter
        room = self._room(repeats, lambda: self._pressure.room_for_repeats(has_waiter=has_waiter))
        if room is None:
            return []
        for trigger in repeats[room:]:
            self._events.refresh_dropped(trigger.key.query, why="repeat")
            self._deduplicated(trigger, RecordState.QUEUED.value)
        return repeats[:room]

    def _claim_republish(self, queued: Sequence[Trigger]) -> list[Trigger]:
        """Return the triggers due for publication again, whose messages may have been lost or never sent."""
        calls = [lease.republish(each.key, interval_seconds=REPUBLISH_SECONDS) for each in queued]
        replies = self._run_each(calls)
        due = []
        for trigger, number in zip(queued, replies, strict=True):
            if isinstance(number, Exception):
                self._failed(trigger, number)
            elif number:
                due.append(replace(trigger, claim_number=number, is_republish=True))
            else:
                self._deduplicated(trigger, RecordState.QUEUED.value)
        return due

    def _publish(self, batches: Sequence[Sequence[Trigger]]) -> None:
        """Publish one message for each of ``batches``, which are all of one queue."""
        if not batches:
            return
        if self._breaker.allows():
            contents = [[self._item(trigger) for trigger in batch] for batch in batches]
            errors = self._publish_each(contents, has_waiter=batches[0][0].has_waiter)
        else:
            errors = [TriggerDropped("breaker", self._breaker.reason)] * len(batches)
        outcomes = [(trigger, error) for batch, error in zip(batches, errors, strict=True) for trigger in batch]
        self._unclaim(trigger for trigger, error in outcomes if error is not None)
        for trigger, error in outcomes:
            if error is None:
                self._triggered(trigger)
            else:
                self._failed(trigger, error)

    def _item(self, trigger: Trigger) -> messages.RefreshItem:
        broker_url = self._settings.broker_url
        queue = queue_name(self._settings.namespace, broker_url, has_waiter=trigger.has_waiter)
        trace = trigger.trace.sending(system_of(broker_url), queue)
        return messages.item_for(trigger.key, trigger.claim_number, trigger.reason, trace)

    def _publish_each(
        self, contents: Sequence[Sequence[messages.RefreshItem]], *, has_waiter: bool
    ) -> list[Exception | None]:
        errors: list[Exception | None]
        try:
            errors = self._broker.publish_each(contents, has_waiter=has_waiter)
        except Exception as error:  # noqa: BLE001 - the outcome of each message
            errors = [error] * len(contents)
        failures = [error for error in errors if error is not None]
        if len(failures) < len(errors):
            self._breaker.succeeded()
        else:
            self._breaker.failed(fault_text(failures[0], self._settings.broker_url))
        sent = [len(items) for items, error in zip(contents, errors, strict=True) if error is None]
        self._pressure.published(sum(sent), len(sent), has_waiter=has_waiter)
        return errors

    def _unclaim(self, triggers: Iterable[Trigger]) -> None:
        """Take back the claims of the triggers that have their own."""
        retention_seconds = self._settings.record_retention_seconds
        own = [each for each in triggers if each.claim_id]
        calls = [lease.unclaim(each.key, claim_id=each.claim_id, retention_seconds=retention_seconds) for each in own]
        self._run_each(calls)  # if Redis is unavailable, the claims expire

    def _triggered(self, trigger: Trigger) -> None:
        if trigger.is_republish:
            self._events.refresh_republished(trigger.key.query)
            self._end(trigger, TriggerOutcome.REPUBLISHED)
        else:
            self._events.refresh_triggered(trigger.key.query, reason=trigger.reason)
            self._end(trigger, TriggerOutcome.PUBLISHED)

    def _deduplicated(self, trigger: Trigger, why: str) -> None:
        self._end(trigger, TriggerOutcome.DEDUPLICATED, why)

    def _dropped(self, trigger: Trigger, dropped: TriggerDropped) -> None:
        self._events.refresh_dropped(trigger.key.query, why=dropped.why)
        self._end(trigger, TriggerOutcome.DROPPED, dropped.why, dropped)

    def _failed(self, trigger: Trigger, error: Exception) -> None:
        if isinstance(error, TriggerDropped):
            self._dropped(trigger, error)
            return
        why = type(error.__cause__ if isinstance(error, CacheUnavailable) and error.__cause__ else error).__name__
        self._events.trigger_failed(trigger.key.query, why=why)
        if trigger.done is None and not isinstance(error, (RedisError, OSError, *_broker_errors())):
            log.error("unexpected error in the refresh publisher", exc_info=error)
        self._end(trigger, TriggerOutcome.FAILED, why, error)

    def _end(self, trigger: Trigger, outcome: TriggerOutcome, why: str = "", error: Exception | None = None) -> None:
        """End a trigger's trace and report its outcome, with a separate error for each trigger of a batch."""
        trigger.trace.end(outcome.value, why)
        if trigger.done is not None:
            trigger.done(None if error is None else twin(error))


def _broker_errors() -> tuple[type[Exception], ...]:
    from kombu.exceptions import KombuError, OperationalError

    return (OperationalError, KombuError)
