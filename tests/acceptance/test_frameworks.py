"""The examples for FastAPI, Flask and Django under their real servers: each process reads, triggers and ends well."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import neo4j
import pytest

from refresher.embedded import free_port
from tests.acceptance.conftest import ROOT, System
from tests.support.fault_proxy import FaultProxy
from tests.support.graph_session import graph_session
from tests.support.patience import patient_environment
from tests.support.waiting import eventually
from tests.support.web_server import EXAMPLES, WebServer, commands_of

PERSON = 42


class Graph:
    """One person with one friend, whose name changes."""

    def __init__(self, session: neo4j.Session) -> None:
        self._session = session
        session.run("CREATE (:Person {id: $id})-[:KNOWS]->(:Person {id: 1, name: 'Ada'})", id=PERSON).consume()

    def rename(self, name: str) -> None:
        self._session.run("MATCH (f:Person {id: 1}) SET f.name = $name", name=name).consume()


@pytest.fixture
def graph(arcadedb: Any) -> Iterator[Graph]:
    with graph_session(arcadedb) as session:
        yield Graph(session)
        session.run("MATCH (p:Person) DETACH DELETE p").consume()


@pytest.fixture
def worker(system: System) -> None:
    """A real worker with the examples' query."""
    system.start_worker(REFRESHER_QUERIES="my_queries", PYTHONPATH=f"{EXAMPLES}{os.pathsep}{ROOT}")


def started(stack: ExitStack, system: System, command: str, folder: Path, *extra: str, **changes: str) -> WebServer:
    # gunicorn has a socket in the home directory.
    env = patient_environment(folder, {**system.env, "HOME": str(folder), **changes})
    server = WebServer.start(command, env, folder / "server.log", *extra)
    stack.callback(server.process.kill)
    stack.callback(server.http.close)
    return server


def check_refresh(server: WebServer, graph: Graph) -> None:
    """Check that a client with the value gets 304; after a write the old value at once, then what a worker loads."""
    path = f"/people/{PERSON}/friends"

    def is_fresh() -> Any:
        """On a busy machine an invalidation may have hit the load: then another one is under way."""
        reply = server.http.get(path)
        return reply.headers["Cache-Control"] == "private, max-age=300" and reply

    first = eventually(is_fresh, "a fresh value")
    known = {"If-None-Match": first.headers["ETag"]}
    assert 0 <= int(first.headers["Age"]) <= 300
    reply = server.http.get(path, headers=known)
    assert (reply.status_code, reply.content, reply.headers["ETag"]) == (304, b"", first.headers["ETag"])
    graph.rename("Grace")
    server.report_write(PERSON)
    assert server.friends(PERSON) == ["Ada"]
    eventually(lambda: server.friends(PERSON) == ["Grace"], "the refreshed value is served")
    assert server.http.get(path, headers=known).status_code == 200


def check_local(server: WebServer, system: System) -> None:
    """Check that the answering process has its in-process tier: reads without a GET to Redis."""

    def gets() -> int:
        return int(system.cache.info("commandstats")["cmdstat_get"]["calls"])

    def sends_no_get() -> bool:
        before = gets()
        for _ in range(3):
            server.friends(PERSON)
        return gets() == before

    eventually(sends_no_get, "reads are answered in the process")


RUNS = {
    # The example, which of its commands, more options, entries of the in-process cache, and the exit code.
    "flask, preloaded": ("flask_app.py", 0, (), "0", 0),
    "flask, threads": ("flask_app.py", 0, ("--threads", "4"), "1000", 0),
    "django": ("django_app.py", 0, (), "0", 0),
    "django's own server": ("django_app.py", 1, (), "0", 0),
    # uvicorn shuts down, and then ends itself by the signal: handlers of `atexit` would not run.
    "fastapi on asyncio": ("fastapi_app.py", 0, ("--loop", "asyncio"), "1000", -signal.SIGTERM),
    "fastapi on uvloop": ("fastapi_app.py", 0, ("--loop", "uvloop"), "0", -signal.SIGTERM),
    "fastapi, two processes": ("fastapi_app.py", 1, (), "1000", 0),
}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("example", "command", "options", "local_entries", "exit_code"), RUNS.values(), ids=RUNS)
def test_an_example_answers_refreshes_and_ends_well(
    system: System, stack: ExitStack, graph: Graph, tmp_path: Path,
    example: str, command: int, options: tuple[str, ...], local_entries: str, exit_code: int,
) -> None:  # fmt: skip
    started_by = commands_of(example)[command]
    server = started(stack, system, started_by, tmp_path, *options, CACHE_LOCAL_MAX_ENTRIES=local_entries)
    with ThreadPoolExecutor(20) as pool:  # many at once wait for one load
        assert list(pool.map(server.friends, [PERSON] * 20)) == [["Ada"]] * 20
    check_refresh(server, graph)
    if local_entries != "0":
        check_local(server, system)
    assert server.stop(signal.SIGINT if "runserver" in started_by else signal.SIGTERM) == exit_code
    assert [line for line in server.trouble() if "development server" not in line] == []


@pytest.mark.usefixtures("worker", "graph")
@pytest.mark.parametrize("example", ["fastapi_app.py", "flask_app.py", "django_app.py"])
def test_a_graceful_stop_publishes_triggers_still_in_the_backlog(
    system: System, stack: ExitStack, tmp_path: Path, example: str
) -> None:
    broker = system.env["CACHE_BROKER_URL"]
    proxy = stack.enter_context(FaultProxy.before(broker))
    command = commands_of(example)[0].replace("--workers 2", "--workers 1")
    server = started(stack, system, command, tmp_path, CACHE_BROKER_URL=proxy.url(broker))
    client = system.client()
    key, other_key = (client.key("friends_of", {"person_id": person}) for person in (PERSON, 43))
    for person in (PERSON, 43):
        client.get("friends_of", {"person_id": person})
        client.invalidate("friends_of", {"person_id": person})
    stale = system.cache.get(key.entry)

    # Its publisher has been used, so that nothing is left to import; but it has no connection, and connecting takes
    # several replies.
    proxy.hangs()
    assert server.friends(43) == []
    eventually(lambda: proxy.accepted, "the publisher has claimed, and connects to the broker")
    proxy.refuses()
    eventually(lambda: system.record(other_key).get("state") != "queued", "it could not publish")
    proxy.slows(0.05)
    assert server.friends(PERSON) == ["Ada"]
    server.stop()
    eventually(lambda: system.cache.get(key.entry) != stale, "the refresh was done")


@pytest.mark.parametrize("example", ["fastapi_app.py", "flask_app.py", "django_app.py"])
def test_without_the_cache_an_application_starts_and_responds_with_503(
    stack: ExitStack, tmp_path: Path, example: str
) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    env |= {"CACHE_REDIS_URL": nowhere, "CACHE_BROKER_URL": nowhere}
    server = WebServer.start(commands_of(example)[0], env, tmp_path / "server.log")
    stack.callback(server.process.kill)
    stack.callback(server.http.close)
    reply = server.http.get(f"/people/{PERSON}/friends")
    assert (reply.status_code, reply.json()) == (503, {"error": "not available now"})
    server.stop()
    assert "Traceback" not in server.process.log_file.read_text()
