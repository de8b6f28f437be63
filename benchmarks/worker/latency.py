"""Time from the read that triggers a refresh to the commit: an idle worker, a load of 10 ms; a task beside it."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.worker import app as tasks
from benchmarks.worker import queries
from benchmarks.worker.options import BrokerKind, Pool, WorkerOptions
from benchmarks.worker.triggers import TriggerSource
from benchmarks.worker.worker_proc import GraphTarget, RunningWorkers, running_workers

REFRESH: Final = "a read of a stale entry, until the commit is announced"
TASK: Final = "a task of 10 ms, until it reports that it is done"
SENT: Final = "send_task of it returns"
STARTED: Final = "it has begun"
_P50, _P99 = Target(Must.AT_MOST, 20), Target(Must.AT_MOST, 50)
_ANSWER_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 2.0
_PERCENTS: Final = (50, 90, 99, 100)


@dataclass(slots=True)
class Samples:
    """Seconds, by what was timed and by round."""

    seconds: dict[str, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, what: str, number: int, seconds: float) -> None:
        if number != WARM_UP_ROUND:
            self.seconds[what][number].append(seconds)

    def percentiles_ms(self, what: str, percent: float) -> tuple[float, ...]:
        """Return a percentile of each round, in ms."""
        return tuple(percentile(found, percent) * 1e3 for found in self.seconds[what].values())

    def all_ms(self, what: str) -> list[float]:
        """Return all that was timed, in order of size, in ms."""
        return sorted(seconds * 1e3 for found in self.seconds[what].values() for seconds in found)


class Clock:
    """Times refreshes and tasks from outside; the worker's announcements come over one subscription."""

    def __init__(self, servers: Servers, workers: RunningWorkers, source: TriggerSource, stack: ExitStack) -> None:
        self._workers, self._asker = workers, source
        self._commits = stack.enter_context(_subscription(servers.plain()))
        self._tasks = stack.enter_context(_subscription(servers.control()))
        self._channel = f"{servers.namespace}-tasks"
        self._tasks.subscribe(self._channel)

    def refresh(self) -> Iterator[tuple[str, float]]:
        (number,) = self._asker.write_stale(1)
        channel = self._asker.key(number).channel
        self._commits.subscribe(channel)
        self._commits.get_message(timeout=_ANSWER_SECONDS)
        began = time.monotonic()
        self._asker.read(number)
        # Read again where a machine that stood still kept the refresh from being published: nobody else would ask.
        _next_message(self._commits, meanwhile=lambda: self._asker.read(number))
        yield REFRESH, time.monotonic() - began
        self._commits.unsubscribe(channel)
        self._commits.get_message(timeout=_ANSWER_SECONDS)

    def task(self) -> Iterator[tuple[str, float]]:
        began = time.monotonic()
        self._workers.send(tasks.PAUSE, self._channel, queries.LOAD_SECONDS)
        yield SENT, time.monotonic() - began
        started = float(_next_message(self._tasks))
        yield TASK, time.monotonic() - began
        yield STARTED, started - began


def _subscription(client: Any) -> Any:
    return client.pubsub(ignore_subscribe_messages=True)


def _next_message(subscription: Any, meanwhile: Callable[[], object] = lambda: None) -> bytes:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        message = subscription.get_message(timeout=_SILENT_SECONDS)
        if message is not None:
            content: bytes = message["data"]
            return content
        meanwhile()
    raise BenchError(f"the worker has announced nothing for {_ANSWER_SECONDS:g} s")


def measured_latency(broker: BrokerKind, servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Result:
    """Measure with one broker, in the default pool, with events as by default."""
    samples = _samples(servers, graph, options)
    group = f"latency-{broker}"
    shown = (REFRESH, TASK, STARTED, SENT)
    rows: list[list[TableCell]] = [
        [what, len(samples.all_ms(what)), *(percentile(samples.all_ms(what), percent) for percent in _PERCENTS)]
        for what in shown
    ]
    return Result(
        group,
        f"from trigger to commit, a load of 10 ms, an idle worker, its broker {broker.shown}",
        figures=list(_figures(samples)),
        tables=[Table(f"times in ms, broker {broker.shown}", _COLUMNS, rows)],
        charts=[_plot(group, broker, samples, shown[:2])],
    )


_COLUMNS: Final = ("from the call until", "samples", "p50_ms", "p90_ms", "p99_ms", "longest_ms")


def _samples(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Samples:
    samples, scale = Samples(), options.scale
    rng = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        source = stack.enter_context(TriggerSource(servers, queries.TEN_MS))
        workers = stack.enter_context(running_workers(servers, graph, Pool.PREFORK, 1))
        workers.switch_events(on=True)
        clock = Clock(servers, workers, source, stack)
        for number in range(scale.rounds + 1):
            for kind in _in_drawn_order((clock.refresh, clock.task), scale.samples, rng):
                # Idle, and not in step with the worker's own second.
                time.sleep(rng.uniform(0.0, scale.longest_pause_seconds))
                for what, seconds in kind():
                    samples.add(what, number, seconds)
    return samples


def _in_drawn_order(kinds: Sequence[Any], times: int, rng: random.Random) -> Iterator[Any]:
    for _ in range(times):
        order = list(kinds)
        rng.shuffle(order)
        yield from order


def _figures(samples: Samples) -> Iterator[Figure]:
    for what, targets in ((REFRESH, {50: _P50, 99: _P99}), (TASK, {})):
        for percent in (50, 99):
            yield figure(
                f"{what}: p{percent}", samples.percentiles_ms(what, percent), "ms", targets.get(percent)
            )  # fmt: skip
    for what in (STARTED, SENT):
        yield figure(f"{what}: p50", samples.percentiles_ms(what, 50), "ms")


def _plot(group: str, broker: BrokerKind, samples: Samples, shown: Sequence[str]) -> Plot:
    def series(what: str) -> Series:
        found = samples.all_ms(what)
        return Series(what, tuple(found), tuple((rank + 1) / len(found) for rank in range(len(found))))

    return Plot(
        group, f"From trigger to commit, a load of 10 ms, broker {broker.shown}", "time (ms)", "share done by then",
        tuple(map(series, shown)), PlotKind.STEPS,
        "All samples of all rounds. The load itself, or the task's pause, is 10 ms of it.", (REFRESH,),
    )  # fmt: skip
