"""Pure policy of a worker: β, δ and the lease time at each commit; pauses, retries and backoff after failures."""

from __future__ import annotations

import math
from typing import Final

from api_client.protocol.entry import Smoothed
from refresher.errors import text_of
from refresher.queries import BetaFunction
from refresher.settings import MAX_RETRY_PAUSE_SECONDS, RefreshMode

MEAN_GAIN: Final = 1 / 8
DEVIATION_GAIN: Final = 1 / 4
MAX_BETA: Final = 1e6

BASE_PAUSE_SECONDS: Final = 1.0
MIN_PAUSE_SECONDS: Final = 0.05
COOLING_SPREAD: Final = 0.25
SHARED_FAULTS: Final = frozenset(
    ("network", "graph_unavailable", "auth", "configuration", "driver_shared", "unknown_query", "bookmark",
     "bookmark_timeout", "cache_unavailable", "trigger_failed", "refresh_failed", "wait_timeout",
     "cache_full")
)  # fmt: skip
"""Kinds of failure caused by the graph, this worker or another key, which pass with their cause."""
GRAPH_FAULTS: Final = frozenset(("network", "graph_unavailable", "auth", "configuration", "driver_shared"))
"""Those among them that a load of fewer keys would meet as well."""
TIMEOUTS: Final = frozenset(("timeout", "hard_timeout", "bookmark_timeout"))
"""Kinds of failure that use up a load's whole time."""


def effective_beta(
    mode: RefreshMode, beta0: float, degree: int, sigma: float, own: BetaFunction | None = None
) -> float:
    """Return the effective β of an entry.

    plain: β0·σ. topology_sensitive: β0·(1 + ln d)·σ, where d is the degree of the query's node, or 1 if it is unknown
    or 0: a hub's value costs more to load and is read more often, so its refresh starts earlier. (d = 1 → 1.0 × β0·σ,
    10 → 3.3, 50 → 4.9, 100 → 5.6, 500 → 7.2.)

    Raises:
        ValueError: the query's own function raised, or returned no finite number of at least 0.
    """
    if own is not None:
        beta = _own_beta(own, beta0, degree, sigma)
    elif mode is RefreshMode.PLAIN:
        beta = beta0 * sigma
    else:
        beta = beta0 * (1 + math.log(max(degree, 1))) * sigma
    return min(beta, MAX_BETA)


def jittered(ttl_seconds: float, jitter: float, u: float) -> float:
    """Return a value's TTL, shortened by up to a share of it, and never lengthened.

    Values loaded together, by a warm-up or after a flush, would otherwise always expire together.
    """
    return ttl_seconds * (1 - jitter * u)


def _own_beta(own: BetaFunction, beta0: float, degree: int, sigma: float) -> float:
    try:
        beta = own(beta0, degree, sigma)
        if isinstance(beta, int | float) and math.isfinite(beta) and beta >= 0:
            return float(beta)
    except Exception as error:
        raise ValueError(f"the query's β function failed: {text_of(error)}") from error
    raise ValueError(f"the query's β function returned {beta!r}: expected a finite number, 0 or more")


def early_refresh_is_on(*, enabled: bool, ttl_seconds: float, min_ttl_seconds: float) -> bool:
    """Return whether entries of this TTL are refreshed before they are stale."""
    return enabled and ttl_seconds >= min_ttl_seconds


def smooth(before: Smoothed | None, sample_seconds: float) -> Smoothed:
    """Return mean and deviation after one more sample, smoothed as TCP smooths round trips (RFC 6298, section 2).

    First sample R: mean = R, deviation = R/2. Then deviation = ¾·deviation + ¼·|mean − R|, mean = ⅞·mean + ⅛·R.
    """
    if before is None:
        return Smoothed(sample_seconds, sample_seconds / 2)
    deviation = (1 - DEVIATION_GAIN) * before.deviation + DEVIATION_GAIN * abs(before.mean - sample_seconds)
    return Smoothed((1 - MEAN_GAIN) * before.mean + MEAN_GAIN * sample_seconds, deviation)


def estimate_delta(
    before: Smoothed | None, samples: tuple[float, ...], sample_seconds: float, window: int
) -> tuple[Smoothed, tuple[float, ...]]:
    """Return δ, and the samples to keep for the next estimate.

    Args:
        before: the previous δ; None before the first refresh.
        samples: the samples kept so far, oldest first.
        sample_seconds: the new lead time.
        window: 0 to smooth as `smooth` does, 1 for the last sample, n for the mean of the last n.
    """
    if window == 0:
        return smooth(before, sample_seconds), ()
    kept = (*samples, sample_seconds)[-window:]
    mean = sum(kept) / len(kept)
    deviation = sum(abs(sample - mean) for sample in kept) / len(kept)
    return Smoothed(mean, deviation), kept if window > 1 else ()


def lease_seconds(floor_seconds: float, run: Smoothed | None, jitter_seconds: float, budget_seconds: float) -> float:
    """Return the lease time: max(floor, 3·(run's mean + 4·deviation)) + jitter, at most the budget.

    Mean plus four deviations approximates the run's P99; two to three times that is the usual recommendation for
    leases.
    """
    learned = 0.0 if run is None else 3 * (run.mean + 4 * run.deviation)
    return min(max(floor_seconds, learned) + jitter_seconds, budget_seconds)


def pause_seconds(attempt: int, multiplier: float, u: float) -> float:
    """Return the pause after the failed ``attempt`` (1 is the first): exponential with full jitter.

    That is ``u · min(15, 1 · multiplier**(attempt − 1))`` seconds, with u uniform in [0, 1), and at least 50 ms, since
    an immediate retry would meet the same fault. (M. Brooker, "Exponential Backoff And Jitter", 2015.)
    """
    exponent = min(attempt - 1, 64)
    bound = min(MAX_RETRY_PAUSE_SECONDS, BASE_PAUSE_SECONDS * multiplier**exponent)
    return max(MIN_PAUSE_SECONDS, u * bound)


def cooling_spread(u: float) -> float:
    """Return the factor of a backoff's length, ¾ to 1, so that keys that failed together do not return together."""
    return 1 - COOLING_SPREAD * u


def counts_against_key(kind: str) -> bool:
    """Return whether each failure of this kind in a row lengthens the key's backoff.

    `SHARED_FAULTS` don't, since a grown backoff would keep values stale long after their end.
    """
    return kind not in SHARED_FAULTS


def whole_seconds(pause: float) -> int:
    """Round a pause for Celery to whole seconds, 1 to 15 (a fraction fails on RabbitMQ)."""
    return min(max(1, math.ceil(pause)), MAX_RETRY_PAUSE_SECONDS)
