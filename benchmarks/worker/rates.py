"""How many refreshes a second a worker does, against how many tasks that do nothing, one process each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.bars import Rounds, bars
from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.places import Place
from benchmarks.plots import Plot
from benchmarks.statistics import Tally, middle, turns
from benchmarks.tables import Table
from benchmarks.worker import queries
from benchmarks.worker.asking import Asker
from benchmarks.worker.graph import GraphPlace
from benchmarks.worker.options import BrokerKind, Pool, WorkerOptions
from benchmarks.worker.process import RunningWorker, running_worker

NOTHING: Final = "a no-op task"
AT_ONCE: Final = "a refresh, loaded at once"
READ: Final = "a refresh, read from a graph"
TARGET: Final = Target(Must.AT_LEAST, 0.6)
COLUMNS: Final = ("pool", "tasks", "events", "per_second", "us_each", "of_no_op")


@dataclass(frozen=True, slots=True)
class Contender:
    """What a worker works off, with or without telling of each task."""

    what: str
    events: bool

    @property
    def name(self) -> str:
        """In a tally and in the legend."""
        return f"{self.what}{', events' if self.events else ''}"

    @property
    def beside(self) -> Contender:
        """What it is compared with: nothing, with events or without as this one."""
        return Contender(NOTHING, self.events)


CONTENDERS: Final = tuple(Contender(what, events) for what in (NOTHING, AT_ONCE, READ) for events in (False, True))
_BY_NAME: Final = {contender.name: contender for contender in CONTENDERS}


def measured_rates(broker: BrokerKind, place: Place, graph: GraphPlace, options: WorkerOptions) -> Result:
    """Measure in all pools, with one broker."""
    tallies = {pool: _tally(pool, place, graph, options) for pool in Pool}
    group = f"rates-{broker}"
    return Result(
        group,
        f"what one process of a worker does, its broker {broker.shown}",
        figures=tuple(figure for pool, tally in tallies.items() for figure in _figures(group, pool, tally)),
        tables=(Table(group, f"rates, broker {broker.shown}", COLUMNS, tuple(_rows(tallies))),),
        plots=(_plot(group, broker, tallies),),
    )


def _tally(pool: Pool, place: Place, graph: GraphPlace, options: WorkerOptions) -> Tally:
    scale, tally = options.scale, Tally()
    order = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        askers = {
            what: stack.enter_context(Asker(place, query))
            for what, query in ((AT_ONCE, queries.AT_ONCE), (READ, queries.FRIENDS))
        }
        worker = stack.enter_context(running_worker(place, graph, pool))
        for turn in turns(list(_BY_NAME), rounds=scale.rounds, slices=1, rng=order):
            contender = _BY_NAME[turn.name]
            worker.switch_events(on=contender.events)
            tally.add(turn, scale.messages, _seconds(worker, askers.get(contender.what), scale.messages))
    return tally


def _seconds(worker: RunningWorker, asker: Asker | None, messages: int) -> float:
    if asker is None:
        return worker.seconds_for(lambda: worker.send_nothing(messages))
    numbers = asker.stale(messages)
    seconds = worker.seconds_for(lambda: asker.ask_for(numbers))
    asker.check_refreshed(numbers)
    return seconds


def _figures(group: str, pool: Pool, tally: Tally) -> Iterator[Figure]:
    for contender in CONTENDERS:
        if contender.what != NOTHING:
            target = TARGET if contender.what == AT_ONCE else None
            rounds = tuple(tally.times_as_fast(contender.name, contender.beside.name))
            events = "events as by default" if contender.events else "no events"
            what = f"{pool}: {contender.what}, against a no-op task"
            yield Figure(group, what, rounds, target=target, note=events)
    for what in (NOTHING, AT_ONCE):
        rounds = tuple(tally.times_as_fast(Contender(what, events=True).name, Contender(what, events=False).name))
        yield Figure(group, f"{pool}: {what}, events against none", rounds)


def _rows(tallies: Mapping[Pool, Tally]) -> Iterator[tuple[str | float, ...]]:
    for pool, tally in tallies.items():
        for contender in CONTENDERS:
            took = middle(tally.seconds_a_read(contender.name))
            beside = middle(tally.times_as_fast(contender.name, contender.beside.name))
            yield (
                pool.value, contender.what, "yes" if contender.events else "no", 1 / took, took * 1e6, beside,
            )  # fmt: skip


def _plot(group: str, broker: BrokerKind, tallies: Mapping[Pool, Tally]) -> Plot:
    def rates(contender: Contender) -> Rounds:
        return {
            pool.value: [1 / took for took in tally.seconds_a_read(contender.name)] for pool, tally in tallies.items()
        }

    title = f"Tasks a second of one worker process, broker {broker.shown}"
    series = {contender.name: rates(contender) for contender in CONTENDERS}
    return bars(group, title, "tasks a second", series, x_label="pool of the worker")
