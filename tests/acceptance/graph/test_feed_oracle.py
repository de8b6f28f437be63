"""Metamorphic oracle: a value that a commit changes has a tag that it invalidates."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import neo4j
import pytest
from neo4j.exceptions import ClientError
from neo4j.graph import Entity, Node, Path

from api_client.protocol.tags import MAX_TAGS
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed import triggers as triggers_module
from refresher.feed.auto.loads import Plans
from refresher.feed.outbox import Outbox
from refresher.feed.triggers import Triggers
from refresher.feed.watches import watches
from refresher.graph.transaction import ReadTransaction
from refresher.watched_tags import bulk_tag, coarsened
from tests.acceptance.conftest import System
from tests.support.feed_shapes import ANCHORED, GRAPHS, KEYS, SHAPES, WRITES, Graph, drawn
from tests.support.requirements import IS_LONG
from tests.support.waiting import eventually
from tests.support.watched_graph import WatchedGraph

SEEDS: Final = (41, 42, 43) if IS_LONG else (41,)
TRANSACTIONS: Final = 120 if IS_LONG else 60
"""For each graph and seed, of ten writes in the mean."""
MIN_PRECISION: Final = 0.4
"""Of the entries of anchored queries that are invalidated, those whose value has changed; bulk changes aside.

Over the graphs it is above a half; of one the sample is small.
"""
SIZES: Final = (1, 1, 1, 2, 3, 5, 10, 20, 50)
ROLLED_BACK: Final = 0.1
SCHEMA: Final = (
    ("CREATE CONSTRAINT oracle IF NOT EXISTS FOR (p:Person) REQUIRE p.id IS UNIQUE", "DROP CONSTRAINT oracle"),
    ("CREATE INDEX oracle_movie IF NOT EXISTS FOR (m:Movie) ON (m.id)", "DROP INDEX oracle_movie"),
    ("CREATE INDEX oracle_age IF NOT EXISTS FOR (p:Person) ON (p.age)", "DROP INDEX oracle_age"),
)
_WRITES: Final = [(kind, write) for kind, writes in WRITES.items() for write in writes]
_WEIGHTS: Final = [weight for writes in WRITES.values() for weight in writes.values()]


@dataclass(slots=True)
class Entry:
    shape: str
    params: dict[str, Any]
    value: Any
    tags: set[str]
    is_covered: bool


class Oracle:
    """An entry of every query on a graph under random writes."""

    def __init__(self, driver: neo4j.Driver, graph: Graph, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - no secret
        self.driver, self.graph = driver, graph
        self.plans = Plans(watches)
        triggers = Triggers(driver, "neo4j")
        triggers.install(watches)
        self.watched = WatchedGraph(driver, triggers, Outbox(triggers, watches))
        self._fill()
        self.entries = [self._loaded(shape, self._params()) for shape in SHAPES]
        self.covered = {entry.shape for entry in self.entries if entry.is_covered}
        self.written: Counter[str] = Counter()
        self.transactions: Counter[str] = Counter()
        self.invalidated: Counter[str] = Counter()
        self.changed: Counter[str] = Counter()

    def write(self) -> list[tuple[str, dict[str, Any]]]:
        """Commit a transaction of random writes, or roll it back; returns them.

        One that the graph refuses, since a key is taken or a node gone, is left out.
        """
        chosen = self.rng.choices(_WRITES, _WEIGHTS, k=self.rng.choice(SIZES))
        kinds, writes = (
            [kind for kind, _ in chosen],
            [(self.graph.named(write), drawn(self.rng)) for _, write in chosen],
        )
        is_kept = self.rng.random() >= ROLLED_BACK
        while (refused := self._run(writes, is_kept=is_kept)) is not None:
            del kinds[refused], writes[refused]
        self.written.update(kinds)
        self.transactions["committed" if is_kept else "rolled back"] += 1
        return writes

    def _run(self, writes: list[tuple[str, dict[str, Any]]], *, is_kept: bool) -> int | None:
        """Run writes in a transaction; returns the place of a refused one, with which all are undone."""
        place = 0
        try:
            with self.driver.session(database="neo4j") as session, session.begin_transaction() as tx:
                for place, (write, params) in enumerate(writes):  # noqa: B007 - for who reads the error
                    tx.run(write, params).consume()
                tx.commit() if is_kept else tx.rollback()
        except ClientError as error:
            if not str(error.code).endswith((".ConstraintValidationFailed", ".EntityNotFound")):
                raise
            return place
        return None

    def check(self, writes: list[tuple[str, dict[str, Any]]]) -> None:
        """Compute each entry anew: only those that were invalidated may have changed."""
        stale = self._taken()
        is_named = not any(tag.endswith(bulk_tag("")) for tag in stale)
        self.transactions["too large to be named"] += not is_named
        if self.rng.random() < 0.05:
            self.plans = Plans(watches)
        kept = [entry for entry in self.entries if not entry.tags & stale]
        for entry, value in zip(kept, self._computed(kept), strict=True):
            if entry.is_covered:
                assert value == entry.value, (self.graph.named(SHAPES[entry.shape]), entry, stale, writes)
            entry.value = value
        for place, entry in enumerate(self.entries):
            if entry.tags & stale:
                self.entries[place] = fresh = self._loaded(entry.shape, entry.params)
                self.invalidated[entry.shape] += is_named
                self.changed[entry.shape] += is_named and fresh.value != entry.value

    def precision(self, shapes: set[str] | frozenset[str]) -> float:
        """Return which share of the invalidated entries of these queries has changed."""
        return sum(self.changed[shape] for shape in shapes) / max(1, sum(self.invalidated[shape] for shape in shapes))

    def report(self) -> Iterator[str]:
        """Yield what was written, and how often each query was invalidated, and had changed."""
        yield f"{self.written.total()} writes: {dict(self.written)}; transactions: {dict(self.transactions)}"
        kinds = sorted({shape.partition(":")[0] for shape in ANCHORED})
        anchored = {kind: {shape for shape in ANCHORED if shape.startswith(f"{kind}:")} for kind in kinds}
        for name, shapes in {"anchored": ANCHORED, **anchored, **{shape: {shape} for shape in SHAPES}}.items():
            mark = "*" if shapes <= ANCHORED else " " if shapes <= self.covered else "!"
            counts = (sum(counted[shape] for shape in shapes) for counted in (self.invalidated, self.changed))
            yield "{} {:40}{:6}{:6}{:6.0%}".format(mark, name, *counts, self.precision(shapes))

    def _fill(self) -> None:
        run = self.watched.run
        run("MATCH (n) DETACH DELETE n")
        nodes = "CREATE (:Person {id: i, name: 'n' + i % 30, age: i}), (:Movie {id: i, title: 't' + i, age: i})"
        run(self.graph.named(f"UNWIND range(1, $n) AS i {nodes}"), n=KEYS)
        self.pairs = self.graph.pairs(self.rng)
        find = "UNWIND $pairs AS pair MATCH (a:Person {id: pair[0]}), (b:Person {id: pair[1]}), (m:Movie {id: pair[1]})"
        link = f"{find} CREATE (a)-[:KNOWS {{since: pair[1]}}]->(b) "
        run(
            self.graph.named(
                f"{link} FOREACH (_ IN CASE WHEN pair[0] % 2 = 0 THEN [1] END | CREATE (a)-[:LIKES]->(m))"
            ),
            pairs=self.pairs,
        )
        self._taken()

    def _params(self) -> dict[str, Any]:
        """Return params of a query; of two keys those of neighbours."""
        start, end = self.rng.choice(self.pairs)
        return drawn(self.rng) | {"a": start, "b": end}

    def _loaded(self, shape: str, params: dict[str, Any]) -> Entry:
        reads = self.plans.reads(shape)
        tx = ReadTransaction(lambda: self.driver.session(default_access_mode=neo4j.READ_ACCESS), 30.0)
        with tx, tx.following(reads):
            value = value_of(shape, tx.run(self.graph.named(SHAPES[shape]), dict(params)))  # type: ignore[arg-type]
        return Entry(shape, params, value, set(coarsened(reads.tags, MAX_TAGS)), reads.is_covered)

    def _computed(self, entries: list[Entry]) -> list[Any]:
        with self.driver.session(database="neo4j") as session, session.begin_transaction() as tx:
            return [value_of(one.shape, tx.run(self.graph.named(SHAPES[one.shape]), one.params)) for one in entries]

    def _taken(self) -> set[str]:
        stale: set[str] = set()
        while (taken := self.watched.taken())[1]:
            stale |= taken[0]
        return stale


def value_of(shape: str, rows: neo4j.Result) -> Any:
    """Return a result's rows; their order counts where the query gives them one."""
    found = [plain(dict(row)) for row in rows]
    return found if "ORDER BY" in SHAPES[shape] else sorted(found, key=repr)


def plain(value: Any) -> Any:
    """Return a value that compares by what it holds; the order of lists that a graph collects is its own."""
    if isinstance(value, Node):
        return [sorted(value.labels), plain(dict(value))]
    if isinstance(value, Path):
        return [plain(one) for one in (*value.nodes, *value.relationships)]
    if isinstance(value, Entity | Mapping):
        return sorted((name, plain(one)) for name, one in value.items())
    return sorted(map(plain, value), key=repr) if isinstance(value, list) else value


@pytest.fixture
def driver(neo4j_with_apoc: Neo4jWithApoc) -> Iterator[neo4j.Driver]:
    server = neo4j_with_apoc
    with neo4j.GraphDatabase.driver(
        server.bolt_uri, auth=(server.user, server.password), notifications_min_severity="OFF"
    ) as opened:
        yield opened


@pytest.fixture(params=["R-MAT", "social", pytest.param("packages", marks=pytest.mark.long)])
def graph(
    request: pytest.FixtureRequest, driver: neo4j.Driver, nothing_watched: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Graph]:
    """Watch a graph, with its schema."""
    found = GRAPHS[request.param]
    monkeypatch.setattr(triggers_module, "NOTED_ONE_BY_ONE", found.noted)
    for name in ("Person", "Movie"):
        watches.node(found.named(name), key="id")
    for name in ("KNOWS", "LIKES"):
        watches.relationship(found.named(name))
    for create, _ in SCHEMA if found.is_indexed else ():
        driver.execute_query(found.named(create), database_="neo4j")  # type: ignore[arg-type]
    driver.execute_query("CALL db.awaitIndexes()", database_="neo4j")
    yield found
    for _, drop in SCHEMA if found.is_indexed else ():
        driver.execute_query(drop, database_="neo4j")  # type: ignore[arg-type]
    driver.execute_query("MATCH (n) DETACH DELETE n", database_="neo4j")
    Triggers(driver, "neo4j").uninstall()


@pytest.mark.longer
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(600)
def test_no_write_changes_a_value_that_it_does_not_invalidate(seed: int, graph: Graph, driver: neo4j.Driver) -> None:
    oracle = Oracle(driver, graph, seed)
    for _ in range(TRANSACTIONS):
        oracle.check(oracle.write())
    print(*oracle.report(), sep="\n")  # noqa: T201 - shown by -rP
    assert oracle.covered >= ANCHORED
    assert oracle.precision(ANCHORED) >= MIN_PRECISION, "\n".join(oracle.report())


def test_a_graph_without_plans_is_said_to_have_none(system: System) -> None:
    system.env |= {"REFRESHER_QUERIES": "tests.support.watching_queries"}
    worker, reader = system.start_worker(), system.client()
    assert reader.get("found_names") == []
    assert reader.explain("found_names").tags == ()
    eventually(lambda: "found_names: the change feed does not see all" in worker.log_file.read_text(), "a warning")
