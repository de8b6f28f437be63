"""How fast a hit is, in seven modes, against redis-py itself and against other caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.bars import reads_a_second
from benchmarks.contenders.aiocache_cache import Aiocache
from benchmarks.contenders.cashews_caches import CashewsClientSideEarly, CashewsClientSideGet, CashewsEarly
from benchmarks.contenders.contender import Contender, Course
from benchmarks.contenders.django_caches import DjangoCacheback, DjangoRedis
from benchmarks.contenders.dogpile_cache import DogpileCache
from benchmarks.contenders.ours import (
    OurAsync,
    OurLocalAsync,
    OurLocalAsyncFrozen,
    OurLocalSync,
    OurLocalSyncFrozen,
    OurSync,
)
from benchmarks.contenders.redis_py import RedisAsyncioGet, RedisPyClientSideCache, RedisPyGet
from benchmarks.figures import Figure, Must, Rate, Result, Target
from benchmarks.hits.group import Group, Setting
from benchmarks.racing import Race, Rules, run_race

KEYS: Final = 64
_SYNC: Final = (RedisPyGet, OurSync, DogpileCache, DjangoRedis, DjangoCacheback)
_ASYNC: Final = (RedisAsyncioGet, OurAsync, CashewsEarly, Aiocache)


@dataclass(frozen=True, slots=True)
class Mode(Group):
    """One mode: the first contender is the baseline, the second is ours.

    Attributes:
        contenders: who runs.
        concurrency: threads or tasks.
        one_key: all of them read the same.
        at_least: what ours must be, as a multiple of the baseline; None: nothing is asked.
        peers_at_least: the same for single peers (None: nothing is asked); all others ours must be faster than.
        variant: ours in another way; held against the baseline, too.
    """

    contenders: tuple[type[Contender], ...] = ()
    concurrency: int = 1
    one_key: bool = False
    at_least: float | None = None
    peers_at_least: tuple[tuple[type[Contender], float | None], ...] = ()
    variant: type[Contender] | None = None

    def run(self, setting: Setting) -> Result:
        """Measure the rates of all contenders."""
        course = Course(setting.place, range(KEYS), setting.value_of)
        options = setting.options
        rules = Rules(self.concurrency, self.one_key, options.scale, options.seed, uvloop=options.uvloop)
        race = run_race([kind(course) for kind in self.all], rules)
        rates = tuple(self._rates(race))
        plot = reads_a_second(f"hits-{self.name}", self.title, rates)
        return Result(self.name, self.title, rates, tuple(self._figures(race)), plots=(plot,))

    @property
    def all(self) -> tuple[type[Contender], ...]:
        """Who runs, in the order of the table."""
        return self.contenders if self.variant is None else (*self.contenders, self.variant)

    def _rates(self, race: Race) -> list[Rate]:
        baseline, ours = (kind.title for kind in self.contenders[:2])
        return [
            Rate(
                self.name,
                kind.title,
                tuple(race.seconds_a_read(kind.title)),
                tuple(race.times_as_fast(kind.title, baseline)),
                tuple(race.times_as_fast(ours, kind.title)),
                race.left_out.get(kind.title) or race.notes.get(kind.title, ""),
            )
            for kind in self.all
        ]

    def _figures(self, race: Race) -> list[Figure]:
        baseline, ours, *peers = self.contenders
        special = {peer: _at_least(least) for peer, least in self.peers_at_least}
        asked: list[tuple[type[Contender], type[Contender], Target | None]] = [
            *((one, baseline, _at_least(self.at_least)) for one in (ours, self.variant) if one is not None),
            *((ours, peer, special.get(peer, Target(Must.MORE_THAN, 1))) for peer in peers),
        ]
        return [
            Figure(
                self.name,
                f"{one.title} against {other.title}",
                tuple(race.times_as_fast(one.title, other.title)),
                target=target,
                note=race.left_out.get(one.title) or race.left_out.get(other.title, ""),
            )
            for one, other, target in asked
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
