"""A herd: its processes, and what one run of all of them at once came to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, cast

from benchmarks.errors import BenchError
from benchmarks.herd.flock import run_flock
from benchmarks.herd.loads import Loads
from benchmarks.herd.readers import Maker, Read
from benchmarks.processes import END_SECONDS, Child, end_children, start_child
from benchmarks.statistics import percentile

PROCESSES: Final = 4
_ANSWER_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to; ``recomputes`` are the loads that it caused."""

    reads: list[Read]
    recomputes: int

    @property
    def errors(self) -> Counter[str]:
        """How many reads failed, by what they raised."""
        return Counter(read.error for read in self.reads if read.error)

    def percentile_ms(self, percent: float, *, from_start: bool = False) -> float:
        """Return a percentile of what the reads took, in ms; counted from the common start, if so asked."""
        took = [read.took + (max(0.0, read.began) if from_start else 0.0) for read in self.reads]
        return percentile(took, percent) * 1000


@dataclass(frozen=True, slots=True)
class Size:
    """``readers`` in all ``processes`` together, told ``lead_seconds`` ahead when to read."""

    readers: int
    lead_seconds: float
    processes: int = PROCESSES
    quiet_seconds: float = _QUIET_SECONDS


class Herd:
    """Readers in several processes, which stay for several runs. A context manager.

    Args:
        maker: what they read with.
        loads: what they cause.
        size: how many there are.
        uvloop: whether their tasks run on uvloop.
    """

    def __init__(self, maker: Maker, loads: Loads, size: Size, *, uvloop: bool = False) -> None:
        self._loads, self._size = loads, size
        self._flocks: list[Child] = []
        for _ in range(size.processes):
            self._flocks.append(start_child(run_flock, maker, uvloop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_children(self._flocks)

    def read_alone(self, number: int, *, process: int = 0) -> None:
        """Let one reader of one process read a number, and no other."""
        one = self._flocks[process : process + 1]
        self._send((number, 1), one)
        self._answers(one)
        self._send(time.monotonic(), one)
        self._answers(one)

    def aim(self, number: int, *, readers: int | None = None) -> float:
        """Get all readers, or so many of them, ready to read a number, and return the moment for it (monotonic, s).

        Loads of this number from now on are those that the readers cause.
        """
        self._send((number, (readers or self._size.readers) // self._size.processes), self._flocks)
        self._answers(self._flocks)
        self._loads.forget(number)
        return time.monotonic() + self._size.lead_seconds

    def fire(self, at: float, number: int) -> Outcome:
        """Let all read at ``at``; back when the last of them has, and all that they caused is done.

        Raises:
            BenchError: a process ended, or gave no answer within five minutes.
        """
        self._send(at, self._flocks)
        reads = [read for answer in self._answers(self._flocks) for read in cast("list[Read]", answer)]
        return Outcome(reads, self._loads_when_quiet(number))

    def _loads_when_quiet(self, number: int) -> int:
        """Return how many loads of this number there were, once nothing is queued or running any more."""
        quiet_since = time.monotonic()
        give_up_at = quiet_since + _ANSWER_SECONDS
        while time.monotonic() < min(quiet_since + self._size.quiet_seconds, give_up_at):
            if self._loads.are_due(number):
                quiet_since = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return self._loads.count(number)

    def _send(self, message: object, flocks: Sequence[Child]) -> None:
        for _, pipe in flocks:
            pipe.send(message)

    def _answers(self, flocks: Sequence[Child]) -> list[object]:
        answers = []
        for process, pipe in flocks:
            if not pipe.poll(_ANSWER_SECONDS):
                raise BenchError(f"a process of readers gave no answer within {_ANSWER_SECONDS:g} s")
            try:
                answers.append(pipe.recv())
            except EOFError:
                process.join(END_SECONDS)
                raise BenchError(f"a process of readers ended with {process.exitcode}") from None
        return answers
