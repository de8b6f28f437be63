"""What a reader told, in order."""

from __future__ import annotations

import threading

from api_client import ReaderEvents
from api_client.observe.events import ReadFailure
from api_client.protocol.messages import RefreshReason


class RecordedEvents(ReaderEvents):
    """``told``: the events by name, with what stays the same from run to run: no times. Thread-safe."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> list[tuple[str, ...]]:
        """What was told of one event: the rest of each."""
        return [details for told, *details in list(self.told) if told == name]

    def _tell(self, *told: str) -> None:
        with self._lock:
            self.told.append(told)

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        self._tell("hit", "fresh" if ttl_remaining_seconds > 0 else "stale", "triggers" if triggered else "")

    def miss(self, query: str) -> None:
        self._tell("miss")

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        self._tell("followed")

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        self._tell("unreadable", reason)

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        self._tell("triggered", reason.value)

    def refresh_republished(self, query: str) -> None:
        self._tell("republished")

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self._tell("deduplicated", state)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        self._tell("dropped", why)

    def trigger_failed(self, query: str, *, why: str) -> None:
        self._tell("failed", why)

    def unavailable(self, query: str) -> None:
        self._tell("unavailable")

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        self._tell("read failed", why.value)
