"""One connection an event loop, shared by all its tasks: what they ask in one tick goes out in one write.

Reads of one key that have not been sent yet are one GET. One that was sent may not be shared any more: its reply could
be from before an invalidation that the next caller knows of.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.wire import NEEDS_MORE, pack_get, reply_reader

SECOND_LOOK_SECONDS: Final = 0.05


class Multiplexed(asyncio.Protocol):
    """One connection to Redis and the requests on it, in order.

    Args:
        made: a connection of redis.asyncio, connected: it has done TLS, authentication and SELECT.
        loop: the running event loop.
        timeout_seconds: how long it may be silent while a reply is due. Then all that is due fails.
    """

    def __init__(self, made: Any, loop: asyncio.AbstractEventLoop, timeout_seconds: float) -> None:
        self._made = made  # it closes the transport when it goes
        self._transport = made._writer.transport  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._loop, self._timeout_seconds = loop, timeout_seconds
        self._reader = reply_reader()
        self._unsent: list[bytes] = []
        self._unsent_gets: dict[str, list[asyncio.Future[Any]]] = {}
        self._due: deque[list[asyncio.Future[Any]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._was_silent = False
        self.is_lost = False
        self._transport.set_protocol(self)

    def ask(self, request: bytes) -> asyncio.Future[Any]:
        """Send one command with the next write; its reply, an error reply as an exception that is not raised.

        Raises (the future):
            redis.exceptions.ConnectionError, TimeoutError: no reply, and none to be expected.
        """
        future = self._loop.create_future()
        self._send(request, [future])
        return future

    def get(self, key: str) -> asyncio.Future[Any]:
        """Read one string, with whoever else wants it in this tick."""
        future = self._loop.create_future()
        sharing = self._unsent_gets.get(key)
        if sharing is not None:
            sharing.append(future)
            return future
        self._unsent_gets[key] = waiting = [future]
        self._send(pack_get(key), waiting)
        return future

    def close(self) -> None:
        """Close it; what is due fails."""
        self._fail(ConnectionError("it was closed"))

    def data_received(self, data: bytes) -> None:
        """Give the replies to those who wait for them."""
        self._heard_at = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NEEDS_MORE:
                for future in self._due.popleft():
                    if not future.done():
                        future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self._fail(ConnectionError(f"{type(error).__name__}: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is due."""
        self._fail(ConnectionError("it closed the connection" if exc is None else f"{type(exc).__name__}: {exc}"))

    def _send(self, request: bytes, waiting: list[asyncio.Future[Any]]) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(request)
        self._due.append(waiting)

    def _flush(self) -> None:
        if self.is_lost:
            return
        if self._watch is None:
            self._heard_at = self._loop.time()
            self._watch = self._loop.call_at(self._heard_at + self._timeout_seconds, self._look)
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_gets.clear()

    def _look(self) -> None:
        """Tell a silent server from a loop that was busy: what has come meanwhile is handled before a second look."""
        self._watch = None
        if not self._due or self.is_lost:
            self._was_silent = False
            return
        now = self._loop.time()
        due_at = self._heard_at + self._timeout_seconds
        if now < due_at:
            self._was_silent = False
        elif self._was_silent:
            self._fail(TimeoutError("it did not answer in time"))
            return
        else:
            self._was_silent = True
            due_at = now + min(SECOND_LOOK_SECONDS, self._timeout_seconds / 4)
        self._watch = self._loop.call_at(due_at, self._look)

    def _fail(self, error: Exception) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._watch is not None:
            self._watch.cancel()
        self._made._close()  # noqa: SLF001 - as above: its public way waits
        self._transport.abort()
        for waiting in self._due:
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        self._due.clear()


class AsyncConnections:
    """The connection of each event loop that asks; made at its first request, made anew when it is lost.

    Args:
        make: makes a connection of redis.asyncio, not connected.
        timeout_seconds: to connect, and for a reply.
    """

    def __init__(self, make: Callable[[], Any], *, timeout_seconds: float) -> None:
        self._make, self._timeout_seconds = make, timeout_seconds
        self._by_loop: dict[asyncio.AbstractEventLoop, Multiplexed] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Multiplexed]] = {}

    def current(self) -> Multiplexed | None:
        """Return this event loop's connection; None where there is none, or it is lost."""
        connection = self._by_loop.get(asyncio.get_running_loop())
        return None if connection is None or connection.is_lost else connection

    async def get(self, key: str) -> Any:
        """Read one string, on a connection that is made where there is none; its reply is as for `Multiplexed.get`.

        Raises:
            redis.exceptions.RedisError, OSError: no connection, or no reply on it.
        """
        return await (await self._opened()).get(key)

    async def ask(self, request: bytes) -> Any:
        """Send one command, as `get`."""
        return await (await self._opened()).ask(request)

    def drop(self) -> None:
        """Close this loop's connection; the next request opens one."""
        connection = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            connection.close()

    async def _opened(self) -> Multiplexed:
        """Return a connection that is not lost. Those who come while it is being made wait for the same one."""
        connection = self.current()
        if connection is not None:
            return connection
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(self._opening_ended)
        # Whoever is cancelled leaves it to the others.
        return await asyncio.shield(opening)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Multiplexed:
        made = self._make()
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await made.connect()
        except BaseException as error:
            made._close()  # noqa: SLF001 - its public way waits
            if isinstance(error, builtins.TimeoutError):
                raise TimeoutError("it did not answer in time") from error
            raise
        for other in [known for known in self._by_loop if known.is_closed()]:
            del self._by_loop[other]
        connection = self._by_loop[loop] = Multiplexed(made, loop, self._timeout_seconds)
        return connection

    def _opening_ended(self, task: asyncio.Task[Multiplexed]) -> None:
        self._opening.pop(task.get_loop(), None)
        if not task.cancelled():
            task.exception()  # seen, also when all who waited are gone
