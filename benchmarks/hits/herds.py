"""Many readers of one key at the moment when it expires, or is not there at all, in four processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from itertools import count
from typing import Final, TypeAlias

from benchmarks.bars import Rounds, bars
from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.herd.herd import PROCESSES, Herd, Outcome, Size
from benchmarks.herd.loads import MarkedLoads
from benchmarks.herd.makers import EARLY_SECONDS, NOTHING, NOTHING_SECONDS, HitsMaker, Kind
from benchmarks.herd.queries import LOAD_SECONDS, QUERY
from benchmarks.hits.group import Group, Setting
from benchmarks.plots import Plot
from benchmarks.seeding import Seeder
from benchmarks.statistics import WARM_UP_ROUND, middle

_NONE: Final = Target(Must.BE, 0)
_ONE: Final = Target(Must.BE, 1)
# Never the same: what one group has loaded would be no cold key for the next one.
_THREADS_A_PROCESS: Final = 64
_FIRST_NUMBERS: Final = {Kind.THREADS: 1_000, Kind.ASYNCIO: 2_000_000}


class Scene(StrEnum):
    """What the readers find."""

    NOTHING = f"no cache, {NOTHING_SECONDS * 1e6:g} µs of Python"
    FRESH = "fresh key"
    EXPIRING = "at soft expiry"
    COLD = "cold key"
    CASHEWS = "cashews early, at early expiry"


Outcomes: TypeAlias = dict[Scene, list[Outcome]]


@dataclass(frozen=True, slots=True)
class HerdGroup(Group):
    """The same load on a fresh, an expiring and a missing entry in turn; as tasks, cashews early beside it."""

    kind: Kind = Kind.THREADS

    def run(self, setting: Setting) -> Result:
        """Measure, with a real Celery worker and a load of 200 ms."""
        outcomes = _outcomes(self.kind, setting)
        figures = [*self._expiring(outcomes), *self._cold(outcomes)]
        for scene, found in outcomes.items():
            figures += self._times(scene, found)
        return Result(self.name, self.title, figures=tuple(figures), plots=(self._plot(outcomes),))

    def _plot(self, outcomes: Outcomes) -> Plot:
        def at(percent: float) -> Rounds:
            return {str(scene): [one.percentile_ms(percent) for one in found] for scene, found in outcomes.items()}

        return bars(f"hits-{self.name}", self.title, "ms", {"p50": at(50), "p99": at(99)}, is_log=True)

    def _expiring(self, outcomes: Outcomes) -> Iterator[Figure]:
        expiring = outcomes[Scene.EXPIRING]
        yield from self._promises(Scene.EXPIRING, expiring)
        yield Figure(
            self.name, f"{Scene.EXPIRING}: p99 against the same load on a fresh key",
            _ratios(_p99(expiring), _p99(outcomes[Scene.FRESH])), target=Target(Must.AT_MOST, 1.2),
        )  # fmt: skip
        if self.kind is not Kind.ASYNCIO:
            return
        peers = outcomes[Scene.CASHEWS]
        yield Figure(
            self.name, f"{Scene.EXPIRING}: p99 against cashews early", _ratios(_p99(expiring), _p99(peers)),
            target=Target(Must.AT_MOST, 1), note="" if peers else "not installed: cashews",
        )  # fmt: skip

    def _cold(self, outcomes: Outcomes) -> Iterator[Figure]:
        cold, load_ms = outcomes[Scene.COLD], LOAD_SECONDS * 1000
        yield from self._promises(Scene.COLD, cold)
        most_ms = load_ms + 2 * middle(_p99(outcomes[Scene.FRESH]))
        yield Figure(
            self.name, f"{Scene.COLD}: p99, of which the load takes {load_ms:g} ms", _p99(cold), "ms",
            Target(Must.AT_MOST, most_ms), "allowed: the load, and 2 × the p99 on a fresh key",
        )  # fmt: skip

    def _promises(
        self, scene: Scene, found: Sequence[Outcome], recomputes: Target | None = _ONE, errors: Target | None = _NONE
    ) -> Iterator[Figure]:
        loads = tuple(float(outcome.recomputes) for outcome in found)
        yield Figure(self.name, f"{scene}: recomputes", loads, "", recomputes, is_worst=True)
        failed = tuple(float(outcome.errors.total()) for outcome in found)
        kinds = sum((outcome.errors for outcome in found), Counter[str]())
        note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
        yield Figure(self.name, f"{scene}: errors", failed, "", errors, note, is_worst=True)

    def _times(self, scene: Scene, found: Sequence[Outcome]) -> Iterator[Figure]:
        if not found:
            return
        for percent in (50, 99):
            took = tuple(outcome.percentile_ms(percent) for outcome in found)
            yield Figure(self.name, f"{scene}: p{percent}", took, "ms")
        from_start = tuple(outcome.percentile_ms(99, from_start=True) for outcome in found)
        yield Figure(self.name, f"{scene}: p99 from the common start", from_start, "ms")
        if scene in (Scene.FRESH, Scene.CASHEWS):
            yield from self._promises(scene, found, recomputes=None, errors=None)


def _outcomes(kind: Kind, setting: Setting) -> Outcomes:
    place, options = setting.place, setting.options
    outcomes: Outcomes = {scene: [] for scene in Scene}
    with ExitStack() as stack:
        client = stack.enter_context(place.plain())
        seeder = Seeder(client, place.namespace, setting.value_of, QUERY)

        readers = options.scale.readers
        if kind is Kind.THREADS:
            readers = min(readers, _THREADS_A_PROCESS * PROCESSES)
        loads, size = MarkedLoads(place), Size(readers, options.scale.lead_seconds)

        def herd(of: Kind) -> Herd:
            maker = HitsMaker(place, of, options.payload)
            return stack.enter_context(Herd(maker, loads, size, uvloop=options.uvloop))

        ours = herd(kind)
        peers = herd(Kind.CASHEWS) if kind is Kind.ASYNCIO and find_spec("cashews") is not None else None
        place.drop_messages()
        setting.start_worker()  # after them: the processes of the herd come up meanwhile
        numbers = count(_FIRST_NUMBERS[kind])
        _warm_up(ours, seeder, numbers)
        for number in range(options.scale.herd_rounds + 1):
            found = dict(_round(ours, peers, seeder, numbers))
            if kind is Kind.THREADS:
                found[Scene.NOTHING] = ours.fire(ours.aim(NOTHING), NOTHING)
            if number != WARM_UP_ROUND:
                for scene, outcome in found.items():
                    outcomes[scene].append(outcome)
    return outcomes


def _warm_up(ours: Herd, seeder: Seeder, numbers: Iterator[int]) -> None:
    """Let each process ask for a refresh and wait for a value once: what it imports and connects to, it does once."""
    for process in range(PROCESSES):
        stale, cold = next(numbers), next(numbers)
        seeder.put([stale], soft_in_seconds=-1.0)
        for number in (stale, cold):
            ours.read_alone(number, process=process)


def _round(ours: Herd, peers: Herd | None, seeder: Seeder, numbers: Iterator[int]) -> Iterator[tuple[Scene, Outcome]]:
    number = next(numbers)
    seeder.put([number])
    yield Scene.FRESH, ours.fire(ours.aim(number), number)
    number = next(numbers)
    at = ours.aim(number)
    seeder.put([number], soft_in_seconds=at - time.monotonic())  # it expires at the very start
    yield Scene.EXPIRING, ours.fire(at, number)
    number = next(numbers)
    yield Scene.COLD, ours.fire(ours.aim(number), number)
    if peers is not None:
        number = next(numbers)
        peers.read_alone(number)
        early_at = time.monotonic() + EARLY_SECONDS
        yield Scene.CASHEWS, peers.fire(max(peers.aim(number), early_at), number)


def _p99(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    return tuple(outcome.percentile_ms(99) for outcome in outcomes)


def _ratios(ours: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    return tuple(own / other for own, other in zip(ours, others, strict=True)) if others else ()
