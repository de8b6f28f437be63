"""Tags in a whole system: real workers, readers of both kinds, the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_client import EntryState
from refresher.embedded import RedisServer
from tests.acceptance.conftest import NO_GRAPH, System, system_of_module
from tests.acceptance.test_cache_commands import Commands
from tests.support.any_reader import AnyReader
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("published_once")

KEYS = [f"key-{n}" for n in range(5)]


@pytest.fixture(scope="module")
def module_worker(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with a worker whose loads don't query the graph."""
    with system_of_module(redis_server, NO_GRAPH, tmp_path_factory) as system:
        system.start_worker()
        yield system


def load_all(reader: AnyReader) -> None:
    for key in KEYS:
        assert reader.get("tagged", {"key": key}, timeout=MAX_WAIT_SECONDS)["load"] == 1


def test_the_command_line_invalidates_by_tag(system_with_worker: System, tmp_path: Path) -> None:
    commands, reader = Commands(system_with_worker, tmp_path), system_with_worker.reader("sync")
    load_all(reader)
    done = commands.run("invalidate", "--tag", "key:key-1", "--tag", "key:key-2")
    assert (done.returncode, done.stdout) == (0, "key:key-1, key:key-2: 2 entries are stale from now on\n")
    done = commands.run("invalidate", "--tag", "all", "--hard", "--json")
    assert json.loads(done.stdout) == {"tags": ["all"], "entries": len(KEYS)}
    assert reader.get_entry("tagged", {"key": "key-1"}, timeout=MAX_WAIT_SECONDS).state is EntryState.MISS


@pytest.mark.parametrize(
    "arguments",
    [[], ["tagged", "--tag", "all"], ["--tag", "all", "--version", "1"], ["--tag", "all", "--replicas", "1"]],
    ids=["nothing", "both", "version", "replicas"],
)
def test_the_invalidate_command_takes_either_a_key_or_tags(
    system_with_worker: System, tmp_path: Path, arguments: list[str]
) -> None:
    done = Commands(system_with_worker, tmp_path).run("invalidate", *arguments)
    assert done.returncode == 2
    assert "either QUERY with its params, --version and --replicas, or --tag" in done.stderr


def test_the_invalidate_command_reports_an_invalid_tag_in_one_line(system_with_worker: System, tmp_path: Path) -> None:
    done = Commands(system_with_worker, tmp_path).run("invalidate", "--tag", "x" * 201)
    assert done.returncode == 2
    assert "--tag: a tag of 201 bytes: expected at most 64 texts of 1 to 200 bytes in UTF-8\n" in done.stderr
