"""Single flight on an event loop: all tasks that miss one key share one wait, which is a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from api_client.errors import CacheError, WaitTimeout, twin
from api_client.flights import ReadBegins

AsyncLead: TypeAlias = Callable[[float, ReadBegins], Awaitable[bytes]]
Key: TypeAlias = tuple[int, str]


class _Flight:
    """One wait: its task, when that one's time is over, what came of it, and those who wait for it."""

    __slots__ = ("ends_at", "error", "is_over", "raw", "read_began_at", "task", "waiting")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.read_began_at = 0.0
        self.task: asyncio.Task[None] | None = None
        self.raw: bytes | None = None
        self.error: Exception | None = None
        self.is_over = False
        self.waiting: set[asyncio.Future[None]] = set()


class AsyncFlights:
    """The waits under way, by event loop and entry key. Waiters share the bytes, never a decoded value.

    An exception from a signal handler may leave this at any point: what is registered is undone, and whoever waits is
    woken.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: dict[Key, _Flight] = {}

    async def share(self, entry_key: str, timeout_seconds: float, lead: AsyncLead) -> tuple[bytes, bool]:
        """Return the entry's bytes, and whether another caller's wait brought them.

        The rules are those of `Flights.share`. A waiter that is cancelled leaves the wait to the others; the wait ends
        when none is left.

        Raises:
            TimeoutError: a follower's own time ran out first.
            CacheError: what ``lead`` raised; each who shares it gets an error of its own.
            Exception: anything else that ``lead`` raised, for the first caller alone; the others lead on.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        loop = asyncio.get_running_loop()
        key = (id(loop), entry_key)
        while True:
            flight = own = _Flight(deadline)
            waiter: asyncio.Future[None] = loop.create_future()
            # Twice, for an exception from a signal handler may cut the first one short.
            try:
                try:
                    flight = self._join(key, own, lead, loop)
                    await self._landed(flight, waiter, deadline)
                finally:
                    self._leave(key, flight, waiter)
            finally:
                self._leave(key, flight, waiter)
            leads = flight is own
            if flight.raw is not None and (leads or flight.read_began_at >= came_at):
                return flight.raw, not leads
            error = flight.error
            if error is not None and (leads or (isinstance(error, CacheError) and not isinstance(error, WaitTimeout))):
                raise error if leads else twin(error)
            if self._monotonic() >= deadline:
                raise TimeoutError

    def _join(self, key: Key, own: _Flight, lead: AsyncLead, loop: asyncio.AbstractEventLoop) -> _Flight:
        """Return the flight to follow; ``own``, begun and registered, where there is none."""
        flight = self._flights.get(key)
        if flight is not None and flight.task is not None and not flight.task.done():
            return flight
        own.task = loop.create_task(self._fly(key, own, lead))
        # Again, for an exception from a signal handler may end the task before its own landing.
        own.task.add_done_callback(lambda _: self._land(key, own))
        self._flights[key] = own
        return own

    async def _fly(self, key: Key, flight: _Flight, lead: AsyncLead) -> None:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        try:
            flight.raw = await lead(flight.ends_at - self._monotonic(), read_begins)
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            flight.error = error
        finally:
            self._land(key, flight)

    async def _landed(self, flight: _Flight, waiter: asyncio.Future[None], deadline: float) -> None:
        """Return when it is over.

        Raises:
            TimeoutError: this caller's time ran out first.
        """
        flight.waiting.add(waiter)
        if flight.is_over:
            return
        # Who waits no shorter than the flight lasts needs no timer of its own.
        if deadline >= flight.ends_at:
            await waiter
            return
        timer = waiter.get_loop().call_later(max(0.0, deadline - self._monotonic()), _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        if not flight.is_over:
            raise TimeoutError

    def _leave(self, key: Key, flight: _Flight, waiter: asyncio.Future[None]) -> None:
        flight.waiting.discard(waiter)
        if not flight.waiting and not flight.is_over and flight.task is not None:
            self._forget(key, flight)
            flight.task.cancel()

    def _land(self, key: Key, flight: _Flight) -> None:
        # Gone before it is over: whoever comes now looks at the entry for itself.
        self._forget(key, flight)
        flight.is_over = True
        for waiter in flight.waiting:
            _wake(waiter)

    def _forget(self, key: Key, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
