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
from tests.support.two_versions import NAME, VERSION
from tests.support.waiting import eventually

PARAMS = {"key": "a"}
REGISTRY = versions_key("cache", NAME)


def start_worker(system: System, version: int) -> GuardedProcess:
    changes = {"REFRESHER_QUERIES": "tests.support.two_versions", VERSION: str(version)}
    return system.start_worker("-c", "1", **changes)


def read(system: System, version: int, **options: Any) -> Any:
    return system.client().get(NAME, PARAMS, version=version, **options)


def write(system: System, text: str) -> None:
    system.control.set("source:a", text)


def load_both(system: System) -> None:
    """Load each version while its worker is the only one: a worker gives up a version that it does not know."""
    write(system, "old")
    for version in (1, 2):
        worker = start_worker(system, version)
        assert read(system, version) == f"old v{version}"
        worker.terminate()
        worker.wait(60)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_writer_of_either_version_invalidates_both(system: System, kind: str) -> None:
    load_both(system)
    write(system, "new")
    reader = system.reader(kind)
    done = reader.invalidate(NAME, PARAMS)
    assert isinstance(done, Invalidation)
    assert done.generations.keys() == {1, 2}
    for version in (1, 2):
        worker = start_worker(system, version)
        assert read(system, version, min_generation=done) == f"new v{version}"
        worker.terminate()
        worker.wait(60)


def test_the_command_reaches_all_versions_and_one_where_it_is_named(system: System) -> None:
    load_both(system)
    runner = CliRunner()
    done = runner.invoke(app, ["invalidate", NAME, "key=a"], env=system.env)
    assert done.exit_code == 0, done.output
    assert [line.partition(":")[0] for line in done.output.splitlines()] == [f"{NAME} v1", f"{NAME} v2"]
    done = runner.invoke(app, ["invalidate", NAME, "key=a", "--version", "2"], env=system.env)
    assert [line.partition(":")[0] for line in done.output.splitlines()] == [f"{NAME} v2"]


def test_a_registry_that_redis_has_lost_is_made_again_by_the_heartbeat(system: System) -> None:
    start_worker(system, 2)
    eventually(lambda: system.cache.zscore(REGISTRY, "2"), "it is registered, though nobody reads")
    system.cache.flushall()
    eventually(lambda: system.cache.zscore(REGISTRY, "2"), "it is registered again")
    system.cache.set(REGISTRY, "of something else")
    eventually(lambda: system.cache.type(REGISTRY) == b"zset", "and its key is healed")
