"""Real run of a validation: Redis, a Celery worker, processes of readers whose threads read at random moments."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from operator import itemgetter
from statistics import mean
from typing import Any, Final, cast

import numpy as np
import redis
from numpy.typing import NDArray

from api_client import CacheClient, CacheError, Entry, EntryState, RefreshState
from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import make_key
from benchmarks.apparatus.processes import Child, end_children, refresh_worker, replies, start_child
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.simulate import real_queries
from benchmarks.simulate.model import DEFAULT_COSTS, Costs, Model, rates_and_degrees
from benchmarks.simulate.options import Mode
from benchmarks.simulate.real_queries import QUERY
from refresher.embedded import ArcadeDbServer

READY: Final = "ready"
THREADS: Final = 8
"""A thread that waits for a value reads late for as long; with several, few reads are late."""


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """Task of one process. ``rates``: reads/s of each key, of this process alone; times in seconds."""

    servers: Servers
    rates: NDArray[np.float64]
    degrees: NDArray[np.int32]
    warm_up: float
    seconds: float
    seed: int


@dataclass(slots=True)
class Observed:
    """Counts of one thread after the warm-up. ``late`` are reads that began 50 ms after their moment or later.

    ``triggered`` is of the whole time: which keys it triggered, and when (monotonic seconds).
    """

    reads: int = 0
    stale: int = 0
    waited: int = 0
    errors: int = 0
    late: int = 0
    triggered: list[tuple[int, float]] = field(default_factory=list)


_LATE_SECONDS: Final = 0.05


def run_readers(pipe: Connection, job: ReaderJob) -> None:
    """Read as one process of readers, once."""
    with CacheClient(job.servers.settings(redis_timeout_seconds=5.0)) as client:
        pipe.send(READY)
        begins = float(pipe.recv())
        observed = [Observed() for _ in range(THREADS)]
        threads = [
            threading.Thread(target=_read, args=(client, job, begins, job.seed * THREADS + number, one))
            for number, one in enumerate(observed)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send(observed)


def params_of(number: int, degrees: NDArray[np.int32]) -> dict[str, object]:
    """Return the params of a key."""
    return {"number": number, "degree": int(degrees[number])}


def _read(client: CacheClient, job: ReaderJob, begins: float, seed: int, observed: Observed) -> None:
    rng = np.random.default_rng(seed)
    summed = np.cumsum(job.rates)
    pause = THREADS / float(summed[-1])
    at, ends = begins, begins + job.warm_up + job.seconds
    while (at := at + float(rng.exponential(pause))) < ends:
        number = min(int(np.searchsorted(summed, rng.random() * summed[-1], side="right")), len(summed) - 1)
        time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic()
        entry = _entry(client, params_of(number, job.degrees))
        if entry is not None and (entry.refresh is RefreshState.TRIGGERED or entry.state is EntryState.MISS):
            observed.triggered.append((number, began))
        if at >= begins + job.warm_up:
            _record(observed, entry, began - at)


def _entry(client: CacheClient, params: dict[str, object]) -> Entry[Any] | None:
    try:
        return client.get_entry(QUERY, params)
    except CacheError:
        return None


def _record(observed: Observed, entry: Entry[Any] | None, late: float) -> None:
    observed.reads += 1
    observed.late += late >= _LATE_SECONDS
    observed.errors += entry is None
    if entry is not None:
        observed.stale += entry.state is EntryState.STALE
        observed.waited += entry.state is EntryState.MISS


_ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Real:
    """Outcome of a real run, in the time that counts; ``costs`` are the measured times of its machinery.

    ``pickups`` are the seconds from claim to acquire, for each second from the begin of the warm-up on.
    """

    reads: int
    stale: int
    waited: int
    errors: int
    late: int
    loads: int
    costs: Costs
    pickups: tuple[float, ...]

    @property
    def stale_share(self) -> float:
        """The share of reads that got a value past its soft expiry."""
        return self.stale / self.reads


def real_run(model: Model, warm_up: float, servers: dict[str, str]) -> Real:
    """Run the model for real, which it has to be small enough for; the warm-up does not count.

    Args:
        model: what to run; its costs are not used, but measured.
        warm_up: seconds before the span.
        servers: receives the versions of the servers.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start, or the readers failed.
    """
    with ExitStack() as stack:
        here = stack.enter_context(running_servers(None))
        servers["server"] = here.version
        graph = stack.enter_context(ArcadeDbServer.start())
        stack.enter_context(refresh_worker(here, graph.environ, real_queries.__name__, worker_environment(model, here)))
        children: list[Child] = []
        stack.callback(end_children, children)
        children += [start_child(run_readers, job) for job in _jobs(model, here, warm_up)]
        replies(children, _ANSWER_SECONDS)
        begins = time.monotonic() + _AHEAD_SECONDS
        for child in children:
            child.pipe.send(begins)
        received = replies(children, _ANSWER_SECONDS + warm_up + model.seconds)
        observed = [one for answer in received for one in cast("list[Observed]", answer)]
        counts_from, ends = begins + warm_up, begins + warm_up + model.seconds
        marks = _marks(here)
        pickups = pickups_by_second(model, [each for one in observed for each in one.triggered], marks, begins, ends)
        return Real(
            reads=sum(one.reads for one in observed),
            stale=sum(one.stale for one in observed),
            waited=sum(one.waited for one in observed),
            errors=sum(one.errors for one in observed),
            late=sum(one.late for one in observed),
            loads=sum(counts_from <= at < ends for _, at in marks),
            costs=_costs(model, _headers(model, here), pickups),
            pickups=pickups,
        )


def worker_environment(model: Model, here: Servers) -> dict[str, str]:
    """Return the environment variables of the model's worker and its query."""
    mode = {} if model.mode is Mode.NONE else {"TSPR_REFRESH_MODE": model.mode.value}
    return mode | {
        real_queries.CONTROL_URL: here.control_url,
        real_queries.LOAD: repr(model.load),
        real_queries.TTL: repr(model.ttl),
        real_queries.GRACE: repr(model.grace),
        "CACHE_XFETCH_ENABLED": "false" if model.mode is Mode.NONE else "true",
        "CACHE_XFETCH_BETA": repr(model.beta),
        "CACHE_XFETCH_MIN_TTL": repr(model.min_ttl),
        "CACHE_XFETCH_WORKERS": str(model.workers),
    }


def _jobs(model: Model, here: Servers, warm_up: float) -> list[ReaderJob]:
    rates, degrees = rates_and_degrees(
        model.popularity, model.keys, model.reads_per_second, zipf_exponent=model.zipf_exponent, seed=model.seed
    )
    own = rates.astype(np.float64) / model.readers
    return [
        ReaderJob(here, own, degrees, warm_up, float(model.seconds), seed=model.seed * model.readers + number)
        for number in range(model.readers)
    ]


def _marks(here: Servers) -> list[tuple[int, float]]:
    """Return the loads, in their order: number of the key, and when it began."""
    with redis.Redis.from_url(here.control_url) as control:
        marks = [mark.split() for mark in cast("list[bytes]", control.lrange(real_queries.MARKS, 0, -1))]
    return sorted(((int(number), float(at)) for number, at in marks), key=itemgetter(1))


def pickups_by_second(
    model: Model, triggered: Sequence[tuple[int, float]], marks: Sequence[tuple[int, float]], begins: float, ends: float
) -> tuple[float, ...]:
    """Return what passed from the first read that triggered to the load, on average, for each second in which one did.

    A read that triggered while the load before went on, in another process, was refused, and does not count. Seconds
    in which none did are like the one before.

    Raises:
        BenchError: no load followed on a read.
    """
    by_key: dict[int, list[float]] = defaultdict(list)
    for number, at in sorted(triggered, key=itemgetter(1)):
        by_key[number].append(at)
    found: dict[int, list[float]] = defaultdict(list)
    ended: dict[int, float] = {}
    for number, at in marks:
        times = by_key[number]
        first = bisect_left(times, ended.get(number, 0.0))
        if first < len(times) and times[first] <= at and begins <= times[first] < ends:
            found[int(times[first] - begins)].append(max(0.0, at - times[first] - DEFAULT_COSTS.claim))
        ended[number] = at + model.load
    if not found:
        raise BenchError("no load followed on a read")
    pickups = [mean(found[min(found)])]
    for second in range(int(ends - begins)):
        pickups.append(mean(found[second]) if second in found else pickups[-1])
    return tuple(pickups[1:])


def _headers(model: Model, here: Servers) -> list[Header]:
    """Return the headers of the entries that are there at the end."""
    degrees = rates_and_degrees(
        model.popularity, model.keys, model.reads_per_second, zipf_exponent=model.zipf_exponent, seed=model.seed
    )[1]
    keys = [make_key(here.namespace, real_queries.QUERY, params_of(one, degrees), 1) for one in range(model.keys)]
    with here.plain() as client:
        found = cast("list[bytes | None]", client.mget([key.entry for key in keys]))
    return [decode_header(raw, key.digest) for raw, key in zip(found, keys, strict=True) if raw is not None]


def _costs(model: Model, headers: Sequence[Header], pickups: Sequence[float]) -> Costs:
    """Return what the machinery took on average."""
    if not headers:
        raise BenchError("no entry was left to measure the worker by")
    return Costs(
        claim=DEFAULT_COSTS.claim,
        pickup=mean(pickups),
        overhead=mean(header.run.mean for header in headers) - model.load,
        turnaround=DEFAULT_COSTS.turnaround,
        idle_message=DEFAULT_COSTS.idle_message,
    )
