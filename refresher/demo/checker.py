"""Holds what the readers saw against what the writer did: the reason why the demo's exit code can be trusted.

Three promises of the cache are checked, over processes that share nothing but the machine's monotonic clock:

- a value that says it was read after an invalidation (its token is greater than the generation) has the version that
  was written before it;
- a read that began after an invalidation had returned gets nothing older as fresh, and after a hard one nothing older
  at all;
- to one reader a key's token never goes back (each reader watches this itself and reports it).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """Reads of one profile that all got the same value.

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
    """Collects observations and invalidations in any order, and the sentences about what must not be. Thread-safe."""

    def __init__(self) -> None:
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
                    f"a value of profile({seen.name!r}) says it was read after invalidation {done.generation}, "
                    f"but has version {seen.version} where {done.version} had been written"
                ] = None
            return
        if seen.last_began <= done.returned_at or not (seen.fresh or done.hard):
            return
        how = "as fresh" if seen.fresh else "although it was gone"
        self._broken[
            f"a read of profile({seen.name!r}) that began {seen.last_began - done.returned_at:.3f} s after "
            f"invalidation {done.generation} got the value {seen.token} from before it {how}"
        ] = None
