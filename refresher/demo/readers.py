"""The reader processes: started apart, so that they share nothing but the cache, and gone with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING, Any, Final

from refresher.demo.errors import DemoError
from refresher.demo.reader_thread import Key, NotePad, Notes, ReaderThread

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

REPORT_SECONDS: Final = 0.25
THREADS: Final = 8
"""Threads of a process. One that waits on a cold key must not keep the others from reading."""

_KILL_SECONDS: Final = 2.0


class Readers:
    """The reader processes of a run.

    Args:
        environ: the settings of their clients; handed over through a pipe, so nobody sees it in a process list.
        keys, weights: what they ask for.
        processes: how many.
        reads_per_second: of all of them together.
        seed: each thread draws from its own, made of this one.
        on_notes: called with what a process has noted, four times a second each, on the caller's thread of `collect`.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        keys: Sequence[Key],
        weights: Sequence[float],
        *,
        processes: int,
        reads_per_second: float,
        seed: int,
        on_notes: Callable[[Notes], None],
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.RawValue("b", 0)
        self._worker_is_gone = self._context.RawValue("b", 0)
        self._processes: list[SpawnProcess] = []
        self._connections: list[connection.Connection] = []
        self._on_notes = on_notes
        interval_seconds = processes * THREADS / reads_per_second
        self._arguments = [
            (dict(environ), list(keys), list(weights), seed * 1_000 + number, interval_seconds)
            for number in range(processes)
        ]

    def start(self) -> None:
        """Start them; reads begin half a second later."""
        with _ctrl_c_is_ours():
            for arguments in self._arguments:
                mine, theirs = self._context.Pipe(duplex=False)
                process = self._context.Process(
                    target=_reader_process, args=(theirs, self._stop, self._worker_is_gone, *arguments), daemon=True
                )
                process.start()
                theirs.close()
                self._processes.append(process)
                self._connections.append(mine)

    def set_worker_is_gone(self, *, gone: bool) -> None:
        """Tell the readers whether a worker is alive, so that they count apart what they read without one."""
        self._worker_is_gone.value = int(gone)

    def collect(self, timeout_seconds: float) -> None:
        """Take in what they have to tell, for up to ``timeout_seconds``.

        Raises:
            DemoError: a process ended before it was told to.
        """
        ready = connection.wait(self._connections, timeout_seconds)
        for mine in [each for each in self._connections if each in ready]:
            try:
                self._on_notes(mine.recv())
            except EOFError:
                self._connections.remove(mine)
                if not self._stop.value:
                    raise DemoError("a reader process ended unexpectedly; its last words are above") from None

    def stop(self, within_seconds: float) -> None:
        """End the reads, and take in the last of what they counted; a read that waits may end first, if it can."""
        self._stop.value = 1
        deadline = time.monotonic() + within_seconds
        while self._connections and time.monotonic() < deadline:
            self.collect(REPORT_SECONDS)

    def close(self) -> None:
        """End the processes, whatever they do."""
        self._stop.value = 1
        for process in self._processes:
            process.join(REPORT_SECONDS)
            process.kill()
            process.join(_KILL_SECONDS)
        for mine in self._connections:
            mine.close()


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Let processes that are started meanwhile not see Ctrl-C, which a terminal sends to all of a group.

    They inherit that it is blocked. Here it is held back until the end of the block: by a handler of our own, since
    the system may give the signal to another thread, and Python then interrupts this one all the same.

    Raises:
        KeyboardInterrupt: at the end, when it came meanwhile.
    """
    # The tracker that `multiprocessing` starts by itself resets the mask, so it goes first.
    resource_tracker.ensure_running()
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def _reader_process(
    report: connection.Connection,
    stop: Any,
    worker_is_gone: Any,
    environ: Mapping[str, str],
    keys: Sequence[Key],
    weights: Sequence[float],
    seed: int,
    interval_seconds: float,
) -> None:
    from api_client import CacheClient, ReaderSettings

    _end_with_the_parent()
    pad = NotePad()
    with CacheClient(ReaderSettings.from_env(environ), events=pad.events) as client:
        threads = [
            threading.Thread(
                target=ReaderThread(
                    client, pad, keys, weights, seed=seed * THREADS + number, interval_seconds=interval_seconds,
                    worker_is_gone=lambda: bool(worker_is_gone.value),
                ).run,
                args=(lambda: bool(stop.value),),
                daemon=True,
            )
            for number in range(THREADS)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(REPORT_SECONDS)
            report.send(pad.take())
    report.send(pad.take())


def _end_with_the_parent() -> None:
    """Leave at once when the parent has ended, also by SIGKILL."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
