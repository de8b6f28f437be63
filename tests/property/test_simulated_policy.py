"""The simulation's compiled policy decides as the product does, for any header, draw and moment."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api_client import ReaderSettings
from api_client.protocol import xfetch
from api_client.protocol.entry import Smoothed
from api_client.transport.breaker import Breaker
from api_client.trigger.backpressure import LENGTH_CACHED_SECONDS, OVERLOADED_SECONDS, Backpressure
from benchmarks.simulate.engine.backpressure import claim_times, has_room, has_room_for_stale, precedence, window_after
from benchmarks.simulate.engine.compiled import first_positive, smoothed
from benchmarks.simulate.engine.model import Costs, Model, rates_and_degrees
from benchmarks.simulate.engine.simulation import simulate
from benchmarks.simulate.engine.state import Amount
from benchmarks.simulate.options import Mode
from refresher.flow import policy
from tests.support.publisher_harness import ScriptedBroker
from tests.support.waiting import MAX_WAIT_SECONDS

# The first call of each function waits for the compiler.
pytestmark = pytest.mark.timeout(5 * MAX_WAIT_SECONDS)

SECONDS = st.floats(0, 1e5)


@given(st.integers(0, 10**7), st.integers(0, 10**5))
def test_the_simulation_treats_a_long_queue_as_a_reader_does(length: int, queue_size: int) -> None:
    script = ScriptedBroker()
    script.length = length
    settings = ReaderSettings(queue_size=queue_size, queue_ttl_seconds=1.0)
    pressure = Backpressure(settings, script, Breaker(), monotonic=lambda: 1.0)
    assert has_room(length, queue_size) is (pressure.room_for_repeats(has_waiter=False) > 0)
    assert claim_times(length, queue_size) == pressure.claim_seconds()


# Lengths around the bounds, which are 10 and 50.
POLLS = st.lists(st.tuples(st.integers(0, 60), st.floats(LENGTH_CACHED_SECONDS, 6.0)), max_size=60)


@example(polls=[(50, 2.0)] * 7 + [(3, 0.5)] * 9 + [(60, 2.0)] * 7 + [(60, 0.5)] * 9, queue_size=3)
@given(POLLS, st.sampled_from((3, 50)))
def test_the_simulated_window_for_stale_refreshes_moves_as_a_reader_s(
    polls: list[tuple[int, float]], queue_size: int
) -> None:
    script, now = ScriptedBroker(), 100.0
    pressure = Backpressure(ReaderSettings(queue_size=queue_size), script, Breaker(), monotonic=lambda: now)
    size, long_since, polled_at = math.inf, math.inf, 0.0
    for length, pause in polls:
        now += pause
        script.length = length
        pressure.refresh_queue_length()
        size, long_since = window_after(size, long_since, polled_at, length, queue_size, now, OVERLOADED_SECONDS)
        polled_at = now
        assert has_room_for_stale(size, length) is (pressure.room_for_stale() >= 1)
        assert size == math.inf or size - length == pytest.approx(pressure.room_for_stale() or size - length)


@given(st.lists(st.tuples(st.floats(1e-4, 100), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=20))
def test_the_simulation_gives_loads_precedence_as_a_reader_does(loads: list[tuple[float, float]]) -> None:
    pressure = Backpressure(ReaderSettings(), ScriptedBroker(), Breaker(), monotonic=lambda: 1.0)
    usual = math.nan
    for run_seconds, draw in loads:
        usual, is_allowed = precedence(usual, run_seconds, draw)
        assert is_allowed is pressure.has_precedence(run_seconds, draw)


@given(SECONDS, SECONDS)
def test_the_simulation_smooths_delta_as_the_worker_does(mean: float, sample: float) -> None:
    assert smoothed(mean, sample) == policy.smooth(Smoothed(mean, 0.0), sample).mean


@pytest.mark.slow  # all of the simulation is compiled for it
@pytest.mark.parametrize("has_feed", [True, False])
def test_reads_of_outdated_values_are_as_many_as_expected(has_feed: bool) -> None:
    writes, ttl, load, noticed_after = 0.05, 30.0, 1.0, 0.5
    model = Model(
        keys=300, reads_per_second=600.0, readers=10_000, workers=300, seconds=3_000, ttl=36_000.0 if has_feed else ttl,
        grace=36_000.0, load=load, mode=Mode.NONE, ttl_jitter=0.0, writes=writes, costs=Costs(0, 0, 0, 0, 0),
        noticed_after=noticed_after if has_feed else math.inf,
    )  # fmt: skip
    rates, _ = rates_and_degrees(model)
    # Each round begins with a commit, of what was read ``load`` before; the value is right until it is written.
    if has_feed:
        seconds = math.exp(-writes * load) / writes + noticed_after + 1 / rates + load
        wrong = rates * (noticed_after + load) + 1
    else:
        seconds = ttl + 1 / rates + load
        unwritten, by_trigger = math.exp(-writes * load), math.exp(-writes * (ttl + load)) * rates / (rates + writes)
        right = (unwritten - math.exp(-writes * (ttl + load))) / writes + by_trigger * (1 - unwritten) / writes
        wrong = rates * (ttl + load - right) + 1 - by_trigger
    found = simulate(model).since(model.seconds // 2)
    assert found.share(Amount.WRONG_READS) == pytest.approx(np.sum(wrong / seconds) / model.reads_per_second, rel=0.02)
    assert found.loads() / found.model.seconds == pytest.approx(np.sum(1 / seconds), rel=0.02)


def test_the_computed_first_trigger_is_distributed_as_when_each_read_is_simulated() -> None:
    rng = np.random.default_rng(7)
    soft, rate, delta, beta, ttl = 12.0, 4.0, 0.4, 2.5, 12.0

    def one_by_one() -> float:
        at = 0.0
        while True:
            at += float(rng.exponential(1 / rate))
            left_us, u = int((soft - at) * 1e6), 1.0 - float(rng.random())
            if xfetch.should_refresh(0, left_us, delta_seconds=delta, beta=beta, ttl_seconds=ttl, u=u):
                return at

    count = 4_000
    jumped = sorted(first_positive(0.0, soft, rate, delta, beta, ttl) for _ in range(count))
    walked = sorted(one_by_one() for _ in range(count))
    both = sorted(jumped + walked)
    apart = np.abs(np.searchsorted(jumped, both, side="right") - np.searchsorted(walked, both, side="right"))
    # Two-sample Kolmogorov-Smirnov: beyond 3.3·√(2/n) once in a thousand million, whatever the compiled draws are.
    assert apart.max() / count < 3.3 * math.sqrt(2 / count)
