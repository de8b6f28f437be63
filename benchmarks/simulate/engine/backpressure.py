"""Backpressure: a reader process's knowledge of the queues, and the triggers that it admits.

`tests/property/test_simulated_policy.py` compares it with `api_client.trigger.backpressure`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from api_client.trigger.backpressure import (
    LENGTH_CACHED_SECONDS,
    MAX_CLAIM_TIMES,
    MAX_KNOWN_SECONDS,
    MAX_WINDOW_TIMES,
    MIN_WINDOW,
    USUAL_GAIN,
    WINDOW_SHRINKS,
)
from benchmarks.simulate.engine.compiled import compiled, compiled_within
from benchmarks.simulate.engine.state import Known, Queue, State
from benchmarks.simulate.engine.worker_pool import mean_load_seconds

# Compiled functions take plain constants.
_LENGTH_HOLDS: Final = LENGTH_CACHED_SECONDS
_MAX_CLAIM: Final = MAX_CLAIM_TIMES
_MAX_KNOWN: Final = MAX_KNOWN_SECONDS
_MIN_WINDOW: Final = MIN_WINDOW
_MAX_WINDOW: Final = MAX_WINDOW_TIMES
_SHRINKS: Final = WINDOW_SHRINKS
_USUAL_GAIN: Final = USUAL_GAIN


@compiled
def has_room(length: int, queue_size: int) -> bool:
    """Return whether a refresh may be published again."""
    return length < max(queue_size, 1)


@compiled
def claim_times(length: int, queue_size: int) -> int:
    """Return a claim's life as a multiple of its shortest."""
    return min(max(length // max(queue_size, 1), 1), _MAX_CLAIM)


@compiled
def window_after(
    size: float, long_since: float, polled_at: float, length: int, queue_size: int, now: float, overloaded_after: float
) -> tuple[float, float]:
    """Return the window for stale refreshes after a poll, and the time since which the queue is long, or inf."""
    bound = float(max(_MIN_WINDOW, queue_size))
    if length <= bound:
        long_since = math.inf
    elif long_since == math.inf or now - polled_at > _MAX_KNOWN:
        long_since = now
    if size == math.inf:
        if now - long_since >= overloaded_after:
            size = bound
    elif length < bound / 2:
        size = size * 2 if size < _MAX_WINDOW * bound else math.inf
    elif length > bound:
        size = max(bound, size * _SHRINKS)
    return size, long_since


@compiled
def has_room_for_stale(size: float, length: int) -> bool:
    """Return whether the window has room for one more."""
    return size - length >= 1


@compiled_within
def known_length(state: State, reader: int, queue: int, at: float) -> int:
    """Return the queue's length as known to this reader process, which polls it at most four times a second."""
    length, until = 2 * queue, 2 * queue + 1
    known = state.known
    if at >= known[until, reader]:
        known[length, reader] = state.lengths[queue]
        known[until, reader] = at + _LENGTH_HOLDS
        if queue == Queue.OTHERS:
            _adapt_window(state, reader, at)
    return int(known[length, reader])


@compiled_within
def _adapt_window(state: State, reader: int, at: float) -> None:
    known, policy = state.known, state.policy[0]
    known[Known.WINDOW, reader], known[Known.LONG_SINCE, reader] = window_after(
        known[Known.WINDOW, reader], known[Known.LONG_SINCE, reader], known[Known.POLLED_AT, reader],
        int(known[2 * Queue.OTHERS, reader]), policy.queue_size, at, policy.overloaded_after,
    )  # fmt: skip
    known[Known.POLLED_AT, reader] = at


@compiled_within
def poll_while_long(state: State, reader: int, at: float) -> None:
    """Let a process poll, as its reads of a key that has been queued for a second would."""
    if state.lengths[Queue.OTHERS] > 0:
        known_length(state, reader, Queue.OTHERS, at)


@compiled_within
def admits(state: State, number: int, reader: int, at: float) -> bool:
    """Return whether a read's trigger is claimed: early up to the bound, stale up to the window, all misses."""
    key, policy = state.keys[number], state.policy[0]
    if at < key.soft:
        return known_length(state, reader, Queue.OTHERS, at) < int(policy.queue_size)
    if at >= key.soft + policy.grace:
        return True
    size = state.known[Known.WINDOW, reader]
    if size == math.inf:
        return True
    if not has_room_for_stale(size, known_length(state, reader, Queue.OTHERS, at)):
        return False
    return policy.weighs_loads == 0 or _has_precedence(state, number, reader)


@compiled_within
def _has_precedence(state: State, number: int, reader: int) -> bool:
    run_seconds = mean_load_seconds(state, number) + state.policy[0].overhead
    usual, is_allowed = precedence(state.known[Known.USUAL, reader], run_seconds, np.random.random())
    state.known[Known.USUAL, reader] = usual
    return is_allowed


@compiled
def precedence(usual_log: float, run_seconds: float, draw: float) -> tuple[float, bool]:
    """Return the usual duration after a stale refresh, and whether this refresh may take up room."""
    run_log = math.log(run_seconds)
    if math.isnan(usual_log):
        usual_log = run_log
    usual_log += (run_log - usual_log) * _USUAL_GAIN
    return usual_log, draw < math.exp(usual_log - run_log)
