"""Evaluation of an entry: does it satisfy the read, and does the read trigger a refresh? Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from api_client.protocol import xfetch
from api_client.protocol.clock import TOLERANCE_US
from api_client.protocol.entry import Header, UnreadableEntry, decode_header, frozen_token
from api_client.protocol.messages import RefreshReason

_HALF_IN_US: Final = xfetch.MICROSECONDS / 2


@dataclass(frozen=True, slots=True)
class Freshness:
    """Requirements of a read; by default any entry within its grace satisfies it.

    ``max_age_seconds`` counts from the start of the load; an entry acquired after the call satisfies any age.
    """

    max_age_seconds: float | None = None
    fresh: bool = False
    min_generation: int = 0
    min_bookmarks: frozenset[str] = frozenset()


ANY: Final = Freshness()


class Evaluation(msgspec.Struct, frozen=True, gc=False):
    """Result of `evaluate`; ``header`` is None without a readable entry, ``trigger`` is None without a refresh."""

    header: Header | None
    satisfies: bool
    trigger: RefreshReason | None
    seen_token: int
    unreadable: str | None = None


def evaluate(
    raw: bytes | None, digest: bytes, freshness: Freshness, *, now_us: int, u: float, stamp: int | None = None
) -> Evaluation:
    """Evaluate an entry's bytes for a read.

    Args:
        raw: the entry's bytes; None if there is no entry.
        digest: the digest of its key.
        freshness: the read's requirements.
        now_us: Redis' time in µs.
        u: a draw in (0, 1], for the XFetch decision.
        stamp: the number of a claim made since the call; an entry with a larger token was acquired after it.
    """
    if raw is None:
        return Evaluation(None, satisfies=False, trigger=RefreshReason.MISS, seen_token=0)
    try:
        header = decode_header(raw, digest)
    except UnreadableEntry as error:
        return Evaluation(
            None, satisfies=False, trigger=RefreshReason.MISS, seen_token=frozen_token(raw), unreadable=error.reason
        )
    if not satisfies(header, freshness, now_us, stamp):
        return Evaluation(header, satisfies=False, trigger=RefreshReason.MISS, seen_token=header.token)
    return Evaluation(header, satisfies=True, trigger=refresh_reason(header, now_us, u), seen_token=header.token)


def satisfies(header: Header, freshness: Freshness, now_us: int, stamp: int | None = None) -> bool:
    """Return whether the entry meets the read's requirements; the arguments are those of `evaluate`."""
    if freshness is ANY and not header.flags:
        return True  # nearly all reads require nothing more
    after_call = stamp is not None and header.token > stamp
    if (freshness.fresh or header.is_handoff) and not after_call:
        return False
    if not freshness.min_bookmarks.issubset(header.bookmarks):
        return False
    if after_call:
        # It was loaded after every invalidation that the caller can know of, even if Redis lost that number and
        # counts on from a smaller one. Otherwise no load would ever reach the number, and loads would not end.
        return True
    if header.token <= freshness.min_generation:
        return False
    if freshness.max_age_seconds is None:
        return True
    age_us = now_us - header.read_started_us
    return age_us <= freshness.max_age_seconds * xfetch.MICROSECONDS and not header.is_ahead(now_us)


def refresh_reason(header: Header, now_us: int, u: float) -> RefreshReason | None:
    """Return the reason for which a read with draw ``u`` triggers a refresh, or None if it triggers none."""
    if header.flags and header.is_handoff:
        return None
    if header.generation > header.token:
        return RefreshReason.INVALIDATED
    left_us = header.soft_expiry_us - now_us
    if left_us <= 0:
        return RefreshReason.STALE
    if left_us > header.ttl_seconds * _HALF_IN_US:
        # No lead is longer than this, so the draw does not matter. Nearly all hits get here, so `is_ahead` is inlined.
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
