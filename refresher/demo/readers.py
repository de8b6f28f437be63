"""Reader processes: spawned, so that they share nothing but the cache, and ended with their parent."""

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
from refresher.demo.reader_thread import Key, ReaderThread, Report, ReportBuffer

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

REPORT_SECONDS: Final = 0.25
THREADS: Final = 8
"""Threads per process, so that reads go on while one waits on a cold key."""

_KILL_SECONDS: Final = 2.0


class Readers:
    """The reader processes of a run.

    Args:
        environ: the settings of their clients; passed through a pipe, so that no process list shows it.
        keys, weights: what they read.
        processes: how many.
        reads_per_second: of all of them together.
        seed: each thread draws from its own, derived from this one.
        on_report: called with each process's report, four times a second, on the caller's thread of `collect`.
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
        on_report: Callable[[Report], None],
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.RawValue("b", 0)
        self._worker_is_gone = self._context.RawValue("b", 0)
        self._processes: list[SpawnProcess] = []
        self._connections: list[connection.Connection] = []
        self._on_report = on_report
        interval_seconds = processes * THREADS / reads_per_second
        self._arguments = [
            (dict(environ), list(keys), list(weights), seed * 1_000 + number, interval_seconds)
            for number in range(processes)
        ]

    def start(self) -> None:
        """Start them; reads begin half a second later."""
        with _sigint_blocked_in_children():
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
        """Tell the readers whether a worker is alive; reads without one are counted separately."""
        self._worker_is_gone.value = int(gone)

    def collect(self, timeout_seconds: float) -> None:
        """Receive reports for up to ``timeout_seconds``.

        Raises:
            DemoError: a process ended before `stop`.
        """
        ready = connection.wait(self._connections, timeout_seconds)
        for mine in [each for each in self._connections if each in ready]:
            try:
                self._on_report(mine.recv())
            except EOFError:
                self._connections.remove(mine)
                if not self._stop.value:
                    raise DemoError("a reader process ended unexpectedly; its error is above") from None

    def stop(self, within_seconds: float) -> None:
        """End the reads, and receive the last reports; waiting reads may end first, within ``within_seconds``."""
        self._stop.value = 1
        deadline = time.monotonic() + within_seconds
        while self._connections and time.monotonic() < deadline:
            self.collect(REPORT_SECONDS)

    def close(self) -> None:
        """End the processes unconditionally."""
        self._stop.value = 1
        for process in self._processes:
            process.join(REPORT_SECONDS)
            process.kill()
            process.join(_KILL_SECONDS)
        for mine in self._connections:
            mine.close()


@contextmanager
def _sigint_blocked_in_children() -> Iterator[None]:
    """Block Ctrl-C, which a terminal sends to the whole process group, in processes that are started in the block.

    They inherit the mask. Here it is deferred to the end of the block by a handler, since the system may deliver the
    signal to another thread, and Python then interrupts this one all the same.

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

    _exit_with_the_parent()
    buffer = ReportBuffer()
    with CacheClient(ReaderSettings.from_env(environ), events=buffer) as client:
        threads = [
            threading.Thread(
                target=ReaderThread(
                    client, buffer, keys, weights, seed=seed * THREADS + number, interval_seconds=interval_seconds,
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
            report.send(buffer.take())
    report.send(buffer.take())


def _exit_with_the_parent() -> None:
    """Exit at once when the parent has ended, also by SIGKILL."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
