"""All readers at the same moment: when the value expires, and when there is none."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import redis

from api_client.config.broker import miss_queue, refresh_queue
from benchmarks.apparatus.entries import PayloadKind, Seeder, Value, value_of
from benchmarks.apparatus.stampede import PROCESSES, Outcome, Queues, Size, Stampede
from benchmarks.apparatus.statistics import WARM_UP_ROUND
from benchmarks.apparatus.worker_proc import ReaderFactory, TaskReaders, ThreadReaders
from benchmarks.stampede.cacheback_job import QUEUE
from benchmarks.stampede.config import Config, Kind, Scale
from benchmarks.stampede.origin import Ledger, Recompute, value_at
from benchmarks.stampede.strategies.classic import XFetch
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.strategies.peers import Cacheback
from benchmarks.stampede.strategies.strategy import AsyncCache, SyncCache
from benchmarks.stampede.variants import BY_NAME, Variant

if TYPE_CHECKING:
    from rich.console import Console

_WRITE_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 0.3
_WORKER_QUIET_SECONDS: Final = 1.0  # from trigger to load, on a machine that does something else besides
_LASTING_SECONDS: Final = 3_600.0
_WARM_UP_READERS: Final = 80


class Moment(StrEnum):
    """State of the key that the readers meet."""

    EXPIRY = "at expiry"
    COLD = "cold key"


@dataclass(frozen=True, slots=True)
class SimultaneousRun:
    """One run of one variant: ``at`` is the common start (monotonic), ``recomputes`` what it caused."""

    variant: Variant
    moment: Moment
    round: int
    at: float
    outcome: Outcome
    recomputes: list[Recompute]


class VariantReaderFactory(ReaderFactory):
    """Opens a variant's strategy in a process of a stampede."""

    def __init__(self, variant: Variant, config: Config) -> None:
        self._strategy, self._name, self._config = variant.strategy.name, variant.name, config
        on_loop = variant.kind is Kind.ASYNCIO or Kind.THREADS not in variant.strategy.kinds
        self.on_threads: bool = not on_loop

    def threads(self) -> ThreadReaders:
        return _VariantReaders(BY_NAME[self._strategy](self._config, self._name).on_threads())

    async def tasks(self) -> TaskReaders:
        return _VariantReaders(await BY_NAME[self._strategy](self._config, self._name).on_loop())


class _VariantReaders:
    """A variant's cache, read on threads or as tasks."""

    def __init__(self, cache: SyncCache | AsyncCache) -> None:
        self.read: Any = cache.read
        self.close: Any = cache.close

    def is_right(self, number: int, value: Value) -> bool:
        return bool(value["number"] == number)


class _VariantLoads:
    """The recomputes of a variant, and the queues in which those of the workers lie."""

    def __init__(self, variant: Variant, config: Config, control: redis.Redis) -> None:
        names = miss_queue(config.servers.namespace), refresh_queue(config.servers.namespace), QUEUE
        self._variant, self._control, self._queues = variant, control, Queues(config.servers, *names)

    def ledger(self, number: int) -> Ledger:
        return Ledger(self._control, self._variant.name, number)

    def reset(self, number: int) -> None:
        self.ledger(number).reset()

    def count(self, number: int) -> int:
        return len(self.ledger(number).recomputes())

    def are_pending(self, number: int) -> bool:
        return self.ledger(number).running > 0 or self._queues.are_busy()


@dataclass(frozen=True, slots=True)
class _VariantSetup:
    """A variant's stampede, and the one reader who puts a value there before it comes."""

    variant: Variant
    stampede: Stampede
    primer: Stampede
    loads: _VariantLoads
    seeder: Seeder


def run_simultaneous(
    variants: Sequence[Variant], config: Config, scale: Scale, control: redis.Redis, console: Console, seed: int
) -> tuple[list[SimultaneousRun], bool]:
    """Let the stampedes run, variant by variant in an order drawn anew each round; the first round is not counted.

    Returns the runs, and whether Ctrl-C ended them early.
    """
    order, numbers = random.Random(seed), count(1)  # noqa: S311 - no secret
    runs: list[SimultaneousRun] = []
    with ExitStack() as stack:
        try:
            setups = [_set_up(variant, config, scale, control, stack) for variant in variants]
            for number in range(scale.rounds + 1):
                order.shuffle(setups)
                for setup in setups:
                    found = [_expiring(setup, next(numbers), number, config), _cold(setup, next(numbers), number)]
                    if number != WARM_UP_ROUND:
                        runs += found
                        console.print("\n".join(map(_report, found)), highlight=False)
        except KeyboardInterrupt:
            return runs, True
    return runs, False


def _set_up(variant: Variant, config: Config, scale: Scale, control: redis.Redis, stack: ExitStack) -> _VariantSetup:
    loads = _VariantLoads(variant, config, control)
    lasts = config if variant.strategy.reader_sets_expiry else without_expiry(config)
    quiet_seconds = _WORKER_QUIET_SECONDS if variant.strategy in (Ours, Cacheback) else _QUIET_SECONDS
    size, one = Size(scale.workers, scale.lead, PROCESSES, quiet_seconds), Size(1, 0.0, 1, quiet_seconds)
    stampede = stack.enter_context(Stampede(VariantReaderFactory(variant, lasts), loads, size))
    primer = stack.enter_context(Stampede(VariantReaderFactory(variant, config), loads, one))
    cache = stack.enter_context(config.servers.plain())
    ours = Ours(config, variant.name)
    seeder = Seeder(cache, config.servers.namespace, _value_of, QUERY, ours.params)
    return _VariantSetup(variant, stampede, primer, loads, seeder)


def without_expiry(config: Config) -> Config:
    """Return config under which what a stampede makes does not expire before the last of it has read."""
    return replace(config, expires_seconds=_LASTING_SECONDS)


def _value_of(number: int) -> Value:
    return value_at(number, time.monotonic(), value_of(PayloadKind.ROWS)(number))


def _expiring(setup: _VariantSetup, number: int, round_: int, config: Config) -> SimultaneousRun:
    """Get ready, put a value there, and read when it expires.

    Of ours it is the worker who says when that is: an entry is written as it would have, one TTL ago.
    """
    at = setup.stampede.prepare(number, readers=_readers_in(round_))
    if setup.variant.strategy is Ours:
        setup.seeder.put([number], soft_in_seconds=at - time.monotonic())
        return _run(setup, Moment.EXPIRY, number, round_, at)
    setup.primer.read_alone(number)
    made = setup.loads.ledger(number).recomputes()[-1].ended
    setup.loads.reset(number)
    made_at = made if made is not None else time.monotonic()
    at = max(at, made_at + config.expires_seconds + _WRITE_SECONDS - _lead_of(setup.variant, config))
    return _run(setup, Moment.EXPIRY, number, round_, at)


def _readers_in(round_: int) -> int | None:
    """Return how many read in this round; None: all. To warm up, a few are enough."""
    return _WARM_UP_READERS if round_ == WARM_UP_ROUND else None


def _lead_of(variant: Variant, config: Config) -> float:
    """Return how long before the expiry such readers come: XFetch is for who comes before, so δ earlier."""
    return config.delta_seconds + _WRITE_SECONDS if issubclass(variant.strategy, XFetch) else 0.0


def _cold(setup: _VariantSetup, number: int, round_: int) -> SimultaneousRun:
    return _run(setup, Moment.COLD, number, round_, setup.stampede.prepare(number, readers=_readers_in(round_)))


def _run(setup: _VariantSetup, moment: Moment, number: int, round_: int, at: float) -> SimultaneousRun:
    outcome = setup.stampede.release(at, number)
    return SimultaneousRun(setup.variant, moment, round_, at, outcome, setup.loads.ledger(number).recomputes())


def _report(run: SimultaneousRun) -> str:
    outcome = run.outcome
    return (
        f"round {run.round}  {run.variant.title}, {run.moment}: recomputes {outcome.recomputes:,}, "
        f"errors {outcome.errors.total():,}, p50 {outcome.percentile_ms(50):,.1f} ms, "
        f"p99 {outcome.percentile_ms(99):,.1f} ms"
    )
