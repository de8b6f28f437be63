"""Steady reading, all strategies at once or one after the other; and the kill of a recomputing process."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis
from numpy.typing import NDArray

from benchmarks.errors import BenchError
from benchmarks.stampede.config import Config, Scale
from benchmarks.stampede.origin import Ledger, Recompute
from benchmarks.stampede.process_group import ProcessGroup
from benchmarks.stampede.readers import NUMBER
from benchmarks.stampede.tally import Tally, begun_between, between, count
from benchmarks.stampede.variants import Variant

_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Crash:
    """A kill −9 of the process that recomputed. Times in seconds, NaN where it did not happen before the end.

    Attributes:
        at: when (monotonic).
        again: from then to the next recompute's begin.
        fresh: from then to the next recompute's end: what is served is fresh again.
        meanwhile: the reads until then.
    """

    at: float
    again: float
    fresh: float
    meanwhile: Tally


class Killer:
    """Waits for the first recompute after ``since``, and kills its process in the middle of it."""

    def __init__(self, ledger: Ledger, since: float, delta_seconds: float) -> None:
        self._ledger, self._since, self._half_seconds = ledger, since, delta_seconds / 2
        self.killed_at: float | None = None
        self._next_poll = 0.0

    def poll(self) -> None:
        """Look whether it is time; to be called every few milliseconds."""
        now = time.monotonic()
        if self.killed_at is not None or now < max(self._since, self._next_poll) or not self._ledger.running:
            return
        self._next_poll = now + _POLL_SECONDS
        for recompute in self._ledger.recomputes():
            if recompute.began > self._since and recompute.ended is None:
                time.sleep(max(0.0, recompute.began + self._half_seconds - time.monotonic()))
                self._kill(recompute)
                return

    def _kill(self, recompute: Recompute) -> None:
        with suppress(ProcessLookupError):
            os.kill(recompute.pid, signal.SIGKILL)
            self.killed_at = time.monotonic()
            self._ledger.remove_killed()


def crash_after(killed_at: float, until: float, reads: NDArray[Any], recomputes: Sequence[Recompute]) -> Crash:
    """Tell what followed a kill, up to ``until``."""
    begun = [recompute.began for recompute in recomputes if recompute.began > killed_at]
    ended = [recompute.ended for recompute in recomputes if recompute.ended is not None and recompute.ended > killed_at]
    fresh_at = min(ended, default=until)
    meanwhile = between(reads, killed_at, fresh_at)
    return Crash(
        at=killed_at,
        again=min(begun) - killed_at if begun else math.nan,
        fresh=fresh_at - killed_at if ended else math.nan,
        meanwhile=count(meanwhile, [], fresh_at - killed_at),
    )


if TYPE_CHECKING:
    from rich.console import Console

_WARM_SECONDS: Final = 90.0
_TICK_SECONDS: Final = 0.005
_COLLECT_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class VariantRun:
    """Run of one variant; ``since`` to ``until`` counts (monotonic seconds)."""

    variant: Variant
    reads: NDArray[Any]
    recomputes: list[Recompute]
    since: float
    until: float
    tally: Tally
    crash: Crash | None = None


@dataclass(slots=True)
class Plan:
    """Plan of a scenario of steady reading.

    Attributes:
        config, scale: of the scenario.
        control: where readers and origins leave what they count.
        console: for the reports, every ``report_every`` seconds.
        seed: of the readers' pauses.
        kills: whether who recomputes is killed once.
        was_interrupted: set when somebody pressed Ctrl-C, which ends the reading, and not the report.
    """

    config: Config
    scale: Scale
    control: redis.Redis
    console: Console
    report_every: float
    seed: int
    kills: bool
    was_interrupted: bool = field(default=False, init=False)


def run_steady(variants: Sequence[Variant], plan: Plan) -> list[VariantRun]:
    """Let the variants read; less of it, or fewer, when interrupted.

    Raises:
        BenchError: readers did not come up, or ended by themselves.
    """
    runs: list[VariantRun] = []
    for batch in batches_of(variants, plan.scale.concurrently):
        if not plan.was_interrupted:
            runs += _run(batch, plan)
    return sorted(runs, key=lambda run: variants.index(run.variant))


def batches_of(variants: Sequence[Variant], concurrently: int) -> list[list[Variant]]:
    """Return who runs at the same time: so many, but who waits busily runs alone."""
    calm = [variant for variant in variants if not variant.strategy.busy_waits]
    batches = [calm[first : first + concurrently] for first in range(0, len(calm), concurrently)]
    return batches + [[variant] for variant in variants if variant.strategy.busy_waits]


def _run(variants: Sequence[Variant], plan: Plan) -> list[VariantRun]:
    """Let them read at the same time; when interrupted, nothing of those who had not all read once."""
    since = until = None
    killers: dict[str, Killer] = {}
    try:
        with _running_groups(variants, plan) as groups:
            try:
                since = _warm_since(groups)
                killers = _killers(variants, plan, since)
                until = since + plan.scale.seconds
                _read_until(until, since, groups, killers, plan)
            except KeyboardInterrupt:
                until = time.monotonic()  # to stop takes seconds, in which nobody reads
                plan.was_interrupted = True
    except KeyboardInterrupt:  # while readers were being started, or for the second time
        plan.was_interrupted = True
        return []
    if since is None or until is None:
        return []
    return [_outcome(group, killers.get(group.variant.name), since, until, plan) for group in groups]


@contextmanager
def _running_groups(variants: Sequence[Variant], plan: Plan) -> Iterator[list[ProcessGroup]]:
    groups: list[ProcessGroup] = []
    try:
        for variant in variants:
            groups.append(ProcessGroup(variant, plan.config, plan.scale, plan.seed, plan.control))  # noqa: PERF401 - one may fail
        for group in groups:
            group.send("go")  # not before all are there: hundreds that start take the processor from those that read
        yield groups
    finally:
        for group in groups:
            group.send("stop")
        for group in groups:
            group.stop()


def _warm_since(groups: Sequence[ProcessGroup]) -> float:
    """Return when every reader of all variants had read once.

    Raises:
        BenchError: one has not, for a minute and a half.
    """
    give_up_at = time.monotonic() + _WARM_SECONDS
    while True:
        cold = []
        since = []
        for group in groups:
            group.collect()
            warm = group.warm_since()
            cold += [group.variant.title] if warm is None else []
            since += [] if warm is None else [warm]
        if not cold:
            return max(since)
        if time.monotonic() > give_up_at:
            raise BenchError(f"readers did not get through their first read: {', '.join(cold)}")
        time.sleep(_COLLECT_SECONDS)


def _killers(variants: Sequence[Variant], plan: Plan, since: float) -> dict[str, Killer]:
    if not plan.kills:
        return {}
    return {
        variant.name: Killer(Ledger(plan.control, variant.name, NUMBER), since, plan.config.delta_seconds)
        for variant in variants
    }


def _read_until(
    until: float, since: float, groups: Sequence[ProcessGroup], killers: dict[str, Killer], plan: Plan
) -> None:
    next_report, next_collect = since + plan.report_every, 0.0
    while (now := time.monotonic()) < until:
        for killer in killers.values():
            killer.poll()
        if now >= next_collect:
            next_collect = now + _COLLECT_SECONDS
            for group in groups:
                group.collect()
            _check_alive(groups, killers)
        if now >= next_report:
            next_report += plan.report_every
            for group in groups:
                plan.console.print(_report(group, since, now, plan), highlight=False)
        time.sleep(_TICK_SECONDS)


def _check_alive(groups: Sequence[ProcessGroup], killers: dict[str, Killer]) -> None:
    for group in groups:
        killer = killers.get(group.variant.name)
        if group.dead > (killer is not None and killer.killed_at is not None):
            raise BenchError(f"a process of the readers of {group.variant.title} ended by itself")


def _report(group: ProcessGroup, since: float, now: float, plan: Plan) -> str:
    """Return a line on a variant so far, as the classic harness prints it; what is zero is left out."""
    recomputes = begun_between(Ledger(plan.control, group.variant.name, NUMBER).recomputes(), since, now)
    tally = count(between(group.reads(), since, now), recomputes, now - since)
    counted = (
        (tally.hits, "hits"), (tally.early, "early"), (tally.misses, "misses"), (tally.recomputes, "recomputes"),
        (tally.most_at_once, "at once"), (tally.contention, "lock contention"), (tally.ducked_out, "ducked out"),
        (tally.stale, "stale"), (tally.errors, "errors"),
    )  # fmt: skip
    shown = ", ".join(f"{what} {number:,}" for number, what in counted if number)
    return f"{now - since:5.0f} s  {group.variant.title}: {tally.reads:,} reads: {shown}"


def _outcome(group: ProcessGroup, killer: Killer | None, since: float, until: float, plan: Plan) -> VariantRun:
    reads = between(group.reads(), since, until)
    everything = Ledger(plan.control, group.variant.name, NUMBER).recomputes()
    recomputes = begun_between(everything, since, until)
    crash = None
    if killer is not None and killer.killed_at is not None:
        crash = crash_after(killer.killed_at, until, reads, everything)
    tally = count(reads, recomputes, until - since, group.errors())
    return VariantRun(group.variant, reads, recomputes, since, until, tally, crash)
