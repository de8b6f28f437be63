"""Events of a key (a trigger, a further trigger, the end of a run), as in the product's readers, scripts and workers.

::

    RESTING ── a read triggers ▶ QUEUED ─ a worker takes it ──▶ RUNNING ── commit ──▶ RESTING
       ▲ └─ dropped: too long a queue      │ ▲ └─ 5, 10, 20 s, or 1, 2, 4 s: published again, unless too long a queue
       │                                   │ └─── the claim ran out: claimed anew, unless too long a queue
       └───────────────────────────────────┘     RUNNING ── worker killed ──▶ LOST ── lease ran out ──▶ RESTING
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from api_client.read.wait import REPUBLISH_INTERVAL_SECONDS
from api_client.trigger.backpressure import LENGTH_CACHED_SECONDS
from api_client.trigger.claim_and_publish import REPUBLISH_SECONDS
from api_client.trigger.suppression import MAX_SUPPRESSION_SECONDS
from benchmarks.simulate.engine.backpressure import admits, claim_times, has_room, known_length, poll_while_long
from benchmarks.simulate.engine.compiled import compiled, compiled_within, first_positive, smoothed
from benchmarks.simulate.engine.event_queue import NO_KEY, pop, schedule
from benchmarks.simulate.engine.state import (
    Amount,
    Count,
    Number,
    Phase,
    Queue,
    State,
    add,
    count,
    count_reads,
    count_wrong_reads,
    read_rate,
    record_lead,
    spread,
)
from benchmarks.simulate.engine.worker_pool import dispatch, occupy_worker, publish

# Compiled functions take plain constants.
_STALE_AGAIN: Final = REPUBLISH_SECONDS
_WAITING_AGAIN: Final = REPUBLISH_INTERVAL_SECONDS
_SILENCE: Final = MAX_SUPPRESSION_SECONDS
_LENGTH_HOLDS: Final = LENGTH_CACHED_SECONDS


@compiled
def advance(state: State, second: int) -> None:
    """Let a second pass, in which each reader process polls if something is queued."""
    readers = state.policy[0].readers
    for reader in range(readers):
        until = second + (reader + 1) / readers
        number, at = pop(state, until)
        while number != NO_KEY:
            _handle_event(state, number, at)
            number, at = pop(state, until)
        poll_while_long(state, reader, until)


@compiled
def draw_reads(state: State, at: float) -> None:
    """Draw the next trigger of each resting key, at the start and when the rate of reads changes."""
    for number in range(state.policy[0].keys):
        if state.keys[number].state == Phase.RESTING:
            _schedule_read(state, number, at, read_rate(state, number, at))


@compiled
def lose_messages(state: State) -> None:
    """Lose the messages in the queues."""
    state.lengths[:] = 0


@compiled
def flush(state: State, at: float) -> None:
    """Lose all entries, claims and messages, so that no run in progress can commit."""
    lose_messages(state)
    for number in range(state.policy[0].keys):
        key = state.keys[number]
        if key.since < at:
            count_reads(state, number, at, is_final=False)
        if key.state == Phase.RUNNING:
            spread(state.amounts[Amount.BUSY], 1, float(key.moment), float(key.due), 1.0)
            occupy_worker(state, float(key.due))
        key.state = Phase.RESTING
        key.since = math.inf
        key.soft = at - state.policy[0].grace
        key.wrong = math.inf
        key.delta = 0.0
        _schedule_read(state, number, at, read_rate(state, number, at))


@compiled
def finish(state: State, end: float) -> None:
    """Count what is still in progress at the end."""
    for number in range(state.policy[0].keys):
        key = state.keys[number]
        if key.since < end:
            count_reads(state, number, end, is_final=True)
        count_wrong_reads(state, number, end)
        if key.state == Phase.RUNNING:
            spread(state.amounts[Amount.BUSY], 1, float(key.moment), end, 1.0)


@compiled_within
def trigger_rate(rate: float, readers: int, silence: float) -> float:
    """Return the trigger rate of a key, if a process is silent for ``silence`` seconds after each trigger."""
    return rate / (1 + rate * silence / readers)


@compiled_within
def _handle_event(state: State, number: int, at: float) -> None:
    if number >= state.policy[0].keys:
        state.numbers[Number.IDLE_MESSAGES] -= 1
        state.idle_slots[state.numbers[Number.IDLE_MESSAGES]] = number
        _release_worker(state, at)
        return
    what = state.keys[number].state
    if what == Phase.RESTING:
        _trigger(state, number, at)
    elif what == Phase.QUEUED:
        _trigger_again(state, number, at)
    elif what == Phase.RUNNING:
        _end_run(state, number, at)
    else:
        state.keys[number].state = Phase.RESTING
        _trigger(state, number, at)


@compiled_within
def _schedule_read(state: State, number: int, now: float, rate: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    at = first_positive(now, key.soft, rate, float(key.delta), float(key.beta), policy.ttl)
    invalidated = key.wrong + policy.noticed_after
    if invalidated < at:
        key.soft = min(key.soft, invalidated)
        at = max(now, invalidated) + np.random.exponential() / rate
    schedule(state, number, at)


@compiled_within
def _trigger(state: State, number: int, at: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    reader, hard = _any_reader(state), key.soft + policy.grace
    if key.since == math.inf and at >= key.soft:
        key.since = at
        if at < hard:
            add(state, Amount.STALE_READS, at, 1.0)
    if policy.mute_from <= at < policy.mute_until:
        schedule(state, number, policy.mute_until + _pause(state, number, at, 0.0))
    elif not admits(state, number, reader, at):
        count(state, Count.DROPPED, at)
        rate = trigger_rate(read_rate(state, number, at), policy.readers, _LENGTH_HOLDS / 2)
        _schedule_read(state, number, at, rate)
    else:
        state.known[2 * (Queue.MISSES if at >= hard else Queue.OTHERS), reader] += 1
        key.since = min(key.since, at)
        _claim(state, number, at, reader)


@compiled_within
def _any_reader(state: State) -> int:
    return int(np.random.random() * state.policy[0].readers)


@compiled_within
def _claim(state: State, number: int, at: float, reader: int) -> None:
    key, policy = state.keys[number], state.policy[0]
    is_repeated = key.state == Phase.QUEUED  # its message is still queued
    has_waiter = at >= key.soft + policy.grace
    key.reason = Count.MISS if has_waiter else Count.STALE if at >= key.soft else Count.EARLY
    key.lasts = 1 if has_waiter else claim_times(known_length(state, reader, Queue.OTHERS, at), policy.queue_size)
    key.state = Phase.QUEUED
    key.claimed = at + policy.claim
    key.moment = key.claimed
    key.times = 0
    _publish(state, number, at, has_waiter, is_repeated)


@compiled_within
def _trigger_again(state: State, number: int, at: float) -> None:
    """Let a read, perhaps a waiting one, trigger a key that has been queued for long."""
    key, policy, reader = state.keys[number], state.policy[0], _any_reader(state)
    if policy.mute_from <= at < policy.mute_until:
        schedule(state, number, policy.mute_until + _pause(state, number, at, 0.0))
        return
    if at >= key.claimed + policy.queue_ttl * key.lasts:
        if admits(state, number, reader, at):
            _claim(state, number, at, reader)
        else:
            count(state, Count.DROPPED, at)
            schedule(state, number, at + _pause(state, number, at, _LENGTH_HOLDS / 2))
        return
    has_waiter = at >= key.soft + policy.grace
    queue = Queue.MISSES if has_waiter else Queue.OTHERS
    is_due = has_room(known_length(state, reader, queue, at), policy.queue_size)
    if is_due or has_waiter:  # a waiter asks the record first, which counts
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
    if state.keys[number].state == Phase.QUEUED:
        _schedule_trigger(state, number, at)


@compiled_within
def _schedule_trigger(state: State, number: int, now: float) -> None:
    """Draw the time at which a queued key is due for publication or a new claim, and a read comes to ask."""
    key, policy = state.keys[number], state.policy[0]
    rate, hard = read_rate(state, number, now), key.soft + policy.grace
    doubled = 2.0 ** float(key.times)
    pause = _pause(state, number, now, _SILENCE)
    lapses = key.claimed + policy.queue_ttl * key.lasts + pause
    # An early refresh is not triggered again before it is late, since early ones beyond the bound are dropped.
    at = max(key.moment + _STALE_AGAIN * doubled, key.soft) + pause
    if at <= now:  # it was due, but there was no room
        at = now + _LENGTH_HOLDS + pause
    if at >= hard:
        # Waiting reads ask every second.
        waits_from = hard + np.random.exponential() / rate if key.since < hard else now
        at = max(key.moment + _WAITING_AGAIN * doubled + np.random.random(), waits_from)
    schedule(state, number, max(now, min(at, lapses)))


@compiled_within
def _pause(state: State, number: int, at: float, silence: float) -> float:
    """Draw the time until the next trigger of a key, if a process is silent for ``silence`` after each trigger."""
    return np.random.exponential() / trigger_rate(read_rate(state, number, at), state.policy[0].readers, silence)


@compiled_within
def _end_run(state: State, number: int, at: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    if key.moment < policy.down_from <= at:
        _lose_run(state, number, at)
        return
    spread(state.amounts[Amount.BUSY], 1, key.moment, at, 1.0)
    count_reads(state, number, at, is_final=False)
    count_wrong_reads(state, number, at)
    count(state, Count.COMMITS, at)
    if at < key.soft:
        count(state, Count.COMMITS_IN_TIME, at)
    lead = at - key.claimed
    record_lead(state, lead)
    sample = lead if key.reason != Count.MISS else at - key.moment  # a different queue from that of early ones
    key.delta = smoothed(float(key.delta), sample) if key.delta > 0 else sample
    key.soft = at + policy.ttl * (1 - policy.ttl_jitter * np.random.random())
    if policy.writes > 0:
        key.wrong = max(at, key.moment + np.random.exponential() / policy.writes)
    key.state = Phase.RESTING
    key.since = math.inf
    _schedule_read(state, number, at, read_rate(state, number, at))
    _release_worker(state, at + policy.turnaround)


@compiled_within
def _lose_run(state: State, number: int, at: float) -> None:
    """End a run whose worker was killed, having renewed the lease at every third of its length until then."""
    key, policy = state.keys[number], state.policy[0]
    third = policy.lease / 3
    spread(state.amounts[Amount.BUSY], 1, key.moment, policy.down_from, 1.0)
    renewed = key.moment + math.floor((policy.down_from - key.moment) / third) * third
    key.state = Phase.LOST
    schedule(state, number, max(at, renewed + policy.lease, key.soft) + _pause(state, number, at, _SILENCE))


@compiled_within
def _release_worker(state: State, at: float) -> None:
    if state.numbers[Number.ARE_DOWN] == 0:
        state.numbers[Number.FREE] += 1
        dispatch(state, at)
