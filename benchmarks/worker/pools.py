"""Refreshes per second in each of Celery's pools, by the number of workers and of concurrent loads of each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table
from benchmarks.worker import queries
from benchmarks.worker.fleet import RunningWorkers, running_workers
from benchmarks.worker.options import Pool, Scale, WorkerOptions
from benchmarks.worker.triggers import TriggerSource

GROUP: Final = "pools-redis"
_COLUMNS: Final = ("loads", "pool", "workers", "at_once_each", "per_second", "least", "most", "of_possible_%")
LOADS: Final = {queries.PERSON: "a point read", queries.FIFTY_MS: "loads of 50 ms", queries.ONE_SECOND: "loads of 1 s"}
_SPAN_SECONDS: Final = 2.0
# With gevent, Celery takes only as many messages from Redis as there are greenlets every two seconds, however soon they
# are done. So one kind of load and a few turns show everything.
_GEVENT_TURNS: Final = 2
SIZES: Final = {
    Pool.PREFORK: range(1, 17),
    Pool.SOLO: range(1, 2),
    Pool.THREADS: range(1, 65),
    Pool.GEVENT: range(16, 17),
}
"""Fewer sizes where more show nothing: sixteen processes take sixteen times the memory, solo runs one load, and one
size of gevent shows everything."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Identical workers; ``size`` is the number of concurrent loads of each."""

    pool: Pool
    workers: int
    size: int

    @property
    def loads_at_once(self) -> int:
        return self.workers * self.size

    @property
    def label(self) -> str:
        """Label of its line in a chart; a pool with one load grows only by workers."""
        if self.workers == 1 or len(SIZES[self.pool]) == 1:
            return self.pool.value
        return f"{self.pool}, {self.workers} workers"


_Rates = dict[tuple[str, Fleet], list[float]]


def measured_pools(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Result:
    """Measure all pools at all sizes."""
    rates = _measured(servers, graph, options)
    return Result(
        GROUP,
        "what one to four workers do in each pool, their broker Redis",
        tables=[Table("refreshes per second, broker Redis", _COLUMNS, list(_rows(rates)))],
        charts=[_plot(f"{GROUP}-{query.replace('_', '-')}", query, rates) for query in LOADS],
    )


def _measured(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> _Rates:
    """Return the rate of each round, by query and fleet. Sizes take turns, so that pools alternate."""
    scale, rates = options.scale, defaultdict[tuple[str, Fleet], list[float]](list)
    with ExitStack() as stack:
        sources = {query: stack.enter_context(TriggerSource(servers, query)) for query in LOADS}
        for fleet in _fleets(scale):
            with running_workers(servers, graph, fleet.pool, fleet.size, fleet.workers) as workers:
                for number in range(scale.rounds + 1):
                    for query in LOADS if fleet.pool is not Pool.GEVENT else (queries.FIFTY_MS,):
                        count = _count(query, fleet, scale.messages)
                        rate = count / _seconds(workers, sources[query], count)
                        if number:  # not the first one, in which connections are made
                            rates[query, fleet].append(rate)
    return dict(rates)


def _fleets(scale: Scale) -> Iterator[Fleet]:
    for workers, sizes in scale.pool_sizes.items():
        for size in sizes:
            for pool in Pool:
                if size in SIZES[pool] and (workers == 1 or pool is not Pool.GEVENT):
                    yield Fleet(pool, workers, size)


def _count(query: str, fleet: Fleet, messages: int) -> int:
    """Return the number of refreshes to time, which should take seconds at the possible rate."""
    if fleet.pool is Pool.GEVENT:
        return _GEVENT_TURNS * fleet.size
    load_seconds = queries.LOAD_SECONDS[query]
    return min(messages, math.ceil(fleet.loads_at_once * _SPAN_SECONDS / load_seconds)) if load_seconds else messages


def _seconds(workers: RunningWorkers, source: TriggerSource, count: int) -> float:
    """Return the time from the start of the first load to the end of the last, all queued before."""
    workers.hold_pool()
    numbers = source.write_stale(count)
    source.trigger(numbers)
    workers.open_gate()
    source.check_refreshed(numbers)
    return source.span_seconds(numbers)


def _rows(rates: _Rates) -> Iterator[tuple[str | float, ...]]:
    for (query, fleet), rounds in sorted(rates.items(), key=lambda item: list(LOADS).index(item[0][0])):
        rate, load_seconds = median(rounds), queries.LOAD_SECONDS[query]
        possible = 100 * rate * load_seconds / fleet.loads_at_once if load_seconds else math.nan
        yield LOADS[query], fleet.pool.value, fleet.workers, fleet.size, rate, min(rounds), max(rounds), possible


def _plot(name: str, query: str, rates: _Rates) -> Plot:
    lines = defaultdict[str, dict[int, list[float]]](dict)
    for (of, fleet), rounds in rates.items():
        if of == query:
            lines[fleet.label][fleet.loads_at_once] = rounds
    series = [
        Series(label, tuple(line), *(tuple(of(rounds) for rounds in line.values()) for of in (median, min, max)))
        for label, line in sorted(lines.items())
    ]
    return Plot(
        name, f"One to four workers, {LOADS[query]}", "loads at once, of all workers", "refreshes/s", tuple(series),
        caption="A line per pool and number of workers, with the least and the greatest of the rounds.", x_log=True,
        y_log=queries.LOAD_SECONDS[query] > 0,
    )  # fmt: skip
