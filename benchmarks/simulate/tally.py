"""Counting. Reads between two events are not drawn: they are counted as expected, rate × time.

What goes on from one time to another at a constant rate is spread over the bins in between. The first and the last
one are written to at once (``partly``); for those between, the rate is noted where it begins and where it ends
(``wholly``), and `spread_out` sums it up in the end. So an outage of minutes costs a key no more than a millisecond.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from benchmarks.simulate.compiled import compiled_within
from benchmarks.simulate.records import (
    LEADS,
    PARTLY,
    STALE_READS,
    TIMED_OUT_READS,
    WAITING_READS,
    WHOLLY,
    Floats,
    State,
)

WAIT_BINS_A_SECOND: Final = 1_000
LEAD_BINS_A_DECADE: Final = 20
MIN_LEAD_SECONDS: Final = 1e-4
LEAD_BINS: Final = 160


@compiled_within
def spread(into: Floats, bins_a_second: int, begin: float, end: float, rate: float) -> None:
    """Count ``rate`` a second from ``begin`` to ``end``; what is beyond the bins is left out."""
    bins = into.shape[1]
    begin, end = max(begin, 0.0) * bins_a_second, min(end * bins_a_second, float(bins))
    if end <= begin:
        return
    rate /= bins_a_second
    first, last = int(begin), min(int(end), bins - 1)
    if first == last:
        into[PARTLY, first] += rate * (end - begin)
        return
    into[PARTLY, first] += rate * (first + 1 - begin)
    into[PARTLY, last] += rate * (end - last)
    into[WHOLLY, first + 1] += rate
    into[WHOLLY, last] -= rate


def spread_out(counted: Floats) -> Floats:
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
def note_lead(state: State, at: float, lead: float) -> None:
    """Note what a refresh took, from its claim to its commit."""
    add(state, LEADS, at, lead)
    place = int(math.log10(max(lead, MIN_LEAD_SECONDS) / MIN_LEAD_SECONDS) * LEAD_BINS_A_DECADE)
    state.leads[min(place, LEAD_BINS - 1)] += 1


@compiled_within
def count_reads(state: State, number: int, until: float, is_over: bool) -> None:  # noqa: FBT001
    """Count the reads of a key since the one that asked, until its entry is replaced, or the time is over.

    Up to the hard expiry they get the stale value, beyond it they wait, for as long as a read waits at most.
    """
    key, policy = state.keys[number], state.policy[0]
    hard, rate = key.soft + policy.grace, float(key.rate)
    spread(state.amounts[STALE_READS], 1, max(key.since, key.soft), min(until, hard), rate)
    begin = max(key.since, hard)
    if begin < until:
        spread(state.amounts[WAITING_READS], 1, begin, until, rate)
        # Who has waited for so long gives up then; who came later has the value.
        spread(state.amounts[TIMED_OUT_READS], 1, begin + policy.wait_timeout, until, rate)
        if not is_over:  # else nobody knows yet how long they will have waited
            longest = min(until - begin, policy.wait_timeout)
            spread(state.waits, WAIT_BINS_A_SECOND, 0.0, longest, rate)
    if key.since >= hard:
        _count_first(state, key.since, until, is_over)


@compiled_within
def _count_first(state: State, since: float, until: float, is_over: bool) -> None:  # noqa: FBT001
    """Count the read that asked, where it waits."""
    add(state, WAITING_READS, since, 1.0)
    waited, longest = until - since, state.policy[0].wait_timeout
    if waited >= longest:
        add(state, TIMED_OUT_READS, since + longest, 1.0)
    elif not is_over:
        bins = state.waits.shape[1]
        state.waits[PARTLY, min(int(waited * WAIT_BINS_A_SECOND), bins - 1)] += 1.0
