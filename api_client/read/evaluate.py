"""Evaluation of an entry: whether it satisfies the read, and whether to trigger a refresh. Pure."""

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
    """Requirements of a read on an entry; by default any within its grace.

    ``max_age_seconds`` counts from the start of the load; an entry acquired after the call satisfies any age.
    """

    max_age_seconds: float | None = None
    fresh: bool = False
    min_generation: int = 0
    min_bookmarks: frozenset[str] = frozenset()


ANY: Final = Freshness()


class Evaluation(msgspec.Struct, frozen=True, gc=False):
    """``header`` is None where there is no readable entry; ``trigger`` is why to refresh, None: do not."""

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
        raw: the entry as it was read; None where there is none.
        digest: the key's own.
        freshness: what the read requires.
        now_us: Redis' time.
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
    """Return whether a read with this requirement may have the entry; the arguments are those of `evaluate`."""
    if freshness is ANY and not header.flags:
        return True  # nearly all reads: nothing more to check
    after_call = stamp is not None and header.token > stamp
    if (freshness.fresh or header.is_handoff) and not after_call:
        return False
    if not freshness.min_bookmarks.issubset(header.bookmarks):
        return False
    if after_call:
        # So it was loaded after every invalidation that the caller can know of. Also where Redis has lost that
        # number, and counts on from a smaller one: what is loaded would never have a larger one, and be loaded again.
        return True
    if header.token <= freshness.min_generation:
        return False
    if freshness.max_age_seconds is None:
        return True
    age_us = now_us - header.read_started_us
    return age_us <= freshness.max_age_seconds * xfetch.MICROSECONDS and not header.is_ahead(now_us)


def refresh_reason(header: Header, now_us: int, u: float) -> RefreshReason | None:
    """Return why a read with draw ``u`` triggers a refresh; None: it does not."""
    if header.flags and header.is_handoff:
        return None
    if header.generation > header.token:
        return RefreshReason.INVALIDATED
    left_us = header.soft_expiry_us - now_us
    if left_us <= 0:
        return RefreshReason.STALE
    if left_us > header.ttl_seconds * _HALF_IN_US:
        # No lead is longer, so no draw matters. (`is_ahead`, inlined: nearly all hits come here.)
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
