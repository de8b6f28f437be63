"""The async reader's link to Redis: as `api_client.transport.link`, awaited, with the same health."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, NoScriptError, RedisError

from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.error_replies import is_wrong_node
from api_client.transport.health import TIME_REQUEST, Health
from api_client.transport.multiplexed import AsyncConnections
from api_client.transport.redis_py import async_connection_maker
from api_client.transport.scripts import by_hash, by_text
from api_client.transport.wire import Command, pack

T = TypeVar("T")


class AsyncCacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while the breaker is open."""

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float, health: Health) -> None:
        self.health = health
        self._make = async_connection_maker(url, timeout_seconds=timeout_seconds, known=health.master)
        self._connections = AsyncConnections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        health.master.on_change(self._connections.leave)

    def begin_read(self, key: CacheKey) -> asyncio.Future[Any] | None:
        """Ask for an entry with this tick's write, as `read` does, and at the cost of no coroutine; None: `read` it.

        The future is its caller's alone. Its result goes to `end_read`, its RedisError to `read_again`.
        """
        if self.health.breaker.is_open:
            return None
        connection = self._connections.current()
        return None if connection is None else connection.get(key.entry)

    def end_read(self, reply: object, key: CacheKey) -> bytes | None:
        """Return the entry's bytes (``b""`` where the key is no string), or None where there is none."""
        if reply.__class__ is not bytes and is_wrong_node(reply):
            self._connections.drop()
        return self.health.entry_of(reply, key.query)

    async def read_again(self, key: CacheKey, error: Exception) -> bytes | None:
        """Read after ``error``, where a connection was closed meanwhile: once more, on a new one."""
        if not isinstance(error, ConnectionError):
            raise self.health.failure(error, key.query) from error
        return await self._read_anew(key)

    async def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes; see `end_read`."""
        reading = self.begin_read(key)
        if reading is None:
            self.health.check(key.query)
            return await self._read_anew(key)
        try:
            return self.end_read(await reading, key)
        except RedisError as error:
            return await self.read_again(key, error)

    async def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, in one round trip."""
        query, names = keys[0].query, [key.entry for key in keys]
        self.health.check(query)
        try:
            connection = self._connections.current()
            if connection is None:
                replies = await self._connections.get_all(names)
            else:
                try:
                    replies = await connection.get_all(names)
                except ConnectionError:
                    replies = await self._connections.get_all(names)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error
        return [self.end_read(reply, key) for reply, key in zip(replies, keys, strict=True)]

    async def ask_all(self, commands: Sequence[Command], query: str | None) -> list[object]:
        """Send commands in one write and return their replies; an error reply is returned as an exception."""
        return list(await asyncio.gather(*(self._ask(pack(*command), query) for command in commands)))

    async def run(self, call: Call[T], query: str) -> T:
        """Run one step of the lease record. One whose script Redis has forgotten is sent again with it."""
        await self._make.look()
        reply = await self._ask(pack(*by_hash(call)), query)
        if isinstance(reply, NoScriptError):
            reply = await self._ask(pack(*by_text(call)), query)
        if isinstance(reply, RedisError):
            if is_wrong_node(reply):
                # A demoted master: the next connection finds the new one.
                self._connections.drop()
            raise self.health.failure(reply, query) from reply
        return call.parse(reply)

    async def now_us(self) -> int:
        """Return Redis' time; asks Redis only when it never has been asked."""
        if not self.health.clock.is_known:
            await self.learn_clock()
        return self.health.clock.now_us()

    async def learn_clock(self) -> None:
        """Ask Redis for its time."""
        asked_at = monotonic_seconds()
        self.health.learn_time(await self._ask(TIME_REQUEST, None), asked_at=asked_at)

    def close(self) -> None:
        """Close this event loop's connection."""
        self._connections.close()

    def leave(self) -> None:
        """Leave the connections of all event loops, from any thread; what is due on them may be asked again."""
        self._connections.leave()

    async def _read_anew(self, key: CacheKey) -> bytes | None:
        try:
            reply = await self._connections.get(key.entry)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        return self.end_read(reply, key)

    async def _ask(self, request: bytes, query: str | None) -> object:
        self.health.check(query)
        reply: object
        try:
            connection = self._connections.current()
            if connection is None:
                reply = await self._connections.ask(request)
            else:
                try:
                    reply = await connection.ask(request)
                except ConnectionError:
                    reply = await self._connections.ask(request)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error
        self.health.breaker.succeeded()
        return reply
