"""Stampedes on a key that is fresh, expires just then, or is not there, in four processes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from itertools import count
from typing import Final, TypeAlias

import redis
import redis.asyncio

from api_client import AsyncCacheClient, CacheClient
from api_client.config.broker import miss_queue, refresh_queue
from benchmarks.apparatus.entries import TTL_SECONDS, PayloadKind, Seeder, Value, ValueOf, params_of, value_of
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.stampede import PROCESSES, Outcome, Queues, Size, Stampede
from benchmarks.apparatus.statistics import WARM_UP_ROUND, median
from benchmarks.apparatus.worker_proc import ReaderFactory, TaskReaders, ThreadReaders
from benchmarks.hits.group import Group, Setting
from benchmarks.hits.queries import LOAD_SECONDS, QUERY, marks_of
from benchmarks.reports.results import Figure, Must, Result, Target

EARLY_SECONDS: Final = 1.0
NOTHING: Final = 0
"""The number under which nothing is read."""
NOTHING_SECONDS: Final = 50e-6


class Kind(StrEnum):
    """Kind of reader."""

    THREADS = "threads"
    ASYNCIO = "asyncio"
    CASHEWS = "cashews"


class HitsReaderFactory(ReaderFactory):
    """Makes readers of a kind."""

    def __init__(self, servers: Servers, kind: Kind, payload: PayloadKind) -> None:
        self._place, self._kind, self._payload = servers, kind, payload
        self.on_threads: bool = kind is Kind.THREADS

    def threads(self) -> ThreadReaders:
        return _OurThreads(self._place, value_of(self._payload))

    async def tasks(self) -> TaskReaders:
        if self._kind is Kind.CASHEWS:
            return _CashewsTasks(self._place, value_of(self._payload))
        return _OurTasks(self._place, value_of(self._payload))


class _Readers:
    def __init__(self, value_of: ValueOf) -> None:
        self._value_of = value_of

    def is_right(self, number: int, value: Value) -> bool:
        return bool(value == self._value_of(number)) if number != NOTHING else value is None


class _OurThreads(_Readers):
    """`CacheClient`, with default settings."""

    def __init__(self, servers: Servers, value_of: ValueOf) -> None:
        super().__init__(value_of)
        self._client = CacheClient(servers.settings())

    def read(self, number: int) -> Value:
        return self._client.get(QUERY, params_of(number)) if number != NOTHING else nothing()

    def close(self) -> None:
        self._client.close()


def nothing() -> None:
    """Spin for as long as a read's own Python takes: the cost of the threads alone."""
    ends = time.perf_counter() + NOTHING_SECONDS
    while time.perf_counter() < ends:
        pass


class _OurTasks(_Readers):
    """`AsyncCacheClient`, with default settings."""

    def __init__(self, servers: Servers, value_of: ValueOf) -> None:
        super().__init__(value_of)
        self._client = AsyncCacheClient(servers.settings())

    async def read(self, number: int) -> Value:
        return await self._client.get(QUERY, params_of(number))

    async def close(self) -> None:
        await self._client.close()


class _CashewsTasks(_Readers):
    """``@cache.early`` of cashews: who finds the entry past its early expiry computes it in its own process."""

    def __init__(self, servers: Servers, value_of: ValueOf) -> None:
        super().__init__(value_of)
        from cashews import Cache

        self._control = redis.asyncio.Redis.from_url(servers.control_url)
        self._cache = Cache()
        self._cache.setup(servers.cache_url)

        async def stampede(person_id: int) -> Value:
            await self._control.rpush(marks_of(person_id), "cashews")
            await asyncio.sleep(LOAD_SECONDS)
            return value_of(person_id)

        remembered = self._cache.early(
            ttl=TTL_SECONDS,
            early_ttl=EARLY_SECONDS,
            key="herd:{person_id}",
            prefix=f"{servers.namespace}:cashews-herd",
        )
        self._read: Callable[[int], Awaitable[Value]] = remembered(stampede)

    async def read(self, number: int) -> Value:
        return await self._read(number)

    async def close(self) -> None:
        await self._cache.close()
        await self._control.aclose()


_NONE: Final = Target(Must.BE, 0)
_ONE: Final = Target(Must.BE, 1)
# Never the same: what one group has loaded would be no cold key for the next one.
_THREADS_A_PROCESS: Final = 64
_FIRST_NUMBERS: Final = {Kind.THREADS: 1_000, Kind.ASYNCIO: 2_000_000}


class Case(StrEnum):
    """State of the key that the readers meet."""

    NOTHING = f"no cache, {NOTHING_SECONDS * 1e6:g} µs of Python"
    FRESH = "fresh key"
    EXPIRING = "at soft expiry"
    COLD = "cold key"
    CASHEWS = "cashews early, at early expiry"


Outcomes: TypeAlias = dict[Case, list[Outcome]]


class MarkedLoads:
    """The loads of `stampede.queries`, by the marks that they leave."""

    def __init__(self, servers: Servers) -> None:
        self._queues = Queues(servers, miss_queue(servers.namespace), refresh_queue(servers.namespace))
        self._control = redis.Redis.from_url(servers.control_url)

    def reset(self, number: int) -> None:
        self._control.delete(marks_of(number))

    def count(self, number: int) -> int:
        return int(self._control.llen(marks_of(number)))

    def are_pending(self, number: int) -> bool:
        return self._queues.are_busy()


@dataclass(frozen=True, slots=True)
class StampedeGroup(Group):
    """The same load on a fresh, an expiring and a missing entry in turn; as tasks, cashews early beside it."""

    kind: Kind = Kind.THREADS

    def run(self, setting: Setting) -> Result:
        """Measure, with a real Celery worker and a load of 200 ms."""
        outcomes = _outcomes(self.kind, setting)
        figures = [*self._expiring(outcomes), *self._cold(outcomes)]
        for case, found in outcomes.items():
            figures += self._times(case, found)
        return Result(self.name, self.title, figures=tuple(figures))

    def _expiring(self, outcomes: Outcomes) -> Iterator[Figure]:
        expiring = outcomes[Case.EXPIRING]
        yield from self._promises(Case.EXPIRING, expiring)
        yield Figure(
            f"{Case.EXPIRING}: p99 against the same load on a fresh key",
            _ratios(_p99(expiring), _p99(outcomes[Case.FRESH])), target=Target(Must.AT_MOST, 1.2),
        )  # fmt: skip
        if self.kind is not Kind.ASYNCIO:
            return
        peers = outcomes[Case.CASHEWS]
        yield Figure(
            f"{Case.EXPIRING}: p99 against cashews early", _ratios(_p99(expiring), _p99(peers)),
            target=Target(Must.AT_MOST, 1), note="" if peers else "not installed: cashews",
        )  # fmt: skip

    def _cold(self, outcomes: Outcomes) -> Iterator[Figure]:
        cold, load_ms = outcomes[Case.COLD], LOAD_SECONDS * 1000
        yield from self._promises(Case.COLD, cold)
        most_ms = load_ms + 2 * median(_p99(outcomes[Case.FRESH]))
        yield Figure(
            f"{Case.COLD}: p99, of which the load takes {load_ms:g} ms", _p99(cold), "ms",
            Target(Must.AT_MOST, most_ms), "allowed: the load, and 2 × the p99 on a fresh key",
        )  # fmt: skip

    def _promises(
        self, case: Case, found: Sequence[Outcome], recomputes: Target | None = _ONE, errors: Target | None = _NONE
    ) -> Iterator[Figure]:
        loads = tuple(float(outcome.recomputes) for outcome in found)
        yield Figure(f"{case}: recomputes", loads, "", recomputes, is_worst=True)
        failed = tuple(float(outcome.errors.total()) for outcome in found)
        kinds = sum((outcome.errors for outcome in found), Counter[str]())
        note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
        yield Figure(f"{case}: errors", failed, "", errors, note, is_worst=True)

    def _times(self, case: Case, found: Sequence[Outcome]) -> Iterator[Figure]:
        if not found:
            return
        for percent in (50, 99):
            took = tuple(outcome.percentile_ms(percent) for outcome in found)
            yield Figure(f"{case}: p{percent}", took, "ms")
        from_start = tuple(outcome.percentile_ms(99, from_start=True) for outcome in found)
        yield Figure(f"{case}: p99 from the common start", from_start, "ms")
        if case in (Case.FRESH, Case.CASHEWS):
            yield from self._promises(case, found, recomputes=None, errors=None)


def _outcomes(kind: Kind, setting: Setting) -> Outcomes:
    servers, options = setting.servers, setting.options
    outcomes: Outcomes = {case: [] for case in Case}
    with ExitStack() as stack:
        client = stack.enter_context(servers.plain())
        seeder = Seeder(client, servers.namespace, setting.value_of, QUERY)

        readers = options.scale.readers
        if kind is Kind.THREADS:
            readers = min(readers, _THREADS_A_PROCESS * PROCESSES)
        loads, size = MarkedLoads(servers), Size(readers, options.scale.lead_seconds)

        def stampede(of: Kind) -> Stampede:
            factory = HitsReaderFactory(servers, of, options.payload)
            return stack.enter_context(Stampede(factory, loads, size, uvloop=options.uvloop))

        ours = stampede(kind)
        peers = stampede(Kind.CASHEWS) if kind is Kind.ASYNCIO and find_spec("cashews") is not None else None
        servers.drop_messages()
        setting.start_worker()  # after them: the processes of the stampede come up meanwhile
        numbers = count(_FIRST_NUMBERS[kind])
        _warm_up(ours, seeder, numbers)
        for number in range(options.scale.herd_rounds + 1):
            found = dict(_round(ours, peers, seeder, numbers))
            if kind is Kind.THREADS:
                found[Case.NOTHING] = ours.release(ours.prepare(NOTHING), NOTHING)
            if number != WARM_UP_ROUND:
                for case, outcome in found.items():
                    outcomes[case].append(outcome)
    return outcomes


def _warm_up(ours: Stampede, seeder: Seeder, numbers: Iterator[int]) -> None:
    """Let each process ask for a refresh and wait for a value once: what it imports and connects to, it does once."""
    for process in range(PROCESSES):
        stale, cold = next(numbers), next(numbers)
        seeder.put([stale], soft_in_seconds=-1.0)
        for number in (stale, cold):
            ours.read_alone(number, process=process)


def _round(
    ours: Stampede, peers: Stampede | None, seeder: Seeder, numbers: Iterator[int]
) -> Iterator[tuple[Case, Outcome]]:
    number = next(numbers)
    seeder.put([number])
    yield Case.FRESH, ours.release(ours.prepare(number), number)
    number = next(numbers)
    at = ours.prepare(number)
    seeder.put([number], soft_in_seconds=at - time.monotonic())  # it expires at the very start
    yield Case.EXPIRING, ours.release(at, number)
    number = next(numbers)
    yield Case.COLD, ours.release(ours.prepare(number), number)
    if peers is not None:
        number = next(numbers)
        peers.read_alone(number)
        early_at = time.monotonic() + EARLY_SECONDS
        yield Case.CASHEWS, peers.release(max(peers.prepare(number), early_at), number)


def _p99(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    return tuple(outcome.percentile_ms(99) for outcome in outcomes)


def _ratios(ours: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    return tuple(own / other for own, other in zip(ours, others, strict=True)) if others else ()
