"""Single flight: in one process, all who miss one key share one wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final, TypeAlias

from api_client.errors import CacheError, WaitTimeout, twin
from api_client.threads import Waker

ReadBegins: TypeAlias = Callable[[], None]
Lead: TypeAlias = Callable[[float, ReadBegins], bytes]
"""Waits for the entry, for so many seconds at most, and says before each read that it begins."""

OVERRUN_SECONDS: Final = 1.0


class _Flight:
    """One wait: its leader's thread, when the leader's time is over, what came of it, and what wakes the followers."""

    __slots__ = ("ends_at", "error", "is_over", "leader", "raw", "read_began_at", "waiting")

    def __init__(self, ends_at: float) -> None:
        self.leader = get_ident()
        self.ends_at = ends_at
        self.read_began_at = 0.0
        self.raw: bytes | None = None
        self.error: CacheError | None = None
        self.is_over = False
        self.waiting: list[Waker] = []

    def wait(self, timeout_seconds: float) -> None:
        """Return when it is over, or the time is."""
        waker = Waker()
        self.waiting.append(waker)
        if not self.is_over:
            waker.wait(timeout_seconds)


class SingleFlight:
    """The waits under way, by entry key. Followers share the leader's bytes, never a decoded value.

    Thread-safe, and without a lock: an exception from a signal handler may leave this at any point. A leader so
    interrupted still wakes its followers, one of whom leads on; a flight that was left behind all the same is replaced
    a second after its leader's timeout.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: dict[str, _Flight] = {}

    def share(self, entry_key: str, timeout_seconds: float, lead: Lead) -> tuple[bytes, bool]:
        """Return the entry's bytes, and whether this caller was a follower.

        The first caller leads. The others wait for it, each for as long as its own timeout; when the leader's runs out
        before theirs, one of them leads on. A follower takes only what was read after it came: bytes that were under
        way already could be from before an invalidation that it knows of.

        Raises:
            TimeoutError: a follower's own time ran out first.
            CacheError: what ``lead`` raised; each follower gets an error of its own.
            Exception: anything else that ``lead`` raised, for the leader alone; the followers lead on.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        while True:
            own = _Flight(deadline)
            # Twice, for an exception from a signal handler may cut the first one short.
            try:
                try:
                    flight = self._join(entry_key, own)
                    if flight is own:
                        return self._lead(own, lead), False
                finally:
                    self._land(entry_key, own)
            finally:
                self._land(entry_key, own)
            flight.wait(min(deadline, flight.ends_at + OVERRUN_SECONDS) - self._monotonic())
            if flight.raw is not None and flight.read_began_at >= came_at:
                return flight.raw, True
            if flight.error is not None:
                raise twin(flight.error)
            if self._monotonic() >= deadline:
                raise TimeoutError

    def _join(self, entry_key: str, own: _Flight) -> _Flight:
        """Return the flight to follow, or ``own``, registered, where there is none that anyone may wait for."""
        flight = self._flights.setdefault(entry_key, own)
        if flight is not own and (
            flight.is_over
            or flight.leader == own.leader  # a signal handler reads on its leader's thread
            or flight.ends_at + OVERRUN_SECONDS < self._monotonic()
        ):
            flight = self._flights[entry_key] = own
        return flight

    def _lead(self, flight: _Flight, lead: Lead) -> bytes:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        try:
            raw = flight.raw = lead(flight.ends_at - self._monotonic(), read_begins)
        except WaitTimeout:
            raise
        except CacheError as error:
            flight.error = twin(error)  # without the leader's frames
            raise
        return raw

    def _land(self, entry_key: str, flight: _Flight) -> None:
        # Gone before it is over: whoever comes now looks at the entry for itself.
        if self._flights.get(entry_key) is flight:
            self._flights.pop(entry_key, None)
        flight.is_over = True
        for waker in flight.waiting[:]:
            waker.wake()
        flight.waiting.clear()
