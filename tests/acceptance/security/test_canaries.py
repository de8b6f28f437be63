"""Passwords and params of sensitive queries, each a canary: they appear in nothing that is shown, logged or kept."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest
import redis

from api_client import CacheClient, CacheError, ReaderSettings, RefreshFailed, TriggerFailed
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from refresher.settings import WorkerSettings
from tests.acceptance.conftest import ROOT, System
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.processes import shown_in_process_list
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

PERSON = "canary-person-5e1d90"
COOKIE = "canary-cookie-77ab02"
QUERIES = ("kept_private", "private_and_wrong", "private_and_refused", "private_and_late")
# It ends with the reply of the one worker.
INSPECT = ("celery", "-A", "refresher", "inspect", "-d", "worker-1@test", "-t", str(MAX_WAIT_SECONDS))


class Watched:
    """A running system whose every secret is known, and all that it has shown so far."""

    def __init__(self, stack: ExitStack, system: System, broker: RedisServer, graph: ArcadeDbServer) -> None:
        self.system, self.broker = system, stack.enter_context(redis.Redis.from_url(broker.url()))
        self.secrets = {
            "the cache's password": system.redis_server.password,
            "the broker's password": broker.password,
            "the graph's password": graph.password,
            "Flower's password": PASSWORD,
            "Flower's cookie secret": COOKIE,
            "a param": PERSON,
        }
        self.worker: GuardedProcess
        self.flower: Flower
        self.client: CacheClient

    def found_in(self, shown: str | bytes) -> list[str]:
        text = shown if isinstance(shown, bytes) else shown.encode()
        return [name for name, secret in self.secrets.items() if secret.encode() in text]

    def run(self, *command: str) -> str:
        """Run a command as an operator does, in the worker's environment; all that it wrote."""
        ended = subprocess.run(
            [sys.executable, "-m", *command], env=self.system.env, cwd=ROOT, capture_output=True, text=True,
            timeout=MAX_WAIT_SECONDS, check=False,
        )  # fmt: skip
        assert ended.stdout, ended.stderr
        return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def watched(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A system of which each query was requested with the canary; worker and Flower log at every level."""
    folder = tmp_path_factory.mktemp("canaries")
    with ExitStack() as stack:
        cache, broker = (stack.enter_context(RedisServer.start()) for _ in range(2))
        system = System(stack, cache, redis_server, arcadedb, folder)
        system.env |= {
            "CACHE_BROKER_URL": broker.url(), "REFRESHER_QUERIES": "tests.support.sensitive_queries",
            "CACHE_XFETCH_RETRY_MAX": "2", "CACHE_XFETCH_RETRY_BACKOFF": "3",
            "CACHE_RECORD_RETENTION": "1h",  # they are inspected at the end
        }  # fmt: skip
        made = Watched(stack, system, broker, arcadedb)
        made.worker = system.start_worker("-c", "1", "--loglevel", "DEBUG")
        made.flower = Flower(
            system.env, folder, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}", FLOWER_COOKIE_SECRET=COOKIE,
            FLOWER_LOGGING="debug",
        )  # fmt: skip
        stack.callback(made.flower.process.kill)
        eventually(lambda: made.flower.sees("worker-1@test"), "Flower knows the worker")
        made.client = system.client()
        assert made.client.get("kept_private", {"person": PERSON})["rows"]
        for query in QUERIES[1:]:
            with pytest.raises(RefreshFailed) as caught:
                made.client.get(query, {"person": PERSON})
            assert made.found_in("".join(traceback.format_exception(caught.value))) == []
        yield made


@pytest.mark.promise("Contract and operation", "No log, page or command shows a secret")
def test_no_log_of_worker_or_flower_shows_a_secret_at_any_level(watched: Watched) -> None:
    said = watched.worker.log_file.read_text()
    assert "DEBUG" in said
    for query in QUERIES:
        assert query in said
    shown = [line[:200] for line in said.splitlines() if watched.found_in(line)]
    assert shown == []
    assert watched.found_in(watched.flower.process.log_file.read_text()) == []


def test_no_command_line_shows_a_secret(watched: Watched) -> None:
    assert [name for name, secret in watched.secrets.items() if shown_in_process_list(secret)] == []


def test_worker_processes_have_the_graph_password_in_neo4j_password_only(watched: Watched) -> None:
    graph, person = watched.secrets["the graph's password"], watched.secrets["a param"]
    environs = [psutil.Process(watched.worker.pid).environ()]
    environs += [child.environ() for child in psutil.Process(watched.worker.pid).children(recursive=True)]
    for environ in environs:
        environ.pop("PYTEST_CURRENT_TEST", None)  # names the parameters of the test that started the worker
    assert all(person not in " ".join(environ.values()) for environ in environs)
    names = {name for environ in environs for name, value in environ.items() if value == graph}
    assert names == {"NEO4J_PASSWORD"}


def test_no_page_and_no_api_reply_of_flower_shows_a_secret(watched: Watched) -> None:
    def page_of(path: str) -> bytes:
        status, page = watched.flower.fetch(path)
        return page if status == 200 else b""  # 404: the worker has not answered Flower in time

    tasks = eventually(
        lambda: len(found := json.loads(page_of("/api/tasks"))) >= len(QUERIES) and found, "a task of each query"
    )
    paths = ["/", "/workers", "/tasks", "/broker", "/worker/worker-1@test", "/api/workers?refresh=1", "/api/tasks"]
    paths += ["/api/queues/length", "/api/task/types", "/metrics"]
    paths += [f"{path}{task_id}" for task_id in tasks for path in ("/task/", "/api/task/info/")]
    for path in paths:
        page = eventually(partial(page_of, path), f"{path} is shown")
        assert (path, watched.found_in(page)) == (path, [])


@pytest.mark.parametrize(
    "command",
    [
        (*INSPECT, "conf"),
        (*INSPECT, "stats"),
        (*INSPECT, "report"),
        ("celery", "-A", "refresher", "report"),
        ("refresher.cli", "explain", "kept_private", f"person={PERSON}"),
        ("refresher.cli", "explain", "private_and_wrong", f"person={PERSON}", "--json"),
        ("refresher.cli", "dead", "list"),
    ],
    ids=" ".join,
)
def test_no_command_output_shows_a_secret(watched: Watched, command: tuple[str, ...]) -> None:
    assert watched.found_in(watched.run(*command)) == []


def test_no_dead_letter_lease_record_or_key_contains_a_secret(watched: Watched) -> None:
    cache = watched.system.cache
    letters = eventually(
        lambda: found if len(found := cache.zrange("cache:dead1", 0, -1)) >= len(QUERIES) - 1 else [], "dead letters"
    )
    assert {json.loads(letter)["query"] for letter in letters} == set(QUERIES[1:])
    assert [watched.found_in(letter) for letter in letters] == [[] for _ in letters]
    records = [cache.hgetall(key) for key in cache.scan_iter("cache:l1:*")]
    assert records
    assert [watched.found_in(repr(record)) for record in records] == [[] for _ in records]
    assert [key for key in cache.scan_iter("*") if watched.found_in(key)] == []


def test_no_worker_event_shows_a_secret(watched: Watched) -> None:
    with watched.broker.pubsub() as pubsub:
        pubsub.psubscribe("*celeryev*")
        assert watched.system.client().refresh("private_and_wrong", {"person": PERSON}, wait=False)
        seen: list[bytes] = []
        pubsub.get_message(timeout=1)

        def ended() -> bool:
            message = pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
            if message:
                seen.append(message["data"])
            return any(b"task-failed" in event for event in map(body_of, seen))

        eventually(ended, "the refresh has ended")
    assert [watched.found_in(event) + watched.found_in(body_of(event)) for event in seen] == [[] for _ in seen]


def body_of(envelope: bytes) -> bytes:
    import base64

    return base64.b64decode(json.loads(envelope)["body"])


def test_no_log_error_or_repr_of_a_reader_shows_a_secret(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    env = watched.system.env
    settings = ReaderSettings.from_env(env)
    shown = [repr(settings), str(settings), repr(WorkerSettings.from_env(env)), repr(watched.client)]
    wrong = {
        "a wrong password": env["CACHE_REDIS_URL"].replace("@", "x@"),
        "no server": env["CACHE_REDIS_URL"].replace("127.0.0.1", "127.0.0.2"),
        "no port": env["CACHE_REDIS_URL"].replace("/0", "x/0"),
    }
    for url in wrong.values():
        try:
            with watched.system.client(CACHE_REDIS_URL=url) as client:
                client.get("kept_private", {"person": PERSON}, timeout=2)
        except CacheError as error:
            shown += ["".join(traceback.format_exception(error)), repr(error), str(vars(error))]
    with watched.system.client(CACHE_BROKER_URL=env["CACHE_BROKER_URL"].replace("@", "x@")) as client:
        with pytest.raises(TriggerFailed) as caught:
            client.refresh("kept_private", {"person": PERSON})
        shown.append("".join(traceback.format_exception(caught.value)))
        shown.append(str(client.explain("kept_private", {"person": PERSON})))
    assert len(shown) == 4 + 3 * len(wrong) + 2
    assert [name for each in [*shown, caplog.text] for name in watched.found_in(each)] == []


def test_the_log_of_a_worker_that_cannot_reach_its_servers_shows_no_secret(watched: Watched) -> None:
    env = watched.system.env
    worker = watched.system.start_worker(
        "--loglevel", "DEBUG", ready=False,
        CACHE_REDIS_URL=env["CACHE_REDIS_URL"].replace("@", "x@"),
        CACHE_BROKER_URL=env["CACHE_BROKER_URL"].replace("@", "x@"),
        NEO4J_PASSWORD=env["NEO4J_PASSWORD"] + "x",
    )  # fmt: skip
    try:
        eventually(lambda: "Cannot connect to" in worker.log_file.read_text(), "it logs the failure")
    finally:
        worker.kill()
    said = worker.log_file.read_text()
    assert "CACHE_REDIS_URL=redis://:***@" in said
    assert watched.found_in(said) == []


def test_the_search_for_canaries_finds_them(watched: Watched, tmp_path: Path) -> None:
    assert watched.found_in(f"{PERSON} {PASSWORD}") == ["Flower's password", "a param"]
    assert all(len(secret) >= 12 for secret in watched.secrets.values())
