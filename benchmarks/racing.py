"""Lets contenders run against each other, turn by turn: on threads, or as tasks of one event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Final, cast

from benchmarks.cancellation import raise_if_cancelled
from benchmarks.contenders.contender import AsyncContender, Contender
from benchmarks.errors import BenchError
from benchmarks.options import Scale
from benchmarks.places import Place
from benchmarks.statistics import Tally, turns
from benchmarks.teams import TaskTeam, Team, ThreadTeam

_FIRST_TRY_READS: Final = 20
_MAX_READS: Final = 1_000_000
_TOLERATED_SHARE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Rules:
    """How a race is run: ``concurrency`` threads or tasks, all on one key or each on keys of its own."""

    concurrency: int
    one_key: bool
    scale: Scale
    seed: int
    uvloop: bool = False


@dataclass(slots=True)
class Race:
    """What came of it. ``left_out`` and ``notes`` are by contender: why it was not measured, what is to be known."""

    tally: Tally = field(default_factory=Tally)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, error: Exception) -> None:
        """Leave a contender out from now on, also what it did before."""
        self.left_out[name] = f"{type(error).__name__}: {error}"[:200]

    def seconds_a_read(self, name: str) -> list[float]:
        """Return one figure for each round; nothing for who was left out."""
        return [] if name in self.left_out else self.tally.seconds_a_read(name)

    def times_as_fast(self, name: str, other: str) -> list[float]:
        """Return how many times as fast as ``other`` each round of ``name`` was; nothing where one did not run."""
        if name in self.left_out or other in self.left_out:
            return []
        return self.tally.times_as_fast(name, other)


def run_race(contenders: Sequence[Contender], rules: Rules) -> Race:
    """Set contenders up, check what they read, and time them turn by turn."""
    race: Race = run_on_loop(_race(contenders, rules), uvloop=rules.uvloop)
    return race


def run_on_loop(coroutine: Any, *, uvloop: bool) -> Any:
    """Run a coroutine on an event loop of its own, and return what it does."""
    if not uvloop:
        return asyncio.run(coroutine)
    from uvloop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


async def _race(contenders: Sequence[Contender], rules: Rules) -> Race:
    race = Race()
    async with AsyncExitStack() as stack:
        teams: dict[str, Team] = {}
        reads: dict[str, int] = {}
        for contender in contenders:
            raise_if_cancelled()
            if missing := contender.missing():
                race.left_out[contender.title] = missing
                continue
            try:
                team = await _team(contender, rules, stack, race)
                reads[contender.title] = await _calibrated(team, rules.scale.slice_seconds)
            except Exception as error:  # noqa: BLE001 - contenders are others' code; the rest of them still runs
                race.leave_out(contender.title, error)
            else:
                teams[contender.title] = team
        order = random.Random(rules.seed)  # noqa: S311 - no secret
        for turn in turns(list(teams), rounds=rules.scale.rounds, slices=rules.scale.slices, rng=order):
            raise_if_cancelled()
            if turn.name in race.left_out:
                continue
            try:
                seconds = await teams[turn.name].run(reads[turn.name])
            except Exception as error:  # noqa: BLE001 - the minutes that the others have run are not thrown away
                race.leave_out(turn.name, error)
            else:
                race.tally.add(turn, reads[turn.name] * rules.concurrency, seconds)
    return race


async def _team(contender: Contender, rules: Rules, stack: AsyncExitStack, race: Race) -> Team:
    """Set a contender up, and see that it reads what was put there before anyone times it."""
    numbers = contender.course.numbers[:1] if rules.one_key else contender.course.numbers
    await _done(cast("Any", contender).set_up())
    stack.push_async_callback(lambda: _done(cast("Any", contender).close()))
    read = cast("Any", contender).reader()
    for number in [*numbers, *numbers]:
        found = await _done(read(number))
        if found != contender.expected(number):
            raise BenchError(f"it read {str(found)[:60]!r} under number {number}, which is wrong")
    team: Team
    if isinstance(contender, AsyncContender):
        team = TaskTeam(read, numbers, rules.concurrency)
    else:
        team = ThreadTeam(read, numbers, rules.concurrency)
        stack.callback(team.close)
    race.notes[contender.title] = contender.note
    if contender.is_local:
        await _check_local(contender, team)
    return team


async def _check_local(contender: Contender, team: Team) -> None:
    """See that a local hit is one: a tier that is bypassed would be measured as what it is not.

    Raises:
        BenchError: reads reached Redis.
    """
    await team.run(_FIRST_TRY_READS)
    before = _gets(contender.course.place)
    await team.run(500)
    share = (_gets(contender.course.place) - before) / 500
    if share > _TOLERATED_SHARE:
        raise BenchError(f"{share:.0%} of its reads reached Redis: they are not local")


def _gets(place: Place) -> int:
    with place.plain() as client:
        stats = cast("dict[str, Any]", client.info("commandstats"))
    return sum(stats[name]["calls"] for name in ("cmdstat_get", "cmdstat_mget") if name in stats)


async def _calibrated(team: Team, slice_seconds: float) -> int:
    """Return how many reads each thread or task makes in a turn of about ``slice_seconds``."""
    count = _FIRST_TRY_READS
    for _ in range(3):
        count = max(1, min(_MAX_READS, int(count * slice_seconds / await team.run(count))))
    return count


async def _done(result: Any) -> Any:
    """Wait where there is something to wait for: sync contenders are through already."""
    return await result if isawaitable(result) else result
