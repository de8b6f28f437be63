"""Servers of a run, persons in the graph, their entries in the cache, and a consumer in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final, LiteralString

import neo4j

from api_client.protocol.tags import register
from benchmarks.apparatus.entries import TTL_SECONDS, Seeder
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.feed.queries import CHANGE, tag_of
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.consumer import Consumer, Invalidated
from refresher.feed.outbox import Outbox
from refresher.feed.triggers import Triggers
from refresher.feed.watches import watches
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink

PERSONS: Final = 20_000
_HEAP: Final = "-Xmx1g"
_TOGETHER: Final = 500
_CREATE: Final = "UNWIND range(0, $n - 1) AS i CREATE (:Person {id: i, version: 0})"
_EACH: Final = (
    "UNWIND $ids AS id CALL (id) { MATCH (p:Person {id: id}) SET p.version = p.version + 1 } IN TRANSACTIONS OF 1 ROW"
)


class Plant:
    """The servers of a run; the graph has an index but no trigger."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers: Servers = stack.enter_context(running_servers())
        self.graph: Neo4jWithApoc = stack.enter_context(Neo4jWithApoc.start(java_options=[_HEAP]))
        self.environ: dict[str, str] = self.graph.environ | self.servers.environ
        self.settings: WorkerSettings = WorkerSettings.from_env(self.environ)
        self.driver: neo4j.Driver = stack.enter_context(closing(driver_of(self.environ)))
        self.triggers: Triggers = Triggers(self.driver, self.graph.database)
        self._link = stack.enter_context(closing(RetryingLink(self.servers.cache_url)))
        self._seeder = Seeder(stack.enter_context(self.servers.plain()), self.servers.namespace)
        self.run(_CREATE, n=PERSONS)
        self.run("CREATE INDEX person IF NOT EXISTS FOR (p:Person) ON (p.id)")
        self.run("CALL db.awaitIndexes()")

    @property
    def versions(self) -> dict[str, str]:
        return self.servers.versions | {"graph": f"{self.driver.get_server_info().agent.replace('/', ' ')} with APOC"}

    def run(self, cypher: LiteralString, **params: Any) -> None:
        with self.driver.session(database=self.graph.database) as session:
            session.run(cypher, params).consume()

    def change_together(self, ids: Sequence[int]) -> None:
        """Change persons in one transaction."""
        with self.driver.session(database=self.graph.database) as session:
            session.execute_write(lambda tx: tx.run(CHANGE, ids=list(ids)).consume())

    def change_each(self, ids: Sequence[int]) -> None:
        """Change each person in a transaction of its own, made by the graph itself."""
        self.run(_EACH, ids=list(ids))

    def put_entries(self, numbers: Sequence[int]) -> None:
        """Write a fresh entry of each person, registered with its tag."""
        self._seeder.put(numbers)
        for start in range(0, len(numbers), _TOGETHER):
            self._link.store.run_all([
                register(self._seeder.key(number), tag_of(number), lives_seconds=TTL_SECONDS)
                for number in numbers[start : start + _TOGETHER]
            ])  # fmt: skip

    @contextmanager
    def consuming(self, on_invalidated: Callable[[Invalidated], object]) -> Iterator[None]:
        """Consume on a thread, as `refresher feed run` does."""
        source, stopped = Outbox(self.triggers, watches), threading.Event()
        consumer = Consumer(source, self._link.store, self.settings, on_invalidated=on_invalidated)
        thread = threading.Thread(target=consumer.run, args=(stopped,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            consumer.close()


def driver_of(environ: Mapping[str, str]) -> neo4j.Driver:
    """Return a driver of the graph's administrator."""
    return neo4j.GraphDatabase.driver(environ["NEO4J_URI"], auth=(environ["NEO4J_USER"], environ["NEO4J_PASSWORD"]))
