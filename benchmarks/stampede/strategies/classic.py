"""Classic strategies on plain redis-py, each written once for threads and event loops."""

from __future__ import annotations

import math
import random
import secrets
import time
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec

from benchmarks.apparatus.loops import await_if_needed, pause, run_on_thread
from benchmarks.stampede.config import pooled
from benchmarks.stampede.origin import Origin
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import Cache, Strategy, Value

_RETRY_SECONDS: Final = 0.01
_UNLOCK: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class _Stored(msgspec.Struct, frozen=True):
    """Content of the Redis key: the value, and the duration of its recompute in seconds."""

    value: Value
    delta: float


class _Found(NamedTuple):
    """A value that was found, and the rest of its life."""

    stored: _Stored
    left_seconds: float


class Classic(Strategy):
    """Get; on a miss recompute and set, or wait for another reader's recompute.

    Attributes:
        locks: True if recomputes are under the lock.
        is_early: True if a read may recompute before the expiry, by chance.
    """

    locks: ClassVar[bool] = False
    is_early: ClassVar[bool] = False

    async def opened(self, *, on_loop: bool) -> Cache:
        client = pooled(self.config.servers.cache_url, on_loop=on_loop)
        origin = self.origin(on_loop=on_loop)

        def read(number: int) -> Any:
            coroutine = self.read(_KeyOfRead(self, client, origin, number, on_loop=on_loop))
            return coroutine if on_loop else run_on_thread(coroutine)

        async def close() -> None:
            await await_if_needed(client.aclose() if on_loop else client.close())
            await await_if_needed(origin.close())

        return Cache(read, close if on_loop else lambda: run_on_thread(close()))

    async def read(self, key: _KeyOfRead) -> Value:
        found = await key.look()
        if found is None:
            record(Mark.MISS)
            return await (key.recompute_or_wait() if self.locks else key.recompute())
        if not self._refreshes_early(found):
            return found.stored.value
        record(Mark.EARLY)
        if not self.locks:
            return await key.recompute()
        if not await key.lock():
            record(Mark.CONTENDED | Mark.DUCKED)
            return found.stored.value
        value = await key.recompute()
        await key.unlock()
        return value

    def _refreshes_early(self, found: _Found) -> bool:
        """Decide by XFetch's formula, with a draw from (0, 1]."""
        if not self.is_early:
            return False
        u = 1.0 - random.random()  # noqa: S311 - no secret
        return -found.stored.delta * self.config.beta * math.log(u) >= found.left_seconds


class _KeyOfRead:
    """The key in one read, with that read's own token for the lock."""

    def __init__(self, strategy: Classic, client: Any, origin: Origin, number: int, *, on_loop: bool) -> None:
        self._config, self._client, self._origin, self._number = strategy.config, client, origin, number
        self._on_loop = on_loop
        self._key = f"{strategy.prefix}:{number}"
        self._lock, self._token = f"{self._key}:lock", secrets.token_hex(8)

    async def look(self) -> _Found | None:
        """Return the present value. The key may appear or disappear between the two replies."""
        looking = self._client.pipeline(transaction=False).pttl(self._key).get(self._key)
        left_ms, raw = await await_if_needed(looking.execute())
        if raw is None:
            return None
        return _Found(msgspec.json.decode(raw, type=_Stored), max(0, left_ms) / 1000)

    async def lock(self) -> bool:
        hold_ms = int(self._config.lease_seconds * 1000)
        return bool(await await_if_needed(self._client.set(self._lock, self._token, px=hold_ms, nx=True)))

    async def unlock(self) -> None:
        """Release the lock, if this read still holds it."""
        await await_if_needed(self._client.eval(_UNLOCK, 1, self._lock, self._token))

    async def recompute(self) -> Value:
        """Query the origin, and store its value with the duration and an expiry."""
        began = time.monotonic()
        value = cast("Value", await await_if_needed(self._origin.compute(self._number)))
        raw = msgspec.json.encode(_Stored(value, time.monotonic() - began))
        expires_ms = int(self._config.expires_seconds * 1000)
        await await_if_needed(self._client.set(self._key, raw, px=expires_ms))
        return value

    async def recompute_or_wait(self) -> Value:
        """Recompute under the lock, or return what its holder has stored."""
        while not await self.lock():
            record(Mark.CONTENDED)
            await pause(_RETRY_SECONDS, on_loop=self._on_loop)
            if (found := await self.look()) is not None:
                return found.stored.value
        # The previous holder of the lock may have stored a value since the last look.
        found = await self.look()
        value = found.stored.value if found is not None else await self.recompute()
        await self.unlock()
        return value


class Fetch(Classic):
    """Get; on a miss recompute and set."""

    name = title = "fetch"
    limits = "No protection: everyone who finds nothing recomputes, and waits for that."


class Locked(Classic):
    """Get; on a miss take the lock and recompute, or wait for its holder."""

    name = title = "locked"
    locks = True
    limits = "Nothing is served while the value is made anew: all wait, looking again every 10 ms."


class XFetch(Classic):
    """Get; recompute early by chance, and on a miss."""

    name = title = "xfetch"
    is_early = True
    limits = "Several may recompute at once, each of them while its caller waits; past the expiry it is fetch."


class XLocked(Classic):
    """Get; recompute early by chance under the lock, or skip that; on a miss as `Locked`."""

    name = title = "xlocked"
    locks = is_early = True
    limits = "Who recomputes early makes its caller wait for that; past the expiry it is locked, and all wait."
