"""One worker of `worker.app` in processes of its own, and what is asked of it: to work off a backlog, timed by itself.

::

    gate ──▶ holds the pool      backlog is published      gate opens ──▶ mark ──▶ message, message, … ──▶ mark
                                                                            └──── the measured span ────────┘

Nobody publishes in the span, so that the worker alone is what is measured, and no clock but its own is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import redis

from api_client.config.broker import queue_for
from api_client.trigger.private_app import PublishingApp
from benchmarks.errors import BenchError
from benchmarks.herd.worker import celery_process
from benchmarks.places import Place
from benchmarks.worker import app as tasks
from benchmarks.worker import queries
from benchmarks.worker.graph import GraphPlace
from benchmarks.worker.options import Pool
from refresher.embedded import GuardedProcess

_START_SECONDS: Final = 90.0
_SPAN_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


class RunningWorker:
    """A worker, seen from outside.

    Args:
        process: its main process.
        place: its servers.
        pool: its pool.
        control: where its tasks leave their marks.
    """

    def __init__(self, process: GuardedProcess, place: Place, pool: Pool, control: redis.Redis) -> None:
        self.pool: Pool = pool
        self._process, self._control = process, control
        # As readers publish, but patiently: a machine that stands still for half a second is not to end the run.
        self._app = PublishingApp.to(place.broker_url, _ANSWER_SECONDS)
        self._queue: Any = queue_for(place.namespace, place.broker_url, has_waiter=False)

    def send(self, task: str, *args: object) -> None:
        """Publish a task, as an application would."""
        self._app.send_task(task, args=args, queue=self._queue, ignore_result=True)

    def send_nothing(self, how_many: int) -> None:
        """Publish so many tasks that do nothing."""
        for number in range(how_many):
            self.send(tasks.NOTHING, number)

    def switch_events(self, *, on: bool) -> None:
        """Have the worker tell of each task from now on, as with ``-E``, or not.

        Raises:
            BenchError: it does not answer.
        """
        switch = self._app.control.enable_events if on else self._app.control.disable_events
        if not switch(reply=True, limit=1, timeout=_ANSWER_SECONDS):
            raise BenchError(f"the worker did not answer; the end of its log:\n{self._process.tail_of_log()}")

    def seconds_for(self, publish: Callable[[], None]) -> float:
        """Return how long the worker takes for what ``publish`` puts into its queue, all of which waits there before.

        Raises:
            BenchError: it does not come to an end, or the worker has ended.
        """
        self.hold()
        self.send(tasks.MARK)
        publish()
        self.send(tasks.MARK)
        self._control.rpush(tasks.OPEN, *range(self.pool.size))
        marks = self._when_there(tasks.MARKS, 2, _SPAN_SECONDS)
        return marks[1] - marks[0]

    def hold(self, *, within_seconds: float = _SPAN_SECONDS) -> None:
        """Wait until all of the pool stands before the gate."""
        self._control.delete(tasks.ARRIVED, tasks.OPEN, tasks.MARKS)
        for number in range(self.pool.size):
            self.send(tasks.GATE, number)
        self._when_there(tasks.ARRIVED, self.pool.size, within_seconds)

    def wait_until_ready(self) -> None:
        """Return when the worker works.

        Raises:
            BenchError: it does not.
        """
        self.hold(within_seconds=_START_SECONDS)
        self._control.rpush(tasks.OPEN, *range(self.pool.size))

    def close(self) -> None:
        """Disconnect."""
        self._app.close()

    def _when_there(self, name: str, how_many: int, within_seconds: float) -> list[float]:
        deadline = time.monotonic() + within_seconds
        while True:
            found: Any = self._control.lrange(name, 0, -1)
            if len(found) >= how_many:
                return [float(mark) for mark in found]
            if self._process.poll() is not None or time.monotonic() >= deadline:
                raise BenchError(f"the worker does not go on; the end of its log:\n{self._process.tail_of_log()}")
            time.sleep(_POLL_SECONDS)


@contextmanager
def running_worker(place: Place, graph: GraphPlace, pool: Pool) -> Iterator[RunningWorker]:
    """Run a worker with the default settings, but for pool and addresses.

    Raises:
        BenchError: it did not start.
    """
    environ = {
        **graph.environ,
        **place.environ,
        "CACHE_XFETCH_WORKERS": str(pool.size),
        "REFRESHER_QUERIES": queries.__name__,
        tasks.CONTROL_URL: place.control_url,
        tasks.POOL: pool.value,
    }  # fmt: skip
    app, name = ["-A", tasks.__name__], f"{pool}@{place.namespace}"
    with (
        redis.Redis.from_url(place.control_url) as control,
        celery_process(app, name, "WARNING", environ) as process,
        closing(RunningWorker(process, place, pool, control)) as worker,
    ):
        worker.wait_until_ready()
        yield worker
