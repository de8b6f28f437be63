"""The steps of the lease record: one call object per step, run by the links of `transport`. No I/O.

The header of each file in ``lua/`` states the script's effect, its conditions and its guarantees. A step may be
repeated, because a reply can be lost: a claim is identified by its id, an acquire by its nonce, a commit by its token
and nonce. Scripts compare only times of Redis' clock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from api_client.protocol.keys import CacheKey

T_co = TypeVar("T_co", covariant=True)
Argument: TypeAlias = str | bytes | int

# Room for all bookmarks of one call (16 of 1,024 characters, with line ends) beside earlier ones.
MAX_BOOKMARKS_BYTES: Final = 32_768
MAX_NAME_CHARACTERS: Final = 200


class RecordState(StrEnum):
    """The states of a lease record."""

    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    COOLING = "cooling"
    INVALIDATED = "invalidated"


class ClaimStatus(IntEnum):
    """Outcome of a claim."""

    CLAIMED = 1
    ALREADY_REFRESHED = 2
    REFUSED = 3


class AcquireStatus(IntEnum):
    """Outcome of an acquire."""

    ACQUIRED = 1
    ALREADY_FRESH = 2
    HELD = 3


class CommitStatus(IntEnum):
    """Outcome of a commit."""

    ACCEPTED = 1
    ACCEPTED_AS_STALE = 2
    SUPERSEDED = 3
    INVALIDATED = 4
    LOST = 5
    PREVIOUS_GONE = 6

    @property
    def accepted(self) -> bool:
        """True if the value was stored."""
        return self <= CommitStatus.ACCEPTED_AS_STALE


class BookmarkFault(IntEnum):
    """Role of a load's bookmarks in its failure."""

    NONE = 0
    NOT_REACHED = 1
    """The graph did not reach them in time: the server lags, or they belong to another history of the database."""
    REFUSED = 2
    """The graph can't read them."""


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Reply to a claim; ``number`` is its stamp, and ``kind``, ``attempts`` and ``why`` explain a retry or cooling."""

    status: ClaimStatus
    state: RecordState
    left_seconds: float
    kind: str
    attempts: int
    number: int
    claim_number: int
    now_us: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class AcquireReply:
    """Reply to an acquire; ``entry_header`` is the present entry's header, ``b""`` without an entry.

    ``attempts`` is the number of failed attempts of this refresh so far, including runs that were taken over.
    ``has_overtaken``: the last attempt was such a run, and no process has counted it.
    """

    status: AcquireStatus
    state: RecordState
    left_seconds: float
    token: int
    now_us: int
    claimed_at_us: int
    generation: int
    bookmarks: tuple[str, ...]
    entry_header: bytes
    attempts: int = 0
    has_overtaken: bool = False


@dataclass(frozen=True, slots=True)
class FailReply:
    """Reply to a fail: the key cools for ``pause_seconds``, after ``failures`` in a row through its own fault.

    ``failed_token`` is the token of the previous failed run, whose dead letter is now out of date; 0 if there is none.
    """

    pause_seconds: float
    failures: int
    failed_token: int


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One call of one script: its keys and arguments, and the parser of its reply."""

    script: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    parse: Callable[[Any], T_co]


def claim(
    key: CacheKey,
    *,
    claim_id: str,
    seen_token: int | None,
    queue_ttl_seconds: float,
    retention_seconds: float,
    force: bool = False,
    bookmarks: Sequence[str] = (),
    by: str | None = None,
) -> Call[ClaimReply]:
    """Claim the right to publish a refresh, for the entry with ``seen_token``, or with None for any.

    ``by`` is the claimer's name for `explain`, by default that of this process.
    """
    seen = "" if seen_token is None else seen_token
    return Call(
        "claim",
        (key.entry, key.record),
        (
            claim_id,
            seen,
            _us(queue_ttl_seconds),
            _ms(retention_seconds),
            int(force),
            _lines(bookmarks),
            owner_display_name(by),
        ),
        _claim_reply,
    )


def republish(key: CacheKey, *, interval_seconds: float) -> Call[int]:
    """Publish a queued refresh again if due; the result is the claim's number, or 0 if not due."""
    return Call("republish", (key.record,), (_us(interval_seconds),), lambda reply: int(reply[1]) if reply[0] else 0)


def unclaim(
    key: CacheKey, *, claim_id: str | bytes, retention_seconds: float, forget_failures: bool = False
) -> Call[bool]:
    """Take back one's own queued claim; a run that was handed back has its nonce as the claim's id.

    The key keeps its count of failures in a row, unless ``forget_failures``.
    """
    return Call("unclaim", (key.record,), (claim_id, _ms(retention_seconds), int(forget_failures)), bool)


def acquire(
    key: CacheKey,
    *,
    nonce: bytes,
    claim_number: int,
    ticket: str,
    lease_seconds: float,
    limit_seconds: float,
    retention_seconds: float,
    by: str | None = None,
    in_place: bool = False,
) -> Call[AcquireReply]:
    """Take the lease for a run, and draw its token. No renewal goes beyond ``limit_seconds``; ``by`` is as for `claim`.

    A run ``in_place``, within another task or load, does not count as an attempt if its lease expires.
    """
    return Call(
        "acquire",
        (key.entry, key.record),
        (
            nonce,
            claim_number,
            ticket,
            _us(lease_seconds),
            _us(limit_seconds),
            _ms(retention_seconds),
            owner_display_name(by),
            int(in_place),
        ),
        _acquire_reply,
    )


def renew(key: CacheKey, *, token: int, nonce: bytes, lease_seconds: float) -> Call[float]:
    """Renew the lease; the result is the seconds for which it holds, 0 if it is lost."""
    return Call("renew", (key.record,), (token, nonce, _us(lease_seconds)), lambda reply: int(reply) / 1e6)


def read_payload(key: CacheKey, *, nonce: bytes) -> Call[bytes]:
    """Read the stored payload of the entry with this nonce; the result is ``b""`` if that entry is gone."""
    return Call("read_payload", (key.entry,), (nonce,), bytes)


def commit(
    key: CacheKey,
    *,
    token: int,
    nonce: bytes,
    entry: bytes,
    hard_ttl_seconds: float,
    retention_seconds: float,
    prolongs: bytes = b"",
) -> Call[CommitStatus]:
    """Store ``entry`` if the record still carries exactly this token and nonce.

    With ``prolongs``, the nonce of the present entry, ``entry`` is only a header, and that entry's payload stays.
    """
    return Call(
        "commit",
        (key.entry, key.record),
        (token, nonce, entry, _ms(hard_ttl_seconds), _ms(retention_seconds), key.channel, prolongs),
        CommitStatus,
    )


def retry(
    key: CacheKey,
    *,
    token: int,
    nonce: bytes,
    ticket: str,
    pause_seconds: float,
    kind: str,
    attempts: int,
    retention_seconds: float,
) -> Call[bool]:
    """Keep the record through the pause before the next attempt, for the bearer of ``ticket``."""
    return Call(
        "retry", (key.record,), (token, nonce, ticket, _us(pause_seconds), kind, attempts, _ms(retention_seconds)), bool
    )


def fail(
    key: CacheKey,
    *,
    token: int,
    nonce: bytes,
    cooling_seconds: float,
    kind: str,
    attempts: int,
    retention_seconds: float,
    longest_seconds: float = 0.0,
    bookmarks: BookmarkFault = BookmarkFault.NONE,
    why: str = "",
) -> Call[FailReply | None]:
    """End the refresh as failed, so that the key cools; the result is None if the run has lost its lease.

    With ``longest_seconds`` the failure is counted, and each one in a row doubles the pause, up to that length.
    ``bookmarks`` tells whether the load's bookmarks are at fault. ``why`` is the explanation for readers.
    """
    return Call(
        "fail",
        (key.record,),
        (
            token,
            nonce,
            _us(cooling_seconds),
            kind,
            attempts,
            _ms(retention_seconds),
            key.channel,
            _us(longest_seconds),
            int(bookmarks),
            why,
        ),
        _fail_reply,
    )


def hand_back(
    key: CacheKey, *, token: int, nonce: bytes, queue_ttl_seconds: float, retention_seconds: float
) -> Call[int]:
    """Put a run back into the queue; the result is the claim's number to publish it under, 0 if the lease is lost."""
    return Call(
        "hand_back",
        (key.record,),
        (token, nonce, _us(queue_ttl_seconds), _ms(retention_seconds)),
        lambda reply: int(reply[1]) if reply[0] else 0,
    )


def invalidate(key: CacheKey, *, hard: bool, bookmarks: Sequence[str], retention_seconds: float) -> Call[int]:
    """Make every value read before now stale (soft) or delete it (hard); the result is the generation."""
    return Call(
        "invalidate",
        (key.entry, key.record),
        (int(hard), _lines(bookmarks), MAX_BOOKMARKS_BYTES, _ms(retention_seconds), key.channel),
        int,
    )


def process_identity() -> str:
    """Return the name of this process in lease records: host and process id."""
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()


def owner_display_name(by: str | None) -> str:
    """Return an owner's name, printable and of bounded length; None means this process."""
    shown = process_identity() if by is None else by
    return "".join(character for character in shown[:MAX_NAME_CHARACTERS] if character.isprintable())


def _us(duration_seconds: float) -> int:
    return round(duration_seconds * 1_000_000)


def _ms(duration_seconds: float) -> int:
    return max(1, round(duration_seconds * 1_000))


def _lines(bookmarks: Sequence[str]) -> str:
    return "\n".join(bookmarks)


def _claim_reply(reply: Any) -> ClaimReply:
    status, state, left_us, kind, attempts, number, claim_number, now_us, why = reply
    return ClaimReply(
        ClaimStatus(status), RecordState(state.decode()), max(0.0, int(left_us) / 1e6), kind.decode(), int(attempts),
        int(number), int(claim_number), int(now_us), why.decode(),
    )  # fmt: skip


def _fail_reply(reply: Any) -> FailReply | None:
    status, pause_us, failures, failed_token = reply
    return FailReply(int(pause_us) / 1e6, int(failures), int(failed_token)) if status else None


def _acquire_reply(reply: Any) -> AcquireReply:
    status, state, left_us, token, now_us, claimed_at_us, generation, bookmarks, header, attempts, overtaken = reply
    # Ordered by last occurrence: the claim's own come last, and the last ones are kept if there are too many.
    newest_first = dict.fromkeys(filter(None, reversed(bookmarks.decode().split("\n"))))
    return AcquireReply(
        AcquireStatus(status), RecordState(state.decode()), max(0.0, int(left_us) / 1e6), int(token), int(now_us),
        int(claimed_at_us), int(generation), tuple(reversed(newest_first)), header, int(attempts), bool(overtaken),
    )  # fmt: skip
