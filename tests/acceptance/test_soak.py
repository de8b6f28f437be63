"""A thousand reads a second: few recomputes, never two of one key at once, no error, nobody waits.

Sixty seconds in CI, fifteen at home; SOAK_SECONDS sets any other span.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

from api_client import CacheError, EntryState
from tests.acceptance.conftest import System
from tests.acceptance.test_main_job import Counted
from tests.support.requirements import is_set

READS_PER_SECOND = 1_000
THREADS = 4
KEYS = 40
TTL_SECONDS = 2.0


class Reader:
    """One of several threads that read at a steady rate, skewed: a few keys get most of the reads."""

    def __init__(self, system: System, seed: int) -> None:
        self.events = Counted()
        self.client = system.client(self.events)
        self.random = random.Random(seed)  # noqa: S311
        self.states: Counter[EntryState] = Counter()
        self.errors: list[str] = []
        self.longest_seconds = 0.0
        self.tokens: dict[str, int] = {}
        self.steps_back = 0

    def read_until(self, end: float) -> None:
        due = time.monotonic()
        pacer = threading.Event()
        while due < end:
            due += THREADS / READS_PER_SECOND
            pacer.wait(max(0.0, due - time.monotonic()))
            self.read(f"k{min(KEYS - 1, int(self.random.paretovariate(1.0)) - 1)}")

    def read(self, key: str) -> None:
        began = time.monotonic()
        try:
            entry = self.client.get_entry("watched", {"key": key})
        except CacheError as error:
            self.errors.append(repr(error))
            return
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        self.states[entry.state] += 1
        self.steps_back += entry.token < self.tokens.get(key, 0)
        self.tokens[key] = entry.token


def test_a_thousand_reads_a_second(system: System) -> None:
    span_seconds = float(os.environ.get("SOAK_SECONDS", "60" if is_set("CI") else "15"))
    system.start_worker()
    readers = [Reader(system, seed) for seed in range(THREADS)]
    for number in range(KEYS):
        readers[0].client.get("watched", {"key": f"k{number}"}, timeout=20)
    end = time.monotonic() + span_seconds
    threads = [threading.Thread(target=reader.read_until, args=(end,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(span_seconds + 60)

    states = sum((reader.states for reader in readers), Counter())
    reads = sum(states.values())
    recomputes = sum(system.loads(f"k{number}") for number in range(KEYS)) - KEYS
    print(  # noqa: T201 - the run's figures, shown with -rA or -s
        f"{reads} reads in {span_seconds:g} s, {dict(states)}, {recomputes} recomputes, "
        f"longest read {max(reader.longest_seconds for reader in readers) * 1e3:.1f} ms"
    )
    assert [error for reader in readers for error in reader.errors] == []
    assert sum(reader.steps_back for reader in readers) == 0
    assert states[EntryState.MISS] == 0
    assert reads >= 0.9 * READS_PER_SECOND * span_seconds
    assert system.control.get("overlaps") is None
    # A key is refreshed at most once in half of its TTL, since no refresh starts earlier.
    assert KEYS <= recomputes <= KEYS * (span_seconds / (TTL_SECONDS / 2) + 1)
