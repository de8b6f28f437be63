"""The computed expectation of early refreshes, compared with reads drawn one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.topology.expected import Situation, curve, expected
from benchmarks.topology.plan import Mode, Skew

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


def test_with_all_degrees_1_both_modes_give_the_same_curve() -> None:
    situation = Situation(Skew.EVENLY, 0.1, dear_hubs=False)
    plain, topology = (curve(mode, np.ones(5), situation) for mode in (Mode.PLAIN, Mode.TOPOLOGY))
    assert np.array_equal(plain.late_share, topology.late_share)


def test_a_larger_beta_loads_more_and_fewer_reads_are_late() -> None:
    found = curve(Mode.PLAIN, np.array([1.0, 5.0, 500.0]), Situation(Skew.BY_DEGREE, 1.0, dear_hubs=True))
    assert np.all(np.diff(found.more_loads) > 0)
    assert np.all(np.diff(found.late_share) < 0)
    assert found.more_loads[0] == 0
