"""A herd: its processes, and what one run of all of them at once came to."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, Self, TypeAlias, cast

import redis

from api_client.broker_settings import miss_queue, refresh_queue
from refresher.bench.errors import BenchError
from refresher.bench.herd.flock import run_flock
from refresher.bench.herd.queries import marks_of
from refresher.bench.herd.readers import Kind, Read
from refresher.bench.options import BenchOptions
from refresher.bench.places import Place
from refresher.bench.statistics import percentile

Flock: TypeAlias = tuple[BaseProcess, Connection]

PROCESSES: Final = 4
_ANSWER_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0
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


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start what is started in here deaf to Ctrl-C: it is this process that ends it, and says so once."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Herd:
    """Readers in `PROCESSES` processes, which stay for several runs. A context manager."""

    def __init__(self, place: Place, kind: Kind, options: BenchOptions) -> None:
        self._place, self._scale = place, options.scale
        # Spawned: a fork would take over connections and threads of this process.
        spawn = multiprocessing.get_context("spawn")
        self._flocks: list[Flock] = []
        for _ in range(PROCESSES):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=run_flock,
                args=(theirs, place, kind, options.payload),
                kwargs={"uvloop": options.uvloop},
                daemon=True,
            )
            with _interrupts_ignored():
                process.start()
            theirs.close()
            self._flocks.append((process, ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, pipe in self._flocks:
            if process.is_alive():
                pipe.send(None)
        for process, pipe in self._flocks:
            process.join(_END_SECONDS)
            process.kill()
            pipe.close()

    def read_alone(self, number: int, *, process: int = 0) -> None:
        """Let one reader of one process read a number, and no other."""
        one = self._flocks[process : process + 1]
        self._send((number, 1), one)
        self._answers(one)
        self._send(time.monotonic(), one)
        self._answers(one)

    def aim(self, number: int) -> float:
        """Get all readers ready to read a number, and return the moment for it, a little ahead (monotonic seconds).

        Loads of this number from now on are those that the readers cause.
        """
        self._send((number, self._scale.readers // PROCESSES), self._flocks)
        self._answers(self._flocks)
        with redis.Redis.from_url(self._place.control_url) as control:
            control.delete(marks_of(number))
        return time.monotonic() + self._scale.lead_seconds

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
        queues = (miss_queue(self._place.namespace), refresh_queue(self._place.namespace))
        with (
            redis.Redis.from_url(self._place.broker_url) as broker,
            redis.Redis.from_url(self._place.control_url) as control,
        ):
            quiet_since = time.monotonic()
            give_up_at = quiet_since + _ANSWER_SECONDS
            while time.monotonic() < min(quiet_since + _QUIET_SECONDS, give_up_at):
                if broker.hlen("unacked") or any(broker.llen(queue) for queue in queues):
                    quiet_since = time.monotonic()
                time.sleep(_POLL_SECONDS)
            return int(control.llen(marks_of(number)))

    def _send(self, message: object, flocks: Sequence[Flock]) -> None:
        for _, pipe in flocks:
            pipe.send(message)

    def _answers(self, flocks: Sequence[Flock]) -> list[object]:
        answers = []
        for process, pipe in flocks:
            if not pipe.poll(_ANSWER_SECONDS):
                raise BenchError(f"a process of readers gave no answer within {_ANSWER_SECONDS:g} s")
            try:
                answers.append(pipe.recv())
            except EOFError:
                process.join(_END_SECONDS)
                raise BenchError(f"a process of readers ended with {process.exitcode}") from None
        return answers
