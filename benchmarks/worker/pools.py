"""Refreshes per second of one worker node in each of Celery's pools, by the number of loads at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table
from benchmarks.worker import queries
from benchmarks.worker.options import BrokerKind, Pool, WorkerOptions
from benchmarks.worker.triggers import TriggerSource
from benchmarks.worker.worker_proc import GraphTarget, RunningWorker, running_worker

LOADS: Final = {queries.PERSON: "a point read", queries.FIFTY_MS: "loads of 50 ms", queries.ONE_SECOND: "loads of 1 s"}
_LOAD_SECONDS: Final = {queries.PERSON: 0.0, queries.FIFTY_MS: 0.05, queries.ONE_SECOND: 1.0}
_SPAN_SECONDS: Final = 2.0
# From Redis, Celery takes as many messages as there are greenlets every two seconds, however soon they are done: so
# one kind of loads tells all, and a few turns.
_GEVENT_TURNS: Final = 2
SIZES: Final = {
    Pool.PREFORK: range(1, 17),
    Pool.SOLO: range(1, 2),
    Pool.THREADS: range(1, 65),
    Pool.GEVENT: range(16, 17),
}
"""Sixteen processes take sixteen times the memory; solo has one load at a time; one size of gevent tells all."""

_Rates = dict[tuple[str, Pool, int], list[float]]


def measured_pools(broker: BrokerKind, servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Result:
    """Measure all pools at all sizes, with one broker."""
    group, rates = f"pools-{broker}", _measured(servers, graph, options)
    return Result(
        group,
        f"what one worker node does in each pool, its broker {broker.shown}",
        tables=[Table(f"refreshes per second, broker {broker.shown}", _COLUMNS, list(_rows(rates)))],
        charts=[_plot(f"{group}-{query.replace('_', '-')}", query, rates) for query in LOADS],
    )


_COLUMNS: Final = ("loads", "pool", "at_once", "per_second", "least", "most", "of_possible_%")


def _measured(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> _Rates:
    """Return the rate of each round, by query, pool and size. The sizes are taken in turn, so that pools alternate."""
    scale, rates = options.scale, defaultdict[tuple[str, Pool, int], list[float]](list)
    with ExitStack() as stack:
        sources = {query: stack.enter_context(TriggerSource(servers, query)) for query in LOADS}
        for size in scale.pool_sizes:
            for pool in (pool for pool in Pool if size in SIZES[pool]):
                with running_worker(servers, graph, pool, size) as worker:
                    for number in range(scale.rounds + 1):
                        for query in LOADS if pool is not Pool.GEVENT else (queries.FIFTY_MS,):
                            count = _count(query, pool, size, scale.messages)
                            rate = count / _seconds(worker, sources[query], count)
                            if number:  # in the first one connections are made
                                rates[query, pool, size].append(rate)
    return dict(rates)


def _count(query: str, pool: Pool, size: int, messages: int) -> int:
    """Return how many refreshes to time: what takes seconds at the rate that is possible."""
    if pool is Pool.GEVENT:
        return _GEVENT_TURNS * size
    load_seconds = _LOAD_SECONDS[query]
    return min(messages, math.ceil(size * _SPAN_SECONDS / load_seconds)) if load_seconds else messages


def _seconds(worker: RunningWorker, source: TriggerSource, count: int) -> float:
    """Return the time from the begin of the first load to the end of the last one, all queued before."""
    worker.hold_pool()
    numbers = source.write_stale(count)
    source.trigger(numbers)
    worker.open_gate()
    source.check_refreshed(numbers)
    return source.span_seconds(numbers)


def _rows(rates: _Rates) -> Iterator[tuple[str | float, ...]]:
    for (query, pool, size), rounds in sorted(rates.items(), key=lambda item: list(LOADS).index(item[0][0])):
        rate, load_seconds = median(rounds), _LOAD_SECONDS[query]
        possible = 100 * rate * load_seconds / size if load_seconds else math.nan
        yield LOADS[query], pool.value, size, rate, min(rounds), max(rounds), possible


def _plot(name: str, query: str, rates: _Rates) -> Plot:
    series = []
    for pool in Pool:
        found = {size: rounds for (of, its, size), rounds in rates.items() if (of, its) == (query, pool)}
        spread = (tuple(of(rounds) for rounds in found.values()) for of in (median, min, max))
        if found:
            series.append(Series(pool.value, tuple(found), *spread))
    return Plot(
        name, f"One worker node, {LOADS[query]}", "loads at once", "refreshes/s", tuple(series),
        caption="A line per pool, with the least and the greatest of the rounds.", x_log=True,
        y_log=_LOAD_SECONDS[query] > 0,
    )  # fmt: skip
