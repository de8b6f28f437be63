"""A key of kombu's on the Redis broker, replaced by a string: the worker logs it, and recovers once it is deleted."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, System
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_commands")
USED_WHILE_RUNNING = {
    "cache.refresh-miss": "list",
    "cache.refresh": "list",
    "cache.refresh\x06\x163": "list",
    "unacked": "hash",
    "unacked_index": "zset",
}
USED_AT_START = {
    "_kombu.binding.celery.pidbox": "set",
    "_kombu.binding_deadlines": "zset",
    "_kombu.binding.cache.refresh": "set",
    "_kombu.binding.cache.refresh-miss": "set",
    "_kombu.binding_permanent.cache.refresh": "set",
}
ALIKE_AT_START = {"_kombu.binding.cache.refresh-miss", "_kombu.binding_permanent.cache.refresh"}
LOG_SECONDS = 2.0
LINES_PER_SECOND = 20


def sentence(key: str, expected: str) -> str:
    return f"the broker's key {key!r} has type string, expected {expected}: DEL"


def loads(system: System) -> bool:
    return system.client().get("long_lived", {"key": uuid.uuid4().hex}, timeout=1, default=None) is not None


def findings(system: System) -> list[tuple[str, str, str]]:
    done = CliRunner().invoke(app, ["doctor", "--json"], env=system.env)
    return [(one["check"], one["level"], one["said"]) for one in json.loads(done.stdout)["findings"]]


@pytest.fixture(scope="module")
def running(
    redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, GuardedProcess]]:
    """One worker for all keys, on a Redis of its own."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer.start())
        system = System(stack, server, redis_server, NO_GRAPH, tmp_path_factory.mktemp("replaced"))
        yield system, system.start_worker("-c", "1")


@pytest.mark.failure("W25")
@pytest.mark.parametrize("key", USED_WHILE_RUNNING)
def test_a_running_worker_logs_a_broker_key_of_wrong_type_and_resumes_once_it_is_deleted(
    running: tuple[System, GuardedProcess], key: str
) -> None:
    system, worker = running
    eventually(lambda: loads(system), "the worker consumes")
    assert "broker's keys" not in {check for check, _, _ in findings(system)}

    system.broker.set(key, "x")
    loads(system)  # a message, for which the worker uses all of the broker's keys
    text = sentence(key, USED_WHILE_RUNNING[key])
    eventually(lambda: text in worker.log_file.read_text(), "the worker names the key")

    process, lines = psutil.Process(worker.pid), worker.log_file.read_text().count("\n")
    used, begun = sum(process.cpu_times()[:2]), time.monotonic()
    eventually(lambda: time.monotonic() - begun > LOG_SECONDS, "some seconds have passed")
    passed = time.monotonic() - begun
    assert sum(process.cpu_times()[:2]) - used < passed / 2, "it does not spin"
    assert worker.log_file.read_text().count("\n") - lines < passed * LINES_PER_SECOND
    assert worker.poll() is None

    assert ("broker's keys", "problem", text.partition(": DEL")[0]) in findings(system)
    system.broker.delete(key)
    eventually(lambda: loads(system), "the same worker consumes again")
    assert worker.poll() is None


@pytest.mark.failure("W25")
@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.long if key in ALIKE_AT_START else ()) for key in USED_AT_START]
)
def test_a_starting_worker_logs_a_broker_key_of_wrong_type_and_starts_once_it_is_deleted(
    system_without_graph: System, key: str
) -> None:
    system = system_without_graph
    system.broker.set(key, "x")
    worker = system.start_worker("-c", "1", ready=False)
    text = sentence(key, USED_AT_START[key])
    eventually(lambda: text in worker.log_file.read_text(), "the worker names the key")
    assert ("broker's keys", "problem", text.partition(": DEL")[0]) in findings(system)
    system.broker.delete(key)
    eventually(lambda: loads(system), "it consumes")
    assert worker.poll() is None
