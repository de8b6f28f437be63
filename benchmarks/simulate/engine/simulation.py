"""Simulation of a model, from its initial state to the counts."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from api_client.protocol.entry import Smoothed
from api_client.trigger.claim_and_publish import broker_breaker
from benchmarks.simulate.engine.compiled import compiled
from benchmarks.simulate.engine.events import advance, draw_reads, finish, flush, lose_messages
from benchmarks.simulate.engine.model import Model, rates_and_degrees
from benchmarks.simulate.engine.outcome import Outcome
from benchmarks.simulate.engine.state import (
    EVENT,
    KEY,
    LEAD_BINS,
    POLICY,
    WAIT_BINS_PER_SECOND,
    Amount,
    Count,
    Known,
    Number,
    State,
)
from benchmarks.simulate.engine.worker_pool import dispatch
from benchmarks.simulate.options import Mode
from refresher.flow.policy import early_refresh_is_on, effective_beta, lease_seconds
from refresher.settings import RefreshMode

_MIN_ROOM: Final = 1 << 16
_MAX_ROOM: Final = 1 << 26
_BREAKER_STEP: Final = 0.01


def simulate(model: Model) -> Outcome:
    """Simulate the model's span, which takes microseconds per refresh, and nothing per read."""
    began = time.perf_counter()
    state = _initial_state(model)
    lengths = np.zeros((2, model.seconds), dtype=np.int64)
    _seed(model.seed)
    draw_reads(state, 0.0)
    for second in range(model.seconds):  # second by second, so that Ctrl-C is noticed
        _apply_fault(model, state, second)
        advance(state, second)
        lengths[:, second] = state.lengths
    finish(state, float(model.seconds))
    return Outcome.of(model, state, lengths, time.perf_counter() - began)


def workers_for(model: Model) -> int:
    """Return twice as many workers as the steady load keeps busy."""
    return max(2, math.ceil(2 * steady_loads_per_second(model) * model.service))


def steady_loads_per_second(model: Model) -> float:
    """Return the loads per second of a fleet that keeps up without early refresh: one per key, TTL and read."""
    rates, _ = rates_and_degrees(model)
    return float(np.sum(rates / (1 + rates * model.ttl), dtype=np.float64))


def load_of(model: Model) -> float:
    """Return the steady load as a share of the fleet's capacity."""
    busy = steady_loads_per_second(model) * (model.service + model.costs.turnaround)
    return busy / model.workers


@compiled
def _seed(seed: int) -> None:
    """Seed the generator of compiled functions, which is not numpy's own."""
    np.random.seed(seed)


def _apply_fault(model: Model, state: State, second: int) -> None:
    begins, ends = model.fault.down
    if second == begins:
        state.numbers[Number.ARE_DOWN], state.numbers[Number.FREE] = 1, 0
    elif second == ends:
        state.numbers[Number.ARE_DOWN], state.numbers[Number.FREE] = 0, model.workers
        dispatch(state, float(second))
    if second == model.fault.flush:
        flush(state, float(second))
    if second == model.fault.broker[0]:
        lose_messages(state)
    if second in model.fault.spike:
        draw_reads(state, float(second))


def published_from(begins: float, ends: float) -> float:
    """Return the time (s) at which readers publish again after finding a broker down from ``begins`` to ``ends``.

    Their breaker makes them try after pauses that double.
    """
    if begins == math.inf:
        return math.inf
    now = begins
    breaker = broker_breaker(lambda: now)
    while True:
        if breaker.allows():
            if now >= ends:
                return now
            breaker.failed()
        now += _BREAKER_STEP


def _initial_state(model: Model) -> State:
    rates, degrees = rates_and_degrees(model)
    numbers = np.zeros(len(Number), dtype=np.int64)
    numbers[Number.FREE] = model.workers
    keys, seconds = _keys(model, rates, degrees), model.seconds
    known = np.zeros((max(Known) + 1, model.readers))
    known[[Known.WINDOW, Known.LONG_SINCE]] = np.inf
    known[Known.USUAL] = np.nan
    return State(
        policy=_policy(model),
        keys=keys,
        numbers=numbers,
        heap=np.empty(2 * len(keys) + _MIN_ROOM, dtype=EVENT),
        rings=np.empty((2, 2 * model.keys + min(max(4 * model.keys, _MIN_ROOM), _MAX_ROOM)), dtype=np.int32),
        heads=np.zeros(2, dtype=np.int64),
        lengths=np.zeros(2, dtype=np.int64),
        known=known,
        counters=np.zeros((len(Count), seconds), dtype=np.int64),
        amounts=np.zeros((len(Amount), 2, seconds)),
        waits=np.zeros((2, math.ceil(model.wait_timeout * WAIT_BINS_PER_SECOND))),
        leads=np.zeros(LEAD_BINS, dtype=np.int64),
        idle_slots=np.arange(model.keys, len(keys), dtype=np.int64),
    )


def _policy(model: Model) -> NDArray[Any]:
    fault = model.fault
    run = Smoothed(model.service, 0.0)
    alike = {name: getattr(model, name) for name in POLICY.names or () if hasattr(model, name)}
    policy = np.zeros(1, dtype=POLICY)
    for name, value in {
        **alike,
        **asdict(model.costs),
        "lease": lease_seconds(model.lease_floor, run, 0.0, math.inf),
        "slow_from": fault.slow[0],
        "slow_until": fault.slow[1],
        "slow_times": fault.slow_times,
        "down_from": fault.down[0],
        "spike_from": fault.spike[0],
        "spike_until": fault.spike[1],
        "spike_times": fault.spike_times,
        "mute_from": fault.broker[0],
        "mute_until": published_from(*fault.broker),
    }.items():
        policy[name] = value
    return policy


def _keys(model: Model, rates: NDArray[np.float32], degrees: NDArray[np.int32]) -> NDArray[Any]:
    rng = np.random.default_rng(model.seed)
    is_on = early_refresh_is_on(
        enabled=model.mode is not Mode.NONE, ttl_seconds=model.ttl, min_ttl_seconds=model.min_ttl
    )
    everything = np.zeros(model.keys + model.workers, dtype=KEY)
    everything["due"] = np.inf
    keys = everything[: model.keys]
    keys["rate"] = rates
    keys["delta"] = model.lead
    keys["since"] = np.inf
    keys["soft"] = _soft_expiries(model, rng, rates)
    keys["wrong"] = rng.exponential(1 / model.writes, model.keys) if model.writes else np.inf
    if is_on:
        mode = RefreshMode(model.mode.value)
        by_degree = [effective_beta(mode, model.beta, degree, 1.0) for degree in range(int(degrees.max()) + 1)]
        keys["beta"] = np.array(by_degree)[degrees]
    return everything


def _soft_expiries(model: Model, rng: np.random.Generator, rates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Draw each key's place in its round at the start of the span, as if it had gone on forever.

    A round is a TTL plus the time until the next read. So a share of ``ttl / (ttl + 1/rate)`` of the time is before the
    soft expiry, evenly distributed, and in the rest the time since the soft expiry is exponential.
    """
    soft = model.ttl * rng.random(model.keys)
    is_late = rng.random(model.keys) * (model.ttl + 1 / rates) >= model.ttl
    soft[is_late] = -rng.exponential(1 / rates[is_late])
    return soft
