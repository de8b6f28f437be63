"""The project's setting: a stale value is served while a Celery worker loads the next one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import redis.asyncio

from api_client import AsyncCacheClient, EntryState
from api_client.config.broker import miss_queue, refresh_queue
from api_client.protocol import entry
from api_client.protocol.keys import CacheKey
from benchmarks.apparatus.entries import header_of, payload_of
from benchmarks.errors import BenchError
from benchmarks.topology.queries import GRACE_SECONDS, OriginLoad, name_of
from benchmarks.topology.reader import Served, TrialReader

_QUIET_WITHIN_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.01
_SERVED: Final = {EntryState.FRESH: Served.FRESH, EntryState.STALE: Served.STALE, EntryState.MISS: Served.WAITED}


@dataclass(slots=True)
class OnWorkers(TrialReader):
    """The project's setting. ``variant`` is the index into the worker's variants. All trials share the clients."""

    reader: AsyncCacheClient
    variant: int
    cache: redis.asyncio.Redis
    broker: redis.asyncio.Redis
    control: redis.asyncio.Redis

    async def put(self, remaining_seconds: Sequence[float]) -> None:
        """Store all keys; expired ones stay within their grace."""
        seconds, microseconds = await self.cache.time()
        now_us = int(seconds) * 1_000_000 + int(microseconds)
        pipeline, ttl_seconds = self.cache.pipeline(transaction=False), self.setup.trial.point.ttl_seconds
        for number, left_seconds in enumerate(remaining_seconds):
            key = self._key(number)
            payload = payload_of(self.setup.values[number])
            header = header_of(
                now_us + int(left_seconds * 1e6), ttl_seconds, self.setup.delta_seconds,
                beta=self.setup.beta(number), degree=self.setup.keys[number].degree,
            )  # fmt: skip
            raw = entry.encode(header, key.digest, payload)
            pipeline.set(key.entry, raw, px=round((ttl_seconds + GRACE_SECONDS) * 1000))
        await pipeline.execute()

    async def read(self, number: int) -> Served:
        query_key = self.setup.keys[number]
        found = await self.reader.get_entry(name_of(query_key.kind, self.variant), query_key.params)
        return _SERVED[found.state]

    async def origin_load(self) -> OriginLoad:
        return await OriginLoad.of_workers(self.control)

    async def clear(self) -> None:
        await self.reader.flush(_QUIET_WITHIN_SECONDS)
        gives_up_at = time.monotonic() + _QUIET_WITHIN_SECONDS
        while await self._under_way():
            if time.monotonic() >= gives_up_at:
                raise BenchError(f"refreshes were still under way {_QUIET_WITHIN_SECONDS:g} s after a cell had ended")
            await asyncio.sleep(_POLL_SECONDS)
        keys = [self._key(number) for number in range(len(self.setup.keys))]
        await self.cache.unlink(*(name for key in keys for name in (key.entry, key.record)))

    async def _under_way(self) -> int:
        pipeline = self.broker.pipeline(transaction=False)
        pipeline.hlen("unacked")
        for queue in (miss_queue(self.reader.settings.namespace), refresh_queue(self.reader.settings.namespace)):
            pipeline.llen(queue)
        return sum(await pipeline.execute())

    def _key(self, number: int) -> CacheKey:
        query_key = self.setup.keys[number]
        return self.reader.key(name_of(query_key.kind, self.variant), query_key.params)
