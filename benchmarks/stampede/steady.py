"""Steady reading, of all strategies at once or one after another, and the kill of a recomputing process."""

from __future__ import annotations

import math
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import redis
from numpy.typing import NDArray

from benchmarks.errors import BenchError
from benchmarks.stampede.config import Config, Scale
from benchmarks.stampede.origin import Ledger, Recompute
from benchmarks.stampede.readers import NUMBER, ProcessGroup
from benchmarks.stampede.recorder import Mark
from benchmarks.stampede.variants import Variant

_POLL_SECONDS: Final = 0.01
_WARM_SECONDS: Final = 90.0
_TICK_SECONDS: Final = 0.005
_COLLECT_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Tally:
    """Reads and recomputes of one variant in a time span; ``errors`` includes those of first reads."""

    reads: NDArray[Any]
    recomputes: Sequence[Recompute]
    seconds: float
    errors: Counter[str] = field(default_factory=Counter)

    @classmethod
    def between(
        cls, since: float, until: float, reads: NDArray[Any], recomputes: Sequence[Recompute], errors: Counter[str]
    ) -> Tally:
        """Return the tally of what began in this span (monotonic seconds), without readers' first reads."""
        counted = (reads["began"] >= since) & (reads["began"] < until) & ((reads["marks"] & Mark.FIRST) == 0)
        begun = [recompute for recompute in recomputes if since <= recompute.began < until]
        return cls(reads[counted], begun, until - since, errors)

    @property
    def hits(self) -> int:
        return len(self.reads) - self.marked(Mark.MISS | Mark.ERROR)

    @property
    def most_at_once(self) -> int:
        return max((recompute.at_once for recompute in self.recomputes), default=0)

    def marked(self, marks: Mark) -> int:
        return int(np.count_nonzero(self.reads["marks"] & marks))

    def per_second(self, count: int) -> float:
        return count / self.seconds if self.seconds else math.nan

    def percentiles_ms(self, *percents: float) -> list[float]:
        if not len(self.reads):
            return [math.nan] * len(percents)
        return [float(value) for value in np.percentile(self.reads["took"] * 1000, percents)]

    def survival_curve(self, points: int = 200) -> tuple[list[float], list[float]]:
        """Return at most ``points`` times in ms, with the share of reads that took at least as long.

        The fewer reads are left, the closer the points are: each decade of the share has as many.
        """
        took = np.sort(self.reads["took"]) * 1000
        if not len(took):
            return [], []
        left = np.unique(np.geomspace(1, len(took), points).astype(int))[::-1]
        return [float(took[len(took) - many]) for many in left], [float(many / len(took)) for many in left]


@dataclass(frozen=True, slots=True)
class Crash:
    """A kill −9 of the recomputing process. Times in seconds, NaN for events that did not happen before the end.

    Attributes:
        at: the time of the kill (monotonic).
        again: the time from then to the next recompute's start.
        fresh: the time from then to the next recompute's end, when served values are fresh again.
        meanwhile: the reads until then.
    """

    at: float
    again: float
    fresh: float
    meanwhile: Tally


@dataclass(frozen=True, slots=True)
class VariantRun:
    """Run of one variant, counting what began from ``since`` to ``until`` (monotonic seconds)."""

    variant: Variant
    tally: Tally
    since: float
    until: float
    crash: Crash | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a scenario of steady reading.

    Attributes:
        config, scale: the configuration and scale of the scenario.
        control: the database with the origins' counts.
        seed: the seed of the readers' pauses.
        kills: True to kill a recomputing process once.
    """

    config: Config
    scale: Scale
    control: redis.Redis
    seed: int
    kills: bool

    def ledger(self, variant: Variant) -> Ledger:
        return Ledger(self.control, variant.name, NUMBER)


def run_steady(variants: Sequence[Variant], plan: Plan) -> list[VariantRun]:
    """Let the variants read, several at the same time, except that busy waiters run alone."""
    calm = [variant for variant in variants if not variant.strategy.busy_waits]
    at_once = plan.scale.concurrently
    batches = [calm[first : first + at_once] for first in range(0, len(calm), at_once)]
    batches += [[variant] for variant in variants if variant.strategy.busy_waits]
    runs = [run for batch in batches for run in _run(batch, plan)]
    return sorted(runs, key=lambda run: variants.index(run.variant))


def _run(variants: Sequence[Variant], plan: Plan) -> list[VariantRun]:
    with _running_groups(variants, plan) as groups:
        since = _warm_since(groups)
        until = since + plan.scale.seconds
        killers = {
            variant.name: _Killer(plan.ledger(variant), since, plan.config.delta_seconds)
            for variant in variants
            if plan.kills
        }
        _read_until(until, groups, killers)
    return [_outcome(group, killers.get(group.variant.name), since, until, plan) for group in groups]


@contextmanager
def _running_groups(variants: Sequence[Variant], plan: Plan) -> Iterator[list[ProcessGroup]]:
    groups: list[ProcessGroup] = []
    try:
        for variant in variants:
            groups.append(ProcessGroup(variant, plan.config, plan.scale, plan.seed))  # noqa: PERF401 - one may fail
        for group in groups:
            group.send("go")  # only once all are ready, since hundreds of starting processes take CPU time from readers
        yield groups
    finally:
        for group in groups:
            group.send("stop")
        for group in groups:
            group.stop()


def _warm_since(groups: Sequence[ProcessGroup]) -> float:
    """Wait until every reader of all variants has read once, and return that time."""
    give_up_at = time.monotonic() + _WARM_SECONDS
    while True:
        for group in groups:
            group.collect()
        since = {group.variant.title: group.warm_since() for group in groups}
        cold = [title for title, at in since.items() if at is None]
        if not cold:
            return max(at for at in since.values() if at is not None)
        if time.monotonic() > give_up_at:
            raise BenchError(f"readers did not get through their first read: {', '.join(cold)}")
        time.sleep(_COLLECT_SECONDS)


class _Killer:
    """Waits for the first recompute after ``since``, and kills its process in the middle of it."""

    def __init__(self, ledger: Ledger, since: float, delta_seconds: float) -> None:
        self._ledger, self._since, self._half_seconds = ledger, since, delta_seconds / 2
        self.killed_at: float | None = None
        self._next_poll = 0.0

    def poll(self) -> None:
        """Kill if it is time; call this every few milliseconds."""
        now = time.monotonic()
        if self.killed_at is not None or now < max(self._since, self._next_poll) or not self._ledger.running:
            return
        self._next_poll = now + _POLL_SECONDS
        for recompute in self._ledger.recomputes():
            if recompute.began > self._since and recompute.ended is None:
                time.sleep(max(0.0, recompute.began + self._half_seconds - time.monotonic()))
                with suppress(ProcessLookupError):
                    os.kill(recompute.pid, signal.SIGKILL)
                    self.killed_at = time.monotonic()
                    self._ledger.remove_killed()
                return


def _read_until(until: float, groups: Sequence[ProcessGroup], killers: dict[str, _Killer]) -> None:
    next_collect = 0.0
    while (now := time.monotonic()) < until:
        for killer in killers.values():
            killer.poll()
        if now >= next_collect:
            next_collect = now + _COLLECT_SECONDS
            for group in groups:
                group.collect()
                killer_of_it = killers.get(group.variant.name)
                if group.dead > (killer_of_it is not None and killer_of_it.killed_at is not None):
                    raise BenchError(f"a process of the readers of {group.variant.title} ended by itself")
        time.sleep(_TICK_SECONDS)


def _outcome(group: ProcessGroup, killer: _Killer | None, since: float, until: float, plan: Plan) -> VariantRun:
    recomputes = plan.ledger(group.variant).recomputes()
    tally = Tally.between(since, until, group.reads(), recomputes, group.errors)
    killed_at = killer.killed_at if killer is not None else None
    crash = None if killed_at is None else _crash(killed_at, until, tally, recomputes)
    return VariantRun(group.variant, tally, since, until, crash)


def _crash(killed_at: float, until: float, tally: Tally, recomputes: Sequence[Recompute]) -> Crash:
    begun = [recompute.began for recompute in recomputes if recompute.began > killed_at]
    ended = [recompute.ended for recompute in recomputes if recompute.ended is not None and recompute.ended > killed_at]
    fresh_at = min(ended, default=until)
    return Crash(
        at=killed_at,
        again=min(begun) - killed_at if begun else math.nan,
        fresh=fresh_at - killed_at if ended else math.nan,
        meanwhile=Tally.between(killed_at, fresh_at, tally.reads, (), tally.errors),
    )
