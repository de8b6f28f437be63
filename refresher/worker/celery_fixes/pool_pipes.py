"""Complete reads of a prefork pool's pipes, before the pool forgets the jobs that the messages are about."""
# ruff: noqa: SLF001 - a pool has no public names for these parts

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

MAX_ACCEPTANCE_SECONDS: Final = 5.0
"""Longest wait for a process to accept a task, which it does at once unless it or the machine is stopped."""


def read_all_in_time(pool: Any) -> None:
    """Fix a worker's started pool; only prefork pools need it."""
    processes = getattr(pool, "_pool", None)
    if hasattr(processes, "process_flush_queues"):
        read_all_of_dead_processes(processes)
        pool.flush = flush_without_the_written(processes)


def read_all_of_dead_processes(processes: Any) -> None:
    """Make the pool read everything that a dead process has sent before it drops the pipe.

    If a process dies while the pool handles another one's death, the pool has not read yet which task it had accepted.
    That task would go to the next process, and nobody would learn that it has already ended one.
    """
    drop = processes.on_partial_read

    def read_and_drop(job: Any, process: Any) -> None:
        processes.process_flush_queues(process)
        drop(job, process)

    processes.on_partial_read = read_and_drop


def flush_without_the_written(processes: Any) -> Callable[[], None]:
    """Return the pool's ``flush``, changed so that it forgets no task that a process has received.

    It forgets tasks that have not been accepted, for the broker to redeliver, and so also those that a process has just
    begun. Those would run twice, and the process, which waits for a confirmation before it ends, would delay a shutdown
    by 30 s.
    """
    flush = processes.flush

    def read_and_flush() -> None:
        deadline = time.monotonic() + MAX_ACCEPTANCE_SECONDS
        while (owners := _owners_of_written(processes)) and time.monotonic() < deadline:
            for process in owners:
                processes.process_flush_queues(process)
        flush()

    return read_and_flush


def _owners_of_written(processes: Any) -> set[Any]:
    """Return the processes that have received a task, but whose acceptance has not been read."""
    return {
        job._write_to
        for job in tuple(processes._cache.values())
        if not job._accepted
        and job._write_to is not None
        and job._write_to._is_alive()
        and job._writer() not in processes._active_writers
    }
