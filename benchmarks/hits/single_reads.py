"""Single reads, timed one by one, that trigger a refresh or not."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from itertools import count, islice
from typing import Any, Final

from api_client import AsyncCacheClient, CacheClient, ReaderSettings
from benchmarks.apparatus.entries import QUERY, Published, Seeder, params_of
from benchmarks.apparatus.loops import await_if_needed
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.results import Figure, Must, Result, Target, figure

_SETTLE_SECONDS: Final = 5.0
_TITLES: Final = ("sync", "async")
_FRESH: Final = range(64)
_FIRST_OTHER: Final = 1_000
_AT_MOST: Final = Target(Must.AT_MOST, 1.2)


class _Probe:
    """A separate reader, sync or async, with a count of its publications. The clock is read right around the call."""

    def __init__(self, title: str, settings: ReaderSettings, stack: AsyncExitStack) -> None:
        self.published: Published = Published()
        self._is_async = title == "async"
        self._client: Any = (AsyncCacheClient if self._is_async else CacheClient)(settings, events=self.published)
        stack.push_async_callback(lambda: await_if_needed(self._client.close()))

    async def timed(self, number: int) -> float:
        """Read one number, and return the duration in seconds."""
        get, params = self._client.get, params_of(number)
        if self._is_async:
            began = time.perf_counter()
            await get(QUERY, params)
        else:
            began = time.perf_counter()
            get(QUERY, params)
        return time.perf_counter() - began

    async def flush_triggers(self) -> None:
        await await_if_needed(self._client.flush(_SETTLE_SECONDS))


class Read(StrEnum):
    """Kind of read: of a key that triggers a refresh, or of a fresh one, read repeatedly or for the first time."""

    TRIGGERS = "a read that triggers a refresh"
    HOT = "one that does not"
    FIRST = "one that does not, of a key not read before either"


def measured_triggers(servers: Servers, options: HitsOptions) -> Result:
    """Measure reads of stale keys, each triggering a refresh, among reads of fresh ones, each timed by itself.

    Between two of them the publisher's thread comes to rest, so that a read is charged only with its own trigger. A
    stale key is read only once, so its bytes are decoded, while those of a key that is read again are known. So there
    are fresh keys that are read once, too. The value of a round is the ratio of two kinds' 99th percentiles.
    """
    numbers = count(_FIRST_OTHER)
    figures: list[Figure] = []
    for title in _TITLES:
        rounds = asyncio.run(_p99s(title, servers, options, numbers))
        p99s = {read: tuple(p99[read] for p99 in rounds) for read in Read}
        asking = f"{title}: p99 of a read that triggers"
        for read in (Read.HOT, Read.FIRST):
            ratios = tuple(one / base for one, base in zip(p99s[Read.TRIGGERS], p99s[read], strict=True))
            figures.append(figure(f"{asking} a refresh, against {read}", ratios, target=_AT_MOST))
        figures.append(figure(asking, p99s[Read.TRIGGERS], "µs"))
        figures += [figure(f"{title}: p99 of {read}", p99s[read], "µs") for read in (Read.HOT, Read.FIRST)]
    return Result("trigger", "a read that triggers a refresh", figures)


async def _p99s(
    title: str, servers: Servers, options: HitsOptions, numbers: Iterator[int]
) -> list[Mapping[Read, float]]:
    scale, p99s = options.scale, []
    order = random.Random(options.seed)  # noqa: S311 - no secret
    async with AsyncExitStack() as stack:
        seeder = Seeder(stack.enter_context(servers.plain()), servers.namespace)
        probe = _Probe(title, servers.lenient_settings(), stack)
        seeder.put(_FRESH)
        for number in range(scale.rounds + 1):
            stale, fresh = (list(islice(numbers, scale.latencies)) for _ in range(2))
            seeder.put(stale, soft_in_seconds=-1.0)
            seeder.put(fresh)
            hot = order.choices(_FRESH, k=scale.latencies)
            found = await _round(probe, {Read.TRIGGERS: stale, Read.FIRST: fresh, Read.HOT: hot}, order)
            if number != WARM_UP_ROUND:
                p99s.append(found)
        await probe.flush_triggers()
    if probe.published.count < (scale.rounds + 1) * scale.latencies:
        raise BenchError(f"{probe.published.count} refreshes were published: not every stale read has triggered one")
    return p99s


async def _round(probe: _Probe, keys: Mapping[Read, Sequence[int]], order: random.Random) -> Mapping[Read, float]:
    took: dict[Read, list[float]] = {read: [] for read in Read}
    reads = list(Read)
    for index in range(len(keys[Read.HOT])):
        order.shuffle(reads)
        for read in reads:
            await probe.flush_triggers()
            await probe.timed(_FRESH[0])  # so that all kinds are timed right after the same thing
            took[read].append(await probe.timed(keys[read][index]))
    return {read: percentile(times, 99) * 1e6 for read, times in took.items()}
