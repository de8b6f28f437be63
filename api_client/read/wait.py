"""Waits of reads that no entry satisfies. Shared by both readers; no I/O.

`wait_plan` is a generator that yields the steps of a wait and is sent their results. `Wait` drives one: it publishes
by itself, and tells its reader the next step.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, RefreshFailed, UnknownQuery, WaitTimeout
from api_client.protocol import lease
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call, ClaimReply, ClaimStatus, RecordState
from api_client.protocol.messages import RefreshReason
from api_client.read.evaluate import Freshness, evaluate
from api_client.read.in_place import InPlaceEnd, LoadsInPlace, Wanted, loader_of
from api_client.trigger.backlog import Trigger
from api_client.trigger.broker import publication_fault
from api_client.trigger.publisher import Publisher

RECLAIM_SECONDS: Final = 1.0
REPUBLISH_INTERVAL_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 1.0
UNKNOWN_QUERY_KIND: Final = "unknown_query"
WRONG_PARAMS_KIND: Final = "wrong_params"
MAX_NAMES_SHOWN: Final = 10
MAX_NAME_SHOWN: Final = 40
# Other states have no hint of their own.
_TIMEOUT_HINTS: Final = {
    RecordState.QUEUED: "a worker may have it by now; see `refresher explain`",
    RecordState.RUNNING: "a worker is loading it; see `refresher explain`",
    RecordState.RETRYING: "the load failed, and will be tried again; see `refresher explain`",
}
_STILL_QUEUED_HINT: Final = "is a worker running? see `refresher status`"


@dataclass(frozen=True, slots=True)
class Claim:
    """Step: claim, for the entry with ``seen_token`` (None: any entry). Send back the ClaimReply."""

    seen_token: int | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Step: publish under the claim's number, for a waiting reader. Send back None."""

    claim_number: int


@dataclass(frozen=True, slots=True)
class Republish:
    """Step: check whether the queued refresh is due for publication again. Send back its claim's number, or 0."""


@dataclass(frozen=True, slots=True)
class LoadInPlace:
    """Step: load the key in this process, for the queued claim of this number. Send back the InPlaceEnd."""

    claim_number: int


@dataclass(frozen=True, slots=True)
class Read:
    """Step: read the entry and the clock. Send back (bytes or None, Redis' time in µs)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Step: wait for a notification, for at most this long. Send back whether one came."""

    duration_seconds: float


Step: TypeAlias = Claim | Publish | Republish | LoadInPlace | Read | Pause
Reply: TypeAlias = ClaimReply | InPlaceEnd | int | bool | tuple[bytes | None, int] | None
WaitPlan: TypeAlias = Generator[Step, Reply, bytes]


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """Times of a wait, in seconds.

    ``jitter`` draws in [0, 1) for the polls. ``jitter_seconds`` was drawn between STAMPEDE_JITTER_MIN_MS and _MAX_MS,
    and delays the claim of an expired record, so that waiters do not all claim at once. With ``in_place`` this process
    loads queued refreshes itself.
    """

    timeout_seconds: float
    first_pause_seconds: float
    jitter_seconds: float
    monotonic: Callable[[], float]
    jitter: Callable[[], float] = random.random
    in_place: bool = False


def wait_plan(
    key: CacheKey, freshness: Freshness, seen_token: int, options: WaitOptions, claimed: ClaimReply | None = None
) -> WaitPlan:
    """Claim, publish, and wait for an entry that satisfies the read; return its bytes.

    Polling is exponential with full jitter (10, 20, 40 ms … 1 s), and a notification cuts it short. The record is
    claimed again when its state expires, and after a second at the latest. So a failure is noticed, a lapsed lease is
    claimed anew and a lost message is published again, even if notifications are lost.

    ``claimed`` is the reply to a claim that the caller has already made and published; the wait goes on from there.

    Raises:
        RefreshFailed: the key is cooling after a failure (UnknownQuery: no worker knows the query).
        WaitTimeout: no entry came in time.
    """
    wait = _WaitState(key, options, seen_token=None if freshness.fresh else seen_token)
    if claimed is None:
        yield from _claim(wait)
    else:
        wait.on_claim_reply(claimed)
    while True:
        if not wait.reads_at_once and (yield Pause(wait.next_pause())):
            wait.on_notified()
        raw, now_us = yield from _read()
        seen = evaluate(raw, key.digest, freshness, now_us=now_us, u=1.0, stamp=wait.stamp)
        if seen.satisfies and raw is not None:
            return raw
        wait.on_entry_seen(seen.seen_token, seen.unreadable)
        if wait.is_claim_due():
            yield from _claim(wait)


class _WaitState:
    """The state of one wait."""

    def __init__(self, key: CacheKey, options: WaitOptions, *, seen_token: int | None) -> None:
        self.key, self.options = key, options
        self.seen_token = seen_token
        self.stamp: int | None = None
        self.state = RecordState.IDLE
        self.is_still_queued = False
        self.reads_at_once = False
        self._began = options.monotonic()
        self._claim_at = self._not_before = self._began
        self._pause = options.first_pause_seconds
        self._unreadable, self._pause_of_unreadable = "", options.first_pause_seconds

    def is_claim_due(self) -> bool:
        return self._until_claim() <= 0

    def on_claim_reply(self, reply: ClaimReply) -> None:
        # Every stamp was drawn after the call began, so the smallest is enough.
        self.stamp = reply.number if self.stamp is None else min(self.stamp, reply.number)
        # A single reply casts no doubt on the workers: an idle one takes the message right after it.
        are_both_queued = self.state is reply.state is RecordState.QUEUED
        self.is_still_queued = are_both_queued and reply.status is ClaimStatus.REFUSED
        self.state = reply.state
        self.reads_at_once = reply.status is ClaimStatus.ALREADY_REFRESHED
        pause_seconds = RECLAIM_SECONDS
        if self.reads_at_once:
            pause_seconds = self.options.first_pause_seconds
        elif reply.status is ClaimStatus.REFUSED:
            pause_seconds = min(reply.left_seconds + self.options.jitter_seconds, RECLAIM_SECONDS)
        self._claim_at = self.options.monotonic() + pause_seconds

    def on_entry_seen(self, token: int, unreadable: str | None) -> None:
        self.reads_at_once = False
        if unreadable and self.stamp is not None and token > self.stamp and token != self.seen_token:
            # This release can't read the entry that was loaded for this read. During a rolling deploy a worker of this
            # release may load next; without one, the next load would have the same result.
            self._unreadable = unreadable
            self._not_before = self.options.monotonic() + self._pause_of_unreadable
            self._pause_of_unreadable *= 2
        elif not unreadable:
            self._unreadable, self._not_before = "", self._began
        # Even for a fresh read: an entry committed between this read and the next claim is read, not loaded again.
        self.seen_token = token

    def on_loaded(self, ended: InPlaceEnd) -> None:
        if ended is InPlaceEnd.ENDED:
            self.reads_at_once, self._claim_at = True, self.options.monotonic()

    def on_notified(self) -> None:
        self._claim_at = self.options.monotonic()
        self._pause = self.options.first_pause_seconds

    def next_pause(self) -> float:
        left = self._began + self.options.timeout_seconds - self.options.monotonic()
        if left <= 0:
            raise self._timed_out()
        drawn = self._pause * self.options.jitter()
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        # At least a tenth of the first pause, since draws near 0 would spin.
        return min(max(drawn, self.options.first_pause_seconds / 10), left, max(self._until_claim(), 0.001))

    def _until_claim(self) -> float:
        return max(self._claim_at, self._not_before) - self.options.monotonic()

    def _timed_out(self) -> WaitTimeout:
        if self._unreadable:
            hint = f"this release can't read what workers store for it ({self._unreadable}): is one of them newer?"
            return WaitTimeout(self.key.query, self.options.timeout_seconds, self.state.value, hint)
        hint = _STILL_QUEUED_HINT if self.is_still_queued else _TIMEOUT_HINTS.get(self.state, "see `refresher status`")
        return WaitTimeout(self.key.query, self.options.timeout_seconds, self.state.value, hint)


def _claim(wait: _WaitState) -> Generator[Step, Reply, None]:
    reply = yield Claim(wait.seen_token)
    assert isinstance(reply, ClaimReply)  # noqa: S101 - the driver's contract, for the type checker
    wait.on_claim_reply(reply)
    if reply.status is ClaimStatus.ALREADY_REFRESHED:
        return
    if reply.state is RecordState.COOLING:
        raise refresh_failed(wait.key, reply)
    if reply.state is RecordState.QUEUED:
        if wait.options.in_place:
            ended = yield LoadInPlace(reply.claim_number)
            assert isinstance(ended, InPlaceEnd)  # noqa: S101
            wait.on_loaded(ended)
            if ended is not InPlaceEnd.DEFERRED:
                return
        number = reply.number if reply.status is ClaimStatus.CLAIMED else (yield Republish())
        assert isinstance(number, int)  # noqa: S101
        if number:
            yield Publish(number)


def _read() -> Generator[Step, Reply, tuple[bytes | None, int]]:
    reply = yield Read()
    assert isinstance(reply, tuple)  # noqa: S101
    return reply


def refresh_failed(key: CacheKey, reply: ClaimReply) -> RefreshFailed:
    """Return the error for a key that is cooling."""
    if reply.kind == UNKNOWN_QUERY_KIND:
        return UnknownQuery(key.query, key.version, reply.attempts, reply.left_seconds)
    if reply.kind == WRONG_PARAMS_KIND:
        hint = f"{_wrong_params(key)}; `refresher queries` shows, in a worker's environment, what it takes"
        return RefreshFailed(key.query, reply.kind, reply.attempts, reply.left_seconds, hint)
    more = {"hint": reply.why} if reply.why else {}
    return RefreshFailed(key.query, reply.kind, reply.attempts, reply.left_seconds, **more)


def _wrong_params(key: CacheKey) -> str:
    """Describe wrong params by their names, since their values may be secret."""
    names = [repr(name[:MAX_NAME_SHOWN]) for name in islice(key.params, MAX_NAMES_SHOWN)]
    if not names:
        return "its loader requires params, and was given none"
    more = ", …" if len(key.params) > MAX_NAMES_SHOWN else ""
    return f"the params given, {', '.join(names)}{more}, are not exactly what its loader takes"


class Wait:
    """One wait in progress: the current step of its plan, until there is a result.

    Args:
        claimed: the reply to a claim that was already made for this wait.

    Attributes:
        step: the next thing to do: a `Claim` or `Republish` (by ``call``), a `LoadInPlace`, a `Read` or a `Pause`.
        call: the lease step of a `Claim` or `Republish`, whose reply is the step's; None for other steps.
        pauses_until: the end of a `Pause`, in monotonic seconds.
        ends_at: the end of the wait, in monotonic seconds.
        in_place: the loader of this process for the key; None if workers load it.
        result: the entry's bytes or the error; None until the wait is over.
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
        self.in_place: LoadsInPlace | None = loader_of(key, settings)
        self.step: Step
        self.call: Call[Any] | None = None
        self.pauses_until: float = 0.0
        self.result: bytes | CacheError | None = publisher.refusal(key.query)
        self._bookmarks, self._settings, self._publisher = sorted(freshness.min_bookmarks), settings, publisher
        self._claim_id, self._is_republish = "", False
        # The outcome of the last publication that has one: at the end of the wait the next one may be under way.
        self._outcome: deque[Exception | None] = deque(maxlen=1)
        self.ends_at: float = monotonic_seconds() + timeout_seconds
        self._failed = False
        options = WaitOptions(
            timeout_seconds=max(0.0, timeout_seconds),  # the rest of a timeout may be slightly negative
            first_pause_seconds=settings.wait_poll_ms / 1000,
            jitter_seconds=random.uniform(settings.jitter_min_ms, settings.jitter_max_ms) / 1000,  # noqa: S311 - no secret
            monotonic=monotonic_seconds,
            in_place=self.in_place is not None,
        )
        self._plan = wait_plan(key, freshness, seen_token, options, claimed)
        if self.result is None:
            self.advance(None)

    def advance(self, reply: Reply | CacheUnavailable) -> None:
        """Send the step's reply to the plan, and move on to its next step or its end.

        A step that Redis did not answer is repeated (a claim with the same id) while time remains, because one late
        reply should not end a wait of many steps. After a second failure in a row, Redis counts as unavailable.
        """
        if isinstance(reply, CacheUnavailable):
            first, self._failed = not self._failed, True
            if not first or monotonic_seconds() >= self.ends_at:
                self.result = reply.about(self.key.query)
            return
        self._failed = False
        try:
            step = self._plan.send(reply)
            while isinstance(step, Publish):
                self._publish(step.claim_number)
                step = self._plan.send(None)
            self._begin(step)
        except StopIteration as done:
            self.result = done.value
        except WaitTimeout as timeout:
            self.result = self._explained(timeout)
        except CacheError as error:
            self.result = error

    def _begin(self, step: Step) -> None:
        self.step, self.call = step, None
        match step:
            case Claim(seen_token):
                # A new id, because the reply to an earlier claim may still be on its way.
                self._claim_id, self._is_republish = uuid.uuid4().hex, False
                self.call = lease.claim(
                    self.key,
                    claim_id=self._claim_id,
                    seen_token=seen_token,
                    queue_ttl_seconds=self._settings.queue_ttl_seconds,
                    retention_seconds=self._settings.record_retention_seconds,
                    bookmarks=self._bookmarks,
                )
            case Republish():
                self._is_republish = True
                self.call = lease.republish(self.key, interval_seconds=REPUBLISH_INTERVAL_SECONDS)
            case Pause(duration_seconds):
                self.pauses_until = monotonic_seconds() + duration_seconds

    def _publish(self, claim_number: int) -> None:
        self._publisher.submit(
            Trigger(
                self.key,
                RefreshReason.MISS,
                claim_number=claim_number,
                claim_id=self._claim_id,
                has_waiter=True,
                is_republish=self._is_republish,
                done=self._outcome.append,
            )
        )

    def _explained(self, timeout: WaitTimeout) -> WaitTimeout:
        """Return the timeout, caused by the failure of the last publication known to have ended if it failed."""
        failure = self._outcome[0] if self._outcome else None
        if failure is None:
            return timeout
        state = f"{timeout.state}, but it could not be published: {publication_fault(failure, self._settings)}"
        explained = WaitTimeout(self.key.query, timeout.waited_seconds, state)
        explained.__cause__ = failure
        return explained


def load_in_place(waits: Sequence[Wait]) -> None:
    """Run the loads in place of these waits, with the keys of one query together, and advance the waits.

    Raises:
        BaseException: a load was interrupted.
    """
    together: dict[tuple[str, int], list[Wait]] = {}
    for wait in waits:
        together.setdefault((wait.key.query, wait.key.version), []).append(wait)
    for group in together.values():
        loader = group[0].in_place
        assert loader is not None  # noqa: S101 - its step is that of a wait that has one
        wanted = [Wanted(wait.key, wait.step.claim_number) for wait in group if isinstance(wait.step, LoadInPlace)]
        left_seconds = min(wait.ends_at for wait in group) - monotonic_seconds()
        replies: Sequence[InPlaceEnd | CacheUnavailable]
        try:
            replies = loader.load(wanted, left_seconds)
        except CacheUnavailable as error:
            replies = [error] * len(group)
        for wait, reply in zip(group, replies, strict=True):
            wait.advance(reply)
