"""What it costs to ask for a refresh that has been asked for already, against two libraries that drop duplicates."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.bars import bars
from benchmarks.contenders.duplicates import (
    CeleryOnce,
    CelerySingleton,
    Duplicate,
    OurClaim,
    OurTrigger,
    OurTriggers,
    ReadAskedFor,
    ReadFresh,
    SetNx,
)
from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.places import Place
from benchmarks.statistics import Tally, middle, turns
from benchmarks.tables import Table
from benchmarks.worker.options import WorkerOptions

GROUP: Final = "duplicates"
_COLUMNS: Final = ("asked again by", "us_each", "note")
_OURS: Final = (OurTrigger, OurTriggers, OurClaim)
_PEERS: Final = (CelerySingleton, CeleryOnce)
_KINDS: Final[tuple[type[Duplicate], ...]] = (SetNx, *_PEERS, *_OURS, ReadFresh, ReadAskedFor)


def measured_duplicates(place: Place, options: WorkerOptions) -> Result:
    """Measure, turn by turn. No worker runs: what was asked for first stays in the queue."""
    scale, tally = options.scale, Tally()
    notes: dict[str, str] = {}
    order = random.Random(options.seed)  # noqa: S311 - no secret
    with ExitStack() as stack:
        taking_part = _set_up(place, stack, notes)
        for turn in turns(list(taking_part), rounds=scale.rounds, slices=scale.slices, rng=order):
            contender = taking_part[turn.name]
            contender.ask_first()
            asked = contender.at_once * -(-scale.duplicates // contender.at_once)
            tally.add(turn, asked, _seconds(contender.ask_again, asked // contender.at_once))
    place.drop_messages()
    return _result(tally, notes)


def _set_up(place: Place, stack: ExitStack, notes: dict[str, str]) -> dict[str, Duplicate]:
    taking_part: dict[str, Duplicate] = {}
    for kind in _KINDS:
        notes[kind.title] = kind.note
        try:
            contender = kind(place)
            stack.callback(contender.close)
            contender.ask_first()
            contender.ask_again()
        except ModuleNotFoundError as error:
            notes[kind.title] = f"not installed: {error.name}"
        except Exception as error:  # noqa: BLE001 - others' code; the rest of them still runs
            notes[kind.title] = f"does not work: {type(error).__name__}: {error}"[:200]
        else:
            taking_part[kind.title] = contender
    return taking_part


def _seconds(ask: Callable[[], None], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        ask()
    return time.perf_counter() - began


def _result(tally: Tally, notes: dict[str, str]) -> Result:
    took = {kind.title: [seconds * 1e6 for seconds in tally.seconds_a_read(kind.title)] for kind in _KINDS}
    rows = tuple((title, middle(rounds), notes[title]) for title, rounds in took.items())
    figures = (*_against_peers(tally, notes), *_in_process(took))
    return Result(
        GROUP, "a refresh that has been asked for already", figures=figures,
        tables=(Table(GROUP, "a trigger with nothing left to do, µs", _COLUMNS, rows),),
        plots=(bars(GROUP, "A trigger with nothing left to do", "µs", {"µs": took}),),
    )  # fmt: skip


def _against_peers(tally: Tally, notes: dict[str, str]) -> Iterator[Figure]:
    for peer in _PEERS:
        for ours in _OURS:
            yield Figure(
                GROUP, f"{ours.title}: {peer.title} takes × as long",
                tuple(tally.times_as_fast(ours.title, peer.title)) if tally.seconds_a_read(peer.title) else (),
                target=Target(Must.MORE_THAN, 1) if ours is not OurClaim else None
            )  # fmt: skip


def _in_process(took: dict[str, list[float]]) -> Iterator[Figure]:
    """Yield what a read pays for finding that its own process has asked already."""
    asked, fresh = took[ReadAskedFor.title], took[ReadFresh.title]
    more = tuple(one - other for one, other in zip(asked, fresh, strict=True))
    yield Figure(GROUP, "ours, asked by the same process: a read takes longer by", more, "µs")
    for peer in _PEERS:
        costs = took[peer.title]
        less = tuple(cost - one for cost, one in zip(costs, more, strict=True)) if costs else ()
        yield Figure(
            GROUP, f"{peer.title}: a duplicate takes longer than that by", less, "µs", Target(Must.MORE_THAN, 0)
        )  # fmt: skip
