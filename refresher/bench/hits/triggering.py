"""What a read pays for asking for a refresh: nothing, or it would be no background refresh."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from refresher.bench.bars import bars
from refresher.bench.errors import BenchError
from refresher.bench.figures import Figure, Must, Result, Target
from refresher.bench.hits.group import Group, Setting
from refresher.bench.probes import AsyncProbe, Probe, SyncProbe
from refresher.bench.racing import run_on_loop
from refresher.bench.seeding import Seeder
from refresher.bench.statistics import WARM_UP_ROUND, percentile

_FRESH: Final = range(64)
_FIRST_STALE: Final = 1_000
_PERCENT: Final = 99


@dataclass(frozen=True, slots=True)
class Triggering(Group):
    """Reads of stale keys, each asking for a refresh, among reads of fresh ones; each timed by itself.

    Between two of them the publisher's thread comes to rest, so that a read is charged with its own trigger alone.
    """

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of the two kinds' 99th percentiles."""
        stale = count(_FIRST_STALE)
        figures, asking, other_reads = [], {}, {}
        for kind in (SyncProbe, AsyncProbe):
            p99s = run_on_loop(_p99s(kind, setting, stale), uvloop=setting.options.uvloop)
            with_trigger, without = zip(*p99s, strict=True)
            asking[kind.title], other_reads[kind.title] = with_trigger, without
            ratios = tuple(one / other for one, other in p99s)
            what = f"{kind.title}: p99 of a read that triggers a refresh, against one that does not"
            figures += [
                Figure(self.name, what, ratios, target=Target(Must.AT_MOST, 1.2)),
                Figure(self.name, f"{kind.title}: p99 of a read that triggers", tuple(with_trigger), "µs"),
                Figure(self.name, f"{kind.title}: p99 of one that does not", tuple(without), "µs"),
            ]
        series = {"asks for a refresh": asking, "does not": other_reads}
        plot = bars(f"hits-{self.name}", f"{self.title}: p99", "µs", series)
        return Result(self.name, self.title, figures=tuple(figures), plots=(plot,))


async def _p99s(kind: type[Probe], setting: Setting, stale: Iterator[int]) -> list[tuple[float, float]]:
    scale = setting.options.scale
    order = random.Random(setting.options.seed)  # noqa: S311 - no secret
    probe = kind(setting.place.patient_settings())
    p99s = []
    with setting.place.plain() as redis:
        seeder = Seeder(redis, setting.place.namespace, setting.value_of)
        seeder.put(_FRESH)
        for number in range(scale.rounds + 1):
            numbers = [next(stale) for _ in range(scale.latencies)]
            seeder.put(numbers, soft_in_seconds=-1.0)
            found = await _round(probe, numbers, order)
            if number != WARM_UP_ROUND:
                p99s.append(found)
    await probe.settle()
    await probe.close()
    if probe.published.count < (scale.rounds + 1) * scale.latencies:
        raise BenchError(f"{probe.published.count} refreshes were published: not every stale read has triggered one")
    return p99s


async def _round(probe: Probe, stale: Sequence[int], order: random.Random) -> tuple[float, float]:
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in stale:
        kinds = [True, False]
        order.shuffle(kinds)
        for triggers in kinds:
            await probe.settle()
            await probe.timed(_FRESH[0])  # both kinds are timed right after the same thing
            took[triggers].append(await probe.timed(number if triggers else order.choice(_FRESH)))
    return percentile(took[True], _PERCENT) * 1e6, percentile(took[False], _PERCENT) * 1e6
