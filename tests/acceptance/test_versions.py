"""Workers of two versions of a query, as in a rolling deploy: each writer's invalidation reaches both."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from api_client import Invalidation
from api_client.protocol.keys import versions_key
from refresher.cli.commands import app
from refresher.embedded import GuardedProcess
from tests.acceptance.conftest import System
from tests.support.any_reader import KINDS
from tests.support.two_versions import NAME, VERSION
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("published_once")

REGISTRY = versions_key("cache", NAME)


def start_worker(system: System, version: int) -> GuardedProcess:
    changes = {"REFRESHER_QUERIES": "tests.support.two_versions", VERSION: str(version)}
    return system.start_worker("-c", "1", **changes)


def read(system: System, version: int, kind: str, **options: Any) -> Any:
    return system.client().get(NAME, {"key": kind}, version=version, **options)


def write(system: System, text: str) -> None:
    for kind in KINDS:
        system.control.set(f"source:{kind}", text)


def test_an_invalidation_by_a_reader_or_the_command_reaches_both_versions_of_a_query(system: System) -> None:
    """Each kind of reader writes a key of its own. One worker runs at a time, as it fails unknown versions."""
    write(system, "old")
    for version in (1, 2):
        worker = start_worker(system, version)
        assert [read(system, version, kind) for kind in KINDS] == [f"old v{version}"] * len(KINDS)
        worker.terminate()
        worker.wait(MAX_WAIT_SECONDS)

    write(system, "new")
    done = {kind: system.reader(kind).invalidate(NAME, {"key": kind}) for kind in KINDS}
    for version in (1, 2):
        worker = start_worker(system, version)
        for kind, invalidation in done.items():
            assert isinstance(invalidation, Invalidation)
            assert invalidation.generations.keys() == {1, 2}
            assert read(system, version, kind, min_generation=invalidation) == f"new v{version}"
        worker.terminate()
        worker.wait(MAX_WAIT_SECONDS)

    for arguments, versions in (([], [1, 2]), (["--version", "2"], [2])):
        said = CliRunner().invoke(app, ["invalidate", NAME, "key=sync", *arguments], env=system.env)
        assert said.exit_code == 0, said.output
        assert [line.partition(":")[0] for line in said.output.splitlines()] == [f"{NAME} v{one}" for one in versions]


def test_the_heartbeat_restores_a_version_registry_that_redis_has_lost(system: System) -> None:
    start_worker(system, 2)
    eventually(lambda: system.cache.zscore(REGISTRY, "2"), "it is registered, though nobody reads")
    system.cache.flushall()
    eventually(lambda: system.cache.zscore(REGISTRY, "2"), "it is registered again")
    system.cache.set(REGISTRY, "of something else")
    eventually(lambda: system.cache.type(REGISTRY) == b"zset", "and its key is repaired")
