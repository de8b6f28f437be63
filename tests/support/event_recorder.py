"""Events of readers and workers, recorded in order."""

from __future__ import annotations

import threading

from api_client import ReaderEvents
from api_client.observe.events import ReadFailure
from api_client.protocol.messages import RefreshReason
from refresher.flow.ports import WorkerEvents


class EventRecorder(ReaderEvents):
    """``recorded``: the events by name, with the details that are the same in each run: no times. Thread-safe."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, ...]] = []
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> list[tuple[str, ...]]:
        """Return the details of each event of this name."""
        return [details for event, *details in list(self.recorded) if event == name]

    def count(self, event: str) -> int:
        """Return how many events begin with these words, as in ``"triggered: stale"``."""
        words = tuple(event.split(": "))
        return sum(recorded[: len(words)] == words for recorded in list(self.recorded))

    def _record(self, *event: str) -> None:
        with self._lock:
            self.recorded.append(event)

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        self._record("hit", "fresh" if ttl_remaining_seconds > 0 else "stale", "triggers" if triggered else "")

    def miss(self, query: str) -> None:
        self._record("miss")

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        self._record("followed")

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        self._record("unreadable", reason)

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        self._record("triggered", reason.value)

    def refresh_republished(self, query: str) -> None:
        self._record("republished")

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self._record("deduplicated", state)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        self._record("dropped", why)

    def trigger_failed(self, query: str, *, why: str) -> None:
        self._record("failed", why)

    def unavailable(self, query: str) -> None:
        self._record("unavailable")

    def tags_invalidated(self, *, hard: bool, entries: int, seconds: float) -> None:
        self._record("tags invalidated", "hard" if hard else "soft", str(entries))

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        self._record("read failed", why.value)


class WorkerEventRecorder(WorkerEvents):
    """``all``: a run's own events, without times and queries."""

    def __init__(self) -> None:
        self.all: list[tuple[object, ...]] = []

    def acquired(self, query: str) -> None:
        self.all.append(("acquired",))

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        self.all.append(("retried", kind, attempt))

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        self.all.append(("failed", kind, attempts))

    def rejected(self, query: str, *, why: str) -> None:
        self.all.append(("rejected", why))

    def ended(self, query: str) -> None:
        self.all.append(("ended",))
