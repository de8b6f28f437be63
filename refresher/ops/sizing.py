"""Workers and memory for a number of keys, from figures that `make bench ARGS='worker'` measured.

Orders of magnitude: they come from one machine with two cores, its broker Redis, events on, the graph beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

RUN_OVERHEAD_SECONDS: Final = 0.003
"""A run's time beside its load: acquire, transaction, commit."""
REFRESH_PROCESSOR_SECONDS: Final = 0.0045
"""A worker's processor time for a message with one refresh that is a point read: main process, pool process, driver."""
BATCHED_PROCESSOR_SECONDS: Final = 0.0004
"""The same for each refresh of a batch."""
MESSAGES_PER_SECOND: Final = 250
"""Of one worker: its main process passes each message on and reports its events. What one did on two cores."""
PEAKS: Final = 4 / 3
"""A third more than the mean, for peaks."""
WORKER_BYTES: Final = 80_000_000
PROCESS_BYTES: Final = 40_000_000
ENTRY_BYTES: Final = 200
"""Redis' own, key and header, beside the value."""
ALLOCATED: Final = 7 / 6
"""Most bytes that Redis' allocator takes for a byte of a value."""
KEYS_SPARE: Final = 1.2
"""For records, and for keys that were read before."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Needs of a number of keys.

    Attributes:
        refreshes_per_second: mean.
        messages_per_second: mean; a batch is one.
        loads_at_once: processes of all workers together, which is also the most that the graph sees at a time.
        workers: Celery workers, one main process each.
        processes_each: of a worker's pool.
        cores: processors that workers keep busy, beside the computing that loaders do.
        workers_bytes: memory of workers, beside what loaders use.
        cache_bytes: memory of the cache's Redis.
    """

    refreshes_per_second: float
    messages_per_second: float
    loads_at_once: int
    workers: int
    processes_each: int
    cores: float
    workers_bytes: int
    cache_bytes: int


def size(*, keys: int, ttl_seconds: float, load_seconds: float, batch: int = 1, value_bytes: int = 1_000) -> Sizing:
    """Return what it takes to keep keys fresh that are read at least once per TTL.

    Args:
        keys: that are in use: read within a TTL.
        ttl_seconds: each is loaded once in that time; a lead makes that a little sooner.
        load_seconds: one load; of a batch as a whole.
        batch: refreshes that one load does.
        value_bytes: of a value as it is stored, which may be compressed.
    """
    refreshes = keys / ttl_seconds
    messages = refreshes / batch
    loads_at_once = max(1, math.ceil(PEAKS * messages * (load_seconds + RUN_OVERHEAD_SECONDS)))
    workers = max(1, math.ceil(PEAKS * messages / MESSAGES_PER_SECOND))
    processes_each = math.ceil(loads_at_once / workers)
    return Sizing(
        refreshes_per_second=refreshes,
        messages_per_second=messages,
        loads_at_once=loads_at_once,
        workers=workers,
        processes_each=processes_each,
        cores=refreshes * (REFRESH_PROCESSOR_SECONDS if batch == 1 else BATCHED_PROCESSOR_SECONDS),
        workers_bytes=workers * (WORKER_BYTES + processes_each * PROCESS_BYTES),
        cache_bytes=round(keys * (ENTRY_BYTES + value_bytes * ALLOCATED) * KEYS_SPARE),
    )
