"""A worker's permissions on the broker: the README's command needs no more; a denied command is logged by name."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, ROOT, System
from tests.support.redis_users import Users
from tests.support.waiting import eventually


@pytest.fixture
def system(stack: ExitStack, users: Users, redis_server: RedisServer, tmp_path: Path) -> System:
    """A system whose workers are the users of deploy/redis."""
    made = System(stack, users.cache, redis_server, NO_GRAPH, tmp_path)
    made.env["C_FORCE_ROOT"] = "1"  # the application's own app takes pickle
    made.env["CACHE_REDIS_URL"] = users.url("cache", "worker")
    made.env["CACHE_BROKER_URL"] = users.url("broker", "worker")
    return made


def start(system: System, stack: ExitStack, folder: Path, *command: str) -> GuardedProcess:
    worker = GuardedProcess.start(
        [sys.executable, "-m", "celery", *command],
        env=system.env, cwd=ROOT, log_file=folder / "worker.log",
    )  # fmt: skip
    stack.callback(worker.kill)
    return worker


def reads(system: System, users: Users, key: str) -> object:
    reading = {"CACHE_REDIS_URL": users.url("cache", "reader"), "CACHE_BROKER_URL": users.url("broker", "publisher")}
    return system.client(**reading).get("long_lived", {"key": key})["load"]


def test_the_readmes_worker_command_consumes_with_the_worker_users_permissions(
    system: System, stack: ExitStack, users: Users, tmp_path: Path
) -> None:
    users.broker.forget_denied()
    worker = start(system, stack, tmp_path, "-A", "refresher", "worker")
    assert reads(system, users, "as in the README") == 1
    assert "the broker rejected" not in worker.log_file.read_text()
    assert users.broker.denied() == set()


@pytest.mark.parametrize(
    ("options", "more_rights"),
    [(["--without-gossip", "--without-mingle"], []), ([], ["%RW~celeryev*", "&/0.celeryev/worker.*"])],
)
def test_an_applications_worker_with_gossip_and_mingle_needs_additional_permissions(
    system: System, stack: ExitStack, users: Users, tmp_path: Path, options: list[str], more_rights: list[str]
) -> None:
    with redis.Redis.from_url(users.broker.url()) as admin:
        admin.execute_command("ACL", "SETUSER", "worker", *more_rights)
        queues = ["-Q", "cache.refresh-miss,cache.refresh"]
        try:
            worker = start(system, stack, tmp_path, "-A", "tests.support.host_app", "worker", *queues, *options)
            assert reads(system, users, f"with install {options}") == 1
        finally:
            admin.execute_command("ACL", "LOAD")
    assert "the broker rejected" not in worker.log_file.read_text()


@pytest.mark.parametrize(
    ("right", "command", "of"),
    [
        ("llen", "LLEN", "cache.refresh"),
        ("brpop", "BRPOP", "cache.refresh"),
        ("psubscribe", "PSUBSCRIBE", "celery.pid"),
    ],
)
def test_a_refused_command_is_logged_by_name_and_key(
    system: System, stack: ExitStack, users: Users, tmp_path: Path, right: str, command: str, of: str
) -> None:
    with redis.Redis.from_url(users.broker.url()) as admin:
        admin.execute_command("ACL", "SETUSER", "worker", f"-{right}")
        try:
            worker = start(system, stack, tmp_path, "-A", "refresher", "worker", "-l", "INFO")
            eventually(lambda: "the broker rejected" in worker.log_file.read_text(), "the refusal is logged")
        finally:
            admin.execute_command("ACL", "LOAD")
    said = next(line for line in worker.log_file.read_text().splitlines() if "the broker rejected" in line)
    assert command in said
    assert of in said
    assert "permissions" in said
    assert users.passwords["broker", "worker"] not in worker.log_file.read_text()
    users.broker.forget_denied()
    assert reads(system, users, right) == 1  # as soon as it is permitted
