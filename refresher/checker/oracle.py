"""Oracle, which checks readers' observations against the writer's changes.

The writer writes version V to the graph and calls `invalidate`, which returns generation G at time T. From then on
three guarantees of the cache are checked, over processes that share only the machine's monotonic clock:

- an entry with a token greater than G, whenever it was read, has version V or a later one, because its token shows that
  it was loaded after the invalidation;
- a read that began after T gets no entry with a smaller token as FRESH, and after a hard invalidation gets none at all;
- for one reader a key's token never decreases (each reader checks and reports this itself).

So no read that began after an invalidation gets an older version as fresh; as STALE it may get one, within the grace.
An invalidation of a tag has no G, since its number is not comparable with tokens, so only the version counts.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """Reads of one key that all got the same value. ``name`` is the param that identifies the key, or a tag.

    With ``fresh`` they got it as FRESH. ``last_began`` is the start of the last of them, in seconds of the machine's
    monotonic clock. ``allowed_seconds`` is the time for which their in-process tier may serve an invalidated value.
    """

    name: str
    token: int
    version: int
    fresh: bool
    last_began: float
    allowed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Invalidated:
    """A write of ``version`` and an invalidation after it, which returned at ``returned_at`` (monotonic, s).

    ``generation`` is 0 for an invalidation of a tag.
    """

    name: str
    version: int
    generation: int
    hard: bool
    returned_at: float


def contradiction(seen: Observation, done: Invalidated) -> str | None:
    """Return the guarantee of an invalidation that an observation violates, as text, or None if they agree."""
    is_after = seen.token > done.generation if done.generation else seen.version >= done.version
    which = f"invalidation {done.generation or f'for version {done.version}'}"
    if is_after:
        if seen.version >= done.version:
            return None
        return f"token {seen.token} is after {which}, but has version {seen.version} where {done.version} was written"
    late_seconds = seen.last_began - done.returned_at
    if late_seconds <= seen.allowed_seconds or not (seen.fresh or done.hard):
        return None
    how = "as fresh" if seen.fresh else "although it was gone"
    return f"token {seen.token} is from before {which}, and was read {late_seconds:.3f} s after it {how}"


class Checker:
    """Collects observations and invalidations in any order, and finds violations. Thread-safe.

    Args:
        query: the keys' query, for messages only.
    """

    def __init__(self, query: str) -> None:
        self.query: str = query
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, int, bool], Observation] = {}
        self._by_name: dict[str, list[Invalidated]] = defaultdict(list)
        self._broken: dict[str, None] = {}

    @property
    def broken(self) -> list[str]:
        """The violations as text, each once."""
        with self._lock:
            return list(self._broken)

    @property
    def invalidations(self) -> list[Invalidated]:
        """The writer's invalidations, by name, in order."""
        with self._lock:
            return [invalidated for of_name in self._by_name.values() for invalidated in of_name]

    @property
    def last(self) -> list[Invalidated]:
        """The last invalidation of each name."""
        with self._lock:
            return [of_name[-1] for of_name in self._by_name.values() if of_name]

    def report(self, sentence: str) -> None:
        """Record a violation that another part has found."""
        with self._lock:
            self._broken[sentence] = None

    def observe(self, observation: Observation) -> None:
        """Check an observation."""
        key = (observation.name, observation.token, observation.version, observation.fresh)
        with self._lock:
            known = self._seen.get(key)
            if known is None or known.last_began < observation.last_began:
                self._seen[key] = observation
                for invalidated in self._by_name[observation.name]:
                    self._judge(observation, invalidated)

    def invalidated(self, invalidated: Invalidated) -> None:
        """Check an invalidation."""
        with self._lock:
            self._by_name[invalidated.name].append(invalidated)
            for observation in self._seen.values():
                if observation.name == invalidated.name:
                    self._judge(observation, invalidated)

    def _judge(self, seen: Observation, done: Invalidated) -> None:
        why = contradiction(seen, done)
        if why is not None:
            self._broken[f"{self.query}({seen.name!r}): {why}"] = None
