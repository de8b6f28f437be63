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
from tests.support.requirements import each_with_each
from tests.support.waiting import eventually
from tests.support.web_server import EXAMPLES, WebServer, commands_of

BUSY_MASTER = ("--config", str(ROOT / "tests" / "support" / "busy_master.py"))
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


def check_refresh(server: WebServer, graph: Graph, name: str) -> None:
    """Check that the application serves a change: the old value at once, then what a worker has loaded."""
    before = server.friends(PERSON)
    graph.rename(name)
    server.report_write(PERSON)
    assert server.friends(PERSON) == before != [name]
    eventually(lambda: server.friends(PERSON) == [name], f"the refreshed value with {name} is served")


def check_conditional(server: WebServer, graph: Graph, name: str) -> None:
    """Check that a client with the value gets 304, and the value again once it has been refreshed."""
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
    check_refresh(server, graph, name)
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


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("local_entries", "threads"), [("0", ()), ("1000", ("--threads", "4"))])
def test_every_process_forked_from_a_busy_preloaded_master_refreshes(
    system: System, stack: ExitStack, graph: Graph, tmp_path: Path, local_entries: str, threads: tuple[str, ...]
) -> None:
    [command] = commands_of("flask_app.py")
    assert "--preload" in command
    server = started(stack, system, command, tmp_path, *BUSY_MASTER, *threads, CACHE_LOCAL_MAX_ENTRIES=local_entries)
    eventually(lambda: len(server.children()) == 2, "two workers")
    first, second = server.children()

    for pid in (first, second):
        with server.only(pid):
            check_conditional(server, graph, f"seen by {pid}")
            assert server.answered_by()[-1] == pid
            if local_entries != "0":
                check_local(server, system)
    assert server.trouble() == []

    os.kill(first, signal.SIGKILL)
    read = f"the master reads [Friend(name='seen by {second}')]"
    eventually(lambda: read in server.process.tail_of_log(1_000), "the master's own client works on")
    third = eventually(lambda: server.children() - {first, second}, "another worker is forked").pop()
    with server.only(third):
        check_refresh(server, graph, f"seen by {third}")
        assert server.answered_by()[-1] == third
        if local_entries != "0":
            check_local(server, system)

    assert server.stop() == 0
    assert [line for line in server.trouble() if f"pid:{first}" not in line] == []


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("command", commands_of("django_app.py"))
def test_django_answers_and_refreshes(
    system: System, stack: ExitStack, graph: Graph, tmp_path: Path, command: str
) -> None:
    server = started(stack, system, command, tmp_path)
    assert server.friends(PERSON) == ["Ada"]
    check_conditional(server, graph, "Grace")
    assert server.stop(signal.SIGTERM if "gunicorn" in command else signal.SIGINT) == 0
    assert [line for line in server.trouble() if "development server" not in line] == []


@pytest.mark.usefixtures("worker")
@each_with_each("loop", ("asyncio", "uvloop"), "local_entries", ("0", "1000"), ())
def test_fastapi_answers_and_refreshes_on_each_event_loop(
    system: System, stack: ExitStack, graph: Graph, tmp_path: Path, loop: str, local_entries: str
) -> None:
    command = commands_of("fastapi_app.py")[0]
    server = started(stack, system, command, tmp_path, "--loop", loop, CACHE_LOCAL_MAX_ENTRIES=local_entries)
    # Many at once wait for one load.
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(server.friends, [PERSON] * 20)) == [["Ada"]] * 20
    check_refresh(server, graph, "Grace")
    if local_entries != "0":
        check_local(server, system)
    # uvicorn shuts down, and then ends itself by the signal: handlers of `atexit` would not run.
    assert server.stop() == -signal.SIGTERM
    assert "Application shutdown complete." in server.process.tail_of_log()
    assert server.trouble() == []


@pytest.mark.usefixtures("worker")
def test_fastapi_answers_and_refreshes_in_several_processes(
    system: System, stack: ExitStack, graph: Graph, tmp_path: Path
) -> None:
    command = commands_of("fastapi_app.py")[1]
    server = started(stack, system, command, tmp_path, CACHE_LOCAL_MAX_ENTRIES="1000")
    check_conditional(server, graph, "Grace")
    assert server.stop() == 0
    assert server.trouble() == []


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
