"""Stampedes: thousands of readers of one key in several processes, all at the same moment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import redis

from benchmarks.apparatus.processes import Child, end_children, replies, start_child
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import percentile
from benchmarks.apparatus.worker_proc import Read, ReaderFactory, run_reader_process


class Loads(Protocol):
    """Counts loads."""

    def reset(self, number: int) -> None:
        """Count this number's anew."""

    def count(self, number: int) -> int:
        """Return how many loads of this number there were since."""

    def are_pending(self, number: int) -> bool:
        """Return whether one runs, or is queued."""


class Queues:
    """Queues of the broker."""

    def __init__(self, servers: Servers, *names: str) -> None:
        self._broker, self._names = redis.Redis.from_url(servers.broker_url), names

    def are_busy(self) -> bool:
        """Return whether a message waits in one of them, or is with a worker."""
        return bool(self._broker.hlen("unacked") or any(self._broker.llen(name) for name in self._names))


PROCESSES: Final = 4
_ANSWER_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 1.0  # longer than from a trigger to its load, on a busy machine
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one run; ``recomputes`` are the loads that it caused."""

    reads: list[Read]
    recomputes: int

    @property
    def errors(self) -> Counter[str]:
        """Number of failed reads by the name of the error."""
        return Counter(read.error for read in self.reads if read.error)

    def percentile_ms(self, percent: float, *, from_start: bool = False) -> float:
        """Return a percentile of what the reads took, in ms; counted from the common start, where ``from_start``."""
        took = [read.took + (max(0.0, read.began) if from_start else 0.0) for read in self.reads]
        return percentile(took, percent) * 1000


@dataclass(frozen=True, slots=True)
class Size:
    """``readers`` in all ``processes`` together, which get the common start ``lead_seconds`` ahead."""

    readers: int
    lead_seconds: float
    processes: int = PROCESSES
    quiet_seconds: float = _QUIET_SECONDS


class Stampede:
    """Readers in several processes, which stay for several runs. A context manager.

    Args:
        factory: what they read with.
        loads: what they cause.
        size: how many there are.
        uvloop: whether their tasks run on uvloop.
    """

    def __init__(self, factory: ReaderFactory, loads: Loads, size: Size, *, uvloop: bool = False) -> None:
        self._loads, self._size = loads, size
        self._processes: list[Child] = []
        for _ in range(size.processes):
            self._processes.append(start_child(run_reader_process, factory, uvloop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_children(self._processes)

    def read_alone(self, number: int, *, process: int = 0) -> None:
        """Let one reader of one process read a number, and no other."""
        one = self._processes[process : process + 1]
        self._send((number, 1), one)
        replies(one, _ANSWER_SECONDS)
        self._send(time.monotonic(), one)
        replies(one, _ANSWER_SECONDS)

    def prepare(self, number: int, *, readers: int | None = None) -> float:
        """Get all readers, or so many of them, ready to read a number, and return the moment for it (monotonic, s).

        Loads of this number from now on are those that the readers cause.
        """
        self._send((number, (readers or self._size.readers) // self._size.processes), self._processes)
        replies(self._processes, _ANSWER_SECONDS)
        self._loads.reset(number)
        return time.monotonic() + self._size.lead_seconds

    def release(self, at: float, number: int) -> Outcome:
        """Let all read at ``at``; back when the last of them has, and all that they caused is done.

        Raises:
            BenchError: a process ended, or gave no answer within five minutes.
        """
        self._send(at, self._processes)
        reads = [read for answer in replies(self._processes, _ANSWER_SECONDS) for read in answer]
        return Outcome(reads, self._loads_when_quiet(number))

    def _loads_when_quiet(self, number: int) -> int:
        """Return how many loads of this number there were, once nothing is queued or running any more."""
        quiet_since = time.monotonic()
        give_up_at = quiet_since + _ANSWER_SECONDS
        while time.monotonic() < min(quiet_since + self._size.quiet_seconds, give_up_at):
            if self._loads.are_pending(number):
                quiet_since = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return self._loads.count(number)

    def _send(self, message: object, processes: Sequence[Child]) -> None:
        for _, pipe in processes:
            pipe.send(message)
