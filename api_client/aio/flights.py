"""Single flight on an event loop: all tasks that miss one key share one wait, which is a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from api_client.errors import WaitTimeout
from api_client.flights import ReadBegins

AsyncLead: TypeAlias = Callable[[float, ReadBegins], Awaitable[bytes]]


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[bytes]
    ends_at: float
    read_began_at: float = 0.0
    waiting: set[asyncio.Future[bool]] = field(default_factory=set)

    def landed(self, task: asyncio.Task[bytes]) -> None:
        """Wake those who wait. Its error is seen, also when all of them are gone."""
        if not task.cancelled():
            task.exception()
        for waiter in self.waiting:
            if not waiter.done():
                waiter.set_result(True)


class AsyncFlights:
    """The waits under way, by event loop and entry key. Waiters share the bytes, never a decoded value."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: dict[tuple[int, str], _Flight] = {}

    async def share(self, entry_key: str, timeout_seconds: float, lead: AsyncLead) -> tuple[bytes, bool]:
        """Return the entry's bytes, and whether another caller's wait brought them.

        The rules are those of `Flights.share`. A waiter that is cancelled leaves the wait to the others; the wait ends
        when none is left.

        Raises:
            TimeoutError: a follower's own time ran out first.
            Exception: what ``lead`` raised, for all who share it.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        key = (id(asyncio.get_running_loop()), entry_key)
        while True:
            flight = self._flights.get(key)
            leads = flight is None
            if flight is None:
                flight = self._take_off(key, deadline, lead)
            # Who waits no shorter than the flight lasts needs no timer of its own.
            if not await self._landed(key, flight, None if leads or deadline >= flight.ends_at else deadline):
                raise TimeoutError
            if flight.task.cancelled():  # its last waiter had gone just when this one came
                continue
            if leads:
                return flight.task.result(), False
            error = flight.task.exception()
            if error is None and flight.read_began_at >= came_at:
                return flight.task.result(), True
            if error is not None and not isinstance(error, WaitTimeout):
                raise error
            if self._monotonic() >= deadline:
                raise TimeoutError

    def _take_off(self, key: tuple[int, str], deadline: float, lead: AsyncLead) -> _Flight:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        async def fly() -> bytes:
            try:
                return await lead(deadline - self._monotonic(), read_begins)
            finally:
                # Gone before it is done: whoever comes now looks at the entry for itself.
                self._forget(key, flight)

        task = asyncio.get_running_loop().create_task(fly())
        flight = self._flights[key] = _Flight(task, deadline)
        task.add_done_callback(flight.landed)
        return flight

    async def _landed(self, key: tuple[int, str], flight: _Flight, deadline: float | None) -> bool:
        """Wait for it; a task that is cancelled here leaves it to those who wait on."""
        if flight.task.done():
            return True
        loop = flight.task.get_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None
        if deadline is not None:
            timer = loop.call_later(max(0.0, deadline - self._monotonic()), _give_up, waiter)
        flight.waiting.add(waiter)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            flight.waiting.discard(waiter)
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()

    def _forget(self, key: tuple[int, str], flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
