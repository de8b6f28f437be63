"""Asynchronous read path: the awaitable counterpart of `api_client.read.sync`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from api_client.errors import CacheError, CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.model import ReadResult
from api_client.read.batch import Batch
from api_client.read.coalescing import AsyncSingleFlight
from api_client.read.core import MustWait, ReadCore
from api_client.read.evaluate import Freshness
from api_client.read.pending import PendingRead
from api_client.read.wait import LoadInPlace, Pause, Reply, Wait, load_in_place
from api_client.transport.aio_link import AsyncCacheLink
from api_client.transport.pubsub import Notifications


class AsyncWaitRunner:
    """Runs waits without blocking the event loop."""

    def __init__(self, link: AsyncCacheLink, notifications: Notifications) -> None:
        self._link, self._notifications = link, notifications

    async def run(self, wait: Wait, read_begins: Callable[[], None] = lambda: None) -> bytes:
        """Return the bytes of the awaited entry, as `SyncWaitRunner.run` does."""
        notified, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed in the meantime
                loop.call_soon_threadsafe(notified.set)

        listener = None
        try:
            listener = self._notifications.listen({wait.key.channel: wake})
            while wait.result is None:
                if isinstance(wait.step, LoadInPlace):
                    await asyncio.to_thread(load_in_place, [wait])
                    continue
                try:
                    reply = await self._run_step(wait, notified, read_begins)
                except CacheUnavailable as error:
                    reply = error
                wait.advance(reply)
        finally:
            if listener is not None:
                listener.close()
        if isinstance(wait.result, CacheError):
            raise wait.result from wait.result.__cause__
        return wait.result

    async def _run_step(
        self, wait: Wait, notified: asyncio.Event, read_begins: Callable[[], None]
    ) -> Reply | CacheUnavailable:
        if wait.call is not None:
            reply: Reply = await self._link.run(wait.call, wait.key.query)
            return reply
        if isinstance(wait.step, Pause):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait.step.duration_seconds):
                    await notified.wait()
            came = notified.is_set()
            notified.clear()
            return came
        read_begins()
        return await self._link.read(wait.key), await self._link.now_us()


class AsyncReadPath:
    """Reads entries on an event loop."""

    def __init__(self, core: ReadCore, link: AsyncCacheLink, runner: AsyncWaitRunner) -> None:
        self._core, self._link, self._runner = core, link, runner
        self._flights = AsyncSingleFlight(monotonic_seconds)

    async def read(self, key: CacheKey, freshness: Freshness, timeout_seconds: float, type_: Any) -> ReadResult:
        """Return the result at once if an entry satisfies the read, otherwise as soon as one does.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        try:
            if self._core.tier is not None and (local := self._core.serve_local(key, freshness, type_)) is not None:
                return local
            fill = None
            try:
                fill = self._core.begin_fill(key)
                # Inlined, since a helper would cost every read another coroutine.
                node = self._link.only_node
                if node is None or (reading := node.begin_read(key)) is None:
                    raw = await self._link.read(key)
                else:
                    try:
                        raw = node.end_read(await reading, key)
                    except RedisError as error:
                        raw = await node.read_again(key, error)
                if self._link.routes.clock.is_due_once():
                    await self._sync_clock()
            except BaseException:
                self._core.abandon(fill)
                raise
            result = self._core.serve(key, raw, freshness, type_, fill)
            if isinstance(result, MustWait):
                pending = PendingRead(self._core, key, freshness, result.seen_token, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return pending.result(await self._wait(pending), type_)
        except CacheError as error:
            self._core.record_failure(key, error)
            raise
        return result

    async def read_all(self, batch: Batch) -> None:
        """Read a whole batch: the entries in Redis with one write, the rest by waits that run concurrently."""
        batch.serve_local()
        pending: list[PendingRead] = []
        with batch.reading() as keys:
            if keys:
                found = await self._link.read_all(keys)
                if self._link.routes.clock.is_due_once():
                    await self._sync_clock()
                pending = batch.serve(found)
        if pending:
            with self._core.spans.waiting([one.key for one in pending]):
                batch.end(await asyncio.gather(*map(self._wait_or_error, pending)))

    async def _sync_clock(self) -> None:
        """Sync Redis' clock when that is due: off the caller's path, unless the clock is still unknown."""
        if self._link.routes.clock.is_known:
            self._core.resync_clock()
        else:
            await self._link.sync_clock()

    async def _wait_or_error(self, pending: PendingRead) -> bytes | CacheError:
        try:
            return await self._wait(pending)
        except CacheError as error:
            return error

    async def _wait(self, pending: PendingRead) -> bytes:
        if pending.may_share:
            shared = await self._flights.share(
                pending.key.entry,
                pending.left_seconds,
                lambda left, begins: self._runner.run(pending.begin_wait(left), begins),
            )
            if (raw := pending.accepted(shared)) is not None:
                return raw
        return await self._runner.run(pending.begin_wait())
