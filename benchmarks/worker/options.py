"""What `python -m benchmarks worker` was asked to do, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

DEFAULT_ROUNDS: Final = 7
MAX_ROUNDS: Final = 1_000
DEFAULT_OUT: Final = Path("bench-results/worker")


class BrokerKind(StrEnum):
    """What is between reader and worker."""

    REDIS = "redis"
    RABBITMQ = "rabbitmq"
    BOTH = "both"

    @property
    def kinds(self) -> tuple[BrokerKind, ...]:
        """The brokers that are meant."""
        return (BrokerKind.REDIS, BrokerKind.RABBITMQ) if self is BrokerKind.BOTH else (self,)

    @property
    def shown(self) -> str:
        """Its name, for people."""
        return "RabbitMQ" if self is BrokerKind.RABBITMQ else "Redis"


class Pool(StrEnum):
    """Celery's pools that a worker of ours may have."""

    PREFORK = "prefork"
    SOLO = "solo"
    THREADS = "threads"

    @property
    def size(self) -> int:
        """How many tasks it runs at a time: one process each, and in one of them four threads."""
        return 4 if self is Pool.THREADS else 1


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Attributes:
        rounds: rounds that count; one more, the first, is dropped.
        messages: of one kind, that are worked off in one go.
        samples: triggers timed one by one in a round, and tasks beside them.
        duplicates: triggers in a turn that have nothing left to do.
        slices: turns of each contender in a round of them.
        longest_pause_seconds: between two samples; drawn evenly.
    """

    rounds: int
    messages: int
    samples: int
    duplicates: int
    slices: int
    longest_pause_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of `python -m benchmarks worker`.

    Attributes:
        rounds: None: as many as is usual, or one where ``quick``.
        broker: which brokers.
        redis_url: one's own Redis as the cache; None: an embedded one.
        neo4j_uri: one's own graph; None: an embedded one.
        only: names of groups; empty: all.
        quick: little of everything, in less than a minute: it shows that all works, not how fast.
        seed: of what is drawn.
        out: folder for what was measured.
    """

    rounds: int | None = None
    broker: BrokerKind = BrokerKind.REDIS
    redis_url: str | None = None
    neo4j_uri: str | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def scale(self) -> Scale:
        """How much that is."""
        if self.quick:
            return Scale(self.rounds or 1, 30, 5, 50, 2, 0.005)
        return Scale(self.rounds or DEFAULT_ROUNDS, 400, 100, 100, 8, 0.03)
