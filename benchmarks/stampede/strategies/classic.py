"""Classic strategies on plain redis-py, each written once, for threads and for event loops."""

from __future__ import annotations

import math
import random
import secrets
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from api_client.protocol.xfetch import cut_draw
from benchmarks.apparatus.loops import await_if_needed, pause, run_on_thread
from benchmarks.stampede.config import pooled
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import Cache, Strategy, Value

RETRY_SECONDS: Final = 0.01
_UNLOCK: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Stored(msgspec.Struct, frozen=True):
    """Content of the Redis key: the value, and the seconds that it took to make."""

    value: Value
    delta: float


@dataclass(frozen=True, slots=True)
class Found:
    """A value that was there, and how long it will last."""

    stored: Stored
    left_seconds: float


class ClassicStrategy(Strategy):
    """A strategy of what to do with a value that is there, and where there is none."""

    async def opened(self, *, on_loop: bool) -> Cache:
        return _ClassicCache(self, on_loop=on_loop)

    async def read(self, key: KeyOfRead) -> Value:
        """Read once."""
        found = await key.look()
        if found is not None:
            return await self.found(key, found)
        record(Mark.MISS)
        return await self.missed(key)

    async def found(self, key: KeyOfRead, found: Found) -> Value:
        """Return the value, or another one."""
        return found.stored.value

    @abstractmethod
    async def missed(self, key: KeyOfRead) -> Value:
        """Return the value where there was none."""


class _ClassicCache:
    def __init__(self, strategy: ClassicStrategy, *, on_loop: bool) -> None:
        self.strategy, self.on_loop = strategy, on_loop
        self.origin = strategy.origin(on_loop=on_loop)
        self.client = pooled(strategy.config.servers.cache_url, on_loop=on_loop)

    def read(self, number: int) -> Any:
        coroutine = self.strategy.read(KeyOfRead(self, number))
        return coroutine if self.on_loop else run_on_thread(coroutine)

    def close(self) -> Any:
        return self._close() if self.on_loop else run_on_thread(self._close())

    async def _close(self) -> None:
        await await_if_needed(self.client.aclose() if self.on_loop else self.client.close())
        await await_if_needed(self.origin.close())


class KeyOfRead:
    """The key of one read: what a strategy can do with it. The lock's token is the read's own."""

    def __init__(self, cache: _ClassicCache, number: int) -> None:
        self._cache, self._client, self._number = cache, cache.client, number
        self._key = f"{cache.strategy.prefix}:{number}"
        self._lock, self._token = f"{self._key}:lock", secrets.token_hex(8)

    async def look(self) -> Found | None:
        """Return what is there. The key may go between the two replies, or come."""
        looking = self._client.pipeline(transaction=False).pttl(self._key).get(self._key)
        left_ms, raw = await await_if_needed(looking.execute())
        if raw is None:
            return None
        return Found(msgspec.json.decode(raw, type=Stored), max(0, left_ms) / 1000)

    async def lock(self) -> bool:
        """Take the lock, or don't."""
        hold_ms = int(self._cache.strategy.config.lease_seconds * 1000)
        return bool(await await_if_needed(self._client.set(self._lock, self._token, px=hold_ms, nx=True)))

    async def unlock(self) -> None:
        """Give the lock back, if it still is this read's."""
        await await_if_needed(self._client.eval(_UNLOCK, 1, self._lock, self._token))

    async def recompute(self) -> Value:
        """Ask the origin, and store its value with the time that it took, to expire."""
        began = time.monotonic()
        value = cast("Value", await await_if_needed(self._cache.origin.compute(self._number)))
        raw = msgspec.json.encode(Stored(value, time.monotonic() - began))
        expires_ms = int(self._cache.strategy.config.expires_seconds * 1000)
        await await_if_needed(self._client.set(self._key, raw, px=expires_ms))
        return value

    async def pause(self) -> None:
        """Wait for 10 ms before the next try."""
        await pause(RETRY_SECONDS, on_loop=self._cache.on_loop)


class Fetch(ClassicStrategy):
    """Get; on a miss recompute and set."""

    name = "fetch"
    title = "fetch"
    limits = "No protection: everyone who finds nothing recomputes, and waits for that."

    async def missed(self, key: KeyOfRead) -> Value:
        return await key.recompute()


class Locked(ClassicStrategy):
    """Get; on a miss take the lock and recompute, or wait for who has it."""

    name = "locked"
    title = "locked"
    limits = "Nothing is served while the value is made anew: all wait, looking again every 10 ms."

    async def missed(self, key: KeyOfRead) -> Value:
        return await locked_or_waited(key)


async def locked_or_waited(key: KeyOfRead) -> Value:
    """Recompute under the lock, or return what its holder has stored."""
    while not await key.lock():
        record(Mark.CONTENDED)
        await key.pause()
        found = await key.look()
        if found is not None:
            return found.stored.value
    # Who had the lock before may have stored a value since one last looked.
    found = await key.look()
    value = found.stored.value if found is not None else await key.recompute()
    await key.unlock()
    return value


def refreshes_early(left_seconds: float, delta_seconds: float, beta: float, u: float) -> bool:
    """Decide by XFetch's formula whether a draw ``u`` from (0, 1] recomputes so long before the expiry."""
    return -delta_seconds * beta * math.log(u) >= left_seconds


class XFetch(Fetch):
    """Get; recompute early by chance, and on a miss."""

    name = "xfetch"
    title = "xfetch"
    limits = "Several may recompute at once, each of them while its caller waits; past the expiry it is fetch."

    async def found(self, key: KeyOfRead, found: Found) -> Value:
        u = cut_draw(1.0 - random.random(), self.config.rnd_precision)  # noqa: S311 - no secret
        if not refreshes_early(found.left_seconds, found.stored.delta, self.config.beta, u):
            return found.stored.value
        record(Mark.EARLY)
        return await self.early(key, found)

    async def early(self, key: KeyOfRead, found: Found) -> Value:
        """Return the value that an early recompute leaves."""
        return await key.recompute()


class XLocked(XFetch):
    """Get; recompute early by chance and under the lock, or duck out; on a miss as `locked`."""

    name = "xlocked"
    title = "xlocked"
    limits = "Who recomputes early makes its caller wait for that; past the expiry it is locked, and all wait."

    async def missed(self, key: KeyOfRead) -> Value:
        return await locked_or_waited(key)

    async def early(self, key: KeyOfRead, found: Found) -> Value:
        if not await key.lock():
            record(Mark.CONTENDED | Mark.DUCKED)
            return found.stored.value
        value = await key.recompute()
        await key.unlock()
        return value
