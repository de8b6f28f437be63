"""Options of ``python -m benchmarks feed``."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.options import DEFAULT_ROUNDS, GroupOptions


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of measuring.

    Attributes:
        rounds: the number of rounds that count; one more, the first, is dropped.
        delay_seconds: the duration of writes at a steady rate in a round.
        waiting: the number of changes in the backlog of a round.
        slices: the number of turns with the trigger, and without it, in a round.
        times: the number of transactions in a turn, by the number of nodes that they change.
        savings_seconds: the duration at each write rate.
    """

    rounds: int
    delay_seconds: float
    waiting: int
    slices: int
    times: dict[int, int]
    savings_seconds: float


@dataclass(frozen=True, kw_only=True)
class FeedOptions(GroupOptions):
    """Measure the change feed on Neo4j with APOC, which needs Java 17 or 21, and Maven for their jars.

    The time from a commit until what depends on it is invalidated, at 200 writes a second; what the trigger adds to a
    transaction; how many changes a second one consumer carries; loads and wrong reads with the feed and a long TTL,
    against a short TTL without it. Exits with 0 whether targets are reached or not.
    """

    @property
    def scale(self) -> Scale:
        if self.quick:
            return Scale(self.rounds or 1, 2.0, 200, 1, {1: 3, 10: 3, 1_000: 1}, 3.0)
        return Scale(self.rounds or DEFAULT_ROUNDS, 20.0, 10_000, 4, {1: 50, 10: 50, 1_000: 5}, 30.0)
