"""What a benchmark was asked to do, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.payloads import PayloadKind

DEFAULT_ROUNDS: Final = 7
MAX_ROUNDS: Final = 1_000
DEFAULT_READERS: Final = 10_000
MAX_HERD_ROUNDS: Final = 3  # ten thousand threads hold a small machine for many seconds
MAX_READERS: Final = 100_000
DEFAULT_OUT: Final = Path("bench-results/hits")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Attributes:
        rounds: rounds that count; one more, the first, is dropped.
        slices: turns that everyone has in a round.
        slice_seconds: how long a turn takes, about.
        latencies: reads timed one by one, of each kind in each round.
        readers: concurrent readers of a herd, over all its processes.
        herd_rounds: rounds of a herd that count.
        lead_seconds: how far ahead its readers are told when to read.
        entries: of the large cache, and of the small one that it is compared with.
    """

    rounds: int
    slices: int
    slice_seconds: float
    latencies: int
    readers: int
    herd_rounds: int
    lead_seconds: float
    entries: tuple[int, int]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of `python -m benchmarks hits`.

    Attributes:
        rounds, readers: None: as much as is usual, or little where ``quick``.
        redis_url: one's own Redis as the cache; None: an embedded one.
        only: names of groups; empty: all.
        quick: little of everything, in less than a minute: it shows that all works, not how fast.
        full: with what takes minutes and gigabytes, too.
        uvloop: run asyncio on uvloop.
        payload: which values.
        seed: of what is drawn.
        out: folder for JSON and CSV.
    """

    rounds: int | None = None
    readers: int | None = None
    redis_url: str | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    full: bool = False
    uvloop: bool = False
    payload: PayloadKind = PayloadKind.ROWS
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def scale(self) -> Scale:
        """How much that is."""
        if self.quick:
            rounds = self.rounds or 1
            return Scale(rounds, 2, 0.01, 100, self.readers or 200, 1, 0.3, (2_000, 1_000))
        rounds = self.rounds or DEFAULT_ROUNDS
        return Scale(
            rounds,
            8,
            0.05,
            2_000,
            self.readers or DEFAULT_READERS,
            min(rounds, MAX_HERD_ROUNDS),
            1.0,
            (1_000_000, 1_000),
        )
