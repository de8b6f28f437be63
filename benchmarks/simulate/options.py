"""What `python -m benchmarks simulate` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

DEFAULT_OUT: Final = Path("bench-results/simulate")
MAX_KEYS: Final = 50_000_000
MAX_READERS: Final = 100_000
MAX_WORKERS: Final = 100_000


class Popularity(StrEnum):
    """How reads are shared among keys."""

    ZIPF = "zipf"
    RMAT = "rmat"


class Mode(StrEnum):
    """When a refresh may begin: when a value is stale, or before."""

    NONE = "none"
    PLAIN = "plain"
    TOPOLOGY_SENSITIVE = "topology_sensitive"


class Scenario(StrEnum):
    """What is simulated."""

    STEADY = "steady"
    CORRELATED_EXPIRY = "correlated-expiry"
    WORKER_OUTAGE = "worker-outage"
    SLOW_ORIGIN = "slow-origin"
    FLEET = "fleet"
    BETA = "beta"


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options. Times in seconds.

    Attributes:
        scenarios: empty: all.
        keys, reads_per_second, readers: of the whole; ``readers`` are processes.
        workers: processes; None: twice as many as the steady load keeps busy.
        seconds: the span.
        popularity, zipf_exponent: how reads are shared; the exponent is Zipf's.
        ttl_seconds, grace_seconds: of all entries.
        delta_seconds, delta_spread: what a load takes: its mean, and σ of its logarithm (0: always the same).
        beta: β0.
        mode: when refreshes begin.
        seed: of all that is drawn.
        validate: a real run, and the same one simulated, instead of the scenarios.
        quick: everything small.
        out: folder for the results.
    """

    scenarios: tuple[Scenario, ...] = ()
    keys: int = 10_000_000
    reads_per_second: float = 1_000_000.0
    readers: int = 1_000
    workers: int | None = None
    seconds: int = 600
    popularity: Popularity = Popularity.RMAT
    zipf_exponent: float = 1.0
    ttl_seconds: float = 3_600.0
    grace_seconds: float = 3_600.0
    delta_seconds: float = 0.05
    delta_spread: float = 0.0
    beta: float = 1.0
    mode: Mode = Mode.TOPOLOGY_SENSITIVE
    seed: int = 1
    validate: bool = False
    quick: bool = False
    out: Path = DEFAULT_OUT
