"""Workers of `worker.app` in processes of their own, which time themselves while they work off a backlog.

::

    gate ──▶ holds the pool      backlog is published      gate opens ──▶ mark ──▶ message, message, … ──▶ mark
                                                                            └──── the measured span ────────┘

Nobody publishes within the span, so that only the workers are measured, and only by their own clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import redis

from api_client.config.broker import queue_for
from api_client.trigger.private_app import PublishingApp
from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.workers import celery_process, worker_environ
from benchmarks.errors import BenchError
from benchmarks.worker import app as tasks
from benchmarks.worker import queries
from benchmarks.worker.options import Pool
from refresher.embedded import GuardedProcess

_START_SECONDS: Final = 90.0
_SPAN_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


class RunningWorkers:
    """One or several workers, seen from outside.

    Args:
        processes: their main processes.
        servers: the servers that they use.
        slots: the number of tasks that all their pools run at a time.
        control: the database for their tasks' marks.
    """

    def __init__(self, processes: Sequence[GuardedProcess], servers: Servers, slots: int, control: redis.Redis) -> None:
        self._processes, self._slots, self._control = processes, slots, control
        # Publishes as readers do, but patiently, so that a stall of half a second does not end the run.
        self._app = PublishingApp.to(servers.broker_url, _ANSWER_SECONDS)
        self._queue: Any = queue_for(servers.namespace, servers.broker_url, has_waiter=False)

    def send(self, task: str, *args: object) -> None:
        self._app.send_task(task, args=args, queue=self._queue, ignore_result=True)

    def send_nothing(self, how_many: int) -> None:
        for number in range(how_many):
            self.send(tasks.NOTHING, number)

    def switch_events(self, *, on: bool) -> None:
        """Switch the workers' task events on, as with ``-E``, or off."""
        switch = self._app.control.enable_events if on else self._app.control.disable_events
        count = len(self._processes)
        if len(switch(reply=True, limit=count, timeout=_ANSWER_SECONDS) or ()) < count:
            raise BenchError(f"a worker did not answer; {self._ends_of_logs()}")

    def seconds_for(self, publish: Callable[[], None]) -> float:
        """Return the workers' time for the messages of ``publish``, which are all queued before."""
        self.hold_pool()
        self.send(tasks.MARK)
        publish()
        self.send(tasks.MARK)
        self.open_gate()
        marks = self._when_there(tasks.MARKS, 2, _SPAN_SECONDS)
        return marks[1] - marks[0]

    def hold_pool(self, *, within_seconds: float = _SPAN_SECONDS) -> None:
        """Wait until all slots of the pools are held at the gate."""
        self._control.delete(tasks.ARRIVED, tasks.OPEN, tasks.MARKS)
        for number in range(self._slots):
            self.send(tasks.GATE, number)
        self._when_there(tasks.ARRIVED, self._slots, within_seconds)

    def open_gate(self) -> None:
        self._control.rpush(tasks.OPEN, *range(self._slots))

    def wait_until_ready(self) -> None:
        self.hold_pool(within_seconds=_START_SECONDS)
        self.open_gate()

    def close(self) -> None:
        self._app.close()

    def _when_there(self, name: str, how_many: int, within_seconds: float) -> list[float]:
        deadline = time.monotonic() + within_seconds
        while True:
            found: Any = self._control.lrange(name, 0, -1)
            if len(found) >= how_many:
                return [float(mark) for mark in found]
            if any(one.poll() is not None for one in self._processes) or time.monotonic() >= deadline:
                raise BenchError(f"a worker does not go on; {self._ends_of_logs()}")
            time.sleep(_POLL_SECONDS)

    def _ends_of_logs(self) -> str:
        return "the end of each log:\n" + "\n".join(process.tail_of_log() for process in self._processes)


@contextmanager
def running_workers(
    servers: Servers, graph: GraphTarget, pool: Pool, size: int, nodes: int = 1
) -> Iterator[RunningWorkers]:
    """Run this many workers with default settings, except for pools, sizes and addresses."""
    environ = worker_environ(servers, graph.environ, queries.__name__) | {"CACHE_XFETCH_WORKERS": str(size)}
    app, options = ["-A", tasks.__name__], ["-P", pool]
    names = [f"{pool}-{size}-{number}@{servers.namespace}" for number in range(nodes)]
    with ExitStack() as stack:
        control = stack.enter_context(redis.Redis.from_url(servers.control_url))
        processes = [
            stack.enter_context(celery_process(app, name, "WARNING", environ, options=options)) for name in names
        ]
        workers = stack.enter_context(closing(RunningWorkers(processes, servers, nodes * size, control)))
        workers.wait_until_ready()
        yield workers
