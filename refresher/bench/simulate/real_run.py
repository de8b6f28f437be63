"""The real run of a validation: Redis, a Celery worker, processes of readers; and what it measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean
from typing import Final, cast

import numpy as np
import redis

from api_client.entry import Header, decode_header
from api_client.keys import make_key
from refresher.bench.errors import BenchError
from refresher.bench.herd.worker import refresh_worker
from refresher.bench.places import Place, place
from refresher.bench.processes import Child, end_children, start_child
from refresher.bench.simulate import real_queries
from refresher.bench.simulate.options import Mode
from refresher.bench.simulate.popularity import rates_and_degrees
from refresher.bench.simulate.real_readers import Course, Seen, params_of, run_readers
from refresher.bench.simulate.world import DEFAULT_COSTS, Costs, World
from refresher.embedded import ArcadeDbServer

_ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Real:
    """What a real run came to, in the time that counts; ``costs`` are what its machinery took, as it measured."""

    reads: int
    stale: int
    waited: int
    errors: int
    late: int
    loads: int
    costs: Costs

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
        counts_from = begins + warm_up
        return Real(
            reads=sum(one.reads for one in seen),
            stale=sum(one.stale for one in seen),
            waited=sum(one.waited for one in seen),
            errors=sum(one.errors for one in seen),
            late=sum(one.late for one in seen),
            loads=_loads(here, counts_from, counts_from + world.seconds),
            costs=_costs(world, _headers(world, here)),
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


def _loads(here: Place, begins: float, ends: float) -> int:
    with redis.Redis.from_url(here.control_url) as control:
        marks = cast("list[bytes]", control.lrange(real_queries.MARKS, 0, -1))
    return sum(begins <= float(mark) < ends for mark in marks)


def _headers(world: World, here: Place) -> list[Header]:
    """Return the headers of the entries that are there at the end."""
    degrees = rates_and_degrees(
        world.popularity, world.keys, world.reads_per_second, zipf_exponent=world.zipf_exponent, seed=world.seed
    )[1]
    keys = [make_key(here.namespace, real_queries.QUERY, params_of(one, degrees), 1) for one in range(world.keys)]
    with here.plain() as client:
        found = cast("list[bytes | None]", client.mget([key.entry for key in keys]))
    return [decode_header(raw, key.digest) for raw, key in zip(found, keys, strict=True) if raw is not None]


def _costs(world: World, headers: Sequence[Header]) -> Costs:
    """Return what the machinery took, from the δ and run of each entry; medians, since some had to queue."""
    if not headers:
        raise BenchError("no entry was left to measure the worker by")
    return Costs(
        claim=DEFAULT_COSTS.claim,
        pickup=mean(header.delta.mean - header.run.mean for header in headers),
        overhead=mean(header.run.mean for header in headers) - world.load,
        turnaround=DEFAULT_COSTS.turnaround,
        idle_message=DEFAULT_COSTS.idle_message,
    )
