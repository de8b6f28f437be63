"""What `python -m benchmarks stampede` was asked to do, and what each scenario makes of what was left open."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from benchmarks.stampede.terms import Kind, OriginKind

DEFAULT_OUT: Final = Path("bench-results/stampede")
MAX_WORKERS: Final = 100_000
MAX_SECONDS: Final = 86_400.0
MAX_ROUNDS: Final = 100


class Scenario(StrEnum):
    """What is played."""

    WORKERS = "workers"
    """Readers that pause between two reads, for a minute: the classic harness."""
    HOT_KEY = "hot-key"
    """As many reads as a second gives, and the holder of the lease is killed in the middle of its work."""
    HERD = "herd"
    """All readers at the same moment: when the value expires, and when there is none."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much one scenario is. Durations in seconds.

    Attributes:
        workers: readers of each strategy.
        expires, delta, lease: see `Terms`.
        seconds: that are counted.
        rate: reads a second of all readers together; None: pauses of 10 ms to 1 s between two reads.
        abreast: how many strategies run at the same time.
        rounds: of a herd, that count.
        lead: how far ahead a herd is told when to read.
    """

    workers: int
    expires: float
    delta: float
    lease: float
    seconds: float = 0.0
    rate: float | None = None
    abreast: int = 1
    rounds: int = 0
    lead: float = 0.0


# Of the first: the constants of the classic harness; of the second: a recompute of 200 ms and a lease of three times
# that, as leases are given; of the third: the load of the herds of `python -m benchmarks hits`.
_FULL: Final = {
    Scenario.WORKERS: Scale(50, 20.0, 0.5, 5.0, seconds=60.0, abreast=5),
    Scenario.HOT_KEY: Scale(256, 5.0, 0.2, 0.6, seconds=15.0, rate=20_000.0),
    Scenario.HERD: Scale(10_000, 2.0, 0.2, 5.0, rounds=3, lead=1.0),
}
_QUICK: Final = {
    Scenario.WORKERS: Scale(6, 1.5, 0.1, 30.0, seconds=3.5, abreast=10),
    Scenario.HOT_KEY: Scale(8, 1.5, 0.2, 0.6, seconds=4.0, rate=100.0, abreast=11),
    Scenario.HERD: Scale(200, 0.5, 0.1, 30.0, rounds=1, lead=0.2),
}


@dataclass(frozen=True, slots=True)
class StampedeOptions:
    """The options; None: the scenario's own.

    Attributes:
        scenarios: empty: the first; with ``quick`` all.
        strategies: names; empty: all.
        workers, readers, expires, delta, lease, seconds, rounds: see `Scale` and `Kind`.
        origin, beta, rnd_precision: see `Terms`.
        report_every: seconds between two reports.
        redis_url: one's own cache; None: an embedded one.
        quick: little of everything.
        seed: of pauses, orders and the graph.
        out: folder of the results.
    """

    scenarios: tuple[Scenario, ...] = ()
    strategies: tuple[str, ...] = ()
    workers: int | None = None
    readers: Kind | None = None
    expires: float | None = None
    delta: float | None = None
    lease: float | None = None
    seconds: float | None = None
    rounds: int | None = None
    origin: OriginKind = OriginKind.PAUSE
    beta: float = 1.0
    rnd_precision: int = 0
    report_every: float = 10.0
    redis_url: str | None = None
    quick: bool = False
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def played(self) -> tuple[Scenario, ...]:
        """The scenarios, in their order."""
        wanted = self.scenarios or (tuple(Scenario) if self.quick else (Scenario.WORKERS,))
        return tuple(scenario for scenario in Scenario if scenario in wanted)

    def scale(self, scenario: Scenario) -> Scale:
        """How much that is."""
        usual = (_QUICK if self.quick else _FULL)[scenario]
        return Scale(
            workers=self.workers or usual.workers,
            expires=self.expires or usual.expires,
            delta=self.delta or usual.delta,
            lease=self.lease or usual.lease,
            seconds=self.seconds or usual.seconds,
            rate=usual.rate,
            abreast=usual.abreast,
            rounds=self.rounds or usual.rounds,
            lead=usual.lead,
        )
