"""Readers that go on for some time: all strategies at once, or one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis
from numpy.typing import NDArray

from benchmarks.errors import BenchError
from benchmarks.stampede.crash import Crash, Killer, told
from benchmarks.stampede.crew import Crew
from benchmarks.stampede.lanes import Lane
from benchmarks.stampede.options import Scale
from benchmarks.stampede.origin import Ledger, Recompute
from benchmarks.stampede.readers import NUMBER
from benchmarks.stampede.tally import Tally, begun_between, between, count
from benchmarks.stampede.terms import Terms

if TYPE_CHECKING:
    from rich.console import Console

_WARM_SECONDS: Final = 90.0
_TICK_SECONDS: Final = 0.005
_TAKE_IN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class LaneRun:
    """What one lane did; ``since`` to ``until`` counts (monotonic seconds)."""

    lane: Lane
    reads: NDArray[Any]
    recomputes: list[Recompute]
    since: float
    until: float
    tally: Tally
    crash: Crash | None = None


@dataclass(slots=True)
class Plan:
    """How a scenario of steady reading is run.

    Attributes:
        terms, scale: of the scenario.
        control: where readers and origins leave what they count.
        console: for the reports, every ``report_every`` seconds.
        seed: of the readers' pauses.
        kills: whether who recomputes is killed once.
        was_interrupted: set when somebody pressed Ctrl-C, which ends the reading, and not the report.
    """

    terms: Terms
    scale: Scale
    control: redis.Redis
    console: Console
    report_every: float
    seed: int
    kills: bool
    was_interrupted: bool = field(default=False, init=False)


def run_steady(lanes: Sequence[Lane], plan: Plan) -> list[LaneRun]:
    """Let the lanes read; less of it, or fewer, when interrupted.

    Raises:
        BenchError: readers did not come up, or ended by themselves.
    """
    runs: list[LaneRun] = []
    for heat in heats_of(lanes, plan.scale.abreast):
        if not plan.was_interrupted:
            runs += _run(heat, plan)
    return sorted(runs, key=lambda run: lanes.index(run.lane))


def heats_of(lanes: Sequence[Lane], abreast: int) -> list[list[Lane]]:
    """Return who runs at the same time: so many, but who waits busily runs alone."""
    calm = [lane for lane in lanes if not lane.strategy.waits_busily]
    heats = [calm[first : first + abreast] for first in range(0, len(calm), abreast)]
    return heats + [[lane] for lane in lanes if lane.strategy.waits_busily]


def _run(lanes: Sequence[Lane], plan: Plan) -> list[LaneRun]:
    """Let them read at the same time; when interrupted, nothing of those who had not all read once."""
    since = until = None
    killers: dict[str, Killer] = {}
    try:
        with _crews(lanes, plan) as crews:
            try:
                since = _warm_since(crews)
                killers = _killers(lanes, plan, since)
                until = since + plan.scale.seconds
                _read_until(until, since, crews, killers, plan)
            except KeyboardInterrupt:
                until = time.monotonic()  # to stop takes seconds, in which nobody reads
                plan.was_interrupted = True
    except KeyboardInterrupt:  # while readers were being started, or for the second time
        plan.was_interrupted = True
        return []
    if since is None or until is None:
        return []
    return [_outcome(crew, killers.get(crew.lane.name), since, until, plan) for crew in crews]


@contextmanager
def _crews(lanes: Sequence[Lane], plan: Plan) -> Iterator[list[Crew]]:
    crews: list[Crew] = []
    try:
        for lane in lanes:
            crews.append(Crew(lane, plan.terms, plan.scale, plan.seed, plan.control))  # noqa: PERF401 - one may fail
        for crew in crews:
            crew.tell("go")  # not before all are there: hundreds that start take the processor from those that read
        yield crews
    finally:
        for crew in crews:
            crew.tell("stop")
        for crew in crews:
            crew.stop()


def _warm_since(crews: Sequence[Crew]) -> float:
    """Return when every reader of all lanes had read once.

    Raises:
        BenchError: one has not, for a minute and a half.
    """
    give_up_at = time.monotonic() + _WARM_SECONDS
    while True:
        cold = []
        since = []
        for crew in crews:
            crew.take_in()
            warm = crew.warm_since()
            cold += [crew.lane.title] if warm is None else []
            since += [] if warm is None else [warm]
        if not cold:
            return max(since)
        if time.monotonic() > give_up_at:
            raise BenchError(f"readers did not get through their first read: {', '.join(cold)}")
        time.sleep(_TAKE_IN_SECONDS)


def _killers(lanes: Sequence[Lane], plan: Plan, since: float) -> dict[str, Killer]:
    if not plan.kills:
        return {}
    return {
        lane.name: Killer(Ledger(plan.control, lane.name, NUMBER), since, plan.terms.delta_seconds) for lane in lanes
    }


def _read_until(until: float, since: float, crews: Sequence[Crew], killers: dict[str, Killer], plan: Plan) -> None:
    next_report, next_take_in = since + plan.report_every, 0.0
    while (now := time.monotonic()) < until:
        for killer in killers.values():
            killer.look()
        if now >= next_take_in:
            next_take_in = now + _TAKE_IN_SECONDS
            for crew in crews:
                crew.take_in()
            _check_alive(crews, killers)
        if now >= next_report:
            next_report += plan.report_every
            for crew in crews:
                plan.console.print(_report(crew, since, now, plan), highlight=False)
        time.sleep(_TICK_SECONDS)


def _check_alive(crews: Sequence[Crew], killers: dict[str, Killer]) -> None:
    for crew in crews:
        killer = killers.get(crew.lane.name)
        if crew.dead > (killer is not None and killer.killed_at is not None):
            raise BenchError(f"a process of the readers of {crew.lane.title} ended by itself")


def _report(crew: Crew, since: float, now: float, plan: Plan) -> str:
    """Return a line on a lane so far, as the classic harness prints it; what is zero is left out."""
    recomputes = begun_between(Ledger(plan.control, crew.lane.name, NUMBER).recomputes(), since, now)
    tally = count(between(crew.reads(), since, now), recomputes, now - since)
    told_of = (
        (tally.hits, "hits"), (tally.early, "early"), (tally.misses, "misses"), (tally.recomputes, "recomputes"),
        (tally.most_at_once, "at once"), (tally.contention, "lock contention"), (tally.ducked_out, "ducked out"),
        (tally.stale, "stale"), (tally.errors, "errors"),
    )  # fmt: skip
    shown = ", ".join(f"{what} {number:,}" for number, what in told_of if number)
    return f"{now - since:5.0f} s  {crew.lane.title}: {tally.reads:,} reads: {shown}"


def _outcome(crew: Crew, killer: Killer | None, since: float, until: float, plan: Plan) -> LaneRun:
    reads = between(crew.reads(), since, until)
    everything = Ledger(plan.control, crew.lane.name, NUMBER).recomputes()
    recomputes = begun_between(everything, since, until)
    crash = None
    if killer is not None and killer.killed_at is not None:
        crash = told(killer.killed_at, until, reads, everything)
    tally = count(reads, recomputes, until - since, crew.errors())
    return LaneRun(crew.lane, reads, recomputes, since, until, tally, crash)
