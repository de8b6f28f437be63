"""State of the simulation: arrays that compiled functions read and write; counting. Times in seconds.

A key takes 56 bytes; ten million of them, 560 MB. Arrays that may be needed whole but
seldom are (the heap, the queues) are not written to before they are, so that the system need not find memory for them.
Reads between two events are not drawn: they are counted as expected, rate × time. What goes on at a constant rate is
spread over the bins in between: the first and the last at once (``partly``); for those between, the rate is recorded
where it begins and where it ends (``wholly``), and `cumulate` sums it up.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulate.compiled import compiled_within

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Records: TypeAlias = NDArray[Any]

# Of a key.
RESTING: Final = 0
QUEUED: Final = 1
RUNNING: Final = 2
LOST: Final = 3
"""Its worker was killed, and its lease has not run out."""

# Why a refresh was triggered.
EARLY: Final = 0
STALE: Final = 1
MISS: Final = 2

# Counted in each second: loads by reason, then these.
PUBLISHED: Final = 3
AGAIN: Final = 4
DROPPED: Final = 5
IDLE_MESSAGES: Final = 6
LOST_RUNS: Final = 7
COMMITS: Final = 8
COMMITS_IN_TIME: Final = 9
FORGOTTEN: Final = 10
COUNTERS: Final = 11

# Amounts spread over time, as expected: reads, or seconds of workers.
STALE_READS: Final = 0
WAITING_READS: Final = 1
TIMED_OUT_READS: Final = 2
BUSY: Final = 3
LEADS: Final = 4
AMOUNTS: Final = 5

# Single numbers.
FREE: Final = 0
ARE_DOWN: Final = 1
HEAP: Final = 2
HEADS: Final = 3
"""And the next one: of the queue of misses, of all others."""
LENGTHS: Final = 5
IDLE_MESSAGES_NOW: Final = 7
NUMBERS: Final = 8

# Known to a process of readers: length and until when that holds, of the queue of misses, of all others; then these.
WINDOW: Final = 4
LONG_SINCE: Final = 5
POLLED_AT: Final = 6
USUAL: Final = 7
"""The logarithm of what a load usually takes; NaN: not known yet."""
KNOWN: Final = 8


KEY: Final = np.dtype(
    [
        ("soft", np.float64),  # the soft expiry; a grace later there is no entry any more
        ("claimed", np.float64),
        ("moment", np.float64),  # of the last publication; while it runs, of the acquire
        (
            "since",
            np.float64,
        ),  # the first read that triggered, from which on reads are counted; inf: nothing is under way
        ("due", np.float64),  # its event; inf: none
        ("rate", np.float32),  # reads/s
        ("beta", np.float32),
        ("delta", np.float32),
        ("state", np.uint8),
        ("reason", np.uint8),
        ("times", np.uint8),  # how often it was published again
        ("lasts", np.uint8),  # how many times its shortest time its claim holds
    ],
    align=True,
)

EVENT: Final = np.dtype([("at", np.float64), ("key", np.int64)])

# The settings of readers and workers, as `Model` explains them.
POLICY: Final = np.dtype(
    [
        (name, np.float64)
        for name in (
            "ttl", "ttl_jitter", "grace", "queue_ttl", "wait_timeout", "load", "load_spread", "claim", "overhead",
            "turnaround", "idle_message", "lease", "slow_from", "slow_until", "slow_times", "down_from",
            "spike_from", "spike_until", "spike_times", "mute_from", "mute_until", "overloaded_after", "heavy_times",
        )
    ]
    + [(name, np.int64) for name in ("readers", "queue_size", "keys", "heavy_every", "weighs_loads")]
)  # fmt: skip

PARTLY: Final = 0
WHOLLY: Final = 1


class State(NamedTuple):
    """All of it.

    Attributes:
        policy: one `POLICY`.
        keys: of `KEY`; behind the keys, a place for each worker that looks at a message in vain.
        numbers: single ones, see above.
        heap: of `EVENT`.
        rings: two queues of keys: misses, and all others.
        known: what each reader's process knows of the queues, see above.
        counters: by what and second.
        amounts: by what, `PARTLY` or `WHOLLY`, and second; see `tally`.
        waits: reads by how long they waited, in the same way.
        leads: commits by their lead time.
        idle_slots: those behind the keys; the first `IDLE_MESSAGES_NOW` of them are taken.
        pickups: from claim to acquire when a worker is idle, by second.
    """

    policy: Records
    keys: Records
    numbers: Ints
    heap: Records
    rings: NDArray[np.int32]
    known: Floats
    counters: Ints
    amounts: Floats
    waits: Floats
    leads: Ints
    idle_slots: Ints
    pickups: Floats


WAIT_BINS_PER_SECOND: Final = 1_000
LEAD_BINS_PER_DECADE: Final = 20
MIN_LEAD_SECONDS: Final = 1e-4
LEAD_BINS: Final = 160


@compiled_within
def spread(into: Floats, bins_per_second: int, begin: float, end: float, rate: float) -> None:
    """Count ``rate`` a second from ``begin`` to ``end``; what is beyond the bins is left out."""
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
    """Return what was counted in each bin; the last two axes are ``partly`` and ``wholly``, and the bins."""
    return np.asarray(counted[..., PARTLY, :] + np.cumsum(counted[..., WHOLLY, :], axis=-1))


@compiled_within
def count(state: State, what: int, at: float) -> None:
    """Count one in the second of ``at``."""
    state.counters[what, min(int(at), state.counters.shape[1] - 1)] += 1


@compiled_within
def add(state: State, what: int, at: float, amount: float) -> None:
    """Add an amount in the second of ``at``."""
    state.amounts[what, PARTLY, min(int(at), state.amounts.shape[2] - 1)] += amount


@compiled_within
def record_lead(state: State, at: float, lead: float) -> None:
    """Note what a refresh took, from its claim to its commit."""
    add(state, LEADS, at, lead)
    slot = int(math.log10(max(lead, MIN_LEAD_SECONDS) / MIN_LEAD_SECONDS) * LEAD_BINS_PER_DECADE)
    state.leads[min(slot, LEAD_BINS - 1)] += 1


@compiled_within
def count_reads(state: State, number: int, until: float, is_final: bool) -> None:  # noqa: FBT001
    """Count the reads of a key since the one that triggered, until its entry is replaced, or the time is over.

    Up to the hard expiry they get the stale value, beyond it they wait, for as long as a read waits at most.
    """
    key, policy = state.keys[number], state.policy[0]
    hard, rate, longest = key.soft + policy.grace, float(key.rate), policy.wait_timeout
    _spread_reads(state, STALE_READS, max(key.since, key.soft), min(until, hard), rate, 0.0)
    begin = max(key.since, hard)
    if begin < until:
        _spread_reads(state, WAITING_READS, begin, until, rate, 0.0)
        # Who has waited for so long gives up then; who came later has the value.
        _spread_reads(state, TIMED_OUT_READS, begin + longest, until, rate, longest)
        if not is_final:  # else nobody knows yet how long they will have waited
            spread(state.waits, WAIT_BINS_PER_SECOND, 0.0, min(until - begin, longest), rate)
            last, first = min(until, policy.spike_until), max(begin, policy.spike_from)
            more = rate * (policy.spike_times - 1)
            spread(state.waits, WAIT_BINS_PER_SECOND, until - last, min(until - first, longest), more)
    if key.since >= hard:
        _count_first_read(state, key.since, until, is_final)


@compiled_within
def read_rate(state: State, number: int, at: float) -> float:
    """Return how often a key is read at this moment, per second."""
    policy = state.policy[0]
    rate = float(state.keys[number].rate)
    return rate * policy.spike_times if policy.spike_from <= at < policy.spike_until else rate


@compiled_within
def _spread_reads(state: State, what: int, begin: float, end: float, rate: float, delay: float) -> None:
    """Count reads that came ``delay`` before, in a spike more of them."""
    policy = state.policy[0]
    spread(state.amounts[what], 1, begin, end, rate)
    first, last = max(begin, policy.spike_from + delay), min(end, policy.spike_until + delay)
    spread(state.amounts[what], 1, first, last, rate * (policy.spike_times - 1))


@compiled_within
def _count_first_read(state: State, since: float, until: float, is_final: bool) -> None:  # noqa: FBT001
    """Count the read that triggered, where it waits."""
    add(state, WAITING_READS, since, 1.0)
    waited, longest = until - since, state.policy[0].wait_timeout
    if waited >= longest:
        add(state, TIMED_OUT_READS, since + longest, 1.0)
    elif not is_final:
        bins = state.waits.shape[1]
        state.waits[PARTLY, min(int(waited * WAIT_BINS_PER_SECOND), bins - 1)] += 1.0
