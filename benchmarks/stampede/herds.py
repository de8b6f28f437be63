"""All readers at the same moment: when the value expires, and when there is none."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Final

import redis

from api_client.config.broker import miss_queue, refresh_queue
from benchmarks.herd.herd import PROCESSES, Herd, Outcome, Size
from benchmarks.herd.loads import Queues
from benchmarks.herd.readers import Maker, TaskReaders, ThreadReaders
from benchmarks.payloads import PayloadKind, Value, value_of
from benchmarks.seeding import Seeder
from benchmarks.stampede.cacheback_job import QUEUE
from benchmarks.stampede.lanes import Lane
from benchmarks.stampede.options import Scale
from benchmarks.stampede.origin import Ledger, Recompute, value_at
from benchmarks.stampede.strategies import BY_NAME
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.strategies.strategy import AsyncCache, SyncCache
from benchmarks.stampede.strategies.xfetch import XFetch
from benchmarks.stampede.terms import Kind, Terms
from benchmarks.statistics import WARM_UP_ROUND

if TYPE_CHECKING:
    from rich.console import Console

_WRITE_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 0.3
_LASTING_SECONDS: Final = 3_600.0
_WARM_UP_READERS: Final = 80


class Moment(StrEnum):
    """What the readers find."""

    EXPIRY = "at expiry"
    COLD = "cold key"


@dataclass(frozen=True, slots=True)
class HerdRun:
    """One run of one lane: ``at`` is the common start (monotonic), ``recomputes`` what it caused."""

    lane: Lane
    moment: Moment
    round: int
    at: float
    outcome: Outcome
    recomputes: list[Recompute]


class LaneMaker(Maker):
    """Opens a lane's strategy in a process of a herd."""

    def __init__(self, lane: Lane, terms: Terms) -> None:
        self._strategy, self._name, self._terms = lane.strategy.name, lane.name, terms
        on_loop = lane.kind is Kind.ASYNCIO or Kind.THREADS not in lane.strategy.kinds
        self.on_threads: bool = not on_loop

    def threads(self) -> ThreadReaders:
        """Open it for threads."""
        return _LaneThreads(BY_NAME[self._strategy](self._terms, self._name).on_threads())

    async def tasks(self) -> TaskReaders:
        """Open it on the loop."""
        return _LaneTasks(await BY_NAME[self._strategy](self._terms, self._name).on_loop())


class _LaneThreads:
    def __init__(self, cache: SyncCache) -> None:
        self.read, self.close = cache.read, cache.close

    def is_right(self, number: int, value: Value) -> bool:
        return bool(value["number"] == number)


class _LaneTasks:
    def __init__(self, cache: AsyncCache) -> None:
        self.read, self.close = cache.read, cache.close

    def is_right(self, number: int, value: Value) -> bool:
        return bool(value["number"] == number)


class _LaneLoads:
    """The recomputes of a lane, and the queues in which those of the workers lie."""

    def __init__(self, lane: Lane, terms: Terms, control: redis.Redis) -> None:
        names = miss_queue(terms.place.namespace), refresh_queue(terms.place.namespace), QUEUE
        self._lane, self._control, self._queues = lane, control, Queues(terms.place, *names)

    def ledger(self, number: int) -> Ledger:
        return Ledger(self._control, self._lane.name, number)

    def forget(self, number: int) -> None:
        self.ledger(number).forget()

    def count(self, number: int) -> int:
        return len(self.ledger(number).recomputes())

    def are_due(self, number: int) -> bool:
        return self.ledger(number).running > 0 or self._queues.are_busy()


@dataclass(frozen=True, slots=True)
class _Stand:
    """A lane's herd, and the one reader who puts a value there before it comes."""

    lane: Lane
    herd: Herd
    primer: Herd
    loads: _LaneLoads
    seeder: Seeder


def run_herds(
    lanes: Sequence[Lane], terms: Terms, scale: Scale, control: redis.Redis, console: Console, seed: int
) -> tuple[list[HerdRun], bool]:
    """Let the herds run, lane by lane in an order drawn anew each round; the first round is not counted.

    Returns the runs, and whether Ctrl-C ended them early.
    """
    order, numbers = random.Random(seed), count(1)  # noqa: S311 - no secret
    runs: list[HerdRun] = []
    with ExitStack() as stack:
        try:
            stands = [_stand(lane, terms, scale, control, stack) for lane in lanes]
            for number in range(scale.rounds + 1):
                order.shuffle(stands)
                for stand in stands:
                    found = [_expiring(stand, next(numbers), number, terms), _cold(stand, next(numbers), number)]
                    if number != WARM_UP_ROUND:
                        runs += found
                        console.print("\n".join(map(_report, found)), highlight=False)
        except KeyboardInterrupt:
            return runs, True
    return runs, False


def _stand(lane: Lane, terms: Terms, scale: Scale, control: redis.Redis, stack: ExitStack) -> _Stand:
    loads, lasts = _LaneLoads(lane, terms, control), terms if lane.strategy.reader_tells_expiry else lasting(terms)
    size = Size(scale.workers, scale.lead, PROCESSES, _QUIET_SECONDS)
    herd = stack.enter_context(Herd(LaneMaker(lane, lasts), loads, size))
    primer = stack.enter_context(Herd(LaneMaker(lane, terms), loads, Size(1, 0.0, 1, _QUIET_SECONDS)))
    cache = stack.enter_context(terms.place.plain())
    ours = Ours(terms, lane.name)
    seeder = Seeder(cache, terms.place.namespace, _value_of, QUERY, ours.params)
    return _Stand(lane, herd, primer, loads, seeder)


def lasting(terms: Terms) -> Terms:
    """Return terms under which what a herd makes does not expire before the last of it has read."""
    return replace(terms, expires_seconds=_LASTING_SECONDS)


def _value_of(number: int) -> Value:
    return value_at(number, time.monotonic(), value_of(PayloadKind.ROWS)(number))


def _expiring(stand: _Stand, number: int, round_: int, terms: Terms) -> HerdRun:
    """Get ready, put a value there, and read when it expires.

    Of ours it is the worker who says when that is: an entry is written as it would have, one TTL ago.
    """
    at = stand.herd.aim(number, readers=_readers_in(round_))
    if stand.lane.strategy is Ours:
        stand.seeder.put([number], soft_in_seconds=at - time.monotonic())
        return _run(stand, Moment.EXPIRY, number, round_, at)
    stand.primer.read_alone(number)
    made = stand.loads.ledger(number).recomputes()[-1].ended
    stand.loads.forget(number)
    made_at = made if made is not None else time.monotonic()
    at = max(at, made_at + terms.expires_seconds + _WRITE_SECONDS - _lead_of(stand.lane, terms))
    return _run(stand, Moment.EXPIRY, number, round_, at)


def _readers_in(round_: int) -> int | None:
    """Return how many read in this round; None: all. To warm up, a few are enough."""
    return _WARM_UP_READERS if round_ == WARM_UP_ROUND else None


def _lead_of(lane: Lane, terms: Terms) -> float:
    """Return how long before the expiry such readers come: XFetch is for who comes before, so δ earlier."""
    return terms.delta_seconds + _WRITE_SECONDS if issubclass(lane.strategy, XFetch) else 0.0


def _cold(stand: _Stand, number: int, round_: int) -> HerdRun:
    return _run(stand, Moment.COLD, number, round_, stand.herd.aim(number, readers=_readers_in(round_)))


def _run(stand: _Stand, moment: Moment, number: int, round_: int, at: float) -> HerdRun:
    outcome = stand.herd.fire(at, number)
    return HerdRun(stand.lane, moment, round_, at, outcome, stand.loads.ledger(number).recomputes())


def _report(run: HerdRun) -> str:
    outcome = run.outcome
    return (
        f"round {run.round}  {run.lane.title}, {run.moment}: recomputes {outcome.recomputes:,}, "
        f"errors {outcome.errors.total():,}, p50 {outcome.percentile_ms(50):,.1f} ms, "
        f"p99 {outcome.percentile_ms(99):,.1f} ms"
    )
