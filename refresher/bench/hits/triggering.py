"""What a read pays for asking for a refresh: nothing, or it would be no background refresh."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from api_client import CacheClient, ReaderEvents, RefreshReason
from refresher.bench.errors import BenchError
from refresher.bench.figures import Figure, Must, Result, Target
from refresher.bench.hits.group import Group, Setting
from refresher.bench.payloads import Value
from refresher.bench.seeding import QUERY, Seeder, params_of
from refresher.bench.statistics import WARM_UP_ROUND, percentile

_FRESH: Final = range(64)
_FIRST_STALE: Final = 1_000
_PERCENT: Final = 99


class _Triggers(ReaderEvents):
    """Counts what was published: a run in which nothing was is no measurement."""

    def __init__(self) -> None:
        self.published = 0

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        self.published += 1


@dataclass(frozen=True, slots=True)
class Triggering(Group):
    """Reads of stale keys, each asking for a refresh, among reads of fresh ones; each timed by itself.

    Between two of them the publisher's thread comes to rest, so that a read is charged with its own trigger alone.
    """

    def run(self, setting: Setting) -> Result:
        """Measure; one value a round is the ratio of the two kinds' 99th percentiles."""
        scale, events = setting.options.scale, _Triggers()
        order = random.Random(setting.options.seed)  # noqa: S311 - no secret
        stale = count(_FIRST_STALE)
        ratios = []
        with setting.place.plain() as redis, CacheClient(setting.place.settings(), events=events) as client:
            seeder = Seeder(redis, setting.place.namespace, setting.value_of)
            seeder.put(_FRESH)
            for number in range(scale.rounds + 1):
                numbers = [next(stale) for _ in range(scale.latencies)]
                seeder.put(numbers, soft_in_seconds=-1.0)
                ratio = _round(client, numbers, order)
                if number != WARM_UP_ROUND:
                    ratios.append(ratio)
        if events.published < (scale.rounds + 1) * scale.latencies:
            raise BenchError(f"only {events.published} refreshes were published: not every read has triggered one")
        figure = Figure(
            self.name, "p99 of a read that triggers a refresh, against one that does not", tuple(ratios),
            target=Target(Must.AT_MOST, 1.2),
        )  # fmt: skip
        return Result(self.name, self.title, figures=(figure,))


def _round(client: CacheClient, stale: list[int], order: random.Random) -> float:
    took: dict[bool, list[float]] = {True: [], False: []}

    def read(number: int) -> Value:
        return client.get(QUERY, params_of(number))

    for number in stale:
        kinds = [True, False]
        order.shuffle(kinds)
        for triggers in kinds:
            client.flush(5)
            read(_FRESH[0])  # both kinds are timed right after the same thing
            took[triggers].append(_timed(read, number if triggers else order.choice(_FRESH)))
    return percentile(took[True], _PERCENT) / percentile(took[False], _PERCENT)


def _timed(read: Callable[[int], Value], number: int) -> float:
    began = time.perf_counter()
    read(number)
    return time.perf_counter() - began
