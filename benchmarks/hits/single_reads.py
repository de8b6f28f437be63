"""What a read pays for asking for a refresh: nothing, or it would be no background refresh."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Final

from benchmarks.apparatus.entries import Seeder
from benchmarks.apparatus.probes import AsyncProbe, Probe, SyncProbe
from benchmarks.apparatus.race import run_on_loop
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.hits.group import Group, Setting
from benchmarks.reports.results import Figure, Must, Result, Target

_HOT: Final = range(64)
_FIRST_OTHER: Final = 1_000
_PERCENT: Final = 99
_AT_MOST: Final = Target(Must.AT_MOST, 1.2)


class Read(StrEnum):
    """What is read: a key for which a refresh is asked, or a fresh one, read again and again or never before."""

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

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of two kinds' 99th percentiles."""
        numbers = count(_FIRST_OTHER)
        figures: list[Figure] = []
        for kind in (SyncProbe, AsyncProbe):
            rounds = run_on_loop(_p99s(kind, setting, numbers), uvloop=setting.options.uvloop)
            p99s = {read: tuple(p99[read] for p99 in rounds) for read in Read}
            figures += self._figures(kind.title, p99s)
        return Result(self.name, self.title, figures=tuple(figures))

    def _figures(self, title: str, p99s: Mapping[Read, tuple[float, ...]]) -> Iterator[Figure]:
        asking = f"{title}: p99 of a read that triggers"
        against = {Read.HOT: "one that does not", Read.FIRST: "one that does not, of a key not read before either"}
        for read, other in against.items():
            ratios = tuple(one / base for one, base in zip(p99s[Read.TRIGGERS], p99s[read], strict=True))
            yield Figure(self.name, f"{asking} a refresh, against {other}", ratios, target=_AT_MOST)
        yield Figure(self.name, asking, p99s[Read.TRIGGERS], "µs")
        for read, other in against.items():
            yield Figure(self.name, f"{title}: p99 of {other}", p99s[read], "µs")


async def _p99s(kind: type[Probe], setting: Setting, numbers: Iterator[int]) -> list[Mapping[Read, float]]:
    scale = setting.options.scale
    order = random.Random(setting.options.seed)  # noqa: S311 - no secret
    probe = kind(setting.servers.lenient_settings())
    p99s = []
    with setting.servers.plain() as redis:
        seeder = Seeder(redis, setting.servers.namespace, setting.value_of)
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
    return {read: percentile(times, _PERCENT) * 1e6 for read, times in took.items()}
