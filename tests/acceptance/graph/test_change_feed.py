"""The change feed in a whole system: plain Cypher writes, workers with CACHE_FEED, Neo4j with APOC."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import neo4j
import pytest

from api_client import CacheClient, CacheError, EntryState
from refresher.embedded import GuardedProcess, RedisServer
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.triggers import Triggers
from tests.acceptance.conftest import ROOT, System
from tests.servers.restarts import restart
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, eventually, eventually_without

PEOPLE: Final = 20
KILLING_SECONDS: Final = 600.0 if IS_LONG else 15.0
WRITE_SECONDS: Final = 0.02
GRAPH_ERRORS: Final = (neo4j.exceptions.DriverError, neo4j.exceptions.Neo4jError)
CHANGES: Final = (
    "MERGE (p:Person {id: $i}) SET p.name = toString($own)",
    "MATCH (p:Person {id: $i}) DETACH DELETE p",
    "MATCH (:Person {id: $i})-[k:KNOWS]-(:Person {id: $j}) DELETE k",
    "MATCH (a:Person {id: $i}), (b:Person {id: $j}) MERGE (a)-[:KNOWS]->(b)",
    "MATCH (p:Person {id: $i}) SET p.name = 'the same'",
)
MARK: Final = (
    "CREATE (:Person {id: $own}) WITH 1 AS _ MATCH (old:Person) WHERE old.id > 999 AND old.id < $own DELETE old"
)
FRIENDS: Final = "MATCH (:Person {id: $i})-[:KNOWS]-(f) RETURN f.id AS id, f.name AS name ORDER BY id"


class FedSystem:
    """A system, and its graph as one who knows nothing of the cache writes to it."""

    def __init__(self, system: System, driver: neo4j.Driver) -> None:
        self.system, self.driver = system, driver
        self.run("MATCH (n) DETACH DELETE n")
        Triggers(driver, "neo4j").uninstall()
        self.run("UNWIND range(1, $n) AS i CREATE (:Person {id: i, name: 'a'})", n=PEOPLE)
        self.run("MATCH (a:Person), (b:Person) WHERE b.id = a.id + 1 CREATE (a)-[:KNOWS]->(b)")
        self.install()
        self.reader: CacheClient = system.client()

    def run(self, *statements: str, **params: Any) -> list[dict[str, Any]]:
        with self.driver.session(database="neo4j") as session:
            return session.execute_write(lambda tx: [tx.run(cypher, params).data() for cypher in statements][-1])

    def install(self) -> None:
        argv = [sys.executable, "-m", "refresher.cli", "feed", "install"]
        done = subprocess.run(argv, env=self.system.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def rename(self, i: int, name: str) -> None:
        self.run("MATCH (p:Person {id: $i}) SET p.name = $name", i=i, name=name)

    def is_at_rest(self) -> bool:
        """No note is left, and each value is what the graph has; the first that is not ends a look."""
        return (
            not self.run("MATCH (c:RefresherChange) RETURN count(c) AS n")[0]["n"]
            and self.reader.get("people") == self.run("MATCH (p:Person) RETURN count(p) AS n")[0]["n"]
            and all(self.reader.get("friends", {"i": i}) == self.run(FRIENDS, i=i) for i in range(1, PEOPLE + 1))
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


def test_writes_of_others_refresh_what_depends_on_them_by_tags_that_a_worker_has_found(fed: FedSystem) -> None:
    worker = fed.system.start_worker()
    for i in (5, 9):
        assert fed.reader.get("friends_names", {"i": i}) == ["a", "a"]
    tags = {"KNOWS@Person:id=5", "KNOWS:*", "Person:id=4", "Person:id=6", "Person:*"}
    for name in ("found_friends", "friends_names"):
        assert set(fed.reader.explain(name, {"i": 5}).tags) == tags
    fed.rename(6, "b")
    eventually(lambda: fed.reader.get("friends_names", {"i": 5}) == ["a", "b"], "the new name")
    assert fed.reader.get_entry("friends_names", {"i": 9}).state is EntryState.FRESH
    fed.run("MATCH (p:Person {id: 6}) REMOVE p:Person")
    eventually(lambda: fed.reader.get("friends_names", {"i": 5}) == ["a"], "one friend less")
    said = worker.log_file.read_text()
    assert "found_names: tags='auto' finds coarse tags only (p.id is not given by a parameter)" in said
    assert "found_friends: tags" not in said


def test_what_the_texts_of_queries_depend_on_is_shown_with_its_reason(fed: FedSystem) -> None:
    argv = [sys.executable, "-m", "refresher.cli", "queries", "--tags", "--json"]
    done = subprocess.run(argv, env=fed.system.env, capture_output=True, text=True, check=True)
    shown = {one["query"]: one for one in json.loads(done.stdout)}
    assert shown["found_friends"]["tags"] == ["KNOWS@Person:id=$i", "Person:id=id"]
    assert shown["found_names"]["tags"] == ["Person"]
    assert shown["found_names"]["why"] == ["Person: p.id is not given by a parameter"]
    assert shown["friends"]["why"] == ["of a function"]


def test_a_watch_measures_how_long_after_a_commit_a_reader_gets_the_new_value(fed: FedSystem) -> None:
    fed.system.env["REFRESHER_QUERIES"] += ",refresher.watch"
    fed.install()
    fed.system.start_worker()
    assert fed.is_at_rest()
    argv = [sys.executable, "-m", "refresher.cli", "doctor", "--watch", "--seconds", "3", "--json"]
    done = subprocess.run(argv, env=fed.system.env, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    (checked,) = (one for one in found["findings"] if one["check"] == "feed")
    assert checked["level"] == "ok"
    assert min(found["watch"]["feed"]) > 0


def test_another_worker_takes_over_from_one_that_is_killed(fed: FedSystem) -> None:
    consuming = fed.system.start_worker()
    assert fed.is_at_rest()
    fed.rename(6, "b")
    eventually(fed.is_at_rest, "the first worker consumes")
    fed.system.start_worker()
    consuming.kill()
    fed.rename(6, "c")
    eventually(lambda: not fed.run("MATCH (c:RefresherChange) RETURN c"), "the second worker consumes")
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
            restart(server, keep_data=True)
        eventually_without(
            GRAPH_ERRORS,
            lambda number=number: fed.rename(1 + number % PEOPLE, f"n{number}"),
            "a write",
        )
    eventually_without(GRAPH_ERRORS, lambda: fed.run("RETURN 1"), "up")
    eventually(fed.is_at_rest, "the system is at rest")


class Writing:
    """Writes and reads on two threads, whatever is down. Each transaction also creates a person of its own.

    ``acknowledged`` has the ids of those whose transaction was acknowledged: the tag of each has to be invalidated.
    """

    def __init__(self, fed: FedSystem, seed: int) -> None:
        self._fed, self._random, self._ended = fed, random.Random(seed), threading.Event()  # noqa: S311 - no secret
        self._ids = count(1_000)
        self.acknowledged: list[int] = []
        self._threads = [threading.Thread(target=self._repeat, args=(what,)) for what in (self._write, self._read)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, what: Callable[[int], None]) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            with suppress(CacheError, *GRAPH_ERRORS):
                what(self._random.randint(1, PEOPLE))

    def _write(self, i: int) -> None:
        own, change = next(self._ids), self._random.choice(CHANGES)
        self._fed.run(change, MARK, i=i, j=self._random.randint(1, PEOPLE), own=own)
        self.acknowledged.append(own)

    def _read(self, i: int) -> None:
        self._fed.reader.get("friends", {"i": i}, default=None)
        self._fed.reader.get("people", default=None)


@pytest.mark.longer
@pytest.mark.timeout(KILLING_SECONDS + 4 * MAX_WAIT_SECONDS)
def test_under_kills_of_consumer_redis_and_graph_each_change_is_invalidated(
    fed: FedSystem, neo4j_with_apoc: Neo4jWithApoc, stack: ExitStack, tmp_path: Path
) -> None:
    fed.system.env |= {"CACHE_FEED": "false", "STAMPEDE_LOCK_TIMEOUT_MS": "5000", "CACHE_QUEUE_TTL": "5"}
    fed.reader = fed.system.client(STAMPEDE_WAIT_TIMEOUT_MS="2000", CACHE_REDIS_TIMEOUT="1s")
    fed.system.start_worker()
    eventually_without((CacheError,), fed.is_at_rest, "the first values")
    journals: list[Path] = []

    def start_consumer() -> GuardedProcess:
        journals.append(tmp_path / f"consumer-{len(journals)}.jsonl")
        argv = [sys.executable, "-m", "tests.support.feed_program", str(journals[-1])]
        process = GuardedProcess.start(argv, env=fed.system.env, cwd=ROOT, log_file=journals[-1].with_suffix(".log"))
        stack.callback(process.kill)
        return process

    consumers, draw, kills = [start_consumer(), start_consumer()], random.Random(1), Counter[str]()  # noqa: S311 - no secret
    ends_at = time.monotonic() + KILLING_SECONDS
    with Writing(fed, seed=2) as writing:
        while (now := time.monotonic()) < ends_at:
            victim = draw.choice(("consumer", "redis", "graph"))
            kills[victim] += 1
            if victim == "consumer":
                place = draw.randrange(len(consumers))
                consumers[place].kill()
                consumers[place] = start_consumer()
            else:
                server = fed.system.redis_server if victim == "redis" else neo4j_with_apoc
                server.kill()
                restart(server, keep_data=victim == "graph")
            written = len(writing.acknowledged)
            eventually(lambda written=written: len(writing.acknowledged) > written + 10, f"writes after {kills}")
            time.sleep(max(0.0, min(draw.uniform(0.0, 5.0), ends_at - now)))
    eventually_without((CacheError, *GRAPH_ERRORS), lambda: eventually(fed.is_at_rest, "at rest"), "no error")
    lines = [line for journal in journals if journal.exists() for line in journal.read_text().splitlines()]
    invalidated = {tag for line in lines for tag in json.loads(line)}
    assert [own for own in writing.acknowledged if f"Person:id={own}" not in invalidated] == []
    print(f"{len(writing.acknowledged)} transactions; killed: {dict(kills)}; {len(lines)} batches")  # noqa: T201
