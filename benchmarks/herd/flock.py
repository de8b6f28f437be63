"""One process of a herd. It is told what is to be read, gets its readers ready, is told when, and tells what they met.

Over a pipe, in turn: (number, how many readers), or its end → ``READY`` → the common start (monotonic seconds) → a
list of `Read`.
"""

from __future__ import annotations

import asyncio
import threading
from multiprocessing.connection import Connection
from typing import Any, Final

from benchmarks.herd.readers import Maker, Read, TaskReaders, ThreadReaders, read_as_task, read_on_thread
from benchmarks.racing import run_on_loop

READY: Final = "ready"


def run_flock(pipe: Any, maker: Maker, uvloop: bool) -> None:  # noqa: FBT001 - the arguments of a process
    """Be a flock, until the other side of the pipe is closed."""
    try:
        if maker.on_threads:
            _run_threads(pipe, maker.threads())
        else:
            run_on_loop(_run_tasks(pipe, maker), uvloop=uvloop)
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


async def _run_tasks(pipe: Connection, maker: Maker) -> None:
    readers: TaskReaders = await maker.tasks()
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
