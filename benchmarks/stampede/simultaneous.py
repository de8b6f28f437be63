"""All readers at the same moment: when the value expires, when there is none, and for ours also when it is fresh."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from itertools import count
from typing import Final, TypeAlias

import redis
from rich.console import Console

from benchmarks.apparatus.entries import Seeder
from benchmarks.apparatus.statistics import WARM_UP_ROUND
from benchmarks.stampede.config import PROCESSES, Config, Kind, Scale
from benchmarks.stampede.herd import Herd, Outcome
from benchmarks.stampede.origin import value_of
from benchmarks.stampede.strategies.classic import XFetch, XLocked
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.variants import Variant

_WRITE_SECONDS: Final = 0.05
_LASTING_SECONDS: Final = 3_600.0
_WARM_UP_READERS: Final = 80
# More of them would only wait for CPython's interpreter lock.
_MAX_THREADS: Final = 64 * PROCESSES


class Moment(StrEnum):
    """State of the key that the readers meet."""

    FRESH = "fresh key"
    EXPIRY = "at expiry"
    COLD = "cold key"


Runs: TypeAlias = dict[tuple[Variant, Moment], list[Outcome]]
"""Outcomes of the rounds that count."""


def run_simultaneous(
    variants: Sequence[Variant], config: Config, scale: Scale, control: redis.Redis, console: Console, seed: int
) -> Runs:
    """Let the herds read, variant by variant, in an order drawn anew each round; the first round does not count."""
    order = random.Random(seed)  # noqa: S311 - no secret
    runs: Runs = defaultdict(list)
    with ExitStack() as stack:
        players = [_Player(variant, config, scale, control, stack) for variant in variants]
        for number in range(scale.rounds + 1):
            console.print(f"round {number} of {scale.rounds} …", style="dim")
            order.shuffle(players)
            for player in players:
                # A few readers are enough for the warm-up.
                for moment, outcome in player.play(_WARM_UP_READERS if number == WARM_UP_ROUND else None):
                    if number != WARM_UP_ROUND:
                        runs[player.variant, moment].append(outcome)
    return runs


def without_expiry(config: Config) -> Config:
    """Return the config with an expiry so long that the last reader of a herd still finds its value."""
    return replace(config, expires_seconds=_LASTING_SECONDS)


class _Player:
    """A variant's herd, and the single reader that stores a value before it comes."""

    def __init__(self, variant: Variant, config: Config, scale: Scale, control: redis.Redis, stack: ExitStack) -> None:
        self.variant, self._config, self._numbers = variant, config, count(1)
        lasting = config if variant.strategy.reader_sets_expiry else without_expiry(config)
        readers = min(scale.workers, _MAX_THREADS) if variant.kind is Kind.THREADS else scale.workers
        self._herd = stack.enter_context(Herd(variant, lasting, control, readers=readers, lead_seconds=scale.lead))
        self._primer = stack.enter_context(Herd(variant, config, control, readers=1, processes=1))
        cache = stack.enter_context(config.servers.plain())
        ours = Ours(config, variant.name)
        self._seeder = Seeder(cache, config.servers.namespace, value_of, QUERY, ours.params)

    def play(self, readers: int | None) -> Iterator[tuple[Moment, Outcome]]:
        for moment in Moment:
            if moment is Moment.FRESH and self.variant.strategy is not Ours:
                continue
            number = next(self._numbers)
            if moment is Moment.FRESH:
                self._seeder.put([number])
            at = self._herd.prepare(number, readers=readers)
            if moment is Moment.EXPIRY:
                at = self._put_expiring(number, at)
            yield moment, self._herd.release(at, number)

    def _put_expiring(self, number: int, at: float) -> float:
        """Store a value that expires at this time or later, and return the time to read it.

        For ours the worker determines the expiry, so an entry is written as the worker would have, one TTL earlier.
        """
        if self.variant.strategy is Ours:
            self._seeder.put([number], soft_in_seconds=at - time.monotonic())
            return at
        self._primer.read_alone(number)
        ledger = self._herd.ledger(number)
        made_at = ledger.recomputes()[-1].ended or time.monotonic()
        ledger.reset()
        expires_at = made_at + self._config.expires_seconds + _WRITE_SECONDS
        # XFetch is for reads before the expiry, so δ earlier.
        if self.variant.strategy in (XFetch, XLocked):
            expires_at -= self._config.delta_seconds + _WRITE_SECONDS
        return max(at, expires_at)
