"""The policy once more, compiled. `tests/property/test_simulated_policy.py` holds it equal to the product's own.

The product decides read by read. Reads of a key are a Poisson process here, so the first read that decides for a
refresh is drawn at once: `first_positive`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.simulate.compiled import compiled
from refresher.flow.policy import DEVIATION_GAIN, MAX_BETA, MEAN_GAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What is compiled takes plain constants.
_MEAN_GAIN: Final = MEAN_GAIN
_DEVIATION_GAIN: Final = DEVIATION_GAIN


@compiled
def probability(left: float, delta: float, beta: float, ttl: float, digits: int) -> float:
    """Return `api_client.protocol.xfetch.refresh_probability`; times in seconds."""
    if left <= 0:
        return 1.0
    if not (beta > 0 and delta > 0 and left <= ttl / 2):
        return 0.0
    exact = math.exp(-left / (beta * delta))
    if digits > 0:
        steps = 10.0**digits
        return math.floor(exact * steps) / steps
    return exact


@compiled
def smoothed(mean: float, deviation: float, sample: float) -> tuple[float, float]:
    """Return `refresher.flow.policy.smooth`, of a mean that has been there before."""
    deviation = (1 - _DEVIATION_GAIN) * deviation + _DEVIATION_GAIN * abs(mean - sample)
    return (1 - _MEAN_GAIN) * mean + _MEAN_GAIN * sample, deviation


def betas(beta0: float, degrees: NDArray[np.int32], *, by_degree: bool, sigma: float = 1.0) -> NDArray[np.float64]:
    """Return `refresher.flow.policy.effective_beta` of each degree: β0·(1 + ln d)·σ, or β0·σ for all."""
    if not by_degree:
        return np.full(len(degrees), min(beta0 * sigma, MAX_BETA))
    return np.minimum(beta0 * (1 + np.log(np.maximum(degrees, 1))) * sigma, MAX_BETA)


@compiled
def first_positive(now: float, soft: float, rate: float, delta: float, beta: float, ttl: float, digits: int) -> float:
    """Draw when the first read after ``now`` decides for a refresh; seconds.

    Reads come at ``rate`` a second, and at ``left`` before the soft expiry each is positive with the probability
    ``exp(−left/(β·δ))``: a Poisson process whose rate is known, so its first point is drawn by inverting the integral
    of that rate. Where draws are cut, the probability is that or a little less: the point counts with their ratio, and
    else the next one is drawn.

    Args:
        now, soft: on one clock.
        rate: reads/s of this key.
        delta, ttl: δ and TTL in seconds.
        beta: effective.
        digits: of a draw, at which it is cut; 0: not at all.
    """
    scale = delta * beta
    if scale > 0 and now < soft:
        now = max(now, soft - ttl / 2)  # no lead is longer
        while now < soft:
            reached = math.exp((now - soft) / scale) + np.random.exponential() / (rate * scale)
            if reached >= 1.0:
                break  # none before the soft expiry
            now = max(now, soft + scale * math.log(reached))
            if digits == 0:
                return now
            left = soft - now
            if np.random.random() * math.exp(-left / scale) < probability(left, delta, beta, ttl, digits):
                return now
    return max(now, soft) + np.random.exponential() / rate
