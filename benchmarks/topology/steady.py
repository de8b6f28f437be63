"""Where a cell begins: each key as old as one would find it that has been read at that rate for long. Pure.

A cell lasts a fraction of a second, and TTLs are seconds: begun with an empty cache, or with one of fresh values, it
would measure its own begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def remaining_seconds(
    rng: np.random.Generator,
    *,
    ttl_seconds: float,
    beta_deltas: NDArray[np.float64],
    rates: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Draw how long each key is fresh still; negative: since when it has been expired, and not read.

    A key read at rate λ (reads come as a Poisson process) is not refreshed before its expiry with probability
    q = exp(−λ·β·δ), and then waits 1/λ for its next read. Where it is refreshed early, it is about β·δ·ln(1 + λ·β·δ)
    before. What is near enough: the first tenths of a second, which don't count, do the rest.

    Args:
        rng: draws.
        ttl_seconds: of each entry.
        beta_deltas: β·δ of each key, s; 0 where nothing is refreshed early.
        rates: reads a second of each key, more than 0.
    """
    seen = rates * beta_deltas
    missed = np.exp(-seen)
    leads = np.minimum(beta_deltas * np.log1p(seen), ttl_seconds / 2)
    overdue = missed / rates
    is_overdue = rng.random(len(rates)) < overdue / (ttl_seconds - (1 - missed) * leads + overdue)
    is_early = rng.random(len(rates)) >= missed
    fresh = ttl_seconds - rng.random(len(rates)) * (ttl_seconds - np.where(is_early, leads, 0.0))
    drawn: NDArray[np.float64] = np.where(is_overdue, -rng.exponential(1 / rates), fresh)
    return drawn
