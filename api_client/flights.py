"""Single flight: in one process, all who miss one key share one wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from api_client.errors import WaitTimeout
from api_client.gate import Gate

ReadBegins: TypeAlias = Callable[[], None]
Lead: TypeAlias = Callable[[float, ReadBegins], bytes]
"""Waits for the entry, for so many seconds at most, and says before each read that it begins."""


@dataclass(slots=True)
class _Flight:
    done: Gate = field(default_factory=Gate)
    read_began_at: float = 0.0
    raw: bytes | None = None
    error: Exception | None = None


class Flights:
    """The waits under way, by entry key. Followers share the leader's bytes, never a decoded value."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}

    def share(self, entry_key: str, timeout_seconds: float, lead: Lead) -> tuple[bytes, bool]:
        """Return the entry's bytes, and whether this caller was a follower.

        The first caller leads. The others wait for it, each for as long as its own timeout; when the leader's runs out
        before theirs, one of them leads on. A follower takes only what was read after it came: bytes that were under
        way already could be from before an invalidation that it knows of.

        Raises:
            TimeoutError: a follower's own time ran out first.
            Exception: what ``lead`` raised, for the leader and all its followers.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        while True:
            with self._lock:
                flight = self._flights.get(entry_key)
                leads = flight is None
                if flight is None:
                    flight = self._flights[entry_key] = _Flight()
            if leads:
                return self._lead(entry_key, flight, deadline - self._monotonic(), lead), False
            if not flight.done.wait(max(0.0, deadline - self._monotonic())):
                raise TimeoutError
            if flight.raw is not None and flight.read_began_at >= came_at:
                return flight.raw, True
            if flight.error is not None and not isinstance(flight.error, WaitTimeout):
                raise flight.error
            if self._monotonic() >= deadline:
                raise TimeoutError

    def _lead(self, entry_key: str, flight: _Flight, timeout_seconds: float, lead: Lead) -> bytes:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        try:
            flight.raw = lead(timeout_seconds, read_begins)
        except Exception as error:
            flight.error = error
            raise
        else:
            return flight.raw
        finally:
            # Gone before it is done: whoever comes now looks at the entry for itself.
            with self._lock:
                del self._flights[entry_key]
            flight.done.open()
