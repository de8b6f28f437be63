"""A prefork pool of Celery of which two processes die at once: its reports on their tasks, as JSON.

``python -m tests.support.two_deaths``. The second one dies after the pool has checked it, and found it alive, while the
pool handles the death of the first one; and its messages are still unread.
"""
# ruff: noqa: SLF001 - there is no public way to force that order

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub, set_event_loop

from refresher.worker.celery_fixes.pool_pipes import read_all_of_dead_processes


def _hang(begun_writer: int) -> None:
    os.write(begun_writer, b"x")
    signal.pause()


def _kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def main() -> None:
    """Run the scene."""
    begun, begun_writer = os.pipe()  # before the processes are forked
    hub = Hub()
    set_event_loop(hub)
    pool: Any = AsynPool(processes=2, threads=False)
    read_all_of_dead_processes(pool)
    pool.register_with_event_loop(hub)
    loop = hub.create_loop()
    while len(pool._all_inqueues) < 2:  # until both are up
        next(loop)
    ends: dict[int, str] = {}
    jobs = [
        pool.apply_async(
            _hang,
            (begun_writer,),
            error_callback=lambda error, place=place: ends.update({place: type(error.exception.exc).__name__}),
        )
        for place in range(2)
    ]
    while not all(job._write_to for job in jobs):
        next(loop)
    for _ in jobs:  # the loop is blocked: their messages are not read
        os.read(begun, 1)
    first, second = pool._pool
    flush = pool.process_flush_queues

    def flush_and_kill(process: Any) -> None:
        if process is first and second._is_alive():
            _kill(second)
        flush(process)

    pool.process_flush_queues = flush_and_kill
    _kill(first)  # the pool checks its processes in reverse order
    pool.maintain_pool()
    given_again = len(pool.outbound_buffer)
    pool.maintain_pool()
    json.dump({"given again": given_again, "ends": [ends.get(place) for place in range(2)]}, sys.stdout)
    sys.stdout.flush()
    for process in pool._pool:
        os.kill(process.pid, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
