"""Process of readers that read until they are stopped, and their records.

Each reader's own first read is marked, and those before it that failed: with it, all are connected and the cache is
warm.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import redis

from benchmarks.apparatus.loops import await_if_needed, run_on_thread
from benchmarks.stampede.config import Config, Kind
from benchmarks.stampede.recorder import CURRENT_READ, NO_MARK, Mark, ReadRecord
from benchmarks.stampede.strategies.strategy import Cache, Strategy, Value
from benchmarks.stampede.variants import BY_NAME

READ: Final = struct.Struct("<ddB")
"""Trace of a read: its begin (monotonic seconds), its duration (s), its marks."""
NUMBER: Final = 1
STALE_SLACK_SECONDS: Final = 0.05
"""Between the end of a recompute, from which age counts here, and the write, from which it counts in the cache."""
_FLUSH_SECONDS: Final = 0.5
_LAST_READ_SECONDS: Final = 1.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.01, 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """Task of a process of readers.

    Attributes:
        strategy, variant: names.
        kind: who its readers are.
        config: of the scenario.
        readers: how many there are in this process.
        interval_seconds: between the begins of a reader's reads; None: random pauses between two of them.
        seed: of its pauses.
    """

    strategy: str
    variant: str
    kind: Kind
    config: Config
    readers: int
    interval_seconds: float | None
    seed: int


def reads_key(variant: str) -> str:
    """Return the name of the list that takes what a variant's readers leave."""
    return f"stampede-reads:{variant}"


def errors_key(variant: str) -> str:
    """Return the name of the hash that counts a variant's errors by what they were."""
    return f"stampede-errors:{variant}"


def run_readers(pipe: Any, job: Job) -> None:
    """Wait until the other side of the pipe says so, then read until it says something again, or is closed."""
    try:
        pipe.recv()
    except EOFError:
        return
    strategy = BY_NAME[job.strategy](job.config, job.variant)
    log, stop = _Log(job), threading.Event()
    if strategy.is_on_loop(job.kind):
        asyncio.run(_on_loop(strategy, job, log, stop, pipe))
    else:
        _on_threads(strategy, job, log, stop, pipe)
    log.flush()


class _Log:
    """The reads of this process, on their way to a Redis that no cache uses."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._control = redis.Redis.from_url(job.config.servers.control_url)
        self._reads: list[bytes] = []
        self._errors: Counter[str] = Counter()

    def add(self, began: float, read_record: ReadRecord, value: Value | None, error: str) -> None:
        now = time.monotonic()
        if value is not None:
            if value["number"] != NUMBER:
                error = "wrong value"
            elif now - value["made_at"] > self._job.config.expires_seconds + STALE_SLACK_SECONDS:
                read_record.add(Mark.STALE)
        if error:
            read_record.add(Mark.ERROR)
            self._errors[error] += 1
        if Mark.COMPUTED in read_record.marks and Mark.MISS not in read_record.marks:
            read_record.add(Mark.EARLY)
        self._reads.append(READ.pack(began, now - began, read_record.marks))

    def flush(self) -> None:
        reads, self._reads = self._reads, []
        errors, self._errors = self._errors, Counter()
        if reads:
            self._control.rpush(reads_key(self._job.variant), b"".join(reads))
        for error, times in errors.items():
            self._control.hincrby(errors_key(self._job.variant), error, times)


class _Pace:
    """Schedule of one reader."""

    def __init__(self, job: Job, number: int) -> None:
        self._rng = random.Random(json.dumps([job.seed, number]))  # noqa: S311 - no secret
        self._interval = job.interval_seconds
        spread = self._interval if self._interval is not None else _MAX_PAUSE_SECONDS
        self._due = time.monotonic() + self._rng.uniform(0.0, spread)

    def seconds_left(self) -> float:
        """Return how long to wait for the next read."""
        return max(0.0, self._due - time.monotonic())

    def has_read(self) -> None:
        now = time.monotonic()
        if self._interval is None:
            self._due = now + self._rng.uniform(_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        else:
            self._due = max(now, self._due + self._interval)


def _on_threads(strategy: Strategy, job: Job, log: _Log, stop: threading.Event, pipe: Connection) -> None:
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
    _flush_until_signalled(pipe, log)
    stop.set()
    until = time.monotonic() + _LAST_READ_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    cache.close()


async def _on_loop(strategy: Strategy, job: Job, log: _Log, stop: threading.Event, pipe: Connection) -> None:
    cache = await strategy.opened(on_loop=True)

    async def read_on(pace: _Pace) -> None:
        marks = Mark.FIRST
        while not stop.is_set():
            await asyncio.sleep(pace.seconds_left())
            marks = await _read(cache, log, marks)
            pace.has_read()

    tasks = [asyncio.create_task(read_on(_Pace(job, number))) for number in range(job.readers)]
    await asyncio.to_thread(_flush_until_signalled, pipe, log)
    stop.set()  # for those whose cache keeps the cancellation to itself, see `raise_if_cancelled`
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cache.close()


async def _read(cache: Cache, log: _Log, marks: Mark) -> Mark:
    """Read once, and return the marks of the reader's next read: after an error, those of a first one again."""
    read_record, value, error = ReadRecord(marks), None, ""
    CURRENT_READ.set(read_record)
    began = time.monotonic()
    try:
        value = await await_if_needed(cache.read(NUMBER))
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        error = type(problem).__name__
    log.add(began, read_record, value, error)
    return marks if error else NO_MARK


def _flush_until_signalled(pipe: Connection, log: _Log) -> None:
    while not _is_signalled(pipe):
        log.flush()


def _is_signalled(pipe: Connection) -> bool:
    """Wait a little, and return whether the other side said something or is gone."""
    try:
        return pipe.poll(_FLUSH_SECONDS)
    except OSError:
        return True
