"""Reads of what the processes of a prefork pool have sent, before the pool forgets what it was about."""
# ruff: noqa: SLF001 - a pool has no public name for any of it

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

MAX_ACCEPTANCE_SECONDS: Final = 5.0
"""A process accepts at once. One that does not is stopped, or the machine is; without this, it costs 30 s."""


def read_all_in_time(pool: Any) -> None:
    """Mend a worker's pool, which is started; other pools than prefork need nothing."""
    processes = getattr(pool, "_pool", None)
    if hasattr(processes, "process_flush_queues"):
        read_all_of_dead_processes(processes)
        pool.flush = flush_without_the_written(processes)


def read_all_of_dead_processes(processes: Any) -> None:
    """Have the pool read all that a dead process has sent before it drops the pipe.

    Of a process that dies while the pool deals with the death of another one, it would not have read yet which task it
    had accepted: that would be given to the next process, and nobody would learn that it has ended one.
    """
    drop = processes.on_partial_read

    def read_and_drop(job: Any, process: Any) -> None:
        processes.process_flush_queues(process)
        drop(job, process)

    processes.on_partial_read = read_and_drop


def flush_without_the_written(processes: Any) -> Callable[[], None]:
    """Return the pool's ``flush`` so that it forgets no task that a process has got.

    It forgets what has not been accepted, for the broker to deliver it again, and so what a process has just begun.
    That is done twice; and the process, which waits to be heard before it ends, holds a shutdown up for 30 s.
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
    """Return the processes which have got a task, and have not been heard to accept it."""
    return {
        job._write_to
        for job in tuple(processes._cache.values())
        if not job._accepted
        and job._write_to is not None
        and job._write_to._is_alive()
        and job._writer() not in processes._active_writers
    }
