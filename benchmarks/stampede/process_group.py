"""Processes of one variant's readers, and the reads that they have recorded."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, Final, cast

import numpy as np
import redis
from numpy.typing import NDArray

from benchmarks.apparatus.processes import Child, end_children, start_child
from benchmarks.stampede.config import Config, Kind, Scale
from benchmarks.stampede.readers import READ, Job, errors_key, reads_key, run_readers
from benchmarks.stampede.recorder import Mark
from benchmarks.stampede.variants import Variant

READS: Final = np.dtype([("began", "<f8"), ("took", "<f8"), ("marks", "u1")])
PROCESSES: Final = 4
assert READS.itemsize == READ.size  # noqa: S101 - the two are one format


class ProcessGroup:
    """Readers that have been started, have to be sent off, and stopped."""

    def __init__(self, variant: Variant, config: Config, scale: Scale, seed: int, control: redis.Redis) -> None:
        self.variant: Variant = variant
        self._control, self._workers = control, scale.workers
        self._reads: list[NDArray[Any]] = []
        processes = scale.workers if variant.kind is Kind.PROCESSES else min(PROCESSES, scale.workers)
        interval = None if scale.rate is None else scale.workers / scale.rate
        self._children: list[Child] = []
        for number in range(processes):
            readers = scale.workers // processes + (number < scale.workers % processes)
            job = Job(variant.strategy.name, variant.name, variant.kind, config, readers, interval, seed + number)
            self._children.append(start_child(run_readers, job))

    @property
    def dead(self) -> int:
        """Number of processes that have ended by themselves."""
        return sum(process.exitcode is not None for process, _ in self._children)

    def send(self, word: str) -> None:
        """Tell the readers to go, or to stop, and don't wait for that."""
        for _, pipe in self._children:
            with suppress(OSError):
                pipe.send(word)

    def stop(self) -> None:
        """Take in what the readers leave, once they have stopped; back when their processes are gone."""
        end_children(self._children)
        self.collect()

    def collect(self) -> None:
        """Take in what the readers have left since."""
        batch = cast("list[bytes] | None", self._control.lpop(reads_key(self.variant.name), 1_000_000))
        if batch:
            self._reads.append(np.frombuffer(b"".join(batch), dtype=READS))

    def reads(self) -> NDArray[Any]:
        """Return all reads so far, by their begin."""
        if not self._reads:
            return np.empty(0, dtype=READS)
        self._reads = [np.concatenate(self._reads)]
        found: NDArray[Any] = np.sort(self._reads[0], order="began")
        return found

    def warm_since(self) -> float | None:
        """Return when the last reader had been served once, or None before that (monotonic seconds)."""
        reads = self.reads()
        first = reads[(reads["marks"] & (Mark.FIRST | Mark.ERROR)) == Mark.FIRST]
        return None if len(first) < self._workers else float((first["began"] + first["took"]).max())

    def errors(self) -> Counter[str]:
        """Return how many reads have failed, the first ones too, by what they raised."""
        found = cast("dict[bytes, bytes]", self._control.hgetall(errors_key(self.variant.name)))
        return Counter({name.decode(): int(times) for name, times in found.items()})
