"""Processes of one variant's readers, which read until they are stopped, and their records.

Each reader's first successful read is marked, and any failed ones before it: after them all are connected, and the
cache is warm. The messages on a process's pipe: ``go`` → batches of reads and errors, twice a second, until ``stop``.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from multiprocessing.connection import Connection
from operator import or_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.apparatus.loops import await_if_needed, run_on_thread
from benchmarks.apparatus.processes import END_SECONDS, Child, end_children, start_child
from benchmarks.stampede.config import PROCESSES, Config, Kind, Scale
from benchmarks.stampede.recorder import CURRENT_READ, Mark
from benchmarks.stampede.strategies.strategy import Cache, Strategy, Value
from benchmarks.stampede.variants import BY_NAME, Variant

NUMBER: Final = 1
READS: Final = np.dtype([("began", "<f8"), ("took", "<f8"), ("marks", "u1")])
"""Trace of a read: its start (monotonic seconds), its duration (s), its marks."""
_READ: Final = struct.Struct("<ddB")
_STALE_SLACK_SECONDS: Final = 0.05  # the age counts from the end of a recompute here, and from the write in the cache
_FLUSH_SECONDS: Final = 0.5
_LAST_READ_SECONDS: Final = 1.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.01, 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """Task of a reader process; ``interval_seconds`` is the time between a reader's reads, None for random pauses."""

    strategy: str
    variant: str
    kind: Kind
    config: Config
    readers: int
    interval_seconds: float | None
    seed: int


class ProcessGroup:
    """Reader processes, which have to be started, sent off and stopped."""

    def __init__(self, variant: Variant, config: Config, scale: Scale, seed: int) -> None:
        self.variant: Variant = variant
        self.errors: Counter[str] = Counter()
        self._workers = scale.workers
        self._reads: list[bytes] = []
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
        """Tell the readers to go or to stop, without waiting for that."""
        for _, pipe in self._children:
            with suppress(OSError):
                pipe.send(word)

    def stop(self) -> None:
        """Collect the rest after the readers were told to stop; return once their processes are gone."""
        for _, pipe in self._children:
            self._collect(pipe, END_SECONDS)
        end_children(self._children)

    def collect(self) -> None:
        for _, pipe in self._children:
            self._collect(pipe, 0.0)

    def _collect(self, pipe: Connection, within_seconds: float) -> None:
        with suppress(EOFError, OSError):  # the process has ended
            while pipe.poll(within_seconds):
                reads, errors = pipe.recv()
                self._reads.append(reads)
                self.errors.update(errors)

    def reads(self) -> NDArray[Any]:
        found: NDArray[Any] = np.sort(np.frombuffer(b"".join(self._reads), dtype=READS), order="began")
        return found

    def warm_since(self) -> float | None:
        """Return the time at which the last reader was first served (monotonic seconds), or None before that."""
        reads = self.reads()
        first = reads[(reads["marks"] & (Mark.FIRST | Mark.ERROR)) == Mark.FIRST]
        return None if len(first) < self._workers else float((first["began"] + first["took"]).max())


def run_readers(pipe: Connection, job: Job) -> None:
    """Wait for a message on the pipe, then read until there is another one, or the pipe is closed."""
    try:
        pipe.recv()
    except EOFError:
        return
    strategy = BY_NAME[job.strategy](job.config, job.variant)
    log, stop = _Log(job.config, pipe), threading.Event()
    if strategy.is_on_loop(job.kind):
        asyncio.run(_on_loop(strategy, job, log, stop))
    else:
        _on_threads(strategy, job, log, stop)
    log.flush()


class _Log:
    """Reads of this process, on their way to the parent."""

    def __init__(self, config: Config, pipe: Connection) -> None:
        self._expires_seconds, self._pipe = config.expires_seconds, pipe
        self._reads: list[bytes] = []
        self._errors: Counter[str] = Counter()

    def add(self, began: float, found: Sequence[Mark], value: Value | None, error: str) -> None:
        marks, now = reduce(or_, found, Mark.NONE), time.monotonic()
        if value is not None:
            if value["number"] != NUMBER:
                error = "wrong value"
            elif now - value["made_at"] > self._expires_seconds + _STALE_SLACK_SECONDS:
                marks |= Mark.STALE
        if error:
            marks |= Mark.ERROR
            self._errors[error] += 1
        if Mark.COMPUTED in marks and Mark.MISS not in marks:
            marks |= Mark.EARLY
        self._reads.append(_READ.pack(began, now - began, marks))

    def flush(self) -> None:
        reads, self._reads = self._reads, []
        errors, self._errors = self._errors, Counter()
        with suppress(OSError):
            self._pipe.send((b"".join(reads), errors))

    def flush_until_signalled(self) -> None:
        """Flush until the other side has sent something or is gone."""
        with suppress(OSError):
            while not self._pipe.poll(_FLUSH_SECONDS):
                self.flush()


class _Pace:
    """Schedule of one reader."""

    def __init__(self, job: Job, number: int) -> None:
        self._rng = random.Random(json.dumps([job.seed, number]))  # noqa: S311 - no secret
        self._interval = job.interval_seconds
        spread = self._interval if self._interval is not None else _MAX_PAUSE_SECONDS
        self._due = time.monotonic() + self._rng.uniform(0.0, spread)

    def seconds_left(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def has_read(self) -> None:
        now = time.monotonic()
        if self._interval is None:
            self._due = now + self._rng.uniform(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        else:
            self._due = max(now, self._due + self._interval)


def _on_threads(strategy: Strategy, job: Job, log: _Log, stop: threading.Event) -> None:
    cache = run_on_thread(strategy.opened(on_loop=False))

    def read_on(pace: _Pace) -> None:
        marks = Mark.FIRST
        while not stop.wait(pace.seconds_left()):
            marks = run_on_thread(_read(cache, log, marks))
            pace.has_read()

    threads = [
        threading.Thread(target=read_on, args=(_Pace(job, number),), daemon=True) for number in range(job.readers)
    ]
    for thread in threads:
        thread.start()
    log.flush_until_signalled()
    stop.set()
    until = time.monotonic() + _LAST_READ_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    cache.close()


async def _on_loop(strategy: Strategy, job: Job, log: _Log, stop: threading.Event) -> None:
    cache = await strategy.opened(on_loop=True)

    async def read_on(pace: _Pace) -> None:
        marks = Mark.FIRST
        while not stop.is_set():
            await asyncio.sleep(pace.seconds_left())
            marks = await _read(cache, log, marks)
            pace.has_read()

    tasks = [asyncio.create_task(read_on(_Pace(job, number))) for number in range(job.readers)]
    await asyncio.to_thread(log.flush_until_signalled)
    stop.set()  # for readers whose cache swallows the cancellation, see `raise_if_cancelled`
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cache.close()


async def _read(cache: Cache, log: _Log, first: Mark) -> Mark:
    """Read once, and return the mark for the reader's next read, which after an error is a first one again."""
    marks, value, error = [first], None, ""
    CURRENT_READ.set(marks)
    began = time.monotonic()
    try:
        value = await await_if_needed(cache.read(NUMBER))
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        error = type(problem).__name__
    log.add(began, marks, value, error)
    return first if error else Mark.NONE
