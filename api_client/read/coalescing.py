"""Single flight: all reads of a process that miss the same key share one wait, on threads and on event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Final, Generic, TypeAlias, TypeVar

from api_client.errors import CacheError, WaitTimeout, twin
from api_client.loops import PerLoop
from api_client.threads import Waker

E = TypeVar("E", bound=Exception)

ReadBegins: TypeAlias = Callable[[], None]
Lead: TypeAlias = Callable[[float, ReadBegins], bytes]
"""Waits for the entry, for at most the given seconds, and calls ``ReadBegins`` before each read."""

OVERRUN_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class _Outcome(Generic[E]):
    """A wait's deadline and outcome; ``read_began_at`` is the start of the read that ended it."""

    ends_at: float
    read_began_at: float = 0.0
    raw: bytes | None = None
    error: E | None = None
    is_over: bool = False


@dataclass(slots=True, eq=False)
class _Flight(_Outcome[CacheError]):
    """One wait, with its leader's thread and its followers' wakers."""

    leader: int = field(default_factory=get_ident)
    waiting: list[Waker] = field(default_factory=list)

    def wait(self, timeout_seconds: float) -> None:
        """Block until the flight is over, for at most ``timeout_seconds``."""
        waker = Waker()
        self.waiting.append(waker)
        if not self.is_over:
            waker.wait(timeout_seconds)


class SingleFlight:
    """Waits in progress, by entry key. Followers share the leader's bytes, never a decoded value.

    Thread-safe without a lock, since a signal handler's exception may interrupt any line. An interrupted leader still
    wakes its followers, and one of them takes over. A flight that is left behind nevertheless is replaced one second
    after its leader's timeout.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: dict[str, _Flight] = {}

    def share(self, entry_key: str, timeout_seconds: float, lead: Lead) -> tuple[bytes, bool] | None:
        """Return the entry's bytes and whether this caller was a follower; None if the caller's time ran out first.

        The first caller leads. The others wait for it, each with its own timeout; if the leader's expires first, one of
        them takes over. A follower accepts only bytes whose read began after it joined, since earlier ones could
        predate an invalidation that the follower knows of.

        Raises:
            CacheError: raised by ``lead``; each follower gets its own copy.
            Exception: any other error of ``lead``, raised to the leader alone; a follower takes over.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        while True:
            own = _Flight(deadline)
            # Twice, since a signal handler's exception may cut the first one short.
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
                return None

    def _join(self, entry_key: str, own: _Flight) -> _Flight:
        """Return the flight to follow, or register and return ``own`` if there is none to wait for."""
        flight = self._flights.setdefault(entry_key, own)
        if flight is not own and (
            flight.is_over
            or flight.leader == own.leader  # a signal handler is reading on the leader's own thread
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
        # Removed before it ends, so that a read arriving now looks at the entry itself.
        if self._flights.get(entry_key) is flight:
            self._flights.pop(entry_key, None)
        flight.is_over = True
        for waker in flight.waiting[:]:
            waker.wake()
        flight.waiting.clear()


AsyncLead: TypeAlias = Callable[[float, ReadBegins], Awaitable[bytes]]


@dataclass(slots=True, eq=False)
class _AsyncFlight(_Outcome[Exception]):
    """One wait, with its task and waiters."""

    task: asyncio.Task[None] | None = None
    waiting: set[asyncio.Future[None]] = field(default_factory=set)


Flights: TypeAlias = dict[str, _AsyncFlight]


class AsyncSingleFlight:
    """Waits in progress, by event loop and entry key. Waiters share the bytes, never a decoded value.

    A signal handler's exception may interrupt any line: registrations are then undone, and all waiters woken.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: PerLoop[Flights] = PerLoop()

    async def share(self, entry_key: str, timeout_seconds: float, lead: AsyncLead) -> tuple[bytes, bool] | None:
        """Return the entry's bytes and whether another caller's wait fetched them; None if this caller timed out first.

        The rules are those of `SingleFlight.share`. A cancelled waiter leaves the wait to the others, and the wait ends
        when none is left.

        Raises:
            CacheError: raised by ``lead``; each waiter gets its own copy.
            Exception: any other error of ``lead``, raised to the first caller alone; another one takes over.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        loop = asyncio.get_running_loop()
        flights = self._flights.get(loop)
        if flights is None:
            flights = self._flights[loop] = {}
        while True:
            flight = own = _AsyncFlight(deadline)
            waiter: asyncio.Future[None] = loop.create_future()
            # Twice, since a signal handler's exception may cut the first one short.
            try:
                try:
                    flight = self._join(flights, entry_key, own, lead)
                    if not await self._wait(flight, waiter, deadline):
                        return None
                finally:
                    _leave(flights, entry_key, flight, waiter)
            finally:
                _leave(flights, entry_key, flight, waiter)
            leads = flight is own
            if flight.raw is not None and (leads or flight.read_began_at >= came_at):
                return flight.raw, not leads
            error = flight.error
            if error is not None and (leads or (isinstance(error, CacheError) and not isinstance(error, WaitTimeout))):
                raise error if leads else twin(error)
            if self._monotonic() >= deadline:
                return None

    def _join(self, flights: Flights, key: str, own: _AsyncFlight, lead: AsyncLead) -> _AsyncFlight:
        """Return the flight to follow, or start, register and return ``own`` if there is none."""
        flight = flights.get(key)
        if flight is not None and flight.task is not None and not flight.task.done():
            return flight
        own.task = asyncio.create_task(self._run(flights, key, own, lead))
        # Again, since a signal handler's exception may end the task before it lands the flight itself.
        own.task.add_done_callback(lambda _: _land(flights, key, own))
        flights[key] = own
        return own

    async def _run(self, flights: Flights, key: str, flight: _AsyncFlight, lead: AsyncLead) -> None:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        try:
            flight.raw = await lead(flight.ends_at - self._monotonic(), read_begins)
        except Exception as error:  # noqa: BLE001 - raised to the waiters
            flight.error = error
        finally:
            _land(flights, key, flight)

    async def _wait(self, flight: _AsyncFlight, waiter: asyncio.Future[None], deadline: float) -> bool:
        """Return True once the flight is over, False if this caller's time ran out first."""
        flight.waiting.add(waiter)
        if flight.is_over:
            return True
        # A waiter whose deadline is not before the flight's needs no timer of its own.
        if deadline >= flight.ends_at:
            await waiter
            return True
        timer = waiter.get_loop().call_later(max(0.0, deadline - self._monotonic()), _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        return flight.is_over


def _leave(flights: Flights, key: str, flight: _AsyncFlight, waiter: asyncio.Future[None]) -> None:
    flight.waiting.discard(waiter)
    if not flight.waiting and not flight.is_over and flight.task is not None:
        _forget(flights, key, flight)
        if not waiter.get_loop().is_closed():
            flight.task.cancel()


def _land(flights: Flights, key: str, flight: _AsyncFlight) -> None:
    # Removed before it ends, so that a read arriving now looks at the entry itself.
    _forget(flights, key, flight)
    flight.is_over = True
    for waiter in flight.waiting:
        _wake(waiter)


def _forget(flights: Flights, key: str, flight: _AsyncFlight) -> None:
    if flights.get(key) is flight:
        del flights[key]


def _wake(waiter: asyncio.Future[None]) -> None:
    # A loop that was closed during the wait runs no callbacks.
    if not waiter.done() and not waiter.get_loop().is_closed():
        waiter.set_result(None)
