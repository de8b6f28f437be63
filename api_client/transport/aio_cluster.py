"""The async reader's link to a cluster: as `api_client.transport.cluster`, awaited, over the same state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from redis.exceptions import RedisError

from api_client.config.redis_url import Address, read_url
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.aio_link import AsyncCacheLink
from api_client.transport.cluster_state import (
    ASKING,
    MAX_REDIRECTIONS,
    SLOTS_REQUEST,
    TRY_AGAIN_SECONDS,
    ClusterState,
    is_to_be_repeated,
    leads_elsewhere,
    may_have_moved,
)
from api_client.transport.health import Health
from api_client.transport.scripts import by_text
from api_client.transport.wire import Command

T = TypeVar("T")
Step = Callable[[AsyncCacheLink], Awaitable[T]]


class AsyncClusterLink(AsyncCacheLink):
    """As `AsyncCacheLink`: each key's node is asked, in one round trip; see `ClusterLink`."""

    health: ClusterState

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float, health: ClusterState) -> None:
        # Its parts are those of the nodes' own links.
        self._url, self.health = read_url(url), health
        self._timeout_seconds, self._reply_seconds = timeout_seconds, reply_seconds
        self._nodes: dict[Address, AsyncCacheLink] = {}
        self._learning: dict[asyncio.AbstractEventLoop, asyncio.Task[CacheUnavailable | None]] = {}
        health.on_slots_changed(self._keep_only)

    def begin_read(self, key: CacheKey) -> None:
        """Leave it to `read`: more than one step may be needed."""

    async def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, its times by the reader's clock; else as `AsyncCacheLink.read`."""
        owner, raw = await self._routed(
            key.entry, key.query, lambda node: node.read(key), lambda node: _read_for_once(node, key)
        )
        return await self._by_own_clock(raw, owner)

    async def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, each node's in one write; a node's error is that of its keys."""
        found: list[bytes | CacheUnavailable | None] = [None] * len(keys)
        places_of: dict[Address, list[int]] = {}
        for place, key in enumerate(keys):
            try:
                places_of.setdefault(await self._owner(key.entry, key.query), []).append(place)
            except CacheUnavailable as error:
                found[place] = error
        groups = [(owner, [keys[place] for place in places]) for owner, places in places_of.items()]
        all_raw = await asyncio.gather(*(self._read_at(owner, group) for owner, group in groups))
        for places, raws in zip(places_of.values(), all_raw, strict=True):
            for place, raw in zip(places, raws, strict=True):
                found[place] = raw
        return found

    async def ask_all(self, commands: Sequence[Command], query: str | None) -> list[object]:
        """Send commands to the node of the first one's key."""
        return await self._node(await self._owner(str(commands[0][1]), query)).ask_all(commands, query)

    async def run(self, call: Call[T], query: str) -> T:
        """Run one step of the lease record."""
        _, reply = await self._routed(
            call.keys[0], query, lambda node: node.run(call, query), lambda node: _run_for_once(node, call, query)
        )
        return reply

    async def learn_clock(self) -> None:
        """Learn the time of one node as the reader's: what is learnt of the others at their first reads moves theirs.

        Raises:
            CacheUnavailable: none has answered.
        """
        failed = None if self.health.is_known else await self._learn_slots()
        for address in self.health.masters():
            try:
                await self._node(address).learn_clock()
            except CacheUnavailable as error:
                failed = error
            else:
                self.health.learn_from(address)
                return
        raise failed or self.health.no_owner(None)

    def close(self) -> None:
        """Close this event loop's connections."""
        for node in list(self._nodes.values()):  # a copy: who learns of the slots may leave some meanwhile
            node.close()

    async def _routed(self, key: str, query: str | None, step: Step[T], for_once: Step[T]) -> tuple[Address, T]:
        """Do a step at the node that has the key's slot, as `ClusterLink._routed`."""
        owner = await self._owner(key, query)
        for left in reversed(range(MAX_REDIRECTIONS)):
            try:
                return owner, await step(self._node(owner))
            except CacheUnavailable as error:
                redirection = self.health.redirected(error.__cause__, owner)
                if redirection is not None and redirection.is_ask:
                    return redirection.address, await for_once(self._node(redirection.address))
                if not left:
                    raise
                if redirection is not None:
                    owner = redirection.address
                elif is_to_be_repeated(error.__cause__):
                    await asyncio.sleep(TRY_AGAIN_SECONDS)
                else:
                    owner = await self._other_owner(error, owner, key)
        raise AssertionError("the last round has returned or raised")

    async def _owner(self, key: str, query: str | None) -> Address:
        owner = self.health.owner(key)
        if owner is None and (not self.health.is_known or self.health.is_due_once()):
            failed = await self._learn_slots()
            owner = self.health.owner(key)
            if owner is None and failed is not None:
                raise failed if query is None else failed.about(query)
        if owner is None:
            raise self.health.no_owner(query)
        return owner

    async def _other_owner(self, error: CacheUnavailable, owner: Address, key: str) -> Address:
        """Return who has the slot now that its node has failed; raise ``error`` where it is the same."""
        if may_have_moved(error):
            if self.health.is_due_once():
                await self._learn_slots(besides=(owner,))
            other = self.health.owner(key)
            if other is not None and other != owner:
                return other
        raise error

    async def _learn_slots(self, besides: Collection[Address] = ()) -> CacheUnavailable | None:
        """Ask for the slots, once for all tasks of the loop that want them; the error where nobody has told."""
        loop = asyncio.get_running_loop()
        asking = self._learning.get(loop)
        if asking is None:
            asking = self._learning[loop] = loop.create_task(self._ask_for_slots(besides))
            asking.add_done_callback(lambda _: self._learning.pop(loop, None))
        # Whoever is cancelled leaves it to the others.
        return await asyncio.shield(asking)

    async def _ask_for_slots(self, besides: Collection[Address]) -> CacheUnavailable | None:
        failed: CacheUnavailable | None = None
        began = monotonic_seconds()
        for address in self.health.slot_sources(besides):
            try:
                (reply,) = await self._node(address).ask_all([SLOTS_REQUEST], None)
            except CacheUnavailable as error:
                failed = error
            else:
                if self.health.take(reply, address):
                    return None
                failed = self._node(address).health.failure(reply, None) if isinstance(reply, RedisError) else None
            if monotonic_seconds() - began >= self._timeout_seconds:
                break
        self.health.slots_refreshed(began)
        return failed

    def _node(self, address: Address) -> AsyncCacheLink:
        found = self._nodes.get(address)
        if found is None:
            health = self.health.health_of(address)
            made = AsyncCacheLink(self._url.url_of(address), self._timeout_seconds, self._reply_seconds, health)
            found = self._nodes.setdefault(address, made)  # another loop's thread may have been faster
        return found

    def _keep_only(self, kept: Collection[Address]) -> None:
        """Leave the nodes that are in the cluster no more, on all event loops; called on any thread."""
        for address in [address for address in list(self._nodes) if address not in kept]:
            if (node := self._nodes.pop(address, None)) is not None:
                node.leave()

    async def _read_at(self, owner: Address, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        try:
            raws = await self._node(owner).read_all(keys)
            return [await self._by_own_clock(raw, owner) for raw in raws if not isinstance(raw, CacheUnavailable)]
        except CacheUnavailable as error:
            failed = error
        # One of them, or all.
        return await asyncio.gather(*(self._read_alone(key, failed, owner) for key in keys))

    async def _read_alone(
        self, key: CacheKey, failed: CacheUnavailable, owner: Address
    ) -> bytes | CacheUnavailable | None:
        try:
            if not leads_elsewhere(failed) and may_have_moved(failed):
                await self._other_owner(failed, owner, key.entry)
            return await self.read(key)
        except CacheUnavailable as error:
            return error.about(key.query)

    async def _by_own_clock(self, raw: bytes | None, owner: Address) -> bytes | None:
        if not self.health.health_of(owner).clock.is_known:
            await self._node(owner).learn_clock()
        if not self.health.clock.is_known:
            self.health.learn_from(owner)
        return self.health.shifted(raw, owner)


def open_async_link(url: str, timeout_seconds: float, reply_seconds: float, health: Health) -> AsyncCacheLink:
    """Return the link for a URL; ``health`` is that of the sync link to the same."""
    if isinstance(health, ClusterState):
        return AsyncClusterLink(url, timeout_seconds, reply_seconds, health)
    return AsyncCacheLink(url, timeout_seconds, reply_seconds, health)


async def _read_for_once(node: AsyncCacheLink, key: CacheKey) -> bytes | None:
    _, reply = await node.ask_all([ASKING, ("GET", key.entry)], key.query)
    return node.health.entry_of(reply, key.query)


async def _run_for_once(node: AsyncCacheLink, call: Call[T], query: str) -> T:
    _, reply = await node.ask_all([ASKING, by_text(call)], query)
    if isinstance(reply, RedisError):
        raise node.health.failure(reply, query) from reply
    return call.parse(reply)
