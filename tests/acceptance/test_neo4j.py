"""The same job on a real Neo4j, and what only a real one shows: bookmarks, read-only sessions, endless results."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import neo4j
import pytest

from api_client import EntryState, RefreshFailed
from refresher.embedded import RedisServer
from refresher.embedded.neo4j_server import Neo4jServer
from refresher.errors import LoadFailed
from refresher.graph.loader import Graph
from refresher.queries import Query, Registry, query
from refresher.settings import WorkerSettings
from tests.acceptance.conftest import System, system_of_module
from tests.support.any_reader import KINDS
from tests.support.graph_session import session_with_hub
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("published_once")

MAX_BYTES = 50_000


@pytest.fixture(scope="module")
def module_worker(
    redis_server: RedisServer, neo4j_server: Neo4jServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A system on a real Neo4j, with a worker."""
    with system_of_module(redis_server, neo4j_server, tmp_path_factory) as system:
        system.start_worker()
        yield system


@pytest.fixture
def session(neo4j_server: Neo4jServer) -> Iterator[neo4j.Session]:
    with session_with_hub(neo4j_server) as opened:
        yield opened


@pytest.mark.promise("Refreshing", "After an invalidation with a bookmark, the graph is read behind it")
@pytest.mark.parametrize("kind", KINDS)
def test_an_invalidated_value_is_reloaded_after_the_bookmark_of_its_invalidation(
    system_with_worker: System, session: neo4j.Session, kind: str
) -> None:
    client = system_with_worker.reader(kind)
    first = client.get_entry("from_graph", {"name": "hub"})
    assert (first.value, first.degree) == ([{"name": "hub", "version": 1}], 10)

    session.run("MATCH (a:Item {name: 'hub'}) SET a.version = 2").consume()
    bookmarks = tuple(session.last_bookmarks().raw_values)
    done = client.invalidate("from_graph", {"name": "hub"}, bookmarks=bookmarks)
    assert client.get_entry("from_graph", {"name": "hub"}).state is EntryState.STALE
    after = client.get_entry("from_graph", {"name": "hub"}, min_generation=done.generation)
    assert after.value == [{"name": "hub", "version": 2}]
    assert after.token > done.generation
    assert set(after.bookmarks) == set(bookmarks)
    assert client.get_entry("from_graph", {"name": "hub"}, min_bookmarks=bookmarks).token == after.token


NO_BOOKMARKS = ["no bookmark of any graph", "FB:xx", "x"]


@pytest.mark.parametrize("bookmark", NO_BOOKMARKS)
def test_an_invalid_bookmark_of_an_invalidation_fails_one_load(
    system_with_worker: System, session: neo4j.Session, bookmark: str
) -> None:
    client = system_with_worker.client()
    client.invalidate("from_graph", {"name": "hub"}, bookmarks=[bookmark])
    assert client.get("from_graph", {"name": "hub"}) == [{"name": "hub", "version": 1}]
    letters = eventually(lambda: system_with_worker.cache.zrange("cache:dead1", 0, -1), "the dead letter is there")
    assert [json.loads(letter)["kind"] for letter in letters] == ["bookmark"]


@pytest.mark.parametrize("bookmark", NO_BOOKMARKS)
def test_an_invalid_bookmark_of_a_reader_fails_only_the_reads_that_pass_it(
    system_with_worker: System, session: neo4j.Session, bookmark: str
) -> None:
    client = system_with_worker.client()
    for _ in range(3):
        with pytest.raises(RefreshFailed) as caught:
            client.get("from_graph", {"name": "hub"}, min_bookmarks=[bookmark])
        assert caught.value.kind == "bookmark"
        assert client.get("from_graph", {"name": "hub"}) == [{"name": "hub", "version": 1}]
        client.invalidate("from_graph", {"name": "hub"}, hard=True)


def test_a_bookmark_that_the_graph_never_reaches_fails_only_the_read_that_passes_it(
    system_with_worker: System, session: neo4j.Session
) -> None:
    # A transaction far in the future, of this very database: packed as [uuid, number, []].
    (real,) = session.last_bookmarks().raw_values
    packed = base64.b64decode(real.removeprefix("FB:") + "==")
    future = "FB:" + base64.b64encode(packed[:19] + b"\xc9\x7f\xff\x90").decode()
    client = system_with_worker.client()
    with pytest.raises(RefreshFailed) as caught:
        client.get("from_graph", {"name": "hub"}, min_bookmarks=[future])
    assert caught.value.kind == "bookmark_timeout"
    assert client.get("from_graph", {"name": "hub"}) == [{"name": "hub", "version": 1}]


def registered(loader_body: str, **options: object) -> Query:
    into = Registry()

    @query("q", ttl="1h", grace="1h", into=into, **options)  # type: ignore[arg-type]
    def load(tx: neo4j.ManagedTransaction) -> list[dict[str, object]]:
        return tx.run(loader_body).data()  # type: ignore[arg-type]

    (found,) = into
    return found


@pytest.fixture
def graph(neo4j_server: Neo4jServer) -> Iterator[Graph]:
    settings = WorkerSettings(
        neo4j_uri=neo4j_server.bolt_uri, neo4j_user=neo4j_server.user, neo4j_password=neo4j_server.password,
        max_value_bytes=MAX_BYTES,
    )  # fmt: skip
    opened = Graph(settings)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("cypher", "kind", "is_transient"),
    [
        ("MATCH this is no Cypher", "syntax", False),
        ("RETURN $missing", "rejected_by_graph", False),
        ("RETURN 1/0", "rejected_by_graph", False),
        ("CALL no.such.procedure()", "rejected_by_graph", False),
        ("CREATE (:Item {name: 'written by a reader'})", "writes", False),
    ],
)
def test_a_query_that_the_graph_rejects_is_a_permanent_failure(
    graph: Graph, cypher: str, kind: str, is_transient: bool
) -> None:
    with pytest.raises(LoadFailed) as caught:
        graph.load(registered(cypher), [{}], [None], (), 5.0)
    assert (caught.value.kind, caught.value.is_transient) == (kind, is_transient)


def test_what_the_server_notes_of_a_query_is_logged_once(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    labels = ("NobodyMadeThisLabel", "NorThisOne")
    for label in labels * 2:
        graph.load(registered(f"MATCH (n:{label}) RETURN count(n) AS n"), [{}], [None], (), 5.0)
    said = [record.getMessage() for record in caplog.records if record.name == "neo4j.notifications"]
    assert [sum(label in text for text in said) for label in labels] == [1, 1]
