"""Events of a key: a read triggers, triggers again, a run ends; as in the product's readers, scripts and workers.

::

    RESTING ── a read triggers ▶ QUEUED ─ a worker takes it ──▶ RUNNING ── commit ──▶ RESTING
       ▲ └─ dropped: too long a queue      │ ▲ └─ 5, 10, 20 s, or 1, 2, 4 s: published again, unless too long a queue
       │                                   │ └─── the claim ran out: claimed anew
       └───────────────────────────────────┘     RUNNING ── worker killed ──▶ LOST ── lease ran out ──▶ QUEUED
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from api_client.read.wait import REPUBLISH_INTERVAL_SECONDS
from api_client.trigger.backpressure import LENGTH_CACHED_SECONDS, MAX_CLAIM_TIMES
from api_client.trigger.claim_and_publish import REPUBLISH_SECONDS
from api_client.trigger.suppression import MAX_SUPPRESSION_SECONDS
from benchmarks.simulate.compiled import compiled, compiled_within, first_positive, smoothed
from benchmarks.simulate.event_queue import NO_KEY, pop, schedule
from benchmarks.simulate.state import (
    ARE_DOWN,
    BUSY,
    COMMITS,
    COMMITS_IN_TIME,
    DROPPED,
    EARLY,
    FREE,
    IDLE_MESSAGES_NOW,
    LENGTHS,
    LOST,
    LOST_RUNS,
    MISS,
    QUEUED,
    RESTING,
    RUNNING,
    STALE,
    STALE_READS,
    State,
    add,
    count,
    count_reads,
    record_lead,
    spread,
)
from benchmarks.simulate.worker_pool import MISSES, OTHERS, dispatch, publish

# What is compiled takes plain constants.
_STALE_AGAIN: Final = REPUBLISH_SECONDS
_WAITING_AGAIN: Final = REPUBLISH_INTERVAL_SECONDS
_SILENCE: Final = MAX_SUPPRESSION_SECONDS
_LENGTH_HOLDS: Final = LENGTH_CACHED_SECONDS
_MAX_CLAIM: Final = MAX_CLAIM_TIMES


@compiled
def advance(state: State, until: float) -> None:
    """Let the time up to this moment pass."""
    number, at = pop(state, until)
    while number != NO_KEY:
        _handle_event(state, number, at)
        number, at = pop(state, until)


@compiled
def begin(state: State) -> None:
    """Draw for each key when its first read asks."""
    for number in range(state.policy[0].keys):
        _schedule_read(state, number, 0.0, float(state.keys[number].rate))


@compiled
def finish(state: State, end: float) -> None:
    """Count what is still under way at the end."""
    for number in range(state.policy[0].keys):
        key = state.keys[number]
        if key.since < end:
            count_reads(state, number, end, is_final=True)
        if key.state == RUNNING:
            spread(state.amounts[BUSY], 1, float(key.moment), end, 1.0)


@compiled_within
def trigger_rate(rate: float, readers: int, silence: float) -> float:
    """Return how often a key is triggered, when a process that has done so is silent for ``silence`` seconds."""
    return rate / (1 + rate * silence / readers)


@compiled_within
def _handle_event(state: State, number: int, at: float) -> None:
    if number >= state.policy[0].keys:
        state.numbers[IDLE_MESSAGES_NOW] -= 1
        state.idle_slots[state.numbers[IDLE_MESSAGES_NOW]] = number
        _release_worker(state, at)
        return
    what = state.keys[number].state
    if what == RESTING:
        _trigger(state, number, at)
    elif what == QUEUED:
        _trigger_again(state, number, at)
    elif what == RUNNING:
        _end_run(state, number, at)
    else:
        _claim(state, number, at, _any_reader(state), is_republish=True)


@compiled_within
def _schedule_read(state: State, number: int, now: float, rate: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    at = first_positive(now, key.soft, rate, float(key.delta), float(key.beta), policy.ttl)
    schedule(state, number, at)


@compiled_within
def _trigger(state: State, number: int, at: float) -> None:
    """Let a read ask for a refresh: the first one that does, since the entry was committed."""
    key, policy = state.keys[number], state.policy[0]
    reader = _any_reader(state)
    if at < key.soft:
        if known_length(state, reader, OTHERS, at) >= policy.queue_size:
            count(state, DROPPED, at)
            _schedule_read(state, number, at, trigger_rate(float(key.rate), policy.readers, _LENGTH_HOLDS / 2))
            return
        key.reason = EARLY
    elif at < key.soft + policy.grace:
        key.reason = STALE
        add(state, STALE_READS, at, 1.0)
    else:
        key.reason = MISS
    state.known[2 * (MISSES if key.reason == MISS else OTHERS), reader] += 1
    key.since = at
    _claim(state, number, at, reader, is_republish=False)


@compiled_within
def _any_reader(state: State) -> int:
    return int(np.random.random() * state.policy[0].readers)


@compiled_within
def known_length(state: State, reader: int, queue: int, at: float) -> int:
    """Look at a queue as this reader's process does: it asks for the length four times a second."""
    length, until = 2 * queue, 2 * queue + 1
    known = state.known
    if at >= known[until, reader]:
        known[length, reader] = state.numbers[LENGTHS + queue]
        known[until, reader] = at + _LENGTH_HOLDS
    return int(known[length, reader])


@compiled
def has_room(length: int, queue_size: int) -> bool:
    """Tell whether one is published again, as `api_client.trigger.backpressure` does."""
    return length < max(queue_size, 1)


@compiled
def claim_times(length: int, queue_size: int) -> int:
    """Return how many times its shortest time a claim holds, as `api_client.trigger.backpressure` does."""
    return min(max(length // max(queue_size, 1), 1), _MAX_CLAIM)


@compiled_within
def _claim(state: State, number: int, at: float, reader: int, is_republish: bool) -> None:  # noqa: FBT001
    key, policy = state.keys[number], state.policy[0]
    is_repeated = key.state == QUEUED  # its message is still there
    has_waiter = at >= key.soft + policy.grace
    if is_republish:
        key.reason = MISS if has_waiter else STALE
    key.lasts = 1 if has_waiter else claim_times(known_length(state, reader, OTHERS, at), policy.queue_size)
    key.state = QUEUED
    key.claimed = at + policy.claim
    key.moment = key.claimed
    key.times = 0
    _publish(state, number, at, has_waiter, is_repeated)


@compiled_within
def _trigger_again(state: State, number: int, at: float) -> None:
    """Let a read, or one that waits, ask for what has been queued for long."""
    key, policy, reader = state.keys[number], state.policy[0], _any_reader(state)
    if at >= key.claimed + policy.queue_ttl * key.lasts:
        _claim(state, number, at, reader, is_republish=True)
        return
    has_waiter = at >= key.soft + policy.grace
    queue = MISSES if has_waiter else OTHERS
    is_due = has_room(known_length(state, reader, queue, at), policy.queue_size)
    if is_due or has_waiter:  # who waits asks the record first, and that counts
        key.moment = at
        key.times += 1
    if is_due:
        _publish(state, number, at, has_waiter, is_republish=True)
    else:
        _schedule_trigger(state, number, at)


@compiled_within
def _publish(state: State, number: int, at: float, has_waiter: bool, is_republish: bool) -> None:  # noqa: FBT001
    publish(state, number, at, has_waiter, is_republish)
    dispatch(state, at)
    if state.keys[number].state == QUEUED:
        _schedule_trigger(state, number, at)


@compiled_within
def _schedule_trigger(state: State, number: int, now: float) -> None:
    """Draw when a queued key is due to be published again, or to be claimed anew, and somebody is there to ask."""
    key, policy = state.keys[number], state.policy[0]
    rate, hard = float(key.rate), key.soft + policy.grace
    doubled = 2.0 ** float(key.times)
    pause = np.random.exponential() / trigger_rate(rate, policy.readers, _SILENCE)
    lapses = key.claimed + policy.queue_ttl * key.lasts + pause
    # An early one is not triggered again before it is late: what was too much then was dropped.
    at = max(key.moment + _STALE_AGAIN * doubled, key.soft) + pause
    if at <= now:  # it was due, and there was no room
        at = now + _LENGTH_HOLDS + pause
    if at >= hard:
        # Those who wait ask every second.
        waits_from = hard + np.random.exponential() / rate if key.since < hard else now
        at = max(key.moment + _WAITING_AGAIN * doubled + np.random.random(), waits_from)
    schedule(state, number, max(now, min(at, lapses)))


@compiled_within
def _end_run(state: State, number: int, at: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    if key.moment < policy.down_from <= at:
        _lose_run(state, number, at)
        return
    spread(state.amounts[BUSY], 1, key.moment, at, 1.0)
    count_reads(state, number, at, is_final=False)
    count(state, COMMITS, at)
    if at < key.soft:
        count(state, COMMITS_IN_TIME, at)
    lead = at - key.claimed
    record_lead(state, at, lead)
    key.delta = smoothed(float(key.delta), lead) if key.delta > 0 else lead
    key.soft = at + policy.ttl
    key.state = RESTING
    key.since = math.inf
    _schedule_read(state, number, at, float(key.rate))
    _release_worker(state, at + policy.turnaround)


@compiled_within
def _lose_run(state: State, number: int, at: float) -> None:
    """Its worker was killed meanwhile. It has renewed its lease every third of it, up to then."""
    key, policy = state.keys[number], state.policy[0]
    third = policy.lease / 3
    count(state, LOST_RUNS, policy.down_from)
    spread(state.amounts[BUSY], 1, key.moment, policy.down_from, 1.0)
    renewed = key.moment + math.floor((policy.down_from - key.moment) / third) * third
    pause = np.random.exponential() / trigger_rate(float(key.rate), policy.readers, _SILENCE)
    key.state = LOST
    schedule(state, number, max(at, renewed + policy.lease, key.soft) + pause)


@compiled_within
def _release_worker(state: State, at: float) -> None:
    if state.numbers[ARE_DOWN] == 0:
        state.numbers[FREE] += 1
        dispatch(state, at)
