"""Pending reads, and the waits that end them. Shared by both readers; no I/O."""

from __future__ import annotations

import random
import uuid
from typing import Any, Final

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, WaitTimeout
from api_client.protocol import lease
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import is_handoff
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call, ClaimReply
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import EntryState, ReadResult, RefreshState
from api_client.read.core import ReadCore
from api_client.read.evaluate import Freshness
from api_client.read.wait_plan import Claim, Pause, Publish, Reply, Republish, Step, WaitOptions, wait_plan
from api_client.trigger.backlog import Trigger
from api_client.trigger.publisher import Publisher

REPUBLISH_INTERVAL_SECONDS: Final = 1.0


class PendingRead:
    """One read that no entry satisfied: what it may share with others, and how long it waits.

    Args:
        seen_token: the token of the entry that did not satisfy it; 0: there was none.
    """

    def __init__(
        self, core: ReadCore, key: CacheKey, freshness: Freshness, seen_token: int, timeout_seconds: float
    ) -> None:
        self._core = core
        self.key: CacheKey = key
        self.freshness: Freshness = freshness
        self.seen_token: int = seen_token
        self._timeout_seconds, self._began = timeout_seconds, monotonic_seconds()
        self._was_shared = False
        core.record_miss(key)

    @property
    def may_share(self) -> bool:
        """Whether the wait of another caller serves as well."""
        return self.freshness.is_any and not self.seen_token

    @property
    def left_seconds(self) -> float:
        """How much of the caller's time is left."""
        return max(0.0, self._timeout_seconds - (monotonic_seconds() - self._began))

    def accepts_shared(self, raw: bytes, *, is_follower: bool) -> bool:
        """Return whether this read may have what a shared wait has returned."""
        # A handoff was loaded for reads that waited before the load began; a follower came later.
        self._was_shared = is_follower and not is_handoff(raw)
        return self._was_shared or not is_follower

    def timed_out(self) -> WaitTimeout:
        """Return the error for a follower whose own time ran out first."""
        return WaitTimeout(self.key.query, self._timeout_seconds, "waiting with others")

    def result(self, raw: bytes, type_: Any) -> ReadResult:
        """Return the result of the bytes that the wait has returned.

        Raises:
            DecodeError.
        """
        self._core.forget(self.key)
        if self._was_shared:
            self._core.record_single_flight_hit(self.key, monotonic_seconds() - self._began)
        value, header = self._core.decode_awaited(self.key, raw, type_)
        # What an invalidation met while it was loaded is stale already, and may be older than this read.
        state = EntryState.STALE if header.generation > header.token else EntryState.MISS
        return ReadResult(value, header, state, RefreshState.TRIGGERED, self._core.now_us())


class Wait:
    """One wait under way: its plan's current step, until there is a result.

    Args:
        claimed: the reply of a claim that was made for this wait already.

    Attributes:
        step: what is to be done next: a `Claim` or `Republish` (see `call`), a `Read`, a `Pause`.
        pauses_until: the end of a `Pause`, in monotonic seconds.
        result: the entry's bytes, or the error; None: not yet.
    """

    def __init__(
        self,
        key: CacheKey,
        freshness: Freshness,
        seen_token: int,
        timeout_seconds: float,
        settings: ReaderSettings,
        publisher: Publisher,
        claimed: ClaimReply | None = None,
    ) -> None:
        self.key: CacheKey = key
        self.step: Step
        self.pauses_until: float = 0.0
        self.result: bytes | CacheError | None = None
        self._freshness, self._settings, self._publisher = freshness, settings, publisher
        self._claim_id = ""
        self._is_republish = False
        self._publication: list[Exception | None] = []  # at most one: its outcome
        self._ends_at = monotonic_seconds() + timeout_seconds
        self._call: Call[Any] | None = None
        self._failed = False
        self._plan = wait_plan(key, freshness, seen_token, _options(settings, timeout_seconds), claimed)
        self.advance(None)

    def advance(self, reply: Reply) -> None:
        """Send the step's reply to the plan, and go on to its next step, or to the end."""
        self._failed = False
        try:
            step = self._plan.send(reply)
            while isinstance(step, Publish):
                self._publish(step.claim_number)
                step = self._plan.send(None)
            self.step = step
            if isinstance(step, Pause):
                self.pauses_until = monotonic_seconds() + step.duration_seconds
        except StopIteration as done:
            self.result = done.value
        except WaitTimeout as timeout:
            self.result = self._explained(timeout)
        except CacheError as error:
            self.result = error

    def fail(self, error: CacheUnavailable) -> None:
        """Repeat the step that Redis did not answer, or end.

        The first failure in a row is repeated, while there is time: a wait of many steps is not to end by one reply
        that came late. After the second, Redis is unavailable.
        """
        first, self._failed = not self._failed, True
        if not first or monotonic_seconds() >= self._ends_at:
            self.result = error.about(self.key.query)

    def call(self) -> Call[Any]:
        """Return the lease step of a `Claim` or `Republish`; its reply is the step's. A repeated one is the same."""
        if self._call is None or not self._failed:
            self._is_republish = isinstance(self.step, Republish)
            if isinstance(self.step, Claim):
                self._call = self._claim(self.step.seen_token)
            else:
                self._call = lease.republish(self.key, interval_seconds=REPUBLISH_INTERVAL_SECONDS)
        return self._call

    def _claim(self, seen_token: int | None) -> Call[ClaimReply]:
        # Each is a claim of its own: the reply to an earlier one may still be on its way.
        self._claim_id = uuid.uuid4().hex
        return lease.claim(
            self.key,
            claim_id=self._claim_id,
            seen_token=seen_token,
            queue_ttl_seconds=self._settings.queue_ttl_seconds,
            retention_seconds=self._settings.record_retention_seconds,
            bookmarks=sorted(self._freshness.min_bookmarks),
        )

    def _publish(self, claim_number: int) -> None:
        self._publication = []
        self._publisher.submit(
            Trigger(
                self.key,
                RefreshReason.MISS,
                claim_number=claim_number,
                claim_id=self._claim_id,
                has_waiter=True,
                is_republish=self._is_republish,
                done=self._publication.append,
            )
        )

    def _explained(self, timeout: WaitTimeout) -> WaitTimeout:
        """Return the timeout, with the failure of the last publication as its cause if there was one."""
        failure = self._publication[0] if self._publication else None
        if failure is None:
            return timeout
        state = f"{timeout.state}, but it could not be published: {type(failure).__name__}"
        explained = WaitTimeout(self.key.query, timeout.waited_seconds, state)
        explained.__cause__ = failure
        return explained


def _options(settings: ReaderSettings, timeout_seconds: float) -> WaitOptions:
    return WaitOptions(
        timeout_seconds=max(0.0, timeout_seconds),  # what is left of a timeout may be slightly negative
        first_pause_seconds=settings.wait_poll_ms / 1000,
        jitter_seconds=random.uniform(settings.jitter_min_ms, settings.jitter_max_ms) / 1000,  # noqa: S311 - no secret
        monotonic=monotonic_seconds,
    )
