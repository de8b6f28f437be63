"""A model's world as real processes: Redis, a broker of its own, a Celery worker, readers on event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
import redis

from api_client import AsyncCacheClient, CacheError, EntryState
from api_client.trigger import backpressure
from benchmarks.apparatus.processes import Child, celery_process, end_children, replies, start_child, wait_until_ready
from benchmarks.apparatus.servers import Servers
from benchmarks.simulate import real_queries
from benchmarks.simulate.model import Model, rates_and_degrees
from benchmarks.simulate.real_queries import QUERY
from benchmarks.simulate.real_run import READY, params_of, worker_environment
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from refresher.ops.doctor.deployment import server_title

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """Task of one process: reads at random moments for so many seconds.

    Attributes:
        rates: reads/s of each key, of this process alone.
        spikes: begin and end, in seconds from the begin, of spans with more reads.
        spike_times: how many times as many.
        overloaded_after: as of `Model`.
        settings: of its client, beside the servers.
    """

    servers: Servers
    rates: NDArray[np.float64]
    degrees: NDArray[np.int32]
    seconds: int
    seed: int
    spikes: tuple[tuple[int, int], ...] = ()
    spike_times: float = 1.0
    overloaded_after: float = backpressure.OVERLOADED_SECONDS
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
    def of(cls, seconds: int) -> Self:
        """Return zeros."""
        return cls(np.zeros(seconds), np.zeros(seconds), np.zeros(seconds))

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Return the sums."""
        reads, stale, waited = (
            np.sum([getattr(one, name) for one in parts], axis=0) for name in ("reads", "stale", "waited")
        )
        return cls(reads, stale, waited, sum(one.delayed_share for one in parts) / len(parts))

    def since(self, second: int) -> Self:
        """Return the counts from a second on; what was delayed is of the whole time."""
        return replace(self, reads=self.reads[second:], stale=self.stale[second:], waited=self.waited[second:])


def reader_jobs(model: Model, servers: Servers, seconds: int, **more: Any) -> list[ReaderJob]:
    """Return the tasks of the model's processes of readers; ``more`` are further arguments of each."""
    rates, degrees = rates_and_degrees(
        model.popularity, model.keys, model.reads_per_second, zipf_exponent=model.zipf_exponent, seed=model.seed
    )
    own = rates.astype(np.float64) / model.readers
    return [
        ReaderJob(servers, own, degrees, seconds, model.seed + number, **more) for number in range(model.readers)
    ]  # fmt: skip


def run_readers(pipe: Connection, job: ReaderJob) -> None:
    """Read as one process of readers, once."""
    backpressure.OVERLOADED_SECONDS = job.overloaded_after  # type: ignore[misc] # this process' own, as in the model
    asyncio.run(_read_all(pipe, job))


async def _read_all(pipe: Connection, job: ReaderJob) -> None:
    observed, delayed = Observed.of(job.seconds), 0
    async with AsyncCacheClient(job.servers.settings(redis_timeout_seconds=5.0, **job.settings)) as client:
        pipe.send(READY)
        begins = float(await asyncio.to_thread(pipe.recv))
        async with asyncio.TaskGroup() as reads:
            for at, number in _moments(job):
                await asyncio.sleep(max(0.0, begins + at - time.monotonic()))
                delayed += time.monotonic() - begins - at > _LATE_SECONDS
                reads.create_task(_read(client, params_of(number, job.degrees), int(at), observed))
    pipe.send(replace(observed, delayed_share=delayed / max(1.0, float(observed.reads.sum()))))


def _moments(job: ReaderJob) -> Iterator[tuple[float, int]]:
    """Yield when which key is read: a Poisson process."""
    rng = np.random.default_rng(job.seed)
    summed = np.cumsum(job.rates)
    total, at = float(summed[-1]), 0.0
    while True:
        times = job.spike_times if any(begins <= at < ends for begins, ends in job.spikes) else 1.0
        at += float(rng.exponential(1 / (total * times)))
        if at >= job.seconds:
            return
        yield at, min(int(np.searchsorted(summed, rng.random() * total, side="right")), len(summed) - 1)


async def _read(client: AsyncCacheClient, params: dict[str, object], second: int, observed: Observed) -> None:
    observed.reads[second] += 1
    try:
        state = (await client.get_entry(QUERY, params)).state
    except CacheError:
        state = EntryState.MISS
    observed.stale[second] += state is EntryState.STALE
    observed.waited[second] += state is EntryState.MISS


class Readers:
    """Processes that read, each its job; they begin together. Leaving the block ends them."""

    def __init__(self, jobs: Sequence[ReaderJob]) -> None:
        self._jobs = jobs
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
        """Return what they saw, all together.

        Raises:
            BenchError: one failed, or did not answer in time.
        """
        return Observed.together(cast("list[Observed]", replies(self._children, timeout_seconds)))


class Plant:
    """Servers and a worker, of the model's size. The cache, the broker and the loads' marks have a Redis each.

    Args:
        stack: ends them.
        model: its costs are not used.
        versions: receives those of the servers.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start.
    """

    def __init__(self, stack: ExitStack, model: Model, versions: dict[str, str]) -> None:
        self._stack = stack
        self._cache = stack.enter_context(RedisServer.start())
        self.broker: RedisServer = stack.enter_context(RedisServer.start())
        control = stack.enter_context(RedisServer.start())
        with redis.Redis.from_url(self._cache.url()) as client:
            versions["server"] = version = server_title(cast("dict[str, Any]", client.info("server")))
        self.servers = Servers(self._cache.url(), self.broker.url(), control.url(), "embedded", version, "bench")
        graph = stack.enter_context(ArcadeDbServer.start())
        self._environ = {
            **graph.environ, **self.servers.environ, "REFRESHER_QUERIES": real_queries.__name__,
            **worker_environment(model, self.servers),
        }  # fmt: skip
        self.worker: GuardedProcess = self._started()

    def start_worker(self) -> None:
        """Start another worker in the place of one that was killed.

        Raises:
            BenchError: it did not start.
        """
        self.worker = self._started()

    def lose_all(self) -> None:
        """Lose what is in the cache and in the queues."""
        with redis.Redis.from_url(self.servers.cache_url) as client:
            client.flushall()
        self.servers.drop_messages()

    def slow_down(self, times: float) -> None:
        """Let loads take so many times as long from now on; 1: as long as they should."""
        with self.servers.control() as control:
            control.set(real_queries.SLOWER, times)

    def loads(self) -> int:
        """Return how many loads have begun."""
        with self.servers.control() as control:
            return int(cast("int", control.llen(real_queries.MARKS)))

    def _started(self) -> GuardedProcess:
        name = f"refresher@{self.servers.namespace}"
        worker = self._stack.enter_context(celery_process(["-A", "refresher"], name, "INFO", self._environ))
        wait_until_ready(worker)
        return worker


def sleep_until(moment: float) -> None:
    """Sleep until a moment in monotonic seconds."""
    time.sleep(max(0.0, moment - time.monotonic()))
