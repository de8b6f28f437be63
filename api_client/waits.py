"""Drives wait plans: each step is one call here. What a step asks for is shared with the async driver."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from api_client import lease
from api_client.clock import monotonic_seconds
from api_client.errors import WaitTimeout
from api_client.events import RefreshReason
from api_client.keys import CacheKey
from api_client.lease import Call, ClaimReply
from api_client.link import CacheLink
from api_client.notifications import Notifications
from api_client.publisher import Publisher, Trigger
from api_client.read_plan import (
    AskClaim,
    AskRepublish,
    Floor,
    Pause,
    Publish,
    Read,
    Reply,
    Step,
    WaitOptions,
    WaitPlan,
    wait_plan,
)
from api_client.settings import ReaderSettings

REPUBLISH_INTERVAL_SECONDS: Final = 1.0


class WaitSteps:
    """What the steps of one wait ask for, and its claim and publication on their way. No I/O.

    Args:
        asked: the reply of a claim that was made for this wait already.
    """

    def __init__(
        self,
        key: CacheKey,
        floor: Floor,
        seen_token: int,
        timeout_seconds: float,
        settings: ReaderSettings,
        publisher: Publisher,
        asked: ClaimReply | None = None,
    ) -> None:
        self.key, self._floor, self._settings, self._publisher = key, floor, settings, publisher
        self.plan: WaitPlan = wait_plan(key, floor, seen_token, _options(settings, timeout_seconds), asked)
        self._claim_id = ""
        self._published: Future[None] | None = None

    def claim(self, seen_token: int | None) -> Call[ClaimReply]:
        """Return the call for an `AskClaim`."""
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

    def republish(self) -> Call[int]:
        """Return the call for an `AskRepublish`."""
        return lease.republish(self.key, interval_seconds=REPUBLISH_INTERVAL_SECONDS)

    def publish(self, claim_number: int) -> None:
        """Hand a `Publish` to the publisher."""
        self._published = Future()
        self._publisher.submit(
            Trigger(
                self.key,
                RefreshReason.MISS,
                claim_number=claim_number,
                claim_id=self._claim_id,
                someone_waits=True,
                done=self._published,
            )
        )

    def explained(self, timeout: WaitTimeout) -> WaitTimeout:
        """Return the timeout, with the failure of the last publication as its cause if there was one."""
        published = self._published
        failure = published.exception() if published is not None and published.done() else None
        if failure is None:
            return timeout
        state = f"{timeout.state}, but it could not be published: {type(failure).__name__}"
        told = WaitTimeout(self.key.query, timeout.waited_seconds, state)
        told.__cause__ = failure
        return told


def _options(settings: ReaderSettings, timeout_seconds: float) -> WaitOptions:
    return WaitOptions(
        timeout_seconds=timeout_seconds,
        first_pause_seconds=settings.wait_poll_ms / 1000,
        jitter_seconds=random.uniform(settings.jitter_min_ms, settings.jitter_max_ms) / 1000,  # noqa: S311 - no secret
        monotonic=monotonic_seconds,
    )


class WaitDriver:
    """Waits for an entry that is good enough, on the calling thread."""

    def __init__(
        self, link: CacheLink, publisher: Publisher, notifications: Notifications, settings: ReaderSettings
    ) -> None:
        self._link, self._publisher, self._settings = link, publisher, settings
        self._notifications = notifications

    def wait(
        self,
        key: CacheKey,
        floor: Floor,
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
        steps = WaitSteps(key, floor, seen_token, timeout_seconds, self._settings, self._publisher, asked)
        notified = threading.Event()
        with self._notifications.listening(key.channel, notified.set):
            try:
                step = next(steps.plan)
                while True:
                    step = steps.plan.send(self._do(step, steps, notified, read_begins))
            except StopIteration as done:
                raw: bytes = done.value
                return raw
            except WaitTimeout as timeout:
                told = steps.explained(timeout)
                raise told from told.__cause__

    def _do(self, step: Step, steps: WaitSteps, notified: threading.Event, read_begins: Callable[[], None]) -> Reply:
        match step:
            case Pause(duration_seconds):
                came = notified.wait(duration_seconds)
                notified.clear()
                return came
            case Read():
                read_begins()
                return self._link.read(steps.key), self._link.now_us()
            case AskClaim(seen_token):
                return self._link.run(steps.claim(seen_token), steps.key.query)
            case AskRepublish():
                return self._link.run(steps.republish(), steps.key.query)
            case Publish(claim_number):
                steps.publish(claim_number)
                return None
