"""Rates of hits in seven modes, against redis-py itself and against other caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.apparatus.servers import Servers
from benchmarks.competitors import ours, peers
from benchmarks.competitors.competitor import Competitor, Dataset
from benchmarks.hits.options import HitsOptions
from benchmarks.hits.race import Race, run_race
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Figure, Must, Rate, Result, Target, figure, rate

KEYS: Final = 64
_SYNC: Final = (peers.REDIS_PY, ours.SYNC, peers.DOGPILE, peers.DJANGO_REDIS, peers.DJANGO_CACHEBACK)
_ASYNC: Final = (peers.REDIS_ASYNCIO, ours.ASYNC, peers.CASHEWS_EARLY, peers.AIOCACHE)


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode, whose first competitor is the baseline and whose second is ours.

    Attributes:
        concurrency: the number of threads or tasks.
        one_key: True if all of them read the same key.
        at_least: the target for ours, as a multiple of the baseline; None for no target.
        peers_at_least: targets against single peers (None: no target); ours must be faster than all others.
        variant: a variant of ours, compared with the baseline too.
    """

    name: str
    title: str
    competitors: tuple[Competitor, ...]
    concurrency: int = 1
    one_key: bool = False
    at_least: float | None = None
    peers_at_least: tuple[tuple[Competitor, float | None], ...] = ()
    variant: Competitor | None = None

    def run(self, servers: Servers, options: HitsOptions) -> Result:
        dataset = Dataset(servers, range(KEYS))
        race = run_race(self.all, dataset, options, concurrency=self.concurrency, one_key=self.one_key)
        found = {one.title: [1 / took for took in race.seconds_per_read(one.title)] for one in self.all}
        ours_titles = tuple(one.title for one in (self.competitors[1], self.variant) if one is not None)
        plot = bars(f"hits-{self.name}", self.title, "reads/s", {"reads/s": found}, ours=ours_titles)
        return Result(self.name, self.title, self._figures(race), self._rates(race), charts=[plot])

    @property
    def all(self) -> tuple[Competitor, ...]:
        """The competitors, in the order of the table."""
        return self.competitors if self.variant is None else (*self.competitors, self.variant)

    def _rates(self, race: Race) -> list[Rate]:
        baseline, own = (one.title for one in self.competitors[:2])
        return [
            rate(
                one.title, race.seconds_per_read(one.title), race.speed_ratios(one.title, baseline),
                race.speed_ratios(own, one.title), race.left_out.get(one.title) or race.notes.get(one.title, ""),
            )
            for one in self.all
        ]  # fmt: skip

    def _figures(self, race: Race) -> list[Figure]:
        baseline, own, *others = self.competitors
        special = {peer.title: _at_least(least) for peer, least in self.peers_at_least}
        comparisons: list[tuple[Competitor, Competitor, Target | None]] = [
            *((one, baseline, _at_least(self.at_least)) for one in (own, self.variant) if one is not None),
            *((own, peer, special.get(peer.title, Target(Must.MORE_THAN, 1))) for peer in others),
        ]
        return [
            figure(
                f"{one.title} against {other.title}", race.speed_ratios(one.title, other.title), target=target,
                note=race.left_out.get(one.title) or race.left_out.get(other.title, ""),
            )
            for one, other, target in comparisons
        ]  # fmt: skip


def _at_least(least: float | None) -> Target | None:
    return None if least is None else Target(Must.AT_LEAST, least)


MODES: Final[Sequence[Mode]] = (
    Mode("sync-1", "remote hit, sync, 1 thread", _SYNC, at_least=1.1),
    Mode("sync-8", "remote hit, sync, 8 threads", _SYNC, concurrency=8, at_least=2),
    Mode("async-1", "remote hit, async, 1 task", _ASYNC),
    Mode("async-64", "remote hit, async, 64 tasks on distinct keys", _ASYNC, concurrency=64, at_least=3),
    Mode("async-64-one-key", "remote hit, async, 64 tasks on one key", _ASYNC, 64, one_key=True, at_least=10),
    Mode(
        "local-sync", "local hit, sync, 1 thread", (peers.REDIS_PY, ours.LOCAL_SYNC, peers.REDIS_PY_CLIENT_SIDE),
        at_least=60, peers_at_least=((peers.REDIS_PY_CLIENT_SIDE, 8),), variant=ours.LOCAL_SYNC_FROZEN,
    ),
    Mode(
        "local-async", "local hit, async, 1 task",
        (peers.REDIS_ASYNCIO, ours.LOCAL_ASYNC, peers.CASHEWS_CLIENT_SIDE_EARLY, peers.CASHEWS_CLIENT_SIDE_GET),
        at_least=30,
        peers_at_least=((peers.CASHEWS_CLIENT_SIDE_EARLY, 8), (peers.CASHEWS_CLIENT_SIDE_GET, None)),
        variant=ours.LOCAL_ASYNC_FROZEN,
    ),
)  # fmt: skip
