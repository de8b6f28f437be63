"""A model's world as real processes: Redis, a broker of its own, a Celery worker, readers on event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, Final, Self, cast

import numpy as np
import redis
from numpy.typing import NDArray

from api_client import AsyncCacheClient, CacheError, EntryState
from api_client.trigger import backpressure
from benchmarks.apparatus.processes import Child, end_children, replies, start_child
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.workers import refresh_worker
from benchmarks.simulate.engine.model import Costs, Model, rates_and_degrees
from benchmarks.simulate.options import Mode, Popularity, SimulateOptions
from benchmarks.simulate.real import queries
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from refresher.ops.doctor.deployment import server_title

ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 0.25


def world(options: SimulateOptions, *, keys: int) -> Model:
    """Return a model that two cores can hold: workers and loads mostly sleep."""
    return Model(
        keys=keys, reads_per_second=500.0, readers=2, workers=6, seconds=0, ttl=10.0, grace=600.0, load=0.1,
        popularity=Popularity.ZIPF, min_ttl=1.0, costs=Costs(overhead=0.01),
        seed=options.seed,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """Task of one process: reads at random moments for so many seconds.

    Attributes:
        spikes: begin and end, in seconds from the begin, of spans with ``spike_times`` as many reads.
        settings: of its client, beside the servers.
    """

    model: Model
    servers: Servers
    number: int
    seconds: int
    spikes: tuple[tuple[int, int], ...] = ()
    spike_times: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Observed:
    """Counts by the second for which a read was due: of all, of those that got a stale value, that waited or failed.

    ``delayed_share`` is that of the reads which began 250 ms after their moment or later.
    """

    reads: NDArray[np.float64]
    stale: NDArray[np.float64]
    waited: NDArray[np.float64]
    delayed_share: float = 0.0

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        reads, stale, waited = (
            np.sum([getattr(one, name) for one in parts], axis=0) for name in ("reads", "stale", "waited")
        )
        return cls(reads, stale, waited, sum(one.delayed_share for one in parts) / len(parts))

    def since(self, second: int) -> Self:
        """Return the counts from a second on; what was delayed is of the whole time."""
        return replace(self, reads=self.reads[second:], stale=self.stale[second:], waited=self.waited[second:])


def run_readers(pipe: Connection, job: ReaderJob) -> None:
    """Read as one process of readers, once."""
    backpressure.OVERLOADED_SECONDS = job.model.overloaded_after  # type: ignore[misc] # this process' own
    asyncio.run(_read_all(pipe, job))


async def _read_all(pipe: Connection, job: ReaderJob) -> None:
    rates, degrees = rates_and_degrees(job.model)
    delayed, (reads, stale, waited) = 0, np.zeros((3, job.seconds))
    observed = Observed(reads, stale, waited)
    async with AsyncCacheClient(job.servers.settings(redis_timeout_seconds=5.0, **job.settings)) as client:
        pipe.send("ready")
        begins = float(await asyncio.to_thread(pipe.recv))
        async with asyncio.TaskGroup() as tasks:
            for at, number in _moments(job, rates.astype(np.float64) / job.model.readers):
                await asyncio.sleep(max(0.0, begins + at - time.monotonic()))
                delayed += time.monotonic() - begins - at > _LATE_SECONDS
                params = {"number": number, "degree": int(degrees[number])}
                tasks.create_task(_read(client, params, int(at), observed))
    pipe.send(replace(observed, delayed_share=delayed / max(1.0, float(observed.reads.sum()))))


def _moments(job: ReaderJob, rates: NDArray[np.float64]) -> Iterator[tuple[float, int]]:
    """Yield when which key is read: a Poisson process."""
    rng = np.random.default_rng(job.model.seed + job.number)
    summed = np.cumsum(rates)
    total, at = float(summed[-1]), 0.0
    while True:
        times = job.spike_times if any(begins <= at < ends for begins, ends in job.spikes) else 1.0
        at += float(rng.exponential(1 / (total * times)))
        if at >= job.seconds:
            return
        yield at, min(int(np.searchsorted(summed, rng.random() * total, side="right")), len(summed) - 1)


async def _read(client: AsyncCacheClient, params: Mapping[str, object], second: int, observed: Observed) -> None:
    observed.reads[second] += 1
    try:
        state = (await client.get_entry(queries.QUERY, params)).state
    except CacheError:
        state = EntryState.MISS
    observed.stale[second] += state is EntryState.STALE
    observed.waited[second] += state is EntryState.MISS


class Readers:
    """The model's processes of readers; they begin together. Leaving the block ends them.

    Args:
        model, servers, seconds, more: of each one's `ReaderJob`.
    """

    def __init__(self, model: Model, servers: Servers, seconds: int, **more: Any) -> None:
        self._jobs = [ReaderJob(model, servers, number, seconds, **more) for number in range(model.readers)]
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self._children.append(start_child(run_readers, job))
            replies(self._children, ANSWER_SECONDS)
        except BaseException:
            end_children(self._children)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        end_children(self._children)

    def begin(self) -> float:
        """Let them begin; returns when, in monotonic seconds."""
        begins = time.monotonic() + _AHEAD_SECONDS
        for child in self._children:
            child.pipe.send(begins)
        return begins

    def observed(self, timeout_seconds: float) -> Observed:
        return Observed.together(cast("list[Observed]", replies(self._children, timeout_seconds)))


class Plant:
    """Servers and a worker, of the model's size. The cache, the broker and the control database have a Redis each.

    Args:
        stack: ends them.
        model: its costs are not used.
        versions: receives those of the servers.
    """

    def __init__(self, stack: ExitStack, model: Model, versions: dict[str, str]) -> None:
        self._stack, self._model = stack, model
        cache, self.broker, control = (stack.enter_context(RedisServer.start()) for _ in range(3))
        with redis.Redis.from_url(cache.url()) as client:
            versions["server"] = version = server_title(cast("dict[str, Any]", client.info("server")))
        self.servers = Servers(cache.url(), self.broker.url(), control.url(), "embedded", version, "bench")
        self._graph = stack.enter_context(ArcadeDbServer.start())
        self.worker: GuardedProcess
        self.start_worker()

    def start_worker(self) -> None:
        """Start a worker, also in the place of one that was killed."""
        model = self._model
        environ = {
            queries.LOAD: repr(model.load),
            queries.TTL: repr(model.ttl),
            queries.GRACE: repr(model.grace),
            "CACHE_XFETCH_ENABLED": "false" if model.mode is Mode.NONE else "true",
            "CACHE_XFETCH_BETA": repr(model.beta),
            "CACHE_XFETCH_MIN_TTL": repr(model.min_ttl),
            "CACHE_XFETCH_WORKERS": str(model.workers),
        }
        if model.mode is not Mode.NONE:
            environ["TSPR_REFRESH_MODE"] = model.mode.value
        worker = refresh_worker(self.servers, self._graph.environ, queries.__name__, environ)
        self.worker = self._stack.enter_context(worker)

    def lose_all(self) -> None:
        with redis.Redis.from_url(self.servers.cache_url) as client:
            client.flushall()
        self.servers.drop_messages()

    def slow_down(self, times: float) -> None:
        """Let loads take so many times as long from now on; 1: as long as they should."""
        with self.servers.control() as control:
            control.set(queries.SLOWER, times)

    def loads(self) -> int:
        with self.servers.control() as control:
            return int(cast("bytes | None", control.get(queries.LOADS)) or 0)


def sleep_until(moment: float) -> None:
    """Sleep until a moment in monotonic seconds."""
    time.sleep(max(0.0, moment - time.monotonic()))
