"""Price of the trigger for writers: transactions with it against the same without it, in turns."""

from __future__ import annotations

import random
import time
from itertools import count, islice
from typing import Final

from benchmarks.apparatus.statistics import Tally, Turn, turns
from benchmarks.feed.options import FeedOptions
from benchmarks.feed.plant import PERSONS, Plant
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Must, Result, Target, figure
from refresher.feed.watches import watches

WITH, WITHOUT = "with the trigger", "without it"
_SMALL: Final = 10
_TARGET: Final = Target(Must.AT_MOST, 2)


def measured_price(plant: Plant, options: FeedOptions) -> Result:
    """Measure transactions that change 1, 10 and 1,000 nodes, without a consumer; notes are removed between turns."""
    scale, tally = options.scale, Tally()
    numbers = count()
    for turn in turns((WITH, WITHOUT), rounds=scale.rounds, slices=scale.slices, rng=random.Random(options.seed)):  # noqa: S311 - no secret
        plant.triggers.uninstall()
        if turn.name == WITH:
            plant.triggers.install(watches)
        for size, times in scale.times.items():
            began = time.perf_counter()
            for _ in range(times):
                plant.change_together([number % PERSONS for number in islice(numbers, size)])
            tally.add(Turn(turn.round, f"{turn.name}, {size}"), times, time.perf_counter() - began)
    plant.triggers.uninstall()
    figures = [
        figure(
            f"a transaction that changes {size:,}, {WITH} against {WITHOUT}",
            tally.speed_ratios(f"{WITHOUT}, {size}", f"{WITH}, {size}"),
            target=_TARGET if size <= _SMALL else None,
        )
        for size in scale.times
    ]
    took = {
        state: {f"{size:,}": [1e3 * one for one in tally.seconds_per_read(f"{state}, {size}")] for size in scale.times}
        for state in (WITH, WITHOUT)
    }
    title = "A transaction, with the trigger and without"
    plot = bars("feed-price", title, "ms", took, ours=(WITH,), x_label="nodes that it changes")
    return Result("feed-price", "what the trigger costs who writes", figures, charts=[plot])
