"""Single reads, timed one by one: those that trigger a refresh, and those beside a hung broker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import count, islice
from typing import Any, Final

from api_client import AsyncCacheClient, CacheClient, ReaderSettings
from benchmarks.apparatus.entries import QUERY, Published, Seeder, params_of
from benchmarks.apparatus.loops import await_if_needed, run_on_loop
from benchmarks.apparatus.servers import Servers, SilentServer
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.hits.group import Group
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.results import Figure, Must, Result, Target, figure

_SETTLE_SECONDS: Final = 5.0


class Probe:
    """A reader of its own, sync or async, with what it has published. The clock stands right around the call."""

    def __init__(self, title: str, settings: ReaderSettings) -> None:
        self.published: Published = Published()
        self._is_async = title == "async"
        self._client: Any = (AsyncCacheClient if self._is_async else CacheClient)(settings, events=self.published)

    async def timed(self, number: int) -> float:
        """Read one number, and return how long that took, in seconds."""
        get, params = self._client.get, params_of(number)
        if self._is_async:
            began = time.perf_counter()
            await get(QUERY, params)
        else:
            began = time.perf_counter()
            get(QUERY, params)
        return time.perf_counter() - began

    async def flush_triggers(self) -> None:
        """Wait until all triggers have been published."""
        await await_if_needed(self._client.flush(_SETTLE_SECONDS))

    async def close(self) -> None:
        """Disconnect."""
        await await_if_needed(self._client.close())


TITLES: Final = ("sync", "async")
_HOT: Final = range(64)
_FIRST_OTHER: Final = 1_000
_AT_MOST: Final = Target(Must.AT_MOST, 1.2)


class Read(StrEnum):
    """Kind of read: of a key that triggers a refresh, or of a fresh one, read again and again or never before."""

    TRIGGERS = "asks for a refresh"
    FIRST = "does not, first read of its key"
    HOT = "does not"


@dataclass(frozen=True, slots=True)
class Triggering(Group):
    """Reads of stale keys, each asking for a refresh, among reads of fresh ones; each timed by itself.

    Between two of them the publisher's thread comes to rest, so that a read is charged with its own trigger alone. A
    stale key is read once: its bytes are decoded, where those of a key that is read again are known. So there are fresh
    keys that are read once, too.
    """

    def run(self, servers: Servers, options: HitsOptions) -> Result:
        """Measure; one value per round is the ratio of two kinds' 99th percentiles."""
        numbers = count(_FIRST_OTHER)
        figures: list[Figure] = []
        for title in TITLES:
            rounds = run_on_loop(_p99s(title, servers, options, numbers), uvloop=options.uvloop)
            p99s = {read: tuple(p99[read] for p99 in rounds) for read in Read}
            figures += _figures(title, p99s)
        return Result(self.name, self.title, figures)


def _figures(title: str, p99s: Mapping[Read, tuple[float, ...]]) -> Iterator[Figure]:
    asking = f"{title}: p99 of a read that triggers"
    against = {Read.HOT: "one that does not", Read.FIRST: "one that does not, of a key not read before either"}
    for read, other in against.items():
        ratios = tuple(one / base for one, base in zip(p99s[Read.TRIGGERS], p99s[read], strict=True))
        yield figure(f"{asking} a refresh, against {other}", ratios, target=_AT_MOST)
    yield figure(asking, p99s[Read.TRIGGERS], "µs")
    for read, other in against.items():
        yield figure(f"{title}: p99 of {other}", p99s[read], "µs")


async def _p99s(
    title: str, servers: Servers, options: HitsOptions, numbers: Iterator[int]
) -> list[Mapping[Read, float]]:
    scale = options.scale
    order = random.Random(options.seed)  # noqa: S311 - no secret
    probe = Probe(title, servers.lenient_settings())
    p99s = []
    with servers.plain() as redis:
        seeder = Seeder(redis, servers.namespace)
        seeder.put(_HOT)
        for number in range(scale.rounds + 1):
            stale, fresh = ([next(numbers) for _ in range(scale.latencies)] for _ in range(2))
            seeder.put(stale, soft_in_seconds=-1.0)
            seeder.put(fresh)
            hot = order.choices(_HOT, k=scale.latencies)
            found = await _round(probe, {Read.TRIGGERS: stale, Read.FIRST: fresh, Read.HOT: hot}, order)
            if number != WARM_UP_ROUND:
                p99s.append(found)
    await probe.flush_triggers()
    await probe.close()
    if probe.published.count < (scale.rounds + 1) * scale.latencies:
        raise BenchError(f"{probe.published.count} refreshes were published: not every stale read has triggered one")
    return p99s


async def _round(probe: Probe, keys: Mapping[Read, Sequence[int]], order: random.Random) -> Mapping[Read, float]:
    took: dict[Read, list[float]] = {read: [] for read in Read}
    for index in range(len(keys[Read.HOT])):
        reads = list(Read)
        order.shuffle(reads)
        for read in reads:
            await probe.flush_triggers()
            await probe.timed(_HOT[0])  # all kinds are timed right after the same thing
            took[read].append(await probe.timed(keys[read][index]))
    return {read: percentile(times, 99) * 1e6 for read, times in took.items()}


_FRESH: Final = range(64)
_FIRST_STALE: Final = 100_000_000
_STALE_EVERY: Final = 20
_BLOCKS: Final = 10
_HEALTHY: Final = "healthy"
_HUNG: Final = "hung"


@dataclass(frozen=True, slots=True)
class HungBroker(Group):
    """Two readers, one with a hung broker, take turns; one read in twenty meets a stale key and asks for a refresh."""

    def run(self, servers: Servers, options: HitsOptions) -> Result:
        """Measure; one value per round is the ratio of the two readers' 99th percentiles."""
        figures: list[Figure] = []
        stale = count(_FIRST_STALE)
        for title in TITLES:
            p99s = run_on_loop(_hung_p99s(title, servers, options, stale), uvloop=options.uvloop)
            hung, healthy = zip(*p99s, strict=True)
            what = f"{title}: p99 of reads while the broker hangs"
            ratios, note = tuple(one / other for one, other in p99s), f"1 read in {_STALE_EVERY} triggers a refresh"
            figures += [
                figure(f"{what}, against a healthy one", ratios, "×", Target(Must.AT_MOST, 1.2), note),
                figure(what, tuple(hung), "µs"),
                figure(f"{title}: p99 of reads on a healthy one", tuple(healthy), "µs"),
            ]
        return Result(self.name, self.title, figures)


async def _hung_p99s(
    title: str, servers: Servers, options: HitsOptions, numbers: Iterator[int]
) -> list[tuple[float, float]]:
    scale = options.scale
    order = random.Random(options.seed)  # noqa: S311 - no secret
    p99s = []
    with SilentServer() as silent, servers.plain() as redis:
        seeder = Seeder(redis, servers.namespace)
        seeder.put(_FRESH)
        probes = {
            _HEALTHY: Probe(title, servers.lenient_settings()),
            _HUNG: Probe(title, servers.lenient_settings(broker_url=silent.url)),
        }
        for number in range(scale.rounds + 1):
            reads = max(_STALE_EVERY * _BLOCKS, scale.latencies) // _BLOCKS
            took = await _hung_round(probes, partial(_stale, seeder, numbers), reads, order)
            if number != WARM_UP_ROUND:
                hung, healthy = (percentile(took[name], 99) * 1e6 for name in (_HUNG, _HEALTHY))
                p99s.append((hung, healthy))
        for probe in probes.values():
            await probe.close()
    return p99s


def _stale(seeder: Seeder, numbers: Iterator[int], how_many: int) -> Iterator[int]:
    """Put stale entries, and yield each once."""
    taken = list(islice(numbers, how_many))
    seeder.put(taken, soft_in_seconds=-1.0)
    return iter(taken)


async def _hung_round(
    probes: Mapping[str, Probe], stale: Callable[[int], Iterator[int]], reads: int, order: random.Random
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in probes}
    for _ in range(_BLOCKS):
        names = list(probes)
        order.shuffle(names)
        for name in names:
            took[name] += await _timed_block(probes[name], stale(reads // _STALE_EVERY + 1), reads)
            # Else its publications would be charged to the other reader. The hung one's never come to an end.
            await probes[_HEALTHY].flush_triggers()
    return took


async def _timed_block(probe: Probe, stale: Iterator[int], reads: int) -> list[float]:
    return [
        await probe.timed(next(stale) if index % _STALE_EVERY == 0 else _FRESH[index % len(_FRESH)])
        for index in range(reads)
    ]
