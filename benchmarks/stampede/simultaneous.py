"""All readers at the same moment: when the value expires, and when there is none; of ours also when it is fresh."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Final

import redis

from benchmarks.apparatus.entries import Seeder, rows_of
from benchmarks.apparatus.statistics import WARM_UP_ROUND
from benchmarks.stampede.config import Config, Kind, Scale
from benchmarks.stampede.herd import PROCESSES, Herd, Outcome
from benchmarks.stampede.origin import value_at
from benchmarks.stampede.strategies.classic import XFetch
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.strategies.strategy import Value
from benchmarks.stampede.variants import Variant

if TYPE_CHECKING:
    from rich.console import Console

_WRITE_SECONDS: Final = 0.05
_LASTING_SECONDS: Final = 3_600.0
_WARM_UP_READERS: Final = 80
# What more of them wait for is CPython's interpreter lock.
_MAX_THREADS: Final = 64 * PROCESSES


class Moment(StrEnum):
    """State of the key that the readers meet."""

    FRESH = "fresh key"
    EXPIRY = "at expiry"
    COLD = "cold key"


@dataclass(frozen=True, slots=True)
class SimultaneousRun:
    """One run of one variant."""

    variant: Variant
    moment: Moment
    round: int
    outcome: Outcome


def run_simultaneous(
    variants: Sequence[Variant], config: Config, scale: Scale, control: redis.Redis, console: Console, seed: int
) -> tuple[list[SimultaneousRun], bool]:
    """Let the herds read, variant by variant in an order drawn anew each round; the first round is not counted.

    Returns the runs, and whether Ctrl-C ended them early.
    """
    order = random.Random(seed)  # noqa: S311 - no secret
    runs: list[SimultaneousRun] = []
    with ExitStack() as stack:
        try:
            players = [_Player(variant, config, scale, control, stack) for variant in variants]
            for number in range(scale.rounds + 1):
                order.shuffle(players)
                for player in players:
                    found = [SimultaneousRun(player.variant, *one) for one in player.play(number)]
                    if number != WARM_UP_ROUND:
                        runs += found
                        console.print("\n".join(map(_report, found)), highlight=False)
        except KeyboardInterrupt:
            return runs, True
    return runs, False


def without_expiry(config: Config) -> Config:
    """Return config under which what a herd makes does not expire before the last of it has read."""
    return replace(config, expires_seconds=_LASTING_SECONDS)


class _Player:
    """A variant's herd, and the one reader who puts a value there before it comes."""

    def __init__(
        self, variant: Variant, config: Config, scale: Scale, control: redis.Redis, stack: ExitStack
    ) -> None:  # fmt: skip
        self.variant, self._config, self._numbers = variant, config, count(1)
        lasting = config if variant.strategy.reader_sets_expiry else without_expiry(config)
        readers = min(scale.workers, _MAX_THREADS) if variant.kind is Kind.THREADS else scale.workers
        self._herd = stack.enter_context(
            Herd(variant, lasting, control, readers=readers, lead_seconds=scale.lead)
        )  # fmt: skip
        self._primer = stack.enter_context(Herd(variant, config, control, readers=1, processes=1))
        cache = stack.enter_context(config.servers.plain())
        ours = Ours(config, variant.name)
        self._seeder = Seeder(cache, config.servers.namespace, _value_of, QUERY, ours.params)

    def play(self, round_: int) -> Iterator[tuple[Moment, int, Outcome]]:
        # To warm up, a few readers are enough.
        readers = _WARM_UP_READERS if round_ == WARM_UP_ROUND else None
        if self.variant.strategy is Ours:
            number = next(self._numbers)
            self._seeder.put([number])
            yield Moment.FRESH, round_, self._herd.release(self._herd.prepare(number, readers=readers), number)
        number = next(self._numbers)
        at = self._put_expiring(number, self._herd.prepare(number, readers=readers))
        yield Moment.EXPIRY, round_, self._herd.release(at, number)
        number = next(self._numbers)
        yield Moment.COLD, round_, self._herd.release(self._herd.prepare(number, readers=readers), number)

    def _put_expiring(self, number: int, at: float) -> float:
        """Put a value there that expires at this moment, or later, and return when it is to be read.

        Of ours it is the worker who says when that is: an entry is written as it would have, one TTL ago.
        """
        if self.variant.strategy is Ours:
            self._seeder.put([number], soft_in_seconds=at - time.monotonic())
            return at
        self._primer.read_alone(number)
        ledger = self._herd.ledger(number)
        made_at = ledger.recomputes()[-1].ended or time.monotonic()
        ledger.reset()
        expires_at = made_at + self._config.expires_seconds + _WRITE_SECONDS
        # XFetch is for who comes before the expiry, so δ earlier.
        lead_seconds = self._config.delta_seconds + _WRITE_SECONDS if issubclass(self.variant.strategy, XFetch) else 0.0
        return max(at, expires_at - lead_seconds)


def _value_of(number: int) -> Value:
    return value_at(number, time.monotonic(), rows_of(number))


def _report(run: SimultaneousRun) -> str:
    outcome = run.outcome
    return (
        f"round {run.round}  {run.variant.title}, {run.moment}: recomputes {len(outcome.recomputes):,}, "
        f"errors {outcome.errors.total():,}, p50 {outcome.percentile_ms(50):,.1f} ms, "
        f"p99 {outcome.percentile_ms(99):,.1f} ms"
    )
