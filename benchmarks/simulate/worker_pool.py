"""Two queues of messages, misses first, and the workers that take them. A queue holds keys: a message is a hint."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from benchmarks.simulate.compiled import compiled, compiled_within
from benchmarks.simulate.event_queue import NO_KEY, schedule
from benchmarks.simulate.state import (
    AGAIN,
    ARE_DOWN,
    BUSY,
    FORGOTTEN,
    FREE,
    HEADS,
    IDLE_MESSAGES,
    IDLE_MESSAGES_NOW,
    LENGTHS,
    PUBLISHED,
    QUEUED,
    RUNNING,
    State,
    count,
    spread,
)

MISSES: Final = 0
OTHERS: Final = 1


@compiled_within
def publish(state: State, number: int, at: float, has_waiter: bool, is_republish: bool) -> None:  # noqa: FBT001
    """Put a message into a queue.

    One that repeats another, which is still there, is counted and forgotten where memory would run out.
    """
    count(state, AGAIN if is_republish else PUBLISHED, at)
    queue = MISSES if has_waiter else OTHERS
    numbers, size = state.numbers, state.rings.shape[1]
    length = numbers[LENGTHS + queue]
    if is_republish and length >= size - state.policy[0].keys:
        count(state, FORGOTTEN, at)
        return
    if length == 0:
        numbers[HEADS + queue] = 0  # the memory that was used before
    state.rings[queue, (numbers[HEADS + queue] + length) % size] = number
    numbers[LENGTHS + queue] = length + 1


@compiled
def dispatch(state: State, at: float) -> None:
    """Let idle workers take messages, until there are none of either."""
    numbers = state.numbers
    while numbers[FREE] > 0 and numbers[ARE_DOWN] == 0:
        number = _take(state)
        if number == NO_KEY:
            return
        numbers[FREE] -= 1
        if state.keys[number].state == QUEUED:
            _start(state, number, at)
        else:
            _start_idle_message(state, at)


@compiled_within
def _take(state: State) -> int:
    numbers = state.numbers
    queue = MISSES if numbers[LENGTHS + MISSES] > 0 else OTHERS
    if numbers[LENGTHS + queue] == 0:
        return NO_KEY
    head = numbers[HEADS + queue]
    numbers[HEADS + queue] = (head + 1) % state.rings.shape[1]
    numbers[LENGTHS + queue] -= 1
    return int(state.rings[queue, head])


@compiled_within
def _start(state: State, number: int, at: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    second = min(int(key.moment), len(state.pickups) - 1)
    acquired = max(at, key.moment + state.pickups[second])
    took = mean_load_seconds(state, number) * spread_times(policy.load_spread)
    if policy.slow_from <= acquired < policy.slow_until:
        took *= policy.slow_times
    key.state = RUNNING
    key.moment = acquired
    count(state, int(key.reason), acquired)
    schedule(state, number, acquired + took + policy.overhead)


@compiled_within
def _start_idle_message(state: State, at: float) -> None:
    """Let a worker look at the record of a key that was refreshed meanwhile, or is in work; then it is free again."""
    count(state, IDLE_MESSAGES, at)
    until = at + state.policy[0].idle_message
    spread(state.amounts[BUSY], 1, at, until, 1.0)
    occupy_worker(state, until)


@compiled_within
def occupy_worker(state: State, until: float) -> None:
    """Let a worker, which is not free, be busy until this moment over what changes no key."""
    slot = int(state.idle_slots[state.numbers[IDLE_MESSAGES_NOW]])
    state.numbers[IDLE_MESSAGES_NOW] += 1
    schedule(state, slot, until)


@compiled_within
def mean_load_seconds(state: State, number: int) -> float:
    """Return what the loads of a key take on average."""
    policy = state.policy[0]
    return float(policy.load * (policy.heavy_times if number % policy.heavy_every == 0 else 1.0))


@compiled
def spread_times(spread_: float) -> float:
    """Draw a load's time in its mean: lognormal; ``spread_`` is σ of its logarithm, 0: always the mean."""
    if spread_ == 0.0:
        return 1.0
    return math.exp(spread_ * np.random.normal() - spread_ * spread_ / 2)
