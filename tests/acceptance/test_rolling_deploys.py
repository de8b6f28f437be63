"""Readers and workers of two releases at once, each installed for itself, one rolled after the other under traffic."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from api_client.errors import RefreshFailed, UnknownQuery
from api_client.protocol.keys import versions_key
from refresher.embedded import GuardedProcess
from tests.acceptance.conftest import System
from tests.support import long_running_traffic, scripted_queries
from tests.support.installations import Installation
from tests.support.releases import MADE_UP, NOW, install_release, last_tag
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.timeout(4 * MAX_WAIT_SECONDS)

# Workers first: where messages have another version, new readers wait for new workers. Within one, any order will do.
WORKERS_FIRST, READERS_FIRST = ("worker", "reader"), ("reader", "worker")
ROLLS = [("minor", WORKERS_FIRST), ("minor", READERS_FIRST), ("major", WORKERS_FIRST)]
ROLLS += [(tag, WORKERS_FIRST) for tag in [last_tag()] if tag]
PASSES = 20
QUEUES = [f"cache{version}.refresh{kind}" for version in ("", ".2") for kind in ("", "-miss")]


class Reader:
    """A reader's process of some release, and its status."""

    def __init__(self, process: GuardedProcess, status: Path) -> None:
        self.process, self._status = process, status

    def reported(self, what: str) -> Any:
        """Return a field of its status file; 0 before there is one."""
        return json.loads(self._status.read_text())[what] if self._status.exists() else 0


class Fleet:
    """Workers and readers by release; all of it ends with the test."""

    def __init__(self, system: System, stack: ExitStack, install: Callable[[str], Installation], folder: Path) -> None:
        self._stack, self._install, self._folder, self._started = stack, install, folder, 0
        # Nothing of this tree may be importable from here.
        shutil.copyfile(scripted_queries.__file__, folder / "rolling_queries.py")
        shutil.copyfile(long_running_traffic.__file__, folder / "long_running_traffic.py")
        changes = {"PYTHONPATH": str(folder), "REFRESHER_QUERIES": "rolling_queries"}
        self._env = {**system.env, **changes}
        self.readers: list[Reader] = []
        self.workers: list[GuardedProcess] = []

    def worker(self, release: str) -> GuardedProcess:
        """Start a worker; returns when it consumes."""
        command = ["celery", "-A", "refresher", "worker", "-c", "2", "--loglevel", "INFO", "--without-gossip"]
        worker = self._start(release, [*command, "--without-mingle", "-n", f"{self._started}-{release}@test"])
        self.workers.append(worker)
        eventually(lambda: "ready." in worker.log_file.read_text(), f"a worker of {release} is ready")
        return worker

    def reader(self, release: str) -> Reader:
        """Start a reader's traffic."""
        name = f"{self._started}-{release}"
        status = self._folder / f"{name}.json"
        reader = Reader(self._start(release, ["long_running_traffic", name, str(status)]), status)
        self.readers.append(reader)
        return reader

    def goes_on(self) -> None:
        """Wait until each running reader has made some more passes."""
        for reader in [one for one in self.readers if one.process.poll() is None]:
            until = reader.reported("passes") + PASSES
            eventually(lambda: reader.reported("passes") >= until, "traffic goes on")  # noqa: B023

    def end(self, process: GuardedProcess) -> None:
        """End a process as a deployment does, and let the others go on."""
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(MAX_WAIT_SECONDS) == 0, process.tail_of_log()

    def dropped(self) -> list[str]:
        """Return what workers of earlier releases and of this one have logged about rejected messages."""
        lines = (line for worker in self.workers for line in worker.log_file.read_text().splitlines())
        return [
            line
            for line in lines
            if "dropped" in line or "rejected a message" in line or "rejected an unrecognised message" in line
        ]

    def _start(self, release: str, module_and_arguments: list[str]) -> GuardedProcess:
        self._started += 1
        process = GuardedProcess.start(
            [str(self._install(release).python), "-m", *module_and_arguments],
            env=self._env,
            cwd=self._folder,
            log_file=self._folder / f"{self._started}.log",
        )
        self._stack.callback(process.kill)
        return process


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installation]:
    """Installs a release once."""
    made: dict[str, Installation] = {}

    def once(release: str) -> Installation:
        if release not in made:
            made[release] = install_release(release, tmp_path_factory.mktemp(f"release-{release}"))
        return made[release]

    return once


@pytest.fixture
def fleet(
    system_without_graph: System, stack: ExitStack, install: Callable[[str], Installation], tmp_path: Path
) -> Iterator[Fleet]:
    (tmp_path / "apart").mkdir()
    fleet = Fleet(system_without_graph, stack, install, tmp_path / "apart")
    yield fleet
    for process in [*fleet.workers, *(reader.process for reader in fleet.readers)]:
        process.kill()


@pytest.mark.promise("Contract and operation", "Releases replace each other under traffic")
@pytest.mark.parametrize(("release", "order"), ROLLS, ids=[f"{release}-{order[0]}s-first" for release, order in ROLLS])
def test_no_message_is_lost_while_one_release_replaces_another(
    fleet: Fleet, system_without_graph: System, release: str, order: tuple[str, str]
) -> None:
    old, new = (NOW, release) if release in MADE_UP else (release, NOW)
    system_without_graph.control.rpush("script:shared-0", "fail", "ok", "fail")
    running = {"worker": fleet.worker(old), "reader": fleet.reader(old).process}
    (old_reader,) = fleet.readers
    fleet.goes_on()
    for what in order:
        if what == "worker":
            fleet.worker(new)
        else:
            fleet.reader(new)
        fleet.goes_on()
        if release == "major" and what == "reader":
            eventually(lambda: old_reader.reported("unreadable"), "an old reader meets an entry of version 2")
            fleet.goes_on()
        fleet.end(running[what])
        fleet.goes_on()
    (_, new_reader) = fleet.readers
    fleet.end(new_reader.process)
    for reader in fleet.readers:
        assert (reader.reported("errors"), reader.reported("went_back")) == ([], [])
    assert fleet.dropped() == []
    assert old_reader.reported("unreadable").keys() == ({"version"} if release == "major" else set())
    assert new_reader.reported("unreadable") == {}
    eventually(lambda: not system_without_graph.broker.exists("unacked", *QUEUES), "all are done")


def test_messages_of_a_newer_version_wait_for_a_worker_that_understands_them(
    fleet: Fleet, system_without_graph: System
) -> None:
    old = fleet.worker(NOW)
    reader = fleet.reader("major")
    eventually(
        lambda: system_without_graph.broker.llen("cache.2.refresh-miss"), "the new reader's first miss is queued"
    )
    fleet.worker("major")
    fleet.goes_on()
    fleet.end(old)
    fleet.goes_on()
    fleet.end(reader.process)
    assert (reader.reported("errors"), reader.reported("went_back"), reader.reported("unreadable")) == ([], [], {})
    assert fleet.dropped() == []


OLD = """
from refresher import query

@query("profile", ttl="1h", grace="1h")
def profile(tx, n):
    return ["old", n]
"""
NEW = """
from refresher import query

@query("profile", ttl="1h", grace="1h")
def profile(tx, n, limit=1):
    return ["new", n]

@query("profile", ttl="1h", grace="1h", version=2)
def profile_2(tx, n):
    return ["new", n]

@query("added", ttl="1h", grace="1h", batch=10)
def added(tx, calls):
    return [["new", call["n"]] for call in calls]
"""


@pytest.mark.promise("Contract and operation", "A key that only workers of another release can load is loaded by them")
@pytest.mark.parametrize(
    ("query", "version", "more", "why"),
    [
        ("added", 1, {}, "unknown_query"),
        ("profile", 2, {}, "unknown_query"),
        ("profile", 1, {"limit": 2}, "wrong_params"),
    ],
    ids=["query", "version", "param"],
)
def test_an_old_worker_passes_on_what_only_a_new_one_can_load(
    system_without_graph: System, tmp_path: Path, query: str, version: int, more: dict[str, int], why: str
) -> None:
    system = system_without_graph
    (tmp_path / "old_queries.py").write_text(OLD)
    (tmp_path / "new_queries.py").write_text(NEW)
    path = f"{tmp_path}{os.pathsep}{system.env['PYTHONPATH']}"
    olds = [system.start_worker("-c", "1", PYTHONPATH=path, REFRESHER_QUERIES="old_queries") for _ in range(2)]
    new = system.start_worker("-c", "1", PYTHONPATH=path, REFRESHER_QUERIES="new_queries")
    eventually(lambda: system.cache.zcard("cache:v1:{profile}") == 5, "both releases have registered")
    client = system.client()

    def logged(text: str) -> int:
        return sum(old.log_file.read_text().count(text) for old in olds)

    for n in range(100):
        assert client.get(query, {"n": n, **more}, version=version) == ["new", n]
        if n >= 10 and logged(f"retry ({why}) {query}"):
            break
    assert logged(f"retry ({why}) {query}"), "an old worker has met one"
    assert logged("abandoned") == new.log_file.read_text().count("abandoned") == 0
    with pytest.raises(RefreshFailed, match="wrong_params"):
        client.get("profile", {"nobody": "takes this"}, version=2)
    with pytest.raises(UnknownQuery):
        client.get("nobody_knows")


def test_a_running_worker_registers_its_versions_again_when_redis_has_lost_them(system_without_graph: System) -> None:
    system, registered = system_without_graph, versions_key("cache", "long_lived")
    system.start_worker("-c", "1")
    for lose in (system.cache.flushall, lambda: system.cache.set(registered, "of something else")):
        eventually(lambda: system.cache.type(registered) == b"zset", "it is registered, though nobody reads")
        lose()
    eventually(lambda: system.cache.type(registered) == b"zset", "its key is repaired")


@pytest.mark.parametrize("release", [NOW, *MADE_UP])
def test_an_installed_release_is_not_this_source_tree(install: Callable[[str], Installation], release: str) -> None:
    made = install(release)
    assert (made.packages / "refresher" / "py.typed").exists()
    own = (made.packages / "api_client" / "protocol" / "messages.py").read_text()
    assert own.count("def encode(") == (1 if release == NOW else 2)
