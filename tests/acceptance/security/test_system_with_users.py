"""The whole system, each component signed in as its own user of deploy/redis: nothing that it does is denied."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from api_client import CacheUnavailable
from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import ROOT, System
from tests.support.any_reader import KINDS, local_cache_of
from tests.support.doctor import wait_for_one_worker
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.redis_users import NO_PERMISSION, Users
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_commands", "published_once")


class SystemWithUsers(System):
    """A system of which the readers, the workers and Flower have a user each on cache and broker."""

    def __init__(
        self, stack: ExitStack, users: Users, control: RedisServer, graph: ArcadeDbServer, folder: Path
    ) -> None:
        super().__init__(stack, users.cache, control, graph, folder)
        self.users = users
        self.reading = self._as("reader", "publisher")
        self.invalidating = self._as("invalidator", "publisher")
        self.operating = self._as("operator", "operator")
        self.working = self._as("worker", "worker")

    def _as(self, on_the_cache: str, on_the_broker: str) -> dict[str, str]:
        return {
            "CACHE_REDIS_URL": self.users.url("cache", on_the_cache),
            "CACHE_BROKER_URL": self.users.url("broker", on_the_broker),
        }

    def denied(self) -> set[tuple[str, str, str]]:
        return self.users.cache.denied() | self.users.broker.denied()


@pytest.fixture(scope="module")
def running(
    users: Users, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SystemWithUsers]:
    with ExitStack() as stack:
        system = SystemWithUsers(stack, users, redis_server, arcadedb, tmp_path_factory.mktemp("system"))
        system.start_worker("-c", "1", **system.working)
        yield system


@pytest.fixture
def system(running: SystemWithUsers) -> Iterator[SystemWithUsers]:
    """The system; afterwards, nothing may have been denied but what the test expected and forgot."""
    yield running
    denied = running.denied()
    forget_what_was_denied(running)
    assert denied == set()


def forget_what_was_denied(system: SystemWithUsers) -> None:
    system.users.cache.forget_denied()
    system.users.broker.forget_denied()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_reads_refreshes_and_explains(system: SystemWithUsers, kind: str) -> None:
    reader = system.reader(kind, CACHE_LOCAL_MAX_ENTRIES="100", **system.reading)
    params = {"key": f"read by {kind}"}
    system.cache.script_flush()
    assert reader.get("long_lived", params)["load"] == 1
    assert reader.refresh("long_lived", params, wait=True)
    assert reader.get("long_lived", params)["load"] == 2
    entries = reader.get_many([("long_lived", params), ("short_lived", params)])
    assert [entry.value["key"] for entry in entries] == [params["key"]] * 2
    assert "not refreshed" in str(reader.explain("long_lived", params))
    # The tier is on once its connection may track: then a read does not go to Redis.
    tier = local_cache_of(reader)
    eventually(lambda: reader.get("long_lived", params) and tier.entries, "it is kept")


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalidator_invalidates_and_a_reader_can_t(system: SystemWithUsers, kind: str) -> None:
    reader = system.reader(kind, **system.reading)
    invalidator = system.reader(kind, **system.invalidating)
    params = {"key": f"invalidated by {kind}"}
    assert reader.get("long_lived", params)["load"] == 1
    for hard in (False, True):
        with pytest.raises(CacheUnavailable, match=NO_PERMISSION):
            reader.invalidate("long_lived", params, hard=hard)
        assert reader.get("long_lived", params)["load"] == 1
    forget_what_was_denied(system)
    assert invalidator.invalidate("long_lived", params, replicas=1).replicated is False
    assert reader.get("long_lived", params, fresh=True)["load"] == 2
    assert invalidator.invalidate("long_lived", params, hard=True).generation
    assert reader.get("long_lived", params)["load"] == 3
    assert reader.get("tagged", params)["load"] == 4
    with pytest.raises(CacheUnavailable, match=NO_PERMISSION):
        reader.invalidate_tags([f"key:{params['key']}"])
    forget_what_was_denied(system)
    assert invalidator.invalidate_tags([f"key:{params['key']}"], hard=True).entries == 1
    assert reader.get("tagged", params)["load"] == 5


def test_doctor_lacks_no_permission_as_the_operator(system: SystemWithUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_one_worker(monkeypatch)
    assert system.client(**system.reading).get("long_lived", {"key": "x"})  # a reader that it can count
    done = CliRunner().invoke(app, ["doctor", "--json"], env={**system.env, **system.operating})
    findings = {one["check"]: one["level"] for one in json.loads(done.stdout)["findings"]}
    # Beside the memory, which has no bound here, and letters that other tests left.
    assert {check for check, level in findings.items() if level != "ok"} <= {"eviction", "dead letters"}


def test_doctor_as_reader_does_not_warn_of_permissions_that_readers_lack_by_design(system: SystemWithUsers) -> None:
    env = {**system.env, **system.reading, "CACHE_LOCAL_MAX_ENTRIES": "100"}
    done = CliRunner().invoke(app, ["doctor", "--as-reader"], env=env)
    forget_what_was_denied(system)
    assert (done.exit_code, "warning" in done.output) == (0, False), done.output
    assert "ok       rights: the user reader has what readers need\n" in done.output
    hidden = "cache, eviction, notifications, broker's keys, broker's memory, workers"
    assert f"ok       skipped: not visible to this user, as expected: {hidden}\n" in done.output


def run_probe(system: SystemWithUsers, user: str, *options: str) -> subprocess.CompletedProcess[str]:
    env = {**system.env, "CACHE_BROKER_URL": system.users.url("broker", user)}
    command = [sys.executable, ROOT / "deploy/probe.py", *options]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_probe_succeeds_while_a_worker_consumes(system: SystemWithUsers) -> None:
    probed = run_probe(system, "probe")
    assert (probed.returncode, probed.stderr) == (0, "")
    assert probed.stdout.startswith("a worker consumed from cache.refresh-miss within ")


def test_the_probe_fails_and_empties_a_worker_s_own_queue_without_a_consumer(system: SystemWithUsers) -> None:
    probed = run_probe(system, "probe", "--own-queue", "--timeout", "1")
    queue = f"cache.probe.{socket.gethostname()}"
    assert (probed.returncode, probed.stderr) == (1, f"error: no worker consumed from {queue} within 1 s\n")
    with redis.Redis.from_url(system.users.broker.url()) as admin:
        assert not admin.exists(queue)


def test_the_probe_reports_the_missing_permission_and_which_user_has_it(system: SystemWithUsers) -> None:
    probed = run_probe(system, "publisher")
    forget_what_was_denied(system)
    assert probed.returncode == 1
    assert re.fullmatch(
        r"error: the broker can't be used: it answered .*celeryev.*[Nn]o permissions.*"
        r": sign in as probe, on RabbitMQ as worker \(.*\)\n",
        probed.stderr,
    )


def test_flower_shows_workers_tasks_and_queues_and_sends_nothing(system: SystemWithUsers, tmp_path: Path) -> None:
    env = {
        **system.env,
        "CACHE_BROKER_URL": system.users.url("broker", "flower"),
        "CACHE_REDIS_URL": "redis://nowhere.invalid/0",
    }
    flower = Flower(env, tmp_path, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}")
    try:
        eventually(lambda: flower.sees("worker-1@test"), "Flower knows the worker")
        client = system.client(**system.reading)

        def shows_a_refresh() -> bool:
            client.refresh("long_lived", {"key": "shown"}, wait=True)
            return b"committed (manual)" in flower.fetch("/api/tasks")[1]

        eventually(shows_a_refresh, "it shows a refresh")
        short = client.key("long_lived", {"key": "shown"}).short
        assert f"long_lived v1 {short} manual".encode() in flower.fetch("/api/tasks")[1]
        assert b'"cache.refresh-miss"' in flower.fetch("/api/queues/length")[1]
        # Only a reply of the worker itself contains it.
        eventually(lambda: b"prefetch" in flower.fetch("/worker/worker-1@test")[1].lower(), "it queries the worker")
    finally:
        flower.process.terminate(5)
    assert "no permissions" not in flower.process.log_file.read_text().lower()
