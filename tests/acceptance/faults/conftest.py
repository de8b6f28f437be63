"""A system whose reader is behind proxies: cache and broker on servers of their own, a worker that is never cut off."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis

from api_client import EntryState, ReaderSettings, WaitTimeout
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.any_reader import KINDS, AnyReader, answer_of
from tests.support.event_recorder import EventRecorder
from tests.support.fault_proxy import FaultProxy
from tests.support.redis_memory import full
from tests.support.requirements import each_with_each
from tests.support.timing import MAX_STALL_SECONDS, promptly
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

QUERY = "long_lived"
READER_SILENCE_SECONDS = 1.0  # a process triggers a key at most once in it
_numbers = itertools.count(1)


class World:
    """A system, and entries for a test to read, made by a client that no fault affects.

    ``parts`` is the system: its control, its workers. ``broker`` is a URL, or a server that a test may kill.
    """

    def __init__(self, parts: System, cache_server: RedisServer, broker: RedisServer | str) -> None:
        self.parts, self.cache_server = parts, cache_server
        self.broker_server = broker if isinstance(broker, RedisServer) else None
        self.broker_url = broker.url() if isinstance(broker, RedisServer) else broker
        parts.env |= {"CACHE_BROKER_URL": self.broker_url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
        self.healthy = parts.client()
        self._workers: list[GuardedProcess] = []

    def start_worker(self) -> None:
        """Start one more worker; it consumes when this returns."""
        self._workers.append(self.parts.start_worker())

    def kill_workers(self) -> None:
        """SIGKILL them all."""
        while self._workers:
            self._workers.pop().kill()

    @property
    def namespace(self) -> str:
        return str(self.parts.env["CACHE_NAMESPACE"])

    def unknown(self) -> dict[str, Any]:
        """Params of an entry that was never requested."""
        return {"key": f"key-{next(_numbers)}"}

    def fresh(self) -> dict[str, Any]:
        """Params of a fresh entry."""
        params = self.unknown()
        self.healthy.get(QUERY, params)
        return params

    def stale(self) -> dict[str, Any]:
        """Params of a stale entry whose refresh has not been triggered."""
        params = self.fresh()
        self.healthy.invalidate(QUERY, params)
        return params

    def record_of(self, params: dict[str, Any]) -> dict[str, str]:
        """The lease record as it stands."""
        return self.parts.record(self.healthy.key(QUERY, params))

    @contextmanager
    def full(self, server: RedisServer) -> Iterator[None]:
        """Let a server refuse whatever needs memory."""
        with redis.Redis.from_url(server.url()) as client, full(client):
            yield


Servers = tuple[RedisServer, ArcadeDbServer]


@pytest.fixture(scope="module")
def shared_servers(redis_server: RedisServer, arcadedb: ArcadeDbServer) -> Servers:
    """The servers that no fault affects: the control's Redis, and the graph."""
    return redis_server, arcadedb


def make_world(stack: ExitStack, servers: Servers, folder: Path, broker_url: str = "") -> World:
    """Start the cache's server, the broker's unless there is one, and a worker."""
    cache = stack.enter_context(RedisServer.start())
    broker = broker_url or stack.enter_context(RedisServer.start())
    world = World(System(stack, cache, *servers, folder), cache, broker)
    world.start_worker()
    return world


@pytest.fixture(scope="module")
def world_on_redis(shared_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Redis is the broker, too."""
    with ExitStack() as stack:
        yield make_world(stack, shared_servers, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def world_on_rabbitmq(
    shared_servers: Servers, rabbitmq: RabbitMqServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """RabbitMQ is the broker."""
    with ExitStack() as stack:
        yield make_world(stack, shared_servers, tmp_path_factory.mktemp("world"), rabbitmq.url)


@pytest.fixture(autouse=True)
def once(published_once: None) -> None:
    """An entry that a test has made stale stays so until it is read."""


@pytest.fixture
def make_own_world(stack: ExitStack, shared_servers: Servers, tmp_path: Path) -> Callable[[], World]:
    """A world whose servers and worker a test may kill."""
    return lambda: make_world(stack, shared_servers, tmp_path)


@pytest.fixture
def events() -> EventRecorder:
    """The events of the reader under test."""
    return EventRecorder()


def with_open_connections(reader: AnyReader, world: World) -> AnyReader:
    """Return the reader, connected to cache and broker for each kind of call: the next fault hits open connections.

    A busy machine may exceed an impatient reader's timeouts meanwhile.
    """
    params = world.fresh()
    eventually(lambda: answer_of(reader.refresh, QUERY, params).value, "a refresh is published")
    first = eventually(lambda: load_after(reader, params, 1), "it is refreshed")
    eventually(lambda: answer_of(reader.invalidate, QUERY, params).value, "it is invalidated")
    eventually(lambda: load_after(reader, params, first), "and again, off the reader's path")
    assert reader.flush(MAX_WAIT_SECONDS)
    return reader


def load_after(reader: AnyReader, params: dict[str, Any], load: int) -> int:
    """Read; return the number of the value's load if it is a later one than ``load``, else 0."""
    value = answer_of(reader.get, QUERY, params).value
    return int(value["load"]) if value and value["load"] > load else 0


def is_fresh(reader: AnyReader, params: dict[str, Any]) -> bool:
    """Return whether a read returns a fresh value."""
    entry = answer_of(reader.get_entry, QUERY, params).value
    return entry is not None and entry.state is EntryState.FRESH


def triggered_in_time(
    reader: AnyReader, events: EventRecorder, params: dict[str, Any], promised_seconds: float
) -> None:
    """Check that reads of a stale value trigger its refresh as soon as promised; and that it is fresh afterwards."""
    before = events.count("triggered: invalidated")
    promptly(
        lambda: answer_of(reader.get_entry, QUERY, params).value and events.count("triggered: invalidated") > before,
        "it is triggered",
        promised_seconds,
    )
    eventually(lambda: is_fresh(reader, params), "it is refreshed")


def check_waits_time_out(reader: AnyReader, world: World, params: dict[str, Any], wait_seconds: float) -> None:
    """Check that reads of values that nobody loads, the first of ``params``, end at their timeout and no later."""
    miss = answer_of(reader.get, QUERY, params)
    with_default = answer_of(reader.get, QUERY, world.unknown(), default="fallback")
    assert isinstance(miss.error, WaitTimeout)
    assert with_default.value == "fallback"
    for waited in (miss, with_default):
        assert waited.took.seconds >= wait_seconds
        waited.took.at_most(wait_seconds + MAX_STALL_SECONDS)


class Proxies:
    """The proxies of a test, one for each server."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._made: dict[str, FaultProxy] = {}

    def before(self, url: str) -> FaultProxy:
        """Return the proxy in front of the server that ``url`` names."""
        server = url.rpartition("@")[2].partition("/")[0]
        if server not in self._made:
            self._made[server] = self._stack.enter_context(FaultProxy.before(url))
        return self._made[server]


@pytest.fixture
def proxies(stack: ExitStack) -> Proxies:
    return Proxies(stack)


class MakeReader(Protocol):
    """Make a reader behind proxies; settings by their names."""

    def __call__(self, world: World, **settings: Any) -> AnyReader: ...


EACH_BROKER = each_with_each("world", ("redis", "rabbitmq"), "make_reader", ("async", "sync"))


@pytest.fixture(params=sorted(KINDS))
def make_reader(
    request: pytest.FixtureRequest, stack: ExitStack, proxies: Proxies, events: EventRecorder
) -> MakeReader:
    """Readers of each kind, connected to cache and broker through the test's proxies."""

    def make(world: World, **settings: Any) -> AnyReader:
        cache_url, broker_url = world.cache_server.url(0), world.broker_url
        reader = KINDS[request.param](
            ReaderSettings(
                redis_url=proxies.before(cache_url).url(cache_url),
                broker_url=proxies.before(broker_url).url(broker_url),
                # Long, for a busy machine, unless a timeout is what is tested.
                **{
                    "namespace": world.namespace,
                    "redis_timeout_seconds": 20.0,
                    "wait_timeout_ms": 1_000 * MAX_WAIT_SECONDS,
                    **settings,
                },
            ),
            events,
        )
        stack.callback(reader.close)
        return reader

    return make
