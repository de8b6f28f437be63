"""Workers of `worker.app` in processes of their own, which work off a backlog, timed by themselves.

::

    gate ──▶ holds the pool      backlog is published      gate opens ──▶ mark ──▶ message, message, … ──▶ mark
                                                                            └──── the measured span ────────┘

Nobody publishes in the span, so that the workers alone are what is measured, and no clock but theirs is read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import neo4j
import redis
from neo4j.exceptions import DriverError, Neo4jError

from api_client.config.broker import queue_for
from api_client.config.environment import without_password
from api_client.trigger.private_app import PublishingApp
from benchmarks.apparatus.processes import celery_process
from benchmarks.apparatus.servers import Servers
from benchmarks.errors import BenchError
from benchmarks.worker import app as tasks
from benchmarks.worker import queries
from benchmarks.worker.options import Pool
from refresher.embedded import ArcadeDbServer, GuardedProcess
from refresher.graph.driver import open_driver
from refresher.settings import WorkerSettings

PERSONS: Final = 200
_FRIENDS_EACH: Final = 10
_CREATE: Final = """
UNWIND range(0, $persons - 1) AS number
CREATE (:BenchPerson {id: number, name: 'Person no ' + toString(number)})
"""
_JOIN: Final = """
UNWIND range(1, $friends) AS step
MATCH (a:BenchPerson)
MATCH (b:BenchPerson {id: (a.id + step) % $persons})
CREATE (a)-[:KNOWS]->(b)
"""
_COUNT: Final = "MATCH (p:BenchPerson) RETURN count(p) AS persons"
_REMOVE: Final = "MATCH (p:BenchPerson) DETACH DELETE p"
# As an application's graph has one: a read by id is no scan, least of all a hundred of them in a batch.
_INDEX: Final = "CREATE INDEX bench_person IF NOT EXISTS FOR (p:BenchPerson) ON (p.id)"
_DROP_INDEX: Final = "DROP INDEX bench_person IF EXISTS"


@dataclass(frozen=True, slots=True)
class GraphTarget:
    """Target of the worker's loads. ``environ`` are its environment variables; ``title`` names the server."""

    environ: Mapping[str, str]
    title: str


@contextmanager
def graph_target(neo4j_uri: str | None, warm_up_loads: int) -> Iterator[GraphTarget]:
    """Start a graph and load it; in the end nothing of that is left in one's own.

    Args:
        neo4j_uri: one's own, NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE in the environment; None: an embedded one.
        warm_up_loads: asked for before it is measured: until its Java has compiled them, that takes both cores.

    Raises:
        EmbeddedServerError, ConfigurationError: it did not start, or can't be used.
        BenchError: one's own refused, or holds such persons already.
    """
    # Neo4j warns of a label that is not there yet.
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)
    with ExitStack() as stack:
        environ = _environ(neo4j_uri, stack)
        settings = WorkerSettings.from_env({**os.environ, **environ})
        driver = stack.enter_context(open_driver(settings, settings.neo4j_user, settings.neo4j_password))
        session = stack.enter_context(driver.session(database=settings.neo4j_database or None))
        try:
            title = _title(driver, neo4j_uri)
            if session.run(_COUNT).single(strict=True)["persons"]:
                raise BenchError("the graph holds BenchPerson nodes already: remove them, or use another one")
            stack.callback(lambda: session.run(_REMOVE).consume())
            session.run(_INDEX).consume()
            stack.callback(lambda: session.run(_DROP_INDEX).consume())
            session.run(_CREATE, persons=PERSONS).consume()
            session.run(_JOIN, persons=PERSONS, friends=_FRIENDS_EACH).consume()
            for number in range(warm_up_loads):
                queries.ask_all(session, number)
        except (DriverError, Neo4jError, OSError) as error:
            raise BenchError(f"the graph can't be used: {str(error).splitlines()[0]}") from error
        yield GraphTarget(environ, title)


def _environ(neo4j_uri: str | None, stack: ExitStack) -> dict[str, str]:
    if neo4j_uri is not None:
        return {"NEO4J_URI": neo4j_uri}
    return stack.enter_context(ArcadeDbServer.start()).environ


def _title(driver: neo4j.Driver, neo4j_uri: str | None) -> str:
    agent = driver.get_server_info().agent
    return f"embedded, {agent}" if neo4j_uri is None else f"{agent} at {without_password(neo4j_uri)}"


_START_SECONDS: Final = 90.0
_SPAN_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


class RunningWorkers:
    """One worker or several, seen from outside.

    Args:
        processes: the main process of each.
        servers: theirs.
        slots: how many tasks all their pools run at a time.
        control: where their tasks leave their marks.
    """

    def __init__(self, processes: Sequence[GuardedProcess], servers: Servers, slots: int, control: redis.Redis) -> None:
        self._processes, self._slots, self._control = processes, slots, control
        # As readers publish, but patiently: a machine that stands still for half a second is not to end the run.
        self._app = PublishingApp.to(servers.broker_url, _ANSWER_SECONDS)
        self._queue: Any = queue_for(servers.namespace, servers.broker_url, has_waiter=False)

    def send(self, task: str, *args: object) -> None:
        """Publish a task, as an application would."""
        self._app.send_task(task, args=args, queue=self._queue, ignore_result=True)

    def send_nothing(self, how_many: int) -> None:
        """Publish so many tasks that do nothing."""
        for number in range(how_many):
            self.send(tasks.NOTHING, number)

    def switch_events(self, *, on: bool) -> None:
        """Switch the workers' task events on, as with ``-E``, or off.

        Raises:
            BenchError: one does not answer.
        """
        switch = self._app.control.enable_events if on else self._app.control.disable_events
        count = len(self._processes)
        if len(switch(reply=True, limit=count, timeout=_ANSWER_SECONDS) or ()) < count:
            raise BenchError(f"a worker did not answer; {self._ends_of_logs()}")

    def seconds_for(self, publish: Callable[[], None]) -> float:
        """Return how long the workers take for what ``publish`` puts into their queue, all of which waits there before.

        Raises:
            BenchError: it does not come to an end, or a worker has ended.
        """
        self.hold_pool()
        self.send(tasks.MARK)
        publish()
        self.send(tasks.MARK)
        self.open_gate()
        marks = self._when_there(tasks.MARKS, 2, _SPAN_SECONDS)
        return marks[1] - marks[0]

    def hold_pool(self, *, within_seconds: float = _SPAN_SECONDS) -> None:
        """Wait until all of the pools stand before the gate."""
        self._control.delete(tasks.ARRIVED, tasks.OPEN, tasks.MARKS)
        for number in range(self._slots):
            self.send(tasks.GATE, number)
        self._when_there(tasks.ARRIVED, self._slots, within_seconds)

    def open_gate(self) -> None:
        """Let the pools go on."""
        self._control.rpush(tasks.OPEN, *range(self._slots))

    def wait_until_ready(self) -> None:
        """Return when all workers work.

        Raises:
            BenchError: one does not.
        """
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
    """Run so many workers with the default settings, but for their pools, the size of each, and addresses.

    Raises:
        BenchError: one did not start.
    """
    environ = {
        **graph.environ,
        **servers.environ,
        "CACHE_XFETCH_WORKERS": str(size),
        "REFRESHER_QUERIES": queries.__name__,
        tasks.CONTROL_URL: servers.control_url,
    }  # fmt: skip
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
