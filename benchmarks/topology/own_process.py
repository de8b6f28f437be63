"""Setting of a graph-cache middleware without grace: a reader that misses loads; one that reads early refreshes.

::

    GET ─▶ there ─▶ t_remaining ≤ −β·δ·ln(u)? ─▶ a task of this process: lock, load, SET     the read returns at once
        └▶ gone ──▶ lock ─▶ load, SET                                                        the read waits
                       └▶ held by another: poll until it is there, or load after all         the read waits

The lock is SET NX PX with a token, given back by its holder alone, in one step. β and the decision are those of the
worker and the reader of this project, so that the settings differ in who refreshes, not in when.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from api_client.protocol.entry import Smoothed
from api_client.protocol.xfetch import MICROSECONDS, should_refresh
from benchmarks.topology.queries import CYPHER, OriginLoad
from benchmarks.topology.reader import LeadTime, Served, TrialReader
from refresher.flow.policy import smooth

if TYPE_CHECKING:
    import redis.asyncio
    from neo4j import AsyncDriver, AsyncManagedTransaction

    from benchmarks.topology.queries import QueryKey

# The middleware's own defaults.
LOCK_MS: Final = 5_000
JITTER_MS: Final = 50
POLL_SECONDS: Final = 0.01
WAIT_SECONDS: Final = 5.0
_MIN_DRAW: Final = 1e-9
_UNLOCK: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Kept(msgspec.Struct, array_like=True):
    """Cached value: a value, its expiry (wall clock, s) and δ as it was learned."""

    value: Any
    expires_at: float
    delta: Smoothed


class Origin:
    """The graph, queried by the reader's own process.

    Args:
        driver: of the graph.
        database: of the user's own, or None.
    """

    def __init__(self, driver: AsyncDriver, database: str | None) -> None:
        self._driver, self._database = driver, database
        self.load_so_far: OriginLoad = OriginLoad()

    async def load(self, query_key: QueryKey, pause_seconds: float) -> Any:
        """Run a query in a read transaction, pause, and return its rows."""

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
    """The setting.

    Attributes:
        client: of the cache.
        origin: what is queried.
        namespace: begins the keys.
        rng: of draws and jitter.
    """

    client: redis.asyncio.Redis
    origin: Origin
    namespace: str
    rng: random.Random
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def put(self, remaining_seconds: Sequence[float]) -> None:
        """Put what is not expired; what is has gone from Redis."""
        pipeline = self.client.pipeline(transaction=False)
        delta = Smoothed(self.setup.delta_seconds, self.setup.delta_seconds / 4)
        for number, left_seconds in enumerate(remaining_seconds):
            if left_seconds > 0:
                kept = Kept(self.setup.values[number], time.time() + left_seconds, delta)
                pipeline.set(self._key(number), msgspec.msgpack.encode(kept), px=max(1, round(left_seconds * 1000)))
        await pipeline.execute()

    async def read(self, number: int) -> Served:
        """Return at once with what is there; else load, or wait for who does."""
        kept = await self._kept(number)
        if kept is None:
            await self._load_or_wait(number)
            return Served.WAITED
        left_seconds = kept.expires_at - time.time()
        if self._refreshes(number, kept, left_seconds):
            task = asyncio.create_task(self._refresh(number, kept, left_seconds))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return Served.FRESH

    async def origin_load(self) -> OriginLoad:
        """Return the load that this process has put on the graph."""
        return self.origin.load_so_far

    async def clear(self) -> None:
        """Wait for refreshes, and remove keys and locks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        names = [name for number in range(len(self.setup.keys)) for name in (self._key(number), self._lock(number))]
        await self.client.unlink(*names)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.count_failure(error)

    def _refreshes(self, number: int, kept: Kept, left_seconds: float) -> bool:
        point = self.setup.trial.point
        return should_refresh(
            0,
            int(left_seconds * MICROSECONDS),
            # As the middleware has it: a constant that one sets, or an estimate of each query.
            delta_seconds=point.pause_seconds or kept.delta.mean,
            beta=self.setup.beta(number),
            ttl_seconds=point.ttl_seconds,
            u=max(1.0 - self.rng.random(), _MIN_DRAW),
        )

    async def _kept(self, number: int) -> Kept | None:
        raw = cast("bytes | None", await self.client.get(self._key(number)))
        kept = None if raw is None else msgspec.msgpack.decode(raw, type=Kept)
        return kept if kept is not None and kept.expires_at > time.time() else None

    async def _load_or_wait(self, number: int) -> None:
        token = secrets.token_hex(8)
        if not await self._locked(number, token):
            gives_up_at = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < gives_up_at:
                await asyncio.sleep(POLL_SECONDS)
                if await self._kept(number) is not None:
                    return
            await self._load(number, None)
            return
        try:
            if await self._kept(number) is None:  # another may have stored it just before the lock was free
                await self._load(number, None)
        finally:
            await self._unlock(number, token)

    async def _refresh(self, number: int, kept: Kept, left_seconds: float) -> None:
        token = secrets.token_hex(8)
        if not await self._locked(number, token):
            return
        try:
            self.lead_times.append(LeadTime(self.setup.keys[number].degree, left_seconds))
            await self._load(number, kept.delta)
        finally:
            await self._unlock(number, token)

    async def _load(self, number: int, before: Smoothed | None) -> None:
        point = self.setup.trial.point
        began = time.perf_counter()
        value = await self.origin.load(self.setup.keys[number], point.pause_seconds)
        delta = smooth(before, time.perf_counter() - began)
        kept = Kept(value, time.time() + point.ttl_seconds, delta)
        await self.client.set(self._key(number), msgspec.msgpack.encode(kept), px=round(point.ttl_seconds * 1000))

    async def _locked(self, number: int, token: str) -> bool:
        hold_ms = LOCK_MS + self.rng.randint(0, JITTER_MS)
        return bool(await self.client.set(self._lock(number), token, nx=True, px=hold_ms))

    async def _unlock(self, number: int, token: str) -> None:
        await self.client.eval(_UNLOCK, 1, self._lock(number), token)

    def _key(self, number: int) -> str:
        return f"{self.namespace}:own:{number}"

    def _lock(self, number: int) -> str:
        return f"{self.namespace}:own:{number}:lock"
