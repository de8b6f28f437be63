"""Servers that tests share: started when a test first requests one, on free ports, removed at the end of the run."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import redis
from hypothesis import HealthCheck, settings

from refresher.embedded import ArcadeDbServer, RedisServer, ServerMissing, ports, process
from refresher.embedded.neo4j_server import Neo4jServer, Neo4jWithApoc
from refresher.feed.watches import watches
from tests.servers.neo4j_server import SHORT_LIVED, neo4j_under_test
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.servers.redis_binaries import redis_under_test
from tests.support.movable_clock import ClockedRedis, start_clocked_redis
from tests.support.patience import PUBLISHER_TIMEOUTS
from tests.support.requirements import is_set, skip_or_fail
from tests.support.tiers import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_report_collectionfinish,
    pytest_xdist_make_scheduler,
)
from tests.support.turns import pytest_runtest_protocol
from tests.support.waiting import MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_collectionfinish",
    "pytest_runtest_protocol",
    "pytest_xdist_make_scheduler",
]

# Background jobs of a shell without job control ignore Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# xdist sets it to the width of its workers' terminal; commands would lay out their output by it.
os.environ.pop("COLUMNS", None)

# Hypothesis: the same examples in every CI run, else new ones each time. No deadline, for slow machines.
settings.register_profile(
    "here",
    deadline=None,
    derandomize=is_set("CI"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("here")

# A port may be bound seconds after it was found free: no other process of this run is to find it meanwhile.
if "PYTEST_XDIST_WORKER" in os.environ:
    _number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    ports._PORTS = ports._PORTS[_number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]  # type: ignore[misc] # noqa: SLF001

# On a busy machine servers take their time: RabbitMQ, which starts in 5 s on a quiet one, took 100 s beside others.
for _server in (RedisServer, ArcadeDbServer, RabbitMqServer, Neo4jServer):
    _server.start.__func__.__kwdefaults__["start_seconds"] = 2 * MAX_WAIT_SECONDS  # type: ignore[attr-defined]
process.GUARDIAN_START_SECONDS = 2 * MAX_WAIT_SECONDS
if "TEST_REDIS" in os.environ:
    RedisServer.start.__func__.__kwdefaults__["binary"] = redis_under_test()  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test whose server is missing on this machine, or fail it in CI."""
    try:
        yield
    except ServerMissing as error:
        skip_or_fail(str(error))


pytest_runtest_call = pytest_runtest_setup


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: by its fixture ``run``, else on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    pyfuncitem.funcargs.get("run", asyncio.run)(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test enters here ends with it."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the session. A test that stops, kills or reconfigures a server starts its own."""
    with RedisServer.start() as server:
        yield server


@pytest.fixture
def clean_redis(redis_server: RedisServer) -> RedisServer:
    """The session's Redis, with every database emptied and no script loaded."""
    with redis.Redis.from_url(redis_server.url()) as client:
        client.flushall()
        client.script_flush()
    return redis_server


@pytest.fixture(scope="session")
def clocked_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedRedis]:
    """One Redis for the session whose clock stands still until a test moves it; it is not reset between tests."""
    with start_clocked_redis(tmp_path_factory.mktemp("clock")) as clocked:
        yield clocked


@pytest.fixture(scope="session")
def arcadedb() -> Iterator[ArcadeDbServer]:
    """One ArcadeDB for the session, the demo's graph."""
    with ArcadeDbServer.start(java_options=SHORT_LIVED) as server:
        yield server


@pytest.fixture(scope="session")
def neo4j_server() -> Iterator[Neo4jServer]:
    """One real Neo4j for the session."""
    with Neo4jServer.start(neo4j_under_test(), java_options=SHORT_LIVED) as server:
        yield server


@pytest.fixture(scope="session")
def neo4j_with_apoc() -> Iterator[Neo4jWithApoc]:
    """One Neo4j with APOC for the session; its database keeps what a test leaves."""
    with Neo4jWithApoc.start(java_options=SHORT_LIVED) as server:
        yield server


@pytest.fixture
def nothing_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be watched but what the test watches, whatever queries other tests have imported."""
    monkeypatch.setattr(watches, "nodes", {})
    monkeypatch.setattr(watches, "relationships", set())


@pytest.fixture
def no_hold_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no hold of a batch end by time, however busy the machine."""
    monkeypatch.setattr("api_client.trigger.batches.HOLD_SECONDS", MAX_WAIT_SECONDS)


@pytest.fixture
def no_share_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no share of a budget that this process takes end by time, however busy the machine."""
    monkeypatch.setattr("api_client.protocol.budget._HOLDS_US", round(10 * MAX_WAIT_SECONDS * 1e6))


@pytest.fixture
def patient_publishers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts of a publisher in this process, so that a busy machine does not exceed them."""
    for module, name in PUBLISHER_TIMEOUTS:
        monkeypatch.setattr(module, name, MAX_WAIT_SECONDS)


@pytest.fixture
def published_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no reader in this process publish a message again that waits in its queue, however busy the machine.

    Such a second message may refresh an entry that was invalidated meanwhile: a load more.
    """
    monkeypatch.setattr("api_client.read.wait.REPUBLISH_INTERVAL_SECONDS", 10 * MAX_WAIT_SECONDS)


@pytest.fixture
def patient_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands, run in this process, wait for long where a server is slow to answer, and doctor for no worker."""
    for name in (
        "cli.arguments.TIMEOUT_SECONDS", "cli.permissions.TIMEOUT_SECONDS", "ops.broker.LINK_SECONDS",
        "ops.doctor.broker.TIMEOUT_SECONDS", "ops.doctor.cache.TIMEOUT_SECONDS",
        "ops.doctor.deployment.TIMEOUT_SECONDS", "ops.http.CLIENT_SECONDS", "ops.scan.SCAN_SECONDS",
        "ops.startup_checks.TIMEOUT_SECONDS", "ops.status.BROKER_SECONDS", "ops.status.CACHE_SECONDS",
        "ops.status.TIMEOUT_SECONDS", "ops.status.WORKERS_SECONDS", "web.api.TIMEOUT_SECONDS",
    ):  # fmt: skip
        monkeypatch.setattr(f"refresher.{name}", MAX_WAIT_SECONDS)
    monkeypatch.setattr("api_client.trigger.broker.TIMEOUT_SECONDS", MAX_WAIT_SECONDS)
    monkeypatch.setattr("refresher.ops.doctor.broker.ANSWER_SECONDS", 0.1)


@pytest.fixture
def suppression_outlasts_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no trigger's suppression in this process end by its limit of a second, however busy the machine."""
    for module in ("trigger.suppression", "trigger.claim_and_publish", "read.core"):
        monkeypatch.setattr(f"api_client.{module}.MAX_SUPPRESSION_SECONDS", 10 * MAX_WAIT_SECONDS)
