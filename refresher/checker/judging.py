"""Holds what readers saw against what the writer did: the reason why an exit code can be trusted.

The writer writes version V to the graph, calls `invalidate`, and that returns generation G at time T. From then on
three promises of the cache are checked, over processes that share nothing but the machine's monotonic clock:

- an entry with a token greater than G, whenever it was read, has version V or a later one: it says that it was loaded
  after the invalidation;
- a read that began after T gets no entry with a smaller token as FRESH, and after a hard invalidation gets none at all;
- to one reader a key's token never goes back (each reader watches this itself and reports it).

So no read that began after an invalidation is told that an older version is fresh. One that is told STALE may get an
older version, within the grace: that is no fault.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """Reads of one key that all got the same value. ``name`` is the param by which the key is known.

    ``fresh`` tells whether they were told that it is; ``last_began`` is when the last of them began, in seconds of
    the machine's monotonic clock.
    """

    name: str
    token: int
    version: int
    fresh: bool
    last_began: float


@dataclass(frozen=True, slots=True)
class Invalidated:
    """The writer wrote ``version``, and invalidated after it; the call returned at ``returned_at`` (monotonic, s)."""

    name: str
    version: int
    generation: int
    hard: bool
    returned_at: float


class Checker:
    """Collects observations and invalidations in any order, and the sentences about what must not be. Thread-safe.

    Args:
        query: whose keys they are of; for the sentences alone.
    """

    def __init__(self, query: str) -> None:
        self.query: str = query
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, int, bool], Observation] = {}
        self._by_name: dict[str, list[Invalidated]] = defaultdict(list)
        self._broken: dict[str, None] = {}

    @property
    def broken(self) -> list[str]:
        """What is broken, in words; each thing once."""
        with self._lock:
            return list(self._broken)

    @property
    def invalidations(self) -> list[Invalidated]:
        """What the writer did, the last one of each name at the end of its name's own."""
        with self._lock:
            return [invalidated for of_name in self._by_name.values() for invalidated in of_name]

    @property
    def last(self) -> list[Invalidated]:
        """The last invalidation of each name."""
        with self._lock:
            return [of_name[-1] for of_name in self._by_name.values() if of_name]

    def report(self, sentence: str) -> None:
        """Note something broken that somebody else found."""
        with self._lock:
            self._broken[sentence] = None

    def observe(self, observation: Observation) -> None:
        """Take in what readers saw."""
        key = (observation.name, observation.token, observation.version, observation.fresh)
        with self._lock:
            known = self._seen.get(key)
            if known is None or known.last_began < observation.last_began:
                self._seen[key] = observation
                for invalidated in self._by_name[observation.name]:
                    self._judge(observation, invalidated)

    def invalidated(self, invalidated: Invalidated) -> None:
        """Take in what the writer did."""
        with self._lock:
            self._by_name[invalidated.name].append(invalidated)
            for observation in self._seen.values():
                if observation.name == invalidated.name:
                    self._judge(observation, invalidated)

    def _judge(self, seen: Observation, done: Invalidated) -> None:
        if seen.token > done.generation:
            if seen.version < done.version:
                self._broken[
                    f"a value of {self.query}({seen.name!r}) says it was read after invalidation {done.generation}, "
                    f"but has version {seen.version} where {done.version} had been written"
                ] = None
            return
        if seen.last_began <= done.returned_at or not (seen.fresh or done.hard):
            return
        how = "as fresh" if seen.fresh else "although it was gone"
        self._broken[
            f"a read of {self.query}({seen.name!r}) that began {seen.last_began - done.returned_at:.3f} s after "
            f"invalidation {done.generation} got the value {seen.token} from before it {how}"
        ] = None
