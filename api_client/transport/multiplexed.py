"""Multiplexed connections: one per event loop, shared by its tasks, with one write for all requests of a tick.

Reads of the same key within a tick share one GET. A GET that was already sent is not shared, because its reply could
predate an invalidation that the next caller knows of.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from os import getpid
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from api_client.loops import PerLoop
from api_client.transport.connection_maker import name_reader
from api_client.transport.pool import IDLE_SECONDS, SlowReply
from api_client.transport.wire import NEEDS_MORE, pack_get, reply_reader

RECHECK_SECONDS: Final = 0.05


class Multiplexed(asyncio.Protocol):
    """One connection to Redis and the requests on it, in order.

    Args:
        made: an open connection of redis.asyncio, which has done TLS, authentication and SELECT.
        loop: the running event loop.
        timeout_seconds: the longest silence while replies are due; then all pending requests fail with a TimeoutError.
            After `IDLE_SECONDS` without a request it is half of that, with a ConnectionError, because the server may
            never have received the request.
        reply_seconds: the time for one whole reply, after the previous one. Then that request fails with a `SlowReply`,
            and the requests behind it with a ConnectionError.
    """

    def __init__(
        self, made: Any, loop: asyncio.AbstractEventLoop, timeout_seconds: float, reply_seconds: float
    ) -> None:
        self._made = made  # closes the transport when it is collected
        self._transport = made._writer.transport  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._loop, self._timeout_seconds, self._reply_seconds = loop, timeout_seconds, reply_seconds
        self._reader = reply_reader()
        self._unsent: list[bytes] = []
        self._unsent_gets: dict[str, list[asyncio.Future[Any]]] = {}
        self._due: deque[list[asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._waits_since = self._reply_since = loop.time()  # for the next bytes, and for a whole reply
        self._was_idle = self._is_rechecking = False
        self._error: Exception | None = None
        self.is_lost: bool = False
        self.guard: AsyncGenerator[None] | None = None
        self.pid: int = getpid()
        self.inherited: Multiplexed | None = None
        self._transport.set_protocol(self)

    def execute(self, request: bytes) -> asyncio.Future[Any]:
        """Send one command with the next write; the future's result is the reply, or an error reply as an exception.

        Raises (the future):
            redis.exceptions.ConnectionError, TimeoutError: there was no reply, and none will come.
        """
        future = self._loop.create_future()
        self._send(request, [future])
        return future

    def get(self, key: str) -> asyncio.Future[Any]:
        """Read one string, sharing the request with other reads of it in this tick."""
        future = self._loop.create_future()
        sharing = self._unsent_gets.get(key)
        if sharing is not None and not self.is_lost:
            sharing.append(future)
            return future
        self._unsent_gets[key] = waiting = [future]
        self._send(pack_get(key), waiting)
        return future

    async def get_all(self, keys: Sequence[str]) -> list[Any]:
        """Read several strings with one write."""
        return await asyncio.gather(*map(self.get, keys))

    async def execute_all(self, requests: Sequence[bytes]) -> list[Any]:
        """Send several commands with one write."""
        return await asyncio.gather(*map(self.execute, requests))

    def data_received(self, data: bytes) -> None:
        """Resolve the futures of the replies."""
        due_before = len(self._due)
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not NEEDS_MORE:
                for future in self._due.popleft():
                    if not future.done():
                        future.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self.close(ConnectionError(f"{type(error).__name__}: {error}"))
        self._waits_since, self._was_idle = self._loop.time(), False
        if len(self._due) != due_before:
            self._reply_since = self._waits_since

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self.close(ConnectionError("it closed the connection" if exc is None else f"{type(exc).__name__}: {exc}"))

    def _send(self, request: bytes, waiting: list[asyncio.Future[Any]]) -> None:
        if self._error is not None:  # lost before its first request, say
            _fail_all(waiting, self._error)
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(request)
        self._due.append(waiting)

    def _flush(self) -> None:
        if self.is_lost:
            return
        if len(self._due) == len(self._unsent):
            now = self._loop.time()
            self._was_idle = now - self._waits_since > IDLE_SECONDS
            self._waits_since = self._reply_since = now
        if self._timer is None:
            self._timer = self._loop.call_at(self._silence_ends_at(), self._check_silence)
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_gets.clear()

    def _check_silence(self) -> None:
        """Tell a silent server from a busy loop: bytes that have arrived are handled before a second check."""
        self._timer = None
        if not self._due or self.is_lost:
            self._is_rechecking = False
            return
        now, due_at = self._loop.time(), self._silence_ends_at()
        is_slow = now - self._reply_since > self._reply_seconds
        if now < due_at and not is_slow:
            self._is_rechecking = False
        elif self._is_rechecking:
            self._give_up(is_slow=now < due_at)
            return
        else:
            self._is_rechecking = True
            due_at = now + min(RECHECK_SECONDS, self._timeout_seconds / 4)
        self._timer = self._loop.call_at(due_at, self._check_silence)

    def _give_up(self, *, is_slow: bool) -> None:
        if is_slow:
            _fail_all(self._due[0], SlowReply("its reply took too long"))
            self.close(ConnectionError("the reply before it took too long"))
        elif self._was_idle:
            self.close(ConnectionError("it did not answer after it had been idle"))
        else:
            self.close(TimeoutError("it did not answer in time"))

    def _silence_ends_at(self) -> float:
        return self._waits_since + (self._timeout_seconds / 2 if self._was_idle else self._timeout_seconds)

    def close(self, error: Exception) -> None:
        """Close the connection; pending and later requests fail with ``error``."""
        if self.is_lost:
            return
        self.is_lost = True
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._made._close()  # noqa: SLF001 - as above: its public way waits
        self._transport.abort()
        for waiting in self._due:
            _fail_all(waiting, error)
        self._due.clear()


def _fail_all(waiting: list[asyncio.Future[Any]], error: Exception) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)


async def _until_the_loop_ends(connection: Multiplexed) -> AsyncGenerator[None]:
    """Close a connection when `asyncio.run` ends its event loop, which closes the loop's async generators.

    Nothing else signals a loop's end, and a connection on a closed loop can't be closed any more.
    """
    try:
        yield
    finally:
        connection.close(Closed("its event loop has ended"))


class Closed(RedisError):
    """The connection was closed by its owner, so nothing should be retried."""


class AsyncConnections:
    """One connection per event loop, made at the loop's first request and again after a loss.

    A forked child makes its own, even after a fork that runs no Python hooks. It does not close the parent's, because a
    forked event loop shares its socket watcher with the parent's.

    Args:
        make: makes a connection of redis.asyncio that is not connected yet.
        timeout_seconds: the time to connect, and the longest silence within a reply.
        reply_seconds: the time for one whole reply, at least ``timeout_seconds``.
    """

    def __init__(self, make: Callable[[], Any], *, timeout_seconds: float, reply_seconds: float) -> None:
        self._make, self._timeout_seconds = make, timeout_seconds
        self._reply_seconds = max(timeout_seconds, reply_seconds)
        self._by_loop: PerLoop[Multiplexed] = PerLoop()
        self._opening: PerLoop[asyncio.Task[Multiplexed]] = PerLoop()
        self._epoch = object()  # connections of an earlier epoch lead to a node that was left

    def current(self) -> Multiplexed | None:
        """Return this event loop's connection; None if there is none or it is lost."""
        connection = self._by_loop.get(asyncio.get_running_loop())
        if connection is None or connection.is_lost or connection.pid != getpid():
            return None
        return connection

    def drop(self) -> None:
        """Leave this loop's connection; its pending requests may be sent again on the next one."""
        self._close(ConnectionError("the connection was dropped"))

    def invalidate_connections(self) -> None:
        """Leave the connections of all loops, from any thread; their pending requests may be sent again."""
        self._epoch = object()
        for loop, connection in list(self._by_loop.items()):
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(connection.close, ConnectionError("the connection was dropped"))

    def close(self) -> None:
        """Close this loop's connection, even one that is being made; its pending requests fail for good."""
        self._close(Closed("it was closed"))
        opening = self._opening.get(asyncio.get_running_loop())
        if opening is not None:
            opening.add_done_callback(lambda _: self._close(Closed("it was closed")))

    def _close(self, why: Exception) -> None:
        connection = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            connection.close(why)

    async def opened(self) -> Multiplexed:
        """Return a working connection; tasks that ask while it is being made wait for the same one.

        Raises:
            redis.exceptions.RedisError, OSError: the connection can't be made.
        """
        connection = self.current()
        if connection is not None:
            return connection
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(self._opening_ended)
        # A cancelled caller leaves the connection to the others.
        return await asyncio.shield(opening)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> Multiplexed:
        epoch, made = self._epoch, self._make()
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await made.connect()
                await name_reader(made)
                if epoch is not self._epoch:  # it may lead to a node that was left in the meantime
                    await made.disconnect()
                    await made.connect()
                    await name_reader(made)
        except BaseException as error:
            if not loop.is_closed():  # otherwise this is the end of an abandoned task
                made._close()  # noqa: SLF001 - its public way waits
            if isinstance(error, builtins.TimeoutError):
                raise TimeoutError("it did not answer in time") from error
            raise
        inherited = self._by_loop.get(loop)
        connection = self._by_loop[loop] = Multiplexed(made, loop, self._timeout_seconds, self._reply_seconds)
        if inherited is not None and inherited.pid != connection.pid:
            connection.inherited = inherited  # kept alive, since the parent would notice its end
        connection.guard = _until_the_loop_ends(connection)
        await anext(connection.guard)
        return connection

    def _opening_ended(self, task: asyncio.Task[Multiplexed]) -> None:
        self._opening.pop(task.get_loop(), None)
        if not task.cancelled():
            task.exception()  # retrieved, even if all waiters are gone
