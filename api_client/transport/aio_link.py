"""The async link to Redis: as `api_client.transport.link`, awaited, with the same health and the same plans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import ConnectionError, RedisError

from api_client.config.redis_url import Address, read_url
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport import cluster
from api_client.transport.cluster import ClusterState, FindSlots, LearnClock, Nodes, Pause, Send, Step
from api_client.transport.connection_maker import async_connection_maker
from api_client.transport.health import TIME_REQUEST, Health
from api_client.transport.multiplexed import AsyncConnections, Multiplexed
from api_client.transport.scripts import adrive, none_failed, script_plan
from api_client.transport.wire import Command, is_wrong_node, pack

T = TypeVar("T")


class AsyncCacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while the breaker is open."""

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float, health: Health) -> None:
        self.health = health
        self._make = async_connection_maker(url, timeout_seconds=timeout_seconds, known=health.master)
        self._connections = AsyncConnections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        health.master.on_change(self._connections.invalidate_all)

    def begin_read(self, key: CacheKey) -> asyncio.Future[Any] | None:
        """Request an entry with this tick's write, as `read` does, and at the cost of no coroutine; None: `read` it.

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
        replies = await self.ask_all([("GET", key.entry) for key in keys], keys[0].query)
        return [self.health.entry_of(reply, key.query) for reply, key in zip(replies, keys, strict=True)]

    async def ask_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands in one write and return their replies; an error reply is returned as an exception."""
        if all(command[0] == "GET" for command in commands):  # those of one key are one
            names = [str(name) for _, name in commands]
            replies = await self._exchange(lambda connection: connection.get_all(names), query)
        else:
            requests = [pack(*command) for command in commands]
            replies = await self._exchange(lambda connection: connection.ask_all(requests), query)
        if any(map(is_wrong_node, replies)):
            # A demoted master: the next connection finds the new one.
            self._connections.drop()
        else:
            self.health.breaker.succeeded()
        return replies

    async def run(self, call: Call[T], query: str) -> T:
        """Run one step of the lease record."""
        return none_failed(await self.run_each([call], query))[0]

    async def run_each(self, calls: Sequence[Call[T]], query: str) -> list[T | CacheUnavailable]:
        """Run steps in one write (two when Redis has forgotten a script); one that fails ends alone."""
        replies = await adrive(script_plan(calls), lambda commands: self._ask_each(commands, query))
        return [self._result(call, reply, query) for call, reply in zip(calls, replies, strict=True)]

    async def now_us(self) -> int:
        """Return Redis' time, queried only if it is not known yet."""
        if not self.health.clock.is_known:
            await self.sync_clock()
        return self.health.clock.now_us()

    async def sync_clock(self) -> None:
        """Query Redis' time."""
        asked_at = monotonic_seconds()
        (reply,) = await self._exchange(lambda connection: connection.ask_all([TIME_REQUEST]), None)
        self.health.breaker.succeeded()
        self.health.set_clock(reply, asked_at=asked_at)

    def close(self) -> None:
        """Close this event loop's connection."""
        self._connections.close()

    def invalidate_all(self) -> None:
        """Leave the connections of all event loops, from any thread; what is due on them may be requested again."""
        self._connections.invalidate_all()

    async def _exchange(self, exchange: Callable[[Multiplexed], Awaitable[T]], query: str | None) -> T:
        """Send and receive; where the connection was closed meanwhile once more, on a new one."""
        self.health.check(query)
        try:
            if (connection := self._connections.current()) is not None:
                with suppress(ConnectionError):
                    return await exchange(connection)
            return await exchange(await self._connections.opened())
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error

    async def _read_anew(self, key: CacheKey) -> bytes | None:
        try:
            reply = await (await self._connections.opened()).get(key.entry)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        return self.end_read(reply, key)

    async def _ask_each(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        """Send what writes; where it fails, the failure is each one's reply."""
        if self._make.resolver is not None:
            await self._make.resolver.poll()
        return await _in_place(self.ask_all(commands, query), len(commands))

    def _result(self, call: Call[T], reply: Any, query: str) -> T | CacheUnavailable:
        if isinstance(reply, RedisError):
            return self._health_of(call.keys[0]).failure(reply, query)
        return reply if isinstance(reply, CacheUnavailable) else call.parse(reply)

    def _health_of(self, _key: str) -> Health:
        return self.health


class AsyncClusterLink(AsyncCacheLink):
    """As `AsyncCacheLink`: commands go to each key's node, in one round trip; see `ClusterLink`."""

    health: ClusterState

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float, health: ClusterState) -> None:
        # Its connections are those of the nodes' own links.
        parsed, self.health, self._timeout_seconds = read_url(url), health, timeout_seconds
        self._finding: dict[asyncio.AbstractEventLoop, asyncio.Task[CacheUnavailable | None]] = {}
        self._nodes = Nodes(
            lambda node: AsyncCacheLink(parsed.url_of(node), timeout_seconds, reply_seconds, health.health_of(node))
        )
        health.on_slots_changed(self._nodes.keep_only)

    def begin_read(self, key: CacheKey) -> None:
        """Leave it to `read`: more than one step may be needed."""

    async def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, its times by the reader's clock; else as `AsyncCacheLink.read`."""
        node = self.health.ready_owner(key.entry)
        if node is None:
            return none_failed(await self.read_all([key]))[0]
        try:
            return self.health.to_reader_clock(await self._nodes[node].read(key), node)  # a plan would cost twice a hit
        except CacheUnavailable as error:
            return await adrive(cluster.read_again(self.health, key, node, error), self._do)

    async def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, each node's in one write; a node's error is that of its keys."""
        return await adrive(cluster.read_entries(self.health, keys), self._do)

    async def ask_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands, each to the node of its key."""
        replies = await self._ask_each(commands, query)
        return none_failed(replies)

    async def sync_clock(self) -> None:
        """Sync the reader's clock with one node; the others are synced at their first reads, whose times are shifted.

        Raises:
            CacheUnavailable: none has answered.
        """
        await adrive(cluster.learn_clocks(self.health, every=False), self._do)

    def close(self) -> None:
        """Close this event loop's connections."""
        for node in self._nodes.all():
            node.close()

    def invalidate_all(self) -> None:
        """Leave the connections of all event loops, to all nodes."""
        self._nodes.keep_only(())

    async def _ask_each(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        replies = await adrive(cluster.replies(self.health, commands), self._do)
        return cluster.about(replies, query)

    def _health_of(self, key: str) -> Health:
        return self.health.health_of_owner(key)

    async def _do(self, step: Step) -> Any:
        match step:
            case Send(by_node):
                replies = await asyncio.gather(
                    *(
                        _in_place(self._nodes[node].ask_all(commands), len(commands))
                        for node, commands in by_node.items()
                    )
                )
                return dict(zip(by_node, replies, strict=True))
            case Pause(duration_seconds):
                await asyncio.sleep(duration_seconds)
            case FindSlots(besides):
                return await self._find_slots(besides)
            case LearnClock(node):
                try:
                    await self._nodes[node].sync_clock()
                except CacheUnavailable as error:
                    return error
        return None

    async def _find_slots(self, besides: Collection[Address]) -> CacheUnavailable | None:
        """Carry out `find_slots`, once for all tasks of the loop that want that."""
        loop = asyncio.get_running_loop()
        finding = self._finding.get(loop)
        if finding is None:
            plan = cluster.find_slots(self.health, besides, self._timeout_seconds)
            finding = self._finding[loop] = loop.create_task(adrive(plan, self._do))
            finding.add_done_callback(lambda _: self._finding.pop(loop, None))
        # A caller that is cancelled leaves it to the others.
        return await asyncio.shield(finding)


def open_async_link(url: str, timeout_seconds: float, reply_seconds: float, health: Health) -> AsyncCacheLink:
    """Return the link for a URL; ``health`` is that of the sync link to the same."""
    if isinstance(health, ClusterState):
        return AsyncClusterLink(url, timeout_seconds, reply_seconds, health)
    return AsyncCacheLink(url, timeout_seconds, reply_seconds, health)


async def _in_place(exchange: Awaitable[list[Any]], count: int) -> list[Any]:
    """Return the replies of a node; its failure stands in the place of each."""
    try:
        return await exchange
    except CacheUnavailable as error:
        return [error] * count
