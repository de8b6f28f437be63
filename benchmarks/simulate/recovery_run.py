"""The triggers of `recovery` on real processes: Redis, a broker of its own, a Celery worker, readers on event loops."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
import redis

from api_client import AsyncCacheClient, CacheError, EntryState
from benchmarks.apparatus.processes import Child, celery_process, end_children, replies, start_child, wait_until_ready
from benchmarks.apparatus.servers import Servers
from benchmarks.reports.results import Result, figure
from benchmarks.simulate import real_queries
from benchmarks.simulate.charts import recovery_figures, recovery_plot, recovery_table
from benchmarks.simulate.model import Costs, Model, rates_and_degrees
from benchmarks.simulate.options import Popularity, SimulateOptions
from benchmarks.simulate.real_queries import QUERY
from benchmarks.simulate.real_run import READY, params_of, worker_environment
from benchmarks.simulate.recovery import (
    BROKER,
    FLUSH,
    KILLED,
    MEAN_SECONDS,
    SLOW,
    SLOW_TIMES,
    SPIKE,
    SPIKE_TIMES,
    TOLERANCE,
    TRIGGERS,
    Recovered,
    Trigger,
    recovery,
)
from benchmarks.simulate.scenarios import loading
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

LOADS: Final = (0.4, 0.6, 0.8)
_CALM_SECONDS: Final = 15
_WATCHED_LENGTHS: Final = 2.2
_MIN_WATCHED_SECONDS: Final = 20
_ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 1.0
_QUICK_SECONDS: Final = 4
_QUICK_BEGINS: Final = (5, 18)
_COSTS: Final = Costs(overhead=0.01)
_DEVIATIONS: Final = 3
_EXACT_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """Task of one process: reads at random moments for so many seconds, in the spikes more of them.

    Attributes:
        rates: reads/s of each key, of this process alone.
        spikes: begin and end, in seconds from the begin.
    """

    servers: Servers
    rates: NDArray[np.float64]
    degrees: NDArray[np.int32]
    seconds: int
    spikes: tuple[tuple[int, int], ...]
    seed: int


@dataclass(slots=True)
class Observed:
    """Counts by the second for which a read was due; ``late`` got a stale value, waited or failed."""

    reads: NDArray[np.float64]
    late: NDArray[np.float64]
    delayed: int = 0

    @classmethod
    def of(cls, seconds: int) -> Self:
        return cls(np.zeros(seconds), np.zeros(seconds))


def run_readers(pipe: Connection, job: ReaderJob) -> None:
    """Read as one process of readers, once."""
    asyncio.run(_read_all(pipe, job))


async def _read_all(pipe: Connection, job: ReaderJob) -> None:
    observed = Observed.of(job.seconds)
    async with AsyncCacheClient(job.servers.settings(redis_timeout_seconds=5.0)) as client:
        pipe.send(READY)
        begins = float(await asyncio.to_thread(pipe.recv))
        async with asyncio.TaskGroup() as reads:
            for at, number in _moments(job):
                await asyncio.sleep(max(0.0, begins + at - time.monotonic()))
                observed.delayed += time.monotonic() - begins - at > _LATE_SECONDS
                reads.create_task(_read(client, params_of(number, job.degrees), int(at), observed))
    pipe.send(observed)


def _moments(job: ReaderJob) -> Iterator[tuple[float, int]]:
    """Yield when which key is read: a Poisson process."""
    rng = np.random.default_rng(job.seed)
    summed = np.cumsum(job.rates)
    total, at = float(summed[-1]), 0.0
    while True:
        times = SPIKE_TIMES if any(begins <= at < ends for begins, ends in job.spikes) else 1.0
        at += float(rng.exponential(1 / (total * times)))
        if at >= job.seconds:
            return
        yield at, min(int(np.searchsorted(summed, rng.random() * total, side="right")), len(summed) - 1)


async def _read(client: AsyncCacheClient, params: dict[str, object], second: int, observed: Observed) -> None:
    observed.reads[second] += 1
    try:
        entry = await client.get_entry(QUERY, params)
    except CacheError:
        observed.late[second] += 1
    else:
        observed.late[second] += entry.state is not EntryState.FRESH


@dataclass(frozen=True, slots=True)
class _Applied:
    """A trigger, and when it begins and ends, in seconds from the begin; for how long reads are counted about it."""

    trigger: Trigger
    begins: int
    ends: int
    calm: int
    watched: int


class _Plant:
    """The processes that triggers are applied to. The cache, the broker and the marks have a Redis each."""

    def __init__(self, stack: ExitStack, model: Model, versions: dict[str, str]) -> None:
        self._stack = stack
        self._cache = stack.enter_context(RedisServer.start())
        self._broker = stack.enter_context(RedisServer.start())
        control = stack.enter_context(RedisServer.start())
        with redis.Redis.from_url(self._cache.url()) as client:
            versions["redis-server"] = version = str(cast("dict[str, Any]", client.info("server"))["redis_version"])
        self.servers = Servers(self._cache.url(), self._broker.url(), control.url(), "embedded", version, "bench")
        graph = stack.enter_context(ArcadeDbServer.start())
        self._environ = {
            **graph.environ, **self.servers.environ, "REFRESHER_QUERIES": real_queries.__name__,
            **worker_environment(model, self.servers),
        }  # fmt: skip
        self._worker = self._started()

    def apply(self, trigger: Trigger) -> None:
        """Begin it; readers know of a spike themselves."""
        if trigger.name == FLUSH.name:
            with redis.Redis.from_url(self.servers.cache_url) as client:
                client.flushall()
            self.servers.drop_messages()
        elif trigger.name == SLOW.name:
            with self.servers.control() as control:
                control.set(real_queries.SLOWER, SLOW_TIMES)
        elif trigger.name == KILLED.name:
            self._worker.kill()
        elif trigger.name == BROKER.name:
            self._broker.kill()

    def take_away(self, trigger: Trigger) -> None:
        """End it.

        Raises:
            BenchError: the worker did not start.
            EmbeddedServerError: the broker did not start.
        """
        if trigger.name == SLOW.name:
            with self.servers.control() as control:
                control.delete(real_queries.SLOWER)
        elif trigger.name == KILLED.name:
            self._worker = self._started()
        elif trigger.name == BROKER.name:
            self._broker.restart(keep_data=False)

    def _started(self) -> GuardedProcess:
        name = f"refresher@{self.servers.namespace}"
        worker = self._stack.enter_context(celery_process(["-A", "refresher"], name, "INFO", self._environ))
        wait_until_ready(worker)
        return worker


def recovered(
    load: float, options: SimulateOptions, console: Console, versions: dict[str, str], found: list[Recovered]
) -> Result:
    """Apply the triggers at a load, one after the other, and measure how reads recover.

    Args:
        load: what the keys need, as a share of what the workers can.
        options: of the run.
        console: is told how long it takes.
        versions: receives those of the servers.
        found: receives how reads recovered.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start, or the readers failed.
    """
    model = loading(_world(options), load)
    plan = _plan(model, is_quick=options.quick)
    seconds = plan[-1].ends + plan[-1].watched
    console.print(f"a real run of {seconds} s …", style="dim")
    with ExitStack() as stack:
        plant = _Plant(stack, model, versions)
        children: list[Child] = []
        stack.callback(end_children, children)
        children += [start_child(run_readers, job) for job in _jobs(model, plant.servers, plan, seconds)]
        replies(children, _ANSWER_SECONDS)
        begins = time.monotonic() + _AHEAD_SECONDS
        for child in children:
            child.pipe.send(begins)
        applied = [_apply(plant, one, begins) for one in plan]
        observed = cast("list[Observed]", replies(children, _ANSWER_SECONDS + begins + seconds - time.monotonic()))
    here = [_recovered(one, load, model, observed) for one in applied]
    found += here
    delayed = sum(one.delayed for one in observed) / sum(float(one.reads.sum()) for one in observed)
    figures = [figure("reads that began 250 ms late or later", (100 * delayed,), "%")]
    title = f"real processes at {load:.0%} of what they can carry"
    return Result(f"real-recovery-{100 * load:.0f}", title, figures, tables=[recovery_table(title, here)])


def all_recovered(found: Sequence[Recovered]) -> Result:
    """Return the times to recover at all loads that were measured."""
    plot = recovery_plot("real-recovery", "real processes", found)
    return Result("real-recovery", "something goes wrong, and is over", recovery_figures(found), charts=[plot])


def _world(options: SimulateOptions) -> Model:
    """Return a model that two cores can hold: workers and loads mostly sleep."""
    return Model(
        keys=300, reads_per_second=500.0, readers=2, workers=6, seconds=0, ttl=10.0, grace=600.0, load=0.1,
        beta=options.beta, mode=options.mode, popularity=Popularity.ZIPF, min_ttl=1.0, costs=_COSTS, seed=options.seed,
    )  # fmt: skip


def _plan(model: Model, *, is_quick: bool) -> list[_Applied]:
    plan: list[_Applied] = []
    if is_quick:
        for begins, trigger in zip(_QUICK_BEGINS, (FLUSH, replace(KILLED, seconds=_QUICK_SECONDS)), strict=True):
            plan.append(_Applied(trigger, begins, begins + trigger.seconds, _QUICK_SECONDS, 2 * _QUICK_SECONDS))
        return plan
    at = int(2 * model.ttl)
    for trigger in TRIGGERS:
        begins = at + _CALM_SECONDS
        watched = max(_MIN_WATCHED_SECONDS, math.ceil(_WATCHED_LENGTHS * trigger.length(model)))
        plan.append(_Applied(trigger, begins, begins + trigger.seconds, _CALM_SECONDS, watched))
        at = plan[-1].ends + watched
    return plan


def _apply(plant: _Plant, one: _Applied, begins: float) -> _Applied:
    """Apply a trigger when it is due; return it with the moment at which it was really over."""
    time.sleep(max(0.0, begins + one.begins - time.monotonic()))
    plant.apply(one.trigger)
    time.sleep(max(0.0, begins + one.ends - time.monotonic()))
    plant.take_away(one.trigger)
    return replace(one, ends=max(one.ends, math.ceil(time.monotonic() - begins - _EXACT_SECONDS)))


def _jobs(model: Model, servers: Servers, plan: Sequence[_Applied], seconds: int) -> list[ReaderJob]:
    rates, degrees = rates_and_degrees(
        model.popularity, model.keys, model.reads_per_second, zipf_exponent=model.zipf_exponent, seed=model.seed
    )
    spikes = tuple((one.begins, one.ends) for one in plan if one.trigger.name == SPIKE.name)
    own = rates.astype(np.float64) / model.readers
    return [ReaderJob(servers, own, degrees, seconds, spikes, model.seed + number) for number in range(model.readers)]


def _recovered(one: _Applied, load: float, model: Model, observed: Sequence[Observed]) -> Recovered:
    """Return how reads recovered from one trigger, within what was watched after it."""
    span = slice(one.begins - one.calm, one.ends + one.watched)
    reads = np.sum([each.reads for each in observed], axis=0)[span]
    late = np.sum([each.late for each in observed], axis=0)[span]
    before = late[: one.calm].sum() / reads[: one.calm].sum()
    chance = _DEVIATIONS * math.sqrt(before * (1 - before) / (MEAN_SECONDS * model.reads_per_second))
    length = one.ends - one.begins if one.trigger.seconds else one.trigger.length(model)
    seen = recovery(late / np.maximum(reads, 1), one.calm, one.calm + one.ends - one.begins, TOLERANCE + chance)
    return Recovered(one.trigger.name, load, length, seen)
