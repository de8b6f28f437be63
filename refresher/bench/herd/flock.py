"""One process of a herd. It is told what is to be read, gets its readers ready, is told when, and tells what they met.

Over a pipe, in turn: (number, how many readers), or None for the end → ``READY`` → the common start (monotonic
seconds) → a list of `Read`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from api_client import CacheClient
from refresher.bench.herd.readers import (
    NOTHING,
    CashewsTasks,
    Kind,
    OurTasks,
    Read,
    nothing,
    our_threads,
    read_as_task,
    read_on_thread,
)
from refresher.bench.payloads import PayloadKind, value_of
from refresher.bench.places import Place
from refresher.bench.racing import run_on_loop

READY: Final = "ready"
_STACK_BYTES: Final = 256 * 1024  # of thousands of threads


def run_flock(pipe: Any, place: Place, kind: Kind, payload: PayloadKind, *, uvloop: bool) -> None:
    """Be a flock, until told to end."""
    if kind is Kind.THREADS:
        _run_threads(pipe, place, payload)
    else:
        run_on_loop(_run_tasks(pipe, place, kind, payload), uvloop=uvloop)


def _run_threads(pipe: Connection, place: Place, payload: PayloadKind) -> None:
    threading.stack_size(_STACK_BYTES)
    with CacheClient(place.settings()) as client:
        while (aim := pipe.recv()) is not None:
            number, size = aim
            pipe.send(_threads(client, number, size, payload, pipe))


def _threads(client: CacheClient, number: int, size: int, payload: PayloadKind, pipe: Connection) -> list[Read]:
    reads: list[Read] = []
    start = threading.Event()
    at = [0.0]
    read, expected = (nothing, None) if number == NOTHING else (our_threads(client), value_of(payload)(number))

    def run() -> None:
        start.wait()
        reads.append(read_on_thread(read, number, expected, at[0]))

    threads = [threading.Thread(target=run) for _ in range(size)]
    for thread in threads:
        thread.start()
    pipe.send(READY)
    at[0] = pipe.recv()  # far enough ahead that all of them are awake by then
    start.set()
    for thread in threads:
        thread.join()
    return reads


async def _run_tasks(pipe: Connection, place: Place, kind: Kind, payload: PayloadKind) -> None:
    make: Callable[..., Any] = OurTasks if kind is Kind.ASYNCIO else CashewsTasks
    readers = make(place, value_of(payload))
    # The loop must not stand still while the pipe is silent: clients have tasks of their own.
    while (aim := await asyncio.to_thread(pipe.recv)) is not None:
        number, size = aim
        expected = value_of(payload)(number)
        pipe.send(READY)
        at = await asyncio.to_thread(pipe.recv)
        tasks = [asyncio.create_task(read_as_task(readers.read, number, expected, at)) for _ in range(size)]
        pipe.send(list(await asyncio.gather(*tasks)))
    await readers.close()
