"""The way of async reads: as `api_client.read_path`, awaited. What a read decides stands in `read_core`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from api_client.aio.flights import AsyncFlights
from api_client.aio.link import AsyncCacheLink
from api_client.aio.waits import AsyncWaitDriver
from api_client.answers import Answer
from api_client.batches import Batch
from api_client.clock import monotonic_seconds
from api_client.errors import CacheError, CacheUnavailable, WaitTimeout
from api_client.judging import PLAIN, Floor
from api_client.keys import CacheKey
from api_client.link import CacheLink
from api_client.misses import Miss
from api_client.publisher import Publisher
from api_client.read_core import ReadCore


class AsyncReadPath:
    """Reads entries on an event loop; ``sync_link`` is for what the publisher's thread does."""

    def __init__(
        self,
        core: ReadCore,
        link: AsyncCacheLink,
        sync_link: CacheLink,
        publisher: Publisher,
        driver: AsyncWaitDriver,
    ) -> None:
        self._core, self._link, self._sync_link, self._publisher = core, link, sync_link, publisher
        self._driver = driver
        self._flights = AsyncFlights(monotonic_seconds)

    async def read(self, key: CacheKey, floor: Floor, timeout_seconds: float, type_: Any) -> Answer:
        """Return the answer: at once where there is an entry that is good enough, else as soon as there is.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        try:
            if self._core.tier is not None and (local := self._core.serve_local(key, floor, type_)) is not None:
                return local
            fill = None
            try:
                fill = self._core.begin(key)
                # Written out here: each read would pay for a coroutine around it.
                reading = self._link.begin_read(key)
                if reading is None:
                    raw = await self._link.read(key)
                else:
                    try:
                        raw = self._link.end_read(await reading, key)
                    except RedisError as error:
                        raw = await self._link.read_again(key, error)
                clock = self._link.health.clock
                if clock.is_due_once():
                    if clock.is_known:
                        self._publisher.do_soon(self._relearn_clock)
                    else:
                        await self._link.learn_clock()
            except BaseException:
                self._core.abandon(fill)
                raise
            answer = self._core.serve(key, raw, floor, type_, fill)
            if isinstance(answer, int):
                miss = Miss(self._core, key, floor, answer, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return miss.answer(await self._wait(miss), type_)
        except CacheError as error:
            self._core.tell_failed(key, error)
            raise
        return answer

    async def read_all(self, batch: Batch) -> None:
        """Answer all of a batch: what is there in one write, the rest by waits that go on together."""
        batch.serve_local()
        keys = batch.begin()
        if not keys:
            return
        try:
            found = await self._link.read_all(keys)
            await self._link.now_us()
            misses = batch.serve(found)
        except CacheUnavailable as error:
            batch.abandon()
            batch.fail(error)
            return
        except BaseException:
            batch.abandon()
            raise
        if misses:
            with self._core.spans.waiting([miss.key for miss in misses]):
                batch.end(await asyncio.gather(*map(self._waited, misses)))

    async def _waited(self, miss: Miss) -> bytes | CacheError:
        try:
            return await self._wait(miss)
        except CacheError as error:
            return error

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._sync_link.learn_clock()

    async def _wait(self, miss: Miss) -> bytes:
        if miss.may_share:
            try:
                raw, followed = await self._flights.share(
                    miss.key.entry,
                    miss.left_seconds,
                    lambda left, begins: self._driver.wait(miss.key, PLAIN, 0, left, begins),
                )
            except WaitTimeout:
                raise
            except TimeoutError:
                raise miss.timed_out() from None
            if miss.takes(raw, followed=followed):
                return raw
        return await self._driver.wait(miss.key, miss.floor, miss.seen_token, miss.left_seconds)
