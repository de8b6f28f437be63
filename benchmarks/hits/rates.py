"""Rate of hits in seven modes, against redis-py itself and against other caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.apparatus.servers import Servers
from benchmarks.competitors.competitor import Competitor, Dataset
from benchmarks.competitors.ours import (
    OurAsync,
    OurLocalAsync,
    OurLocalAsyncFrozen,
    OurLocalSync,
    OurLocalSyncFrozen,
    OurSync,
)
from benchmarks.competitors.peers import (
    Aiocache,
    CashewsClientSideEarly,
    CashewsClientSideGet,
    CashewsEarly,
    DjangoCacheback,
    DjangoRedis,
    DogpileCache,
    RedisAsyncioGet,
    RedisPyClientSideCache,
    RedisPyGet,
)
from benchmarks.hits.group import Group
from benchmarks.hits.options import HitsOptions
from benchmarks.hits.race import Race, run_race
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Figure, Must, Rate, Result, Target, figure, rate

KEYS: Final = 64
_SYNC: Final = (RedisPyGet, OurSync, DogpileCache, DjangoRedis, DjangoCacheback)
_ASYNC: Final = (RedisAsyncioGet, OurAsync, CashewsEarly, Aiocache)


@dataclass(frozen=True, slots=True)
class Mode(Group):
    """One mode: the first competitor is the baseline, the second is ours.

    Attributes:
        competitors: who runs.
        concurrency: threads or tasks.
        one_key: all of them read the same.
        at_least: what ours must be, as a multiple of the baseline; None: no target.
        peers_at_least: the same for single peers (None: no target); all others ours must be faster than.
        variant: ours in another way; held against the baseline, too.
    """

    competitors: tuple[type[Competitor], ...] = ()
    concurrency: int = 1
    one_key: bool = False
    at_least: float | None = None
    peers_at_least: tuple[tuple[type[Competitor], float | None], ...] = ()
    variant: type[Competitor] | None = None

    def run(self, servers: Servers, options: HitsOptions) -> Result:
        """Measure the rates of all competitors."""
        dataset = Dataset(servers, range(KEYS))
        competitors = [kind(dataset) for kind in self.all]
        race = run_race(competitors, options, concurrency=self.concurrency, one_key=self.one_key)
        found = {kind.title: [1 / took for took in race.seconds_per_read(kind.title)] for kind in self.all}
        ours = tuple(kind.title for kind in (self.competitors[1], self.variant) if kind is not None)
        plot = bars(f"hits-{self.name}", self.title, "reads/s", {"reads/s": found}, ours=ours)
        return Result(self.name, self.title, list(self._figures(race)), self._rates(race), charts=[plot])

    @property
    def all(self) -> tuple[type[Competitor], ...]:
        """The competitors, in the order of the table."""
        return self.competitors if self.variant is None else (*self.competitors, self.variant)

    def _rates(self, race: Race) -> list[Rate]:
        baseline, ours = (kind.title for kind in self.competitors[:2])
        return [
            rate(
                kind.title,
                race.seconds_per_read(kind.title),
                race.speed_ratios(kind.title, baseline),
                race.speed_ratios(ours, kind.title),
                race.left_out.get(kind.title) or race.notes.get(kind.title, ""),
            )
            for kind in self.all
        ]

    def _figures(self, race: Race) -> list[Figure]:
        baseline, ours, *peers = self.competitors
        special = {peer: _at_least(least) for peer, least in self.peers_at_least}
        comparisons: list[tuple[type[Competitor], type[Competitor], Target | None]] = [
            *((one, baseline, _at_least(self.at_least)) for one in (ours, self.variant) if one is not None),
            *((ours, peer, special.get(peer, Target(Must.MORE_THAN, 1))) for peer in peers),
        ]
        return [
            figure(
                f"{one.title} against {other.title}",
                race.speed_ratios(one.title, other.title),
                target=target,
                note=race.left_out.get(one.title) or race.left_out.get(other.title, ""),
            )
            for one, other, target in comparisons
        ]


def _at_least(least: float | None) -> Target | None:
    return None if least is None else Target(Must.AT_LEAST, least)


MODES: Final[Sequence[Mode]] = (
    Mode("sync-1", "remote hit, sync, 1 thread", _SYNC, at_least=1.1),
    Mode("sync-8", "remote hit, sync, 8 threads", _SYNC, concurrency=8, at_least=2),
    Mode("async-1", "remote hit, async, 1 task", _ASYNC),
    Mode("async-64", "remote hit, async, 64 tasks on distinct keys", _ASYNC, concurrency=64, at_least=3),
    Mode("async-64-one-key", "remote hit, async, 64 tasks on one key", _ASYNC, 64, one_key=True, at_least=10),
    Mode(
        "local-sync", "local hit, sync, 1 thread", (RedisPyGet, OurLocalSync, RedisPyClientSideCache),
        at_least=60, peers_at_least=((RedisPyClientSideCache, 8),), variant=OurLocalSyncFrozen,
    ),
    Mode(
        "local-async", "local hit, async, 1 task",
        (RedisAsyncioGet, OurLocalAsync, CashewsClientSideEarly, CashewsClientSideGet),
        at_least=30, peers_at_least=((CashewsClientSideEarly, 8), (CashewsClientSideGet, None)),
        variant=OurLocalAsyncFrozen,
    ),
)  # fmt: skip
