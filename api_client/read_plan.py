"""What a read does next, without doing it: the core that the sync and the async reader share. No I/O in here.

`judge` decides about the bytes of one entry; `wait_plan` is a generator that yields the steps of a read which found
nothing good enough, and is sent their results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from api_client import xfetch
from api_client.clock import TOLERANCE_US
from api_client.entry import Header, UnreadableEntry, decode_header, frozen_token
from api_client.errors import RefreshFailed, UnknownQuery, WaitTimeout
from api_client.events import RefreshReason
from api_client.keys import CacheKey
from api_client.lease import ClaimReply, ClaimStatus, RecordState

REASK_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 1.0
UNKNOWN_QUERY_KIND: Final = "unknown_query"

_HALF_IN_US: Final = xfetch.MICROSECONDS / 2


@dataclass(frozen=True, slots=True)
class Floor:
    """What an entry must be to be good enough for a call. The plain one takes any entry within its grace.

    ``max_age_seconds`` counts from the begin of the load; an entry acquired after the call always is good enough.
    """

    max_age_seconds: float | None = None
    fresh: bool = False
    min_generation: int = 0
    min_bookmarks: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether any entry will do."""
        return self == PLAIN


PLAIN: Final = Floor()


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """``header`` is None where there is no entry that can be read; ``trigger`` is why a refresh is to be asked for."""

    header: Header | None
    good: bool
    trigger: RefreshReason | None
    seen_token: int
    unreadable: str | None = None


def judge(
    raw: bytes | None, digest: bytes, floor: Floor, *, now_us: int, u: float, stamp: int | None = None
) -> Judgement:
    """Decide about the entry's bytes: good enough or not, refresh or not.

    Args:
        raw: the entry as it was read; None where there is none.
        digest: the key's own.
        floor: what the caller asks for.
        now_us: Redis' time.
        u: a draw in (0, 1], for the XFetch decision.
        stamp: the number of a claim made since the call; an entry with a larger token was acquired after it.
    """
    if raw is None:
        return Judgement(None, good=False, trigger=RefreshReason.MISS, seen_token=0)
    try:
        header = decode_header(raw, digest)
    except UnreadableEntry as error:
        return Judgement(
            None, good=False, trigger=RefreshReason.MISS, seen_token=frozen_token(raw), unreadable=error.reason
        )
    if not good_enough(header, floor, now_us, stamp):
        return Judgement(header, good=False, trigger=RefreshReason.MISS, seen_token=header.token)
    return Judgement(header, good=True, trigger=trigger_of(header, now_us, u), seen_token=header.token)


def good_enough(header: Header, floor: Floor, now_us: int, stamp: int | None = None) -> bool:
    """Tell whether a call with this floor may have the entry; the arguments are those of `judge`."""
    if floor is PLAIN and not header.flags:
        return True  # nearly all: not a second look
    after_call = stamp is not None and header.token > stamp
    if (floor.fresh or header.is_handoff) and not after_call:
        return False
    if header.token <= floor.min_generation or not floor.min_bookmarks.issubset(header.bookmarks):
        return False
    if after_call or floor.max_age_seconds is None:
        return True
    age_us = now_us - header.read_started_us
    return age_us <= floor.max_age_seconds * xfetch.MICROSECONDS and not header.is_ahead(now_us)


def trigger_of(header: Header, now_us: int, u: float) -> RefreshReason | None:
    """Return why a refresh is to be asked for on this read, if it is."""
    if header.flags and header.is_handoff:
        return None
    if header.generation > header.token:
        return RefreshReason.INVALIDATED
    left_us = header.soft_expiry_us - now_us
    if left_us <= 0:
        return RefreshReason.STALE
    if left_us > header.ttl_seconds * _HALF_IN_US:
        # No lead is longer: no draw need be looked at. (As `is_ahead`, written out: nearly all hits come here.)
        return RefreshReason.STALE if now_us < header.fetched_at_us - TOLERANCE_US else None
    early = xfetch.should_refresh(
        now_us,
        header.soft_expiry_us,
        delta_seconds=header.delta.mean,
        beta=header.beta,
        ttl_seconds=header.ttl_seconds,
        u=u,
        draw_digits=header.draw_digits,
    )
    return RefreshReason.EARLY if early else None


class EntryState(StrEnum):
    """What a read found. A MISS has a value all the same, for the read waited for it."""

    FRESH = "fresh"
    STALE = "stale"
    MISS = "miss"


class RefreshState(StrEnum):
    """What a read did about a refresh: nothing, asked for one, was spared since one is under way, or had to drop it."""

    NONE = "none"
    TRIGGERED = "triggered"
    SUPPRESSED = "suppressed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class AskClaim:
    """Step: claim, for the entry with ``seen_token`` (None: whatever is there). Send back the ClaimReply."""

    seen_token: int | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Step: publish under the claim's number, for somebody waits. Send back None."""

    claim_number: int


@dataclass(frozen=True, slots=True)
class AskRepublish:
    """Step: ask whether the queued refresh is due to be published again. Send back its claim's number, or 0."""


@dataclass(frozen=True, slots=True)
class Read:
    """Step: read the entry, and the clock. Send back (bytes or None, Redis' time in µs)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Step: wait for a notification, at most this long. Send back whether one came."""

    duration_seconds: float


Step: TypeAlias = AskClaim | Publish | AskRepublish | Read | Pause
Reply: TypeAlias = ClaimReply | int | bool | tuple[bytes | None, int] | None
WaitPlan: TypeAlias = Generator[Step, Reply, bytes]


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How a wait waits. Times in seconds.

    ``jitter`` draws in [0, 1) for the polls; ``jitter_seconds`` is what was drawn between STAMPEDE_JITTER_MIN_MS and
    _MAX_MS: it is added before a record that ran out is asked again, so that waiters do not all ask at once.
    """

    timeout_seconds: float
    first_pause_seconds: float
    jitter_seconds: float
    monotonic: Callable[[], float]
    jitter: Callable[[], float] = random.random


def wait_plan(
    key: CacheKey, floor: Floor, seen_token: int, options: WaitOptions, asked: ClaimReply | None = None
) -> WaitPlan:
    """Claim, publish, and wait for an entry that is good enough; returns its bytes.

    Polling is exponential with full jitter (10, 20, 40 ms … 1 s), and cut short by a notification. What the record
    said is asked again when it runs out, at most a second later: so a failure is seen, a lapsed lease is claimed anew
    and a lost message is published once more, whatever notification went astray.

    With ``asked``, the reply of a claim that the caller has made and published itself, the wait begins there.

    Raises:
        RefreshFailed: the key cools after a failure (UnknownQuery: no worker knows the query).
        WaitTimeout: nothing came in time.
    """
    wait = _Wait(key, options, seen_token=None if floor.fresh else seen_token)
    if asked is None:
        yield from _ask(wait)
    else:
        wait.told(asked)
    while True:
        if not wait.reads_at_once and (yield Pause(wait.next_pause())):
            wait.woken()
        raw, now_us = yield from _read()
        verdict = judge(raw, key.digest, floor, now_us=now_us, u=1.0, stamp=wait.stamp)
        if verdict.good and raw is not None:
            return raw
        wait.saw(verdict.seen_token)
        if wait.asks_now():
            yield from _ask(wait)


class _Wait:
    """The state of one wait."""

    def __init__(self, key: CacheKey, options: WaitOptions, *, seen_token: int | None) -> None:
        self.key, self.options = key, options
        self.seen_token = seen_token
        self.stamp: int | None = None
        self.state = RecordState.IDLE.value
        self.reads_at_once = False
        self._began = options.monotonic()
        self._ask_at = self._began
        self._pause = options.first_pause_seconds

    def asks_now(self) -> bool:
        return self.options.monotonic() >= self._ask_at

    def told(self, reply: ClaimReply) -> None:
        # Every stamp was drawn after the call began, so the smallest asks for the least that is still right.
        self.stamp = reply.number if self.stamp is None else min(self.stamp, reply.number)
        self.state = reply.state.value
        self.reads_at_once = reply.status is ClaimStatus.ALREADY_REFRESHED
        if self.reads_at_once:
            self._ask_at = self.options.monotonic() + self.options.first_pause_seconds
        elif reply.status is ClaimStatus.CLAIMED:
            self._ask_at = self.options.monotonic() + REASK_SECONDS
        else:
            self._ask_at = self.options.monotonic() + min(
                reply.left_seconds + self.options.jitter_seconds, REASK_SECONDS
            )

    def saw(self, token: int) -> None:
        # Of a fresh one too: what is committed between this look and the next claim is to be read, not loaded again.
        self.reads_at_once = False
        self.seen_token = token

    def woken(self) -> None:
        self._ask_at = self.options.monotonic()
        self._pause = self.options.first_pause_seconds

    def next_pause(self) -> float:
        left = self._began + self.options.timeout_seconds - self.options.monotonic()
        if left <= 0:
            raise WaitTimeout(self.key.query, self.options.timeout_seconds, self.state)
        drawn = self._pause * self.options.jitter()
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        # A draw near 0 would spin: a tenth of the first pause is the floor.
        until_ask = max(self._ask_at - self.options.monotonic(), 0.0)
        return min(max(drawn, self.options.first_pause_seconds / 10), left, max(until_ask, 0.001))


def _ask(wait: _Wait) -> Generator[Step, Reply, None]:
    reply = yield AskClaim(wait.seen_token)
    assert isinstance(reply, ClaimReply)  # noqa: S101 - the driver's contract, for the type checker
    wait.told(reply)
    if reply.status is ClaimStatus.CLAIMED:
        yield Publish(reply.number)
    elif reply.status is ClaimStatus.REFUSED:
        if reply.state is RecordState.COOLING:
            raise refresh_failed(wait.key, reply)
        if reply.state is RecordState.QUEUED and (number := (yield AskRepublish())):
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
