"""Process of a stampede's readers, as threads or as tasks.

Over a pipe, in turn: (number, how many readers), or its end → ``READY`` → the common start (monotonic seconds) → a
list of `Read`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Protocol

from benchmarks.apparatus.entries import Value
from benchmarks.apparatus.loops import run_on_loop

WRONG: Final = "wrong value"


class Read(NamedTuple):
    """One read: when it began after the common start, how long it took (s), and what went wrong, or nothing."""

    began: float
    took: float
    error: str


class ThreadReaders(Protocol):
    """Reader that the threads of a process share."""

    def read(self, number: int) -> Value:
        """Read a number."""

    def is_right(self, number: int, value: Value) -> bool:
        """Return whether that is its value."""

    def close(self) -> None:
        """Disconnect."""


class TaskReaders(Protocol):
    """Reader that the tasks of a process share."""

    async def read(self, number: int) -> Value:
        """Read a number."""

    def is_right(self, number: int, value: Value) -> bool:
        """Return whether that is its value."""

    async def close(self) -> None:
        """Disconnect."""


class ReaderFactory(ABC):
    """Factory of what a process of readers reads with; it is sent to that process."""

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


READY: Final = "ready"


def run_reader_process(pipe: Any, factory: ReaderFactory, uvloop: bool) -> None:  # noqa: FBT001 - the arguments of a process
    """Serve requests for reads until the other side of the pipe is closed."""
    try:
        if factory.on_threads:
            _run_threads(pipe, factory.threads())
        else:
            run_on_loop(_run_tasks(pipe, factory), uvloop=uvloop)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _run_threads(pipe: Connection, readers: ThreadReaders) -> None:
    try:
        while True:
            number, size = pipe.recv()
            pipe.send(_threads(readers, number, size, pipe))
    finally:
        readers.close()


def _threads(readers: ThreadReaders, number: int, size: int, pipe: Connection) -> list[Read]:
    reads: list[Read] = []
    start = threading.Event()
    at = [0.0]

    def run() -> None:
        start.wait()
        reads.append(read_on_thread(readers, number, at[0]))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(size)]
    for thread in threads:
        thread.start()
    pipe.send(READY)
    at[0] = pipe.recv()  # far enough ahead that all of them are awake by then
    start.set()
    for thread in threads:
        thread.join()
    return reads


async def _run_tasks(pipe: Connection, factory: ReaderFactory) -> None:
    readers: TaskReaders = await factory.tasks()
    try:
        # The loop must not stand still while the pipe is silent: clients have tasks of their own.
        while True:
            number, size = await asyncio.to_thread(pipe.recv)
            pipe.send(READY)
            at = await asyncio.to_thread(pipe.recv)
            tasks = [asyncio.create_task(read_as_task(readers, number, at)) for _ in range(size)]
            pipe.send(list(await asyncio.gather(*tasks)))
    finally:
        await readers.close()
