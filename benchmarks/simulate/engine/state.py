"""State of the simulation, as arrays for compiled functions, and counting. Times in seconds.

A key takes 64 bytes, ten million keys 640 MB. Arrays that are seldom needed whole (the heap, the queues) are not
written to before that, so that the system does not have to find memory for them. Reads between two events are not drawn
but counted as expected, rate × time. An amount at a constant rate is spread over its bins: directly in the first and
the last (`PARTLY`); for the bins between, the rate is recorded where it begins and where it ends (`WHOLLY`), and
`cumulate` sums it up.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulate.engine.compiled import compiled_within

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Records: TypeAlias = NDArray[Any]


class Phase(IntEnum):
    """Phase of a key; LOST means that its worker was killed, and its lease has not expired."""

    RESTING = 0
    QUEUED = 1
    RUNNING = 2
    LOST = 3


class Count(IntEnum):
    """Events that are counted by second; the first three are loads, by their reason."""

    EARLY = 0
    STALE = 1
    MISS = 2
    AGAIN = 3
    DROPPED = 4
    COMMITS = 5
    COMMITS_IN_TIME = 6
    FORGOTTEN = 7


class Amount(IntEnum):
    """Expected amounts spread over time: reads, and seconds of workers."""

    STALE_READS = 0
    WAITING_READS = 1
    TIMED_OUT_READS = 2
    BUSY = 3
    WRONG_READS = 4


class Queue(IntEnum):
    """Queues of messages."""

    MISSES = 0
    OTHERS = 1


class Number(IntEnum):
    """Single numbers: free workers, whether all are down, events in the heap, messages without work in progress."""

    FREE = 0
    ARE_DOWN = 1
    HEAP = 2
    IDLE_MESSAGES = 3


class Known(IntEnum):
    """Knowledge of a reader process; before these come, for each queue, its length and how long that is valid."""

    WINDOW = 4
    LONG_SINCE = 5
    POLLED_AT = 6
    USUAL = 7  # the logarithm of a load's usual duration; NaN: not known yet


KEY: Final = np.dtype(
    [
        ("soft", np.float64),  # the soft expiry; a grace later there is no entry any more
        ("claimed", np.float64),
        ("wrong", np.float64),  # when the loaded value is overwritten; inf: never
        ("moment", np.float64),  # of the last publication; while it runs, of the acquire
        ("since", np.float64),  # the first read that triggered, which starts the count of reads; inf: none has
        ("due", np.float64),  # its event; inf: none
        ("rate", np.float32),  # reads/s
        ("beta", np.float32),
        ("delta", np.float32),
        ("state", np.uint8),
        ("reason", np.uint8),
        ("times", np.uint8),  # how often it was published again
        ("lasts", np.uint8),  # its claim's life as a multiple of the shortest
    ],
    align=True,
)
EVENT: Final = np.dtype([("at", np.float64), ("key", np.int64)])
POLICY: Final = np.dtype(
    [
        (name, np.float64)
        for name in (
            "ttl", "ttl_jitter", "grace", "queue_ttl", "wait_timeout", "load", "claim", "pickup",
            "overhead", "turnaround", "idle_message", "lease", "slow_from", "slow_until", "slow_times", "down_from",
            "spike_from", "spike_until", "spike_times", "mute_from", "mute_until", "overloaded_after", "heavy_times",
            "writes", "noticed_after",
        )
    ]
    + [(name, np.int64) for name in ("readers", "queue_size", "keys", "heavy_every", "weighs_loads")]
)  # fmt: skip
"""Settings of readers and workers, explained in `Model`."""

PARTLY: Final = 0
WHOLLY: Final = 1


class State(NamedTuple):
    """The whole state.

    Attributes:
        policy: one `POLICY`.
        keys: the keys, as `KEY`, followed by a place for each worker that looks at a message in vain.
        numbers: single numbers, by `Number`.
        heap: the heap, of `EVENT`.
        rings: the two queues, of keys.
        heads, lengths: the head and length of each queue.
        known: knowledge, by `Known` and reader process.
        counters: counts, by `Count` and second.
        amounts: amounts, by `Amount`, `PARTLY` or `WHOLLY`, and second; see `cumulate`.
        waits: reads by their wait, in the same form.
        leads: commits by their lead time.
        idle_slots: the places after the keys, of which the first `Number.IDLE_MESSAGES` are taken.
    """

    policy: Records
    keys: Records
    numbers: Ints
    heap: Records
    rings: NDArray[np.int32]
    heads: Ints
    lengths: Ints
    known: Floats
    counters: Ints
    amounts: Floats
    waits: Floats
    leads: Ints
    idle_slots: Ints


WAIT_BINS_PER_SECOND: Final = 1_000
LEAD_BINS_PER_DECADE: Final = 20
MIN_LEAD_SECONDS: Final = 1e-4
LEAD_BINS: Final = 160


@compiled_within
def spread(into: Floats, bins_per_second: int, begin: float, end: float, rate: float) -> None:
    """Count ``rate`` per second from ``begin`` to ``end``, ignoring what lies beyond the bins."""
    bins = into.shape[1]
    begin, end = max(begin, 0.0) * bins_per_second, min(end * bins_per_second, float(bins))
    if end <= begin:
        return
    rate /= bins_per_second
    first, last = int(begin), min(int(end), bins - 1)
    if first == last:
        into[PARTLY, first] += rate * (end - begin)
        return
    into[PARTLY, first] += rate * (first + 1 - begin)
    into[PARTLY, last] += rate * (end - last)
    into[WHOLLY, first + 1] += rate
    into[WHOLLY, last] -= rate


def cumulate(counted: Floats) -> Floats:
    """Return the count of each bin; the last two axes are ``partly`` and ``wholly``, and the bins."""
    return np.asarray(counted[..., PARTLY, :] + np.cumsum(counted[..., WHOLLY, :], axis=-1))


@compiled_within
def count(state: State, what: int, at: float) -> None:
    """Count an event in the second of ``at``."""
    state.counters[what, min(int(at), state.counters.shape[1] - 1)] += 1


@compiled_within
def add(state: State, what: int, at: float, amount: float) -> None:
    """Add an amount in the second of ``at``."""
    state.amounts[what, PARTLY, min(int(at), state.amounts.shape[2] - 1)] += amount


@compiled_within
def record_lead(state: State, lead: float) -> None:
    """Count a refresh by its time from claim to commit."""
    slot = int(math.log10(max(lead, MIN_LEAD_SECONDS) / MIN_LEAD_SECONDS) * LEAD_BINS_PER_DECADE)
    state.leads[min(slot, LEAD_BINS - 1)] += 1


@compiled_within
def count_reads(state: State, number: int, until: float, is_final: bool) -> None:  # noqa: FBT001
    """Count the reads of a key since the one that triggered, until its entry is replaced or the time is over.

    Up to the hard expiry they get the stale value; beyond it they wait, up to the longest wait of a read.
    """
    key, policy = state.keys[number], state.policy[0]
    hard, rate, longest = key.soft + policy.grace, float(key.rate), policy.wait_timeout
    _spread_reads(state, Amount.STALE_READS, max(key.since, key.soft), min(until, hard), rate, 0.0)
    begin = max(key.since, hard)
    if begin < until:
        _spread_reads(state, Amount.WAITING_READS, begin, until, rate, 0.0)
        # Reads that have waited for this long give up; later ones get the value.
        _spread_reads(state, Amount.TIMED_OUT_READS, begin + longest, until, rate, longest)
        if not is_final:  # otherwise their waits are not known yet
            spread(state.waits, WAIT_BINS_PER_SECOND, 0.0, min(until - begin, longest), rate)
            last, first = min(until, policy.spike_until), max(begin, policy.spike_from)
            more = rate * (policy.spike_times - 1)
            spread(state.waits, WAIT_BINS_PER_SECOND, until - last, min(until - first, longest), more)
    if key.since >= hard:
        _count_first_read(state, key.since, until, is_final)


@compiled_within
def count_wrong_reads(state: State, number: int, until: float) -> None:
    """Count the reads that got an overwritten value, until its entry is replaced.

    There are none between the soft expiry and the read that triggers.
    """
    key, rate = state.keys[number], float(state.keys[number].rate)
    until = min(until, key.soft + state.policy[0].grace)
    begin = key.wrong
    if key.since > key.soft:
        _spread_reads(state, Amount.WRONG_READS, begin, min(until, key.soft), rate, 0.0)
        if begin <= key.since < until:
            add(state, Amount.WRONG_READS, key.since, 1.0)
        begin = max(begin, key.since)
    _spread_reads(state, Amount.WRONG_READS, begin, until, rate, 0.0)


@compiled_within
def read_rate(state: State, number: int, at: float) -> float:
    """Return a key's present reads per second."""
    policy = state.policy[0]
    rate = float(state.keys[number].rate)
    return rate * policy.spike_times if policy.spike_from <= at < policy.spike_until else rate


@compiled_within
def _spread_reads(state: State, what: int, begin: float, end: float, rate: float, delay: float) -> None:
    """Count reads that came ``delay`` earlier, and more of them in a spike."""
    policy = state.policy[0]
    spread(state.amounts[what], 1, begin, end, rate)
    first, last = max(begin, policy.spike_from + delay), min(end, policy.spike_until + delay)
    spread(state.amounts[what], 1, first, last, rate * (policy.spike_times - 1))


@compiled_within
def _count_first_read(state: State, since: float, until: float, is_final: bool) -> None:  # noqa: FBT001
    """Count the read that triggered, if it waits."""
    add(state, Amount.WAITING_READS, since, 1.0)
    waited, longest = until - since, state.policy[0].wait_timeout
    if waited >= longest:
        add(state, Amount.TIMED_OUT_READS, since + longest, 1.0)
    elif not is_final:
        bins = state.waits.shape[1]
        state.waits[PARTLY, min(int(waited * WAIT_BINS_PER_SECOND), bins - 1)] += 1.0
