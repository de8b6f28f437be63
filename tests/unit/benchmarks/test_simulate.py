"""The simulation: it keeps the product's rules, and its figures match theory for models small enough for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numba
import numpy as np
import pytest

from benchmarks.errors import BenchError
from benchmarks.simulate.event_queue import NO_KEY, pop, schedule
from benchmarks.simulate.model import NO_COSTS, Fault, Model, rates_and_degrees, rmat_degrees
from benchmarks.simulate.options import Mode, Popularity
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.real_run import pickups_by_second
from benchmarks.simulate.recovery import recovery
from benchmarks.simulate.scenarios import at_load
from benchmarks.simulate.simulation import initial_state, load_of, published_from, simulate
from benchmarks.simulate.state import (
    ARE_DOWN,
    BUSY,
    COMMITS,
    COMMITS_IN_TIME,
    DROPPED,
    EARLY,
    EVENT,
    FORGOTTEN,
    IDLE_MESSAGES,
    LENGTHS,
    LOST_RUNS,
    MISS,
    PUBLISHED,
    STALE,
    STALE_READS,
    TIMED_OUT_READS,
    WAITING_READS,
    State,
    cumulate,
    spread,
)
from benchmarks.simulate.worker_pool import publish
from refresher.demo.graph.rmat import rmat

# The first of them waits for the compiler.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

MODEL = Model(
    keys=2_000, reads_per_second=2_000.0, readers=20, workers=10, seconds=100, ttl=60.0, grace=600.0, load=0.05,
    mode=Mode.PLAIN, popularity=Popularity.ZIPF,
)  # fmt: skip


def one_key(**changes: object) -> Outcome:
    model = Model(
        keys=1, reads_per_second=100.0, readers=4, workers=1, seconds=2_000, ttl=10.0, grace=600.0, load=0.1,
        mode=Mode.NONE, min_ttl=0.0, costs=NO_COSTS,
    )  # fmt: skip
    return simulate(replace(model, **changes))  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_run() -> None:
    one, other, another = simulate(MODEL), simulate(MODEL), simulate(replace(MODEL, seed=2))
    assert (one.counters == other.counters).all()
    assert (one.amounts == other.amounts).all()
    assert (one.counters != another.counters).any()


def test_a_key_without_early_refresh_is_loaded_once_per_cycle() -> None:
    outcome = one_key()
    rounds = 2_000 / (10.0 + 0.01 + 0.1)
    assert outcome.loads() == outcome.loads(STALE) == pytest.approx(rounds, abs=2)
    # The read that triggers, and those that come during the load.
    assert outcome.amounts[STALE_READS].sum() == pytest.approx(rounds * (1 + 100 * 0.1), rel=0.02)
    assert outcome.amounts[BUSY].sum() == pytest.approx(rounds * 0.1, rel=0.02)
    assert outcome.amounts[WAITING_READS].sum() == 0


def test_a_key_that_is_read_often_is_refreshed_in_time_by_a_large_beta() -> None:
    outcome = one_key(mode=Mode.PLAIN, beta=4.0)
    assert outcome.loads() == outcome.loads(EARLY)
    # The probability that no read triggers until one load time before the end: exp(−λβδ·(e^(−1/β) − e^(−ttl/2βδ))).
    assert outcome.counters[COMMITS_IN_TIME].sum() == outcome.counters[COMMITS].sum()
    assert outcome.stale_share == 0


def test_without_grace_reads_wait_until_the_load_is_done() -> None:
    outcome = one_key(grace=0.0)
    waited = outcome.loads(MISS) * (1 + 100 * 0.1)
    assert outcome.loads(STALE) == 0
    assert outcome.amounts[WAITING_READS].sum() == pytest.approx(waited, rel=0.02)
    assert outcome.waits.sum() == pytest.approx(waited, rel=0.02)
    assert outcome.wait_ms(50) == pytest.approx(55, abs=3)  # of eleven, one waits 100 ms and ten from 0 to 100
    assert outcome.wait_ms(99) == pytest.approx(100, abs=2)
    assert outcome.amounts[TIMED_OUT_READS].sum() == 0


def test_reads_time_out_when_a_load_takes_longer_than_their_timeout() -> None:
    outcome = one_key(grace=0.0, load=8.0, wait_timeout=5.0)
    in_vain = outcome.counters[COMMITS].sum() * (1 + 100 * (8 - 5))
    assert outcome.amounts[TIMED_OUT_READS].sum() == pytest.approx(in_vain, rel=0.02)
    assert outcome.wait_ms(99) == 5_000


def test_concurrent_loads_never_exceed_the_workers_and_each_is_accounted_for() -> None:
    for workers in (1, 2, 10):
        outcome = simulate(replace(MODEL, workers=workers))
        assert outcome.amounts[BUSY].max() <= workers + 1e-6
        assert 0 <= outcome.loads() - outcome.counters[COMMITS].sum() <= workers
    busy = simulate(replace(MODEL, workers=1))
    assert busy.utilisation > 0.95
    assert busy.lengths[1, -1] > 0


def test_messages_with_nothing_to_do_keep_no_worker_from_loading() -> None:
    for workers in (2, 3, 5):
        # The bound is never reached: queued refreshes are republished.
        outcome = simulate(
            replace(MODEL, keys=10_000, reads_per_second=10_000.0, workers=workers, queue_size=1_000_000)
        )
        assert outcome.counters[IDLE_MESSAGES].sum() > 10 * workers
        assert outcome.amounts[BUSY][50:].min() > 0.9 * workers


def test_early_refreshes_are_dropped_beyond_the_queue_size_and_stale_ones_are_not() -> None:
    outcome = simulate(replace(MODEL, queue_size=0))
    assert outcome.loads(EARLY) == 0
    assert outcome.counters[DROPPED].sum() > 0
    assert outcome.loads(STALE) > 1_000


def test_a_ttl_below_the_minimum_is_not_refreshed_early() -> None:
    assert simulate(replace(MODEL, ttl=59.0)).loads(EARLY) == 0
    assert simulate(MODEL).loads(EARLY) > 0


def test_nothing_is_loaded_while_the_workers_are_down_and_stale_reads_recover_afterwards() -> None:
    model = replace(MODEL, workers=80, load=0.5, fault=Fault(down=(20, 40)))
    outcome = simulate(model)
    loads = outcome.counters[[EARLY, STALE, MISS]].sum(axis=0)
    assert loads[21:40].sum() == 0
    assert outcome.amounts[BUSY][21:40].sum() == pytest.approx(0, abs=1e-6)
    assert 0 < outcome.counters[LOST_RUNS].sum() <= model.workers
    stale = outcome.amounts[STALE_READS]
    assert stale[38] > 5 * stale[18]
    assert outcome.lengths[1, 39] > 100
    assert outcome.lengths[:, 60:].max() < 10
    assert stale[70:].mean() < 2 * stale[:20].mean()
    assert outcome.amounts[WAITING_READS].sum() == 0


def test_a_long_queued_refresh_is_republished_up_to_the_bound_and_after_each_expired_claim() -> None:
    model = replace(MODEL, keys=300, workers=80, load=0.5, seconds=300, fault=Fault(down=(20, 290)))
    few = simulate(replace(model, queue_size=10_000))
    # A key is published after 5, 15, 35 s, and anew after 60: each about a second later, since a reader has to come.
    assert few.lengths[1, 289] > 10 * model.keys
    many = simulate(replace(model, queue_size=10, overloaded_after=math.inf))
    # Each claim lasts ten times as long, so none of them is followed by another.
    assert 0.8 * model.keys < many.lengths[1, 289] < 1.2 * model.keys
    # A worker that takes such a message finds nothing to do.
    assert few.counters[IDLE_MESSAGES].sum() > 8 * model.keys > 2 * many.counters[IDLE_MESSAGES].sum()


def test_waiting_readers_republish_up_to_the_bound_of_the_queue_of_misses() -> None:
    model = replace(MODEL, keys=300, grace=0.0, workers=80, load=0.5, fault=Fault(down=(20, 75)))
    assert simulate(replace(model, queue_size=10_000)).lengths[0, 74] > 3 * model.keys
    assert simulate(replace(model, queue_size=10)).lengths[0, 74] < 1.2 * model.keys


def test_an_outage_longer_than_the_grace_makes_reads_wait_and_the_shorter_one_does_not() -> None:
    fault = Fault(down=(20, 50))
    assert simulate(replace(MODEL, grace=5.0, fault=fault)).amounts[TIMED_OUT_READS].sum() > 1_000
    assert simulate(replace(MODEL, grace=60.0, fault=fault)).waiting_share < 0.01


def test_in_an_overload_keys_that_are_read_often_are_refreshed_and_the_queue_is_short() -> None:
    overloaded = replace(MODEL, workers=1, seconds=200, reads_per_second=20_000.0)
    window, fifo = simulate(overloaded), simulate(replace(overloaded, overloaded_after=math.inf))
    assert window.loads() == pytest.approx(fifo.loads(), rel=0.02)
    assert window.since(100).stale_share < 0.5 * fifo.since(100).stale_share
    assert window.lengths[1, 100:].max() < 0.5 * fifo.lengths[1, 100:].min()


def test_in_a_spike_each_key_is_read_more_often() -> None:
    # A key that is read once in ten TTLs is loaded at each read.
    outcome = one_key(reads_per_second=0.01, seconds=40_000, fault=Fault(spike=(10_000, 30_000), spike_times=4.0))
    loads = outcome.counters[[STALE, MISS]].sum(axis=0)
    assert loads[10_000:30_000].sum() == pytest.approx(20_000 * 0.04 / (1 + 0.04 * 10), rel=0.15)
    assert loads[:10_000].sum() + loads[30_000:].sum() == pytest.approx(20_000 * 0.01 / (1 + 0.01 * 10), rel=0.3)
    assert outcome.reads == pytest.approx(0.01 * 100_000)
    steady = one_key(grace=0.0, fault=Fault(spike=(1_000, 2_000), spike_times=2.0))
    waiting, waits = steady.amounts[WAITING_READS], steady.waits.sum()
    assert waiting[1_000:].sum() == pytest.approx(2 * waiting[:1_000].sum(), rel=0.1)
    assert waits == pytest.approx(waiting.sum(), rel=0.02)


def test_after_a_flush_reads_wait_until_their_key_is_loaded_and_delta_excludes_that_wait() -> None:
    model = replace(MODEL, reads_per_second=20_000.0, workers=10, seconds=200)
    steady, outcome = simulate(model), simulate(replace(model, fault=Fault(flush=50)))
    assert outcome.counters[MISS, 50:].sum() == pytest.approx(model.keys, rel=0.01)
    assert outcome.amounts[WAITING_READS][:50].sum() == 0
    assert outcome.amounts[BUSY].max() <= model.workers + 1e-6
    assert 0 < outcome.counters[LOST_RUNS].sum() <= model.workers
    # The wait for the workers does not make a key's next refresh earlier: as many loads, plus one lost round.
    assert outcome.loads() < steady.loads() + 1.3 * model.keys


def test_while_the_broker_is_down_nothing_new_is_loaded_and_readers_try_after_growing_pauses() -> None:
    assert published_from(20.0, 30.0) == pytest.approx(35.0, abs=0.1)  # 1, 2, 4, 8 s
    assert published_from(math.inf, math.inf) == math.inf
    outcome = simulate(replace(MODEL, workers=40, fault=Fault(broker=(20, 30))))
    loads = outcome.counters[[EARLY, STALE, MISS]].sum(axis=0)
    assert loads[21:35].sum() == 0
    assert loads[35:38].sum() > 3 * loads[17:20].sum()
    assert outcome.late_shares[60:].mean() == pytest.approx(outcome.late_shares[:20].mean(), abs=0.01)


def test_reads_have_recovered_once_the_late_share_stays_at_its_previous_level() -> None:
    shares = np.full(300, 0.02)
    shares[100:114] = 0.5
    assert recovery(shares, 100, 110) == (pytest.approx(0.02), 0.5, 4.0)
    assert recovery(shares, 100, 120).seconds == 0
    shares[150:170] = 0.04
    assert recovery(shares, 100, 110).seconds == pytest.approx(60, abs=3)
    shares[290:] = 0.1
    assert recovery(shares, 100, 110).seconds == pytest.approx(190, abs=4)


def test_a_fleet_is_sized_for_the_requested_load() -> None:
    for load in (0.1, 0.3, 1.0):
        model = at_load(MODEL, load)
        assert load_of(model) == pytest.approx(load)
        assert model.load == pytest.approx(MODEL.load, rel=0.3)
    assert simulate(at_load(replace(MODEL, mode=Mode.NONE), 0.5)).utilisation == pytest.approx(0.5, abs=0.03)


def test_a_slow_origin_lengthens_the_lead_while_it_is_slow() -> None:
    outcome = simulate(replace(MODEL, fault=Fault(slow=(30.0, 60.0), slow_times=4.0)))
    assert outcome.lead_ms(50) < 70
    assert outcome.lead_ms(99) > 180
    assert outcome.amounts[BUSY][32:58].mean() > 3 * outcome.amounts[BUSY][:28].mean()


def test_entries_that_were_loaded_together_expire_together() -> None:
    fault = Fault(expire_at=50.0, expire_over=1.0, expire_share=0.5)
    loads = simulate(replace(MODEL, mode=Mode.NONE, workers=500, fault=fault)).counters[STALE]
    assert loads[50:52].sum() > 5 * loads[:49].max()


def test_with_loads_in_readers_nothing_is_served_stale_and_the_loading_read_waits() -> None:
    outcome = simulate(replace(MODEL, in_readers=True, costs=NO_COSTS))
    assert outcome.amounts[STALE_READS].sum() == 0
    assert outcome.amounts[WAITING_READS].sum() >= outcome.loads() - outcome.loads(EARLY)
    assert outcome.counters[PUBLISHED].sum() == outcome.loads()


@numba.njit
def _spread_three(counted: np.ndarray) -> None:
    spread(counted, 1, 1.5, 4.25, 8.0)
    spread(counted, 1, 8.5, 99.0, 2.0)
    spread(counted, 1, 7.0, 7.0, 5.0)


def test_an_amount_at_a_constant_rate_is_spread_over_its_seconds() -> None:
    counted = np.zeros((2, 10))
    _spread_three(counted)
    assert cumulate(counted).tolist() == [0, 4, 8, 8, 2, 0, 0, 0, 1, 2]


@numba.njit
def _in_order(state: State, times: np.ndarray) -> list[int]:
    """Give each key an event, then another one, and return the keys in the order in which they come."""
    for key in range(len(times)):
        schedule(state, key, times[len(times) - 1 - key])
    for key in range(len(times)):
        schedule(state, key, times[key])
    found = [-1]
    for second in range(2):
        key, at = pop(state, second + 1.0)
        while key != NO_KEY:
            found.append(key if at == times[key] else NO_KEY)
            key, at = pop(state, second + 1.0)
    return found[1:]


def test_events_are_popped_in_order_however_often_they_were_rescheduled() -> None:
    times = np.random.default_rng(3).random(400) * 3
    state = initial_state(replace(MODEL, keys=400, workers=1, seconds=2))
    state = state._replace(heap=np.empty(450, dtype=EVENT))  # no room for rescheduled events
    expected = [key for key in np.argsort(times).tolist() if times[key] < 2]
    assert _in_order(state, times) == expected


@numba.njit
def _publish_again(state: State, times: int) -> None:
    for _ in range(times):
        publish(state, 0, 0.5, False, True)
    publish(state, 1, 0.5, False, False)


def test_when_a_queue_s_memory_is_full_a_duplicate_message_is_forgotten_and_counted() -> None:
    state = initial_state(replace(MODEL, keys=3, workers=1))
    state = state._replace(rings=np.empty((2, 5), dtype=np.int32))
    state.numbers[ARE_DOWN] = 1
    _publish_again(state, 4)  # type: ignore[call-arg]  # numba types its functions as methods
    assert state.numbers[LENGTHS + 1] == 3
    assert state.counters[FORGOTTEN].sum() == 2
    assert state.rings[1, :3].tolist() == [0, 0, 1]


def test_the_pickup_time_is_measured_from_the_first_trigger_since_the_last_load() -> None:
    model = replace(MODEL, load=0.1, costs=NO_COSTS)
    triggered = [(1, 10.5), (1, 10.6), (2, 12.2), (1, 12.55), (1, 12.7), (3, 99.0)]
    marks = [(1, 10.701), (2, 12.301), (1, 12.5), (1, 12.901), (3, 99.5)]
    # The last of key 1: a read triggered at 12.55, during the load that began at 12.5.
    found = pickups_by_second(model, triggered, marks, begins=10.0, ends=14.0)
    assert found == pytest.approx((0.2, 0.2, (0.1 + 0.2) / 2, (0.1 + 0.2) / 2))
    with pytest.raises(BenchError):
        pickups_by_second(model, [], marks, begins=10.0, ends=14.0)


def test_pickup_times_measured_by_second_replace_the_constant() -> None:
    slow = tuple(1.0 if 40 <= second < 60 else 0.003 for second in range(100))
    outcome = simulate(replace(MODEL, pickups=slow))
    assert outcome.lead_ms(50) < 70
    assert outcome.lead_ms(99) > 900


def test_reads_are_distributed_by_the_requested_popularity() -> None:
    rates, degrees = rates_and_degrees(Popularity.ZIPF, 1_000, 500.0, zipf_exponent=1.0, seed=1)
    assert rates.sum() == pytest.approx(500, rel=1e-4)
    assert rates[0] / rates[9] == pytest.approx(10, rel=1e-4)
    assert (degrees[0], degrees[-1]) == (10_000, 10)
    rates, degrees = rates_and_degrees(Popularity.RMAT, 1_000, 500.0, zipf_exponent=1.0, seed=1)
    assert rates / rates.sum() == pytest.approx(degrees / degrees.sum(), rel=1e-4)


def test_degrees_are_those_of_an_rmat_graph() -> None:
    graph = rmat(14, 8, seed=5)
    drawn = np.bincount(np.concatenate([graph.sources, graph.targets]), minlength=graph.vertices)
    degrees = rmat_degrees(graph.vertices, seed=5)
    # That graph leaves out doubles and loops, which hubs have most of: above, it has fewer.
    for percent in (10, 25, 50, 75, 90):
        assert np.percentile(degrees, percent) == pytest.approx(np.percentile(drawn, percent), rel=0.15, abs=1)
    assert degrees.mean() == pytest.approx(drawn.mean(), rel=0.1)
