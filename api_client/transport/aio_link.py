"""The async link to the cache: the awaitable counterpart of `api_client.transport.link`, over the same routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, RedisError

from api_client.config.redis_url import Address
from api_client.errors import CacheUnavailable
from api_client.loops import PerLoop
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.connection_maker import async_connection_maker
from api_client.transport.health import TIME_REQUEST, NodeHealth
from api_client.transport.multiplexed import AsyncConnections, Multiplexed
from api_client.transport.routing import FindSlots, Nodes, Pause, Plan, Routes, Send, Step, SyncClock
from api_client.transport.scripts import adrive, none_failed, script_plan
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import Command, is_wrong_node, pack

T = TypeVar("T")


class AsyncCacheNode:
    """One Redis, or the master that Sentinels name, on any event loop; failures are those of `CacheNode`."""

    def __init__(
        self, url: str, timeout_seconds: float, reply_seconds: float, health: NodeHealth, *, master: MasterAddress
    ) -> None:
        self.health: NodeHealth = health
        self._make = async_connection_maker(url, timeout_seconds=timeout_seconds, known=master)
        self._connections = AsyncConnections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        if self._make.resolver is not None:
            master.on_change(self._connections.invalidate_connections)

    def begin_read(self, key: CacheKey) -> asyncio.Future[Any] | None:
        """Request an entry with this tick's write, like `read` but without a coroutine; None if only `read` can.

        The future belongs to the caller. Pass its result to `end_read`, or its RedisError to `read_again`.
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
        """Read once more, on a new connection, if ``error`` says that the old one was closed in the meantime."""
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

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write and return their replies; an error reply is returned as an exception."""
        if all(command[0] == "GET" for command in commands):  # reads of the same key are sent once
            names = [str(name) for _, name in commands]
            replies = await self._exchange(lambda connection: connection.get_all(names))
        else:
            requests = [pack(*command) for command in commands]
            replies = await self._exchange(lambda connection: connection.execute_all(requests))
        if any(map(is_wrong_node, replies)):
            # A demoted master: the next connection finds the new one.
            self._connections.drop()
        else:
            self.health.breaker.succeeded()
        return replies

    async def sync_clock(self) -> None:
        """Query Redis' time."""
        asked_at = monotonic_seconds()
        (reply,) = await self._exchange(lambda connection: connection.execute_all([TIME_REQUEST]))
        self.health.set_clock(reply, asked_at=asked_at)

    async def before_writing(self) -> None:
        """Query the Sentinels, as `CacheNode.before_writing` does."""
        if self._make.resolver is not None and not self.health.breaker.is_waiting():
            await self._make.resolver.poll()

    def invalidate_connections(self) -> None:
        """Leave the connections of all event loops, from any thread; their pending requests may be sent again."""
        self._connections.invalidate_connections()

    def close(self) -> None:
        """Close this event loop's connection."""
        self._connections.close()

    async def _exchange(self, exchange: Callable[[Multiplexed], Awaitable[T]]) -> T:
        """Send and receive, and do so once more on a new connection if the old one was closed in the meantime."""
        self.health.check(None)
        try:
            if (connection := self._connections.current()) is not None:
                with suppress(ConnectionError):
                    return await exchange(connection)
            return await exchange(await self._connections.opened())
        except (RedisError, OSError) as error:
            raise self.health.failure(error, None) from error

    async def _read_anew(self, key: CacheKey) -> bytes | None:
        try:
            reply = await (await self._connections.opened()).get(key.entry)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        return self.end_read(reply, key)


class AsyncCacheLink:
    """Reads entries and runs lease steps, like `CacheLink`.

    Args:
        routes: the routes of the sync link.
        timeout_seconds, reply_seconds: as for `AsyncConnections`.

    Attributes:
        only_node: the node of all keys, outside of a cluster; reads may call it directly instead of `read`.
    """

    def __init__(self, routes: Routes, timeout_seconds: float, reply_seconds: float) -> None:
        self.routes: Routes = routes
        self._searches: PerLoop[asyncio.Task[CacheUnavailable | None]] = PerLoop()
        self._nodes = Nodes(
            lambda node: AsyncCacheNode(
                routes.url_of(node), timeout_seconds, reply_seconds, routes.health_of(node), master=routes.master
            )
        )
        routes.on_nodes_changed(self._nodes.keep_only)
        self.only_node: AsyncCacheNode | None = self._nodes[Routes.ONLY_NODE] if routes.is_single else None

    async def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, as `AsyncCacheNode.read` does, with times by the reader's clock."""
        node = self.routes.ready_owner(key.entry)
        if node is None:
            return none_failed(await self.read_all([key]))[0]
        try:
            return self.routes.to_reader_clock(await self._nodes[node].read(key), node)  # a plan costs two hits
        except CacheUnavailable as error:
            return await adrive(self.routes.read_again(key, node, error), self._do)

    async def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, with one write per node."""
        return await adrive(self.routes.entries(keys), self._do)

    async def execute_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands, each to the node of its key, and return their replies, as `AsyncCacheNode.execute_all`."""
        return none_failed(await adrive(self.routes.replies(commands, query), self._do))

    async def run(self, call: Call[T], query: str) -> T:
        """Run one step of the lease record."""
        return none_failed(await self.run_each([call], query))[0]

    async def run_each(self, calls: Sequence[Call[T]], query: str | None = None) -> list[T | CacheUnavailable]:
        """Run steps in one write (two if Redis has forgotten a script); a failed one does not end the others."""
        replies = await adrive(script_plan(calls), lambda commands: self._write(commands, query))
        return self.routes.results(calls, replies, query)

    async def now_us(self) -> int:
        """Return Redis' time, queried only if still unknown."""
        if not self.routes.clock.is_known:
            await self.sync_clock()
        return self.routes.clock.now_us()

    async def sync_clock(self) -> None:
        """Sync the reader's clock with one node; other nodes are synced at their first reads, whose times are shifted.

        Raises:
            CacheUnavailable: no node has answered.
        """
        await adrive(self.routes.sync_clocks(every=False), self._do)

    def invalidate_connections(self) -> None:
        """Leave the connections of all event loops, to all nodes."""
        self._nodes.invalidate_connections()

    def close(self) -> None:
        """Close this event loop's connections."""
        self._nodes.close()

    async def _write(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        if self.only_node is not None:
            await self.only_node.before_writing()
        return await adrive(self.routes.replies(commands, query), self._do)

    async def _do(self, step: Step) -> Any:
        match step:
            case Send(by_node):
                if len(by_node) == 1:  # without a task of its own
                    ((node, commands),) = by_node.items()
                    return {node: await self._send(node, commands)}
                replies = await asyncio.gather(*(self._send(node, commands) for node, commands in by_node.items()))
                return dict(zip(by_node, replies, strict=True))
            case Pause(duration_seconds):
                await asyncio.sleep(duration_seconds)
            case FindSlots(search):
                return await self._search_once(search)
            case SyncClock(node):
                try:
                    await self._nodes[node].sync_clock()
                except CacheUnavailable as error:
                    return error
        return None

    async def _send(self, node: Address, commands: Sequence[Command]) -> list[Any]:
        """Return the replies of a node, or its failure in place of each."""
        try:
            return await self._nodes[node].execute_all(commands)
        except CacheUnavailable as error:
            return [error] * len(commands)

    async def _search_once(self, search: Callable[[], Plan[CacheUnavailable | None]]) -> CacheUnavailable | None:
        """Carry out a search, once for all tasks of the loop that want it."""
        loop = asyncio.get_running_loop()
        searching = self._searches.get(loop)
        if searching is None:
            searching = self._searches[loop] = loop.create_task(adrive(search(), self._do))
            searching.add_done_callback(lambda _: self._searches.pop(loop, None))
        # A cancelled caller leaves the search to the others.
        return await asyncio.shield(searching)
