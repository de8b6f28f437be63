"""A broker without a single point of failure: Redis behind Sentinels, for publisher, worker and commands."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest

from api_client import CacheClient
from api_client.trigger.private_app import PublishingApp
from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, System
from tests.servers.redis_sentinels import Sentinels
from tests.servers.redis_with_users import SentinelsWithUsers
from tests.support.command_line import CommandLine
from tests.support.doctor import wait_for_one_worker
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.timing import promptly
from tests.support.waiting import eventually

BACK_WITHIN_SECONDS = 15.0


@dataclass
class BehindSentinels:
    """A worker and a reader whose broker is behind three Sentinels."""

    sentinels: Sentinels
    system: System
    worker: GuardedProcess
    client: CacheClient

    def refreshes(self) -> bool:
        """Request a load, and return whether it came soon."""
        return self.client.get("long_lived", {"key": uuid.uuid4().hex}, timeout=1, default=None) is not None


@pytest.fixture
def behind(redis_server: RedisServer, tmp_path: Path) -> Iterator[BehindSentinels]:
    with ExitStack() as stack:
        cache = stack.enter_context(RedisServer.start())
        sentinels = Sentinels(stack, sentinels=3)
        system = System(stack, cache, redis_server, NO_GRAPH, tmp_path)
        system.env |= {"CACHE_BROKER_URL": sentinels.url(1), "CACHE_QUEUE_TTL": "2s"}
        found = BehindSentinels(sentinels, system, system.start_worker(), system.client())
        eventually(found.refreshes, "the worker consumes")
        yield found


@pytest.mark.failure("W38")
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_refreshes_go_on_while_all_sentinels_are_away(behind: BehindSentinels, fault: signal.Signals) -> None:
    for sentinel in behind.sentinels.sentinels:
        os.kill(sentinel.pid, fault)
    try:
        for _ in range(5):
            promptly(behind.refreshes, "refreshes go on", BACK_WITHIN_SECONDS)
    finally:
        for sentinel in behind.sentinels.sentinels:
            with suppress(ProcessLookupError):
                os.kill(sentinel.pid, signal.SIGCONT)
    assert "Connection to broker lost" not in behind.worker.log_file.read_text()


@pytest.mark.usefixtures("patient_commands")
def test_each_component_may_do_its_work_as_its_user(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_one_worker(monkeypatch)
    with ExitStack() as stack:
        servers = SentinelsWithUsers(stack, tmp_path / "users", sentinels=3, of="broker")
        system = System(stack, servers.alone, redis_server, NO_GRAPH, tmp_path)

        def as_user(on_the_cache: str, on_the_broker: str) -> dict[str, str]:
            cache = servers.alone.url_of(on_the_cache, servers.passwords["cache", on_the_cache])
            return {"CACHE_REDIS_URL": cache, "CACHE_BROKER_URL": servers.url_of(on_the_broker)}

        worker = system.start_worker(**as_user("worker", "worker"))
        system.env |= as_user("reader", "publisher")
        behind = BehindSentinels(servers, system, worker, system.client())
        eventually(behind.refreshes, "the worker consumes")
        operator = system.env | as_user("operator", "operator")
        assert len(CommandLine("status", operator).run_json()["workers"]) == 1
        checked = CommandLine("doctor", operator).run_json(exit_code=1)  # not asked for the worker's own port
        assert {one["level"] for one in checked["findings"] if one["check"] in {"broker", "workers"}} == {"ok"}
        servers.kill_master()
        promptly(behind.refreshes, "refreshes go on", BACK_WITHIN_SECONDS)
        assert servers.denied() == set()


def test_flower_counts_the_queues_without_the_first_sentinel_and_nothing_shows_a_password(
    behind: BehindSentinels, tmp_path: Path
) -> None:
    app = PublishingApp.to(behind.system.env["CACHE_BROKER_URL"], 2.0)
    try:
        stats = eventually(lambda: app.control.inspect(timeout=2).stats(), "the worker replies")
    finally:
        app.close()
    assert "redis-sentinel" in repr(stats)
    behind.sentinels.sentinels[0].kill()
    flower = Flower(behind.system.env, tmp_path, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}")
    try:
        eventually(lambda: flower.sees("worker-1@test"), "Flower knows the worker")
        status, page = flower.fetch("/broker")
    finally:
        flower.process.kill()
    assert (status, b"cache.refresh-miss" in page) == (HTTPStatus.OK, True)
    for shown in (repr(stats), behind.worker.log_file.read_text(), page.decode()):
        assert not re.search(f"{behind.sentinels.password}|{behind.sentinels.sentinel_password}", shown)


def test_a_unix_socket_is_a_broker(redis_server: RedisServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cache = stack.enter_context(RedisServer.start())
        socket = tmp_path / "s"
        broker = stack.enter_context(RedisServer.start(extra_config=[("unixsocket", str(socket))]))
        system = System(stack, cache, redis_server, NO_GRAPH, tmp_path)
        system.env["CACHE_BROKER_URL"] = f"unix://:{broker.password}@{socket}?db=2"
        found = system.start_worker()
        client = system.client()
        assert client.get("long_lived", {"key": "a"})
        assert broker.password not in found.log_file.read_text()
