"""Time from the triggering read to the commit, with an idle worker and a load of 10 ms, compared with a task."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.worker import app as tasks
from benchmarks.worker import queries
from benchmarks.worker.fleet import RunningWorkers, running_workers
from benchmarks.worker.options import Pool, WorkerOptions
from benchmarks.worker.triggers import TriggerSource

GROUP: Final = "latency-redis"
REFRESH: Final = "a read of a stale entry, until the commit is announced"
TASK: Final = "a task of 10 ms, until it reports that it is done"
SENT: Final = "send_task of it returns"
STARTED: Final = "it has begun"
_TARGETS: Final = {(REFRESH, 50): Target(Must.AT_MOST, 20), (REFRESH, 99): Target(Must.AT_MOST, 50)}
_ANSWER_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 2.0
_COLUMNS: Final = ("from the call until", "samples", "p50_ms", "p90_ms", "p99_ms", "longest_ms")
_Samples: TypeAlias = dict[str, dict[int, list[float]]]


class _Clock:
    """Times refreshes and tasks from outside, in ms, by the worker's announcements over a subscription."""

    def __init__(self, servers: Servers, workers: RunningWorkers, source: TriggerSource, stack: ExitStack) -> None:
        self._workers, self._source = workers, source
        clients: tuple[Any, Any] = servers.plain(), servers.control()
        self._commits, self._tasks = (
            stack.enter_context(client.pubsub(ignore_subscribe_messages=True)) for client in clients
        )
        self._channel = f"{servers.namespace}-tasks"
        self._tasks.subscribe(self._channel)

    def refresh(self) -> Iterator[tuple[str, float]]:
        (number,) = self._source.write_stale(1)
        channel = self._source.key(number).channel
        self._commits.subscribe(channel)
        self._commits.get_message(timeout=_ANSWER_SECONDS)
        began = time.monotonic()
        self._source.read(number)
        # Read again in case a stall of the machine kept the refresh from being published, as nobody else would ask.
        _next_message(self._commits, meanwhile=lambda: self._source.read(number))
        yield REFRESH, 1e3 * (time.monotonic() - began)
        self._commits.unsubscribe(channel)
        self._commits.get_message(timeout=_ANSWER_SECONDS)

    def task(self) -> Iterator[tuple[str, float]]:
        began = time.monotonic()
        self._workers.send(tasks.PAUSE, self._channel, queries.LOAD_SECONDS[queries.TEN_MS])
        yield SENT, 1e3 * (time.monotonic() - began)
        started = float(_next_message(self._tasks))
        yield TASK, 1e3 * (time.monotonic() - began)
        yield STARTED, 1e3 * (started - began)


def _next_message(subscription: Any, meanwhile: Callable[[], object] = lambda: None) -> bytes:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        message = subscription.get_message(timeout=_SILENT_SECONDS)
        if message is not None:
            content: bytes = message["data"]
            return content
        meanwhile()
    raise BenchError(f"the worker has announced nothing for {_ANSWER_SECONDS:g} s")


def measured_latency(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> Result:
    """Measure in the default pool, with default events."""
    samples = _samples(servers, graph, options)
    found = {what: sorted(ms for each in samples[what].values() for ms in each) for what in samples}
    rows = [
        (what, len(found[what]), *(percentile(found[what], percent) for percent in (50, 90, 99, 100)))
        for what in (REFRESH, TASK, STARTED, SENT)
    ]
    series = (
        Series(what, tuple(found[what]), tuple((rank + 1) / len(found[what]) for rank in range(len(found[what]))))
        for what in (REFRESH, TASK)
    )
    plot = Plot(
        GROUP, "From trigger to commit, a load of 10 ms, broker Redis", "time (ms)", "share done by then",
        tuple(series), PlotKind.STEPS,
        "All samples of all rounds. The load itself, or the task's pause, is 10 ms of it.", (REFRESH,),
    )  # fmt: skip
    title = "from trigger to commit, a load of 10 ms, an idle worker, its broker Redis"
    table = Table("times in ms, broker Redis", _COLUMNS, rows)
    return Result(GROUP, title, list(_figures(samples)), tables=[table], charts=[plot])


def _samples(servers: Servers, graph: GraphTarget, options: WorkerOptions) -> _Samples:
    scale, samples = options.scale, defaultdict[str, dict[int, list[float]]](lambda: defaultdict(list))
    rng = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        source = stack.enter_context(TriggerSource(servers, queries.TEN_MS))
        workers = stack.enter_context(running_workers(servers, graph, Pool.PREFORK, 1))
        workers.switch_events(on=True)
        clock = _Clock(servers, workers, source, stack)
        kinds = [clock.refresh, clock.task]
        for number in range(scale.rounds + 1):
            for _ in range(scale.samples):
                rng.shuffle(kinds)
                for kind in kinds:
                    # Idle, and out of step with the worker's own second.
                    time.sleep(rng.uniform(0.0, scale.longest_pause_seconds))
                    for what, ms in kind():
                        if number != WARM_UP_ROUND:
                            samples[what][number].append(ms)
    return samples


def _figures(samples: _Samples) -> Iterator[Figure]:
    for what, percent in ((REFRESH, 50), (REFRESH, 99), (TASK, 50), (TASK, 99), (STARTED, 50), (SENT, 50)):
        rounds = [percentile(each, percent) for each in samples[what].values()]
        yield figure(f"{what}: p{percent}", rounds, "ms", _TARGETS.get((what, percent)))
