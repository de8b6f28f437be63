"""Oracle of a history: finds reads with a value older than a tag invalidation that had returned before they began."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Read:
    """Reads of one group that all got the same value; the last of them began at ``last_began`` (monotonic, s).

    ``allowed_seconds``: for how long after an invalidation the reader may serve the older value, since a message
    invalidates its in-process tier.
    """

    group: int
    versions: Mapping[str, int]
    fresh: bool
    last_began: float
    allowed_seconds: float


@dataclass(frozen=True, slots=True)
class Write:
    """A write of the nodes with these tags, and the outcome of its invalidation; times as above.

    ``kept``: a worker finishes it even if its invalidator dies. ``returned_at`` 0: it has not returned.
    """

    versions: Mapping[str, int]
    hard: bool
    kept: bool
    returned_at: float


@dataclass
class _Ruled:
    """Minimum versions of a node, by the time from which each holds: the return of its invalidation."""

    returned_at: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def version_at(self, began: float) -> int:
        place = bisect_left(self.returned_at, began)
        return self.versions[place - 1] if place else 0


class History:
    """What was written, and which reads contradict it.

    Args:
        writes: in the order in which their nodes were written.
        lost: begin and end of the span in which invalidations returned that Redis may have lost since.
    """

    def __init__(self, writes: Iterable[Write], lost: tuple[float, float]) -> None:
        self._ruled: dict[tuple[str, bool], _Ruled] = defaultdict(_Ruled)
        self._lost: dict[tuple[str, bool], _Ruled] = defaultdict(_Ruled)
        self._kept: dict[str, int] = {}
        for write in writes:
            is_lost = lost[0] <= write.returned_at <= lost[1]
            for node, version in write.versions.items():
                if write.kept and not is_lost:
                    self._kept[node] = version
                if write.returned_at:
                    ruled = (self._lost if is_lost else self._ruled)[node, write.hard]
                    ruled.returned_at.append(write.returned_at)
                    ruled.versions.append(version)

    def evaluate(self, read: Read) -> Literal["right", "wrong", "lost"]:
        """Evaluate a read against all invalidations; ``lost``: it contradicts only some that may have been lost."""
        if self._contradicts(read, self._ruled):
            return "wrong"
        return "lost" if self._contradicts(read, self._lost) else "right"

    def is_at_rest(self, versions: Mapping[str, Any]) -> bool:
        """Return whether a fresh value is no older than any kept invalidation of its nodes."""
        return all(version >= self._kept.get(node, 0) for node, version in versions.items())

    @staticmethod
    def _contradicts(read: Read, ruled: Mapping[tuple[str, bool], _Ruled]) -> bool:
        began = read.last_began - read.allowed_seconds
        return any(
            version < ruled[node, hard].version_at(began)
            for node, version in read.versions.items()
            for hard in (False, True)
            if (hard or read.fresh) and (node, hard) in ruled
        )
