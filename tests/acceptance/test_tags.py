"""Tags in a whole system: real workers, readers of both kinds, the command line; an invalidator that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from api_client import EntryState
from api_client.protocol.keys import pending_tags_key
from refresher.embedded import RedisServer
from tests.acceptance.conftest import NO_GRAPH, ROOT, System, system_of_module
from tests.acceptance.test_cache_commands import Commands
from tests.support.any_reader import KINDS, AnyReader
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KEYS = [f"key-{n}" for n in range(5)]
KILLED = """
import os, signal
from api_client import default_client
from api_client.protocol import tags
client = default_client()
kept = tags.keep
def dies(*args, **options):
    if options.get("renew"):
        os.kill(os.getpid(), signal.SIGKILL)  # kept and marked, not walked
    return kept(*args, **options)
tags.keep = dies
client.invalidate_tags(["all"])
"""


@pytest.fixture(scope="module")
def module_worker(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with a worker whose loads don't query the graph."""
    with system_of_module(redis_server, NO_GRAPH, tmp_path_factory) as system:
        system.start_worker()
        yield system


@pytest.fixture(params=sorted(KINDS))
def reader(system_with_worker: System, request: pytest.FixtureRequest) -> AnyReader:
    return system_with_worker.reader(request.param)


def load_all(reader: AnyReader) -> None:
    for key in KEYS:
        assert reader.get("tagged", {"key": key}, timeout=MAX_WAIT_SECONDS)["load"] == 1


def refreshed(reader: AnyReader, key: str, *, after: int) -> bool:
    entry = reader.get_entry("tagged", {"key": key})
    return entry.state is EntryState.FRESH and entry.value["load"] > after


def test_entries_with_an_invalidated_tag_are_stale_at_once_and_refreshed(
    reader: AnyReader, system_with_worker: System
) -> None:
    load_all(reader)
    assert reader.invalidate_tags(["key:key-3", "key:unknown"]).entries == 1
    assert reader.get_entry("tagged", {"key": "key-3"}).state is EntryState.STALE
    eventually(lambda: refreshed(reader, "key-3", after=1), "it is refreshed")
    assert reader.invalidate_tags(["all"], hard=True).entries == len(KEYS)
    assert [reader.get("tagged", {"key": key}, timeout=MAX_WAIT_SECONDS)["load"] for key in KEYS] == [2, 2, 2, 3, 2]


def test_a_load_under_way_during_a_tag_invalidation_is_not_fresh(reader: AnyReader, system_with_worker: System) -> None:
    held = {"key": "held", "hold": "h"}
    waiting = system_with_worker.reader("sync")
    waiting.refresh("tagged", held)
    eventually(lambda: system_with_worker.loads("held") == 1, "a load is under way")
    # It has not registered its tags yet.
    assert reader.invalidate_tags(["key:held"]).entries == 0
    system_with_worker.open_gate("h", times=2)
    eventually(lambda: system_with_worker.loads("held") == 2, "the worker loads once more")
    entry = eventually(
        lambda: (found := waiting.get_entry("tagged", held)).state is EntryState.FRESH and found, "it is fresh"
    )
    assert entry.value["load"] == 2


def test_a_worker_finishes_the_tag_invalidation_of_a_killed_invalidator(system_with_worker: System) -> None:
    reader = system_with_worker.reader("sync")
    load_all(reader)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env=system_with_worker.env, cwd=ROOT, check=False, timeout=MAX_WAIT_SECONDS
    )
    assert done.returncode == -9
    assert system_with_worker.cache.zcard(pending_tags_key("cache")) == 1
    eventually(lambda: not system_with_worker.cache.exists(pending_tags_key("cache")), "a worker has finished it")
    for key in KEYS:
        eventually(lambda key=key: refreshed(reader, key, after=1), f"{key} is refreshed")


def test_a_tag_invalidation_without_wait_is_carried_out_by_a_worker(reader: AnyReader) -> None:
    load_all(reader)
    assert not reader.invalidate_tags(["all"], wait=False).is_finished
    for key in KEYS:
        eventually(lambda key=key: refreshed(reader, key, after=1), f"{key} is refreshed")


def test_the_command_line_invalidates_by_tag(system_with_worker: System) -> None:
    commands, reader = Commands(system_with_worker), system_with_worker.reader("sync")
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
def test_the_invalidate_command_takes_either_a_key_or_tags(system_with_worker: System, arguments: list[str]) -> None:
    done = Commands(system_with_worker).run("invalidate", *arguments)
    assert done.returncode == 2
    assert "either QUERY with its params, --version and --replicas, or --tag" in done.stderr


def test_the_invalidate_command_reports_an_invalid_tag_in_one_line(system_with_worker: System) -> None:
    done = Commands(system_with_worker).run("invalidate", "--tag", "x" * 201)
    assert done.returncode == 2
    assert "--tag: a tag of 201 bytes: allowed are at most 64 texts of 1 to 200 bytes in UTF-8\n" in done.stderr
