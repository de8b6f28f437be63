"""The plan of a wait: the steps of a read that found no entry that satisfies it. Shared by both readers; no I/O.

`wait_plan` is a generator that yields the steps, and is sent their results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeAlias

from api_client.errors import RefreshFailed, UnknownQuery, WaitTimeout
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import ClaimReply, ClaimStatus, RecordState
from api_client.read.evaluate import Freshness, evaluate

RECLAIM_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 1.0
UNKNOWN_QUERY_KIND: Final = "unknown_query"


@dataclass(frozen=True, slots=True)
class Claim:
    """Step: claim, for the entry with ``seen_token`` (None: whatever is there). Send back the ClaimReply."""

    seen_token: int | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Step: publish under the claim's number, with a waiter. Send back None."""

    claim_number: int


@dataclass(frozen=True, slots=True)
class Republish:
    """Step: check whether the queued refresh is due to be published again. Send back its claim's number, or 0."""


@dataclass(frozen=True, slots=True)
class Read:
    """Step: read the entry, and the clock. Send back (bytes or None, Redis' time in µs)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Step: wait for a notification, at most this long. Send back whether one came."""

    duration_seconds: float


Step: TypeAlias = Claim | Publish | Republish | Read | Pause
Reply: TypeAlias = ClaimReply | int | bool | tuple[bytes | None, int] | None
WaitPlan: TypeAlias = Generator[Step, Reply, bytes]


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """Times of a wait, in seconds.

    ``jitter`` draws in [0, 1) for the polls; ``jitter_seconds`` is what was drawn between STAMPEDE_JITTER_MIN_MS and
    _MAX_MS: it is added before a record that ran out is claimed again, so that waiters do not all claim at once.
    """

    timeout_seconds: float
    first_pause_seconds: float
    jitter_seconds: float
    monotonic: Callable[[], float]
    jitter: Callable[[], float] = random.random


def wait_plan(
    key: CacheKey, freshness: Freshness, seen_token: int, options: WaitOptions, claimed: ClaimReply | None = None
) -> WaitPlan:
    """Claim, publish, and wait for an entry that satisfies the read; returns its bytes.

    Polling is exponential with full jitter (10, 20, 40 ms … 1 s), and cut short by a notification. The record is
    claimed again when its state runs out, at most a second later: so a failure is seen, a lapsed lease is claimed anew
    and a lost message is published once more, whatever notification was lost.

    With ``claimed``, the reply of a claim that the caller has made and published itself, the wait begins there.

    Raises:
        RefreshFailed: the key cools after a failure (UnknownQuery: no worker knows the query).
        WaitTimeout: nothing came in time.
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
        wait.on_entry_seen(seen.seen_token)
        if wait.is_claim_due():
            yield from _claim(wait)


class _WaitState:
    """The state of one wait."""

    def __init__(self, key: CacheKey, options: WaitOptions, *, seen_token: int | None) -> None:
        self.key, self.options = key, options
        self.seen_token = seen_token
        self.stamp: int | None = None
        self.state = RecordState.IDLE.value
        self.reads_at_once = False
        self._began = options.monotonic()
        self._claim_at = self._began
        self._pause = options.first_pause_seconds

    def is_claim_due(self) -> bool:
        return self.options.monotonic() >= self._claim_at

    def on_claim_reply(self, reply: ClaimReply) -> None:
        # Every stamp was drawn after the call began, so the smallest demands the least that is still right.
        self.stamp = reply.number if self.stamp is None else min(self.stamp, reply.number)
        self.state = reply.state.value
        self.reads_at_once = reply.status is ClaimStatus.ALREADY_REFRESHED
        pause_seconds = RECLAIM_SECONDS
        if self.reads_at_once:
            pause_seconds = self.options.first_pause_seconds
        elif reply.status is ClaimStatus.REFUSED:
            pause_seconds = min(reply.left_seconds + self.options.jitter_seconds, RECLAIM_SECONDS)
        self._claim_at = self.options.monotonic() + pause_seconds

    def on_entry_seen(self, token: int) -> None:
        # For a fresh read too: what is committed between this read and the next claim is read, not loaded again.
        self.reads_at_once = False
        self.seen_token = token

    def on_notified(self) -> None:
        self._claim_at = self.options.monotonic()
        self._pause = self.options.first_pause_seconds

    def next_pause(self) -> float:
        left = self._began + self.options.timeout_seconds - self.options.monotonic()
        if left <= 0:
            raise WaitTimeout(self.key.query, self.options.timeout_seconds, self.state)
        drawn = self._pause * self.options.jitter()
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        # A draw near 0 would spin: a tenth of the first pause is the minimum.
        until_claim = max(self._claim_at - self.options.monotonic(), 0.0)
        return min(max(drawn, self.options.first_pause_seconds / 10), left, max(until_claim, 0.001))


def _claim(wait: _WaitState) -> Generator[Step, Reply, None]:
    reply = yield Claim(wait.seen_token)
    assert isinstance(reply, ClaimReply)  # noqa: S101 - the driver's contract, for the type checker
    wait.on_claim_reply(reply)
    if reply.status is ClaimStatus.CLAIMED:
        yield Publish(reply.number)
    elif reply.status is ClaimStatus.REFUSED:
        if reply.state is RecordState.COOLING:
            raise refresh_failed(wait.key, reply)
        if reply.state is RecordState.QUEUED and (number := (yield Republish())):
            assert isinstance(number, int)  # noqa: S101
            yield Publish(number)


def _read() -> Generator[Step, Reply, tuple[bytes | None, int]]:
    reply = yield Read()
    assert isinstance(reply, tuple)  # noqa: S101
    return reply


def refresh_failed(key: CacheKey, reply: ClaimReply) -> RefreshFailed:
    """Return the error for a key that cools."""
    if reply.kind == UNKNOWN_QUERY_KIND:
        return UnknownQuery(key.query, key.version, reply.attempts, reply.left_seconds)
    return RefreshFailed(key.query, reply.kind, reply.attempts, reply.left_seconds)
