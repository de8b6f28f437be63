"""Whether a cache of a million entries is slower than one of a thousand."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.contenders.contender import Contender, Course
from benchmarks.contenders.ours import OurSync
from benchmarks.contenders.redis_py import RedisPyGet
from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.hits.group import Group, Setting
from benchmarks.places import Place
from benchmarks.racing import Rules, run_race
from benchmarks.seeding import Seeder
from refresher.embedded import RedisServer

_READ: Final = 20_000
_LARGE: Final = "large"
_SMALL: Final = "small"


@dataclass(frozen=True, slots=True)
class Million(Group):
    """The same reader on two embedded servers, one full and one nearly empty; redis-py's GET beside it.

    What is read is drawn from all entries, so that what a reader remembers of its keys helps it as little as in life.
    """

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of the two rates."""
        options = setting.options
        sizes = dict(zip((_LARGE, _SMALL), options.scale.entries, strict=True))
        order = random.Random(options.seed)  # noqa: S311 - no secret
        contenders: list[Contender] = []
        with ExitStack() as stack:
            for name, size in sizes.items():
                server = stack.enter_context(RedisServer.start())
                place = replace(setting.place, cache_url=server.url(0))
                _fill(place, setting, size)
                course = Course(place, [order.randrange(size) for _ in range(min(size, _READ))], setting.value_of)
                contenders += [_named(OurSync(course), name), _named(RedisPyGet(course), name)]
            race = run_race(contenders, Rules(1, one_key=False, scale=options.scale, seed=options.seed))
        what = f"rate at {sizes[_LARGE]:,} entries against {sizes[_SMALL]:,}"
        figures = [
            Figure(
                self.name, f"{what}: {kind.title}",
                tuple(race.times_as_fast(f"{kind.title}, {_LARGE}", f"{kind.title}, {_SMALL}")),
                target=target, note="; ".join(race.left_out.values()),
            )
            for kind, target in ((OurSync, Target(Must.AT_LEAST, 0.95)), (RedisPyGet, None))
        ]  # fmt: skip
        return Result(self.name, self.title, figures=tuple(figures))


def _named(contender: Contender, name: str) -> Contender:
    contender.title = f"{contender.title}, {name}"
    return contender


def _fill(place: Place, setting: Setting, size: int) -> None:
    with place.plain() as client:
        Seeder(client, place.namespace, setting.value_of).put(range(size))
