"""The change feed in a whole system: plain Cypher writes, workers with CACHE_FEED, Neo4j with APOC."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import neo4j
import pytest

from api_client import CacheClient
from refresher.embedded import RedisServer
from refresher.feed.consumer import LEASE_SECONDS, WAITING_SECONDS
from tests.acceptance.conftest import System
from tests.servers.neo4j_server import Neo4jWithApoc
from tests.support.waiting import eventually, eventually_without

PEOPLE: Final = 20
FRIENDS: Final = "MATCH (:Person {id: $i})-[:KNOWS]-(f) RETURN f.id AS id, f.name AS name ORDER BY id"


class FedSystem:
    """A system, and its graph as one who knows nothing of the cache writes to it."""

    def __init__(self, system: System, driver: neo4j.Driver) -> None:
        self.system, self.driver = system, driver
        self.run("MATCH (n) DETACH DELETE n")
        self.command("uninstall")
        self.run("UNWIND range(1, $n) AS i CREATE (:Person {id: i, name: 'a'})", n=PEOPLE)
        self.run("MATCH (a:Person), (b:Person) WHERE b.id = a.id + 1 CREATE (a)-[:KNOWS]->(b)")
        self.command("install")
        self.reader: CacheClient = system.client()

    def run(self, cypher: str, **params: Any) -> list[dict[str, Any]]:
        with self.driver.session(database="neo4j") as session:
            return session.execute_write(lambda tx: tx.run(cypher, params).data())

    def command(self, name: str) -> None:
        argv = [sys.executable, "-m", "refresher.cli", "feed", name]
        done = subprocess.run(argv, env=self.system.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def rename(self, i: int, name: str) -> None:
        self.run("MATCH (p:Person {id: $i}) SET p.name = $name", i=i, name=name)

    def is_at_rest(self) -> bool:
        """No note is left, and each value is what the graph has."""
        read = [self.reader.get("friends", {"i": i}) for i in range(1, PEOPLE + 1)]
        count = self.run("MATCH (p:Person) RETURN count(p) AS n")[0]["n"]
        return (
            not self.run("MATCH (c:RefresherChange) RETURN count(c) AS n")[0]["n"]
            and read == [self.run(FRIENDS, i=i) for i in range(1, PEOPLE + 1)]
            and self.reader.get("people") == count
        )


@pytest.fixture
def fed(stack: ExitStack, redis_server: RedisServer, neo4j_with_apoc: Neo4jWithApoc, tmp_path: Path) -> FedSystem:
    server = neo4j_with_apoc
    system = System(stack, stack.enter_context(RedisServer.start()), redis_server, server, tmp_path)
    system.env |= {"REFRESHER_QUERIES": "tests.support.watching_queries", "CACHE_FEED": "true"}
    driver = stack.enter_context(
        neo4j.GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password), connection_timeout=2)
    )
    return FedSystem(system, driver)


def test_writes_of_others_refresh_what_depends_on_them(fed: FedSystem) -> None:
    fed.system.start_worker()
    assert fed.reader.get("people") == PEOPLE
    assert fed.is_at_rest()
    fed.rename(6, "b")
    eventually(lambda: {"id": 6, "name": "b"} in fed.reader.get("friends", {"i": 5}), "the new name")
    fed.run("MATCH (a:Person {id: 5}), (b:Person {id: 20}) CREATE (a)-[:KNOWS]->(b)")
    eventually(lambda: len(fed.reader.get("friends", {"i": 5})) == 3, "the new friend")
    fed.run("MATCH (p:Person {id: 6}) DETACH DELETE p")
    eventually(lambda: fed.reader.get("people") == PEOPLE - 1, "one person less")
    fed.run("UNWIND range(1000, 3000) AS i CREATE (:Person {id: i})")
    eventually(lambda: fed.reader.get("people") == PEOPLE + 2_000, "a bulk of people")
    eventually(fed.is_at_rest, "the system is at rest")


def test_another_worker_takes_over_from_one_that_is_killed(fed: FedSystem) -> None:
    consuming = fed.system.start_worker()
    assert fed.is_at_rest()
    fed.rename(6, "b")
    eventually(fed.is_at_rest, "the first worker consumes")
    fed.system.start_worker()
    consuming.kill()
    killed_at = time.monotonic()
    fed.rename(6, "c")
    eventually(lambda: not fed.run("MATCH (c:RefresherChange) RETURN c"), "the second worker consumes")
    assert time.monotonic() - killed_at < LEASE_SECONDS + WAITING_SECONDS + 1
    eventually(fed.is_at_rest, "the system is at rest")


@pytest.mark.parametrize("restarted", ["redis", "graph"])
def test_a_restart_in_the_middle_loses_no_change(
    restarted: str, fed: FedSystem, neo4j_with_apoc: Neo4jWithApoc
) -> None:
    fed.system.start_worker()
    assert fed.is_at_rest()
    server = fed.system.redis_server if restarted == "redis" else neo4j_with_apoc
    for number in range(200):
        if number == 100:
            server.restart(keep_data=True)
        eventually_without(
            (neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError),
            lambda number=number: fed.rename(1 + number % PEOPLE, f"n{number}"),
            "a write",
        )
    eventually_without((neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError), lambda: fed.run("RETURN 1"), "up")
    eventually(fed.is_at_rest, "the system is at rest")
