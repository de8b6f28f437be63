"""Simulates a world: arrays are made, time passes, what was counted is returned."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from api_client.protocol.entry import Smoothed
from benchmarks.simulate.agenda import NOBODY, PLACES_A_SECOND
from benchmarks.simulate.compiled import compiled
from benchmarks.simulate.decision import betas
from benchmarks.simulate.events import advance, begin, finish
from benchmarks.simulate.fleet import dispatch
from benchmarks.simulate.options import Mode
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.popularity import rates_and_degrees
from benchmarks.simulate.records import (
    AMOUNTS,
    ARE_DOWN,
    COUNTERS,
    CURRENT,
    EVENT,
    FREE,
    KEY,
    LENGTHS,
    NUMBERS,
    POLICY,
    State,
)
from benchmarks.simulate.tally import LEAD_BINS, WAIT_BINS_A_SECOND
from benchmarks.simulate.world import World
from refresher.flow.policy import early_refresh_is_on, lease_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIN_ROOM: Final = 1 << 16
_MAX_ROOM: Final = 1 << 26


def simulate(world: World) -> Outcome:
    """Let the world's span pass. It takes microseconds a refresh, and nothing a read."""
    began = time.perf_counter()
    state = initial_state(world)
    lengths = np.zeros((2, world.seconds), dtype=np.int64)
    _seed(world.seed)
    begin(state)
    prepared = time.perf_counter()
    for second in range(world.seconds):  # so that Ctrl-C is heard
        _trouble(world, state, second)
        advance(state, second * PLACES_A_SECOND, (second + 1) * PLACES_A_SECOND)
        lengths[:, second] = state.numbers[LENGTHS : LENGTHS + 2]
    finish(state, float(world.seconds))
    ended = time.perf_counter()
    return Outcome.of(world, state, lengths, prepare_seconds=prepared - began, run_seconds=ended - prepared)


def workers_for(world: World) -> int:
    """Return twice as many workers as the steady load keeps busy: each key is loaded once a TTL and a read."""
    rates, _ = _drawn(world)
    loads_a_second = float(np.sum(rates / (1 + rates * world.ttl), dtype=np.float64))
    return max(2, math.ceil(2 * loads_a_second * world.service))


def _drawn(world: World) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    return rates_and_degrees(
        world.popularity, world.keys, world.reads_per_second, zipf_exponent=world.zipf_exponent, seed=world.seed
    )


@compiled
def _seed(seed: int) -> None:
    """Seed the generator of compiled functions, which is not numpy's own."""
    np.random.seed(seed)


def _trouble(world: World, state: State, second: int) -> None:
    begins, ends = world.trouble.down
    if second == begins:
        state.numbers[ARE_DOWN], state.numbers[FREE] = 1, 0
    elif second == ends:
        state.numbers[ARE_DOWN], state.numbers[FREE] = 0, world.workers
        dispatch(state, float(second))


def initial_state(world: World) -> State:
    """Return the world at its begin, before anything is due."""
    rates, degrees = _drawn(world)
    numbers = np.zeros(NUMBERS, dtype=np.int64)
    numbers[FREE] = world.keys if world.in_readers else world.workers
    numbers[CURRENT] = -1
    keys, seconds = _keys(world, rates, degrees), world.seconds
    return State(
        policy=_policy(world),
        keys=keys,
        numbers=numbers,
        heads=np.full(seconds * PLACES_A_SECOND, NOBODY, dtype=np.int32),
        heap=np.empty(2 * len(keys) + _MIN_ROOM, dtype=EVENT),
        rings=np.empty((2, 2 * world.keys + min(max(4 * world.keys, _MIN_ROOM), _MAX_ROOM)), dtype=np.int32),
        known=np.zeros((4, world.readers)),
        counters=np.zeros((COUNTERS, seconds), dtype=np.int64),
        amounts=np.zeros((AMOUNTS, 2, seconds)),
        waits=np.zeros((2, math.ceil(world.wait_timeout * WAIT_BINS_A_SECOND))),
        leads=np.zeros(LEAD_BINS, dtype=np.int64),
        places=np.arange(world.keys, len(keys), dtype=np.int64),
        pickups=np.array(world.pickups) if world.pickups else np.full(1, world.costs.pickup),
    )


def _policy(world: World) -> NDArray[Any]:
    costs, trouble = world.costs, world.trouble
    run = Smoothed(world.service, world.load * math.sqrt(math.expm1(world.load_spread**2)))
    policy = np.zeros(1, dtype=POLICY)
    for name, value in {
        "ttl": world.ttl,
        "grace": 0.0 if world.in_readers else world.grace,
        "queue_ttl": world.queue_ttl,
        "wait_timeout": world.wait_timeout,
        "load": world.load,
        "load_spread": world.load_spread,
        "lease": lease_seconds(world.lease_floor, run, 0.0, math.inf),
        "slow_from": trouble.slow[0],
        "slow_until": trouble.slow[1],
        "slow_times": trouble.slow_times,
        "down_from": trouble.down[0],
        "digits": world.digits,
        "readers": world.readers,
        "queue_size": world.queue_size,
        "keys": world.keys,
        "claim": costs.claim,
        "overhead": costs.overhead,
        "turnaround": costs.turnaround,
        "idle_message": costs.idle_message,
    }.items():
        policy[name] = value
    return policy


def _keys(world: World, rates: NDArray[np.float32], degrees: NDArray[np.int32]) -> NDArray[Any]:
    rng = np.random.default_rng(world.seed)
    is_on = early_refresh_is_on(
        enabled=world.mode is not Mode.NONE, ttl_seconds=world.ttl, min_ttl_seconds=world.min_ttl
    )
    everything = np.zeros(world.keys + (1 if world.in_readers else world.workers), dtype=KEY)
    everything["due"] = np.inf
    keys = everything[: world.keys]
    keys["rate"] = rates
    keys["delta"] = world.lead
    keys["since"] = np.inf
    keys["soft"] = _soft_expiries(world, rng, rates)
    if is_on:
        keys["beta"] = betas(world.beta, degrees, by_degree=world.mode is Mode.TOPOLOGY_SENSITIVE)
    return everything


def _soft_expiries(world: World, rng: np.random.Generator, rates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Draw where in its round each key is when the span begins: as if it had gone on for ever.

    A round is a TTL, and then the time until a read comes and asks. So a share of ``ttl / (ttl + 1/rate)`` of the time
    is before the soft expiry, evenly; and in the rest, the time since the soft expiry is exponential.
    """
    soft = world.ttl * rng.random(world.keys)
    is_late = rng.random(world.keys) * (world.ttl + 1 / rates) >= world.ttl
    soft[is_late] = -rng.exponential(1 / rates[is_late])
    trouble = world.trouble
    if trouble.expire_share:
        together = rng.random(world.keys) < trouble.expire_share
        soft[together] = trouble.expire_at + trouble.expire_over * rng.random(int(together.sum()))
    return soft
