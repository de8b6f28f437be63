"""Herds: thousands of readers of one key in four processes, as threads or tasks, all at the same moment.

The messages on a process's pipe, in turn: (number, number of readers), or its end → ``ready`` → the common start
(monotonic seconds) → a list of `Read`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Self

import redis

from api_client.config.broker import miss_queue, refresh_queue
from benchmarks.apparatus.loops import await_if_needed, run_on_thread
from benchmarks.apparatus.processes import Child, end_children, replies, start_child
from benchmarks.apparatus.statistics import percentile
from benchmarks.stampede.config import PROCESSES, Config
from benchmarks.stampede.origin import Ledger, Recompute
from benchmarks.stampede.strategies.cacheback_job import QUEUE
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.strategies.peers import Cacheback
from benchmarks.stampede.strategies.strategy import Cache, Strategy
from benchmarks.stampede.variants import BY_NAME, Variant

_READY: Final = "ready"
_ANSWER_SECONDS: Final = 300.0
_QUIET_SECONDS: Final = 0.3
_WORKER_QUIET_SECONDS: Final = 1.0  # from trigger to load, on a machine with other work
_POLL_SECONDS: Final = 0.02


class Read(NamedTuple):
    """One read: its start after the common one, its duration (s), and its error, if any."""

    began: float
    took: float
    error: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one run, with the ``recomputes`` that it caused."""

    reads: list[Read]
    recomputes: list[Recompute]

    @property
    def errors(self) -> Counter[str]:
        return Counter(read.error for read in self.reads if read.error)

    def percentile_ms(self, percent: float, *, from_start: bool = False) -> float:
        """Return a percentile of the reads' durations in ms, with ``from_start`` counted from the common start."""
        took = [read.took + (max(0.0, read.began) if from_start else 0.0) for read in self.reads]
        return percentile(took, percent) * 1000


class Herd:
    """Processes of a variant's readers, which last for several runs. A context manager.

    Args:
        variant: the variant that they read with.
        config: the configuration of the scenario.
        control: the database with the origin's counts.
        readers: the number of readers in all processes together.
        lead_seconds: the time before the common start at which they are told of it.
        processes: the number of processes.
    """

    def __init__(
        self, variant: Variant, config: Config, control: redis.Redis, *, readers: int, lead_seconds: float = 0.0,
        processes: int = PROCESSES,
    ) -> None:  # fmt: skip
        self._variant, self._control, self._readers, self._lead_seconds = variant, control, readers, lead_seconds
        self._broker = redis.Redis.from_url(config.servers.broker_url)
        self._queues = miss_queue(config.servers.namespace), refresh_queue(config.servers.namespace), QUEUE
        has_worker = variant.strategy in (Ours, Cacheback)
        self._quiet_seconds = _WORKER_QUIET_SECONDS if has_worker else _QUIET_SECONDS
        on_loop = variant.strategy.is_on_loop(variant.kind)
        self._processes: list[Child] = []
        for _ in range(processes):
            self._processes.append(start_child(run_herd, variant.strategy.name, variant.name, config, on_loop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_children(self._processes)

    def ledger(self, number: int) -> Ledger:
        return Ledger(self._control, self._variant.name, number)

    def read_alone(self, number: int) -> None:
        """Let only one reader of one process read a number."""
        one = self._processes[:1]
        self._ask((number, 1), one)
        self._ask(time.monotonic(), one)

    def prepare(self, number: int, *, readers: int | None = None) -> float:
        """Get all or some readers ready to read a number, and return the time for that (monotonic, s).

        Only the readers cause recomputes of this number from now on.
        """
        self._ask((number, (readers or self._readers) // len(self._processes)), self._processes)
        self.ledger(number).reset()
        return time.monotonic() + self._lead_seconds

    def release(self, at: float, number: int) -> Outcome:
        """Let all readers read at ``at``; return once they have, and all recomputes that they caused are done."""
        reads = [read for answer in self._ask(at, self._processes) for read in answer]
        quiet_since = time.monotonic()
        give_up_at = quiet_since + _ANSWER_SECONDS
        while time.monotonic() < min(quiet_since + self._quiet_seconds, give_up_at):
            # A recompute is running, or a message is queued or with a worker.
            if (
                self.ledger(number).running
                or self._broker.hlen("unacked")
                or any(self._broker.llen(name) for name in self._queues)
            ):
                quiet_since = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return Outcome(reads, self.ledger(number).recomputes())

    def _ask(self, message: object, processes: Sequence[Child]) -> list[Any]:
        for _, pipe in processes:
            pipe.send(message)
        return replies(processes, _ANSWER_SECONDS)


def run_herd(pipe: Any, strategy: str, variant: str, config: Config, on_loop: bool) -> None:  # noqa: FBT001 - the arguments of a process
    """Read on demand until the other end of the pipe is closed."""
    opened = BY_NAME[strategy](config, variant)
    try:
        if on_loop:
            asyncio.run(_serve_on_loop(pipe, opened))
        else:
            _serve_on_threads(pipe, opened)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _serve_on_threads(pipe: Connection, strategy: Strategy) -> None:
    cache = run_on_thread(strategy.opened(on_loop=False))
    try:
        while True:
            number, size = pipe.recv()
            pipe.send(_threads(cache, number, size, pipe))
    finally:
        cache.close()


def _threads(cache: Cache, number: int, size: int, pipe: Connection) -> list[Read]:
    reads: list[Read] = []
    start = threading.Event()
    at = [0.0]

    def run() -> None:
        start.wait()
        time.sleep(max(0.0, at[0] - time.monotonic()))
        reads.append(run_on_thread(_read(cache, number, at[0])))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(size)]
    for thread in threads:
        thread.start()
    pipe.send(_READY)
    at[0] = pipe.recv()  # early enough for all of them to be awake by then
    start.set()
    for thread in threads:
        thread.join()
    return reads


async def _serve_on_loop(pipe: Connection, strategy: Strategy) -> None:
    cache = await strategy.opened(on_loop=True)

    async def read(number: int, at: float) -> Read:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        return await _read(cache, number, at)

    try:
        # The loop must not be blocked while the pipe is silent, since clients have tasks of their own.
        while True:
            number, size = await asyncio.to_thread(pipe.recv)
            pipe.send(_READY)
            at = await asyncio.to_thread(pipe.recv)
            pipe.send(list(await asyncio.gather(*(read(number, at) for _ in range(size)))))
    finally:
        await cache.close()


async def _read(cache: Cache, number: int, at: float) -> Read:
    """Read, and record any error; ``at`` is the common start."""
    began, error = time.monotonic(), ""
    try:
        value = await await_if_needed(cache.read(number))
        took = time.monotonic() - began
        error = "" if value["number"] == number else "wrong value"
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        took, error = time.monotonic() - began, type(problem).__name__
    return Read(began - at, took, error)
