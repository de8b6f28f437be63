"""Commands on a query's values as a user runs them, with a worker that loads: ``get``, ``warm``, ``refresh`` …"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import Result

from api_client import EntryState
from api_client.protocol import payload
from api_client.protocol.entry import encode
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.cli.commands import EXPECTED_ERRORS
from refresher.embedded import RedisServer, free_port
from tests.acceptance.conftest import NO_GRAPH, ROOT, System, system_of_module
from tests.support.command_line import CommandLine
from tests.support.lease_world import World, a_header
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("published_once", "patient_commands")

SECRET = "canary-71c0"
BARE = {**os.environ, "PYTHONPATH": str(ROOT)}


class Commands:
    """The command line, in a system's environment."""

    def __init__(self, system: System) -> None:
        self.system, self.env = system, system.env

    def run(self, command: str, *arguments: str, stdin: str = "", **changes: str) -> Result:
        return CommandLine(command, self.env).run(*arguments, stdin=stdin, **changes)


@pytest.fixture(scope="module")
def module_worker(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system with a worker that tries a load once; its loads don't query the graph."""
    with system_of_module(redis_server, NO_GRAPH, tmp_path_factory) as system:
        system.start_worker(CACHE_XFETCH_RETRY_ENABLED="false")
        yield system


@pytest.fixture
def commands(system_with_worker: System) -> Commands:
    return Commands(system_with_worker)


@pytest.fixture
def idle(system_without_graph: System) -> Commands:
    """Without a worker."""
    return Commands(system_without_graph)


def test_keys_are_warmed_from_a_file_and_those_that_fail_are_named(commands: Commands, tmp_path: Path) -> None:
    commands.system.client().get("long_lived", {"key": "there"})
    commands.system.control.rpush("script:bad", "fail")
    file = tmp_path / "keys.jsonl"
    file.write_text("\n".join(json.dumps({"key": key}) for key in ("there", "a", "b", "bad", "c")) + "\n\n")
    done = commands.run("warm", "long_lived", "--from", str(file), "--at-once", "2", "--timeout", "60s")
    assert done.exit_code == 1
    assert done.stdout == "long_lived: 5 keys; 1 already cached, 3 loaded, 1 failed\n"
    assert done.stderr.startswith('error: {"key": "bad"}: the refresh of \'long_lived\' failed (transient)')
    assert [commands.system.loads(key) for key in ("there", "a", "b", "c")] == [1, 1, 1, 1]
    again = commands.run("warm", "long_lived", "--from", "-", "--json", stdin='{"key": "a"}\n{"key": "d"}\n')
    assert again.exit_code == 0
    assert json.loads(again.stdout) == {"keys": 2, "there": 1, "loaded": 1, "failed": []}


def test_ctrl_c_ends_a_waiting_refresh_command_without_output(idle: Commands) -> None:
    key = idle.system.client().key("long_lived", {"key": "a"})
    refresh = subprocess.Popen(
        [sys.executable, "-m", "refresher.cli", "refresh", "long_lived", "key=a", "--wait", "10m"],
        env=idle.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with refresh:
        eventually(lambda: idle.system.record(key).get("state") == "queued", "it waits")
        refresh.send_signal(signal.SIGINT)
        assert refresh.communicate(timeout=MAX_WAIT_SECONDS) == ("", "")
    assert refresh.returncode == 130


def test_the_refresh_command_waits_for_the_value_and_reports_a_failure(commands: Commands) -> None:
    client = commands.system.client()
    assert client.get("long_lived", {"key": "refreshed"})["load"] == 1
    done = commands.run("refresh", "long_lived", "key=refreshed")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "long_lived v1: refreshed\n", "")
    assert client.get("long_lived", {"key": "refreshed"})["load"] == 2
    commands.system.control.rpush("script:refreshed", "fail")
    failed = commands.run("refresh", "long_lived", "key=refreshed")
    assert failed.exit_code == 1
    assert str(failed.exception).startswith("the refresh of 'long_lived' failed (transient)")


def test_the_get_command_reads_as_an_application_does(commands: Commands) -> None:
    client = commands.system.client()
    missed = commands.run("get", "long_lived", "key=got")
    assert (missed.exit_code, "long_lived v1: loaded for this read, " in missed.stderr) == (0, True), missed.stderr
    entry = client.get_entry("long_lived", {"key": "got"})
    assert json.loads(missed.stdout) == entry.value
    hit = commands.run("get", "long_lived", "key=got", "--timeout", "0", "--json")
    assert (hit.exit_code, hit.stderr) == (0, "")
    said = json.loads(hit.stdout)
    assert (said["value"], said["state"], said["token"]) == (entry.value, "fresh", entry.token)
    assert entry.age < said["age"] < said["age"] + said["ttl_remaining"]
    fresh = commands.run("get", "long_lived", "key=got", "--fresh", "--json")
    assert json.loads(fresh.stdout)["token"] > entry.token
    old = commands.run("get", "long_lived", "key=got", "--max-age", "1h")
    assert re.fullmatch(r"long_lived v1: \S+ m?s old, fresh for another \S+ (s|min|h)\n", old.stderr), old.stderr
    failed = commands.run("get", "unencodable")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert str(failed.exception).startswith("the refresh of 'unencodable' failed (not_encodable)")


def test_the_get_command_of_a_query_that_nobody_loads(idle: Commands) -> None:
    late = idle.run("get", "long_live", "key=a", "--timeout", "100ms")
    assert (late.exit_code, late.stdout) == (1, "")
    assert str(late.exception).startswith("timed out after 0.1")
    assert str(late.exception).endswith("no worker has registered it: is its name right, and is a worker running?")


def test_the_get_command_prints_large_values_whole_and_none_that_json_has_not(idle: Commands) -> None:
    key = make_key("cache", "long_lived", {"key": "planted"}, 1)
    with redis.Redis.from_url(idle.env["CACHE_REDIS_URL"]) as client:
        now_us = World(client, LeaseStore(client), key).now_us()

        def plant(value: object) -> None:
            header = a_header(now_us, soft_expiry_us=now_us + 10**9, read_started_us=now_us)
            client.set(key.entry, encode(header, key.digest, payload.encode(value)))

        large = ["é" * 1_000] * 2_000
        plant(large)
        whole = idle.run("get", "long_lived", "key=planted")
        assert (whole.exit_code, json.loads(whole.stdout) == large) == (0, True), whole.stderr
        plant({None: b"x"})
        unprinted = idle.run("get", "long_lived", "key=planted")
        assert (unprinted.exit_code, unprinted.stdout) == (1, "")
        assert "error: the value can't be printed as JSON: " in unprinted.stderr


def test_the_refresh_command_without_wait_triggers_once(idle: Commands) -> None:
    first = idle.run("refresh", "long_lived", "key=a", "--wait", "0")
    assert (first.exit_code, first.stdout) == (0, "long_lived v1: triggered\n")
    second = idle.run("refresh", "long_lived", "key=a", "--wait", "0", "--json")
    assert json.loads(second.stdout)["refresh"] == "suppressed"
    late = idle.run("refresh", "long_lived", "key=a", "--wait", "100ms")
    assert late.exit_code == 1
    assert str(late.exception).startswith("timed out after 0.10 s waiting for 'long_lived'")


def test_an_invalidated_value_is_stale_and_a_hard_one_gone(commands: Commands) -> None:
    client = commands.system.client()
    token = client.get_entry("long_lived", {"key": "invalidated"}).token
    soft = commands.run("invalidate", "long_lived", "key=invalidated", "--json")
    assert soft.exit_code == 0
    assert (said := json.loads(soft.stdout))["generation"] > token
    assert said["cached"] == [1]
    assert client.get_entry("long_lived", {"key": "invalidated"}).state is EntryState.STALE
    eventually(lambda: client.get_entry("long_lived", {"key": "invalidated"}).state is EntryState.FRESH, "a new value")
    hard = commands.run("invalidate", "long_lived", '{"key": "invalidated"}', "--hard")
    assert (hard.stdout.startswith("long_lived v1: gone from now on, generation "), hard.stderr) == (True, "")
    assert client.get_entry("long_lived", {"key": "invalidated"}).state is EntryState.MISS
    alone = commands.run("invalidate", "long_lived", "key=invalidated", "--replicas", "1", CACHE_REDIS_TIMEOUT="2s")
    assert alone.exit_code == 1
    assert "fewer than 1 replicas have it" in alone.stderr


def test_the_invalidate_command_reports_a_missing_entry_and_an_unregistered_query(commands: Commands) -> None:
    absent = commands.run("invalidate", "long_lived", "key=absent")
    assert (absent.exit_code, absent.stderr) == (0, "")
    assert absent.stdout.startswith("long_lived v1: there was no entry, generation ")
    misspelled = commands.run("invalidate", "long_live", "key=absent")
    assert misspelled.exit_code == 0
    assert misspelled.stdout.startswith("long_live v1: there was no entry, generation ")
    assert misspelled.stderr == (
        "warning: no worker has registered long_live: is its name right, and is a worker running?\n"
    )
    later = commands.run("invalidate", "long_lived", "key=absent", "--version", "2")
    assert "no worker has registered version 2 of long_lived: " in later.stderr


def test_the_invalidate_command_invalidates_by_tag(commands: Commands) -> None:
    client, keys = commands.system.client(), [f"key-{n}" for n in range(5)]
    for key in keys:
        assert client.get("tagged", {"key": key})["load"] == 1
    done = commands.run("invalidate", "--tag", "key:key-1", "--tag", "key:key-2")
    assert (done.exit_code, done.stdout) == (0, "key:key-1, key:key-2: 2 entries are stale from now on\n")
    done = commands.run("invalidate", "--tag", "all", "--hard", "--json")
    assert json.loads(done.stdout) == {"tags": ["all"], "entries": len(keys)}
    assert client.get_entry("tagged", {"key": "key-1"}).state is EntryState.MISS


def test_queries_are_listed_with_how_each_is_cached(idle: Commands) -> None:
    done = idle.run("queries")
    assert (done.exit_code, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("long_lived")]
    assert "key: str, hold: str = ''" in line
    assert "plain, β0 1" in line
    listed = {one["query"]: one for one in json.loads(idle.run("queries", "--json").stdout)}
    assert (listed["short_lived"]["ttl"], listed["short_lived"]["grace"]) == (0.3, 600)
    together = listed["revised_together"]
    assert (together["params"], together["conditional"]) == (["calls: list[dict[str, str]]"], True)
    assert listed["revised"]["version_cypher"].startswith("MATCH (p:Item")
    off = json.loads(idle.run("queries", "--json", CACHE_XFETCH_ENABLED="false").stdout)
    assert {one["beta"] for one in off} == {"none"}


def test_an_expected_error_is_one_line_on_stderr() -> None:
    argv = [sys.executable, "-m", "refresher.cli", "queries"]
    environ = {**BARE, "REFRESHER_QUERIES": ""}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: REFRESHER_QUERIES='' is not valid")


@pytest.mark.parametrize("command", [["refresher.cli", "queries"], ["celery", "-A", "refresher", "report"]])
def test_commands_import_query_modules_from_the_working_directory(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('imported')")
    # Like programs that pip has installed, which do not search the working directory by themselves.
    done = subprocess.run(
        [sys.executable, "-P", "-m", *command], cwd=tmp_path, timeout=MAX_WAIT_SECONDS, check=False,
        env={**BARE, "REFRESHER_QUERIES": "mine"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "imported" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["warm", "refresh", "invalidate", "explain", "dead"])
def test_a_command_without_redis_names_its_variable_without_the_password(command: str) -> None:
    subject = ["list"] if command == "dead" else ["long_lived", "key=a"]
    url = f"redis://:{SECRET}@127.0.0.1:{free_port()}/0"
    done = CommandLine(command, {"CACHE_REDIS_URL": url}).run(*subject)
    said = done.output + str(done.exception)
    assert (done.exit_code, isinstance(done.exception, (*EXPECTED_ERRORS, SystemExit))) == (1, True)
    assert "CACHE_REDIS_URL" in said
    assert SECRET not in said
