"""The computed expectation of early refreshes, which the page on topology quotes, compared with single reads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.topology.expected import expected

TTL, DELTA = 60.0, 2.0


@pytest.mark.parametrize(("rate", "beta"), [(0.1, 1.0), (1.0, 0.5), (1.0, 4.0), (5.0, 1.0)])
def test_expected_loads_and_late_reads_match_those_of_simulated_single_reads(rate: float, beta: float) -> None:
    rng = np.random.default_rng(1)
    cycles, seconds, late = 4_000, 0.0, 0
    for _ in range(cycles):
        at = TTL / 2
        while True:
            at += rng.exponential(1 / rate)
            if at >= TTL or rng.random() < math.exp(-(TTL - at) / (beta * DELTA)):
                break
        late += rng.poisson(rate * max(0.0, at + DELTA - max(at, TTL))) + (at >= TTL)
        seconds += at + DELTA
    arrays = [np.array([value]) for value in (rate, DELTA, beta)]
    (loads,), (late_reads,) = expected(arrays[0], TTL, arrays[1], arrays[2])
    assert loads == pytest.approx(cycles / seconds, rel=0.01)
    assert late_reads == pytest.approx(late / seconds, rel=0.15, abs=0.001)
