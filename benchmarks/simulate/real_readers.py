"""A process of readers of a real run: each thread reads at random moments (Poisson), keys by their popularity.

It gets a `Course` and an end of a pipe, says ``READY``, is told when to begin, and tells a `Seen` a thread.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from api_client import CacheClient, CacheError, Entry, EntryState, RefreshState
from benchmarks.places import Place
from benchmarks.simulate.real_queries import QUERY

READY: Final = "ready"
THREADS: Final = 8
"""A thread that waits for a value reads late for as long; with several, few reads are late."""


@dataclass(frozen=True, slots=True)
class Course:
    """What one process is to do. ``rates``: reads/s of each key, of this process alone; times in seconds."""

    place: Place
    rates: NDArray[np.float64]
    degrees: NDArray[np.int32]
    warm_up: float
    seconds: float
    seed: int


@dataclass(slots=True)
class Seen:
    """What a thread met after the warm-up. ``late`` are reads that began 50 ms after their moment or later.

    ``asked`` is of the whole time: which keys it asked for, and when (monotonic seconds).
    """

    reads: int = 0
    stale: int = 0
    waited: int = 0
    errors: int = 0
    late: int = 0
    asked: list[tuple[int, float]] = field(default_factory=list)


_LATE_SECONDS: Final = 0.05


def run_readers(pipe: Connection, course: Course) -> None:
    """Be a process of readers, once."""
    with CacheClient(course.place.settings(redis_timeout_seconds=5.0)) as client:
        pipe.send(READY)
        begins = float(pipe.recv())
        seen = [Seen() for _ in range(THREADS)]
        threads = [
            threading.Thread(target=_read, args=(client, course, begins, course.seed * THREADS + number, one))
            for number, one in enumerate(seen)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send(seen)


def params_of(number: int, degrees: NDArray[np.int32]) -> dict[str, object]:
    """Return the params of a key."""
    return {"number": number, "degree": int(degrees[number])}


def _read(client: CacheClient, course: Course, begins: float, seed: int, seen: Seen) -> None:
    rng = np.random.default_rng(seed)
    summed = np.cumsum(course.rates)
    pause = THREADS / float(summed[-1])
    at, ends = begins, begins + course.warm_up + course.seconds
    while (at := at + float(rng.exponential(pause))) < ends:
        number = min(int(np.searchsorted(summed, rng.random() * summed[-1], side="right")), len(summed) - 1)
        time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic()
        entry = _entry(client, params_of(number, course.degrees))
        if entry is not None and (entry.refresh is RefreshState.TRIGGERED or entry.state is EntryState.MISS):
            seen.asked.append((number, began))
        if at >= begins + course.warm_up:
            _note(seen, entry, began - at)


def _entry(client: CacheClient, params: dict[str, object]) -> Entry[Any] | None:
    try:
        return client.get_entry(QUERY, params)
    except CacheError:
        return None


def _note(seen: Seen, entry: Entry[Any] | None, late: float) -> None:
    seen.reads += 1
    seen.late += late >= _LATE_SECONDS
    seen.errors += entry is None
    if entry is not None:
        seen.stale += entry.state is EntryState.STALE
        seen.waited += entry.state is EntryState.MISS
