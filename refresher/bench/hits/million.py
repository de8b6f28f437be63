"""Whether a cache of a million entries is slower than one of a thousand."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from refresher.bench.contenders.contender import Contender, Course
from refresher.bench.contenders.ours import OurSync
from refresher.bench.figures import Figure, Must, Result, Target
from refresher.bench.hits.group import Group, Setting
from refresher.bench.racing import Rules, run_race
from refresher.bench.seeding import Seeder
from refresher.embedded import RedisServer

_READ: Final = 20_000


class _FullCache(OurSync):
    """A cache of its own with ``size`` entries, of which the course's numbers are read."""

    size = 0

    def set_up(self) -> None:
        """Fill it."""
        with self.course.place.plain() as client:
            Seeder(client, self.course.place.namespace, self.course.value_of).put(range(self.size))
        super().set_up()


class _Large(_FullCache):
    title = "the large cache"


class _Small(_FullCache):
    title = "the small cache"


@dataclass(frozen=True, slots=True)
class Million(Group):
    """The same reader on two embedded servers, one full and one nearly empty."""

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of the two rates."""
        options = setting.options
        large, small = options.scale.entries
        order = random.Random(options.seed)  # noqa: S311 - no secret
        contenders: list[Contender] = []
        with ExitStack() as stack:
            for kind, size in ((_Large, large), (_Small, small)):
                server = stack.enter_context(RedisServer.start())
                numbers = [order.randrange(size) for _ in range(min(size, _READ))]
                place = replace(setting.place, cache_url=server.url(0))
                contender = kind(Course(place, numbers, setting.value_of))
                contender.size = size
                contenders.append(contender)
            race = run_race(contenders, Rules(1, one_key=False, scale=options.scale, seed=options.seed))
        figure = Figure(
            self.name, f"rate at {large:,} entries against {small:,}",
            tuple(race.times_as_fast(_Large.title, _Small.title)),
            target=Target(Must.AT_LEAST, 0.95), note="; ".join(race.left_out.values()),
        )  # fmt: skip
        return Result(self.name, self.title, figures=(figure,))
