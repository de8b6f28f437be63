"""Log of this process's last decision on each key, and its outcome: for `explain`. In memory, bounded, cheap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.model import RefreshState
from api_client.threads import Mutex

MAX_KEYS: Final = 5_000


class TriggerOutcome(StrEnum):
    """Outcome of a trigger."""

    PUBLISHED = "published"
    REPUBLISHED = "published again"
    DEDUPLICATED = "deduplicated"
    DROPPED = "dropped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LastTrigger:
    """Outcome of a key's last trigger.

    ``why`` is the state of the record (deduplicated), what it was dropped for, or the type of the error.
    """

    what: TriggerOutcome
    why: str
    ago_seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A read of this process: when (µs of Redis' clock), its draw, and what it did about a refresh."""

    at_us: int
    u: float
    refresh: RefreshState


class DecisionLog:
    """The last decision of this process on each of the keys read last, and the last outcome of a trigger.

    Thread-safe. Two generations bound it: when the young one is full it becomes the old one, and the old one is
    dropped; so between ``max_keys`` and twice as many keys are remembered, and recording one is one assignment.
    """

    def __init__(self, *, max_keys: int = MAX_KEYS, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._max_keys, self._monotonic = max_keys, monotonic
        self._young: dict[str, tuple[int, float, RefreshState]] = {}
        self._old: dict[str, tuple[int, float, RefreshState]] = {}
        self._outcomes: dict[str, tuple[TriggerOutcome, str, float]] = {}
        self._lock = Mutex()

    def record(self, entry_key: str, now_us: int, u: float, refresh: RefreshState) -> None:
        """Record a decision; every read comes here, so there is no lock and no object but a tuple."""
        young = self._young
        young[entry_key] = (now_us, u, refresh)
        if len(young) > self._max_keys:
            self._rotate()

    def record_outcome(self, entry_key: str, what: TriggerOutcome, why: str = "") -> None:
        """Record the outcome of a trigger."""
        outcomes = self._outcomes
        with self._lock:
            outcomes.pop(entry_key, None)
            outcomes[entry_key] = (what, why, self._monotonic())
            while len(outcomes) > self._max_keys:
                del outcomes[next(iter(outcomes))]

    def last(self, entry_key: str) -> Decision | None:
        """Return the last decision on the key, None where none is remembered."""
        decided = self._young.get(entry_key) or self._old.get(entry_key)
        return None if decided is None else Decision(*decided)

    def outcome(self, entry_key: str) -> LastTrigger | None:
        """Return the outcome of the key's last trigger, None where none is remembered."""
        recorded = self._outcomes.get(entry_key)
        if recorded is None:
            return None
        what, why, at_seconds = recorded
        return LastTrigger(what, why, max(0.0, self._monotonic() - at_seconds))

    def _rotate(self) -> None:
        with self._lock:
            # Another thread may have been here meanwhile: the generation that it has just begun is not thrown away.
            if len(self._young) > self._max_keys:
                self._old, self._young = self._young, {}
