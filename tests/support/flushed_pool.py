"""A prefork pool of Celery that is flushed when a process has received a task, and its acceptance is still unread.

``python -m tests.support.flushed_pool`` prints the outcome of the task, as the pool has recorded it.
"""
# ruff: noqa: SLF001 - there is no public way to force that order

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub, set_event_loop

from refresher.worker.celery_fixes.pool_pipes import read_all_in_time


def main() -> None:
    """Run the scene."""
    hub = Hub()
    set_event_loop(hub)
    processes: Any = AsynPool(processes=1, threads=False)
    pool = SimpleNamespace(_pool=processes, flush=processes.flush)
    read_all_in_time(pool)
    processes.register_with_event_loop(hub)
    loop = hub.create_loop()
    while not processes._all_inqueues:  # until it is up
        next(loop)
    results: list[str] = []
    job = processes.apply_async(str, ("done",), callback=results.append)
    while not job._write_to:
        next(loop)
    pool.flush()
    processes.close()
    processes.join()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
