"""Reader processes, spawned so that they share only the cache, and ended with their parent.

Each has some threads that read, count and check the values; it sends a report four times a second.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from api_client import (
    CacheClient,
    CacheError,
    Entry,
    EntryState,
    ReaderEvents,
    ReaderSettings,
    RefreshReason,
    RefreshState,
    WaitTimeout,
)
from refresher.checker.oracle import Observation
from refresher.demo.counts import Report, Tally
from refresher.demo.errors import DemoError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Key: TypeAlias = tuple[str, dict[str, object]]

REPORT_SECONDS: Final = 0.25
THREADS: Final = 8
"""Threads per process, so that reads go on while one waits on a cold key."""

CHECKED_QUERY: Final = "profile"
_DRAWS: Final = 4_096
_MAX_FAILURES_KEPT: Final = 5
_KILL_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """The reads of one process.

    Attributes:
        keys, weights: the keys, and their frequencies.
        interval_seconds: the time between the starts of two reads of a thread; reads missed during a slow one are
            skipped.
        seed: the seed from which each thread's own is derived.
    """

    keys: Sequence[Key]
    weights: Sequence[float]
    interval_seconds: float
    seed: int


class Readers:
    """The reader processes of a run.

    Args:
        environ: the settings of their clients, passed through a pipe so that no process list shows them.
        keys, weights: the keys that they read, and their frequencies.
        processes: the number of processes.
        reads_per_second: the rate of all processes together.
        seed: the seed of the draws.
        on_report: called with each process's report, four times a second, on the thread that calls `collect`.
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
        self._environ, self._on_report = dict(environ), on_report
        interval_seconds = processes * THREADS / reads_per_second
        self._loads = [Load(keys, weights, interval_seconds, seed * 1_000 + number) for number in range(processes)]

    def start(self) -> None:
        """Start the processes, whose reads begin half a second later."""
        with _sigint_blocked_in_children():
            for load in self._loads:
                mine, theirs = self._context.Pipe(duplex=False)
                arguments = (theirs, self._stop, self._worker_is_gone, self._environ, load)
                process = self._context.Process(target=_read_in_process, args=arguments, daemon=True)
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
        """End the reads, giving waiting ones up to ``within_seconds``, and receive the last reports."""
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
    """Block Ctrl-C, which a terminal sends to the whole process group, in processes started in the block.

    They inherit the mask. In this process a handler defers it to the end of the block, because the system may deliver
    the signal to another thread, upon which Python interrupts this one nevertheless.

    Raises:
        KeyboardInterrupt: at the end, if a Ctrl-C came during the block.
    """
    # The tracker that `multiprocessing` starts by itself resets the mask, so it is started first.
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


def _read_in_process(
    report: connection.Connection, stop: Any, worker_is_gone: Any, environ: Mapping[str, str], load: Load
) -> None:
    _exit_with_the_parent()
    reads = Reads(load, lambda: bool(worker_is_gone.value))
    with CacheClient(ReaderSettings.from_env(environ), events=reads) as client:
        threads = [
            threading.Thread(target=reads.run, args=(client, number, lambda: bool(stop.value)), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(REPORT_SECONDS)
            report.send(reads.take())
    report.send(reads.take())


def _exit_with_the_parent() -> None:
    """Exit at once when the parent has ended, even by SIGKILL."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Reads(ReaderEvents):
    """The reads of all threads of a process, and their report. As the client's events it also counts triggers.

    Args:
        load: the reads to do.
        worker_is_gone: returns whether no worker is alive right now.
    """

    def __init__(self, load: Load, worker_is_gone: Callable[[], bool]) -> None:
        self._load, self._worker_is_gone = load, worker_is_gone
        self._lock = threading.Lock()
        self._report = Report()
        # Tokens of values served stale without a worker, by key number. Shared by all threads, so that the newer value
        # of a rarely read key is noticed soon.
        self._stale_tokens: dict[int, int] = {}

    def take(self) -> Report:
        """Return the report, and start a new one."""
        with self._lock:
            report, self._report = self._report, Report()
        return report

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count a trigger."""
        with self._lock:
            self._report.tally.triggered += 1

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Count a trigger whose claim was refused."""
        with self._lock:
            self._report.tally.deduplicated += 1

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Count a dropped trigger."""
        with self._lock:
            self._report.tally.dropped += 1

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Count a failed trigger."""
        with self._lock:
            self._report.tally.trigger_failures += 1

    def run(self, client: CacheClient, thread: int, stopped: Callable[[], bool]) -> None:
        """Read keys drawn by popularity on one thread, until ``stopped`` returns True."""
        load, tokens = self._load, dict[int, int]()
        draw = random.Random(load.seed * THREADS + thread)  # noqa: S311 - a popularity, no secret
        numbers, cumulated = range(len(load.keys)), list(accumulate(load.weights))
        next_at = time.monotonic()
        while not stopped():
            for number in draw.choices(numbers, cum_weights=cumulated, k=_DRAWS):
                if stopped():
                    return
                self.read(client, number, tokens)
                now = time.monotonic()
                next_at = max(next_at + load.interval_seconds, now - load.interval_seconds)
                if next_at > now:
                    time.sleep(next_at - now)

    def read(self, client: CacheClient, number: int, tokens: dict[int, int]) -> None:
        """Read one key and record the result; ``tokens`` are this thread's last ones, by key number."""
        query, params = self._load.keys[number]
        began = time.monotonic()
        try:
            entry = client.get_entry(query, params)
        except WaitTimeout:  # a cold key, on an overloaded machine
            with self._lock:
                self._report.tally.gave_up += 1
            return
        except CacheError as error:
            with self._lock:
                self._report.tally.failed += 1
                if len(self._report.failures) < _MAX_FAILURES_KEPT:
                    self._report.failures.append(f"{type(error).__name__}: {error}")
            return
        took_seconds = time.monotonic() - began
        with self._lock:
            self._count(self._report.tally, entry, took_seconds)
            last = tokens.get(number, 0)
            if entry.token < last:
                self._report.broken.append(f"{query}({params}) went back from token {last} to {entry.token}")
            tokens[number] = entry.token
            if query == CHECKED_QUERY and entry.value is not None:
                name, fresh = str(params["name"]), entry.state is EntryState.FRESH
                self._report.observations[name, entry.token, fresh] = Observation(
                    name, entry.token, int(entry.value["version"]), fresh, began
                )
            self._watch_recovery(number, entry)

    def _count(self, tally: Tally, entry: Entry[Any], took_seconds: float) -> None:
        tally.suppressed += entry.refresh is RefreshState.SUPPRESSED
        if entry.state is EntryState.MISS:
            tally.misses += 1
            tally.waited.record(took_seconds)
            return
        if entry.state is EntryState.FRESH:
            tally.fresh += 1
        else:
            tally.stale += 1
            tally.overdue_seconds = max(tally.overdue_seconds, -entry.ttl_remaining)
        tally.at_once.record(took_seconds)
        if self._worker_is_gone():
            tally.without_worker.record(took_seconds)

    def _watch_recovery(self, number: int, entry: Entry[Any]) -> None:
        if self._worker_is_gone():
            if entry.state is EntryState.STALE and number not in self._stale_tokens:
                self._stale_tokens[number] = entry.token
                self._report.went_stale.add(number)
        elif entry.token > self._stale_tokens.get(number, entry.token):
            del self._stale_tokens[number]
            self._report.recovered[number] = time.monotonic() - entry.age
