"""A whole system for a test: a Redis of its own, the session's graph, worker processes, readers."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
import redis
from celery import Celery
from kombu import Connection

from api_client import CacheClient, ReaderEvents, ReaderSettings
from api_client.config.broker import miss_queue, refresh_queue
from api_client.protocol.entry import Smoothed, decode_header, encode
from api_client.protocol.keys import CacheKey
from api_client.trigger.broker import queue_length
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from refresher.embedded.neo4j_server import Neo4jServer
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.any_reader import KINDS, AnyReader
from tests.support.requirements import skip_or_fail
from tests.support.scripted_queries import CONTROL_URL
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser


CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
ROOT = Path(__file__).parents[2]
NO_GRAPH: Final = SimpleNamespace(bolt_uri="bolt://127.0.0.1:1", user="neo4j", password="", database="")
"""For a system whose loads never query the graph."""
SHOWN_LINES: Final = 100


class System:
    """Redis, graph, workers, readers; all of it ends with the test.

    ``control`` is on another server, so that loads can be watched and steered while the system's own Redis is down.
    """

    def __init__(self, stack: ExitStack, server: RedisServer, control: RedisServer, graph: Any, folder: Path) -> None:
        self._stack, self._folder, self._workers = stack, folder, 0
        self.redis_server = server
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CACHE_REDIS_URL": server.url(0),
            "CACHE_BROKER_URL": server.url(1),
            CONTROL_URL: control.url(2),
            "NEO4J_URI": graph.bolt_uri,
            "NEO4J_USER": graph.user,
            "NEO4J_PASSWORD": graph.password,
            "NEO4J_DATABASE": graph.database,
            "REFRESHER_QUERIES": "tests.support.scripted_queries",
            "CACHE_XFETCH_WORKERS": "2",
            "CACHE_XFETCH_MIN_TTL": "0",
            # Long, so that a busy machine exceeds none. A lease is as long as the time budget then; a test in which one
            # lapses sets a shorter one.
            "CACHE_REDIS_TIMEOUT": "20s",
            "STAMPEDE_WAIT_TIMEOUT_MS": f"{1_000 * MAX_WAIT_SECONDS:.0f}",
            "STAMPEDE_LOCK_TIMEOUT_MS": f"{1_000 * MAX_WAIT_SECONDS:.0f}",
        }
        self.cache = stack.enter_context(redis.Redis.from_url(server.url(0)))
        self.broker = stack.enter_context(redis.Redis.from_url(server.url(1)))
        self.control = stack.enter_context(redis.Redis.from_url(control.url(2), decode_responses=True))
        self.control.flushdb()

    def client(self, events: ReaderEvents | None = None, **changes: str) -> CacheClient:
        """A reader in this process."""
        return self._stack.enter_context(CacheClient(ReaderSettings.from_env({**self.env, **changes}), events=events))

    def reader(self, kind: str, events: ReaderEvents | None = None, **changes: str) -> AnyReader:
        """A reader in this process, of one of `KINDS`."""
        reader = KINDS[kind](ReaderSettings.from_env({**self.env, **changes}), events or ReaderEvents())
        self._stack.callback(reader.close)
        return reader

    def start_worker(self, *args: str, app: str = "refresher", ready: bool = True, **changes: str) -> GuardedProcess:
        """A Celery worker in a process of its own; returns when it consumes."""
        self._workers += 1
        name = f"worker-{self._workers}"
        worker = GuardedProcess.start(
            [
                sys.executable, "-m", "tests.support.celery_program", "-A", app, "worker", "--loglevel", "INFO",
                "-n", f"{name}@test", *args,
            ],
            env={**self.env, **changes},
            cwd=ROOT,
            log_file=self._folder / f"{name}.log",
        )  # fmt: skip
        self._stack.callback(_end_worker, name, worker)
        if ready:
            eventually(lambda: "ready." in worker.log_file.read_text(), f"{name} is ready")
        return worker

    def until_commands_are_taken(self) -> None:
        """Wait for a worker to reply: it is ready before it has subscribed to commands, of which Redis keeps none."""
        with Celery(broker=self.env["CACHE_BROKER_URL"], set_as_current=False) as sender:
            eventually(lambda: sender.control.ping(limit=1, timeout=1.0), "it takes commands")

    def make_every_draw_positive(self, client: CacheClient, query: str, params: dict[str, Any]) -> None:
        """Change a fresh entry so that it expires in ten minutes, and any read of it triggers an early refresh."""
        key = client.key(query, params)
        raw = self.cache.get(key.entry) or b""
        header = decode_header(raw, key.digest)
        early = msgspec.structs.replace(header, soft_expiry_us=self.now_us() + 600_000_000, delta=Smoothed(1e15, 0))
        self.cache.set(key.entry, encode(early, key.digest, raw[header.length :]), keepttl=True)

    def now_us(self) -> int:
        """The time of the cache's Redis."""
        seconds, microseconds = self.cache.time()
        return int(seconds * 1_000_000 + microseconds)

    def loads(self, key: str) -> int:
        """How many loads of a scripted query have begun."""
        return int(self.control.llen(f"calls:{key}"))

    def open_gate(self, hold: str, times: int = 1) -> None:
        """Let held loads go on."""
        self.control.rpush(f"gate:{hold}", *["open"] * times)

    def waiting(self, queue: Callable[[str, str], str]) -> int:
        """Return the length of a queue of the workers' broker; `queue` builds its name."""
        url = self.env["CACHE_BROKER_URL"]
        with Connection(url) as connection:
            return queue_length(connection, queue(self.env.get("CACHE_NAMESPACE", "cache"), url))

    def empty(self) -> None:
        """Wait until the workers have nothing to do, and delete all but the versions that they have registered."""
        eventually(
            lambda: not (self.waiting(miss_queue) or self.waiting(refresh_queue) or self.broker.hlen("unacked")),
            "no message is under way",
        )
        for key in self.cache.scan_iter():
            if b":v1:" not in key:
                self.cache.delete(key)
        self.control.flushdb()

    def end_readers_with(self, stack: ExitStack) -> None:
        """Close readers with ``stack`` from now on, and copy the settings."""
        self._stack, self.env = stack, dict(self.env)

    def record(self, key: CacheKey) -> dict[str, str]:
        """The lease record as it stands."""
        return {name.decode(): value.decode("latin-1") for name, value in self.cache.hgetall(key.record).items()}


def _end_worker(name: str, worker: GuardedProcess) -> None:
    worker.kill()
    print(f"the log of {name}:", worker.tail_of_log(SHOWN_LINES), sep="\n")  # noqa: T201 - shown where the test failed


@pytest.fixture(autouse=True)
def publishers(patient_publishers: None) -> None:
    """Readers in this process publish patiently. Where their timeouts are the subject, a file overrides this."""


@pytest.fixture
def system(stack: ExitStack, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path: Path) -> System:
    """A system on the embedded graph. Its Redis is its own: tests kill it, configure it, count all keys."""
    return System(stack, stack.enter_context(RedisServer.start()), redis_server, arcadedb, tmp_path)


@pytest.fixture
def system_without_graph(stack: ExitStack, redis_server: RedisServer, tmp_path: Path) -> System:
    """A system whose loads don't query the graph."""
    return System(stack, stack.enter_context(RedisServer.start()), redis_server, NO_GRAPH, tmp_path)


@contextmanager
def system_of_module(control: RedisServer, graph: Any, folders: pytest.TempPathFactory) -> Iterator[System]:
    """A system that ends with the tests of a module, not with one of them."""
    with ExitStack() as opened:
        server = opened.enter_context(RedisServer.start())
        yield System(opened, server, control, graph, folders.mktemp("module"))


@pytest.fixture(scope="module")
def module_worker(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A system on the embedded graph with a worker."""
    with system_of_module(redis_server, arcadedb, tmp_path_factory) as system:
        system.start_worker()
        yield system


@pytest.fixture
def system_with_worker(module_worker: System, stack: ExitStack) -> System:
    """The module's system, emptied, for a test that neither ends nor configures a component of it."""
    module_worker.empty()
    system = copy.copy(module_worker)
    system.end_readers_with(stack)
    return system


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMqServer]:
    """One RabbitMQ for the session."""
    with RabbitMqServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file; each opens a context of its own. Without one the tests are skipped.

    Not for the session: while it is open, playwright's event loop is that of the thread, and `asyncio.run` fails.
    """
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        skip_or_fail(f"none of {', '.join(CHROMIUM_NAMES)} is on PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def neo4j_system(stack: ExitStack, redis_server: RedisServer, neo4j_server: Neo4jServer, tmp_path: Path) -> System:
    """A system on a real Neo4j."""
    return System(stack, stack.enter_context(RedisServer.start()), redis_server, neo4j_server, tmp_path)
