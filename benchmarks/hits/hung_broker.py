"""What readers notice of a broker that accepts and never answers: nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from benchmarks.apparatus.entries import Seeder
from benchmarks.apparatus.probes import AsyncProbe, Probe, SyncProbe
from benchmarks.apparatus.race import run_on_loop
from benchmarks.apparatus.servers import SilentServer
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.hits.group import Group, Setting
from benchmarks.reports.results import Figure, Must, Result, Target

_FRESH: Final = range(64)
_FIRST_STALE: Final = 100_000_000
_STALE_EVERY: Final = 20
_BLOCKS: Final = 10
_PERCENT: Final = 99
_HEALTHY: Final = "healthy"
_HUNG: Final = "hung"


@dataclass(frozen=True, slots=True)
class HungBroker(Group):
    """Two readers, one with a hung broker, take turns; one read in twenty meets a stale key and asks for a refresh."""

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of the two readers' 99th percentiles."""
        figures: list[Figure] = []
        stale = count(_FIRST_STALE)
        for kind in (SyncProbe, AsyncProbe):
            p99s = run_on_loop(_p99s(kind, setting, stale), uvloop=setting.options.uvloop)
            hung, healthy = zip(*p99s, strict=True)
            what = f"{kind.title}: p99 of reads while the broker hangs"
            ratios, note = tuple(one / other for one, other in p99s), f"1 read in {_STALE_EVERY} asks for a refresh"
            figures += [
                Figure(self.name, f"{what}, against a healthy one", ratios, "×", Target(Must.AT_MOST, 1.2), note),
                Figure(self.name, what, tuple(hung), "µs"),
                Figure(self.name, f"{kind.title}: p99 of reads on a healthy one", tuple(healthy), "µs"),
            ]
        return Result(self.name, self.title, figures=tuple(figures))


async def _p99s(kind: type[Probe], setting: Setting, numbers: Iterator[int]) -> list[tuple[float, float]]:
    servers, scale = setting.servers, setting.options.scale
    order = random.Random(setting.options.seed)  # noqa: S311 - no secret
    p99s = []
    with SilentServer() as silent, servers.plain() as redis:
        seeder = Seeder(redis, servers.namespace, setting.value_of)
        seeder.put(_FRESH)
        probes = {
            _HEALTHY: kind(servers.lenient_settings()),
            _HUNG: kind(servers.lenient_settings(broker_url=silent.url)),
        }
        for number in range(scale.rounds + 1):
            took = await _round(probes, _Stale(seeder, numbers), max(_STALE_EVERY * _BLOCKS, scale.latencies), order)
            if number != WARM_UP_ROUND:
                hung, healthy = (percentile(took[name], _PERCENT) * 1e6 for name in (_HUNG, _HEALTHY))
                p99s.append((hung, healthy))
        for probe in probes.values():
            await probe.close()
    return p99s


class _Stale:
    """Stale entries, each handed out once."""

    def __init__(self, seeder: Seeder, numbers: Iterator[int]) -> None:
        self._seeder, self._numbers = seeder, numbers

    def take(self, how_many: int) -> Iterator[int]:
        taken = list(islice(self._numbers, how_many))
        self._seeder.put(taken, soft_in_seconds=-1.0)
        return iter(taken)


async def _round(
    probes: Mapping[str, Probe], stale: _Stale, reads: int, order: random.Random
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in probes}
    for _ in range(_BLOCKS):
        names = list(probes)
        order.shuffle(names)
        for name in names:
            took[name] += await _block(probes[name], stale.take(reads // _BLOCKS // _STALE_EVERY + 1), reads // _BLOCKS)
            # Else its publications would be charged to the other reader. The hung one's never come to an end.
            await probes[_HEALTHY].flush_triggers()
    return took


async def _block(probe: Probe, stale: Iterator[int], reads: int) -> list[float]:
    return [
        await probe.timed(next(stale) if index % _STALE_EVERY == 0 else _FRESH[index % len(_FRESH)])
        for index in range(reads)
    ]
