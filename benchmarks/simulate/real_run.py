"""The real run of a validation: Redis, a Celery worker, processes of readers; and what it measured."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from statistics import mean
from typing import Final, cast

import numpy as np
import redis

from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import make_key
from benchmarks.errors import BenchError
from benchmarks.herd.worker import refresh_worker
from benchmarks.places import Place, place
from benchmarks.processes import Child, end_children, start_child
from benchmarks.simulate import real_queries
from benchmarks.simulate.options import Mode
from benchmarks.simulate.popularity import rates_and_degrees
from benchmarks.simulate.real_readers import Course, Seen, params_of, run_readers
from benchmarks.simulate.world import DEFAULT_COSTS, Costs, World
from refresher.embedded import ArcadeDbServer

_ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Real:
    """What a real run came to, in the time that counts; ``costs`` are what its machinery took, as it measured.

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


def real_run(world: World, warm_up: float, servers: dict[str, str]) -> Real:
    """Run the world for real, which it has to be small enough for; the warm-up does not count.

    Args:
        world: what to run; its costs are not used, but measured.
        warm_up: seconds before the span.
        servers: is told the versions of the servers.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start, or the readers failed.
    """
    with ExitStack() as stack:
        here = stack.enter_context(place(None))
        servers["redis-server"] = here.version
        graph = stack.enter_context(ArcadeDbServer.start())
        stack.enter_context(refresh_worker(here, graph, real_queries.__name__, _environment(world, here)))
        children: list[Child] = []
        stack.callback(end_children, children)
        children += [start_child(run_readers, course) for course in _courses(world, here, warm_up)]
        _answers(children, _ANSWER_SECONDS)
        begins = time.monotonic() + _AHEAD_SECONDS
        for child in children:
            child.pipe.send(begins)
        told = _answers(children, _ANSWER_SECONDS + warm_up + world.seconds)
        seen = [one for answer in told for one in cast("list[Seen]", answer)]
        counts_from, ends = begins + warm_up, begins + warm_up + world.seconds
        marks = _marks(here)
        pickups = pickups_by_second(world, [each for one in seen for each in one.asked], marks, begins, ends)
        return Real(
            reads=sum(one.reads for one in seen),
            stale=sum(one.stale for one in seen),
            waited=sum(one.waited for one in seen),
            errors=sum(one.errors for one in seen),
            late=sum(one.late for one in seen),
            loads=sum(counts_from <= at < ends for _, at in marks),
            costs=_costs(world, _headers(world, here), pickups),
            pickups=pickups,
        )


def _environment(world: World, here: Place) -> dict[str, str]:
    mode = {} if world.mode is Mode.NONE else {"TSPR_REFRESH_MODE": world.mode.value}
    return mode | {
        real_queries.CONTROL_URL: here.control_url,
        real_queries.LOAD: repr(world.load),
        real_queries.TTL: repr(world.ttl),
        real_queries.GRACE: repr(world.grace),
        "CACHE_XFETCH_ENABLED": "false" if world.mode is Mode.NONE else "true",
        "CACHE_XFETCH_BETA": repr(world.beta),
        "CACHE_XFETCH_MIN_TTL": repr(world.min_ttl),
        "CACHE_XFETCH_WORKERS": str(world.workers),
    }


def _courses(world: World, here: Place, warm_up: float) -> list[Course]:
    rates, degrees = rates_and_degrees(
        world.popularity, world.keys, world.reads_per_second, zipf_exponent=world.zipf_exponent, seed=world.seed
    )
    own = rates.astype(np.float64) / world.readers
    return [
        Course(here, own, degrees, warm_up, float(world.seconds), seed=world.seed * world.readers + number)
        for number in range(world.readers)
    ]


def _answers(children: Sequence[Child], patience_seconds: float) -> list[object]:
    answers = []
    for _, pipe in children:
        if not pipe.poll(patience_seconds):
            raise BenchError(f"a process of readers gave no answer within {patience_seconds:g} s")
        try:
            answers.append(pipe.recv())
        except EOFError:
            raise BenchError("a process of readers ended before its time") from None
    return answers


def _marks(here: Place) -> list[tuple[int, float]]:
    """Return the loads, in their order: number of the key, and when it began."""
    with redis.Redis.from_url(here.control_url) as control:
        marks = [mark.split() for mark in cast("list[bytes]", control.lrange(real_queries.MARKS, 0, -1))]
    return sorted(((int(number), float(at)) for number, at in marks), key=itemgetter(1))


def pickups_by_second(
    world: World, asked: Sequence[tuple[int, float]], marks: Sequence[tuple[int, float]], begins: float, ends: float
) -> tuple[float, ...]:
    """Return what passed from the first read that asked to the load, on average, for each second in which one asked.

    A read that asked while the load before was going on, in another process, was refused, and does not count. Seconds
    in which none asked are like the one before.

    Raises:
        BenchError: no load followed on a read.
    """
    by_key: dict[int, list[float]] = defaultdict(list)
    for number, at in sorted(asked, key=itemgetter(1)):
        by_key[number].append(at)
    found: dict[int, list[float]] = defaultdict(list)
    ended: dict[int, float] = {}
    for number, at in marks:
        times = by_key[number]
        first = bisect_left(times, ended.get(number, 0.0))
        if first < len(times) and times[first] <= at and begins <= times[first] < ends:
            found[int(times[first] - begins)].append(max(0.0, at - times[first] - DEFAULT_COSTS.claim))
        ended[number] = at + world.load
    if not found:
        raise BenchError("no load followed on a read")
    pickups = [mean(found[min(found)])]
    for second in range(int(ends - begins)):
        pickups.append(mean(found[second]) if second in found else pickups[-1])
    return tuple(pickups[1:])


def _headers(world: World, here: Place) -> list[Header]:
    """Return the headers of the entries that are there at the end."""
    degrees = rates_and_degrees(
        world.popularity, world.keys, world.reads_per_second, zipf_exponent=world.zipf_exponent, seed=world.seed
    )[1]
    keys = [make_key(here.namespace, real_queries.QUERY, params_of(one, degrees), 1) for one in range(world.keys)]
    with here.plain() as client:
        found = cast("list[bytes | None]", client.mget([key.entry for key in keys]))
    return [decode_header(raw, key.digest) for raw, key in zip(found, keys, strict=True) if raw is not None]


def _costs(world: World, headers: Sequence[Header], pickups: Sequence[float]) -> Costs:
    """Return what the machinery took on average."""
    if not headers:
        raise BenchError("no entry was left to measure the worker by")
    return Costs(
        claim=DEFAULT_COSTS.claim,
        pickup=mean(pickups),
        overhead=mean(header.run.mean for header in headers) - world.load,
        turnaround=DEFAULT_COSTS.turnaround,
        idle_message=DEFAULT_COSTS.idle_message,
    )
