"""Classic strategies as generators of steps, taken by runners with plain redis-py, on threads or on an event loop."""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import time
from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec

from api_client.protocol.xfetch import cut_draw
from benchmarks.stampede.config import async_pooled, pooled
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import AsyncCache, Strategy, SyncCache, Value

RETRY_SECONDS: Final = 0.01
_UNLOCK: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Stored(msgspec.Struct, frozen=True):
    """Content of the Redis key: the value, and the seconds that it took to make."""

    value: Value
    delta: float


@dataclass(frozen=True, slots=True)
class Look:
    """Read the value and how long it will last. Sent back: `Found`, or None."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value that was there."""

    stored: Stored
    left_seconds: float


@dataclass(frozen=True, slots=True)
class Lock:
    """Take the lock, or don't. Sent back: whether it was taken."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """Give the lock back, if it still is this read's."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Ask the origin. Sent back: the value, as `Stored` with the time that it took."""


@dataclass(frozen=True, slots=True)
class Store:
    """Write the value, to expire."""

    stored: Stored


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for 10 ms before the next try."""


Step: TypeAlias = Look | Lock | Unlock | Recompute | Store | Pause
Steps: TypeAlias = Generator[Step, Any, Value]


class StepStrategy(Strategy):
    """A strategy that is its `steps`."""

    @abstractmethod
    def steps(self) -> Steps:
        """Read once: yield steps, return the value."""

    def on_threads(self) -> SyncCache:
        return _SyncStepRunner(self)

    async def on_loop(self) -> AsyncCache:
        return _AsyncStepRunner(self)


def recomputed() -> Generator[Step, Any, Value]:
    """Recompute and store: the steps that all of them end in."""
    stored: Stored = yield Recompute()
    yield Store(stored)
    return stored.value


@dataclass(slots=True)
class _Keys:
    """Keys of one read; the token is the read's own."""

    value: str
    lock: str
    token: str


class _StepRunner:
    def __init__(self, strategy: StepStrategy) -> None:
        self.strategy, self.origin = strategy, strategy.origin()
        self.expires_ms = int(strategy.config.expires_seconds * 1000)
        self.lease_ms = int(strategy.config.lease_seconds * 1000)

    def keys(self, number: int) -> _Keys:
        key = f"{self.strategy.prefix}:{number}"
        return _Keys(key, f"{key}:lock", secrets.token_hex(8))

    def write(self, client: Any, keys: _Keys, step: Step) -> Any:
        """Send what is one command both here and there; the reply, or what to await for it."""
        if isinstance(step, Lock):
            return client.set(keys.lock, keys.token, px=self.lease_ms, nx=True)
        if isinstance(step, Unlock):
            return client.eval(_UNLOCK, 1, keys.lock, keys.token)
        assert isinstance(step, Store)  # noqa: S101 - for mypy: the last one left
        return client.set(keys.value, msgspec.json.encode(step.stored), px=self.expires_ms)


class _SyncStepRunner(_StepRunner, SyncCache):
    def __init__(self, strategy: StepStrategy) -> None:
        super().__init__(strategy)
        self._client = pooled(strategy.config.servers.cache_url)

    def read(self, number: int) -> Value:
        steps, keys, reply = self.strategy.steps(), self.keys(number), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast("Value", end.value)
            reply = self._take(step, keys, number)

    def _take(self, step: Step, keys: _Keys, number: int) -> Any:
        if isinstance(step, Look):
            looking: Any = self._client.pipeline(transaction=False)
            return _found(*looking.pttl(keys.value).get(keys.value).execute())
        if isinstance(step, Recompute):
            began = time.monotonic()
            value = self.origin.compute(number)
            return Stored(value, time.monotonic() - began)
        if isinstance(step, Pause):
            time.sleep(RETRY_SECONDS)
            return None
        return self.write(self._client, keys, step)

    def close(self) -> None:
        self._client.close()
        self.origin.close()


class _AsyncStepRunner(_StepRunner, AsyncCache):
    def __init__(self, strategy: StepStrategy) -> None:
        super().__init__(strategy)
        self._client = async_pooled(strategy.config.servers.cache_url)

    async def read(self, number: int) -> Value:
        steps, keys, reply = self.strategy.steps(), self.keys(number), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast("Value", end.value)
            reply = await self._take(step, keys, number)

    async def _take(self, step: Step, keys: _Keys, number: int) -> Any:
        if isinstance(step, Look):
            looking: Any = self._client.pipeline(transaction=False)
            return _found(*await looking.pttl(keys.value).get(keys.value).execute())
        if isinstance(step, Recompute):
            began = time.monotonic()
            value = await self.origin.acompute(number)
            return Stored(value, time.monotonic() - began)
        if isinstance(step, Pause):
            await asyncio.sleep(RETRY_SECONDS)
            return None
        return await self.write(self._client, keys, step)

    async def close(self) -> None:
        await self._client.aclose()
        await self.origin.aclose()


def _found(left_ms: int, raw: bytes | None) -> Found | None:
    """Read the two replies; the key may have gone in between, or come."""
    if raw is None:
        return None
    return Found(msgspec.json.decode(raw, type=Stored), max(0, left_ms) / 1000)


class Fetch(StepStrategy):
    """Get; on a miss recompute and set."""

    name = "fetch"
    title = "fetch"
    limits = "No protection: everyone who finds nothing recomputes, and waits for that."

    def steps(self) -> Steps:
        found: Found | None = yield Look()
        if found is not None:
            return found.stored.value
        record(Mark.MISS)
        return (yield from recomputed())


class Locked(StepStrategy):
    """Get; on a miss take the lock and recompute, or wait for who has it."""

    name = "locked"
    title = "locked"
    limits = "Nothing is served while the value is made anew: all wait, looking again every 10 ms."

    def steps(self) -> Steps:
        found: Found | None = yield Look()
        if found is not None:
            return found.stored.value
        record(Mark.MISS)
        return (yield from locked_or_waited())


def locked_or_waited() -> Generator[Step, Any, Value]:
    """Recompute under the lock, or return what its holder has stored."""
    while True:
        if (yield Lock()):
            # Who had the lock before may have stored a value since one last looked.
            found: Found | None = yield Look()
            value = found.stored.value if found is not None else (yield from recomputed())
            yield Unlock()
            return value
        record(Mark.CONTENDED)
        yield Pause()
        found = yield Look()
        if found is not None:
            return found.stored.value


def refreshes_early(left_seconds: float, delta_seconds: float, beta: float, u: float) -> bool:
    """Decide by XFetch's formula whether a draw ``u`` from (0, 1] recomputes so long before the expiry."""
    return -delta_seconds * beta * math.log(u) >= left_seconds


class XFetch(StepStrategy):
    """Get; recompute early by chance, and on a miss."""

    name = "xfetch"
    title = "xfetch"
    limits = "Several may recompute at once, each of them while its caller waits; past the expiry it is fetch."

    def steps(self) -> Steps:
        found: Found | None = yield Look()
        if found is None:
            record(Mark.MISS)
        elif self.is_early(found):
            record(Mark.EARLY)
        else:
            return found.stored.value
        return (yield from recomputed())

    def is_early(self, found: Found) -> bool:
        u = cut_draw(1.0 - random.random(), self.config.rnd_precision)  # noqa: S311 - no secret
        return refreshes_early(found.left_seconds, found.stored.delta, self.config.beta, u)


class XLocked(XFetch):
    """Get; recompute early by chance and under the lock, or duck out; on a miss as `locked`."""

    name = "xlocked"
    title = "xlocked"
    limits = "Who recomputes early makes its caller wait for that; past the expiry it is locked, and all wait."

    def steps(self) -> Steps:
        found: Found | None = yield Look()
        if found is None:
            record(Mark.MISS)
            return (yield from locked_or_waited())
        if not self.is_early(found):
            return found.stored.value
        record(Mark.EARLY)
        if not (yield Lock()):
            record(Mark.CONTENDED | Mark.DUCKED)
            return found.stored.value
        value = yield from recomputed()
        yield Unlock()
        return value
