"""Setting of a graph-cache middleware without grace: a reader that misses loads, and an early read refreshes.

::

    GET ─▶ there ─▶ t_remaining ≤ −β·δ·ln(u)? ─▶ a task of this process: lock, load, SET     the read returns at once
        └▶ gone ──▶ lock ─▶ load, SET                                                        the read waits
                       └▶ held by another: poll until it is there, or load after all         the read waits

The lock is SET NX PX with a token, and only its holder releases it, in one step. β and the decision are those of this
project's worker and reader, so that the settings differ only in the place of the refresh, not in its time.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec
import redis.asyncio
from neo4j import AsyncDriver, AsyncManagedTransaction

from api_client.protocol.entry import Smoothed
from api_client.protocol.xfetch import MICROSECONDS, should_refresh
from benchmarks.topology.queries import CYPHER, OriginLoad, QueryKey
from benchmarks.topology.reader import Served, TrialReader
from refresher.flow.policy import smooth

# The middleware's defaults.
LOCK_MS: Final = 5_000
JITTER_MS: Final = 50
POLL_SECONDS: Final = 0.01
WAIT_SECONDS: Final = 5.0
_MIN_DRAW: Final = 1e-9
_UNLOCK: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Kept(msgspec.Struct, array_like=True):
    """Cached value, with its expiry (wall clock, s) and the learned δ."""

    value: Any
    expires_at: float
    delta: Smoothed


class Origin:
    """The graph, queried by the reader's own process."""

    def __init__(self, driver: AsyncDriver, database: str | None) -> None:
        self._driver, self._database = driver, database
        self.load_so_far: OriginLoad = OriginLoad()

    async def load(self, query_key: QueryKey, pause_seconds: float) -> Any:
        async def work(tx: AsyncManagedTransaction) -> list[dict[str, Any]]:
            began = time.perf_counter()
            rows = await (await tx.run(CYPHER[query_key.kind], query_key.params)).data()
            before = self.load_so_far
            self.load_so_far = OriginLoad(before.loads + 1, before.busy_seconds + time.perf_counter() - began)
            await asyncio.sleep(pause_seconds)
            return rows

        async with self._driver.session(database=self._database) as session:
            return await session.execute_read(work)


@dataclass(slots=True)
class OwnProcess(TrialReader):
    """The middleware's setting. ``namespace`` is the keys' prefix; ``rng`` is for draws and jitter."""

    client: redis.asyncio.Redis
    origin: Origin
    namespace: str
    rng: random.Random
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def put(self, remaining_seconds: Sequence[float]) -> None:
        """Store unexpired keys; expired ones have gone from Redis."""
        pipeline = self.client.pipeline(transaction=False)
        delta = Smoothed(self.setup.delta_seconds, self.setup.delta_seconds / 4)
        for number, left_seconds in enumerate(remaining_seconds):
            if left_seconds > 0:
                kept = Kept(self.setup.values[number], time.time() + left_seconds, delta)
                pipeline.set(self._key(number), msgspec.msgpack.encode(kept), px=max(1, round(left_seconds * 1000)))
        await pipeline.execute()

    async def read(self, number: int) -> Served:
        """Return at once if there is a value; otherwise load, or wait for another's load."""
        kept = await self._kept(number)
        if kept is None:
            await self._load_or_wait(number)
            return Served.WAITED
        left_seconds = kept.expires_at - time.time()
        if self._refreshes(number, kept, left_seconds):
            task = asyncio.create_task(self._refresh(number, kept))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return Served.FRESH

    async def origin_load(self) -> OriginLoad:
        return self.origin.load_so_far

    async def clear(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        keys = [self._key(number) for number in range(len(self.setup.keys))]
        await self.client.unlink(*keys, *(f"{key}:lock" for key in keys))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failures[type(error).__name__] += 1

    def _refreshes(self, number: int, kept: Kept, left_seconds: float) -> bool:
        point = self.setup.trial.point
        # As in the middleware: a configured constant, or an estimate for each query.
        delta_seconds = point.pause_seconds or kept.delta.mean
        u = max(1.0 - self.rng.random(), _MIN_DRAW)
        return should_refresh(
            0, int(left_seconds * MICROSECONDS), delta_seconds=delta_seconds, beta=self.setup.beta(number),
            ttl_seconds=point.ttl_seconds, u=u,
        )  # fmt: skip

    async def _kept(self, number: int) -> Kept | None:
        raw = cast("bytes | None", await self.client.get(self._key(number)))
        kept = None if raw is None else msgspec.msgpack.decode(raw, type=Kept)
        return kept if kept is not None and kept.expires_at > time.time() else None

    async def _load_or_wait(self, number: int) -> None:
        async with self._lock(number) as is_held:
            if is_held:
                if await self._kept(number) is None:  # another reader may have stored it just before the lock was free
                    await self._load(number, None)
                return
        gives_up_at = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < gives_up_at:
            await asyncio.sleep(POLL_SECONDS)
            if await self._kept(number) is not None:
                return
        await self._load(number, None)

    async def _refresh(self, number: int, kept: Kept) -> None:
        async with self._lock(number) as is_held:
            if is_held:
                await self._load(number, kept.delta)

    async def _load(self, number: int, before: Smoothed | None) -> None:
        point = self.setup.trial.point
        began = time.perf_counter()
        value = await self.origin.load(self.setup.keys[number], point.pause_seconds)
        delta = smooth(before, time.perf_counter() - began)
        kept = Kept(value, time.time() + point.ttl_seconds, delta)
        await self.client.set(self._key(number), msgspec.msgpack.encode(kept), px=round(point.ttl_seconds * 1000))

    @asynccontextmanager
    async def _lock(self, number: int) -> AsyncIterator[bool]:
        """Try to take the key's lock, which only its holder releases."""
        name, token = f"{self._key(number)}:lock", secrets.token_hex(8)
        is_held = bool(await self.client.set(name, token, nx=True, px=LOCK_MS + self.rng.randint(0, JITTER_MS)))
        try:
            yield is_held
        finally:
            if is_held:
                await self.client.eval(_UNLOCK, 1, name, token)

    def _key(self, number: int) -> str:
        return f"{self.namespace}:own:{number}"
