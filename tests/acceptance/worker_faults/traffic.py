"""Readers and a writer that go on while a fault is injected."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from api_client import CacheError, EntryState
from tests.acceptance.worker_faults.conftest import World
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

READERS: Final = 2
KEYS: Final = 6
READ_PAUSE_SECONDS: Final = 0.02
WRITE_PAUSE_SECONDS: Final = 0.1


class Traffic:
    """Reads all of its keys over and over, and changes one of them every tenth of a second, as a context manager.

    An error of the cache is counted in ``errors``; a stale value that is served as fresh, or any other
    error, is raised at the end. Values of all keys are there before it begins, and a worker.
    """

    def __init__(self, world: World, *, seed: int = 1, replicas: int = 0) -> None:
        self._world, self._random, self._replicas = world, random.Random(seed), replicas  # noqa: S311 - reproducible
        world.worker()
        self.keys = [world.new_key() for _ in range(KEYS)]
        for key in self.keys:
            world.read(key, timeout=MAX_WAIT_SECONDS)
        self.errors: Counter[str] = Counter()
        self.reads: Counter[EntryState] = Counter()
        self.writes = 0
        self._failures: list[BaseException] = []
        self._ends = threading.Event()
        self._threads = [
            threading.Thread(target=self._go_on, args=(self._read, READ_PAUSE_SECONDS)) for _ in range(READERS)
        ]
        self._threads.append(threading.Thread(target=self._go_on, args=(self._write, WRITE_PAUSE_SECONDS)))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()
        if self._failures and error is None:
            raise self._failures[0]

    def _go_on(self, act: Callable[[], None], pause_seconds: float) -> None:
        try:
            while not self._ends.wait(pause_seconds):
                self._answered(act)
        except BaseException as failure:  # noqa: BLE001 - raised at the end, on the test's thread
            self._failures.append(failure)

    def _answered(self, act: Callable[[], None]) -> None:
        try:
            act()
        except CacheError as error:
            self.errors[type(error).__name__] += 1

    def _read(self) -> None:
        for key in self.keys:
            self.reads[self._world.read(key, timeout=1).state] += 1

    def _write(self) -> None:
        self.writes += 1
        self._world.write(self._random.choice(self.keys), replicas=self._replicas)

    def goes_on_for(self, writes: int) -> None:
        """Return after ``writes`` more attempts to invalidate, at most ten per second: a fault lasts that long."""
        until = self.writes + writes
        eventually(lambda: self._failures or self.writes >= until, "traffic goes on")
