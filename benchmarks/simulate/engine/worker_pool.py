"""Two queues of messages, misses first, and the workers that take them. A message is only a hint, so a key."""

from __future__ import annotations

from benchmarks.simulate.engine.compiled import compiled, compiled_within
from benchmarks.simulate.engine.event_queue import NO_KEY, schedule
from benchmarks.simulate.engine.state import Amount, Count, Number, Phase, Queue, State, count, spread


@compiled_within
def publish(state: State, number: int, at: float, has_waiter: bool, is_republish: bool) -> None:  # noqa: FBT001
    """Put a message into a queue.

    A repetition of a message that is still queued is only counted if memory would run out.
    """
    if is_republish:
        count(state, Count.AGAIN, at)
    queue = Queue.MISSES if has_waiter else Queue.OTHERS
    size, length = state.rings.shape[1], state.lengths[queue]
    if is_republish and length >= size - state.policy[0].keys:
        count(state, Count.FORGOTTEN, at)
        return
    if length == 0:
        state.heads[queue] = 0  # reuses the earlier memory
    state.rings[queue, (state.heads[queue] + length) % size] = number
    state.lengths[queue] = length + 1


@compiled
def dispatch(state: State, at: float) -> None:
    """Let idle workers take messages, until workers or messages run out."""
    numbers = state.numbers
    while numbers[Number.FREE] > 0 and numbers[Number.ARE_DOWN] == 0:
        number = _take(state)
        if number == NO_KEY:
            return
        numbers[Number.FREE] -= 1
        if state.keys[number].state == Phase.QUEUED:
            _start(state, number, at)
        else:
            _start_idle_message(state, at)


@compiled_within
def _take(state: State) -> int:
    queue = Queue.MISSES if state.lengths[Queue.MISSES] > 0 else Queue.OTHERS
    if state.lengths[queue] == 0:
        return NO_KEY
    head = state.heads[queue]
    state.heads[queue] = (head + 1) % state.rings.shape[1]
    state.lengths[queue] -= 1
    return int(state.rings[queue, head])


@compiled_within
def _start(state: State, number: int, at: float) -> None:
    key, policy = state.keys[number], state.policy[0]
    acquired = max(at, key.moment + policy.pickup)
    took = mean_load_seconds(state, number)
    if policy.slow_from <= acquired < policy.slow_until:
        took *= policy.slow_times
    key.state = Phase.RUNNING
    key.moment = acquired
    count(state, int(key.reason), acquired)
    schedule(state, number, acquired + took + policy.overhead)


@compiled_within
def _start_idle_message(state: State, at: float) -> None:
    """Let a worker look at the record of a key that was already refreshed or is being loaded, and be free again."""
    until = at + state.policy[0].idle_message
    spread(state.amounts[Amount.BUSY], 1, at, until, 1.0)
    occupy_worker(state, until)


@compiled_within
def occupy_worker(state: State, until: float) -> None:
    """Keep a worker, which is not free, busy until this time without changing a key."""
    slot = int(state.idle_slots[state.numbers[Number.IDLE_MESSAGES]])
    state.numbers[Number.IDLE_MESSAGES] += 1
    schedule(state, slot, until)


@compiled_within
def mean_load_seconds(state: State, number: int) -> float:
    """Return the average duration of a key's loads."""
    policy = state.policy[0]
    return float(policy.load * (policy.heavy_times if number % policy.heavy_every == 0 else 1.0))
