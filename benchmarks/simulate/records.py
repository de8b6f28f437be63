"""What the simulation knows: arrays that compiled functions read and write. Times in seconds.

A key takes 64 bytes, a line of the processor's cache; ten million of them, 640 MB. Arrays that may be needed whole but
seldom are (the heap, the queues) are not written to before they are, so that the system need not find memory for them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Records: TypeAlias = NDArray[Any]

# Of a key.
RESTING: Final = 0
QUEUED: Final = 1
RUNNING: Final = 2
LOST: Final = 3
"""Its worker was killed, and its lease has not run out."""

# Why a refresh was asked for.
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
CURRENT: Final = 3
HEADS: Final = 4
"""And the next one: of the queue of misses, of all others."""
LENGTHS: Final = 6
GLANCES: Final = 8
NUMBERS: Final = 9


KEY: Final = np.dtype(
    [
        ("soft", np.float64),  # the soft expiry; a grace later there is no entry any more
        ("claimed", np.float64),
        ("moment", np.float64),  # of the last publication; while it runs, of the acquire
        ("since", np.float64),  # the first read that asked, from which on reads are counted; inf: nothing is under way
        ("due", np.float64),  # its event; inf: none
        ("before", np.int32),  # its neighbours in the agenda
        ("after", np.int32),
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

# The settings of readers and workers, as `World` explains them.
POLICY: Final = np.dtype(
    [
        (name, np.float64)
        for name in (
            "ttl", "grace", "queue_ttl", "wait_timeout", "load", "load_spread", "claim", "overhead",
            "turnaround", "idle_message", "lease", "slow_from", "slow_until", "slow_times", "down_from",
        )
    ]
    + [(name, np.int64) for name in ("digits", "readers", "queue_size", "keys")]
)  # fmt: skip

PARTLY: Final = 0
WHOLLY: Final = 1


class State(NamedTuple):
    """All of it.

    Attributes:
        policy: one `POLICY`.
        keys: of `KEY`; behind the keys, a place for each worker that looks at a message in vain.
        numbers: single ones, see above.
        heads: the first key of each list of the agenda.
        heap: of `EVENT`.
        rings: two queues of keys: misses, and all others.
        known: what each reader's process believes of the length of either queue, and until when.
        counters: by what and second.
        amounts: by what, `PARTLY` or `WHOLLY`, and second; see `tally`.
        waits: reads by how long they waited, in the same way.
        leads: commits by their lead time.
        places: those behind the keys; the first `GLANCES` of them are taken.
        pickups: from claim to acquire when a worker is idle, by second.
    """

    policy: Records
    keys: Records
    numbers: Ints
    heads: NDArray[np.int32]
    heap: Records
    rings: NDArray[np.int32]
    known: Floats
    counters: Ints
    amounts: Floats
    waits: Floats
    leads: Ints
    places: Ints
    pickups: Floats
