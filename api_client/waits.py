"""Drives a wait plan with blocking I/O: each step of the plan is one call here."""

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
from api_client.lease import ClaimReply
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


class WaitDriver:
    """Waits for an entry that is good enough, on the calling thread."""

    def __init__(
        self, link: CacheLink, publisher: Publisher, notifications: Notifications, settings: ReaderSettings
    ) -> None:
        self.link, self.publisher, self.settings = link, publisher, settings
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
        plan = wait_plan(key, floor, seen_token, self._options(timeout_seconds), asked)
        with self._notifications.listening(key.channel) as notified:
            return _Wait(self, key, floor, notified, read_begins).run(plan)

    def _options(self, timeout_seconds: float) -> WaitOptions:
        low_ms, high_ms = self.settings.jitter_min_ms, self.settings.jitter_max_ms
        return WaitOptions(
            timeout_seconds=timeout_seconds,
            first_pause_seconds=self.settings.wait_poll_ms / 1000,
            jitter_seconds=random.uniform(low_ms, high_ms) / 1000,  # noqa: S311 - spreads load, no secret
            monotonic=monotonic_seconds,
        )


class _Wait:
    """One plan on its way."""

    def __init__(
        self,
        driver: WaitDriver,
        key: CacheKey,
        floor: Floor,
        notified: threading.Event,
        read_begins: Callable[[], None],
    ) -> None:
        self._link, self._publisher, self._settings = driver.link, driver.publisher, driver.settings
        self._key, self._floor, self._notified, self._read_begins = key, floor, notified, read_begins
        self._claim_id = ""
        self._published: Future[None] | None = None

    def run(self, plan: WaitPlan) -> bytes:
        """Do the plan's steps to its end."""
        try:
            step = next(plan)
            while True:
                step = plan.send(self._do(step))
        except StopIteration as done:
            raw: bytes = done.value
            return raw
        except WaitTimeout as timeout:
            if (failure := self._failure()) is None:
                raise
            state = f"{timeout.state}, but it could not be published: {type(failure).__name__}"
            raise WaitTimeout(self._key.query, timeout.waited_seconds, state) from failure

    def _do(self, step: Step) -> Reply:
        match step:
            case Pause(duration_seconds):
                came = self._notified.wait(duration_seconds)
                self._notified.clear()
                return came
            case Read():
                self._read_begins()
                return self._link.read(self._key), self._link.now_us()
            case AskClaim(seen_token):
                return self._claim(seen_token)
            case AskRepublish():
                call = lease.republish(self._key, interval_seconds=REPUBLISH_INTERVAL_SECONDS)
                return self._link.run(call, self._key.query)
            case Publish(claim_number):
                self._publish(claim_number)
                return None

    def _claim(self, seen_token: int | None) -> ClaimReply:
        # Each ask is a claim of its own: an answer to an earlier one may still be on its way.
        self._claim_id = uuid.uuid4().hex
        call = lease.claim(
            self._key,
            claim_id=self._claim_id,
            seen_token=seen_token,
            queue_ttl_seconds=self._settings.queue_ttl_seconds,
            retention_seconds=self._settings.record_retention_seconds,
            bookmarks=sorted(self._floor.min_bookmarks),
        )
        return self._link.run(call, self._key.query)

    def _publish(self, claim_number: int) -> None:
        self._published = Future()
        self._publisher.submit(
            Trigger(
                self._key,
                RefreshReason.MISS,
                claim_number=claim_number,
                claim_id=self._claim_id,
                someone_waits=True,
                done=self._published,
            )
        )

    def _failure(self) -> BaseException | None:
        """Return why the last publication failed, if it did."""
        published = self._published
        return published.exception() if published is not None and published.done() else None
