"""The decision to refresh now or later. Pure: time and randomness are arguments.

XFetch, from A. Vattani, F. Chierichetti, K. Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", PVLDB
8(8), 2015: with u uniform in (0, 1] refresh when ``now + lead ≥ soft expiry``, ``lead = −δ·β·ln(u)``. So the
probability at time t before the soft expiry is ``exp(−t / (β·δ))``, and 1 after it.

One bound is added: the lead is at most half the TTL. A load that takes longer than its TTL would otherwise refresh
without end. A bound on β·δ instead would leave each read right after a commit a chance of ``exp(−2)`` = 13 %.
"""

from __future__ import annotations

import math
from typing import Final

MICROSECONDS: Final = 1_000_000
MAX_DRAW_DIGITS: Final = 15
MIN_DRAW: Final = 2.0**-53
"""Smallest value of ``1 - random()``, since Python's random() is a multiple of 2**-53 below 1."""


def cut_draw(u: float, digits: int) -> float:
    """Round a draw in (0, 1] up to ``digits`` decimal digits, so to at least ``10**-digits``; 0 leaves it unchanged."""
    if digits == 0:
        return u
    steps: float = 10.0**digits
    return math.ceil(u * steps) / steps


def lead_seconds(delta_seconds: float, beta: float, ttl_seconds: float, u: float) -> float:
    """Return the lead of this draw before the soft expiry, ``min(−δ·β·ln(u), ttl/2)``, in seconds."""
    return min(-delta_seconds * beta * math.log(u), ttl_seconds / 2)


def earliest_positive_us(soft_expiry_us: int, *, delta_seconds: float, beta: float, ttl_seconds: float) -> int:
    """Return the time before which no draw can be positive, in µs; a draw is at least 2**-53.

    Until then a reader that keeps an entry needs no draw for its decisions.
    """
    if beta <= 0 or delta_seconds <= 0:
        return soft_expiry_us
    longest_seconds = lead_seconds(delta_seconds, beta, ttl_seconds, MIN_DRAW)
    return soft_expiry_us - math.ceil(longest_seconds * MICROSECONDS)


def should_refresh(
    now_us: int,
    soft_expiry_us: int,
    *,
    delta_seconds: float,
    beta: float,
    ttl_seconds: float,
    u: float,
    draw_digits: int = 0,
) -> bool:
    """Return whether a read triggers a refresh.

    Args:
        now_us, soft_expiry_us: microseconds of Redis' clock.
        delta_seconds: δ, the smoothed lead time of a refresh.
        beta: the effective β; 0 means no early refresh.
        ttl_seconds: the TTL, half of which bounds the lead.
        u: a uniform draw in (0, 1].
        draw_digits: decimal digits to which u is rounded up (0: not at all).
    """
    left_us = soft_expiry_us - now_us
    if left_us <= 0:
        return True
    if beta <= 0 or delta_seconds <= 0:
        return False
    return lead_seconds(delta_seconds, beta, ttl_seconds, cut_draw(u, draw_digits)) * MICROSECONDS >= left_us


def refresh_probability(
    left_seconds: float, *, delta_seconds: float, beta: float, ttl_seconds: float, draw_digits: int = 0
) -> float:
    """Return the probability that a read ``left_seconds`` before the soft expiry refreshes."""
    if left_seconds <= 0:
        return 1.0
    # Negated, so that a damaged entry's NaN takes this branch.
    if not (beta > 0 and delta_seconds > 0 and left_seconds <= ttl_seconds / 2):
        return 0.0
    probability = math.exp(-left_seconds / (beta * delta_seconds))
    if draw_digits:
        steps: float = 10.0**draw_digits
        return math.floor(probability * steps) / steps
    return probability
