"""One reader of a herd: a read, timed by itself. What it reads with is made in its process, by a `Maker`."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, Protocol

from benchmarks.payloads import Value

WRONG: Final = "wrong value"


class Read(NamedTuple):
    """One read: when it began after the common start, how long it took (s), and what went wrong, or nothing."""

    began: float
    took: float
    error: str


class ThreadReaders(Protocol):
    """What the threads of a process read with."""

    def read(self, number: int) -> Value:
        """Read a number."""

    def is_right(self, number: int, value: Value) -> bool:
        """Whether that is its value."""

    def close(self) -> None:
        """Disconnect."""


class TaskReaders(Protocol):
    """What the tasks of a process read with."""

    async def read(self, number: int) -> Value:
        """Read a number."""

    def is_right(self, number: int, value: Value) -> bool:
        """Whether that is its value."""

    async def close(self) -> None:
        """Disconnect."""


class Maker(ABC):
    """Goes to the process of a flock, and makes there what it reads with."""

    on_threads: bool

    @abstractmethod
    def threads(self) -> ThreadReaders:
        """Make what threads read with."""

    @abstractmethod
    async def tasks(self) -> TaskReaders:
        """Make what tasks read with."""


def read_on_thread(readers: ThreadReaders, number: int, at: float) -> Read:
    """Read at ``at`` (monotonic seconds), whatever comes of it."""
    time.sleep(max(0.0, at - time.monotonic()))
    began, error = time.monotonic(), ""
    try:
        value = readers.read(number)
        took = time.monotonic() - began
        error = "" if readers.is_right(number, value) else WRONG
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        took, error = time.monotonic() - began, type(problem).__name__
    return Read(began - at, took, error)


async def read_as_task(readers: TaskReaders, number: int, at: float) -> Read:
    """Read at ``at``, as `read_on_thread`."""
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    began, error = time.monotonic(), ""
    try:
        value = await readers.read(number)
        took = time.monotonic() - began
        error = "" if readers.is_right(number, value) else WRONG
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        took, error = time.monotonic() - began, type(problem).__name__
    return Read(began - at, took, error)
