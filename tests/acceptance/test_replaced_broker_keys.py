"""A key of kombu's on the Redis broker, replaced by a string: named, survived, and healed once it is deleted."""

from __future__ import annotations

import json
import time
import uuid

import psutil
import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.ops.doctor import deployment
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

USED_WHILE_RUNNING = {
    "cache.refresh-miss": "list",
    "cache.refresh": "list",
    "cache.refresh\x06\x163": "list",
    "unacked": "hash",
    "unacked_index": "zset",
    "_kombu.binding.celery.pidbox": "set",
    "_kombu.binding_deadlines": "zset",
}
USED_AT_START = {
    "_kombu.binding.cache.refresh": "set",
    "_kombu.binding.cache.refresh-miss": "set",
    "_kombu.binding_permanent.cache.refresh": "set",
}
LOG_SECONDS = 5.0
LINES_PER_SECOND = 20


def sentence(key: str, expected: str) -> str:
    return f"the broker's key {key!r} has type string, expected {expected}: DEL"


def loads(system: System) -> bool:
    return system.client().get("long_lived", {"key": uuid.uuid4().hex}, timeout=1, default=None) is not None


def findings(system: System) -> list[tuple[str, str, str]]:
    done = CliRunner().invoke(app, ["doctor", "--json"], env=system.env)
    return [(one["check"], one["level"], one["said"]) for one in json.loads(done.stdout)["findings"]]


@pytest.fixture(autouse=True)
def _doctor_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "TIMEOUT_SECONDS", 10.0)
    monkeypatch.setattr(deployment, "ANSWER_SECONDS", 0.1)


@pytest.mark.parametrize("key", USED_WHILE_RUNNING)
def test_a_running_worker_names_it_and_goes_on_once_it_is_deleted(system: System, key: str) -> None:
    worker = system.start_worker("-c", "1")
    eventually(lambda: loads(system), "the worker consumes")
    system.broker.set(key, "x")
    loads(system)  # a message for which the worker uses all of its keys
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


@pytest.mark.parametrize("key", USED_AT_START)
def test_a_starting_worker_names_it_and_starts_once_it_is_deleted(system: System, key: str) -> None:
    system.broker.set(key, "x")
    worker = system.start_worker("-c", "1", ready=False)
    text = sentence(key, USED_AT_START[key])
    eventually(lambda: text in worker.log_file.read_text(), "the worker names the key")
    assert ("broker's keys", "problem", text.partition(": DEL")[0]) in findings(system)
    system.broker.delete(key)
    eventually(lambda: loads(system), "it consumes")
    assert worker.poll() is None


def test_doctor_finds_nothing_wrong_with_the_keys_that_a_worker_has_made(system: System) -> None:
    system.start_worker("-c", "1")
    eventually(lambda: loads(system), "the worker consumes")
    assert "broker's keys" not in {check for check, _, _ in findings(system)}
