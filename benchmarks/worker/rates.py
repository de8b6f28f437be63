"""Refreshes per second of a worker process, against no-op tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import Tally, median, turns
from benchmarks.reports.charts import Plot, Rounds, bars
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.worker import queries
from benchmarks.worker.fleet import RunningWorkers, running_workers
from benchmarks.worker.options import Pool, WorkerOptions
from benchmarks.worker.triggers import TriggerSource

GROUP: Final = "rates-redis"
NOTHING: Final = "a no-op task"
AT_ONCE: Final = "a refresh, loaded at once"
READ: Final = "a refresh, a point read"
BATCHED_AT_ONCE: Final = "in a batch, loaded at once"
BATCHED_READ: Final = "in a batch, a point read each"
BATCHED: Final = frozenset({BATCHED_AT_ONCE, BATCHED_READ})
BATCH_TIMES: Final = 10
TARGETS: Final = {
    AT_ONCE: Target(Must.AT_LEAST, 0.6),
    READ: Target(Must.AT_LEAST, 0.5),
    BATCHED_READ: Target(Must.AT_LEAST, 4.0),
}
QUERIES: Final = {
    AT_ONCE: queries.AT_ONCE,
    READ: queries.PERSON,
    BATCHED_AT_ONCE: queries.BATCHED,
    BATCHED_READ: queries.BATCHED_PERSON,
}
SIZES: Final = {Pool.PREFORK: 1, Pool.SOLO: 1, Pool.THREADS: 4}
"""Pool sizes: one process, or four threads in it."""
COLUMNS: Final = ("pool", "tasks", "events", "per_second", "us_each", "of_no_op")


@dataclass(frozen=True, slots=True)
class Competitor:
    """A measured rate of a worker, with or without an event for each task."""

    what: str
    events: bool

    @property
    def times(self) -> int:
        """Factor for batches, of which a run needs more, as they are few and soon done."""
        return BATCH_TIMES if self.what in BATCHED else 1

    @property
    def name(self) -> str:
        return f"{self.what}{', events' if self.events else ''}"

    @property
    def baseline(self) -> Competitor:
        return Competitor(NOTHING, self.events)


COMPETITORS: Final = tuple(
    Competitor(what, events)
    for what in (NOTHING, AT_ONCE, READ, BATCHED_AT_ONCE, BATCHED_READ)
    for events in (False, True)
)
_BY_NAME: Final = {competitor.name: competitor for competitor in COMPETITORS}


def measured_rates(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Result:
    """Measure in all pools."""
    tallies = {pool: _tally(pool, servers, graph, options) for pool in SIZES}
    return Result(
        GROUP,
        "what one process of a worker does, its broker Redis",
        figures=[one for pool, tally in tallies.items() for one in _figures(pool, tally)],
        tables=[Table("rates, broker Redis", COLUMNS, list(_rows(tallies)))],
        charts=[_plot(tallies)],
    )


def _tally(pool: Pool, servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Tally:
    scale, tally = options.scale, Tally()
    order = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        sources = {what: stack.enter_context(TriggerSource(servers, query)) for what, query in QUERIES.items()}
        workers = stack.enter_context(running_workers(servers, graph, pool, SIZES[pool]))
        for turn in turns(list(_BY_NAME), rounds=scale.rounds, slices=1, rng=order):
            competitor = _BY_NAME[turn.name]
            workers.switch_events(on=competitor.events)
            count = scale.messages * competitor.times
            tally.add(turn, count, _seconds(workers, sources.get(competitor.what), count))
    return tally


def _seconds(workers: RunningWorkers, source: TriggerSource | None, count: int) -> float:
    if source is None:
        return workers.seconds_for(lambda: workers.send_nothing(count))
    numbers = source.write_stale(count)
    seconds = workers.seconds_for(lambda: source.trigger(numbers))
    source.check_refreshed(numbers)
    return seconds


def _figures(pool: Pool, tally: Tally) -> Iterator[Figure]:
    for competitor in COMPETITORS:
        if competitor.what != NOTHING:
            rounds = tally.speed_ratios(competitor.name, competitor.baseline.name)
            events = "events as by default" if competitor.events else "no events"
            what = f"{pool}: {competitor.what}, against a no-op task"
            yield figure(what, rounds, target=TARGETS.get(competitor.what), note=events)
    for what in (NOTHING, AT_ONCE, BATCHED_AT_ONCE):
        rounds = tally.speed_ratios(Competitor(what, events=True).name, Competitor(what, events=False).name)
        yield figure(f"{pool}: {what}, events against none", rounds)


def _rows(tallies: Mapping[Pool, Tally]) -> Iterator[tuple[str | float, ...]]:
    for pool, tally in tallies.items():
        for competitor in COMPETITORS:
            took = median(tally.seconds_per_read(competitor.name))
            baseline = median(tally.speed_ratios(competitor.name, competitor.baseline.name))
            events = "yes" if competitor.events else "no"
            yield pool.value, competitor.what, events, 1 / took, took * 1e6, baseline


def _plot(tallies: Mapping[Pool, Tally]) -> Plot:
    def rates(competitor: Competitor) -> Rounds:
        return {
            pool.value: [1 / took for took in tally.seconds_per_read(competitor.name)]
            for pool, tally in tallies.items()
        }

    title = "One worker process, events as by default, broker Redis"
    series = {competitor.what: rates(competitor) for competitor in COMPETITORS if competitor.events}
    return bars(GROUP, title, "tasks/s", series, ours=tuple(QUERIES), x_label="pool of the worker")
