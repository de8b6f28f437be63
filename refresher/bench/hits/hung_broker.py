"""What readers notice of a broker that accepts and never answers: nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from api_client import CacheClient
from refresher.bench.figures import Figure, Must, Result, Target
from refresher.bench.hits.group import Group, Setting
from refresher.bench.seeding import QUERY, Seeder, params_of
from refresher.bench.silent_server import SilentServer
from refresher.bench.statistics import WARM_UP_ROUND, percentile

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
        place, scale = setting.place, setting.options.scale
        order = random.Random(setting.options.seed)  # noqa: S311 - no secret
        ratios = []
        with (
            SilentServer() as silent,
            place.plain() as redis,
            CacheClient(place.settings()) as healthy,
            CacheClient(place.settings(broker_url=silent.url)) as hung,
        ):
            seeder = Seeder(redis, place.namespace, setting.value_of)
            seeder.put(_FRESH)
            stale = _StaleNumbers(seeder)
            for number in range(scale.rounds + 1):
                took = _round({_HEALTHY: healthy, _HUNG: hung}, stale, max(_STALE_EVERY, scale.latencies), order)
                if number != WARM_UP_ROUND:
                    ratios.append(percentile(took[_HUNG], _PERCENT) / percentile(took[_HEALTHY], _PERCENT))
        figure = Figure(
            self.name, "p99 of hits while the broker hangs, against a healthy one", tuple(ratios),
            target=Target(Must.AT_MOST, 1.2), note=f"1 read in {_STALE_EVERY} asks for a refresh",
        )  # fmt: skip
        return Result(self.name, self.title, figures=(figure,))


class _StaleNumbers:
    """Numbers of stale entries, each handed out once."""

    def __init__(self, seeder: Seeder) -> None:
        self._seeder, self._next = seeder, count(_FIRST_STALE)

    def take(self, how_many: int) -> Iterator[int]:
        numbers = [next(self._next) for _ in range(how_many)]
        self._seeder.put(numbers, soft_in_seconds=-1.0)
        return iter(numbers)


def _round(
    clients: dict[str, CacheClient], stale: _StaleNumbers, reads: int, order: random.Random
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(_BLOCKS):
        names = list(clients)
        order.shuffle(names)
        for name in names:
            took[name] += _block(clients[name], stale.take(reads // _BLOCKS // _STALE_EVERY + 1), reads // _BLOCKS)
            # Else its publications would be charged to the other reader. The hung one's never come to an end.
            clients[_HEALTHY].flush(5)
    return took


def _block(client: CacheClient, stale: Iterator[int], reads: int) -> list[float]:
    took = []
    for index in range(reads):
        params = params_of(next(stale) if index % _STALE_EVERY == 0 else _FRESH[index % len(_FRESH)])
        began = time.perf_counter()
        client.get(QUERY, params)
        took.append(time.perf_counter() - began)
    return took
